//! Volumes with regions of persistent memory, from the command line.

use std::fs;

use crate::program::{dure, printed, refused};

#[test]
fn regions_lie_on_nodes_and_nodes_must_exist() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let volume = path("volume");
    let (a, b) = (path("a"), path("b"));
    let mkfs = |a: &str, b: &str, node: &str| {
        [
            "mkfs",
            "--size",
            "64M",
            "--nvm",
            a,
            "--nvm",
            b,
            "--nvm-size",
            "32M",
            "--node",
            node,
            "--topology",
            "2x4",
            &volume,
        ]
        .map(str::to_owned)
    };
    let (a0, b1, b7) = (format!("{a}@0"), format!("{b}@1"), format!("{b}@7"));
    for (arguments, place) in [(mkfs(&a0, &b7, "0"), &b), (mkfs(&a0, &b1, "2"), &volume)] {
        let said = refused(&arguments.each_ref().map(String::as_str));
        assert!(said.contains(place.as_str()), "{said}");
        assert!(said.contains("there is no NUMA node"), "{said}");
        assert!(said.contains("the nodes are 0, 1"), "{said}");
        assert!(!fs::exists(&volume).unwrap() && !fs::exists(&a).unwrap());
    }
    let wrong = ["mkfs", "--size", "64M", "--topology", "2y4", &volume];
    assert!(refused(&wrong).contains("NODESxCORES"));
    let direct = mkfs(&a0, &b1, "1");
    let direct: Vec<&str> = direct
        .iter()
        .map(String::as_str)
        .chain(["--require-dax"])
        .collect();
    let said = refused(&direct);
    assert!(said.contains("not on persistent memory"), "{said}");
    assert!(!fs::exists(&volume).unwrap() && !fs::exists(&a).unwrap());
    printed(&mkfs(&a0, &b1, "1").each_ref().map(String::as_str));
    let info = printed(&["info", &volume]);
    for (node, name) in [(0, "a"), (1, "b"), (1, "volume")] {
        let line = info
            .lines()
            .find(|line| line.contains(&format!("/{name}:")));
        let line = line.unwrap_or_else(|| panic!("{name}: {info}"));
        assert!(line.contains(&format!("on node {node},")), "{line}");
        assert!(line.contains("logs, nodes, data"), "{line}");
    }
    printed(&["check", &volume]);
}

/// A region as it was before the volume was used, and a head that is destroyed.
#[test]
fn an_old_region_is_refused_and_a_destroyed_head_is_mended() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (volume, a, b) = (path("volume"), path("a"), path("b"));
    printed(&[
        "mkfs",
        "--size",
        "64M",
        "--nvm",
        &a,
        "--nvm",
        &b,
        "--nvm-size",
        "32M",
        &volume,
    ]);
    let old = path("old");
    fs::copy(&b, &old).unwrap();
    printed(&["mkdir", &volume, "/made"]);
    let new = path("new");
    fs::copy(&b, &new).unwrap();
    fs::copy(&old, &b).unwrap();
    for command in [
        &["ls", &volume][..],
        &["check", &volume],
        &["check", "--repair", &volume],
        &["dump", &volume, "superblock"],
        &["info", &volume],
        &["mkdir", &volume, "/more"],
    ] {
        let said = refused(command);
        let expected = format!("{b}: is an old copy");
        assert!(said.contains(&expected), "{command:?}: {said}");
    }
    fs::copy(&new, &b).unwrap();
    let mut bytes = fs::read(&b).unwrap();
    bytes[..4096].fill(0);
    fs::write(&b, &bytes).unwrap();
    let output = dure(&["check", "--repair", &volume]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("its head is destroyed"), "{said}");
    assert!(said.contains("(repaired)"), "{said}");
    assert_eq!(fs::read(&b).unwrap()[..8], *b"DUREVOL4");
    assert!(printed(&["ls", &volume]).contains("made"));
}

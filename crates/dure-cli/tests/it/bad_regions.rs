//! Regions of persistent memory that are not what the volume needs: every command refuses them by
//! name, with one line, and writes nothing. A NUMA node that is not there, `--require-dax` for new
//! files, and old copies are in `regions`. A processor without `clwb` is no case: all have `clflush`.

#![expect(clippy::unwrap_used, reason = "tests panic")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::program::{can_mount, dure, errors, printed, refused, text};

/// Two volumes with two regions each: `v` on `a` and `b`, `w` on `c` and `d`.
struct Media(tempfile::TempDir);

impl Media {
    fn new() -> Media {
        let media = Media(tempfile::tempdir().unwrap());
        for (volume, first, second) in [("v", "a", "b"), ("w", "c", "d")] {
            let [volume, first, second] = [volume, first, second].map(|name| media.path(name));
            let regions = ["--nvm", text(&first), "--nvm", text(&second)];
            let sizes = ["--size", "8M", "--nvm-size", "8M"];
            printed(&[&["mkfs", text(&volume)], &regions[..], &sizes].concat());
        }
        media
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn content(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        files(self.0.path())
    }

    /// Every command that takes the volume refuses it with `words`.
    fn refused_by_all(&self, words: &[&str]) {
        let volume = self.path("v");
        let v = text(&volume);
        let elsewhere = tempfile::tempdir().unwrap();
        let place = text(elsewhere.path());
        let commands = [
            &["ls", v][..],
            &["mkdir", v, "/made"],
            &["check", v],
            &["check", "--repair", v],
            &["dump", v, "superblock"],
            &["info", v],
            &["resize", v, "32M"],
            &["rescue", v, place],
            &["mount", v, place],
            &["mount", "-o", "nvm=emulated,page_cache=nvram", v, place],
        ];
        let before = self.content();
        for command in commands {
            if command[0] != "mount" || can_mount() {
                told(command, words);
            }
        }
        // Not assert_eq: it would print the media.
        assert!(before == self.content(), "one of them wrote");
    }

    /// `command` is refused, and writes nothing.
    #[track_caller]
    fn refused(&self, command: &[&str], words: &[&str]) {
        let before = self.content();
        told(command, words);
        assert!(before == self.content(), "{command:?} wrote");
    }
}

/// Refused with one line that has all of `words`.
#[track_caller]
fn told(command: &[&str], words: &[&str]) {
    crate::program::told(&refused(command), words);
}

fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

#[test]
fn a_missing_region_is_refused_by_name() {
    let media = Media::new();
    let b = media.path("b");
    fs::remove_file(&b).unwrap();
    media.refused_by_all(&[text(&b), "is missing", "--nvm"]);
}

#[test]
fn swapped_regions_are_refused_by_name_and_found_where_they_are_said_to_be() {
    let media = Media::new();
    let [a, b, other] = ["a", "b", "other"].map(|name| media.path(name));
    fs::rename(&a, &other).unwrap();
    fs::rename(&b, &a).unwrap();
    fs::rename(&other, &b).unwrap();
    media.refused_by_all(&[text(&a), "is medium 2 of 3, where medium 1 was expected"]);
    let volume = media.path("v");
    let output = dure(&["check", text(&volume), "--nvm", text(&b), "--nvm", text(&a)]);
    assert!(output.status.success(), "{}", errors(&output));
}

#[test]
fn a_truncated_region_is_refused_by_name() {
    let media = Media::new();
    let b = media.path("b");
    let file = fs::File::options().write(true).open(&b).unwrap();
    file.set_len(7 << 20).unwrap();
    media.refused_by_all(&[text(&b), "has 7 MiB, and 8 MiB of it", "cut off"]);
    file.set_len(0).unwrap();
    media.refused_by_all(&[text(&b), "medium 2 of 3 was expected"]);
}

#[test]
fn a_wiped_region_is_refused_by_name() {
    let media = Media::new();
    let b = media.path("b");
    fs::write(&b, vec![0; 8 << 20]).unwrap();
    media.refused_by_all(&[text(&b), "it was wiped", "medium 2 of 3 was expected"]);
}

#[test]
fn a_region_of_another_volume_is_refused_by_name() {
    let media = Media::new();
    let b = media.path("b");
    fs::copy(media.path("d"), &b).unwrap();
    media.refused_by_all(&[text(&b), "belongs to volume", "and not to"]);
}

#[test]
fn two_regions_with_one_identity_are_refused_by_name() {
    let media = Media::new();
    let [a, b] = ["a", "b"].map(|name| media.path(name));
    fs::copy(&a, &b).unwrap();
    media.refused_by_all(&[text(&b), text(&a), "one is a copy"]);
}

#[test]
fn regions_named_twice_too_few_or_too_many_are_refused() {
    let media = Media::new();
    let [v, a, b, c] = ["v", "a", "b", "c"].map(|name| media.path(name));
    let named = |files: &[&Path], words: &[&str]| {
        let mut command = vec!["check", text(&v)];
        command.extend(files.iter().flat_map(|file| ["--nvm", text(file)]));
        media.refused(&command, words);
    };
    named(&[&a, &a], &[text(&a), "is named twice"]);
    named(&[&a, &v], &[text(&v), "is named twice"]);
    named(&[&a], &[text(&v), "lies on 2 regions", "--nvm names 1"]);
    named(&[&a, &b, &c], &["lies on 2 regions", "--nvm names 3"]);
    media.refused(&["check", text(&a)], &[text(&a), "is region 1", text(&v)]);
}

#[test]
fn mkfs_refuses_regions_before_it_writes() {
    let media = Media::new();
    let [new, region, a, b, v] = ["new", "region", "a", "b", "v"].map(|name| media.path(name));
    let mkfs = |arguments: &[&str], words: &[&str]| {
        media.refused(&[&["mkfs", "--size", "64M"], arguments].concat(), words);
    };
    let (new, region) = (text(&new), text(&region));
    for size in ["1M", "4M"] {
        mkfs(
            &["--nvm", region, "--nvm-size", size, new],
            &[region, "tables, logs and nodes need", "give more"],
        );
    }
    let twice = ["--nvm", region, "--nvm", region, "--nvm-size", "16M", new];
    mkfs(&twice, &[region, "is named twice"]);
    let both = ["--nvm", new, "--nvm-size", "16M", new];
    mkfs(&both, &[new, "is named twice"]);
    mkfs(
        &["--nvm", region, new],
        &[region, "no such file", "--nvm-size"],
    );
    mkfs(&["--nvm", text(&a), new], &[text(&a), "--force"]);
    let taken = ["--nvm", region, "--nvm-size", "16M", text(&v)];
    mkfs(&taken, &[text(&v), "--force"]);
    let forced = ["--force", "--require-dax", "--nvm", text(&b), new];
    mkfs(
        &forced,
        &[text(&b), "not on persistent memory", "--require-dax"],
    );
}

/// A mount that asks for more than the memory is.
#[test]
fn a_mount_refuses_memory_that_is_not_what_it_asks_for() {
    if !can_mount() {
        return;
    }
    let media = Media::new();
    let (v, a) = (media.path("v"), media.path("a"));
    let elsewhere = tempfile::tempdir().unwrap();
    let mount = |options: &str| {
        let before = media.content();
        let said = refused(&["mount", "-o", options, text(&v), text(elsewhere.path())]);
        assert!(before == media.content(), "{options} wrote");
        said
    };
    assert!(mount("nvm=direct").contains(&format!("{}: is not on persistent memory", text(&a))));
    assert!(mount("page_cache=none").contains("not wholly in persistent memory"));
    assert!(mount("page_cache=nvram").contains("not in mapped persistent memory"));
    let large = mount("nvm=emulated,page_cache=nvram,nvram=1G");
    assert!(large.contains("1 GiB: it is a size from"), "{large}");
    let nodes = mount("topology=2y4");
    assert!(nodes.contains("NODESxCORES"), "{nodes}");
}

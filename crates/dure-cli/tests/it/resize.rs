//! `dure resize` and `dure trim`.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::program::{Mounted, can_mount, printed, refused, text, volume};

const MIB: u64 = 1 << 20;

#[test]
fn a_volume_grows_and_never_shrinks() {
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let source = folder.path().join("source");
    fs::write(&source, vec![7; 3 << 20]).unwrap();
    printed(&["put", "-q", text(&image), text(&source), "/kept"]);
    let size = || fs::metadata(&image).unwrap().len();

    let smaller = refused(&["resize", text(&image), "32M"]);
    assert!(smaller.contains("cannot become smaller"), "{smaller}");
    // Not even the new tables would fit: the image keeps its size.
    let little = refused(&["resize", text(&image), "65M"]);
    assert!(little.contains("needs"), "{little}");
    assert_eq!(size(), 64 * MIB);

    let grown = printed(&["resize", text(&image), "256M"]);
    assert!(grown.contains("64.0 MiB before, 256.0 MiB now"), "{grown}");
    assert_eq!(size(), 256 * MIB);
    printed(&["check", "--data", text(&image)]);
    // More than the old volume had.
    for name in ["/a", "/b", "/c"] {
        let big = folder.path().join("big");
        fs::write(&big, vec![3; 40 << 20]).unwrap();
        printed(&["put", "-q", text(&image), text(&big), name]);
    }
    let out = folder.path().join("out");
    printed(&["get", "-q", text(&image), "/kept", text(&out)]);
    assert_eq!(fs::read(out).unwrap(), fs::read(source).unwrap());
    printed(&["resize", text(&image), "1G"]);
    printed(&["check", "--data", text(&image)]);
    if can_mount() {
        let mount = Mounted::new(&image, "m", "");
        let busy = refused(&["resize", text(&image), "2G"]);
        assert!(busy.contains("in use by"), "{busy}");
        assert_eq!(size(), 1 << 30);
        mount.end();
    }
}

#[test]
fn what_a_volume_does_not_use_is_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let source = folder.path().join("source");
    fs::write(&source, vec![9; 24 << 20]).unwrap();
    printed(&["put", "-q", text(&image), text(&source), "/big"]);
    printed(&["put", "-q", text(&image), text(&source), "/kept"]);
    printed(&["rm", text(&image), "/big"]);
    let taken = || fs::metadata(&image).unwrap().blocks() * 512;
    let before = taken();
    let said = printed(&["trim", text(&image)]);
    assert!(said.contains("told to be free"), "{said}");
    let after = taken();
    assert!(after + 20 * MIB < before, "{before} {after}");
    printed(&["check", "--data", text(&image)]);
    let out = folder.path().join("out");
    printed(&["get", "-q", text(&image), "/kept", text(&out)]);
    assert_eq!(fs::read(out).unwrap(), fs::read(source).unwrap());
}

//! `dure resize` and `dure trim`.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;

use crate::program::{Loop, Mounted, can_mount, printed, refused, text, volume};

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
}

/// Files stay open, and what writes goes on.
#[test]
fn a_mounted_volume_grows() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let mount = Mounted::new(&image, "m", "");
    let (named, gone) = (mount.path("named"), mount.path("gone"));
    fs::write(&named, "named").unwrap();
    let mut open = File::options()
        .create_new(true)
        .read(true)
        .write(true)
        .open(&gone)
        .unwrap();
    open.write_all(b"without a name").unwrap();
    fs::remove_file(&gone).unwrap();
    let said = printed(&["resize", text(&mount.0), "256M"]);
    assert!(said.contains("64.0 MiB before, 256.0 MiB now"), "{said}");
    // More than there was room for.
    let big = vec![5; 100 << 20];
    fs::write(mount.path("big"), &big).unwrap();
    let mut content = String::new();
    open.rewind().unwrap();
    open.read_to_string(&mut content).unwrap();
    assert_eq!(content, "without a name");
    assert_eq!(fs::read(&named).unwrap(), b"named");
    assert_eq!(fs::read(mount.path("big")).unwrap(), big);
    for (size, why) in [("128M", "cannot become smaller"), ("257M", "needs")] {
        let refusal = refused(&["resize", text(&image), size]);
        assert!(refusal.contains(why), "{refusal}");
    }
    assert_eq!(fs::metadata(&image).unwrap().len(), 256 * MIB);
    // The image was made larger before.
    File::options()
        .write(true)
        .open(&image)
        .unwrap()
        .set_len(512 * MIB)
        .unwrap();
    let grown = printed(&["resize", text(&image)]);
    assert!(grown.contains("512.0 MiB now"), "{grown}");
    let top = printed(&["top", "--once", text(&image)]);
    assert!(top.contains(" of 49"), "{top}");
    drop(open);
    mount.end();
    printed(&["check", "--data", text(&image)]);
    let read_only = Mounted::new(&image, "m", "ro");
    let refusal = refused(&["resize", text(&image), "1G"]);
    assert!(refusal.contains("read-only"), "{refusal}");
    read_only.end();
}

/// A block device has its own size: the volume follows it.
#[test]
fn a_volume_on_a_block_device_that_became_larger_grows() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("v.img");
    File::create(&image).unwrap().set_len(64 * MIB).unwrap();
    let Some(looped) = Loop::new(&image) else {
        return;
    };
    let device = text(&looped.0);
    printed(&["mkfs", device]);
    let directory = folder.path().join("m");
    fs::create_dir(&directory).unwrap();
    printed(&["mount", device, text(&directory)]);
    let mount = Mounted(directory);
    fs::write(mount.path("before"), "before").unwrap();
    let open = File::open(mount.path("before")).unwrap();
    for (size, why) in [
        (None, "device larger first"),
        (Some("256M"), "leave out the size"),
    ] {
        let arguments = ["resize", text(&mount.0)];
        let refusal = refused(&[&arguments[..], size.as_slice()].concat());
        assert!(refusal.contains(why), "{refusal}");
    }
    looped.resize(&image, 256 * MIB);
    let said = printed(&["resize", text(&mount.0)]);
    assert!(said.contains("64.0 MiB before, 256.0 MiB now"), "{said}");
    let big = vec![5; 100 << 20];
    fs::write(mount.path("big"), &big).unwrap();
    assert_eq!(std::io::read_to_string(open).unwrap(), "before");
    mount.end();
    printed(&["check", "--data", device]);
    looped.resize(&image, 512 * MIB);
    let said = printed(&["resize", device]);
    assert!(said.contains("256.0 MiB before, 512.0 MiB now"), "{said}");
    printed(&["check", "--data", device]);
    assert_eq!(printed(&["cat", device, "/before"]), "before");
    let out = folder.path().join("out");
    printed(&["get", "-q", device, "/big", text(&out)]);
    assert_eq!(fs::read(out).unwrap(), big);
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

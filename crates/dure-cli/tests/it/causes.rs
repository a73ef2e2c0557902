//! What goes wrong most: a line for each says what and where, and most what to do.

#![expect(clippy::unwrap_used, reason = "tests panic")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::program::{as_user, can_mount, errors, printed, refused, text, told, volume};

const NOBODY: u32 = 65534;

/// A folder with a volume `v.img`, a cut copy of it, one whose first superblock is destroyed, an image
/// of zeros, an empty one, a file and a directory.
fn place() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let whole = volume(folder.path());
    let path = |name: &str| folder.path().join(name);
    fs::copy(&whole, path("short.img")).unwrap();
    let short = File::options().write(true).open(path("short.img"));
    short.unwrap().set_len(8 << 20).unwrap();
    fs::copy(&whole, path("bad.img")).unwrap();
    let bad = File::options().write(true).open(path("bad.img")).unwrap();
    bad.write_at(&[0; 4096], 0).unwrap();
    File::create(path("empty.img")).unwrap();
    let zero = File::create(path("zero.img")).unwrap();
    zero.set_len(64 << 20).unwrap();
    fs::write(path("file"), "hello").unwrap();
    fs::create_dir(path("m")).unwrap();
    folder
}

/// A command, and words of what it says.
const CAUSES: [(&str, &[&str]); 31] = [
    (
        "mount no-such.img m",
        &["no-such.img: cannot find it", "`dure mkfs` makes"],
    ),
    (
        "mount v.img no-such",
        &["no-such: No such file", "give an existing directory"],
    ),
    (
        "mount v.img file",
        &["file: not a directory", "give an existing directory"],
    ),
    ("mount m m", &["mount it elsewhere"]),
    (
        "mount zero.img m",
        &[
            "zero.img: not a dure volume",
            "neither its first nor its last",
            "nothing but zeros; `dure mkfs",
        ],
    ),
    (
        "mount short.img m",
        &[
            "short.img: the device has 8 MiB",
            "needs 64 MiB",
            "the copy is incomplete",
            "copy the whole volume again",
            "`dure rescue",
        ],
    ),
    (
        "mount v.img m -o nonsense",
        &["'nonsense'", "`dure mount --help` lists them"],
    ),
    ("mount v.img m -o cache", &["cache: it needs a value"]),
    (
        "mount v.img m -o cache=1K",
        &["cache=1K: it is at least 1.0 MiB"],
    ),
    (
        "mount v.img m -o durability=none",
        &["durability=none: it is posix or strict"],
    ),
    (
        "mount v.img m -o nvm=direct",
        &["v.img: is not on persistent memory", "leave out"],
    ),
    (
        "mkfs --size 64M v.img",
        &["v.img: holds a dure volume", "give --force"],
    ),
    (
        "mkfs no-such.img",
        &["no such file or device", "give --size"],
    ),
    (
        "mkfs --size 64M no-dir/v.img",
        &["cannot create the image file", "there is no directory"],
    ),
    (
        "mkfs --size 1K no-such.img",
        &["too small", "needs 4.0 MiB"],
    ),
    (
        "mkfs --size 64M /dev/null",
        &["/dev/null: is a character device", "needs a regular file"],
    ),
    ("ls v.img /no", &["v.img: stat /no: no such file"]),
    ("cat v.img /", &["v.img: read /: is a directory"]),
    (
        "mkdir v.img /a/b",
        &["v.img: make directory /a/b", "--parents"],
    ),
    (
        "resize v.img",
        &["64.0 MiB already", "a larger size, as in 2G"],
    ),
    (
        "resize v.img 16M",
        &["cannot become smaller", "make a new one and copy"],
    ),
    ("put v.img no-such /x", &["read", "no-such: No such file"]),
    ("umount m", &["m: nothing is mounted there"]),
    (
        "check zero.img",
        &["zero.img: not a dure volume", "; `dure mkfs"],
    ),
    (
        "info empty.img",
        &["it is empty; `dure mkfs --force --size"],
    ),
    ("info short.img", &["the copy is incomplete"]),
    (
        "check short.img",
        &["short.img: the copy is incomplete", "`dure rescue"],
    ),
    (
        "check bad.img",
        &[
            "bad.img: errors are left",
            "`dure check --repair",
            "--undo FILE",
        ],
    ),
    ("get v.img /no m", &["v.img: stat /no: no such file"]),
    (
        "put v.img file /no/dir/x",
        &["v.img: open /no/dir/x: no such file"],
    ),
    ("top m", &["m: not mounted", "`dure info --journal`"]),
];

#[test]
fn causes_are_told_with_the_next_step() {
    let folder = place();
    // What is in the folder, or says that it is not, is meant there; the rest is an option or a path
    // of a volume.
    let name = |word: &str| match folder.path().join(word) {
        path if !word.starts_with('/') && (path.exists() || word.starts_with("no-")) => {
            text(&path).to_owned()
        }
        _ => word.to_owned(),
    };
    for (command, words) in CAUSES {
        let words_of: Vec<String> = command.split(' ').map(name).collect();
        let arguments: Vec<&str> = words_of.iter().map(String::as_str).collect();
        told(&refused(&arguments), words);
    }
    assert!(!folder.path().join("no-such.img").exists());
    printed(&["check", text(&folder.path().join("v.img"))]);
}

#[test]
fn what_a_user_may_not_open_is_told_as_that() {
    if !can_mount() {
        return;
    }
    let folder = place();
    let whole = folder.path().join("v.img");
    let mode = |path: &Path, mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(folder.path(), 0o755);
    mode(&whole, 0o600);
    for command in ["check", "info"] {
        let output = as_user(NOBODY, &[command, text(&whole)]);
        assert!(!output.status.success(), "{command} worked");
        told(
            &errors(&output),
            &["v.img: cannot open it", "its owner and mode"],
        );
    }
}

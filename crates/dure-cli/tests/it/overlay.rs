//! A mount as the upper directory of an overlay, as containers have it.

#![expect(clippy::unwrap_used, reason = "tests panic")]

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
}

fn dure() -> Command {
    Command::new(env!("CARGO_BIN_EXE_dure"))
}

/// Whether there are what the test needs.
fn can_overlay() -> bool {
    let fuse = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse");
    let kinds = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let can = fuse.is_ok() && kinds.contains("overlay") && rustix::process::geteuid().is_root();
    if !can {
        eprintln!("not tested: it needs root, /dev/fuse and overlayfs");
    }
    can
}

/// An overlay, unmounted when dropped; below it a mounted volume.
struct Overlay {
    merged: PathBuf,
    volume: PathBuf,
}

impl Overlay {
    /// Of the directory `lower` in `place`, with changes to the volume there.
    fn mount(place: &Path) -> Overlay {
        let volume = place.join("volume");
        run(dure()
            .args(["mount", "-o", "suid,dev"])
            .arg(place.join("image"))
            .arg(&volume));
        for directory in ["up", "work"] {
            fs::create_dir_all(volume.join(directory)).unwrap();
        }
        let overlay = Overlay {
            merged: place.join("merged"),
            volume,
        };
        let directories = format!(
            "lowerdir={},upperdir={},workdir={}",
            place.join("lower").display(),
            overlay.volume.join("up").display(),
            overlay.volume.join("work").display()
        );
        run(Command::new("mount")
            .args(["-t", "overlay", "overlay", "-o", &directories])
            .arg(&overlay.merged));
        overlay
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.merged).output();
        let _ = dure().arg("umount").arg(&self.volume).output();
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<_> = entries
        .map(|entry| name(entry).into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_mount_is_the_upper_directory_of_an_overlay() {
    if !can_overlay() {
        return;
    }
    let place = tempfile::TempDir::new().unwrap();
    let place = place.path();
    for directory in ["volume", "merged", "lower/directory"] {
        fs::create_dir_all(place.join(directory)).unwrap();
    }
    for file in ["moved", "removed", "kept", "directory/inside"] {
        fs::write(place.join("lower").join(file), file).unwrap();
    }
    run(dure()
        .args(["mkfs", "--size", "64M"])
        .arg(place.join("image")));
    let overlay = Overlay::mount(place);
    let merged = &overlay.merged;
    fs::rename(merged.join("moved"), merged.join("elsewhere")).unwrap();
    fs::remove_file(merged.join("removed")).unwrap();
    fs::write(merged.join("kept"), "changed").unwrap();
    fs::remove_dir_all(merged.join("directory")).unwrap();
    fs::create_dir(merged.join("directory")).unwrap();
    // The old name leads to a whiteout: a device of number 0.
    let left = fs::metadata(overlay.volume.join("up/moved")).unwrap();
    assert!(left.file_type().is_char_device());
    assert_eq!(left.rdev(), 0);
    drop(overlay);
    let overlay = Overlay::mount(place);
    let merged = &overlay.merged;
    assert_eq!(names(merged), ["directory", "elsewhere", "kept"]);
    assert_eq!(names(&merged.join("directory")), Vec::<String>::new());
    assert_eq!(
        fs::read_to_string(merged.join("elsewhere")).unwrap(),
        "moved"
    );
    assert_eq!(fs::read_to_string(merged.join("kept")).unwrap(), "changed");
    drop(overlay);
    run(dure().arg("check").arg(place.join("image")));
}

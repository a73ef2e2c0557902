//! The program itself, and mounts that end with a test. What needs a mount is played only where one
//! can be made (root and /dev/fuse).

#![expect(clippy::unwrap_used, reason = "tests panic")]

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(crate) fn program() -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_dure"));
    // Not where servers of this machine have theirs.
    program.env("STATE_DIRECTORY", std::env::temp_dir().join("dure-tests"));
    program
}

pub(crate) fn dure(arguments: &[&str]) -> Output {
    program().args(arguments).output().unwrap()
}

/// The same as an ordinary user.
pub(crate) fn as_user(uid: u32, arguments: &[&str]) -> Output {
    let mut program = program();
    program.args(arguments).uid(uid).gid(uid);
    program.current_dir("/").output().unwrap()
}

/// What it prints when all is well.
pub(crate) fn printed(arguments: &[&str]) -> String {
    let output = dure(arguments);
    let errors = errors(&output);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// What it complains of when it fails.
pub(crate) fn refused(arguments: &[&str]) -> String {
    let output = dure(arguments);
    assert!(!output.status.success(), "{arguments:?} worked");
    errors(&output)
}

/// That `message` is a line with all of `words`.
#[track_caller]
pub(crate) fn told(message: &str, words: &[&str]) {
    for word in words {
        assert!(message.contains(word), "'{word}' is not in: {message}");
    }
    assert_eq!(message.lines().count(), 1, "not a line: {message}");
}

pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub(crate) fn volume(folder: &Path) -> PathBuf {
    let volume = folder.join("v.img");
    printed(&["mkfs", "--size", "64M", "--journals", "4", text(&volume)]);
    volume
}

pub(crate) fn can_mount() -> bool {
    let fuse = File::options().read(true).write(true).open("/dev/fuse");
    let can = fuse.is_ok() && rustix::process::geteuid().is_root();
    if !can {
        eprintln!("skipped: mounting needs root and /dev/fuse");
    }
    can
}

/// A mount that ends with the test.
pub(crate) struct Mounted(pub(crate) PathBuf);

impl Mounted {
    /// Mounts `volume` on the new directory `name` in the same directory.
    pub(crate) fn new(volume: &Path, name: &str, options: &str) -> Mounted {
        let directory = volume.parent().unwrap().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let mut arguments = vec!["mount", text(volume), text(&directory)];
        if !options.is_empty() {
            arguments.extend(["-o", options]);
        }
        printed(&arguments);
        Mounted(directory)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn end(self) {
        // A process that another test is just starting has the files of this one open for a moment.
        for _ in 0..200 {
            let output = dure(&["umount", text(&self.0)]);
            if output.status.success() {
                return;
            }
            let errors = errors(&output);
            assert!(errors.contains("busy"), "{errors}");
            dure_sync::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("{} stays busy", self.0.display());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(dure(&["umount", "--lazy", text(&self.0)]));
    }
}

/// A loop device over a file; detached when dropped.
pub(crate) struct Loop(pub(crate) PathBuf);

impl Loop {
    /// `None` where there are none: no losetup, or not root.
    pub(crate) fn new(file: &Path) -> Option<Loop> {
        let mut losetup = Command::new("losetup");
        match losetup.args(["--find", "--show", text(file)]).output() {
            Ok(output) if output.status.success() => {
                let name = String::from_utf8(output.stdout).unwrap();
                Some(Loop(name.trim().into()))
            }
            other => {
                eprintln!("skipped: no loop devices: {other:?}");
                None
            }
        }
    }

    /// Gives the file another size, and the device too.
    pub(crate) fn resize(&self, file: &Path, bytes: u64) {
        let opened = File::options().write(true).open(file).unwrap();
        opened.set_len(bytes).unwrap();
        let told = Command::new("losetup").arg("-c").arg(&self.0).status();
        assert!(told.unwrap().success());
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        drop(Command::new("losetup").arg("-d").arg(&self.0).status());
    }
}

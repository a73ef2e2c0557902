//! A loop device over an image, for tests of block devices.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A loop device over a file; detached when dropped.
pub(crate) struct Loop(pub(crate) PathBuf);

impl Loop {
    /// `None` where there are none: no losetup, or not root.
    pub(crate) fn new(file: &Path) -> Option<Loop> {
        let output = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file)
            .output();
        match output {
            Ok(output) if output.status.success() => {
                let name = String::from_utf8(output.stdout).unwrap();
                Some(Loop(name.trim().into()))
            }
            other => {
                eprintln!("SKIPPED: no loop devices here: {other:?}");
                None
            }
        }
    }

    /// How many blocks it has now.
    pub(crate) fn blocks(&self) -> u64 {
        let name = self.0.file_name().unwrap();
        let size = Path::new("/sys/block").join(name).join("size");
        let sectors: u64 = std::fs::read_to_string(size)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        sectors / 8
    }

    /// Has the device take the size that its file has now.
    pub(crate) fn follow_size(&self) {
        let told = Command::new("losetup").arg("-c").arg(&self.0).status();
        assert!(told.unwrap().success());
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let detached = Command::new("losetup").arg("-d").arg(&self.0).status();
        assert!(detached.unwrap().success());
    }
}

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
}

impl Drop for Loop {
    fn drop(&mut self) {
        let detached = Command::new("losetup").arg("-d").arg(&self.0).status();
        assert!(detached.unwrap().success());
    }
}

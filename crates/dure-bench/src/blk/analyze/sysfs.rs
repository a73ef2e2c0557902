//! Settings of a block device in the kernel, of which some can be changed.
//!
//! **Structure.** [`Tags`] holds `nr_requests` of a device as it was. **Invariants.** What was changed
//! is put back when the value goes, also after an error or Ctrl-C. **On a crash** the last setting
//! stays until it is written again or the machine starts anew.

use std::fs;
use std::path::{Path, PathBuf};

/// The folder of a block device in sysfs; none of anything else.
fn folder(device: &str) -> Option<PathBuf> {
    let device = fs::canonicalize(device).ok()?;
    let folder = Path::new("/sys/class/block").join(device.file_name()?);
    (device.starts_with("/dev") && folder.exists()).then_some(folder)
}

/// Whether that is a block device of this machine.
pub(super) fn is_block_device(device: &str) -> bool {
    folder(device).is_some()
}

/// What the kernel says of a block device; nothing of anything else.
pub(super) fn settings(device: &str) -> Vec<(&'static str, String)> {
    let Some(folder) = folder(device) else {
        return Vec::new();
    };
    let mut settings = Vec::new();
    for setting in ["nr_requests", "scheduler", "io_poll"] {
        if let Ok(value) = fs::read_to_string(folder.join("queue").join(setting)) {
            settings.push((setting, value.trim().to_owned()));
        }
    }
    if let Some(queues) = hw_queues(&folder) {
        settings.push(("hardware queues", queues.to_string()));
    }
    settings
}

fn hw_queues(folder: &Path) -> Option<usize> {
    fs::read_dir(folder.join("mq")).ok().map(Iterator::count)
}

/// The tags of a device: changed for a measurement, and put back.
#[derive(Debug)]
pub(super) struct Tags {
    path: PathBuf,
    /// What it was.
    pub(super) before: u32,
    /// Hardware queues, which a driver sets when it is loaded.
    pub(super) hw_queues: u32,
}

impl Tags {
    /// The tags of a device whose driver has requests; `None` for other devices.
    pub(super) fn of(device: &str) -> Option<Self> {
        let folder = folder(device)?;
        let path = folder.join("queue/nr_requests");
        let before = fs::read_to_string(&path).ok()?.trim().parse().ok()?;
        let hw_queues = hw_queues(&folder).and_then(|queues| u32::try_from(queues).ok());
        Some(Self {
            path,
            before,
            hw_queues: hw_queues.unwrap_or(1),
        })
    }

    /// Sets them; false: the driver, or the user's rights, do not allow it.
    pub(super) fn set(&self, nr_requests: u32) -> bool {
        let written = fs::write(&self.path, nr_requests.to_string());
        let now = fs::read_to_string(&self.path).unwrap_or_default();
        written.is_ok() && now.trim().parse() == Ok(nr_requests)
    }
}

impl Drop for Tags {
    fn drop(&mut self) {
        if !self.set(self.before) {
            let path = self.path.display();
            let before = self.before;
            crate::note!("dure: {path}: could not be set back to {before}");
        }
    }
}

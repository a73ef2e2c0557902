//! The events that the kernel tells of a real block device, through tracefs.
//!
//! **Problem.** blktrace(8) needs debugfs, which locked-down kernels close. **Structure.** A trace
//! instance of our own, so that other tracing goes on, with the events of one device; its pipe is
//! read until the time is over. **Invariants.** The instance is removed, also after an error.
//! **On a crash** the instance `dure-PID` stays and costs as long as it is there; rmdir removes it.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dure_sync::thread;
use rustix::fs::{OFlags, major, minor};

use crate::interrupt;

/// The events from which stamps are made.
const EVENTS: [&str; 8] = [
    "block_bio_queue",
    "block_bio_backmerge",
    "block_bio_frontmerge",
    "block_getrq",
    "block_rq_insert",
    "block_rq_issue",
    "block_rq_complete",
    // Of drivers without requests, such as zram.
    "block_bio_complete",
];
const BUFFER_KIB: &str = "16384";
/// Some million events.
const ENOUGH_BYTES: usize = 256 << 20;
/// Between two looks at an empty pipe.
const LOOK: Duration = Duration::from_millis(20);

/// A block device whose events are wanted.
#[derive(Debug)]
pub(crate) struct Disk {
    /// Major and minor number.
    device: (u32, u32),
    name: String,
}

impl Disk {
    /// # Errors
    /// `path` is no block device, or a partition of one.
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let shown = path.display();
        let file = fs::metadata(path).with_context(|| shown.to_string())?;
        if !file.file_type().is_block_device() {
            bail!("{shown}: no block device");
        }
        let device = (major(file.rdev()), minor(file.rdev()));
        let link = fs::read_link(format!("/sys/dev/block/{}:{}", device.0, device.1));
        let link = link.with_context(|| format!("{shown}: its place in /sys"))?;
        let name = link.file_name().unwrap_or_default().to_string_lossy();
        let disk = Self {
            device,
            name: name.into_owned(),
        };
        if Path::new("/sys/class/block")
            .join(&disk.name)
            .join("partition")
            .exists()
        {
            bail!("{shown}: a partition; the kernel tells of whole disks, name that");
        }
        Ok(disk)
    }

    /// The cores of each hardware queue, by number; empty if the driver has none.
    pub(crate) fn hw_queues(&self) -> Vec<(u16, Vec<u16>)> {
        let folder = Path::new("/sys/class/block").join(&self.name).join("mq");
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut queues: Vec<_> = entries
            .filter_map(|entry| {
                let number = entry.file_name().to_str()?.parse().ok()?;
                let list = fs::read_to_string(entry.path().join("cpu_list")).ok()?;
                Some((number, cores(&list)?))
            })
            .collect();
        queues.sort();
        queues
    }

    /// Traces until `ended`, or there is enough, and returns the text.
    ///
    /// # Errors
    /// There is no tracefs, or no permission to use it.
    pub(crate) fn trace(&self, tracefs: &Path, ended: impl Fn() -> bool) -> Result<String> {
        let instance = Instance::new(tracefs)?;
        instance.write("buffer_size_kb", BUFFER_KIB)?;
        let number = u64::from(self.device.0) << 20 | u64::from(self.device.1);
        for event in EVENTS {
            instance.write(
                &format!("events/block/{event}/filter"),
                &format!("dev == {number}"),
            )?;
        }
        let mut pipe = instance.pipe()?;
        for event in EVENTS {
            instance.write(&format!("events/block/{event}/enable"), "1")?;
        }
        let mut text = Vec::new();
        while !ended() && text.len() < ENOUGH_BYTES {
            interrupt::check()?;
            if !take(&mut pipe, &mut text)? {
                thread::sleep(LOOK);
            }
        }
        for event in EVENTS {
            instance.write(&format!("events/block/{event}/enable"), "0")?;
        }
        // What is in the buffer; its size bounds it.
        while take(&mut pipe, &mut text)? {}
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// Where tracefs is mounted: the last place, if there are several.
pub(crate) fn tracefs() -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let place = mounts.lines().rev().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let place = words.next()?;
        (words.next() == Some("tracefs")).then(|| PathBuf::from(place))
    });
    place.unwrap_or_else(|| PathBuf::from("/sys/kernel/tracing"))
}

/// As in `0, 1` or `0-3,8`.
fn cores(list: &str) -> Option<Vec<u16>> {
    let mut cores = Vec::new();
    for part in list.trim().split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        cores.extend(first..=last);
    }
    Some(cores)
}

/// Reads what is there; whether it was anything.
fn take(pipe: &mut File, text: &mut Vec<u8>) -> Result<bool> {
    let mut part = [0; 1 << 16];
    match pipe.read(&mut part) {
        Ok(0) => Ok(false),
        Ok(bytes) => {
            text.extend_from_slice(&part[..bytes]);
            Ok(true)
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(false)
        }
        Err(error) => Err(error).context("the trace pipe"),
    }
}

struct Instance(PathBuf);

impl Instance {
    fn new(tracefs: &Path) -> Result<Self> {
        if !tracefs.join("events/block").is_dir() {
            bail!(
                "{}: no tracefs with events of block devices there, or no permission; as root, \
                 mount -t tracefs tracefs {0}",
                tracefs.display()
            );
        }
        let path = tracefs.join(format!("instances/dure-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.0.join(file);
        fs::write(&path, text).with_context(|| path.display().to_string())
    }

    fn pipe(&self) -> Result<File> {
        let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag of open");
        let path = self.0.join("trace_pipe");
        let mut options = File::options();
        let pipe = options.read(true).custom_flags(nonblocking).open(&path);
        pipe.with_context(|| path.display().to_string())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Should it stay, its name says whose it was.
        let _ = fs::remove_dir(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::cores;

    #[test]
    fn lists_of_cores_have_ranges() {
        assert_eq!(cores("0, 1\n"), Some(vec![0, 1]));
        assert_eq!(cores("0-3,8"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(cores(""), None);
    }
}

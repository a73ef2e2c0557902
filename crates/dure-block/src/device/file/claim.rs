//! Excludes other openers of a volume, under whatever name or device.
//!
//! **Problem.** A volume that two processes write is lost, and one image has many names: hard
//! links, bind mounts, loop devices, their partitions, and device-mapper devices on them.
//! **Structure.** A [`Claim`] is a few open files that hold locks. An image is locked by flock(2),
//! which locks the inode, so it holds under every name. A block device is open `O_EXCL`, which the
//! kernel also applies to a disk and its partitions. An opener of a loop device also locks its
//! image; a writer of an image also claims the loop devices on it. **Invariants.** Nothing is
//! changed before the claim is complete. What the kernel does not report (an image in another mount
//! namespace) is noticed by the volume itself: docs/design/format.md, `mount`. **Crash.** The
//! kernel releases the locks when the process has ended and its rings are gone, which [`lock`] waits for.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dure_sync::clock::monotonic_ns;
use dure_sync::thread;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, major, minor, open};
use rustix::io::Errno;

use super::open::{OpenOptions, Sharing, failed};
use crate::{Error, Result};

/// The longest chain of block devices followed.
const DEPTH_MAX: u32 = 16;
/// How often the list of all locks is read for the one that is known to be there.
const HOLDER_READS: u32 = 8;
/// How long the lock of a process that is over is waited for.
const RELEASE: Duration = Duration::from_secs(10);
/// How often it is looked at.
const RELEASE_LOOK: Duration = Duration::from_millis(5);
/// The flags for opening a file that is only locked, never read.
const LOOK: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// Open files, locked as long as this lives.
#[derive(Debug, Default)]
pub(super) struct Claim(Vec<OwnedFd>);

impl Drop for Claim {
    /// Unlocks by name: closing is not enough. A process that another thread is just starting has
    /// all our files open until it executes its program, and with them our locks.
    fn drop(&mut self) {
        for fd in &self.0 {
            // One that was never locked stays so; any other error leaves it to the close.
            let _ = flock(fd, FlockOperation::Unlock);
        }
    }
}

impl Claim {
    /// The claim of a new image, which the caller has locked.
    pub(super) fn of_new(lock: OwnedFd) -> Claim {
        Claim(vec![lock])
    }

    /// Claims the image or block device that is open as `fd`; a block device itself was claimed by
    /// opening it.
    ///
    /// # Errors
    /// [`Error::Locked`], [`Error::Busy`]; or the system's error.
    pub(super) fn take(
        path: &Path,
        fd: &OwnedFd,
        found: &Stat,
        options: OpenOptions,
    ) -> Result<Claim> {
        let mut claim = Claim::default();
        if options.sharing == Sharing::Anybody {
            return Ok(claim);
        }
        if FileType::from_raw_mode(found.st_mode) == FileType::BlockDevice {
            for image in images_behind(found.st_rdev) {
                claim.lock_behind(&image, options)?;
            }
            return Ok(claim);
        }
        lock(path, fd, options)?;
        let lock = fd.try_clone();
        let duplicated = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        claim
            .0
            .push(lock.map_err(|error| failed(path, "lock it")(duplicated(error)))?);
        if !options.read_only {
            claim.claim_loops(found)?;
        }
        Ok(claim)
    }

    /// Locks an image that a block device lies in.
    fn lock_behind(&mut self, image: &Path, options: OpenOptions) -> Result<()> {
        let fd = match open(image, LOOK, Mode::empty()) {
            Ok(fd) => fd,
            // It was removed, and no other process can open it; or it is in another mount
            // namespace.
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(failed(image, "open the image behind the device")(errno)),
        };
        let found = fstat(&fd).map_err(failed(image, "examine it"))?;
        if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile {
            lock(image, &fd, options)?;
            self.0.push(fd);
        }
        Ok(())
    }

    /// Claims the loop devices on this image exclusively, as a mount of them would.
    fn claim_loops(&mut self, image: &Stat) -> Result<()> {
        let Ok(devices) = std::fs::read_dir("/sys/block") else {
            return Ok(());
        };
        for device in devices.flatten() {
            let is_it = |behind: PathBuf| {
                let found = rustix::fs::stat(behind);
                found
                    .is_ok_and(|found| (found.st_dev, found.st_ino) == (image.st_dev, image.st_ino))
            };
            if !backing_file(&device.path()).is_some_and(is_it) {
                continue;
            }
            let path = Path::new("/dev").join(device.file_name());
            match open(&path, LOOK | OFlags::EXCL, Mode::empty()) {
                Ok(fd) => self.0.push(fd),
                Err(Errno::BUSY) => return Err(Error::Busy { path }),
                // Detached meanwhile, or absent.
                Err(Errno::NOENT | Errno::NXIO) => {}
                Err(errno) => return Err(failed(&path, "claim the loop device")(errno)),
            }
        }
        Ok(())
    }
}

/// The exclusive claim on a block device and nothing else, to be dropped just before another opener
/// (a mount by the kernel) claims the device.
#[derive(Debug)]
pub struct DeviceClaim {
    _held: OwnedFd,
}

impl DeviceClaim {
    /// Claims the block device at `path`.
    ///
    /// # Errors
    /// [`Error::Busy`], or [`Error::Open`] with the system's error.
    pub fn take(path: &Path) -> Result<DeviceClaim> {
        match open(path, LOOK | OFlags::EXCL, Mode::empty()) {
            Ok(held) => Ok(DeviceClaim { _held: held }),
            Err(Errno::BUSY) => Err(Error::Busy {
                path: path.to_owned(),
            }),
            Err(errno) => Err(failed(path, "claim it")(errno)),
        }
    }
}

/// Locks an image: shared for readers. Of a process that was killed, the kernel releases the rings, and
/// with them the lock, a while after its end: that is waited for.
pub(super) fn lock(path: &Path, fd: &OwnedFd, options: OpenOptions) -> Result<()> {
    let operation = if options.read_only {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    let begin = monotonic_ns();
    loop {
        match flock(fd, operation) {
            Err(Errno::WOULDBLOCK) => {}
            done => return done.map_err(failed(path, "lock it")),
        }
        let pid = holder(fd);
        let is_over = |pid: &String| !Path::new("/proc").join(pid).exists();
        let is_short = || Duration::from_nanos(monotonic_ns() - begin) < RELEASE;
        if !(pid.as_ref().is_some_and(is_over) && is_short()) {
            let holder = pid.map_or_else(|| "another process".into(), |pid| named(&pid));
            let path = path.to_owned();
            return Err(Error::Locked { path, holder });
        }
        thread::sleep(RELEASE_LOOK);
    }
}

/// The process that holds a lock on the file, as far as the kernel reports it.
fn holder(fd: impl AsFd) -> Option<String> {
    let found = fstat(fd).ok()?;
    // Others lock and unlock while the list is read, which makes the kernel skip lines.
    (0..HOLDER_READS).find_map(|_| pid_of_holder(&found))
}

/// A process with its command.
fn named(pid: &str) -> String {
    let mut holder = format!("process {pid}");
    if let Ok(words) = std::fs::read(format!("/proc/{pid}/cmdline")) {
        let words = words
            .split(|byte| *byte == 0)
            .filter(|word| !word.is_empty());
        let words: Vec<_> = words.map(|word| word.escape_ascii().to_string()).collect();
        write!(holder, " ({})", words.join(" ")).expect("a string takes everything");
    }
    holder
}

fn pid_of_holder(file: &Stat) -> Option<String> {
    let (major, minor) = (major(file.st_dev), minor(file.st_dev));
    let inode = format!("{major:02x}:{minor:02x}:{}", file.st_ino);
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    // "1: FLOCK  ADVISORY  WRITE 1234 fe:00:99 0 EOF"
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let held = words.get(1) == Some(&"FLOCK") && words.get(5) == Some(&inode.as_str());
        held.then(|| words[4].to_owned())
    })
}

/// The images that this block device lies in: of a loop device, of the disk that a partition is of,
/// of the devices that the device mapper made it from.
fn images_behind(device: u64) -> Vec<PathBuf> {
    let place = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    let mut images = Vec::new();
    let mut places = vec![(PathBuf::from(place), 0)];
    while let Some((place, depth)) = places.pop() {
        let Ok(place) = place.canonicalize() else {
            continue;
        };
        if depth > DEPTH_MAX {
            continue;
        }
        if let Some(image) = backing_file(&place) {
            // A loop device may lie in another block device.
            match rustix::fs::stat(&image) {
                Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::BlockDevice => {
                    let (major, minor) = (major(found.st_rdev), minor(found.st_rdev));
                    places.push((format!("/sys/dev/block/{major}:{minor}").into(), depth + 1));
                }
                _ => images.push(image),
            }
        }
        if place.join("partition").exists() {
            places.push((place.join(".."), depth + 1));
        }
        if let Ok(slaves) = std::fs::read_dir(place.join("slaves")) {
            places.extend(slaves.flatten().map(|slave| (slave.path(), depth + 1)));
        }
    }
    images
}

/// The file that backs a loop device, given by its path in sysfs.
fn backing_file(place: &Path) -> Option<PathBuf> {
    let mut text = std::fs::read(place.join("loop/backing_file")).ok()?;
    text.pop_if(|byte| *byte == b'\n');
    Some(OsString::from_vec(text).into())
}

#[cfg(test)]
mod tests;

//! Whether a mount's data may wait in the kernel's cache, and how much.
//!
//! **Problem.** The kernel collects writes of a mount whose server takes `WRITEBACK_CACHE`, and lets
//! it have a hundredth of all the memory for dirty pages, because its server may be any user's, and
//! may hang. For a server that keeps room for what waits there, the limit must be known.
//! **Structure.** A [`KernelLimit`] is the limit of one mount in `/sys/class/bdi`, which root may set:
//! up to a half of that memory, since root mounts for the whole machine as with any other file
//! system. The kernel makes writers wait at it: at 256 KiB, with twelve of them, up to 576 KiB were
//! dirty or on their way.
//! **Invariants.** The mount stays under a limit of its own (`strict_limit`), so a server that hangs
//! leaves others the other half. What another process has set is never exceeded. **Crash.** What
//! waits there is lost with the machine; with the server, too.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

/// Percent of the memory for dirty pages: as mounted, and what a limit is at most.
const MAX_RATIO: (u32, u32) = (1, 50);

/// Which cache a write(2) fills before it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WriteCache {
    /// The kernel's, if its dirty pages can be limited ([`KernelLimit`]); else the server's.
    #[default]
    Auto,
    /// The server's: each write(2) is a WRITE, which is answered before it returns. So write(2) says
    /// ENOSPC, and what it took is visible to every later request.
    Through,
    /// The kernel's, which sends WRITEs later. Then write(2) cannot report a lack of space, and the
    /// server does not see data, sizes and times that wait there.
    Back,
}

/// Which cache a mount has come to.
#[derive(Debug)]
pub enum Collects {
    /// The kernel's, with its limit if that can be set.
    Kernel(Option<KernelLimit>),
    /// The server's. Why not the kernel's, if the user has not asked for this.
    Server(Option<String>),
}

impl Collects {
    pub(super) fn of(wanted: WriteCache, path: &Path, is_fuseblk: bool) -> Collects {
        let limit = || KernelLimit::of_mount(path, is_fuseblk);
        match wanted {
            WriteCache::Through => Collects::Server(None),
            WriteCache::Back => Collects::Kernel(limit().ok()),
            WriteCache::Auto => match limit() {
                Ok(limit) => Collects::Kernel(Some(limit)),
                Err(why) => Collects::Server(Some(why.to_string())),
            },
        }
    }
}

/// The limit of a mount for dirty pages in the kernel's cache.
#[derive(Debug)]
pub struct KernelLimit {
    /// The directory of the mount in `/sys/class/bdi`.
    place: PathBuf,
    most: u64,
}

impl KernelLimit {
    /// The limit of the mount at `path`, which may not be served yet.
    ///
    /// # Errors
    /// Those of sysfs: it is read-only, or of others; the kernel is older than Linux 6.2.
    pub(super) fn of_mount(path: &Path, is_fuseblk: bool) -> io::Result<KernelLimit> {
        // Without a request to the server.
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let mount = statx(CWD, path, flags, StatxFlags::empty())?;
        let suffix = if is_fuseblk { "-fuseblk" } else { "" };
        let (major, minor) = (mount.stx_dev_major, mount.stx_dev_minor);
        KernelLimit::at(format!("/sys/class/bdi/{major}:{minor}{suffix}").into())
    }

    /// The one that has its files in `place`; raises it to the half.
    ///
    /// # Errors
    /// Those of the files, with their names; `Unsupported` if the limit would not be kept.
    pub fn at(place: PathBuf) -> io::Result<KernelLimit> {
        let mut limit = KernelLimit { place, most: 0 };
        if limit.read("strict_limit")? != 1 {
            let why = limit.named("strict_limit", "it is 0, so the limit does not count");
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        if limit.read("max_ratio")? == MAX_RATIO.0.into() {
            limit.write("max_ratio", MAX_RATIO.1.into())?;
        }
        limit.most = limit.bytes()?;
        limit.set(limit.most)?;
        Ok(limit)
    }

    /// The most bytes that it may be set to.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.most
    }

    /// As it is now, in bytes. The kernel keeps it as a part of the memory for dirty pages, so it
    /// moves with that.
    ///
    /// # Errors
    /// Those of sysfs: the mount is gone.
    pub fn bytes(&self) -> io::Result<u64> {
        self.read("max_bytes")
    }

    /// Sets it, up to [`KernelLimit::most`], or to a little more on a machine with terabytes of
    /// memory, where the kernel would make it 0: it keeps a whole number of millionth parts. What is
    /// dirty beyond it the kernel begins to write.
    ///
    /// # Errors
    /// Those of sysfs: the mount is gone.
    pub fn set(&self, bytes: u64) -> io::Result<()> {
        let mut bytes = bytes.min(self.most);
        loop {
            self.write("max_bytes", bytes)?;
            if self.bytes()? > 0 || bytes >= self.most {
                return Ok(());
            }
            bytes = bytes.max(1) * 2;
        }
    }

    fn read(&self, file: &str) -> io::Result<u64> {
        let text = fs::read_to_string(self.place.join(file));
        let text = text.map_err(|error| self.failed(file, &error))?;
        let number = text.trim().parse();
        number.map_err(|_| io::Error::other(self.named(file, "it holds no number")))
    }

    fn write(&self, file: &str, number: u64) -> io::Result<()> {
        let written = fs::write(self.place.join(file), number.to_string());
        written.map_err(|error| self.failed(file, &error))
    }

    fn failed(&self, file: &str, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), self.named(file, &error.to_string()))
    }

    fn named(&self, file: &str, what: &str) -> String {
        format!("{}: {what}", self.place.join(file).display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with the files of a limit.
    fn files(strict: &str, ratio: &str, bytes: &str) -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("strict_limit", strict),
            ("max_ratio", ratio),
            ("max_bytes", bytes),
        ] {
            fs::write(place.path().join(name), format!("{text}\n")).unwrap();
        }
        place
    }

    #[test]
    fn a_limit_is_raised_once_and_set_up_to_there() {
        let place = files("1", "1", "4096000");
        let limit = KernelLimit::at(place.path().into()).unwrap();
        let ratio = fs::read_to_string(place.path().join("max_ratio")).unwrap();
        assert_eq!(
            (ratio.as_str(), limit.most(), limit.bytes().unwrap()),
            ("50", 4_096_000, 4_096_000)
        );
        limit.set(8192).unwrap();
        assert_eq!(limit.bytes().unwrap(), 8192);
        limit.set(u64::MAX).unwrap();
        assert_eq!(limit.bytes().unwrap(), limit.most());
    }

    #[test]
    fn a_limit_that_somebody_has_set_is_the_most() {
        let place = files("1", "7", "70000");
        let limit = KernelLimit::at(place.path().into()).unwrap();
        let ratio = fs::read_to_string(place.path().join("max_ratio")).unwrap();
        assert_eq!((ratio.trim(), limit.most()), ("7", 70000));
    }

    #[test]
    fn what_cannot_be_a_limit_is_named() {
        let loose = files("0", "1", "4096");
        let error = KernelLimit::at(loose.path().into()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        let old = files("1", "1", "4096");
        fs::remove_file(old.path().join("max_bytes")).unwrap();
        let error = KernelLimit::at(old.path().into()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(
            error.to_string().contains("max_bytes: No such file"),
            "{error}"
        );
        let no_number = files("1", "1", "much");
        let error = KernelLimit::at(no_number.path().into()).unwrap_err();
        assert!(error.to_string().contains("no number"), "{error}");
    }
}

//! Making a mount, running it, and ending it.
//!
//! **Structure.** [`Session`] mounts (`direct` as root, `helper` for other users), performs the
//! INIT handshake, and serves until the directory is unmounted. **Invariants.** A session that was
//! never served leaves no mount behind. The kernel collects writes by default only where it can be
//! told how many ([`dirty`]). **Crash.** The mount stays without a server until it is unmounted.

mod direct;
pub mod dirty;
pub mod flags;
mod helper;

use std::io;
use std::path::{Path, PathBuf};

use dure_sync::Arc;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use thiserror::Error;

use self::dirty::{Collects, WriteCache};

use crate::protocol::opcode::init;
use crate::service::{self, Service};
use crate::transport::Transport;
use crate::transport::device::Channel;
use crate::transport::negotiate::Features;
use crate::transport::uring::Rings;
use crate::transport::uring::idle::RingPolicy;
use crate::transport::worker::{self, Agreed};

/// Settings of a mount.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What `mount` and `df` show as the source.
    pub source: String,
    /// The type of the file system, behind `fuse.`: a plain word.
    pub subtype: String,
    /// Other users may use the mount (needs root, or `user_allow_other` in fuse.conf).
    pub allow_other: bool,
    /// What mount(8) calls generic options: [`flags`].
    pub flags: MountFlags,
    /// Mount as `fuseblk`: the source is a block device, which the kernel claims; only such mounts
    /// are sent FUSE_SYNCFS, so that syncfs(2) and sync(1) make everything durable.
    pub block_device: bool,
    /// What of the kernel's offer is taken, besides [`Settings::write_cache`].
    pub features: Features,
    /// Which cache takes the data of a write(2).
    pub write_cache: WriteCache,
    /// How requests come from the kernel.
    pub transport: Transport,
    /// Threads that answer requests from `/dev/fuse`, at least 1, not counting those that wait.
    pub workers: usize,
    /// How many threads more may answer while others wait.
    pub stand_ins: usize,
    /// Entries of each ring: each takes up to a megabyte once it was used.
    pub depth: usize,
    /// How the threads of rings run.
    pub ring_policy: RingPolicy,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            source: "fuse".into(),
            subtype: "wire".into(),
            allow_other: false,
            flags: flags::DEFAULT,
            block_device: false,
            features: Features::default(),
            write_cache: WriteCache::default(),
            transport: Transport::default(),
            // One to spare: a worker that waits for a device answers no requests meanwhile.
            workers: dure_sync::core_count() + 1,
            stand_ins: 16,
            depth: 8,
            ring_policy: RingPolicy::default(),
        }
    }
}

/// Why a file system could not be mounted or unmounted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MountError {
    /// The mount point is missing or no directory.
    #[error("{}: {why}", .path.display())]
    MountPoint {
        /// The mount point.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// A mount there has lost its server.
    #[error("{}: the server of a mount there is gone", .path.display())]
    ServerGone {
        /// The mount point.
        path: PathBuf,
    },
    /// There is no `/dev/fuse`, or it may not be opened.
    #[error("/dev/fuse: {error}; {advice}", error = .0, advice = no_fuse(.0))]
    NoFuse(io::Error),
    /// An ordinary user needs `fusermount3`, which is missing, or may not be run.
    #[error(
        "fusermount3 is not installed, or not for this user, and only root can mount and unmount without it: install the package fuse3, or do it as root"
    )]
    NoHelper,
    /// The kernel refused.
    #[error("mounting on {}: {source}", .path.display())]
    Mount {
        /// The mount point.
        path: PathBuf,
        /// What the kernel, or fusermount3, said.
        source: io::Error,
    },
    /// Unmounting failed.
    #[error("unmounting {}: {source}", .path.display())]
    Unmount {
        /// The mount point.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The request loop failed.
    #[error("serving {}: {source}", .path.display())]
    Serve {
        /// The mount point.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
}

impl MountError {
    /// What a system call would say.
    #[must_use]
    pub fn errno(&self) -> i32 {
        let of = |error: &io::Error| match error.kind() {
            // As fusermount3 says it, in words.
            io::ErrorKind::ResourceBusy => libc::EBUSY,
            _ => error.raw_os_error().unwrap_or(libc::EIO),
        };
        match self {
            MountError::MountPoint { path, .. } if path.exists() => libc::ENOTDIR,
            MountError::MountPoint { .. } => libc::ENOENT,
            MountError::ServerGone { .. } => libc::ENOTCONN,
            MountError::NoHelper => libc::EPERM,
            MountError::NoFuse(error) => of(error),
            MountError::Mount { source, .. }
            | MountError::Unmount { source, .. }
            | MountError::Serve { source, .. } => of(source),
        }
    }
}

/// What to do about a `/dev/fuse` that cannot be opened.
fn no_fuse(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "FUSE is needed to mount, and is closed to this process: root opens it to users (`chmod a+rw \
             /dev/fuse`); a container has to be started with the device (--device /dev/fuse)"
        }
        _ => "FUSE is needed to mount (load the fuse module)",
    }
}

/// A mount that answers requests while [`Session::run`] runs.
#[derive(Debug)]
pub struct Session {
    channel: Channel,
    workers: usize,
    /// Extra threads that answer while workers wait.
    stand_ins: usize,
    ring_policy: RingPolicy,
    agreed: Agreed,
    mounted: Mounted,
}

/// A directory that is mounted on. Dropping it unmounts, unless `run` has cleared `unmount`.
#[derive(Debug)]
struct Mounted {
    path: PathBuf,
    unmount: bool,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.unmount {
            // The mount was never served, so there is no caller to report an error to.
            let _ = unmount(&self.path, Lazy::Yes);
        }
    }
}

impl Session {
    /// Mounts on the directory `at`: as root with mount(2), else with `fusermount3`. Also says which
    /// cache a write(2) fills.
    ///
    /// # Errors
    /// [`MountError`], naming the path and what to do.
    pub fn mount(at: &Path, settings: &Settings) -> Result<(Session, Collects), MountError> {
        let path = directory(at)?;
        let fuse = if rustix::process::geteuid().is_root() {
            direct::mount(&path, settings)?
        } else {
            helper::mount(&path, settings)?
        };
        let channel = Channel::new(fuse);
        let mounted = Mounted {
            path,
            unmount: true,
        };
        let transport = (settings.transport, settings.depth);
        let collects = Collects::of(settings.write_cache, &mounted.path, settings.block_device);
        let mut features = settings.features;
        if let Collects::Kernel(_) = collects {
            features.wanted |= init::WRITEBACK_CACHE;
        }
        let agreed = worker::handshake(&channel, &features, transport);
        let agreed = agreed.map_err(|source| MountError::Mount {
            path: mounted.path.clone(),
            source,
        })?;
        let session = Session {
            channel,
            workers: settings.workers.max(1),
            stand_ins: settings.stand_ins.max(1),
            ring_policy: settings.ring_policy,
            agreed,
            mounted,
        };
        Ok((session, collects))
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.mounted.path
    }

    /// How requests come from the kernel.
    #[must_use]
    pub fn transport(&self) -> Transport {
        match self.agreed {
            Agreed::Rings(_) => Transport::Uring,
            Agreed::Device | Agreed::Fallback(_) => Transport::Device,
        }
    }

    /// Why they do not come as the settings ask: a sentence that says what to do.
    #[must_use]
    pub fn fallback(&self) -> Option<&str> {
        match &self.agreed {
            Agreed::Fallback(why) => Some(why),
            Agreed::Device | Agreed::Rings(_) => None,
        }
    }

    /// Answers requests until the directory is unmounted.
    ///
    /// # Errors
    /// `Serve` when the connection to the kernel fails.
    pub fn run(mut self, service: impl Service + 'static) -> Result<(), MountError> {
        self.mounted.unmount = false;
        let service = service::share(service);
        let asks = self.channel.another();
        service.begin(Box::new(move |question: service::Question| {
            asks.knows(&question)
        }));
        let agreed = std::mem::replace(&mut self.agreed, Agreed::Device);
        let served = match agreed {
            Agreed::Rings(rings) => self.serve_rings(rings, &service),
            Agreed::Device | Agreed::Fallback(_) => {
                self.serve_device((self.workers, self.stand_ins), &service)
            }
        };
        served.map_err(|source| MountError::Serve {
            path: self.mounted.path.clone(),
            source,
        })
    }

    /// With so many workers, and stand-ins for those that wait.
    fn serve_device(&self, threads: (usize, usize), service: &Arc<dyn Service>) -> io::Result<()> {
        worker::run(service, &self.channel, threads)
    }

    fn serve_rings(&self, rings: Rings, service: &Arc<dyn Service>) -> io::Result<()> {
        let running = rings.run(service, &self.channel, (self.stand_ins, self.ring_policy));
        let threads = match running.refused() {
            // What is left are FORGETs: no task waits for them, or for what comes behind them. What
            // they wait for themselves, writes of pages that are evicted, comes through rings.
            None => (1, 0),
            Some(_) => (self.workers, self.stand_ins),
        };
        let served = self.serve_device(threads, service);
        running.end();
        served
    }
}

/// Unmounts the directory `at`. With `lazy` it disappears now and ends when its last user leaves.
///
/// # Errors
/// `Unmount`: busy, not mounted, or not permitted.
pub fn unmount(at: &Path, lazy: Lazy) -> Result<(), MountError> {
    let flags = match lazy {
        Lazy::No => UnmountFlags::empty(),
        Lazy::Yes => UnmountFlags::DETACH,
    };
    let failed = |source: io::Error| MountError::Unmount {
        path: at.to_owned(),
        source,
    };
    match rustix::mount::unmount(at, flags) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::PERM) => helper::unmount(at, lazy).map_err(failed),
        Err(error) => Err(failed(error.into())),
    }
}

/// Ends the connection of the device that is mounted on `at`: who waits for its server, and who asks it from now on,
/// gets an error. For a server that answers no more: the kernel would wait for it when its process
/// ends, which maps files of the mount.
///
/// # Errors
/// `ENODEV`: something else is mounted there. Those of `/sys/fs/fuse/connections`, which users may write to,
/// after umount2(2) was refused.
pub fn abort(at: &Path, (major, minor): (u32, u32)) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let root = statx(CWD, at, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE)?;
    if (root.stx_dev_major, root.stx_dev_minor) != (major, minor) {
        return Err(Errno::NODEV.into());
    }
    // The kernel ends the connection before it looks whether the mount is in use.
    match rustix::mount::unmount(at, UnmountFlags::FORCE) {
        Ok(()) | Err(Errno::BUSY) => return Ok(()),
        Err(_) => {}
    }
    std::fs::write(format!("/sys/fs/fuse/connections/{minor}/abort"), "1")
}

/// Changes the flags of what is mounted on the directory `at`; flags that are not given are
/// cleared.
///
/// # Errors
/// `Mount`, with what the kernel says: only root may.
pub fn remount(at: &Path, flags: MountFlags) -> Result<(), MountError> {
    rustix::mount::mount_remount(at, flags, c"").map_err(|error| MountError::Mount {
        path: at.to_owned(),
        source: error.into(),
    })
}

/// Whether an unmount waits for users of the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lazy {
    /// Refuse while it is in use.
    No,
    /// Detach now, end later.
    Yes,
}

/// Whether the kernel says with this error number that a mount has lost its server: `ENOTCONN`,
/// `ECONNABORTED` or, with rings, `ECANCELED` to a caller that asked while the connection of a dead
/// server was being taken down.
#[must_use]
pub fn says_server_gone(error: i32) -> bool {
    [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED]
        .iter()
        .any(|gone| gone.raw_os_error() == error)
}

/// The directory to mount on, as the kernel will name it.
///
/// # Errors
/// `MountPoint`: missing, or no directory. `ServerGone`.
pub fn directory(at: &Path) -> Result<PathBuf, MountError> {
    let bad = |why: String| MountError::MountPoint {
        path: at.to_owned(),
        why,
    };
    let found = at.canonicalize().and_then(|path| {
        let is_directory = path.metadata()?.is_dir();
        Ok((path, is_directory))
    });
    match found {
        Ok((path, true)) => Ok(path),
        Ok(_) => Err(bad("not a directory; give an existing directory".into())),
        Err(error) if error.raw_os_error().is_some_and(says_server_gone) => {
            Err(MountError::ServerGone {
                path: at.to_owned(),
            })
        }
        Err(error) => Err(bad(format!("{error}; give an existing directory"))),
    }
}

//! Making a mount, running it, and ending it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use dure_fs::FileSystem;
use rustix::mount::{MountFlags, UnmountFlags};
use thiserror::Error;

use crate::server::Server;
use crate::transport::fuser::Transport;

/// What is decided when a volume is mounted.
#[derive(Debug, Clone)]
pub struct MountSettings {
    /// What `mount` and `df` show as the source.
    pub source: String,
    /// Other users may use the mount (needs root, or `user_allow_other` in fuse.conf).
    pub allow_other: bool,
    /// Nothing may be changed.
    pub read_only: bool,
    /// Mount as `fuseblk`: the source is a block device, which the kernel claims; only such mounts are
    /// sent FUSE_SYNCFS (which the fuser transport does not carry).
    pub block_device: bool,
    /// Access times are not kept.
    pub no_atime: bool,
    /// Every file appears to belong to this user.
    pub uid: Option<u32>,
    /// Every file appears to belong to this group.
    pub gid: Option<u32>,
    /// Threads that answer requests, at least 1; `None`: one per core and one to spare.
    pub workers: Option<usize>,
}

impl Default for MountSettings {
    fn default() -> Self {
        MountSettings {
            source: "dure".into(),
            allow_other: false,
            read_only: false,
            block_device: false,
            no_atime: false,
            uid: None,
            gid: None,
            workers: None,
        }
    }
}

/// Why a volume could not be mounted or unmounted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MountError {
    /// The mount point is missing or no directory.
    #[error("{}: {why}; give an existing directory", .path.display())]
    MountPoint {
        /// The mount point.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// There is no `/dev/fuse`, or it may not be opened.
    #[error(
        "/dev/fuse: {0}; FUSE is needed to mount (load the fuse module, or use `dure put` and `dure get` without a mount)"
    )]
    NoFuse(io::Error),
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

/// A mount that answers requests while [`Session::run`] runs.
#[derive(Debug)]
pub struct Session {
    inner: fuser::Session<Transport>,
    path: PathBuf,
}

impl Session {
    /// Mounts `volume` on the directory `at`.
    ///
    /// # Errors
    /// [`MountError`], naming the path and what to do.
    pub fn mount(
        volume: FileSystem,
        at: &Path,
        settings: &MountSettings,
    ) -> Result<Session, MountError> {
        let path = directory(at)?;
        let transport = Transport::new(Server::new(volume, settings));
        let config = config(settings);
        let failed = |source| MountError::Mount {
            path: path.clone(),
            source,
        };
        let inner = if rustix::process::geteuid().is_root() {
            let fuse = mount_directly(&path, settings)?;
            fuser::Session::from_fd(transport, fuse, config.acl, config).map_err(|error| {
                // The mount is there but nobody serves it.
                let _ = rustix::mount::unmount(&path, UnmountFlags::DETACH);
                failed(error)
            })?
        } else {
            fuser::Session::new(transport, &path, &config).map_err(failed)?
        };
        Ok(Session { inner, path })
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Answers requests until the directory is unmounted.
    ///
    /// # Errors
    /// `Serve` when the connection to the kernel fails.
    pub fn run(self) -> Result<(), MountError> {
        let path = self.path;
        self.inner
            .run()
            .map_err(|source| MountError::Serve { path, source })
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
        Err(rustix::io::Errno::PERM) => helper_unmount(at, lazy).map_err(failed),
        Err(error) => Err(failed(error.into())),
    }
}

/// Whether an unmount waits for users of the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lazy {
    /// Refuse while it is in use.
    No,
    /// Detach now, end later.
    Yes,
}

fn helper_unmount(at: &Path, lazy: Lazy) -> io::Result<()> {
    let mut command = std::process::Command::new("fusermount3");
    command.arg("-u");
    if lazy == Lazy::Yes {
        command.arg("-z");
    }
    let status = command.arg(at).status()?;
    if status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("fusermount3 ended with {status}")))
}

fn directory(at: &Path) -> Result<PathBuf, MountError> {
    let bad = |why: String| MountError::MountPoint {
        path: at.to_owned(),
        why,
    };
    let path = at.canonicalize().map_err(|error| bad(error.to_string()))?;
    if !path.is_dir() {
        return Err(bad("not a directory".into()));
    }
    Ok(path)
}

fn config(settings: &MountSettings) -> fuser::Config {
    use fuser::{MountOption, SessionACL};
    let mut config = fuser::Config::default();
    config.mount_options = vec![
        MountOption::FSName(settings.source.clone()),
        MountOption::Subtype("dure".into()),
        MountOption::DefaultPermissions,
    ];
    if settings.read_only {
        config.mount_options.push(MountOption::RO);
    }
    if settings.no_atime {
        config.mount_options.push(MountOption::NoAtime);
    }
    config.acl = if settings.allow_other {
        SessionACL::All
    } else {
        SessionACL::Owner
    };
    // Each thread has its own channel, so that a request need not find a sleeping thread's lock.
    let workers = settings
        .workers
        .unwrap_or_else(|| dure_sync::core_count() + 1);
    config.n_threads = Some(workers.max(1));
    config.clone_fd = true;
    config
}

/// mount(2) as root: the only way to a `fuseblk` mount, and no helper program is needed.
fn mount_directly(path: &Path, settings: &MountSettings) -> Result<OwnedFd, MountError> {
    let fuse = File::options().read(true).write(true).open("/dev/fuse");
    let fuse = fuse.map_err(MountError::NoFuse)?;
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        fuse.as_raw_fd(),
        uid.as_raw(),
        gid.as_raw()
    );
    if settings.allow_other {
        data.push_str(",allow_other");
    }
    let kind = if settings.block_device {
        data.push_str(",blksize=4096");
        "fuseblk.dure"
    } else {
        "fuse.dure"
    };
    let mut flags = MountFlags::NODEV | MountFlags::NOSUID;
    if settings.allow_other {
        // An administrator's mount for everybody: devices and set-uid programs work as on any disk.
        flags = MountFlags::empty();
    }
    if settings.read_only {
        flags |= MountFlags::RDONLY;
    }
    if settings.no_atime {
        flags |= MountFlags::NOATIME;
    }
    let data = std::ffi::CString::new(data).expect("numbers and option names");
    rustix::mount::mount(settings.source.as_str(), path, kind, flags, data.as_c_str()).map_err(
        |error| MountError::Mount {
            path: path.to_owned(),
            source: error.into(),
        },
    )?;
    Ok(fuse.into())
}

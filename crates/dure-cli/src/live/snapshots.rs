//! Snapshots of a mounted volume that its server mounts, too: where `dure snapshot mount` says, or for
//! the links in `.snapshots` of the mount.
//!
//! **Structure.** A snapshot is a file system of its own on the same store ([`FileSystem::open_snapshot`]),
//! served by a thread of its own, read-only, with little memory. Those for links lie in
//! `/run/dure/PROCESS/ID` ([`own_directory`]), are made when a link is read, and go when their snapshot
//! is deleted or the volume grows, unless they are in use. **Invariants.** None outlives the mount of
//! the volume: [`SnapshotMounts::end`] takes them away. **Crash.** Nothing is on the volume; the
//! directories of a server that was killed are taken away by the next one
//! ([`SnapshotMounts::forget_killed`]).

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use dure_fs::{FileSystem, MountOptions, SnapshotInfo};
use dure_fuse::mount::{self, Lazy};
use dure_fuse::{MountSettings, Session, SnapshotPlaces, Transport, WriteCache};
use dure_sync::atomic::{AtomicU32, Ordering};
use dure_sync::{Mutex, thread};
use rustix::fs::Access;
use rustix::mount::MountFlags;
use rustix::process::{Pid, geteuid, test_kill_process};

use crate::log::{self, Level};
use crate::mounts;

/// Rank of the turn to mount for a link: a request holds it while it opens the snapshot.
const TURN: u8 = 12;
/// Rank of the list; no other lock is taken while it is held.
const MOUNTS: u8 = 13;
/// What a mount of a snapshot may keep in memory.
const CACHE_BYTES: u64 = 32 << 20;

/// Those of one server.
#[derive(Debug)]
pub(crate) struct SnapshotMounts {
    /// What `mount` and `df` show: the volume.
    source: String,
    mounts: Mutex<MOUNTS, Vec<Shown>>,
    /// Readers of links, one after another: two of one link mount once.
    turn: Mutex<TURN, ()>,
    /// How many mounts have ended. Relaxed: who finds a link after the end of its mount was told of
    /// that by the kernel.
    ended: AtomicU32,
}

/// A snapshot that is mounted.
#[derive(Debug)]
struct Shown {
    directory: PathBuf,
    serving: thread::JoinHandle<()>,
    /// Made for a link, not asked for by a user.
    for_link: bool,
}

impl SnapshotMounts {
    /// None so far, of the volume at `source`.
    pub(crate) fn of(source: &str) -> SnapshotMounts {
        SnapshotMounts {
            source: source.to_owned(),
            mounts: Mutex::default(),
            turn: Mutex::default(),
            ended: AtomicU32::new(0),
        }
    }

    /// Shows a snapshot in `directory`, until that is unmounted.
    ///
    /// # Errors
    /// `NoSnapshot`, those of a mount.
    pub(crate) fn mount(&self, fs: &FileSystem, name: &str, directory: &Path) -> Result<()> {
        self.mount_as(fs, name, directory, false)
    }

    fn mount_as(&self, fs: &FileSystem, name: &str, at: &Path, for_link: bool) -> Result<()> {
        let options = MountOptions {
            cache_bytes: CACHE_BYTES,
            ..MountOptions::default()
        };
        let snapshot = fs.open_snapshot(name, options)?;
        let settings = MountSettings {
            source: format!("{}@{name}", self.source),
            allow_other: geteuid().is_root(),
            flags: mount::flags::DEFAULT | MountFlags::RDONLY,
            write_cache: WriteCache::Through,
            transport: Transport::Device,
            ..MountSettings::default()
        };
        let session =
            Session::mount(snapshot, at, &settings).with_context(|| format!("snapshot {name}"))?;
        let directory = session.path().to_owned();
        let said = format!("snapshot {name} mounted on {}", directory.display());
        log::said(Level::Info, &said);
        let serving = thread::spawn("dure-snapshot", move || {
            if let Err(error) = session.run() {
                log::said(Level::Error, &error.to_string());
            }
        });
        self.forget_ended();
        self.mounts.lock().push(Shown {
            directory,
            serving,
            for_link,
        });
        Ok(())
    }

    /// Whether a snapshot is shown.
    pub(crate) fn are_any(&self) -> bool {
        self.forget_ended();
        !self.mounts.lock().is_empty()
    }

    /// Waits for threads whose directories were unmounted: umount(2) does not, and until they end
    /// their snapshots cannot be deleted.
    pub(crate) fn forget_ended(&self) {
        let ended: Vec<Shown> = {
            let mut all = self.mounts.lock();
            // Only the kernel's list: to resolve a path may ask this very server.
            let listed = match all.is_empty() {
                true => Vec::new(),
                false => mounts::all(),
            };
            let is_shown =
                |shown: &Shown| listed.iter().any(|one| one.directory == shown.directory);
            let (left, ended) = std::mem::take(&mut *all).into_iter().partition(is_shown);
            *all = left;
            ended
        };
        for shown in ended {
            let _ = shown.serving.join();
            self.ended.fetch_add(1, Ordering::Relaxed);
            if shown.for_link {
                let _ = fs::remove_dir(&shown.directory);
            }
        }
    }

    /// Unmounts what was mounted for the links of these snapshots, unless it is in use.
    pub(crate) fn end_unused(&self, snapshots: &[SnapshotInfo]) {
        for snapshot in snapshots {
            let directory = self.directory(snapshot);
            let is = |shown: &Shown| shown.for_link && shown.directory == directory;
            if self.mounts.lock().iter().any(is) {
                let _ = dure_fuse::unmount(&directory, Lazy::No);
            }
        }
        self.forget_ended();
    }

    /// Unmounts those that are left; what is open there ends with an error.
    pub(crate) fn end(&self) {
        for shown in std::mem::take(&mut *self.mounts.lock()) {
            if !shown.serving.is_finished() {
                let _ = dure_fuse::unmount(&shown.directory, Lazy::Yes);
            }
            if shown.for_link {
                let _ = fs::remove_dir(&shown.directory);
            }
        }
        let _ = fs::remove_dir(own_directory());
    }

    /// Takes away what servers that were killed have left.
    pub(crate) fn forget_killed() {
        for left in fs::read_dir(directory_of_all())
            .into_iter()
            .flatten()
            .flatten()
        {
            let process = left.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(process) = process.and_then(Pid::from_raw) else {
                continue;
            };
            if test_kill_process(process) != Err(rustix::io::Errno::SRCH) {
                continue;
            }
            for place in fs::read_dir(left.path()).into_iter().flatten().flatten() {
                let _ = dure_fuse::unmount(&place.path(), Lazy::Yes);
                let _ = fs::remove_dir(place.path());
            }
            let _ = fs::remove_dir(left.path());
        }
    }
}

impl SnapshotPlaces for SnapshotMounts {
    fn directory(&self, snapshot: &SnapshotInfo) -> PathBuf {
        own_directory().join(snapshot.id.to_string())
    }

    fn show(&self, volume: &FileSystem, snapshot: &SnapshotInfo) -> Result<(), i32> {
        let _turn = self.turn.lock();
        self.forget_ended();
        let directory = self.directory(snapshot);
        if mounts::all().iter().any(|one| one.directory == directory) {
            return Ok(());
        }
        let shown = make_private(&directory)
            .and_then(|()| self.mount_as(volume, &snapshot.name, &directory, true));
        shown.map_err(|error| {
            log::said(Level::Warning, &format!("{error:#}"));
            rustix::io::Errno::IO.raw_os_error()
        })
    }

    fn ended(&self) -> u32 {
        self.forget_ended();
        self.ended.load(Ordering::Relaxed)
    }
}

/// Where the servers of this user show snapshots for links: a directory that others cannot change.
fn directory_of_all() -> PathBuf {
    let user = geteuid();
    let run = Path::new("/run");
    let place = match std::env::var_os("XDG_RUNTIME_DIR") {
        _ if user.is_root() => Some(run.to_owned()),
        place => place.map(PathBuf::from),
    };
    let usable = |place: &PathBuf| rustix::fs::access(place, Access::WRITE_OK).is_ok();
    let place = place.and_then(|place| place.canonicalize().ok());
    match place.filter(usable) {
        Some(place) => place.join("dure"),
        None => std::env::temp_dir().join(format!("dure-{user}", user = user.as_raw())),
    }
}

/// That of this server.
fn own_directory() -> PathBuf {
    directory_of_all().join(std::process::id().to_string())
}

/// Makes the directory below [`directory_of_all`], which another user may have made in a place for
/// all: then it is refused.
fn make_private(directory: &Path) -> Result<()> {
    let all = directory_of_all();
    let made = DirBuilder::new().mode(0o755).create(&all);
    let at = || all.display().to_string();
    if let Err(error) = made
        && error.kind() != std::io::ErrorKind::AlreadyExists
    {
        return Err(error).with_context(at);
    }
    let found = fs::symlink_metadata(&all).with_context(at)?;
    let is_own = found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0;
    if !is_own {
        bail!(
            "{}: belongs to another user, or others can write to it",
            at()
        );
    }
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())
}

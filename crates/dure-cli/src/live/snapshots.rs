//! Snapshots of a mounted volume that its server mounts, too: where `dure snapshot mount` says, or for
//! the links in `.snapshots` of the mount.
//!
//! **Structure.** A snapshot is a file system of its own on the same store ([`FileSystem::open_snapshot`]),
//! served by a thread of its own, read-only, with little memory. Those for links ([`Purpose::Link`]) lie
//! in `/run/dure/SERVER/ID`, are made when a link is read, and go when their snapshot is deleted, the
//! volume grows, or there are [`LINKS_MAX`] others, unless they are in use. A mount has ended when its
//! thread has: the kernel's list does not show one that was detached and is still in use.
//!
//! **Invariants.** None outlives the mount of the volume: [`SnapshotMounts::end`] takes them away. No user
//! sees more than on the mount of the volume, whose settings they have. What uses a snapshot
//! ([`SnapshotMounts::begin_use`]) and a growth exclude each other. **Crash.** Nothing is on the volume;
//! the directories of a server that was killed are taken away by the next one
//! ([`SnapshotMounts::forget_killed`]).

mod place;

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dure_fs::{Error, FileSystem, MountOptions, SnapshotInfo};
use dure_fuse::mount::Lazy;
use dure_fuse::{MountSettings, Session, SnapshotPlaces, Transport, WriteCache};
use dure_sync::atomic::{AtomicU32, Ordering};
use dure_sync::{Mutex, clock, thread};
use rustix::io::Errno;
use rustix::mount::MountFlags;

use self::place::{directory_of_all, is_own, name_of_server, was_killed};
use crate::log::{self, Level};
use crate::mounts;

/// Rank of the turn to mount for a link: a request holds it while it opens the snapshot.
const TURN: u8 = 12;
/// Rank of the list; no other lock is taken while it is held.
const MOUNTS: u8 = 13;
/// What a mount of a snapshot may keep in memory.
const CACHE_BYTES: u64 = 32 << 20;
/// How many snapshots may be mounted for links: a listing that follows all links mounts no more.
const LINKS_MAX: usize = 8;
/// How long the end of mounts that were unmounted is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Those of one server.
#[derive(Debug)]
pub(crate) struct SnapshotMounts {
    settings: MountSettings,
    /// Where those for links lie, if there is a place.
    directory: Option<PathBuf>,
    uses: Mutex<MOUNTS, Uses>,
    /// Readers of links, one after another: two of one link mount once.
    turn: Mutex<TURN, ()>,
    /// How many mounts for links were taken away. Relaxed: it only tells links apart.
    ended: AtomicU32,
}

/// What uses snapshots.
#[derive(Debug, Default)]
struct Uses {
    mounts: Vec<Shown>,
    /// Uses that are no mounts, or not yet.
    others: usize,
    /// The volume grows: it is mounted anew, and a use would have the old mount.
    is_growing: bool,
}

/// A snapshot that is mounted.
#[derive(Debug)]
struct Shown {
    directory: PathBuf,
    serving: thread::JoinHandle<()>,
    purpose: Purpose,
}

/// Why a snapshot is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// A user asked for it.
    User,
    /// A link was followed.
    Link,
}

/// Keeps the volume from growing.
#[derive(Debug)]
pub(crate) struct Use<'a>(&'a SnapshotMounts);

impl Drop for Use<'_> {
    fn drop(&mut self) {
        self.0.uses.lock().others -= 1;
    }
}

/// Lets snapshots be used again.
#[derive(Debug)]
pub(crate) struct Growth<'a>(&'a SnapshotMounts);

impl Drop for Growth<'_> {
    fn drop(&mut self) {
        self.0.uses.lock().is_growing = false;
    }
}

impl SnapshotMounts {
    /// None so far, of a volume that is mounted with these settings on `mount`.
    pub(crate) fn of(settings: &MountSettings, mount: &Path) -> SnapshotMounts {
        let all = directory_of_all();
        let mount = mount.canonicalize().unwrap_or_else(|_| mount.to_owned());
        // In the mount itself a request would wait for itself.
        let directory = (!all.starts_with(mount)).then(|| all.join(name_of_server()));
        SnapshotMounts {
            settings: settings.clone(),
            directory,
            uses: Mutex::default(),
            turn: Mutex::default(),
            ended: AtomicU32::new(0),
        }
    }

    /// The volume does not grow while a snapshot is used.
    ///
    /// # Errors
    /// While it grows.
    pub(crate) fn begin_use(&self) -> Result<Use<'_>> {
        let mut uses = self.uses.lock();
        if uses.is_growing {
            bail!("the volume is growing; try again");
        }
        uses.others += 1;
        drop(uses);
        Ok(Use(self))
    }

    /// No snapshot is used until the end of the growth.
    ///
    /// # Errors
    /// While one is used.
    pub(crate) fn begin_growth(&self, snapshots: &[SnapshotInfo]) -> Result<Growth<'_>> {
        self.end_unused(snapshots);
        let mut uses = self.uses.lock();
        if !uses.mounts.is_empty() || uses.others > 0 || uses.is_growing {
            bail!(
                "cannot grow while its snapshots are mounted or read, or a directory becomes a project; unmount these first"
            );
        }
        uses.is_growing = true;
        drop(uses);
        Ok(Growth(self))
    }

    /// Shows a snapshot in `directory`, until that is unmounted.
    ///
    /// # Errors
    /// `NoSnapshot`, those of a mount.
    pub(crate) fn mount(&self, fs: &FileSystem, name: &str, directory: &Path) -> Result<()> {
        self.mount_for(Purpose::User, fs, name, directory)
    }

    fn mount_for(&self, purpose: Purpose, fs: &FileSystem, name: &str, at: &Path) -> Result<()> {
        let _use = self.begin_use()?;
        let options = MountOptions {
            cache_bytes: CACHE_BYTES,
            ..MountOptions::default()
        };
        let snapshot = fs.open_snapshot(name, options)?;
        let settings = MountSettings {
            source: format!("{}@{name}", self.settings.source),
            flags: self.settings.flags | MountFlags::RDONLY,
            block_device: false,
            write_cache: WriteCache::Through,
            transport: Transport::Device,
            workers: Some(1),
            snapshots: None,
            ..self.settings.clone()
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
        let shown = Shown {
            directory,
            serving,
            purpose,
        };
        self.uses.lock().mounts.push(shown);
        Ok(())
    }

    /// Takes those out of the list whose threads have ended.
    fn forget_ended(&self) {
        let ended: Vec<Shown> = {
            let mut uses = self.uses.lock();
            let ended = |shown: &mut Shown| shown.serving.is_finished();
            uses.mounts.extract_if(.., ended).collect()
        };
        for shown in ended {
            let _ = shown.serving.join();
            if shown.purpose == Purpose::Link {
                self.ended.fetch_add(1, Ordering::Relaxed);
                let _ = fs::remove_dir(&shown.directory);
            }
        }
    }

    /// Waits, for a bounded time, for the threads of what was unmounted: umount(2) does not, and
    /// until they end their snapshots cannot be deleted.
    pub(crate) fn await_unmounted(&self) {
        let begin = clock::monotonic_ns();
        loop {
            self.forget_ended();
            // Only the kernel's list: to resolve a path may ask this very server.
            let listed = mounts::all();
            let is_listed =
                |shown: &Shown| listed.iter().any(|one| one.directory == shown.directory);
            let all_are = self.uses.lock().mounts.iter().all(is_listed);
            let passed = Duration::from_nanos(clock::monotonic_ns() - begin);
            // There is a root: an empty list could not be read.
            if all_are || listed.is_empty() || passed > PATIENCE {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Unmounts what was mounted for the links of these snapshots, unless it is in use.
    pub(crate) fn end_unused(&self, snapshots: &[SnapshotInfo]) {
        for snapshot in snapshots {
            let directory = self.directory(snapshot);
            if self.is_shown(&directory) {
                self.end_one(&directory);
            }
        }
        self.await_unmounted();
    }

    /// Unmounts what was mounted for a link. Whether it was not in use.
    fn end_one(&self, directory: &Path) -> bool {
        // Before the end: what the kernel keeps of a link is not followed any more.
        self.ended.fetch_add(1, Ordering::Relaxed);
        dure_fuse::unmount(directory, Lazy::No).is_ok()
    }

    fn is_shown(&self, directory: &Path) -> bool {
        let is = |shown: &Shown| {
            shown.purpose == Purpose::Link
                && shown.directory == directory
                && !shown.serving.is_finished()
        };
        self.uses.lock().mounts.iter().any(is)
    }

    /// Makes room for another one of a link.
    fn end_some(&self) -> Result<()> {
        let links: Vec<PathBuf> = {
            let uses = self.uses.lock();
            let links = uses.mounts.iter();
            let links = links.filter(|shown| shown.purpose == Purpose::Link);
            links.map(|shown| shown.directory.clone()).collect()
        };
        if links.len() >= LINKS_MAX && !links.iter().any(|link| self.end_one(link)) {
            bail!("{LINKS_MAX} snapshots are in use below .snapshots; see `dure snapshot mount`");
        }
        Ok(())
    }

    /// Unmounts those that are left; what is open there ends with an error.
    pub(crate) fn end(&self) {
        for shown in std::mem::take(&mut self.uses.lock().mounts) {
            if !shown.serving.is_finished() {
                let _ = dure_fuse::unmount(&shown.directory, Lazy::Yes);
            }
            if shown.purpose == Purpose::Link {
                let _ = fs::remove_dir(&shown.directory);
            }
        }
        if let Some(directory) = &self.directory {
            let _ = fs::remove_dir(directory);
        }
    }

    /// Takes away what servers of this user that were killed have left.
    pub(crate) fn forget_killed() {
        let all = directory_of_all();
        if !is_own(&all) {
            return;
        }
        let directories = |directory: &Path| {
            let entries = fs::read_dir(directory).into_iter().flatten().flatten();
            entries.filter(|one| one.file_type().is_ok_and(|kind| kind.is_dir()))
        };
        for left in directories(&all) {
            let name = left.file_name();
            if !name.to_str().is_some_and(was_killed) {
                continue;
            }
            for place in directories(&left.path()) {
                let _ = dure_fuse::unmount(&place.path(), Lazy::Yes);
                let _ = fs::remove_dir(place.path());
            }
            let _ = fs::remove_dir(left.path());
        }
    }
}

impl SnapshotPlaces for SnapshotMounts {
    fn directory(&self, snapshot: &SnapshotInfo) -> PathBuf {
        let own = self.directory.as_deref().unwrap_or(Path::new("/nowhere"));
        own.join(snapshot.id.to_string())
    }

    fn show(&self, volume: &FileSystem, snapshot: &SnapshotInfo) -> Result<(), i32> {
        let _turn = self.turn.lock();
        self.forget_ended();
        let directory = self.directory(snapshot);
        if self.is_shown(&directory) {
            return Ok(());
        }
        let shown = self
            .end_some()
            .and_then(|()| self.make_place(&directory))
            .and_then(|()| self.mount_for(Purpose::Link, volume, &snapshot.name, &directory));
        shown.map_err(|error| {
            if let Some(Error::NoSnapshot { .. }) = error.downcast_ref() {
                return Errno::STALE.raw_os_error();
            }
            log::said(Level::Warning, &format!("{error:#}"));
            Errno::IO.raw_os_error()
        })
    }

    fn ended(&self) -> u32 {
        self.forget_ended();
        self.ended.load(Ordering::Relaxed)
    }
}

impl SnapshotMounts {
    /// Makes the directory in a place that another user may have made in a directory for all: then it
    /// is refused.
    fn make_place(&self, directory: &Path) -> Result<()> {
        if self.directory.is_none() {
            bail!("the place for mounts of snapshots lies in this mount");
        }
        let all = directory_of_all();
        let at = || all.display().to_string();
        match DirBuilder::new().mode(0o700).create(&all) {
            Ok(()) => fs::set_permissions(&all, Permissions::from_mode(0o755)).with_context(at)?,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(at),
        }
        if !is_own(&all) {
            bail!(
                "{}: belongs to another user, or others can write to it",
                at()
            );
        }
        fs::create_dir_all(directory).with_context(at)?;
        let own = directory.parent().unwrap_or(directory);
        fs::set_permissions(own, Permissions::from_mode(0o755)).with_context(at)
    }
}

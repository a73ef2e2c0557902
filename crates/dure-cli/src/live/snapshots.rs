//! Snapshots of a mounted volume that its server mounts, too.
//!
//! **Structure.** A snapshot is a file system of its own on the same store ([`FileSystem::open_snapshot`]),
//! served by a thread of its own, read-only, with little memory. **Invariants.** None outlives the mount of
//! the volume: [`SnapshotMounts::end`] takes them away. **Crash.** Nothing is on the volume.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use dure_fs::{FileSystem, MountOptions};
use dure_fuse::mount::{self, Lazy};
use dure_fuse::{MountSettings, Session, Transport, WriteCache};
use dure_sync::{Mutex, thread};
use rustix::mount::MountFlags;

use crate::log::{self, Level};
use crate::mounts;

/// Rank of the list; no other lock is taken while it is held.
const MOUNTS: u8 = 13;
/// What a mount of a snapshot may keep in memory.
const CACHE_BYTES: u64 = 32 << 20;

/// Those of one server.
#[derive(Debug, Default)]
pub(crate) struct SnapshotMounts(Mutex<MOUNTS, Vec<(PathBuf, thread::JoinHandle<()>)>>);

impl SnapshotMounts {
    /// Shows the snapshot of a volume in `directory`, until that is unmounted. `source` is what
    /// `mount` and `df` show.
    ///
    /// # Errors
    /// `NoSnapshot`, those of a mount.
    pub(crate) fn mount(
        &self,
        fs: &FileSystem,
        (source, name): (&str, &str),
        directory: &Path,
    ) -> Result<()> {
        let options = MountOptions {
            cache_bytes: CACHE_BYTES,
            ..MountOptions::default()
        };
        let snapshot = fs.open_snapshot(name, options)?;
        let settings = MountSettings {
            source: format!("{source}@{name}"),
            allow_other: rustix::process::geteuid().is_root(),
            flags: mount::flags::DEFAULT | MountFlags::RDONLY,
            write_cache: WriteCache::Through,
            transport: Transport::Device,
            ..MountSettings::default()
        };
        let session = Session::mount(snapshot, directory, &settings)
            .with_context(|| format!("snapshot {name}"))?;
        let at = session.path().to_owned();
        let said = format!("snapshot {name} mounted on {}", at.display());
        log::said(Level::Info, &said);
        let serving = thread::spawn("dure-snapshot", move || {
            if let Err(error) = session.run() {
                log::said(Level::Error, &error.to_string());
            }
        });
        self.forget_ended();
        self.0.lock().push((at, serving));
        Ok(())
    }

    /// Whether a snapshot is shown.
    pub(crate) fn are_any(&self) -> bool {
        self.forget_ended();
        !self.0.lock().is_empty()
    }

    /// Waits for threads whose directories were unmounted: umount(2) does not, and until they end
    /// their snapshots cannot be deleted.
    pub(crate) fn forget_ended(&self) {
        let ended: Vec<_> = {
            let mut all = self.0.lock();
            let is_shown = |(directory, _): &(PathBuf, _)| mounts::is_mounted(directory);
            let (shown, ended) = std::mem::take(&mut *all).into_iter().partition(is_shown);
            *all = shown;
            ended
        };
        for (_, serving) in ended {
            let _ = serving.join();
        }
    }

    /// Unmounts those that are left; what is open there ends with an error.
    pub(crate) fn end(&self) {
        for (directory, serving) in std::mem::take(&mut *self.0.lock()) {
            if !serving.is_finished() {
                let _ = dure_fuse::unmount(&directory, Lazy::Yes);
            }
        }
    }
}

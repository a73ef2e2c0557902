//! What is measured: a volume through the library, a directory through system calls, a device by
//! itself, or a plain copy.
//!
//! **Invariants.** A target works only below a directory `dure-bench` of its own, which a lock
//! keeps from a second run, and removes it at the end, also after an error and Ctrl-C. **On a crash**
//! of the run it stays behind; the next run there removes it.

mod medium;
mod tree;

use std::cell::Cell;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use dure::Volume;
use dure_block::Device;
use dure_fs::MountOptions;
use dure_sync::Arc;
use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::measure::{Counts, Subject};
use crate::size::Size;

pub(crate) use medium::nvm_of;
pub(crate) use tree::{How, Io, Listing, NO_DIRECT, OpenFile, Tree, is_full};

/// The directory a target works in.
const PLACE: &str = "dure-bench";
/// Size of a temporary volume, if there is room for twice as much.
const TEMPORARY_BYTES: u64 = 8 << 30;

/// Something that can be measured.
#[derive(Debug)]
pub struct Target {
    name: String,
    policy: String,
    kind: Kind,
    /// Directories handed out so far; each has its number as its name.
    trees: Cell<u32>,
    is_closed: bool,
}

#[derive(Debug)]
enum Kind {
    Volume {
        volume: Volume,
        device: Arc<dyn Device>,
    },
    Directory {
        place: PathBuf,
        /// Locked as long as the run lasts.
        _lock: OwnedFd,
    },
    Raw {
        path: PathBuf,
        pages: usize,
    },
    Copy,
}

/// Mount options from `key=value` policies with commas between them.
pub(crate) fn options_of(name: &str, policy: &str) -> Result<MountOptions> {
    let mut options = MountOptions {
        cache_bytes: dure::quarter_of_memory(),
        ..MountOptions::default()
    };
    for option in policy.split(',').filter(|option| !option.is_empty()) {
        let set = match option.split_once('=') {
            // Of the device: see `medium`.
            Some(("nvm" | "drive" | "node_log", _)) => true,
            Some(("cache", value)) => {
                let Size(bytes) = value.parse().map_err(anyhow::Error::msg)?;
                options.cache_bytes = bytes;
                true
            }
            Some((key, value)) => options.set_policy(key, value).map_err(anyhow::Error::msg)?,
            None => options.set_policy(option, "").map_err(anyhow::Error::msg)?,
        };
        if !set {
            bail!(
                "--target {name}: unknown option '{option}'; it takes the policies of 'dure mount -o'"
            );
        }
    }
    Ok(options)
}

/// Says what a target could be if there is nothing at `path`.
fn check_is_there(name: &str, path: &Path, instead: &str) -> Result<()> {
    if path.as_os_str().is_empty() {
        bail!("--target {name}: no path is named; name {instead}");
    }
    // Other errors than this one say enough by themselves, once the path is used.
    if matches!(path.try_exists(), Ok(false)) {
        bail!(
            "--target {name}: there is nothing at {}; name {instead}",
            path.display()
        );
    }
    Ok(())
}

impl Target {
    /// Opens a target named as on the command line.
    ///
    /// # Errors
    /// An unknown kind of target, or one that cannot be opened.
    pub fn open(text: &str) -> Result<Target> {
        Target::named(text, text)
    }

    /// Opens the target `text` under another name.
    ///
    /// # Errors
    /// Those of [`Target::open`].
    pub fn named(name: &str, text: &str) -> Result<Target> {
        match text.split_once(':') {
            Some(("dure", rest)) => {
                let (path, policy) = rest.split_once(',').unwrap_or((rest, ""));
                options_of(name, policy)?;
                medium::check(name, policy)?;
                let path = Path::new(path);
                check_is_there(
                    name,
                    path,
                    "a volume, or a directory for a temporary one, or make one with 'dure mkfs'",
                )?;
                let opened = match path.is_dir() {
                    true => Target::temporary(name, policy, path, TEMPORARY_BYTES),
                    false => medium::of_volume(name, policy, path)
                        .and_then(|device| Target::volume(name, policy, device)),
                };
                opened.with_context(|| path.display().to_string())
            }
            Some(("dir", path)) => Target::directory(name, Path::new(path)),
            Some(("raw", rest)) => Target::raw(name, rest),
            None if text == "copy" => Ok(Target::new(name, "", Kind::Copy)),
            _ => bail!("--target {text}: it is dure:VOLUME, dir:PATH, raw:PATH or copy"),
        }
    }

    fn new(name: &str, policy: &str, kind: Kind) -> Target {
        Target {
            name: name.to_owned(),
            policy: policy.to_owned(),
            kind,
            trees: Cell::new(0),
            is_closed: false,
        }
    }

    /// What is measured when nothing is named: a temporary volume in `here`, and `here` itself.
    ///
    /// # Errors
    /// `here` cannot be written, or has no room.
    pub fn defaults(here: &Path) -> Result<Vec<Target>> {
        let name = format!("dir:{}", here.display());
        Ok(vec![
            Target::temporary("dure (temporary)", "", here, TEMPORARY_BYTES)?,
            Target::directory(&name, here)?,
        ])
    }

    fn directory(name: &str, path: &Path) -> Result<Target> {
        check_is_there(name, path, "a directory of the file system to measure")?;
        let path = fs::canonicalize(path).with_context(|| path.display().to_string())?;
        let place = path.join(PLACE);
        let shown = || place.display().to_string();
        if !place.exists() {
            fs::create_dir(&place).with_context(shown)?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let lock = rustix::fs::open(&place, flags, Mode::empty()).with_context(shown)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .with_context(|| format!("{}: another bench runs here", place.display()))?;
        for left in fs::read_dir(&place).with_context(shown)? {
            let left = left?.path();
            fs::remove_dir_all(&left).with_context(|| left.display().to_string())?;
        }
        let kind = Kind::Directory { place, _lock: lock };
        Ok(Target::new(name, "", kind))
    }

    /// `text` is PATH or PATH,pages=N.
    fn raw(name: &str, text: &str) -> Result<Target> {
        let (path, pages) = match text.split_once(",pages=") {
            None => (text, 1),
            Some((path, pages)) => (path, pages.parse().context("pages=N: a number")?),
        };
        if !(1..=16).contains(&pages) {
            bail!("--target {name}: pages=1 to pages=16");
        }
        let path = path.into();
        Ok(Target::new(name, "", Kind::Raw { path, pages }))
    }

    /// A volume on an open device.
    ///
    /// # Errors
    /// It cannot be mounted.
    pub fn volume(name: &str, policy: &str, device: Arc<dyn Device>) -> Result<Target> {
        let volume = Volume::open_on(device.clone(), options_of(name, policy)?)?;
        let place = Path::new("/").join(PLACE);
        let session = volume.root();
        if session.exists(&place)? {
            session.remove_dir_all(&place)?;
        }
        session.create_dir(&place)?;
        Ok(Target::new(name, policy, Kind::Volume { volume, device }))
    }

    /// Its name in reports.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.name
    }

    /// Its mount options, if it is a volume.
    #[must_use]
    pub fn policies(&self) -> &str {
        &self.policy
    }

    /// Whether it is a volume, which is used through the library.
    pub(crate) fn is_volume(&self) -> bool {
        matches!(self.kind, Kind::Volume { .. })
    }

    /// A directory of the target that is there; `None` if it has none.
    pub(crate) fn tree_at(&self, root: PathBuf) -> Option<Tree> {
        match &self.kind {
            Kind::Volume { volume, .. } => Some(Tree::of_volume(volume.root(), root)),
            Kind::Directory { .. } => Some(Tree::of_directory(root)),
            Kind::Raw { .. } | Kind::Copy => None,
        }
    }

    /// Syncs, and has nothing in memory any more: a volume is opened again, and the kernel drops
    /// its caches.
    ///
    /// # Errors
    /// Closing or opening fails; the kernel's caches are dropped for root only.
    pub(crate) fn make_cold(&mut self) -> Result<()> {
        if let Kind::Volume { volume, device } = &mut self.kind {
            volume.close()?;
            let options = options_of(&self.name, &self.policy)?;
            *volume = Volume::open_on(device.clone(), options)?;
        }
        rustix::fs::sync();
        let dropped = fs::write("/proc/sys/vm/drop_caches", "3");
        dropped.context("/proc/sys/vm/drop_caches: run it as root, cold files are measured")
    }

    /// A new, empty directory to work in; `None` if the target has none.
    pub(crate) fn tree(&self) -> Result<Option<Tree>> {
        let place = match &self.kind {
            Kind::Volume { .. } => Path::new("/").join(PLACE),
            Kind::Directory { place, .. } => place.clone(),
            Kind::Raw { .. } | Kind::Copy => return Ok(None),
        };
        let Some(place) = self.tree_at(place) else {
            return Ok(None);
        };
        let number = self.trees.get() + 1;
        self.trees.set(number);
        let tree = place.below(&number.to_string());
        tree.create_dir(tree.root())?;
        Ok(Some(tree))
    }

    /// The device or file and the pages of one write, if it is to be measured by itself.
    pub(crate) fn raw_device(&self) -> Option<(&Path, usize)> {
        match &self.kind {
            Kind::Raw { path, pages } => Some((path, *pages)),
            _ => None,
        }
    }

    /// Bytes written to the device so far, to be subtracted: for a volume those it wrote itself,
    /// for a directory those that the block device of its file system counts; `None` where nothing
    /// counts them.
    pub(crate) fn device_bytes(&self) -> Option<u64> {
        match &self.kind {
            Kind::Volume { volume, .. } => {
                Some(volume.file_system().activity().device.blocks_written * 4096)
            }
            Kind::Directory { place, .. } => {
                let device = rustix::fs::stat(place).ok()?.st_dev;
                let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
                let counts = format!("/sys/dev/block/{major}:{minor}/stat");
                // Its seventh number counts the sectors of 512 bytes that were written.
                let counts = fs::read_to_string(counts).ok()?;
                let sectors: u64 = counts.split_whitespace().nth(6)?.parse().ok()?;
                Some(sectors * 512)
            }
            Kind::Raw { .. } | Kind::Copy => None,
        }
    }

    /// A new volume in an unnamed file of at most `bytes` bytes in `place`.
    ///
    /// # Errors
    /// `place` cannot be written, or has no room; the options contradict each other.
    pub(crate) fn temporary(name: &str, policy: &str, place: &Path, bytes: u64) -> Result<Target> {
        let device = medium::temporary(name, policy, place, bytes)?;
        Target::volume(name, policy, device)
    }

    /// Removes what the runs made.
    ///
    /// # Errors
    /// Removing or closing fails.
    pub fn close(mut self) -> Result<()> {
        self.is_closed = true;
        match &self.kind {
            Kind::Volume { volume, .. } => {
                volume.root().remove_dir_all(Path::new("/").join(PLACE))?;
                volume.close()?;
            }
            Kind::Directory { place, .. } => {
                fs::remove_dir_all(place).with_context(|| place.display().to_string())?;
            }
            Kind::Raw { .. } | Kind::Copy => (),
        }
        Ok(())
    }
}

impl Drop for Target {
    /// Cleans up after a failure, as far as that lets it; the next run clears what is left.
    fn drop(&mut self) {
        if self.is_closed {
            return;
        }
        match &self.kind {
            Kind::Volume { volume, .. } => {
                drop(volume.root().remove_dir_all(Path::new("/").join(PLACE)));
                drop(volume.close());
            }
            Kind::Directory { place, .. } => drop(fs::remove_dir_all(place)),
            Kind::Raw { .. } | Kind::Copy => (),
        }
    }
}

impl Subject for Target {
    fn name(&self) -> &str {
        &self.name
    }

    fn policy(&self) -> &str {
        &self.policy
    }

    fn counts(&self) -> Option<Counts> {
        let Kind::Volume { volume, .. } = &self.kind else {
            return None;
        };
        let activity = volume.file_system().activity();
        let journals = || activity.journals.iter();
        let blocks: u64 = journals().map(|journal| journal.blocks).sum();
        Some(Counts {
            log_bytes: blocks * 4096,
            record_bytes: journals().map(|journal| journal.record_bytes).sum(),
            flushes: activity.device.flush_requests,
            device_flushes: activity.device.device_flushes,
            nodes: activity.nodes.unwrap_or_default(),
        })
    }
}

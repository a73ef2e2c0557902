//! A mounted volume.

use std::fmt;
use std::path::{Path, PathBuf};

use dure_block::nvm::Nvm;
use dure_block::ram::RamDevice;
use dure_block::{Device, file};
use dure_fs::{FileSystem, FormatOptions, InodeRef, MountOptions, Statistics};
use dure_fuse::Coherence;
use dure_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use dure_sync::{Arc, Mutex, OnceLock};

use crate::credentials::Credentials;
use crate::error::{Cause, Context, Result};
use crate::members;
use crate::session::Session;
use crate::stream::Fault;

/// Rank of where a volume is mounted.
const MOUNTED_ON: u8 = 27;

const BLOCK: u64 = 4096;
const _: () = assert!(dure_block::BLOCK_BYTES == 4096);

/// What all handles of a volume share.
pub(crate) struct Shared {
    pub(crate) fs: FileSystem,
    root: InodeRef,
    /// Set by the first close, which does the work; later ones do nothing. AcqRel: the close that
    /// finds it unset owns the work.
    closed: AtomicBool,
    /// Counts the calls that gave a file set-id bits, from 1. Written rarely, read by every write
    /// of a caller that is not root. Release/Acquire: a write that sees the count sees the new mode
    /// too, and knows that it has to read it.
    set_ids: AtomicU64,
    /// What the kernel may have of it, since it was mounted by this process for the first time.
    coherence: OnceLock<Arc<Coherence>>,
    /// Where it is mounted, or was.
    mounted_on: Mutex<MOUNTED_ON, PathBuf>,
    /// A stream is received. AcqRel: the task that sets it sees what the one before did.
    receiving: AtomicBool,
}

/// A stream is received; dropped, another may be.
pub(crate) struct Receiving<'v>(&'v Shared);

impl Drop for Receiving<'_> {
    fn drop(&mut self) {
        self.0.fs.mix_projects(false);
        // Release: pairs with begin_receive.
        self.0.receiving.store(false, Ordering::Release);
    }
}

impl Shared {
    /// What the kernel may have of the volume; `None`: it was never mounted by this process.
    #[inline]
    pub(crate) fn coherence(&self) -> Option<&Coherence> {
        self.coherence.get().map(|coherence| &**coherence)
    }

    /// Mounts it by `mount` on the directory `at`, if it is not mounted.
    pub(crate) fn mount_once<T>(
        &self,
        at: &Path,
        mount: impl FnOnce(&Arc<Coherence>) -> Result<T>,
    ) -> Result<T> {
        let coherence = self.coherence.get_or_init(Arc::default);
        let mut mounted_on = self.mounted_on.lock();
        if coherence.is_mounted() {
            let path = mounted_on.clone();
            return Err(Cause::Mounted { path }.at("mount on", at));
        }
        at.clone_into(&mut mounted_on);
        mount(coherence)
    }

    #[inline]
    pub(crate) fn set_ids(&self) -> u64 {
        // Acquire: pairs with set_id_given.
        self.set_ids.load(Ordering::Acquire)
    }

    /// A file got set-id bits: descriptors have to read modes again. Called after the change: a
    /// write that has not seen the count yet is ordered before the change.
    pub(crate) fn set_id_given(&self) {
        // Release: pairs with set_ids.
        self.set_ids.fetch_add(1, Ordering::Release);
    }

    /// One stream is received at a time.
    pub(crate) fn begin_receive(&self) -> std::result::Result<Receiving<'_>, Cause> {
        match self.receiving.swap(true, Ordering::AcqRel) {
            false => {
                self.fs.mix_projects(true);
                Ok(Receiving(self))
            }
            true => Err(Cause::Stream(Fault::Busy)),
        }
    }

    fn close(&self) -> dure_fs::Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.fs.close()
    }
}

impl Drop for Shared {
    /// Best effort: an error here cannot be returned, and after it the next mount recovers the
    /// volume as after a crash.
    fn drop(&mut self) {
        let _ = self.close();
    }
}

/// A mounted volume. Clones are the same volume; the last one closes it.
#[derive(Clone)]
pub struct Volume(Arc<Shared>);

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume").finish_non_exhaustive()
    }
}

/// How a volume is made in a file or on a block device.
#[derive(Debug, Clone, Default)]
pub struct CreateOptions {
    /// Size of a new image file, which must not be there yet. `None`: an existing file or block
    /// device is used as a whole, and all that is on it is lost.
    pub image_bytes: Option<u64>,
    /// What mkfs decides.
    pub format: FormatOptions,
    /// How it is then mounted.
    pub mount: MountOptions,
}

fn open_device(path: &Path, read_only: bool) -> Result<Arc<dyn Device>> {
    open_device_as(path, read_only, |file| file)
}

fn open_device_as(
    path: &Path,
    read_only: bool,
    prepare: impl Fn(file::FileDevice) -> file::FileDevice,
) -> Result<Arc<dyn Device>> {
    let options = file::OpenOptions {
        read_only,
        ..file::OpenOptions::default()
    };
    let open = |path: &Path| -> std::result::Result<_, Cause> {
        Ok(prepare(file::open_file(path, options)?))
    };
    let joined = open(path).and_then(|file| members::join(path, file, &[], Nvm::Auto, open));
    joined.at("open volume", path)
}

impl Volume {
    /// Makes a volume in the image file or on the block device `path`, and mounts it.
    ///
    /// # Errors
    /// An option out of range, a device that is too small or in use, those of the device.
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("volume.img");
    /// let options = dure::CreateOptions {
    ///     image_bytes: Some(32 << 20),
    ///     ..Default::default()
    /// };
    /// let volume = dure::Volume::create(&path, &options)?;
    /// volume.root().write("file", b"sown")?;
    /// volume.close()?;
    /// # drop(volume);
    /// let volume = dure::Volume::open(&path, dure::MountOptions::default())?;
    /// assert_eq!(volume.root().read("file")?, b"sown");
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn create(path: impl AsRef<Path>, options: &CreateOptions) -> Result<Volume> {
        let path = path.as_ref();
        let device = match options.image_bytes {
            Some(bytes) => {
                let (sparse, how) = (file::Allocation::Sparse, file::OpenOptions::default());
                let made = file::create_image(path, bytes / BLOCK, sparse, how);
                dure_block::share(made.at("make volume", path)?)
            }
            None => open_device(path, false)?,
        };
        Volume::create_on(device, &options.format, options.mount.clone())
            .map_err(|error| error.on(path))
    }

    /// Mounts the volume in the image file or on the block device `path`; recovers it if it was not
    /// closed.
    ///
    /// # Errors
    /// No volume there, one of a newer dure or in use, corruption, those of the device.
    pub fn open(path: impl AsRef<Path>, mount: MountOptions) -> Result<Volume> {
        let path = path.as_ref();
        let device = open_device(path, mount.is_read_only())?;
        Volume::open_on(device, mount).map_err(|error| error.on(path))
    }

    /// Like [`Volume::open`]; no call opens a descriptor after it.
    pub(crate) fn open_all(path: &Path, mount: MountOptions) -> Result<Volume> {
        let device = open_device_as(path, mount.is_read_only(), file::FileDevice::with_all_rings)?;
        Volume::open_on(device, mount).map_err(|error| error.on(path))
    }

    /// Makes a volume on `device` and mounts it. Everything on the device is lost.
    ///
    /// # Errors
    /// An option out of range, a device that is too small, those of the device.
    pub fn create_on(
        device: Arc<dyn Device>,
        format: &FormatOptions,
        mount: MountOptions,
    ) -> Result<Volume> {
        FileSystem::format(Arc::clone(&device), format).during("make volume")?;
        Volume::open_on(device, mount)
    }

    /// Mounts the volume on `device`; recovers it if it was not closed.
    ///
    /// # Errors
    /// No volume there, one of a newer dure, corruption, those of the device.
    pub fn open_on(device: Arc<dyn Device>, mount: MountOptions) -> Result<Volume> {
        Volume::of(FileSystem::open(device, mount).during("open volume")?)
    }

    pub(crate) fn of(fs: FileSystem) -> Result<Volume> {
        let root = fs.root().during("open volume")?;
        let closed = AtomicBool::new(false);
        Ok(Volume(Arc::new(Shared {
            fs,
            root,
            closed,
            set_ids: AtomicU64::new(1),
            coherence: OnceLock::new(),
            mounted_on: Mutex::default(),
            receiving: AtomicBool::new(false),
        })))
    }

    /// A volume of `bytes` in memory, for tests and examples.
    ///
    /// # Errors
    /// Too small.
    ///
    /// ```
    /// let session = dure::Volume::in_memory(32 << 20)?.root();
    /// session.write("file", b"sown")?;
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn in_memory(bytes: u64) -> Result<Volume> {
        let device = dure_block::share(RamDevice::new("memory", bytes / BLOCK));
        Volume::create_on(device, &FormatOptions::default(), MountOptions::default())
    }

    /// Makes everything durable and marks the volume as cleanly unmounted. From then on changes
    /// fail with `EROFS`. Files, sessions and clones that are left can still read, and keep the
    /// image or device in use: another [`Volume::open`] of it succeeds once the last of them is
    /// dropped. Closing twice does nothing. Dropping the last of them closes too, but cannot tell
    /// of an error.
    ///
    /// # Errors
    /// `EBUSY` while it is mounted ([`Volume::mount`]); what could not be made durable: the next
    /// mount recovers.
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("volume.img");
    /// # let image_bytes = Some(32 << 20);
    /// # let options = dure::CreateOptions { image_bytes, ..Default::default() };
    /// let volume = dure::Volume::create(&path, &options)?;
    /// let session = volume.root();
    /// session.write("file", b"kept")?;
    /// volume.close()?;
    /// assert_eq!(session.read("file")?, b"kept");
    /// assert!(session.write("file", b"new").is_err());
    /// drop((session, volume));
    /// let volume = dure::Volume::open(&path, dure::MountOptions::default())?;
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn close(&self) -> Result<()> {
        if let Some(coherence) = self.0.coherence()
            && coherence.is_mounted()
        {
            let path = self.0.mounted_on.lock().clone();
            return Err(Cause::Mounted { path }.during("close volume"));
        }
        self.0.close().during("close volume")
    }

    /// A session at the root directory.
    #[must_use]
    pub fn session(&self, caller: Credentials) -> Session {
        Session::new(self.clone(), caller, self.0.root.clone())
    }

    /// A session of the super user.
    #[must_use]
    pub fn root(&self) -> Session {
        self.session(Credentials::root())
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// Those of the device.
    pub fn sync(&self) -> Result<()> {
        if let Some(coherence) = self.0.coherence() {
            coherence.settle_all();
        }
        self.0.fs.sync().during("sync")
    }

    /// Space and inodes, total and free (`statvfs`).
    ///
    /// ```
    /// let volume = dure::Volume::in_memory(32 << 20)?;
    /// let found = volume.statistics();
    /// assert!(found.blocks_available * 4096 > 16 << 20 && found.name_max == 255);
    /// # Ok::<(), dure::Error>(())
    /// ```
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.0.fs.statistics()
    }

    /// The file system below, inode by inode and without permission checks.
    #[must_use]
    pub fn file_system(&self) -> &FileSystem {
        &self.0.fs
    }

    /// Whether both are the same volume.
    pub(crate) fn is(&self, other: &Volume) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }
}

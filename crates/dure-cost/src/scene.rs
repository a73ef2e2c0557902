//! A volume in memory with one directory of names.
//!
//! **Invariants.** Everything that could differ between two machines or runs is fixed: the identity
//! (names are hashed with it), journals, the bound of the cache; nothing runs in the background,
//! and the logs are so large that no call has to free space in one.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use dure::{Background, CreateOptions, FormatOptions, MountOptions, Session, Volume};
use dure_block::nvm::NvmDevice;
use dure_block::ram::RamDevice;
use dure_block::{BLOCK_BYTES, Device, Io, Lba, WriteFlags, share};
use dure_pmem::Region;
use dure_sync::Arc;
use rustix::fs::{SeekFrom, seek};

/// The directory the calls are made in.
pub(crate) const DIRECTORY: &str = "/names";
/// A file of [`FILE_BYTES`], all of whose pages are in memory.
pub(crate) const FILE: &str = "/file";
pub(crate) const FILE_BYTES: u64 = 1 << 20;

const BLOCK: u64 = 4096;
const _: () = assert!(BLOCK_BYTES == 4096);
const VOLUME_BYTES: u64 = 1 << 30;
const LOG_BLOCKS: u64 = 1 << 15;
const CACHE_BYTES: u64 = 512 << 20;

/// What a volume is loaded into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Medium {
    /// A device in memory.
    Ram,
    /// Emulated persistent memory, in which files are used where they lie.
    Nvm,
}

fn options(medium: Medium) -> Result<MountOptions> {
    let mut options = MountOptions {
        background: Background::None,
        cache_bytes: CACHE_BYTES,
        recovery_threads: Some(1),
        ..MountOptions::default()
    };
    if medium == Medium::Nvm {
        let set = options.set_policy("page_cache", "none");
        ensure!(set == Ok(true), "page_cache=none: {set:?}");
    }
    Ok(options)
}

/// Path of a name that is there from the beginning.
pub(crate) fn existing(index: usize) -> PathBuf {
    Path::new(DIRECTORY).join(format!("file{index:06}"))
}

/// Makes an image with a directory of `names` files.
pub(crate) fn prepare(image: &Path, names: usize) -> Result<()> {
    let made = CreateOptions {
        image_bytes: Some(VOLUME_BYTES),
        format: FormatOptions {
            // With several, the core would decide where blocks lie.
            journals: Some(1),
            uuid: Some([7; 16]),
            ..FormatOptions::default()
        },
        mount: options(Medium::Ram)?,
    };
    let volume = Volume::create(image, &made)?;
    let session = volume.root();
    session.create_dir(DIRECTORY)?;
    for index in 0..names {
        session.create(existing(index))?;
    }
    let file = session.create(FILE)?;
    let page = [3; BLOCK_BYTES];
    for offset in (0..FILE_BYTES).step_by(BLOCK_BYTES) {
        file.write_all_at(&page, offset)?;
    }
    volume.close()?;
    Ok(())
}

/// The volume, mounted, and what is on it.
pub(crate) struct Scene {
    device: Arc<dyn Device>,
    medium: Medium,
    volume: Volume,
    session: Session,
    /// Names in the directory.
    pub(crate) names: usize,
}

impl Scene {
    /// Loads an image into memory and mounts it. The directory was listed once.
    pub(crate) fn load(image: &Path, medium: Medium) -> Result<Scene> {
        let device = load(image, medium).with_context(|| image.display().to_string())?;
        let (volume, session) = mount(&device, medium)?;
        let names = session.read_dir(DIRECTORY)?.count();
        let file = session.open(FILE)?;
        let mut page = [0; BLOCK_BYTES];
        for offset in (0..FILE_BYTES).step_by(BLOCK_BYTES) {
            file.read_exact_at(&mut page, offset)?;
        }
        Ok(Scene {
            device,
            medium,
            volume,
            session,
            names,
        })
    }

    /// Unmounts and mounts again: all caches are empty.
    pub(crate) fn mount_again(&mut self) -> Result<()> {
        self.volume.close()?;
        (self.volume, self.session) = mount(&self.device, self.medium)?;
        Ok(())
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    pub(crate) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Commits what calls have left in the log's buffers, which keep their memory: otherwise they
    /// would be enlarged sometimes within a counted round, sometimes outside. No page is written
    /// back.
    pub(crate) fn commit(&self) -> Result<()> {
        self.session.open(DIRECTORY)?.sync_all()?;
        Ok(())
    }

    /// What a mount's thread does every few seconds, and a checkpoint, which it does when logs
    /// are half full.
    pub(crate) fn background(&self) -> Result<()> {
        self.volume.file_system().background_now()?;
        self.volume.file_system().checkpoint_now()?;
        Ok(())
    }
}

fn mount(device: &Arc<dyn Device>, medium: Medium) -> Result<(Volume, Session)> {
    let volume = Volume::open_on(Arc::clone(device), options(medium)?)?;
    volume.file_system().grow_logs(LOG_BLOCKS)?;
    let session = volume.root();
    Ok((volume, session))
}

/// A device in memory with what a sparse file holds. Its holes are skipped: under valgrind, reading
/// them takes a minute.
fn load(image: &Path, medium: Medium) -> Result<Arc<dyn Device>> {
    let file = File::open(image)?;
    let device = match medium {
        Medium::Ram => share(RamDevice::new("memory", VOLUME_BYTES / BLOCK)),
        Medium::Nvm => {
            let region = Region::anonymous(usize::try_from(VOLUME_BYTES)?)?;
            share(NvmDevice::in_memory("memory", region))
        }
    };
    let mut bytes = vec![0; 64 * BLOCK_BYTES];
    let mut offset = 0;
    while let Ok(data) = seek(&file, SeekFrom::Data(offset)) {
        offset = data / BLOCK * BLOCK;
        let hole = seek(&file, SeekFrom::Hole(data))?.next_multiple_of(BLOCK);
        while offset < hole {
            let len = usize::try_from(hole - offset)?.min(bytes.len());
            let read = &mut bytes[..len];
            file.read_exact_at(read, offset)?;
            let (lba, parts, flags) = (Lba::new(offset / BLOCK), &[&*read], WriteFlags::NONE);
            device.execute(Io::Write { lba, parts, flags })?;
            offset += u64::try_from(len)?;
        }
    }
    Ok(device)
}

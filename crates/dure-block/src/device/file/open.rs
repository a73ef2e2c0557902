//! Opening and making image files and block devices.
//!
//! **Problem.** A volume must not be opened twice, nor on something that cannot hold it.
//! **Structure.** Options, the checks, and the properties that the kernel reports of the device.
//! **Invariants.** Nothing is changed before the lock is held. Every refusal tells the user what to
//! do. **Crash.** A new image file is durable, with its directory entry, when [`create_image`]
//! returns.

use std::path::Path;

use dure_sync::Arc;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Mode, OFlags, SeekFrom, Stat, StatxFlags, fallocate, fstat,
    fstatfs, fsync, ftruncate, ioctl_blkpbszget, ioctl_blksszget, major, minor, open, seek, statx,
};
use rustix::io::Errno;

use super::FileDevice;
use super::claim::{Claim, lock};
use crate::engine::Target;
use crate::engine::uring::RingOptions;
use crate::{BLOCK_BYTES, DeviceInfo, Error, Result};

/// Whether the page cache of the kernel is bypassed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Direct {
    /// If the file system supports it.
    #[default]
    Auto,
    /// Always; opening fails if the file system does not support it.
    Always,
    /// Through the page cache.
    Never,
}

/// How submitted requests reach the kernel. Synchronous ones are system calls in any case.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// `io_uring` if the kernel has it, else as `Psync`.
    #[default]
    Auto,
    /// Plain system calls: a submitted request is complete when `submit` returns.
    Psync,
    /// Like `Psync`, and the caller polls the device; opening fails if the kernel refuses that.
    /// Where the driver has no queue to poll the kernel may wait for the interrupt all the same
    /// ([`FileDevice::is_polled`]).
    Pvsync2,
    /// `libaio`; opening fails if the kernel does not have it.
    Libaio,
    /// `io_uring` with these options; opening fails if the kernel refuses it, or one of them.
    Uring(RingOptions),
}

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Psync => "psync",
            Self::Pvsync2 => "pvsync2",
            Self::Libaio => "libaio",
            Self::Uring(options) if options.iopoll => "io_uring (IOPOLL)",
            Self::Uring(options) if options.sqpoll => "io_uring (SQPOLL)",
            Self::Uring(options) if options.registered.is_some() => "io_uring (registered buffers)",
            Self::Uring(_) => "io_uring",
        }
    }
}

/// Which other openers a file or block device may have.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// None; but readers of one image share it.
    #[default]
    Nobody,
    /// Only the kernel, which claims a block device itself when it mounts it.
    Kernel,
    /// Any: only for inspecting a volume that is known to be in use.
    Anybody,
}

/// How a file or block device is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    /// Whether writes are refused.
    pub read_only: bool,
    /// Which other openers it may have.
    pub sharing: Sharing,
    /// Whether the page cache is bypassed.
    pub direct: Direct,
    /// The engine of submitted requests.
    pub engine: Engine,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            sharing: Sharing::Nobody,
            direct: Direct::Auto,
            engine: Engine::Auto,
        }
    }
}

/// Whether a new image file has its blocks from the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocation {
    /// Blocks are allocated when they are written, which may then fail for lack of space.
    Sparse,
    /// All blocks are allocated now.
    Preallocated,
}

/// Longest transfer of one system call on Linux, in blocks.
const MAX_BLOCKS_PER_REQUEST: u64 = 0x7fff_f000 / 4096;

pub(super) fn failed(path: &Path, action: &'static str) -> impl Fn(Errno) -> Error {
    let path = path.to_owned();
    move |errno| Error::Open {
        path: path.clone(),
        action,
        os: errno.into(),
    }
}

/// Makes an image file of `blocks` blocks that read as zeroes, and opens it. It is locked from the
/// beginning; if anything fails it is removed.
///
/// # Errors
/// [`Error::Open`] if there is such a file already, or no space, or another error of the system.
pub fn create_image(
    path: &Path,
    blocks: u64,
    allocation: Allocation,
    options: OpenOptions,
) -> Result<FileDevice> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::RUSR | Mode::WUSR)
        .map_err(failed(path, "create the image file"))?;
    // If the lock is held, another process opened the new file between these two calls, and owns it
    // now.
    lock(path, &file, options)?;
    let made = size_image(path, &file, blocks, allocation)
        .and_then(|()| open_claimed(path, options, |_, _| Ok(Claim::of_new(file))));
    if made.is_err() {
        // The file is ours and useless; if removing it fails as well, the error to return is the
        // same.
        let _ = rustix::fs::unlink(path);
    }
    made
}

/// Resizes an image file that is open, and so locked: added bytes read as zeroes.
///
/// # Errors
/// [`Error::Open`] with the system's error, also on a block device, whose size is fixed.
pub fn resize_image(path: &Path, device: FileDevice, blocks: u64) -> Result<FileDevice> {
    set_size(path, &device, blocks)?;
    Ok(device.with_blocks(blocks))
}

fn set_size(path: &Path, device: &FileDevice, blocks: u64) -> Result<()> {
    let file = &device.target.fd;
    let resized = blocks.checked_mul(4096).ok_or(Errno::FBIG);
    let resized = resized.and_then(|bytes| ftruncate(file, bytes).and_then(|()| fsync(file)));
    resized.map_err(failed(path, "give the image file its size"))
}

/// [`crate::Device::reopened`]: by its descriptor, since another file may have the name by now.
pub(super) fn reopen(device: &FileDevice, blocks: Option<u64>) -> Result<FileDevice> {
    let path = format!("/proc/self/fd/{}", device.target.fd.as_raw_fd());
    let path = Path::new(&path);
    if let Some(blocks) = blocks {
        set_size(path, device, blocks)?;
    }
    let options = OpenOptions {
        read_only: device.info.read_only,
        sharing: Sharing::Anybody,
        engine: device.engine,
        ..OpenOptions::default()
    };
    let mut again = open_claimed(path, options, |_, _| Ok(Claim::default()))?;
    again.info.name.clone_from(&device.info.name);
    if let Some(target) = Arc::get_mut(&mut again.target) {
        target.name = device.target.name.clone();
    }
    Ok(again)
}

fn size_image(path: &Path, file: &OwnedFd, blocks: u64, allocation: Allocation) -> Result<()> {
    let bytes = blocks
        .checked_mul(4096)
        .ok_or(Errno::FBIG)
        .map_err(failed(path, "give the image file its size"))?;
    ftruncate(file, bytes).map_err(failed(path, "give the image file its size"))?;
    if allocation == Allocation::Preallocated && bytes > 0 {
        fallocate(file, FallocateFlags::empty(), 0, bytes)
            .map_err(failed(path, "allocate the blocks of the image file"))?;
    }
    fsync(file).map_err(failed(path, "sync the image file"))?;
    // The directory entry has to be durable as well.
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let directory = open(
        parent,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(failed(parent, "open the directory of the image file"))?;
    fsync(&directory).map_err(failed(parent, "sync the directory of the image file"))
}

/// Opens an image file or block device.
///
/// # Errors
/// [`Error::Busy`] and [`Error::Locked`] if another process has it open; [`Error::WrongFileType`],
/// [`Error::NoSize`], [`Error::EngineUnavailable`], or [`Error::Open`] with the system's error.
pub fn open_file(path: &Path, options: OpenOptions) -> Result<FileDevice> {
    open_claimed(path, options, |fd, found| {
        Claim::take(path, fd, found, options)
    })
}

/// Opens `path`, with the claim that `claim` returns for it.
pub(super) fn open_claimed(
    path: &Path,
    options: OpenOptions,
    claim: impl FnOnce(&OwnedFd, &Stat) -> Result<Claim>,
) -> Result<FileDevice> {
    let metadata = rustix::fs::stat(path).map_err(failed(path, "find it"))?;
    let kind = FileType::from_raw_mode(metadata.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::BlockDevice) {
        return Err(Error::WrongFileType {
            path: path.to_owned(),
            kind: name_of(kind),
        });
    }
    let (fd, direct) = open_checked(path, kind, options)?;
    let opened = fstat(&fd).map_err(failed(path, "examine it"))?;
    let claim = claim(&fd, &opened)?;
    // The path may have been replaced since, also while the lock was waited for: its creator may
    // have removed it again.
    let now = rustix::fs::stat(path).map_err(failed(path, "find it"))?;
    if (now.st_dev, now.st_ino, now.st_mode) != (opened.st_dev, opened.st_ino, opened.st_mode) {
        return Err(failed(path, "open it: it was replaced meanwhile")(
            Errno::STALE,
        ));
    }
    let info = examine(path, &fd, kind, &opened, options, direct)?;
    let io_poll = || queue_attribute(opened.st_rdev, "io_poll");
    let is_polled = kind == FileType::BlockDevice && io_poll().is_some_and(|text| text == "1");
    let target = Target {
        fd,
        name: Arc::from(info.name.as_str()),
    };
    let device = FileDevice::new(info, target, claim, options.engine, is_polled);
    device.try_engine().map_err(|os| Error::EngineUnavailable {
        path: path.to_owned(),
        engine: options.engine.name(),
        os,
    })?;
    Ok(device)
}

/// Opens `path`; the second value tells whether for direct I/O.
fn open_checked(path: &Path, kind: FileType, options: OpenOptions) -> Result<(OwnedFd, bool)> {
    let access = if options.read_only {
        OFlags::RDONLY
    } else {
        OFlags::RDWR
    };
    let mut flags = access | OFlags::CLOEXEC;
    if kind == FileType::BlockDevice && options.sharing == Sharing::Nobody {
        flags |= OFlags::EXCL;
    }
    let refused = |errno: Errno| match errno {
        Errno::BUSY => Error::Busy {
            path: path.to_owned(),
        },
        errno => failed(path, "open it")(errno),
    };
    if options.direct != Direct::Never {
        match open(path, flags | OFlags::DIRECT, Mode::empty()) {
            Ok(fd) => return Ok((fd, true)),
            Err(Errno::INVAL) if options.direct == Direct::Auto => {}
            Err(errno) => return Err(refused(errno)),
        }
    }
    open(path, flags, Mode::empty())
        .map(|fd| (fd, false))
        .map_err(refused)
}

fn examine(
    path: &Path,
    fd: &OwnedFd,
    kind: FileType,
    metadata: &rustix::fs::Stat,
    options: OpenOptions,
    direct: bool,
) -> Result<DeviceInfo> {
    let is_block_device = kind == FileType::BlockDevice;
    // A seek to the end returns the size of both files and block devices.
    let bytes = seek(fd, SeekFrom::End(0)).map_err(failed(path, "find its size"))?;
    if is_block_device {
        if bytes == 0 {
            return Err(Error::NoSize {
                path: path.to_owned(),
            });
        }
        let sector = ioctl_blksszget(fd).map_err(failed(path, "find its sector size"))?;
        if usize::try_from(sector).is_ok_and(|sector| sector > BLOCK_BYTES) {
            return Err(failed(path, "use sectors larger than 4096 bytes")(
                Errno::INVAL,
            ));
        }
    }
    let atomic = is_block_device && ioctl_blkpbszget(fd).is_ok_and(|physical| physical >= 4096);
    Ok(DeviceInfo {
        name: path.display().to_string(),
        // The bytes after the last whole block are not used.
        blocks: bytes / 4096,
        rotational: is_block_device
            && queue_attribute(metadata.st_rdev, "rotational").is_some_and(|text| text == "1"),
        // The kernel itself sends no flush to a device that it calls "write through": a completed
        // direct write is durable as far as the kernel knows. Writes through the page cache (not
        // direct, or to a file of some file system) are durable only after fdatasync.
        volatile_cache: !(is_block_device
            && direct
            && queue_attribute(metadata.st_rdev, "write_cache")
                .is_some_and(|text| text == "write through")),
        read_only: options.read_only,
        max_blocks_per_request: MAX_BLOCKS_PER_REQUEST,
        memory_alignment: if direct { direct_alignment(fd) } else { 1 },
        atomic_write_blocks: u64::from(atomic),
        discard: true,
        in_memory: !is_block_device && is_in_memory(fd),
        nvm: None,
    })
}

/// Whether a file is on a tmpfs or the like.
fn is_in_memory(fd: &OwnedFd) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    fstatfs(fd).is_ok_and(|found| [TMPFS, RAMFS].contains(&found.f_type))
}

/// The alignment of memory that direct I/O needs. Never less than a block, whatever the device
/// reports: zram reports 512 bytes, but takes every page-sized piece of a request to begin at the
/// start of a page of memory, and stores shifted data when it does not.
fn direct_alignment(fd: &OwnedFd) -> usize {
    let alignment = statx(fd.as_fd(), "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        .map_or(0, |found| {
            usize::try_from(found.stx_dio_mem_align).unwrap_or(0)
        });
    alignment.max(BLOCK_BYTES)
}

/// An attribute in sysfs of the request queue of a device, or of the disk it is a partition of.
fn queue_attribute(device: u64, name: &str) -> Option<String> {
    let place = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    ["queue", "../queue"].iter().find_map(|queue| {
        let path = Path::new(&place).join(queue).join(name);
        let text = std::fs::read_to_string(path).ok()?;
        Some(text.trim().to_owned())
    })
}

fn name_of(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "pipe",
        FileType::Socket => "socket",
        FileType::CharacterDevice => "character device",
        _ => "file of an unknown kind",
    }
}

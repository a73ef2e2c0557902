//! A device of ours as a block device of the kernel: `/dev/ublkbN`.
//!
//! **Problem.** Programs and file systems of the kernel want a block device; ours are in a process.
//! **Structure.** The kernel's ublk driver passes requests of `/dev/ublkbN` to a server through
//! rings of io_uring, one for each hardware queue. [`Export`] adds, starts and deletes the device;
//! the thread of a queue calls [`Server::serve`], which takes all requests that have arrived,
//! submits them to a [`Queue`], and commits the results. Data are copied by pread(2) and pwrite(2)
//! of `/dev/ublkcN`, so the kernel is never told of memory of ours. `abi` has the protocol.
//! **Invariants.** A request is committed once, after the device has completed it. A bad descriptor
//! is an error of that request. **Crash.** If the server ends without [`Export::stop`], the kernel
//! keeps the device and its requests; [`Export::recover`] gives them to the next server. So what
//! was completed to the kernel must be what the device below has: a volatile cache is announced as
//! one.
//!
//! The crate `libublk` was not taken: it builds with bindgen, which needs libclang, and brings an
//! asynchronous runtime; the protocol is these few files.

mod abi;
mod control;
mod server;

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use dure_sync::Arc;
use rustix::fs::{Mode, OFlags, open};

use crate::{BLOCK_BYTES, DeviceInfo, Error, Result};
use control::Control;
pub use server::Server;

#[cfg(doc)]
use crate::Queue;

/// Longest request that is announced.
const DATA_BYTES_MAX: u32 = 512 << 10;
const SECTOR_BYTES: usize = 512;
const SECTORS_PER_BLOCK: u32 = 8;
const _: () = assert!(BLOCK_BYTES / SECTOR_BYTES == 8);

/// How a device is exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The N of `/dev/ublkbN`; none: the first that is free.
    pub number: Option<u32>,
    /// Hardware queues.
    pub queues: u16,
    /// Requests of each.
    pub depth: u16,
}

/// A block device of the kernel that this process serves.
#[derive(Debug)]
pub struct Export {
    control: Control,
    information: abi::Information,
    channel: Arc<OwnedFd>,
    /// It was added before, and waits for a server.
    recovers: bool,
}

impl Export {
    /// Adds a device like `device`.
    ///
    /// # Errors
    /// [`Error::Open`]: the kernel has no ublk, or refuses.
    pub fn add(device: &DeviceInfo, options: &Options) -> Result<Export> {
        let mut control = Control::open()?;
        let mut information: abi::Information = zerocopy::FromZeros::new_zeroed();
        information.queues = options.queues;
        information.depth = options.depth.min(abi::DEPTH_MOST);
        information.data_bytes_max = DATA_BYTES_MAX;
        information.device = options.number.unwrap_or(u32::MAX);
        information.server = process();
        information.flags = abi::FLAGS;
        control.add(&mut information)?;
        let parameters = parameters(device);
        let opened = control
            .set_parameters(information.device, parameters)
            .and_then(|()| check_flags(&information))
            .and_then(|()| channel(information.device));
        match opened {
            Ok(channel) => Ok(Export {
                control,
                information,
                channel: Arc::new(channel),
                recovers: false,
            }),
            Err(error) => {
                // The first error says why.
                let _ = control.simple(abi::DELETE, information.device, "delete the device");
                Err(error)
            }
        }
    }

    /// Takes over device `number`, whose server has ended.
    ///
    /// # Errors
    /// [`Error::Open`]: there is no such device, it has a server, or it is unlike `device`.
    pub fn recover(device: &DeviceInfo, number: u32) -> Result<Export> {
        let mut control = Control::open()?;
        let information = control.information(number)?;
        check_flags(&information)?;
        let before = control.parameters(number)?;
        if before.sectors != parameters(device).sectors {
            return Err(failed(
                number,
                "recover it with a device of another size",
                libc::EINVAL,
            ));
        }
        control.simple(abi::BEGIN_RECOVERY, number, "begin its recovery")?;
        Ok(Export {
            control,
            information,
            channel: Arc::new(channel(number)?),
            recovers: true,
        })
    }

    /// The N of `/dev/ublkbN`.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.information.device
    }

    /// A server of each hardware queue. Each must run on a thread of its own before
    /// [`Export::start`].
    ///
    /// # Errors
    /// [`Error::Open`], of a ring or a mapping.
    pub fn servers(&self) -> Result<Vec<Server>> {
        let Self {
            information,
            channel,
            ..
        } = self;
        (0..information.queues)
            .map(|queue| Server::new(Arc::clone(channel), information, queue))
            .collect()
    }

    /// Makes the block device appear, or go on; waits until all queues are served.
    ///
    /// # Errors
    /// [`Error::Open`].
    pub fn start(&mut self) -> Result<()> {
        let (command, action) = match self.recovers {
            false => (abi::START, "start the device"),
            true => (abi::END_RECOVERY, "end its recovery"),
        };
        let (number, server) = (self.number(), process());
        self.control.for_server(command, number, server, action)
    }

    /// Makes the block device disappear; its servers then end. Requests under way are completed.
    ///
    /// # Errors
    /// [`Error::Open`].
    pub fn stop(&mut self) -> Result<()> {
        self.control
            .simple(abi::STOP, self.information.device, "stop the device")
    }

    /// Deletes the device. All servers must have been dropped.
    ///
    /// # Errors
    /// [`Error::Open`].
    pub fn delete(self) -> Result<()> {
        let Self {
            mut control,
            information,
            channel,
            ..
        } = self;
        let channel = Arc::into_inner(channel);
        assert!(channel.is_some(), "the servers have ended");
        // The driver waits until it is closed.
        drop(channel);
        control.simple(abi::DELETE, information.device, "delete the device")
    }
}

fn process() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// The channel to the driver of a device.
fn channel(number: u32) -> Result<OwnedFd> {
    let path = PathBuf::from(format!("/dev/ublkc{number}"));
    let opened = open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    opened.map_err(|os| Error::Open {
        path,
        action: "open the channel of the device",
        os: os.into(),
    })
}

fn check_flags(information: &abi::Information) -> Result<()> {
    if information.flags & abi::FLAGS == abi::FLAGS {
        return Ok(());
    }
    let action = "serve it: the kernel must be Linux 6.5 or later";
    Err(failed(information.device, action, libc::EOPNOTSUPP))
}

fn failed(number: u32, action: &'static str, errno: i32) -> Error {
    Error::Open {
        path: PathBuf::from(format!("/dev/ublkb{number}")),
        action,
        os: crate::OsError::new(errno),
    }
}

/// What the kernel is told of a device.
fn parameters(device: &DeviceInfo) -> abi::Parameters {
    let shift = u8::try_from(BLOCK_BYTES.trailing_zeros()).expect("a block is small");
    let block = u32::try_from(BLOCK_BYTES).expect("a block is small");
    let longest = device.max_blocks_per_request.saturating_mul(8);
    let longest = u32::try_from(longest).unwrap_or(u32::MAX);
    let mut attributes = 0;
    for (is, attribute) in [
        (device.read_only, abi::READ_ONLY),
        (device.rotational, abi::ROTATIONAL),
        (device.volatile_cache, abi::VOLATILE_CACHE | abi::FUA),
    ] {
        attributes |= if is { attribute } else { 0 };
    }
    let mut all: abi::Parameters = zerocopy::FromZeros::new_zeroed();
    all.len = u32::try_from(size_of::<abi::Parameters>()).expect("a record is small");
    all.types = abi::TYPE_BASIC;
    all.attributes = attributes;
    all.logical_block_shift = shift;
    all.physical_block_shift = shift;
    all.io_optimal_shift = shift;
    all.io_minimum_shift = shift;
    all.sectors_max = longest.min(DATA_BYTES_MAX / 512);
    all.sectors = device.blocks * u64::from(SECTORS_PER_BLOCK);
    if !device.read_only {
        // Discarded blocks read as zeroes, on every device.
        all.types |= abi::TYPE_DISCARD;
        all.discard_granularity = block;
        all.discard_sectors_max = u32::MAX / block * SECTORS_PER_BLOCK;
        all.zeroes_sectors_max = u32::MAX / block * SECTORS_PER_BLOCK;
        all.discard_segments_max = 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_told_what_the_device_is() {
        let mut device = DeviceInfo::in_memory("ram", 1024);
        let told = parameters(&device);
        assert_eq!(
            (told.sectors, told.sectors_max, told.attributes),
            (8192, 1024, 0)
        );
        assert_eq!(told.types, abi::TYPE_BASIC | abi::TYPE_DISCARD);
        device.max_blocks_per_request = 4;
        device.volatile_cache = true;
        device.read_only = true;
        let told = parameters(&device);
        assert_eq!((told.sectors_max, told.types), (32, abi::TYPE_BASIC));
        assert_eq!(
            told.attributes,
            abi::READ_ONLY | abi::VOLATILE_CACHE | abi::FUA
        );
    }

    #[test]
    fn a_kernel_without_ublk_is_named() {
        if std::path::Path::new(control::PATH).exists() {
            return;
        }
        let options = Options {
            number: None,
            queues: 1,
            depth: 1,
        };
        let error = Export::add(&DeviceInfo::in_memory("ram", 8), &options).unwrap_err();
        assert!(error.to_string().contains("modprobe ublk_drv"), "{error}");
    }
}

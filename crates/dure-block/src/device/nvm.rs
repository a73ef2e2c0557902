//! Persistent memory as a device.
//!
//! **Problem.** On persistent memory a system call, a bounce through the page cache and a flush cost
//! many times the write itself. **Structure.** The file is opened and claimed as any other, then
//! mapped; reads and writes are copies by the processor. A block device, and a file that cannot be
//! mapped directly, stays a [`FileDevice`]; such a file becomes *emulated NVM* if that is asked for:
//! the same instructions on the kernel's page cache. [`NvmBlocks`] are the same blocks without a
//! queue and without requests.
//!
//! **Invariants.** A write has been fenced when it returns, so a flush has nothing to do. A line
//! that the medium lost, or a file that has become shorter, is an I/O error. **On a crash** of a
//! write under way any words of 8 bytes may be there. Emulated NVM over a file survives the end of
//! the process, not a power cut.

pub use dure_pmem::Medium;
use dure_pmem::{Access, Need, Region};
use dure_sync::Arc;

use super::file::FileDevice;
use crate::{
    BLOCK_BYTES, Device, DeviceInfo, Error, Io, Lba, NvmModel, Op, OsError, Result, share,
};

/// Whether a file is used as persistent memory.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Nvm {
    /// If its file system maps it directly (`MAP_SYNC`).
    #[default]
    Auto,
    /// Never: by requests.
    Off,
    /// It must be mapped directly, or it is refused.
    Direct,
    /// Also if it is not on persistent memory: as emulated NVM, of which a power cut takes what the
    /// kernel had not written back.
    Emulated,
    /// Like `Emulated`, as slow as [`NvmModel::OPTANE`]: for measurements.
    Optane,
    /// Like `Optane`, with [`NvmModel::OPTANE_INTERLEAVED`].
    OptaneInterleaved,
    /// Like `Optane`, with [`NvmModel::OPTANE_SEPARATE`].
    OptaneSeparate,
}

impl Nvm {
    /// The names of all values, for messages.
    pub const NAMES: &'static str =
        "auto, off, direct, emulated, optane, optane-interleaved or optane-separate";

    const ALL: [Nvm; 7] = [
        Nvm::Auto,
        Nvm::Off,
        Nvm::Direct,
        Nvm::Emulated,
        Nvm::Optane,
        Nvm::OptaneInterleaved,
        Nvm::OptaneSeparate,
    ];

    /// The value of an option `nvm=`; `None` if there is none of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Nvm> {
        Nvm::ALL.into_iter().find(|nvm| nvm.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Nvm::Auto => "auto",
            Nvm::Off => "off",
            Nvm::Direct => "direct",
            Nvm::Emulated => "emulated",
            Nvm::Optane => "optane",
            Nvm::OptaneInterleaved => "optane-interleaved",
            Nvm::OptaneSeparate => "optane-separate",
        }
    }

    /// How slow it is to be.
    fn model(self) -> Option<NvmModel> {
        match self {
            Nvm::Auto | Nvm::Off | Nvm::Direct | Nvm::Emulated => None,
            Nvm::Optane => Some(NvmModel::OPTANE),
            Nvm::OptaneInterleaved => Some(NvmModel::OPTANE_INTERLEAVED),
            Nvm::OptaneSeparate => Some(NvmModel::OPTANE_SEPARATE),
        }
    }
}

/// Blocks in persistent memory, as a device.
#[derive(Debug)]
pub struct NvmDevice {
    info: DeviceInfo,
    blocks: NvmBlocks,
}

/// Blocks in persistent memory, for a caller that copies by itself and needs no request. Clones are
/// the same blocks.
#[derive(Debug, Clone)]
pub struct NvmBlocks(Arc<Mapped>);

#[derive(Debug)]
struct Mapped {
    name: String,
    region: Region,
    /// What is mapped: it has the claim, and knows how to discard.
    file: Option<FileDevice>,
    /// How slow it is to be.
    model: Option<NvmModel>,
}

/// The device that `file` is, used as `nvm` says.
///
/// # Errors
/// [`Error::NotDirect`] if it must be mapped directly and cannot be; [`Error::NotMapped`] if it is a
/// block device and must be mapped; that of the system.
pub fn open(file: FileDevice, nvm: Nvm) -> Result<Arc<dyn Device>> {
    let need = match nvm {
        Nvm::Off => return Ok(share(file)),
        // There is nothing to map; a reader finds that it is no part of a volume.
        _ if file.info().blocks == 0 => return Ok(share(file)),
        Nvm::Auto | Nvm::Direct => Need::Direct,
        Nvm::Emulated | Nvm::Optane | Nvm::OptaneInterleaved | Nvm::OptaneSeparate => {
            Need::Emulation
        }
    };
    if file.is_block_device() {
        if nvm == Nvm::Auto {
            return Ok(share(file));
        }
        return Err(Error::NotMapped {
            path: file.info().name.clone().into(),
            nvm: nvm.name(),
        });
    }
    match map(&file, need) {
        Ok(region) => Ok(share(NvmDevice::new(region, file, nvm.model()))),
        Err(dure_pmem::Error::NotDirect) if nvm == Nvm::Auto => Ok(share(file)),
        Err(error) => Err(refused(&file.info().name, error)),
    }
}

fn map(file: &FileDevice, need: Need) -> dure_pmem::Result<Region> {
    let info = file.info();
    let access = if info.read_only {
        Access::Read
    } else {
        Access::ReadWrite
    };
    Region::map(file.descriptor(), byte_offset(info.blocks), access, need)
}

fn refused(name: &str, error: dure_pmem::Error) -> Error {
    match error {
        dure_pmem::Error::NotDirect => Error::NotDirect { path: name.into() },
        dure_pmem::Error::Map { errno } => Error::Open {
            path: name.into(),
            action: "map it as persistent memory",
            os: OsError::new(errno),
        },
        other => unreachable!("mapping fails by itself or by the system, not with: {other}"),
    }
}

fn byte_offset(blocks: u64) -> u64 {
    blocks * u64::try_from(BLOCK_BYTES).expect("a block is 4096 bytes")
}

impl NvmDevice {
    fn new(region: Region, file: FileDevice, model: Option<NvmModel>) -> NvmDevice {
        let info = DeviceInfo {
            read_only: file.info().read_only,
            discard: file.info().discard,
            nvm: Some(region.medium()),
            // A crash may cut a write at any word.
            atomic_write_blocks: 0,
            ..DeviceInfo::in_memory(&file.info().name, file.info().blocks)
        };
        NvmDevice::of(info, region, Some(file), model)
    }

    /// Emulated NVM without a file: for tests, where `region` may record.
    #[must_use]
    pub fn in_memory(name: &str, region: Region) -> NvmDevice {
        let blocks = region.len() / byte_offset(1);
        let info = DeviceInfo {
            atomic_write_blocks: 0,
            discard: false,
            nvm: Some(region.medium()),
            ..DeviceInfo::in_memory(name, blocks)
        };
        NvmDevice::of(info, region, None, None)
    }

    fn of(
        info: DeviceInfo,
        region: Region,
        file: Option<FileDevice>,
        model: Option<NvmModel>,
    ) -> NvmDevice {
        let blocks = NvmBlocks(Arc::new(Mapped {
            name: info.name.clone(),
            region,
            file,
            model,
        }));
        NvmDevice { info, blocks }
    }
}

impl NvmBlocks {
    /// Number of blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.0.region.len() / byte_offset(1)
    }

    /// How slow the copies of [`crate::Media`] are to be.
    pub(crate) fn model(&self) -> Option<NvmModel> {
        self.0.model
    }

    /// Fills `out` with the bytes from block `lba` on.
    ///
    /// # Errors
    /// A line that the medium lost; a range that is not in the region.
    pub fn read(&self, lba: Lba, out: &mut [u8]) -> Result<()> {
        let read = self.0.region.read(byte_offset(lba.number()), out);
        self.done(read, Op::Read, lba, out.len())
    }

    /// Fills `out` with the bytes of block `lba` from its byte `within` on.
    ///
    /// # Errors
    /// Those of [`NvmBlocks::read`].
    pub fn read_part(&self, (lba, within): (Lba, usize), out: &mut [u8]) -> Result<()> {
        let within_u64 = u64::try_from(within).expect("a usize fits in 64 bits");
        let at = byte_offset(lba.number()) + within_u64;
        self.done(
            self.0.region.read(at, out),
            Op::Read,
            lba,
            within + out.len(),
        )
    }

    /// Copies `parts`, one after the other, to block `lba` and what follows. Durable on return.
    ///
    /// # Errors
    /// Those of [`NvmBlocks::read`]; some of it may have been written.
    pub fn write(&self, lba: Lba, parts: &[&[u8]]) -> Result<()> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        self.done(self.copy(lba, parts), Op::Write, lba, bytes)
    }

    fn copy(&self, lba: Lba, parts: &[&[u8]]) -> dure_pmem::Result<()> {
        let mut at = byte_offset(lba.number());
        let mut written = None;
        for part in parts {
            let flushed = self.0.region.copy(at, part)?;
            written = Some(match written {
                None => flushed,
                Some(before) => flushed.and(before),
            });
            at += u64::try_from(part.len()).expect("a usize fits in 64 bits");
        }
        // The caller may tell others that it is durable: on a crash after this it is there.
        if let Some(written) = written {
            written.fence();
        }
        Ok(())
    }

    fn discard(&self, lba: Lba, blocks: u64) -> Result<()> {
        if let Some(file) = &self.0.file {
            return file.execute(Io::Discard { lba, blocks });
        }
        let zeroes = [0; BLOCK_BYTES];
        (0..blocks).try_for_each(|number| self.write(lba.offset(number), &[&zeroes]))
    }

    fn done(&self, done: dure_pmem::Result<()>, op: Op, lba: Lba, bytes: usize) -> Result<()> {
        done.map_err(|_| Error::Io {
            device: self.0.name.clone(),
            op,
            lba,
            blocks: u64::try_from(bytes.div_ceil(BLOCK_BYTES)).expect("a usize fits in 64 bits"),
            os: OsError::EIO,
        })
    }
}

impl Device for NvmDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn execute(&self, io: Io<'_>) -> Result<()> {
        match io {
            Io::Read { lba, out } => self.blocks.read(lba, out),
            Io::Write { lba, parts, .. } => self.blocks.write(lba, parts),
            // Each write was fenced before it returned.
            Io::Flush => Ok(()),
            Io::Discard { lba, blocks } => self.blocks.discard(lba, blocks),
        }
    }

    fn nvm_blocks(&self) -> Option<NvmBlocks> {
        Some(self.blocks.clone())
    }
}

#[cfg(test)]
mod tests;

//! The media of a volume in memory: a disk, persistent memory, or both.
//!
//! **Problem.** A crash of a volume on several media leaves a state of all of them at one instant.
//! **Structure.** [`On`] says which media a volume has, [`format`] makes them. All of them lie one
//! behind the other on one device ([`Raw`]), which is what a crash is a state of; [`Recorder`] puts a
//! recorded disk and recorded regions on it, whose writes and stores are in one log, in one order.
//! **Invariants.** A block of a medium has the same number on the one device and in the log.
//! **Crash.** The model of it is `dure_block::crash`.

use dure_block::linear::LinearDevice;
use dure_block::nvm::NvmDevice;
use dure_block::ram::{Image, RamDevice, SharedBlock};
use dure_block::record::{Cache, LostFlushes, LostStores, NvmRecord, RecordDevice, RecordLog};
use dure_block::{BLOCK_BYTES, Device, Io, Lba, share};
use dure_fs::members::{Member, join};
use dure_fs::units::{to_u64, to_usize};
use dure_fs::{FileSystem, FormatOptions, NodeLog, NvmRegion, TableCopies};
use dure_pmem::Region;
use dure_sync::Arc;

/// The media of a volume, and what goes where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// One device.
    Disk,
    /// One device, and two copies of NAT and SIT, of which a crash destroys one.
    Copies,
    /// Persistent memory only.
    Nvm,
    /// Persistent memory for tables and, as it says, logs and nodes; a disk for the rest.
    Hybrid(NodeLog),
    /// Like `Hybrid`, with logs and nodes in persistent memory, which is two regions on two NUMA
    /// nodes.
    HybridRegions,
}

impl On {
    /// Regions of persistent memory.
    fn regions(self) -> u64 {
        match self {
            On::Disk | On::Copies => 0,
            On::Nvm | On::Hybrid(_) => 1,
            On::HybridRegions => 2,
        }
    }
}

/// How large the media of a volume are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// Blocks of the volume, if it is on one medium, else of its disk.
    pub(crate) blocks: u64,
    /// Blocks of persistent memory in front of a disk.
    pub(crate) nvm_blocks: u64,
    /// Journals.
    pub(crate) journals: u32,
}

/// How the media of a volume lie on one device: as they are, heads included, one behind the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Raw {
    /// The first blocks, which are in persistent memory; the others, if any, are on a disk.
    nvm_blocks: u64,
    /// Regions, equally large, that these blocks are.
    regions: u64,
    /// A crash destroys one of two copies of NAT and SIT.
    pub(crate) loses_a_copy: bool,
}

impl Raw {
    /// The runs of the regions: first block and length.
    fn regions(self) -> impl Iterator<Item = (u64, u64)> {
        let blocks = self.nvm_blocks.checked_div(self.regions).unwrap_or(0);
        (0..self.regions).map(move |index| (index * blocks, blocks))
    }

    /// The disk on such a device.
    fn disk(self, all: &Arc<dyn Device>) -> Arc<dyn Device> {
        let blocks = all.info().blocks - self.nvm_blocks;
        run_of(all, self.nvm_blocks, blocks)
    }

    /// The volume on such a device.
    ///
    /// # Errors
    /// Its media are not those of one volume.
    pub(crate) fn volume(self, all: &Arc<dyn Device>) -> dure_fs::Result<Arc<dyn Device>> {
        if self.nvm_blocks == 0 || self.nvm_blocks == all.info().blocks {
            return Ok(all.clone());
        }
        let regions = self.regions();
        let regions = regions.map(|(first, blocks)| run_of(all, first, blocks));
        joined(regions.collect(), self.disk(all))
    }
}

/// The volume on these media.
fn joined(
    regions: Vec<Arc<dyn Device>>,
    disk: Arc<dyn Device>,
) -> dure_fs::Result<Arc<dyn Device>> {
    let member = |(device, path): (Arc<dyn Device>, &str)| Member {
        device,
        path: path.to_owned(),
    };
    let media = regions.into_iter().map(|device| (device, "nvm"));
    let media: Vec<Member> = media.chain([(disk, "disk")]).map(member).collect();
    join(&media)
}

fn run_of(all: &Arc<dyn Device>, first: u64, blocks: u64) -> Arc<dyn Device> {
    let parts = vec![(all.clone(), Lba::new(first), blocks)];
    share(LinearDevice::new(parts))
}

/// A new volume in memory.
pub(crate) fn format(media: On, sizes: Sizes) -> dure_fs::Result<(Arc<RamDevice>, Raw)> {
    let mut format = FormatOptions {
        journals: Some(sizes.journals),
        segment_blocks: Some(32),
        uuid: Some([7; 16]),
        ..FormatOptions::default()
    };
    let (nvm_blocks, disk_blocks) = match media {
        On::Disk | On::Copies => (0, sizes.blocks),
        On::Nvm => (sizes.blocks, 0),
        On::Hybrid(_) | On::HybridRegions => (sizes.nvm_blocks, sizes.blocks),
    };
    let raw = Raw {
        nvm_blocks,
        regions: media.regions(),
        loses_a_copy: media == On::Copies,
    };
    if media == On::Copies {
        format.table_copies = TableCopies::Two;
    }
    let ram = Arc::new(RamDevice::new("base", nvm_blocks + disk_blocks));
    let all = share(Arc::clone(&ram));
    if disk_blocks == 0 {
        FileSystem::format(all, &format)?;
        return Ok((ram, raw));
    }
    if let On::Hybrid(node_log) = media {
        format.node_log = node_log;
    }
    let region = |(node, (first, blocks))| NvmRegion {
        device: run_of(&all, first, blocks),
        path: "nvm".to_owned(),
        node,
    };
    format.nvm = (0..).zip(raw.regions()).map(region).collect();
    FileSystem::format(raw.disk(&all), &format)?;
    Ok((ram, raw))
}

/// Which rules the recorded media keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recorder {
    /// When a write to the disk is durable.
    pub(crate) cache: Cache,
    /// Flushes that it loses: a canary.
    pub(crate) lost_flushes: LostFlushes,
    /// Instructions that persistent memory loses: a canary.
    pub(crate) lost_stores: LostStores,
    /// The region that loses them; `None`: each.
    pub(crate) lost_region: Option<u32>,
}

impl Recorder {
    /// All of them.
    #[cfg(dure_backend = "sim")]
    pub(crate) const FAITHFUL: Recorder = Recorder {
        cache: Cache::Volatile,
        lost_flushes: LostFlushes::None,
        lost_stores: LostStores::None,
        lost_region: None,
    };

    /// The volume on `all`, whose media are recorded in `log`. What is stored in persistent memory
    /// stays there: `all` does not show it.
    ///
    /// # Errors
    /// Its media are not those of one volume, or cannot be read.
    pub(crate) fn volume(
        self,
        raw: Raw,
        all: &Arc<dyn Device>,
        log: &Arc<RecordLog>,
    ) -> Result<Arc<dyn Device>, String> {
        let recorded =
            || RecordDevice::into_log(all.clone(), self.cache, self.lost_flushes, Arc::clone(log));
        let mut regions = Vec::new();
        for (number, run) in (0..).zip(raw.regions()) {
            let loses = self.lost_region.is_none_or(|region| region == number);
            let lost = match loses {
                true => self.lost_stores,
                false => LostStores::None,
            };
            regions.push(region(run, all, Arc::clone(log), lost)?);
        }
        if regions.is_empty() {
            return Ok(share(recorded()));
        }
        if raw.nvm_blocks == all.info().blocks {
            return Ok(regions.remove(0));
        }
        let volume = joined(regions, raw.disk(&share(recorded())));
        volume.map_err(|error| format!("the media of the volume: {error}"))
    }
}

/// A region with the blocks of such a run, recorded.
fn region(
    (first, blocks): (u64, u64),
    all: &Arc<dyn Device>,
    log: Arc<RecordLog>,
    lost: LostStores,
) -> Result<Arc<dyn Device>, String> {
    let error = |error| format!("emulated NVM: {error}");
    // Blocks of zeroes take no memory: most are, and a volume is opened for each crash.
    let mut content = Image::zeroed(blocks);
    let mut region = Region::anonymous(to_usize(blocks) * BLOCK_BYTES).map_err(error)?;
    let mut block = [0; BLOCK_BYTES];
    for number in 0..blocks {
        let (lba, out) = (Lba::new(first + number), &mut block[..]);
        let read = all.execute(Io::Read { lba, out });
        read.map_err(|error| format!("the content of persistent memory: {error}"))?;
        if block != [0; BLOCK_BYTES] {
            content.set(Lba::new(number), SharedBlock::new(&block));
            let at = number * to_u64(BLOCK_BYTES);
            region.copy(at, &block).map_err(error)?.fence();
        }
    }
    let record = NvmRecord::new(Lba::new(first), content, log, lost);
    region.observe(Box::new(record));
    Ok(share(NvmDevice::in_memory("nvm", region)))
}

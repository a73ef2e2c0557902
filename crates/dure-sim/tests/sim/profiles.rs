//! A volume of each profile in memory, for tests that count the cache lines of calls.

#![expect(clippy::unwrap_used, reason = "a panic is how a run fails")]

use dure::Volume;
use dure_block::nvm::NvmDevice;
use dure_block::ram::RamDevice;
use dure_block::{BLOCK_BYTES, Device, share};
use dure_fs::members::{Member, join};
use dure_fs::{
    Background, Durability, FileSystem, FormatOptions, MountOptions, NodeLog, NvmRegion,
    NvramAbsorb, NvramOptions, PageCaching,
};
use dure_pmem::Region;
use dure_sync::Arc;

/// On which media a volume is, and how it is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// One disk.
    Disk,
    /// Persistent memory, with a page cache.
    Nvm,
    /// Persistent memory without a page cache; each call is durable when it returns.
    Strict,
    /// The same, durable when synced.
    Posix,
    /// A disk for data; the rest in persistent memory.
    Hybrid,
    /// The same with logs and nodes on the disk.
    HybridBlockLog,
    /// As `Hybrid`, with dirty pages in persistent memory; each write is durable when it returns.
    Nvram,
    /// The same of what is synced.
    NvramSync,
}

/// So that logs have room for all of a run.
const NVM_BLOCKS: usize = 65536;
const DISK_BLOCKS: u64 = 65536;

impl Profile {
    pub(crate) const ALL: [Profile; 8] = [
        Profile::Disk,
        Profile::Nvm,
        Profile::Strict,
        Profile::Posix,
        Profile::Hybrid,
        Profile::HybridBlockLog,
        Profile::Nvram,
        Profile::NvramSync,
    ];

    /// Whether a sync of a page or two needs no request, which tasks share, to a disk.
    pub(crate) fn logs_to_nvm(self) -> bool {
        !matches!(self, Profile::Disk | Profile::HybridBlockLog)
    }

    /// A new volume, mounted without workers.
    pub(crate) fn volume(self, cores: u16) -> Volume {
        let mut format = FormatOptions {
            journals: Some(u32::from(cores)),
            ..FormatOptions::default()
        };
        match self {
            Profile::Disk => {
                let disk = share(RamDevice::new("lines", 8192));
                return Volume::create_on(disk, &format, self.mount()).unwrap();
            }
            Profile::HybridBlockLog => format.node_log = NodeLog::Block,
            _ => {}
        }
        format.segment_blocks = Some(512);
        let region = Region::anonymous(NVM_BLOCKS * BLOCK_BYTES).unwrap();
        let nvm: Arc<dyn Device> = share(NvmDevice::in_memory("lines", region));
        if matches!(self, Profile::Nvm | Profile::Strict | Profile::Posix) {
            return Volume::create_on(nvm, &format, self.mount()).unwrap();
        }
        let disk: Arc<dyn Device> = share(RamDevice::new("disk", DISK_BLOCKS));
        format.nvm = vec![NvmRegion {
            device: nvm.clone(),
            path: "nvm".into(),
            node: 0,
        }];
        FileSystem::format(disk.clone(), &format).unwrap();
        let members = [nvm, disk].map(|device| Member {
            device,
            path: String::new(),
        });
        Volume::open_on(join(&members).unwrap(), self.mount()).unwrap()
    }

    fn mount(self) -> MountOptions {
        MountOptions {
            background: Background::None,
            cache_bytes: 8 << 20,
            recovery_threads: Some(1),
            page_cache: Some(self.page_cache()),
            durability: (self == Profile::Posix).then_some(Durability::Posix),
            nvram: NvramOptions {
                absorb: (self == Profile::NvramSync).then_some(NvramAbsorb::Sync),
                ..NvramOptions::default()
            },
            ..MountOptions::default()
        }
    }

    fn page_cache(self) -> PageCaching {
        match self {
            Profile::Disk | Profile::Nvm | Profile::Hybrid | Profile::HybridBlockLog => {
                PageCaching::Dram
            }
            Profile::Strict | Profile::Posix => PageCaching::None,
            Profile::Nvram | Profile::NvramSync => PageCaching::Nvram,
        }
    }
}

//! The media that mkfs is given, and the runs of blocks it takes of them.
//!
//! **Structure.** Regions of persistent memory in the order given, then the device of the volume. Of
//! all but the first, a segment at the beginning is left out: it has the head, and segments stay
//! aligned on the medium. **Invariants.** What is refused is refused before anything is written.
//! **Crash.** Nothing is written here.

use std::fmt;

use dure_block::Device;
use dure_sync::Arc;
use xxhash_rust::xxh3::xxh3_128;
use zerocopy::FromZeros;
use zerocopy::little_endian::{U32, U64};

use crate::error::{Error, Result, size_of};
use crate::format::feature::{MEDIA, STAMPS};
use crate::format::media::{DEVICES_MAX, DeviceEntryV1, MediumKind, PATH_BYTES};

/// Segments of persistent memory that each journal needs: two of its ring, one of its nodes.
const SEGMENTS_PER_JOURNAL: u64 = 3;

/// A region of persistent memory for a new volume.
#[derive(Debug, Clone)]
pub struct NvmRegion {
    /// Its blocks, opened as persistent memory if it can be.
    pub device: Arc<dyn Device>,
    /// Where it is, for the table of media: a hint, and its name in messages.
    pub path: String,
    /// The NUMA node it is on.
    pub node: u32,
}

/// Where log rings and node images go, on a volume with persistent memory besides a block device.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum NodeLog {
    /// To persistent memory; nodes elsewhere only when that is full.
    #[default]
    Nvm,
    /// To the block device: the baseline.
    Block,
}

impl NodeLog {
    /// Its number in the superblock.
    #[must_use]
    pub fn code(self) -> u32 {
        match self {
            NodeLog::Nvm => 1,
            NodeLog::Block => 2,
        }
    }
}

/// A run of blocks of a medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) kind: MediumKind,
    pub(crate) start: u64,
    pub(crate) blocks: u64,
}

/// The media as they are.
pub(crate) struct Offer<'o> {
    /// Blocks of the device of the volume.
    pub(crate) device_blocks: u64,
    /// Where that is.
    pub(crate) path: &'o str,
    /// The node it is on, if it is in persistent memory, too.
    pub(crate) device_node: Option<u32>,
    pub(crate) regions: &'o [NvmRegion],
    pub(crate) node_log: NodeLog,
}

/// The device table, as the superblock has it.
pub(crate) struct Table {
    pub(crate) incompat: u64,
    pub(crate) ro_compat: u64,
    pub(crate) count: u32,
    pub(crate) node_log: u32,
    pub(crate) devices: [DeviceEntryV1; DEVICES_MAX],
    pub(crate) paths: [[u8; PATH_BYTES]; DEVICES_MAX],
}

impl fmt::Debug for Offer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer")
            .field("blocks", &self.blocks())
            .finish_non_exhaustive()
    }
}

impl Offer<'_> {
    /// Blocks of all media.
    pub(crate) fn blocks(&self) -> u64 {
        self.device_blocks + self.nvm_blocks().unwrap_or(0)
    }

    /// Blocks of the regions, if there are some.
    pub(crate) fn nvm_blocks(&self) -> Option<u64> {
        let regions = self.regions;
        let blocks = regions.iter().map(|region| region.device.info().blocks);
        (!regions.is_empty()).then(|| blocks.sum())
    }

    /// What is taken of each medium.
    pub(crate) fn spans(&self, segment_blocks: u32) -> Result<Vec<Span>> {
        let segment = u64::from(segment_blocks);
        let regions = self.regions;
        if regions.len() >= DEVICES_MAX {
            return Err(Error::BadOption {
                option: "nvm",
                why: format!("{} regions; at most {}", regions.len(), DEVICES_MAX - 1),
            });
        }
        let mut spans = Vec::new();
        for region in regions {
            let start = if spans.is_empty() { 0 } else { segment };
            let have = region.device.info().blocks;
            let blocks = have.saturating_sub(start) / segment * segment;
            if blocks == 0 {
                let need = size_of(start + segment);
                return Err(Error::Medium {
                    name: region.path.clone(),
                    why: format!("has {}; a region needs {need}", size_of(have)),
                });
            }
            let kind = MediumKind::Nvm;
            spans.push(Span {
                kind,
                start,
                blocks,
            });
        }
        let start = if spans.is_empty() { 0 } else { segment };
        spans.push(Span {
            kind: match self.device_node {
                Some(_) => MediumKind::Nvm,
                None => MediumKind::Block,
            },
            start,
            blocks: self.device_blocks.saturating_sub(start),
        });
        Ok(spans)
    }

    /// The most journals whose logs and nodes persistent memory has room for.
    pub(crate) fn journals_max(&self, main: u64, segment_blocks: u32) -> u32 {
        let (Some(nvm), NodeLog::Nvm, None) = (self.nvm_blocks(), self.node_log, self.device_node)
        else {
            return u32::MAX;
        };
        // Twice what is needed, so that nodes have room.
        let room = nvm.saturating_sub(main) / u64::from(segment_blocks);
        let journals = (room / (2 * SEGMENTS_PER_JOURNAL)).max(1);
        u32::try_from(journals).unwrap_or(u32::MAX)
    }

    /// Refuses persistent memory that is too small for what is to lie in it.
    pub(crate) fn check(&self, main: u64, segment_blocks: u32, journals: u32) -> Result<()> {
        let (Some(nvm), None) = (self.nvm_blocks(), self.device_node) else {
            return Ok(());
        };
        let segments = match self.node_log {
            NodeLog::Nvm => SEGMENTS_PER_JOURNAL * u64::from(journals),
            NodeLog::Block => 0,
        };
        // A segment at the end of each region may be lost, and one at its beginning.
        let regions = u64::try_from(self.regions.len()).expect("few");
        let need = main + (segments + 2 * regions - 1) * u64::from(segment_blocks);
        if nvm >= need {
            return Ok(());
        }
        let names: Vec<_> = self
            .regions
            .iter()
            .map(|region| region.path.as_str())
            .collect();
        Err(Error::Medium {
            name: names.join(", "),
            why: format!(
                "has {}, but tables, logs and nodes need {} with --journals {journals}; give more \
                 persistent memory, fewer journals, or --node-log block",
                size_of(nvm),
                size_of(need)
            ),
        })
    }

    /// The table for these spans; of one, it says no more than that.
    pub(crate) fn table(&self, uuid: [u8; 16], spans: &[Span]) -> Table {
        let several = spans.len() > 1;
        let mut table = Table {
            incompat: if several { MEDIA.flag } else { 0 },
            ro_compat: if several { STAMPS.flag } else { 0 },
            count: u32::try_from(spans.len()).expect("few"),
            node_log: if several { self.node_log.code() } else { 0 },
            devices: [DeviceEntryV1::new_zeroed(); DEVICES_MAX],
            paths: [[0; PATH_BYTES]; DEVICES_MAX],
        };
        let mut first = 0;
        let paths = self.regions.iter().map(|region| region.path.as_str());
        let paths = paths.chain([self.path]);
        let nodes = self.regions.iter().map(|region| region.node);
        let nodes = nodes.chain([self.device_node.unwrap_or(0)]);
        for (n, ((span, path), node)) in spans.iter().zip(paths).zip(nodes).enumerate() {
            let entry = &mut table.devices[n];
            entry.kind = U32::new(span.kind.code());
            entry.numa_node = U32::new(node);
            entry.first_block = U64::new(first);
            entry.blocks = U64::new(span.blocks);
            entry.start = U64::new(span.start);
            entry.uuid = uuid;
            first += span.blocks;
            if several {
                entry.uuid =
                    xxh3_128(&[&uuid[..], &[u8::try_from(n).expect("few")]].concat()).to_le_bytes();
                if path.len() <= PATH_BYTES {
                    table.paths[n][..path.len()].copy_from_slice(path.as_bytes());
                }
            }
        }
        table
    }
}

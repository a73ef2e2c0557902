//! What `dure info` prints of a volume that is not mounted.

use std::ops::Range;

use dure_block::Device;
use dure_journal::recovery::scan;
use dure_sync::Arc;

use crate::error::Result;
use crate::format::volume::{STATE_CLEAN, STATE_UNLOGGED};
use crate::headers::{first_superblock_is_damaged, log_layout, read_header, read_layout};
use crate::layout::Layout;
use crate::media::Region;
use crate::packs::Packs;
use crate::snapshot::{SnapshotInfo, Snapshots};
use crate::space::Space;
use crate::units::BlockNo;

/// How a volume was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeState {
    /// Unmounted.
    Clean,
    /// Mounted, or crashed: then the next mount recovers it.
    Dirty,
    /// Mounted, or crashed, with `journal=none`: a crashed one must be repaired.
    Unlogged,
}

impl VolumeState {
    /// For people and programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            VolumeState::Clean => "clean",
            VolumeState::Dirty => "dirty",
            VolumeState::Unlogged => "unlogged",
        }
    }
}

/// What a volume is and holds, read without mounting it.
#[derive(Debug)]
pub struct VolumeInfo {
    /// Where everything lies.
    pub layout: Layout,
    /// The first superblock is damaged: the last says where everything lies.
    pub first_superblock_is_damaged: bool,
    /// How it was left.
    pub state: VolumeState,
    /// Times it was mounted for writing.
    pub mounts: u32,
    /// The present epoch.
    pub epoch: u64,
    /// The last completed checkpoint.
    pub checkpoint: u64,
    /// Blocks with live data or nodes, as of that checkpoint.
    pub blocks_used: u64,
    /// Blocks in log rings.
    pub blocks_in_logs: u64,
    /// Blocks that only snapshots need.
    pub blocks_of_snapshots: u64,
    /// Blocks that clones spare: as many more there would be, if each file had its own.
    pub blocks_spared: u64,
    /// Its snapshots, the oldest first.
    pub snapshots: Vec<SnapshotInfo>,
    /// Blocks that hold nothing.
    pub blocks_free: u64,
    /// Where they are, in block numbers. Of a volume that is not clean the logs may use them.
    pub free_runs: Vec<Range<u64>>,
}

impl VolumeInfo {
    /// Reads it from `device`.
    ///
    /// # Errors
    /// `NotDure`, `Unsupported`, `Corrupt`, or a failed read.
    pub fn read(device: Arc<dyn Device>) -> Result<VolumeInfo> {
        let region = Region::open(device);
        let layout = read_layout(&region)?;
        let (header, _) = read_header(&region, &layout)?;
        let packs = Arc::new(Packs::read(&region, &layout, &header)?);
        let space = Space::load(region.clone(), &layout, packs.clone())?;
        let snapshots = Snapshots::read(&region, &layout, &header)?;
        snapshots.pin((&region, &layout), &space, &packs)?;
        // Where the lists of shared blocks lie nothing is free.
        space.load_shared(&header)?;
        space.count_pinned();
        // Which segments are logs is in the journal headers.
        let rules = dure_journal::Rules::default();
        let logs = scan(
            &region.log_medium(),
            &log_layout(&layout, &header, rules),
            header.epoch.get(),
            1,
        )?;
        for segment in logs.rings().iter().flat_map(|ring| &ring.start.segments) {
            space.mark_log(BlockNo(segment.number()))?;
        }
        let statistics = space.statistics();
        let logs = u64::from(statistics.segments_log) * u64::from(layout.segment_blocks);
        Ok(VolumeInfo {
            first_superblock_is_damaged: first_superblock_is_damaged(&region),
            state: match header.state.get() {
                STATE_CLEAN => VolumeState::Clean,
                STATE_UNLOGGED => VolumeState::Unlogged,
                _ => VolumeState::Dirty,
            },
            mounts: header.mounts.get(),
            epoch: header.epoch.get(),
            checkpoint: header.checkpoint.get(),
            blocks_used: (statistics.total - logs)
                .saturating_sub(statistics.free + statistics.pinned_only),
            blocks_of_snapshots: statistics.pinned_only,
            blocks_spared: space.spared_blocks(),
            snapshots: snapshots.list(),
            blocks_in_logs: logs,
            blocks_free: statistics.free,
            free_runs: space.free_runs(),
            layout,
        })
    }

    /// The label mkfs gave it.
    #[must_use]
    pub fn label(&self) -> String {
        let bytes = &self.layout.superblock.label;
        let len = bytes
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }
}

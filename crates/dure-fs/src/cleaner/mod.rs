//! The cleaner: makes wholly free segments out of partly free ones, by moving what lives in them.
//!
//! **Problem.** A log-structured volume writes in long runs only while it has free segments; what
//! is deleted leaves holes.
//!
//! **Structure.** [`Cleaner::clean`] picks victims ([`victims`](dure_store::space::Space::victims): greedy when segments are
//! short, cost-benefit otherwise), keeps allocation out of them, and asks the segment summaries
//! which inode or node owns each live block. A node image is moved by making its node dirty: the
//! next checkpoint writes it elsewhere ([`images`]). Data is read, verified, written elsewhere, and
//! its slots changed by one operation per granule ([`batch`], [`data`]). Then everything is
//! committed and checkpointed, which frees the old blocks. A checkpoint moves a page in the same
//! way when the page's block cannot be written ([`replace`]).
//!
//! # Invariants
//! A summary is a hint: a block is moved only if its owner points to it, checked under the owner's
//! lock. No task waits for the cleaner: it tries the write-back lock of an inode and skips the
//! inode when another task holds it; a commit or a checkpoint never needs it. A page whose checksum
//! is wrong is left where it is, for the reader to report. Moving takes reserved blocks, also the
//! kept ones, because it gives back more than it takes.
//!
//! **On a crash** a move is an operation like others: the slot names the old block or the new one,
//! both with the same bytes.

mod absorbed;
mod batch;
mod data;
mod images;
mod replace;
#[cfg(test)]
mod tests;

use dure_store::Store;
use dure_store::error::Result;
use dure_store::format::summary::{OWNER_NODE, OWNER_SLOT, SummaryEntry};
use dure_store::node::NodeRef;
use dure_store::space::{SpaceStatistics, VictimPolicy};
use dure_store::units::{BlockNo, Nid, SegNo};
use dure_sync::{Arc, Counter};

use crate::file::Files;
use crate::inode::Inodes;

/// Segments cleaned between two checkpoints.
const VICTIMS_PER_ROUND: usize = 8;
/// Rounds of one call.
const ROUNDS_MAX: usize = 64;

/// What moves blocks of a volume.
#[derive(Debug)]
pub(crate) struct Cleaner {
    pub(crate) store: Arc<Store>,
    pub(crate) inodes: Arc<Inodes>,
    pub(crate) files: Arc<Files>,
    pub(crate) counters: CleanerCounters,
}

/// What the cleaner has moved.
#[derive(Debug, Default)]
pub(crate) struct CleanerCounters {
    /// Blocks moved to make free segments.
    pub(crate) cleaned_blocks: Counter,
    /// Pages moved from persistent memory to the block device.
    pub(crate) moved_blocks: Counter,
}

/// What cleaning did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CleanReport {
    /// Wholly free segments gained.
    pub(crate) segments: u32,
    /// Data blocks moved.
    pub(crate) data: u64,
    /// Node images that a checkpoint moved.
    pub(crate) images: u64,
    /// Blocks whose inode was busy.
    pub(crate) busy: u64,
    /// Blocks that the owner in the summary does not point to.
    pub(crate) disowned: u64,
    /// Pages whose checksum is wrong, and blocks of unreadable summaries.
    pub(crate) bad: u64,
    /// Blocks that found no place outside of the victims.
    pub(crate) homeless: u64,
}

impl CleanReport {
    fn moved(&self) -> u64 {
        self.data + self.images
    }
}

/// A live block and the owner its summary names.
pub(crate) type Owned = (BlockNo, SummaryEntry);

impl Cleaner {
    /// Cleans until there are `wanted` more free segments, or cleaning gains nothing more. The
    /// caller holds no lock.
    ///
    /// # Errors
    /// `Stopped`, `ReadOnly`, a failed read or write.
    pub(crate) fn clean(&self, wanted: u32) -> Result<CleanReport> {
        self.store.check_writable()?;
        let before = self.store.space.statistics().segments_free;
        let mut report = CleanReport::default();
        // Each segment is tried once: one that keeps a block that cannot be moved is not tried
        // again.
        let mut tried = Vec::new();
        for _ in 0..ROUNDS_MAX {
            let statistics = self.store.space.statistics();
            report.segments = statistics.segments_free.saturating_sub(before);
            if report.segments >= wanted {
                break;
            }
            let missing = dure_store::units::to_usize(u64::from(wanted - report.segments));
            let count = missing.clamp(1, VICTIMS_PER_ROUND);
            let policy = self.cleaning_policy(&statistics);
            let mut victims = self.store.space.victims(count + tried.len(), policy);
            victims.retain(|victim| !tried.contains(victim));
            victims.truncate(count);
            if victims.is_empty() {
                break;
            }
            tried.extend_from_slice(&victims);
            self.holding(&victims, |held| self.move_all(held, &mut report))?;
        }
        let after = self.store.space.statistics().segments_free;
        report.segments = after.saturating_sub(before);
        self.counters
            .cleaned_blocks
            .add(i64::try_from(report.moved()).unwrap_or(i64::MAX));
        Ok(report)
    }

    /// Whether few segments are wholly free although there is room for more.
    pub(crate) fn wants_cleaning(&self) -> bool {
        let statistics = self.store.space.statistics();
        let low = low_water(&statistics, self.store.layout.journals);
        let segment = u64::from(self.store.layout.segment_blocks);
        statistics.segments_free < low && statistics.free > 4 * u64::from(low) * segment
    }

    /// Free segments a background round asks for.
    pub(crate) fn cleaning_goal(&self) -> u32 {
        let statistics = self.store.space.statistics();
        low_water(&statistics, self.store.layout.journals).saturating_sub(statistics.segments_free)
    }

    /// Greedy when the partitions are about to run out of segments, else what pays in the long run.
    fn cleaning_policy(&self, statistics: &SpaceStatistics) -> VictimPolicy {
        if statistics.segments_free <= self.store.layout.journals {
            VictimPolicy::Greedy
        } else {
            VictimPolicy::CostBenefit
        }
    }

    /// Keeps allocation out of the victims that are closed, while `body` works on them.
    fn holding<R>(&self, victims: &[SegNo], body: impl FnOnce(&[SegNo]) -> R) -> R {
        let closed = victims.iter().copied();
        let held: Vec<SegNo> = closed
            .filter(|victim| self.store.space.begin_cleaning(*victim))
            .collect();
        let result = body(&held);
        // Only now may others allocate there: until what was moved was committed nothing was free.
        for victim in held {
            self.store.space.end_cleaning(victim);
        }
        result
    }

    fn move_all(&self, victims: &[SegNo], report: &mut CleanReport) -> Result<()> {
        let moved = report.moved();
        let mut slots = Vec::new();
        for owners in self.owners_of(victims, report) {
            for (block, owner) in owners {
                match owner.kind {
                    OWNER_NODE => self.move_image(block, Nid(owner.nid.get()), report)?,
                    OWNER_SLOT => slots.push((block, owner)),
                    _ => report.disowned += 1,
                }
            }
        }
        self.move_slots(slots, report)?;
        if report.moved() > moved {
            self.store.commit_all()?;
            self.store.checkpoint()?;
        }
        Ok(())
    }

    /// The live blocks of the victims with their owners. Excludes checkpoints: one takes the owners
    /// it writes out of memory first, and until that write ends they cannot be read.
    fn owners_of(&self, victims: &[SegNo], report: &mut CleanReport) -> Vec<Vec<Owned>> {
        let _no_checkpoint = self.store.checkpoint.lock();
        let mut all = Vec::with_capacity(victims.len());
        for &victim in victims {
            match self.store.space.owners(victim) {
                Ok(mut owners) => {
                    // What clones share stays where it is: its other slots name it.
                    owners.retain(|(block, _)| !self.store.space.is_shared(*block));
                    all.push(owners);
                }
                // An unreadable summary is the check's business; the segment stays as it is.
                Err(_) => report.bad += 1,
            }
        }
        all
    }

    /// The node `nid`, whatever it holds, or `None` when it has been freed.
    pub(crate) fn node_if_alive(&self, nid: Nid) -> Result<Option<NodeRef>> {
        if nid.0 >= self.store.layout.nids() {
            return Ok(None);
        }
        let node = match self.store.nodes.get(nid) {
            Some(node) => node,
            None => {
                let entry = self.store.nat.entry(nid)?;
                match self.store.any_node(nid) {
                    Ok(node) => node,
                    // Freed, or reused, since the NAT was asked.
                    Err(_) if self.store.nat.entry(nid)? != entry => return Ok(None),
                    Err(error) => return Err(error),
                }
            }
        };
        Ok(node.freed().is_none().then_some(node))
    }
}

/// Wholly free segments below which cleaning starts: two for each partition to open, and a
/// twentieth of a small volume.
fn low_water(statistics: &SpaceStatistics, partitions: u32) -> u32 {
    let segments = statistics.segments_free
        + statistics.segments_data
        + statistics.segments_node
        + statistics.segments_log;
    (2 * partitions).min(segments / 20).max(1)
}

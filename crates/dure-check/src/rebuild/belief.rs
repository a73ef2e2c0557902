//! Which of several images of a node to believe, when the NAT pair that would say is lost.
//!
//! **Problem.** A checkpoint writes images before it commits what they hold. If the power fails
//! between, a free block keeps an image with changes that never became valid, of a checkpoint that
//! looks like the latest; a later one may even have its number again. **Structure.** Two witnesses:
//! the SIT says which blocks are live; where it is lost, the summary of the segment has an owner
//! for each image that counted, written by the checkpoint that wrote the image or a later one, after
//! the commit. **Invariants.** A witness that cannot be read says nothing, so no image is rejected
//! for want of one: it only comes behind those that are not denied. An entry that was left behind
//! by an older image of the same node in the same block is taken for that of the new one. **Crash.**
//! Nothing is written.

use dure_block::Lba;
use dure_journal::format::slotted;
use dure_store::format::pair_kind;
use dure_store::format::sit;
use dure_store::format::summary::{ENTRIES, OWNER_NODE, SummaryBlock};
use dure_store::units::{BLOCK_BYTES, BlockNo, Nid, SegNo, is_zero};
use zerocopy::FromBytes;

use crate::context::Context;
use crate::sit as segments;

/// How far an image is to be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Belief {
    /// Its summary does not know it.
    Denied,
    /// It counted once, or that is unknown.
    Possible,
    /// The SIT has its block as live.
    Live,
}

/// An image as the scan has found it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) nid: Nid,
    pub(super) block: BlockNo,
    pub(super) checkpoint: u64,
}

/// What the witnesses have said so far.
#[derive(Debug, Default)]
pub(super) struct Witnesses {
    /// The summary pair read last.
    pair: Option<(SegNo, u32, Summary)>,
}

/// The slots of a summary pair that verify.
#[derive(Debug)]
struct Summary {
    blocks: Vec<SummaryBlock>,
    /// A slot holds something else.
    lost: bool,
}

impl Witnesses {
    /// What is known of an image. None: the SIT says that its block is not in use, or a log has it.
    pub(super) fn ask(&mut self, context: &Context<'_>, found: Found) -> Option<Belief> {
        let (segment, index) = context.layout.locate(found.block)?;
        if context.log_segments.contains(&segment) {
            return None;
        }
        let pair = segment.0 / sit::ENTRIES;
        if context.sit.contains_key(&pair) && !context.sit_lost.contains(&pair) {
            let live = segments::is_live(&segments::entry(context, segment), index);
            return live.then_some(Belief::Live);
        }
        let denied = self.summary(context, segment, index).denies(found, index);
        Some(if denied {
            Belief::Denied
        } else {
            Belief::Possible
        })
    }

    /// The summary pair with the entry of block `index` of a segment.
    fn summary(&mut self, context: &Context<'_>, segment: SegNo, index: u32) -> &Summary {
        let n = index / ENTRIES;
        let kept = self.pair.take();
        let kept = kept.filter(|(of, m, _)| (*of, *m) == (segment, n));
        let kept = kept.unwrap_or_else(|| (segment, n, Summary::read(context, segment, n)));
        &self.pair.insert(kept).2
    }
}

impl Summary {
    fn read(context: &Context<'_>, segment: SegNo, n: u32) -> Summary {
        let first = context.layout.summary_pair(segment, n);
        let mut bytes = [0; 2 * BLOCK_BYTES];
        let mut summary = Summary {
            blocks: Vec::new(),
            lost: context.region.read(BlockNo(first), &mut bytes).is_err(),
        };
        let (kind, seed) = (
            slotted::SlotKind(pair_kind::SUMMARY),
            context.layout.crc_seed,
        );
        for (slot, block) in (0..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
            match slotted::open_slot(block, kind, Lba::new(first), slot, seed) {
                Some(found) => summary
                    .blocks
                    .extend(SummaryBlock::read_from_bytes(found.body)),
                None => summary.lost |= !is_zero(block),
            }
        }
        summary
    }

    /// Whether it would name this image if that had counted, and does not.
    fn denies(&self, found: Found, index: u32) -> bool {
        let names = |block: &SummaryBlock| {
            let entry = &block.entries[(index % ENTRIES) as usize];
            let owner = (entry.kind, entry.nid.get()) == (OWNER_NODE, found.nid.0);
            owner && block.checkpoint.get() >= found.checkpoint
        };
        !self.lost && !self.blocks.iter().any(names)
    }
}

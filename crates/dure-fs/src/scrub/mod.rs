//! Scrub: reads everything that counts, in the order of the medium, and compares it with its
//! checksums, while the volume is in use.
//!
//! **Problem.** Damage of what nobody reads is found when it is needed, and when the copy that could
//! replace it is gone.
//!
//! **Structure.** [`Scrub`] goes through headers, NAT, SIT, and the segments ([`ScrubCursor`]). Of a
//! segment it asks the owners of the blocks what these hold ([`wanted`]), as the cleaner does, and
//! reads them in long requests, several under way ([`stream`]). [`pace`] says how long and how many.
//! What is damaged is named ([`bad`]) and, if memory has it, written elsewhere ([`mend`]).
//!
//! # Invariants
//! No lock is held while nodes and pages are read. The checkpoint lock is held over reads of the
//! headers, of a pair that is looked at again, and of summaries when checkpoints follow one another. What changes
//! while it is read is no damage: what points to a block is asked again before the block counts as
//! damaged. Nothing on the medium makes it panic. What the cleaner or write-back moves from behind the
//! cursor to before it was compared or made by them.
//!
//! **Crash.** A scrub writes nothing but what it mends, and that as the cleaner does.

mod bad;
mod mend;
mod pace;
mod past;
mod report;
mod stream;
#[cfg(test)]
mod tests;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use dure_store::error::Result;
use dure_store::packs::Table;
use dure_store::space::SegmentInUse;
use dure_store::units::{Ino, SegNo, to_u64};
use dure_store::{Damage, Scrubbed, Store};
use dure_sync::canary::Rule;
use dure_sync::clock;

pub use self::report::{
    BadBlock, BadPart, ScrubCounts, ScrubCursor, ScrubOptions, ScrubProgress, ScrubStage,
};

use self::pace::Pace;
use self::stream::Stream;
use crate::cleaner::Cleaner;
use crate::namespace::Names;

/// Segments whose nodes are read before their blocks are, at most: 16 MiB. It takes no longer than what
/// is under way meanwhile.
const SEGMENTS_TOGETHER: usize = 8;
/// And as many nodes, as far as they are of several segments.
const NODES_TOGETHER: usize = 64;

/// What is told of progress, and says whether to go on.
type GoOn<'g> = dyn FnMut(&ScrubProgress<'_>) -> ControlFlow<()> + 'g;

/// Paths that lead to inodes, now or in the snapshot of this name.
/// The last argument is asked whether to go on.
type Paths<'p> = dyn Fn(Option<&str>, &BTreeSet<Ino>, &mut dyn FnMut() -> ControlFlow<()>) -> BTreeMap<Ino, Vec<u8>>
    + 'p;

/// What a scrub needs of a volume.
pub(crate) struct Scrub<'v> {
    pub(crate) store: &'v Store,
    pub(crate) cleaner: &'v Cleaner,
    pub(crate) names: &'v Names,
    /// Finds paths to inodes, now or in a snapshot.
    pub(crate) paths: &'v Paths<'v>,
    /// What did not verify is looked at again.
    pub(crate) rule: Rule,
}

/// A scrub that runs.
struct Run<'r, 'v> {
    scrub: &'r Scrub<'v>,
    pace: Pace,
    counts: ScrubCounts,
    found: Vec<BadBlock>,
    /// Paths that were looked for, now and in snapshots.
    known: BTreeMap<(Option<String>, Ino), Option<Vec<u8>>>,
    /// What was told last.
    cursor: ScrubCursor,
    go_on: &'r mut GoOn<'r>,
}

impl Scrub<'_> {
    /// See [`FileSystem::scrub`](crate::volume::FileSystem::scrub).
    pub(crate) fn run(&self, options: &ScrubOptions, go_on: &mut GoOn<'_>) -> Result<ScrubCounts> {
        let from = options.from;
        let mut run = Run {
            scrub: self,
            pace: Pace::new(options.rate, &self.store.region.counters()),
            counts: ScrubCounts {
                blocks_total: self.blocks_from(from),
                ..ScrubCounts::default()
            },
            found: Vec::new(),
            known: BTreeMap::new(),
            cursor: from,
            go_on,
        };
        run.all(from)?;
        Ok(run.counts)
    }

    /// Blocks that a scrub from there on reads, as they are now.
    fn blocks_from(&self, from: ScrubCursor) -> u64 {
        let each = if self.store.layout.has_copies() { 4 } else { 2 };
        let written = |stage, table| match from.stage <= stage {
            true => each * self.store.written_pairs(table),
            false => 0,
        };
        let segment = match from.stage {
            ScrubStage::Main => u32::try_from(from.index).unwrap_or(u32::MAX),
            _ => 0,
        };
        written(ScrubStage::Nat, Table::Nat)
            + written(ScrubStage::Sit, Table::Sit)
            + self.store.space.blocks_in_use(SegNo(segment))
    }
}

impl Scrub<'_> {
    /// How many of these segments, from the first on, have their nodes read together.
    fn together(&self, segments: &[SegmentInUse]) -> usize {
        let mut nodes = 0;
        let fits = |segment: &&SegmentInUse| {
            nodes += self.absent_nodes(segment.blocks.iter()).len();
            nodes <= NODES_TOGETHER
        };
        let some = segments.iter().take(SEGMENTS_TOGETHER);
        some.take_while(fits).count().max(1)
    }
}

impl Run<'_, '_> {
    fn all(&mut self, from: ScrubCursor) -> Result<()> {
        let mut stream = Stream::default();
        let index = |stage| match from.stage == stage {
            true => from.index,
            false => 0,
        };
        if from.stage <= ScrubStage::Headers {
            let before = self.complete(&stream);
            let scrubbed = self.scrub.store.scrub_headers();
            self.note_since(before, &stream);
            let next = ScrubCursor {
                stage: ScrubStage::Nat,
                index: 0,
            };
            if self.structures(scrubbed, next)?.is_break() {
                return Ok(());
            }
        }
        for (stage, table) in [(ScrubStage::Nat, Table::Nat), (ScrubStage::Sit, Table::Sit)] {
            let mut next = index(stage);
            while from.stage <= stage
                && let Some((behind, scrubbed)) =
                    self.paced(&stream, |store, most| store.scrub_pairs(table, next, most))
            {
                next = behind;
                let cursor = ScrubCursor { stage, index: next };
                if self.structures(scrubbed, cursor)?.is_break() {
                    return Ok(());
                }
            }
        }
        let flow = self.segments(index(ScrubStage::Main), &mut stream);
        self.drain(&mut stream);
        if flow?.is_continue() {
            let _at_the_end = self.tell(None);
        }
        Ok(())
    }

    /// Reads some neighbouring pairs, at the pace of the scrub.
    fn paced(
        &mut self,
        stream: &Stream,
        read: impl FnOnce(&Store, usize) -> Option<(u64, Scrubbed)>,
    ) -> Option<(u64, Scrubbed)> {
        let store = self.scrub.store;
        let under_way = stream.depth();
        let turn = self.pace.turn(&store.region.counters(), under_way);
        let (start, before) = (clock::monotonic_ns(), self.complete(stream));
        let (behind, scrubbed) = read(store, turn.blocks)?;
        self.note_since(before, stream);
        let took = clock::monotonic_ns() - start;
        self.pace.rest(scrubbed.blocks, took, || {
            (store.region.counters(), under_way)
        });
        self.counts.blocks_done += scrubbed.blocks;
        Some((behind, scrubbed))
    }

    /// Counts and tells what was found in structures of the volume.
    fn structures(&mut self, scrubbed: Scrubbed, cursor: ScrubCursor) -> Result<ControlFlow<()>> {
        self.scrub.store.check_running()?;
        self.counts.blocks_read += scrubbed.blocks;
        self.counts.compared += scrubbed.compared;
        for damage in scrubbed.damage {
            self.damaged(&damage);
        }
        Ok(self.tell(Some(cursor)))
    }

    fn damaged(&mut self, damage: &Damage) {
        let mended = self.scrub.mend_structure(damage);
        self.note(BadBlock {
            block: damage.block,
            part: BadPart::Structure,
            why: damage.error.to_string(),
            paths: Vec::new(),
            snapshot: None,
            mended,
        });
    }

    fn note(&mut self, bad: BadBlock) {
        self.counts.bad += 1;
        self.counts.mended += u64::from(bad.mended);
        self.found.push(bad);
    }

    /// Tells how far it is, and what it has found.
    fn tell(&mut self, cursor: Option<ScrubCursor>) -> ControlFlow<()> {
        let found = std::mem::take(&mut self.found);
        self.cursor = cursor.unwrap_or(self.cursor);
        (self.go_on)(&ScrubProgress {
            cursor,
            counts: self.counts,
            found: &found,
        })
    }

    /// Scrubs segments from this number on.
    fn segments(&mut self, from: u64, stream: &mut Stream) -> Result<ControlFlow<()>> {
        let store = self.scrub.store;
        let (count, together) = (store.layout.segments, store.segments_together());
        let mut next = u32::try_from(from).unwrap_or(u32::MAX).min(count);
        while next < count {
            let end = count.min(next.saturating_add(together));
            if store.space.blocks_in_use_among(next..end) == 0 {
                next = end;
                continue;
            }
            let behind = u64::from(end);
            let (_, mut scrubbed) = self
                .paced(stream, |store, _| {
                    Some((behind, store.scrub_summaries(next..end)))
                })
                .unwrap_or_default();
            let segments = std::mem::take(&mut scrubbed.segments);
            // The summaries are no blocks of segments.
            self.counts.blocks_done -= scrubbed.blocks;
            let flow = self.structures(scrubbed, stream.before(SegNo(next)))?;
            if flow.is_break() {
                return Ok(flow);
            }
            let mut pasts = past::Pasts::of(store);
            let mut rest = &segments[..];
            while !rest.is_empty() {
                let (some, later) = rest.split_at(self.scrub.together(rest));
                rest = later;
                let flow = self.some_segments(some, &mut pasts, stream)?;
                if flow.is_break() {
                    return Ok(flow);
                }
            }
            next = end;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Counts what is known of a segment's blocks.
    fn count_segment(&mut self, blocks: usize, found: &wanted::Found) {
        self.counts.replaced += found.replaced;
        self.counts.unknown += found.unknown;
        let read = to_u64(found.wanted.len());
        self.counts.blocks_done += to_u64(blocks).saturating_sub(read);
    }
}

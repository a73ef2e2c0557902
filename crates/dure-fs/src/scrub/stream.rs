//! Long requests, several under way.
//!
//! **Problem.** A device that waits for the next request while checksums are computed, or while nodes
//! are read, stands still. **Structure.** Requests stay under way from one group of segments to the
//! next: what the next group is to hold is found out meanwhile. **Invariants.** A few requests of at
//! most 1 MiB are in memory. A segment was compared when no request of it is under way: what is told
//! of progress names the first one of which one is. **Crash.** Nothing is written.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use dure_block::{BlockBuf, UnderWay};
use dure_store::error::Result;
use dure_store::space::SegmentInUse;
use dure_store::units::{BLOCK_BYTES, BlockNo, SegNo, to_u64, to_usize};
use dure_sync::clock;

use super::past::Pasts;
use super::wanted::Wanted;
use super::{Run, ScrubCursor, ScrubStage};

/// Blocks that nobody wants, read with their neighbours rather than made a gap between requests.
const GAP_BLOCKS: u64 = 16;
/// Nodes that are read together while others are quiet.
const NODES_TOGETHER: usize = 64;

/// Requests under way, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Stream {
    requests: VecDeque<Reading>,
    /// Memory of requests that are over.
    free: Vec<BlockBuf>,
}

/// Requests that are complete.
#[derive(Debug, Clone, Copy)]
pub(super) struct Complete {
    of_stream: u64,
    all: u64,
}

#[derive(Debug)]
struct Reading {
    segment: SegNo,
    first: BlockNo,
    wanted: Vec<Wanted>,
    began_ns: u64,
    request: UnderWay,
}

impl Stream {
    /// How many requests are under way.
    pub(super) fn depth(&self) -> usize {
        self.requests.len()
    }

    /// Where a scrub goes on that is at this segment: the first one of which something is under way
    /// is read again.
    pub(super) fn before(&self, segment: SegNo) -> ScrubCursor {
        let oldest = self.requests.front();
        in_main(oldest.map_or(segment, |reading| reading.segment))
    }
}

/// How many of these blocks one request of at most `most` blocks reads, from the first on.
fn together(wanted: &[Wanted], most: usize) -> usize {
    let first = wanted[0].block.0;
    let mut count = 1;
    for pair in wanted.windows(2) {
        let (before, block) = (pair[0].block.0, pair[1].block.0);
        if block - before > GAP_BLOCKS || block - first >= to_u64(most) {
            break;
        }
        count += 1;
    }
    count
}

/// At a segment.
fn in_main(segment: SegNo) -> ScrubCursor {
    ScrubCursor {
        stage: ScrubStage::Main,
        index: u64::from(segment.0),
    }
}

impl Run<'_, '_> {
    /// Begins to read what counts of some neighbouring segments, and compares what was begun before.
    pub(super) fn some_segments(
        &mut self,
        segments: &[SegmentInUse],
        pasts: &mut Pasts,
        stream: &mut Stream,
    ) -> Result<ControlFlow<()>> {
        self.scrub.store.check_running()?;
        self.read_nodes(segments, stream);
        for segment in segments {
            let (start, before) = (clock::monotonic_ns(), self.complete(stream));
            let found = self.scrub.wanted(&segment.blocks, pasts);
            // Nodes of snapshots, and those that memory has lost again.
            let read = self.note_since(before, stream);
            if read > 0 {
                self.rest(read, clock::monotonic_ns() - start, stream.requests.len());
                let flow = self.tell(Some(stream.before(segment.segment)));
                if flow.is_break() {
                    return Ok(flow);
                }
            }
            self.count_segment(segment.blocks.len(), &found);
            let flow = self.segment(segment.segment, &found.wanted, stream);
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Compares all that is under way, and tells it.
    pub(super) fn drain(&mut self, stream: &mut Stream) {
        let first = stream.requests.front().map(|reading| reading.segment);
        while !stream.requests.is_empty() {
            self.end_oldest(stream);
        }
        if let Some(first) = first.filter(|_| !self.found.is_empty()) {
            let _ends_anyway = self.tell(Some(in_main(first)));
        }
    }

    /// Reads the nodes that say what these segments hold.
    fn read_nodes(&mut self, segments: &[SegmentInUse], stream: &Stream) {
        let blocks = segments.iter().flat_map(|segment| &segment.blocks);
        let nids = self.scrub.absent_nodes(blocks);
        let mut rest = &nids[..];
        while !rest.is_empty() {
            let under_way = stream.requests.len();
            let counters = self.scrub.store.region.counters();
            let turn = self.pace.turn(&counters, under_way);
            let most = if turn.depth == 1 { 1 } else { NODES_TOGETHER };
            let (now, later) = rest.split_at(most.min(rest.len()));
            rest = later;
            let (start, before) = (clock::monotonic_ns(), self.complete(stream));
            self.scrub.read_nodes(now);
            self.note_since(before, stream);
            let took = clock::monotonic_ns() - start;
            self.rest(to_u64(now.len()), took, under_way);
        }
    }

    /// Requests that are complete, and how many of those are of the stream.
    pub(super) fn complete(&self, stream: &Stream) -> Complete {
        let done = stream.requests.iter().filter(|one| one.request.is_done());
        Complete {
            of_stream: to_u64(done.count()),
            all: super::pace::requests(&self.scrub.store.region.counters()),
        }
    }

    /// Notes what was complete after `before`, and was not of the stream, as made by the scrub; how
    /// many.
    pub(super) fn note_since(&mut self, before: Complete, stream: &Stream) -> u64 {
        let now = self.complete(stream);
        let of_stream = now.of_stream - before.of_stream;
        let own = (now.all - before.all).saturating_sub(of_stream);
        self.pace.note_own(own);
        own
    }

    fn rest(&mut self, blocks: u64, took_ns: u64, under_way: usize) {
        let region = &self.scrub.store.region;
        self.pace
            .rest(blocks, took_ns, || (region.counters(), under_way));
    }

    /// Begins to read what counts of a segment, and compares what was begun before.
    fn segment(
        &mut self,
        segment: SegNo,
        mut wanted: &[Wanted],
        stream: &mut Stream,
    ) -> ControlFlow<()> {
        while !wanted.is_empty() {
            let counters = self.scrub.store.region.counters();
            let turn = self.pace.turn(&counters, stream.requests.len());
            while stream.requests.len() >= turn.depth {
                self.end_oldest(stream);
            }
            let (now, rest) = wanted.split_at(together(wanted, turn.blocks));
            wanted = rest;
            self.begin(segment, now.to_vec(), stream);
            if turn.depth == 1 {
                self.end_oldest(stream);
            }
            self.tell(Some(stream.before(segment)))?;
        }
        ControlFlow::Continue(())
    }

    fn begin(&mut self, segment: SegNo, wanted: Vec<Wanted>, stream: &mut Stream) {
        let (first, last) = (wanted[0].block, wanted[wanted.len() - 1].block);
        let mut buf = stream.free.pop().unwrap_or_else(|| BlockBuf::zeroed(0));
        buf.reuse(to_usize(last.0 - first.0 + 1));
        let began_ns = clock::monotonic_ns();
        let requests = self.scrub.store.region.begin_reads(vec![(first, buf)]);
        let mut wanted = Some(wanted);
        for request in requests {
            stream.requests.push_back(Reading {
                segment,
                first,
                wanted: wanted.take().unwrap_or_default(),
                began_ns,
                request,
            });
        }
    }

    /// Waits for the oldest request, and compares what it read.
    fn end_oldest(&mut self, stream: &mut Stream) {
        let Some(reading) = stream.requests.pop_front() else {
            return;
        };
        let (buf, read) = self.scrub.store.region.end(reading.request);
        let took = clock::monotonic_ns() - reading.began_ns;
        self.pace.note_own(1);
        self.counts.blocks_read += to_u64(buf.blocks());
        let count = to_u64(reading.wanted.len());
        self.counts.blocks_done += count;
        self.counts.compared += count;
        let mut doubted = Vec::new();
        for wanted in reading.wanted {
            let at = to_usize(wanted.block.0 - reading.first.0) * BLOCK_BYTES;
            let bytes = &buf.as_slice()[at..at + BLOCK_BYTES];
            // One bad block fails the whole request.
            let compared = match &read {
                Ok(()) => self.scrub.compare(&wanted, bytes),
                Err(error) => Err(error.clone().into()),
            };
            if let Err(error) = compared {
                doubted.push((wanted, error));
            }
        }
        let blocks = to_u64(buf.blocks());
        stream.free.push(buf);
        self.doubt(doubted);
        self.rest(blocks, took, stream.requests.len());
    }
}

//! Long requests, several under way.

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

#[derive(Debug)]
struct Reading {
    segment: SegNo,
    first: BlockNo,
    wanted: Vec<Wanted>,
    began_ns: u64,
    request: UnderWay,
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
    /// Reads and compares what counts of some neighbouring segments.
    pub(super) fn some_segments(
        &mut self,
        segments: &[SegmentInUse],
        pasts: &mut Pasts,
        stream: &mut Stream,
    ) -> Result<ControlFlow<()>> {
        self.scrub.store.check_running()?;
        self.read_nodes(segments);
        let mut found = Vec::with_capacity(segments.len());
        for segment in segments {
            let (start, before) = (clock::monotonic_ns(), self.requests());
            found.push(self.scrub.wanted(&segment.blocks, pasts));
            // Nodes of snapshots, and those that memory has lost again.
            let read = self.requests() - before;
            self.pace.note_own(read);
            if read > 0 {
                self.rest(read, clock::monotonic_ns() - start, 0);
                let flow = self.tell(Some(in_main(segments[0].segment)));
                if flow.is_break() {
                    return Ok(flow);
                }
            }
        }
        let flow = segments
            .iter()
            .zip(&found)
            .try_for_each(|(segment, found)| {
                self.count_segment(segment.blocks.len(), found);
                self.segment(segment.segment, &found.wanted, stream)
            });
        while !stream.requests.is_empty() {
            self.end_oldest(stream);
        }
        if flow.is_break() && !self.found.is_empty() {
            let first = segments.first().map_or(0, |segment| segment.segment.0);
            // What was under way.
            let _ends_anyway = self.tell(Some(in_main(SegNo(first))));
        }
        Ok(flow)
    }

    /// Reads the nodes that say what these segments hold. None of the scrub's requests is under way,
    /// so those that are counted meanwhile are for nodes.
    fn read_nodes(&mut self, segments: &[SegmentInUse]) {
        let blocks = segments.iter().flat_map(|segment| &segment.blocks);
        let nids = self.scrub.absent_nodes(blocks);
        let mut rest = &nids[..];
        while !rest.is_empty() {
            let turn = self.pace.turn(&self.scrub.store.region.counters(), 0);
            let most = if turn.depth == 1 { 1 } else { NODES_TOGETHER };
            let (now, later) = rest.split_at(most.min(rest.len()));
            rest = later;
            let (start, before) = (clock::monotonic_ns(), self.requests());
            self.scrub.read_nodes(now);
            self.pace.note_own(self.requests() - before);
            let took = clock::monotonic_ns() - start;
            self.rest(to_u64(now.len()), took, 0);
        }
    }

    fn rest(&mut self, blocks: u64, took_ns: u64, under_way: usize) {
        let region = &self.scrub.store.region;
        self.pace
            .rest(blocks, took_ns, || (region.counters(), under_way));
    }

    fn requests(&self) -> u64 {
        super::pace::requests(&self.scrub.store.region.counters())
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
            // The first segment of what is under way: a scrub that goes on reads it again.
            let oldest = stream.requests.front();
            let segment = oldest.map_or(segment, |reading| reading.segment);
            self.tell(Some(in_main(segment)))?;
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

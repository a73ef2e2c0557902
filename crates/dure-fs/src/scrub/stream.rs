//! Long requests, several under way.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use dure_block::{BlockBuf, UnderWay};
use dure_store::space::SegmentInUse;
use dure_store::units::{BLOCK_BYTES, BlockNo, to_u64, to_usize};
use dure_sync::clock;

use super::wanted::Wanted;
use super::{Run, ScrubCursor, ScrubStage};
use crate::error::Result;

/// Blocks that nobody wants, read with their neighbours rather than made a gap between requests.
const GAP_BLOCKS: u64 = 16;

/// Requests under way, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Stream {
    requests: VecDeque<Reading>,
    /// Memory of requests that are over.
    free: Vec<BlockBuf>,
}

#[derive(Debug)]
struct Reading {
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

impl Run<'_, '_> {
    /// Begins to read what counts of a segment, and compares what was begun before.
    pub(super) fn segment(
        &mut self,
        segment: &SegmentInUse,
        stream: &mut Stream,
    ) -> Result<ControlFlow<()>> {
        self.scrub.store.check_running()?;
        if segment.blocks.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        let found = self.nodes_and_wanted(segment);
        self.count_segment(segment.blocks.len(), &found);
        let mut wanted = &found.wanted[..];
        while !wanted.is_empty() {
            let counters = self.scrub.store.region.counters();
            let turn = self.pace.turn(&counters, stream.requests.len());
            while stream.requests.len() >= turn.depth {
                self.end_oldest(stream);
            }
            let (now, rest) = wanted.split_at(together(wanted, turn.blocks));
            wanted = rest;
            self.begin(now.to_vec(), stream);
            if turn.depth == 1 {
                self.end_oldest(stream);
            }
            // What is under way of the segment is compared in any case.
            let cursor = ScrubCursor {
                stage: ScrubStage::Main,
                index: u64::from(segment.segment.0),
            };
            let flow = self.tell(Some(cursor));
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// What the blocks of a segment hold. Requests for nodes meanwhile are the scrub's own, for the
    /// most part.
    fn nodes_and_wanted(&mut self, segment: &SegmentInUse) -> super::wanted::Found {
        let counters = || super::pace::requests(&self.scrub.store.region.counters());
        let before = counters();
        let found = self.scrub.wanted(&segment.blocks);
        let own = counters().saturating_sub(before);
        self.pace.note_own(own);
        found
    }

    fn begin(&mut self, wanted: Vec<Wanted>, stream: &mut Stream) {
        let (first, last) = (wanted[0].block, wanted[wanted.len() - 1].block);
        let mut buf = stream.free.pop().unwrap_or_else(|| BlockBuf::zeroed(0));
        buf.reuse(to_usize(last.0 - first.0 + 1));
        let began_ns = clock::monotonic_ns();
        let requests = self.scrub.store.region.begin_reads(vec![(first, buf)]);
        let mut wanted = Some(wanted);
        for request in requests {
            stream.requests.push_back(Reading {
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
        self.pace.rest(blocks, took);
    }

    /// Waits for all requests.
    pub(super) fn end_all(&mut self, stream: &mut Stream) {
        while !stream.requests.is_empty() {
            self.end_oldest(stream);
        }
    }
}

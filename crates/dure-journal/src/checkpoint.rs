//! Tails, headers and growth: how log space is freed.
//!
//! **Problem.** The log is finite, and what its tail has passed can never be read again.
//! **Structure.** [`Journal::checkpoint_done`] moves the tails of all journals past a cut, writes
//! the headers that changed, flushes once, and only then frees segments. [`Journal::grow`] lists a
//! new segment in the header before it is used, [`Journal::shrink`] removes segments from it before
//! they get another use. **Invariants.** The lock over headers is held from a header write until
//! the flush after it.
//!
//! **Crash.** Before the flush: old or new header, both describe a log whose content is still
//! there. After it: no header names the segments before the new tail as part of the log.

use dure_block::Lba;

use crate::commit::Cut;
use crate::error::{Error, Result, StopCause, StopReason};
use crate::format::{JournalHeader, SEGMENTS_MAX, TailPosition};
use crate::ids::JournalId;
use crate::journal::{HeaderState, Journal, Settle};
use crate::log::{CoreLog, Writer, half_room};
use crate::trace::TraceEvent;

impl<S: Settle> Journal<S> {
    /// Moves the tails past the cut. The caller has committed the cut, and everything its handles
    /// changed is durable elsewhere.
    ///
    /// # Errors
    /// [`Error::Stopped`], now or because a header could not be written.
    ///
    /// # Panics
    /// If a handle of the cut is not valid.
    pub fn checkpoint_done(&self, cut: &Cut, checkpoint: u64) -> Result<()> {
        self.check_headers()?;
        let mut headers = self.headers.lock();
        let mut moved: Vec<(JournalId, TailPosition)> = Vec::new();
        for log in &self.logs {
            let state = &mut headers[log.id.index()];
            let writer = log.writer.lock();
            let Some(tail) = tail_behind(&writer, log, cut.last(log.id)) else {
                continue;
            };
            state.checkpoint = checkpoint;
            let header = self.header(log, &writer, tail, state, writer.ring.segments().to_vec());
            drop(writer);
            self.write_header(log.id, state, &header)?;
            moved.push((log.id, tail));
        }
        if moved.is_empty() {
            return Ok(());
        }
        // Crash scenario without this flush: the log space is written again while the durable
        // header still has its tail there; the scan finds a younger transaction at the tail, or a
        // torn one, and ends before all live transactions.
        self.flush_headers()?;
        for (journal, tail) in moved {
            self.release_before(self.log(journal), tail);
        }
        Ok(())
    }

    /// Frees what is before `tail`. A header with that tail is durable.
    fn release_before(&self, log: &CoreLog<S::Effect>, tail: TailPosition) {
        let mut writer = log.writer.lock();
        let passed = writer
            .placed
            .partition_point(|placed| placed.at.sequence < tail.sequence);
        writer.placed.drain(..passed);
        writer.tail = tail;
        let released = writer.ring.release_before(tail.segment);
        log.tallies.write.ring(&writer.ring);
        let mut joined = log.joined.lock();
        joined.room += i64::from(released) * self.usable();
        joined.told_half &= joined.room < joined.half;
        joined.images.head.segments_free += released;
        log.tallies.checkpointed(&mut joined, passed);
        drop(joined);
        let sequence = tail.sequence;
        self.trace
            .record(Some(log.id), || TraceEvent::Tail { sequence });
    }

    /// Adds the segment at `segment` to the ring of `journal`. When it returns, the header that
    /// lists it is durable and the space can be used.
    ///
    /// # Errors
    /// [`Error::RingFull`] if the header can list no more; [`Error::Stopped`].
    pub fn grow(&self, journal: JournalId, segment: Lba) -> Result<()> {
        self.check_headers()?;
        let mut headers = self.headers.lock();
        let state = &mut headers[journal.index()];
        let log = self.log(journal);
        let header = {
            let writer = log.writer.lock();
            let mut segments = writer.ring.segments().to_vec();
            if segments.len() == SEGMENTS_MAX {
                return Err(Error::RingFull(journal));
            }
            segments.push(segment);
            self.header(log, &writer, writer.tail, state, segments)
        };
        self.write_header(journal, state, &header)?;
        // Crash scenario without this flush: a committed transaction lies in a segment that the
        // durable header does not list, and the scan never looks there.
        self.flush_headers()?;
        let mut writer = log.writer.lock();
        writer.ring.add(segment);
        log.tallies.write.ring(&writer.ring);
        let half = half_room(&writer.ring, self.usable());
        drop(writer);
        let mut joined = log.joined.lock();
        joined.room += self.usable();
        joined.half = half;
        joined.told_half &= joined.room < joined.half;
        joined.images.head.segments_free += 1;
        Ok(())
    }

    /// Takes up to `most` free segments out of the ring of `journal`, for another use. Fewer, or
    /// none, if the others are in use or reserved, or the ring is as small as it can be. When it
    /// returns, the header that does not list them is durable.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn shrink(&self, journal: JournalId, most: usize) -> Result<Vec<Lba>> {
        self.check_headers()?;
        let mut headers = self.headers.lock();
        let state = &mut headers[journal.index()];
        let log = self.log(journal);
        let mut writer = log.writer.lock();
        let mut joined = log.joined.lock();
        let mut removed = Vec::new();
        // The reservations of handles need no more than the other free segments.
        while removed.len() < most
            && joined.room >= self.usable()
            && joined.images.head.segments_free > 0
        {
            let Some(segment) = writer.remove_free() else {
                break;
            };
            removed.push(segment);
            joined.room -= self.usable();
            joined.images.head.segments_free -= 1;
        }
        joined.half = half_room(&writer.ring, self.usable());
        drop(joined);
        if removed.is_empty() {
            return Ok(removed);
        }
        log.tallies.write.ring(&writer.ring);
        let segments = writer.ring.segments().to_vec();
        let header = self.header(log, &writer, writer.tail, state, segments);
        drop(writer);
        self.write_header(journal, state, &header)?;
        // Crash scenario without this flush: the segment is in the durable header, and in that of
        // another ring, so recovery refuses the volume; or it holds file data, and recovery takes
        // it for log space and the data for lost.
        if self.rules.flush_shrunk.holds() {
            self.flush_headers()?;
        }
        Ok(removed)
    }

    fn header(
        &self,
        log: &CoreLog<S::Effect>,
        writer: &Writer,
        tail: TailPosition,
        state: &HeaderState,
        segments: Vec<Lba>,
    ) -> JournalHeader {
        assert!(
            tail.sequence >= writer.tail.sequence,
            "a tail never moves back"
        );
        JournalHeader {
            epoch: self.epoch,
            journal: log.id,
            generation: state.generation + 1,
            segment_blocks: self.segment_blocks,
            tail,
            // A task that scans the log misses what is durable and not in it: without records
            // nothing is.
            durable_upto: match self.is_unlogged() {
                true => tail.number - 1,
                false => log.reached.valid(),
            },
            checkpoint: state.checkpoint,
            segments,
        }
    }

    fn write_header(
        &self,
        journal: JournalId,
        state: &mut HeaderState,
        header: &JournalHeader,
    ) -> Result<()> {
        state.generation = header.generation;
        // The caller holds the lock over all headers.
        self.log(journal).tallies.write.headers.add(1);
        match self.medium.write_header(header, state.pair, self.seed) {
            Ok(()) => Ok(()),
            Err((at, error)) => self.stop_headers(Some(journal), Some(at), &error),
        }
    }

    fn flush_headers(&self) -> Result<()> {
        let core = dure_sync::current_core();
        let journal = self.journal_of(core);
        self.commit_tallies(journal).flushes.add_shared(1);
        match self.medium.flush() {
            Ok(()) => Ok(()),
            Err(error) => self.stop_headers(None, None, &error),
        }
    }

    fn stop_headers(
        &self,
        journal: Option<JournalId>,
        at: Option<Lba>,
        error: &dure_block::Error,
    ) -> Result<()> {
        let cause = if at.is_some() {
            StopCause::HeaderWrite
        } else {
            StopCause::Flush
        };
        self.stop(StopReason {
            cause,
            journal,
            at,
            detail: error.to_string(),
        });
        self.check_headers()
    }

    fn check_headers(&self) -> Result<()> {
        match self.stopped() {
            Some(reason) => Err(Error::Stopped(reason)),
            None => Ok(()),
        }
    }
}

/// The tail after every transaction up to handle `cut`, if it differs from the present one.
fn tail_behind<E>(writer: &Writer, log: &CoreLog<E>, cut: u64) -> Option<TailPosition> {
    let passed = writer
        .placed
        .iter()
        .take_while(|placed| placed.last <= cut)
        .count();
    let last = writer.placed.get(passed.checked_sub(1)?)?.last;
    assert!(
        last <= log.reached.valid(),
        "journal {}: the tail passes only valid handles",
        log.id
    );
    Some(match writer.placed.get(passed) {
        Some(next) => next.at,
        // Expected at the head; if it does not fit there, the scan looks at the other segments.
        None => {
            let (segment, offset) = writer.ring.head();
            TailPosition {
                segment,
                offset,
                sequence: writer.sequence,
                number: last + 1,
            }
        }
    })
}

//! Commit: the caller writes the prefixes of its closure and flushes once.
//!
//! **Problem.** Durability must cost the core that asks for it, and no other. **Structure.** (1)
//! the closure over marks, (2) journal by journal in ascending order: take the prefix under
//! `writer` and `joined`, write it under `writer` only, (3) check the closure again, since another
//! committer may have written a longer prefix of a journal, whose last handles have marks of their
//! own, (4) one flush, (5) validity.
//!
//! **Invariants.** While a prefix is written, new handles join after it. Log writes of one journal
//! are serial: each completes before the next is issued. Nothing is retried after an error.
//!
//! **Crash.** Before the flush completes, any subset of the writes may be on the medium: recovery
//! keeps those that are closed under marks. After it, all of them are on the medium.

use dure_block::{BLOCK_BYTES, Lba};
use dure_sync::{MutexGuard, clock, current_core};

use crate::closure::Closure;
use crate::error::{CommitError, StopCause, StopReason};
use crate::format::{Seal, TRANSACTION_HEADER_BYTES, TailPosition, seal};
use crate::ids::{JournalId, Mark};
use crate::journal::{Journal, Settle};
use crate::log::{CoreLog, Joined, Link, Placed, WRITER, Writer};
use crate::records::Records;
use crate::records::image::take_closed;
use crate::space::{HANDLE_BYTES, HandleEnd, MARK_BYTES, Piece, plan};
use crate::statistics::Stall;
use crate::trace::TraceEvent;
use crate::units::{to_u32, to_u64, to_usize};

/// Up to this many record bytes in one log write, a committer also writes handles that others wait
/// for.
const BYTES_WITH_OTHERS_MAX: usize = 256 << 10;

type Result<T> = std::result::Result<T, CommitError>;

/// A point in time: the last handle that had joined in each journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    last: Vec<u64>,
}

impl Cut {
    pub(crate) fn new(last: Vec<u64>) -> Self {
        Self { last }
    }

    /// The last handle number of `journal` that belongs to the cut.
    #[must_use]
    pub fn last(&self, journal: JournalId) -> u64 {
        self.last[journal.index()]
    }

    fn marks(&self) -> impl Iterator<Item = Mark> + '_ {
        let numbered = self
            .last
            .iter()
            .enumerate()
            .filter(|(_, number)| **number > 0);
        numbered.map(|(index, number)| Mark::new(JournalId::from_index(index), *number))
    }
}

/// Whether a commit may use the slack of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slack {
    /// It must leave room for all reservations.
    Keep,
    /// It is a checkpoint's commit, after which the tail moves.
    Use,
}

impl<S: Settle> Journal<S> {
    /// Makes the handles that `marks` name durable, with all they depend on. When it returns, they
    /// are valid and settled.
    ///
    /// # Errors
    /// [`CommitError::LogFull`]: checkpoint and commit again. [`CommitError::Stopped`].
    pub fn commit(&self, marks: &[Mark]) -> Result<()> {
        self.commit_roots(marks.iter().copied(), Slack::Keep)
    }

    /// The last joined handle of every journal. With `records=image` the running transactions are
    /// closed here: later handles join new ones.
    #[must_use]
    pub fn cut(&self) -> Cut {
        match self.records {
            Records::Delta => self.last_joined(),
            Records::Image { .. } => self.close_cut(),
        }
    }

    fn last_joined(&self) -> Cut {
        Cut {
            last: self
                .logs
                .iter()
                .map(|log| log.joined.lock().next() - 1)
                .collect(),
        }
    }

    /// Commits everything up to the cut, for the checkpoint: it may use the slack of the log, so it
    /// does not fail for lack of space. At most twice per [`Journal::checkpoint_done`].
    ///
    /// # Errors
    /// [`CommitError::Stopped`]; [`CommitError::LogFull`] only if called more often.
    pub fn commit_cut(&self, cut: &Cut) -> Result<()> {
        self.commit_checkpoint(cut, &[])
    }

    /// As [`Journal::commit_cut`], together with the last writers of what the checkpoint copied,
    /// which may have joined after the cut.
    ///
    /// # Errors
    /// As [`Journal::commit_cut`].
    pub fn commit_checkpoint(&self, cut: &Cut, last_writers: &[Mark]) -> Result<()> {
        self.commit_roots(cut.marks().chain(last_writers.iter().copied()), Slack::Use)?;
        // Crash scenario without this: another committer has made a handle of the cut valid and is
        // about to settle its effects. The checkpoint finds nothing to commit, writes the space map
        // without them, and its tail passes the handle: after a crash nothing records that its
        // blocks are in use.
        for log in &self.logs {
            self.settle_journal(log);
        }
        Ok(())
    }

    /// Commits everything that has joined.
    ///
    /// # Errors
    /// As [`Journal::commit`].
    pub fn commit_all(&self) -> Result<()> {
        self.commit_roots(self.last_joined().marks(), Slack::Keep)
    }

    fn check_running(&self) -> Result<()> {
        match self.stopped() {
            Some(reason) => Err(CommitError::Stopped(reason)),
            None => Ok(()),
        }
    }

    /// Stops the journal; returns the error to report, which names the first reason.
    fn stop_for(
        &self,
        cause: StopCause,
        place: Option<(JournalId, Lba)>,
        error: &dure_block::Error,
    ) -> CommitError {
        let reason = StopReason {
            cause,
            journal: place.map(|(journal, _)| journal),
            at: place.map(|(_, at)| at),
            detail: error.to_string(),
        };
        self.stop(reason.clone());
        CommitError::Stopped(self.stopped().unwrap_or(reason))
    }

    fn commit_roots(&self, roots: impl Iterator<Item = Mark>, slack: Slack) -> Result<()> {
        self.check_running()?;
        if self.records != Records::Delta {
            return self.commit_images(roots, slack);
        }
        let mut closure = Closure::new(self.logs.len());
        for root in roots {
            closure.require(self, root);
        }
        if closure.is_empty() {
            return Ok(());
        }
        if !self.rules.closure.holds() {
            return self.commit_without_closure(&closure, slack);
        }
        let core = self.journal_of(current_core());
        self.trace.record(Some(core), || TraceEvent::CommitBegin);
        closure.extend(self);
        let mut wrote_ns = None;
        loop {
            for journal in closure.journals() {
                let wrote = self.write_upto(*journal, closure.upto(*journal), slack)?;
                wrote_ns = wrote.or(wrote_ns);
            }
            // Crash scenario: another committer wrote handles 1 to 9 of a journal in one
            // transaction, this closure needs 7. A crash now leaves the transaction without what 8
            // and 9 depend on; it is cut back, and 7 with it. So 8 and 9 belong to this closure.
            if !self.rules.recheck.holds() || !closure.recheck(self) {
                break;
            }
        }
        self.end_commit(&closure, wrote_ns)
    }

    /// Flushes a written closure, and makes it valid.
    fn end_commit(&self, closure: &Closure, wrote_ns: Option<u64>) -> Result<()> {
        let core = self.journal_of(current_core());
        let tallies = self.commit_tallies(core);
        tallies.commits.add_shared(1);
        let journals = closure.journals().len();
        tallies.journals.add_shared(to_u64(journals));
        let ns = self.flush(closure, wrote_ns)?;
        self.advance_valid(closure, ns);
        self.trace.record(Some(core), || TraceEvent::CommitEnd {
            journals: to_u32(journals),
        });
        Ok(())
    }

    /// The commit with `records=image`: the closure is closed at one moment, then captured and
    /// written.
    fn commit_images(&self, roots: impl Iterator<Item = Mark>, slack: Slack) -> Result<()> {
        let closure = self.close(roots, slack)?;
        if closure.is_empty() {
            return Ok(());
        }
        let core = self.journal_of(current_core());
        self.trace.record(Some(core), || TraceEvent::CommitBegin);
        for journal in closure.journals() {
            self.capture_closed(*journal, closure.upto(*journal));
        }
        let mut wrote_ns = None;
        for journal in closure.journals() {
            let wrote = self.write_closed(*journal, closure.upto(*journal))?;
            wrote_ns = wrote.or(wrote_ns);
        }
        self.end_commit(&closure, wrote_ns)
    }

    /// One flush for everything in the closure that is written and not known to be durable. The
    /// last write of this commit, if it wrote, ended at `wrote_ns`. Returns the time.
    fn flush(&self, closure: &Closure, wrote_ns: Option<u64>) -> Result<u64> {
        let logs = || closure.journals().iter().map(|journal| self.log(*journal));
        let begin_ns = wrote_ns.unwrap_or_else(clock::monotonic_ns);
        if logs().all(|log| log.reached.durable() >= closure.upto(log.id)) {
            return Ok(begin_ns);
        }
        // What is written before the flush starts is durable after it; so load that first.
        let written: Vec<(u64, u64)> = logs()
            .map(|log| {
                let number = log.reached.written();
                (number, log.tallies.write.transactions.get())
            })
            .collect();
        let core = current_core();
        let tallies = self.commit_tallies(self.journal_of(core));
        let trace = |event| self.trace.record(Some(self.journal_of(core)), || event);
        // Crash scenario without this flush: the log of core 1 reaches the medium, that of core 0,
        // on which it depends, does not; fsync has returned, and recovery rejects the transaction.
        if self.rules.flush.holds() {
            tallies.flushes.add_shared(1);
            trace(TraceEvent::FlushBegin);
            if let Err(error) = self.medium.flush() {
                return Err(self.stop_for(StopCause::Flush, None, &error));
            }
            trace(TraceEvent::FlushEnd);
        }
        // Another committer's flush may have failed, and our writes may be lost with it.
        self.check_running()?;
        let ns = clock::monotonic_ns();
        self.stalled(core, Stall::Flush, ns.saturating_sub(begin_ns));
        for (log, (written, sequence)) in logs().zip(written) {
            assert!(
                written >= closure.upto(log.id),
                "the closure is written before its flush"
            );
            log.reached.raise_durable(written);
            log.tallies.commit.durable(sequence, ns);
        }
        Ok(ns)
    }

    /// Test-only: writes and flushes only the roots' own prefixes, not what they depend on.
    fn commit_without_closure(&self, closure: &Closure, slack: Slack) -> Result<()> {
        for journal in closure.journals() {
            self.write_upto(*journal, closure.upto(*journal), slack)?;
        }
        self.flush(closure, None).map(|_| ())
    }

    /// Locks the writer of a log; returns it and the time, and counts how long another committer
    /// held it.
    fn writer<'l>(&self, log: &'l CoreLog<S::Effect>) -> (MutexGuard<'l, WRITER, Writer>, u64) {
        if let Some(writer) = log.writer.try_lock() {
            return (writer, clock::monotonic_ns());
        }
        let start = clock::monotonic_ns();
        let writer = log.writer.lock();
        let ns = clock::monotonic_ns();
        self.stalled(current_core(), Stall::Writer, ns.saturating_sub(start));
        (writer, ns)
    }

    /// Writes the log of `journal` up to handle `upto`, unless another committer has. Returns the
    /// time at which this call's write ended, if it wrote.
    fn write_upto(&self, journal: JournalId, upto: u64, slack: Slack) -> Result<Option<u64>> {
        let log = self.log(journal);
        if log.reached.written() >= upto {
            return Ok(None);
        }
        log.reached.raise_wanted(upto);
        let (mut writer, ns) = self.writer(log);
        let writer = &mut *writer;
        // The previous holder of the lock may have written it, or stopped the journal in the
        // attempt.
        self.check_running()?;
        let written = log.reached.written();
        if written >= upto {
            return Ok(None);
        }
        let last = {
            let mut joined = log.joined.lock();
            assert!(
                joined.pending.first == written + 1,
                "what is taken is written"
            );
            let count = |last: u64| usize::try_from(last - written).expect("handles are in memory");
            let last = match slack {
                Slack::Keep => self.with_others(log, &joined, upto),
                Slack::Use => upto,
            };
            match self.take(log, writer, &mut joined, count(last), slack, ns) {
                Err(CommitError::LogFull(_)) if last > upto => {
                    self.take(log, writer, &mut joined, count(upto), slack, ns)?;
                    upto
                }
                taken => taken.map(|()| last)?,
            }
        };
        let wrote_ns = self.write_pieces(log, writer, ns)?;
        assert!(
            log.reached.written() == last,
            "all pieces of the prefix are written"
        );
        Ok(Some(wrote_ns))
    }

    /// How far to write when `upto` is needed: also the handles that other committers wait for, in
    /// one device write instead of one each. A handle that depends on a handle of another journal
    /// that is not valid ends this: it would widen the closure of the committer, which would then
    /// wait for other cores.
    fn with_others(&self, log: &CoreLog<S::Effect>, joined: &Joined<S::Effect>, upto: u64) -> u64 {
        let pending = &joined.pending;
        let wanted = log.reached.wanted().min(joined.next() - 1);
        let alone = |number: u64| {
            let index = usize::try_from(number - pending.first).expect("handles are in memory");
            let marks = pending.marks_between(index, index + 1);
            let done = |mark: &Mark| mark.journal() == log.id || self.is_valid(*mark);
            // Long runs of handles are left to their own committer.
            to_usize(pending.start_of(index + 1).bytes) <= BYTES_WITH_OTHERS_MAX
                && marks.iter().all(done)
        };
        (upto + 1..=wanted)
            .take_while(|number| alone(*number))
            .last()
            .unwrap_or(upto)
    }

    /// Writes the closed transactions of `journal`, which are captured, up to handle `upto`, unless
    /// another committer has. Returns the time at which its write ended, if it wrote.
    fn write_closed(&self, journal: JournalId, upto: u64) -> Result<Option<u64>> {
        let log = self.log(journal);
        let mut wrote_ns = None;
        while log.reached.written() < upto {
            let (mut writer, ns) = self.writer(log);
            let writer = &mut *writer;
            // The previous holder of the lock may have written it, or stopped the journal in the
            // attempt.
            self.check_running()?;
            let written = log.reached.written();
            if written >= upto {
                break;
            }
            take_closed(&mut log.joined.lock(), writer);
            assert!(
                writer.taken.first == written + 1,
                "closed transactions are written in order"
            );
            wrote_ns = Some(self.write_pieces(log, writer, ns)?);
        }
        Ok(wrote_ns)
    }

    /// Writes all of `writer.pieces`; `ns` is the time now. Returns the time when the write ended.
    fn write_pieces(
        &self,
        log: &CoreLog<S::Effect>,
        writer: &mut Writer,
        mut ns: u64,
    ) -> Result<u64> {
        for index in 0..writer.pieces.len() {
            let piece = writer.pieces[index].clone();
            ns = self.write_piece(log, writer, &piece)?;
        }
        Ok(ns)
    }

    /// Takes the first `count` handles from `joined` into `writer.taken`, cut into `writer.pieces`;
    /// or changes nothing if the log is full. `ns` is the time now.
    fn take(
        &self,
        log: &CoreLog<S::Effect>,
        writer: &mut Writer,
        joined: &mut Joined<S::Effect>,
        count: usize,
        slack: Slack,
        ns: u64,
    ) -> Result<()> {
        let ends = &joined.pending.ends[..count];
        plan(
            ends,
            writer.ring.blocks_left(),
            self.segment_blocks,
            &mut writer.pieces,
        );
        let segments = writer
            .pieces
            .iter()
            .filter(|piece| piece.new_segment)
            .count();
        let charge = ends[count - 1].charge(HandleEnd::START, count);
        let segments = i64::try_from(segments).expect("a ring has few segments");
        let room = joined.room - segments * self.usable()
            + i64::try_from(charge).expect("pending handles fit in memory");
        let full =
            segments > i64::from(writer.ring.free_count()) || (slack == Slack::Keep && room < 0);
        if full {
            log.tallies.write.log_full.add(1);
            return Err(CommitError::LogFull(log.id));
        }
        joined.room = room;
        let bytes = charge - to_u64(count) * u64::from(HANDLE_BYTES);
        let pieces = writer.pieces.len();
        log.tallies.join.took(count, bytes, pieces);
        let since_ns = std::mem::replace(&mut joined.since_ns, ns);
        joined.pending.take(count, &mut writer.taken);
        // From here on the marks are found in `links`: both locks are held, so no closure can
        // miss them in between.
        for (sequence, piece) in (writer.sequence..).zip(&writer.pieces) {
            let marks = writer
                .taken
                .marks_between(piece.handles.start, piece.handles.end);
            joined.links.push_back(Link {
                first: writer.taken.first + to_u64(piece.handles.start),
                last: writer.taken.first + to_u64(piece.handles.end) - 1,
                marks: marks.to_vec(),
                sequence,
                since_ns,
                taken_ns: ns,
            });
        }
        Ok(())
    }

    /// Writes one transaction. Returns the time when the write ended.
    fn write_piece(
        &self,
        log: &CoreLog<S::Effect>,
        writer: &mut Writer,
        piece: &Piece,
    ) -> Result<u64> {
        let first = writer.taken.first + to_u64(piece.handles.start);
        let last = writer.taken.first + to_u64(piece.handles.end) - 1;
        self.choose_marks(log.id, writer, piece, first..=last);
        if piece.new_segment {
            let gap = u64::from(writer.ring.blocks_left());
            log.tallies.write.gap_blocks.add(gap);
            writer.ring.enter_next();
        }
        let at = writer.ring.head_lba();
        let records = writer
            .taken
            .bytes_between(piece.handles.start, piece.handles.end);
        let bytes =
            TRANSACTION_HEADER_BYTES + writer.marks.len() * to_usize(MARK_BYTES) + records.len();
        let blocks = bytes.div_ceil(BLOCK_BYTES);
        if writer.buffer.blocks() < blocks {
            writer.buffer.resize(blocks);
        }
        let what = Seal {
            address: at,
            epoch: self.epoch,
            journal: log.id,
            sequence: writer.sequence,
            first,
            last,
            // Valid, not only durable: recovery concludes from it that what the marks of these
            // handles name was durable, too (`recovery::durable`).
            durable_upto: log.reached.valid(),
            seed: self.seed,
        };
        let sealed = seal(writer.buffer.as_mut_slice(), &what, &writer.marks, records);
        assert!(
            to_usize(sealed) == blocks,
            "the transaction has the planned length"
        );
        let sequence = writer.sequence;
        self.trace.record(Some(log.id), || TraceEvent::Write {
            sequence,
            first,
            last,
            blocks: sealed,
        });
        let prefix = &writer.buffer.as_slice()[..blocks * BLOCK_BYTES];
        if let Err(error) = self.medium.append(at, prefix) {
            let place = Some((log.id, at));
            return Err(self.stop_for(StopCause::LogWrite, place, &error));
        }
        let ns = clock::monotonic_ns();
        let (segment, offset) = writer.ring.head();
        writer.placed.push_back(Placed {
            last,
            at: TailPosition {
                segment,
                offset,
                sequence,
                number: first,
            },
        });
        writer.ring.advance(sealed);
        writer.sequence += 1;
        let record_bytes = to_u64(records.len());
        log.tallies.write.wrote(writer, sealed, record_bytes, ns);
        // Only now: a flush that starts after this covers the write.
        log.reached.set_written(last);
        self.trace
            .record(Some(log.id), || TraceEvent::Written { sequence });
        Ok(ns)
    }

    /// Puts the marks the transaction must carry into `writer.marks`: no duplicates, none into the
    /// transaction itself, none to what is valid.
    fn choose_marks(
        &self,
        journal: JournalId,
        writer: &mut Writer,
        piece: &Piece,
        numbers: std::ops::RangeInclusive<u64>,
    ) {
        let all = writer
            .taken
            .marks_between(piece.handles.start, piece.handles.end);
        let needed = |mark: &Mark| {
            let own = mark.journal() == journal;
            // Crash scenario if a mark were dropped as soon as its handle is written or even
            // durable: the handle may still be rejected for what *it* depends on, and this one must
            // be rejected with it.
            let open = if self.rules.marks_until_valid.holds() {
                !self.is_valid(*mark)
            } else {
                mark.number() > self.log(mark.journal()).reached.written()
            };
            open && !(own && numbers.contains(&mark.number()))
                && (!own || self.rules.self_marks.holds())
                && self.rules.marks.holds()
        };
        writer.marks.clear();
        writer.marks.extend(all.iter().copied().filter(needed));
        writer.marks.sort_unstable();
        writer.marks.dedup();
        let dropped = to_u64(all.len() - writer.marks.len());
        self.log(journal).tallies.write.marks_dropped.add(dropped);
        // Crash scenario without this mark: of a compound transaction in two segments one piece is
        // on the medium, and half of a handle is replayed.
        if let Some(partner) = piece.partner.filter(|_| self.rules.whole.holds()) {
            let number = writer.taken.first + to_u64(partner);
            writer.marks.push(Mark::new(journal, number));
        }
    }
}

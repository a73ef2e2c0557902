//! Commit: the caller writes the prefixes of its closure and flushes once.
//!
//! **Problem.** Durability must cost the core that asks for it, and nobody else.
//! **Structure.** (1) the closure over marks, (2) journal by journal in ascending order: take the
//! prefix under `writer` and `joined`, write it under `writer` alone, (3) look at the closure
//! again, since another committer may have written a longer prefix of a journal, whose last
//! handles have marks of their own, (4) one flush, (5) validity.
//!
//! **Invariants.** While a prefix is written, new handles join behind it. Log writes of one journal
//! are serial: each completes before the next is issued. Nothing is retried after an error.
//!
//! **Crash.** Before the flush completes, any subset of the writes may be on the medium: recovery
//! takes of them what is closed under marks. After it, all of them are.

use dure_block::{BLOCK_BYTES, WriteFlags};

use crate::closure::{Closure, MarkSource as _};
use crate::error::{CommitError, StopCause, StopReason};
use crate::format::{Seal, TRANSACTION_HEADER_BYTES, TailPosition, seal};
use crate::ids::{JournalId, Mark};
use crate::journal::{Journal, Settle};
use crate::log::{CoreLog, Joined, Link, Placed, Writer};
use crate::space::{HandleEnd, MARK_BYTES, Piece, plan, segment_bytes_usable};
use crate::units::{to_u64, to_usize};

type Result<T> = std::result::Result<T, CommitError>;

/// A point in time: the last handle that had joined in each journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    last: Vec<u64>,
}

impl Cut {
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
enum Slack {
    /// It must leave enough for everything promised.
    Keep,
    /// It is the checkpoint's, after which the tail moves.
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

    /// The last joined handle of every journal.
    #[must_use]
    pub fn cut(&self) -> Cut {
        Cut {
            last: self
                .logs
                .iter()
                .map(|log| log.joined.lock().next() - 1)
                .collect(),
        }
    }

    /// Commits everything up to the cut, for the checkpoint: it may use the slack of the log, so
    /// it does not fail for want of space. At most twice per [`Journal::checkpoint_done`].
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
        // Crash scenario without this: another committer has made a handle of the cut valid and is about
        // to settle its effects. The checkpoint finds nothing to commit, writes the space map without
        // them, and its tail passes the handle: after a crash nobody knows that its blocks are in use.
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
        self.commit_roots(self.cut().marks(), Slack::Keep)
    }

    fn check_running(&self) -> Result<()> {
        match self.stopped() {
            Some(reason) => Err(CommitError::Stopped(reason)),
            None => Ok(()),
        }
    }

    fn commit_roots(&self, roots: impl Iterator<Item = Mark>, slack: Slack) -> Result<()> {
        self.check_running()?;
        let mut closure = Closure::new(self.logs.len());
        for root in roots {
            closure.require(self, root);
        }
        if closure.is_empty() {
            return Ok(());
        }
        if !self.rules.closure {
            return self.commit_without_closure(&closure, slack);
        }
        closure.extend(self);
        loop {
            for journal in closure.journals() {
                self.write_upto(*journal, closure.upto(*journal), slack)?;
            }
            // Crash scenario: another committer wrote handles 1 to 9 of a journal in one
            // transaction, this closure needs 7. A crash now leaves the transaction without what 8
            // and 9 depend on; it is cut back, and 7 with it. So 8 and 9 belong to this closure.
            if !self.rules.recheck || !closure.recheck(self) {
                break;
            }
        }
        self.counters.commits.add(1);
        self.counters
            .journals
            .add(i64::try_from(closure.journals().len()).expect("few"));
        self.flush(&closure)?;
        self.advance_valid(&closure);
        Ok(())
    }

    /// One flush for everything in the closure that is written and not known to be durable.
    fn flush(&self, closure: &Closure) -> Result<()> {
        let logs = || closure.journals().iter().map(|journal| self.log(*journal));
        if logs().all(|log| log.reached.durable() >= closure.upto(log.id)) {
            return Ok(());
        }
        // What was written before the flush begins is durable after it; so read it first.
        let written: Vec<u64> = logs().map(|log| log.reached.written()).collect();
        // Crash scenario without this flush: the log of core 1 reaches the medium, that of core 0,
        // on which it depends, does not; fsync has returned, and recovery rejects the transaction.
        if self.rules.flush {
            self.counters.flushes.add(1);
            if let Err(error) = self.queue.flush() {
                let reason = StopReason {
                    cause: StopCause::Flush,
                    journal: None,
                    at: None,
                    detail: error.to_string(),
                };
                self.stop(reason);
                return self.check_running();
            }
        }
        // Another thread's flush may have failed and taken our writes with it.
        self.check_running()?;
        for (log, written) in logs().zip(written) {
            assert!(
                written >= closure.upto(log.id),
                "the closure is written before its flush"
            );
            log.reached.raise_durable(written);
        }
        Ok(())
    }

    /// Test-only: writes and flushes the roots' own prefixes, whatever they depend on.
    fn commit_without_closure(&self, closure: &Closure, slack: Slack) -> Result<()> {
        for journal in closure.journals() {
            self.write_upto(*journal, closure.upto(*journal), slack)?;
        }
        self.flush(closure)
    }

    /// Writes the log of `journal` up to handle `upto`, unless somebody has.
    fn write_upto(&self, journal: JournalId, upto: u64, slack: Slack) -> Result<()> {
        let log = self.log(journal);
        if log.reached.written() >= upto {
            return Ok(());
        }
        let mut writer = log.writer.lock();
        let writer = &mut *writer;
        // Who held the lock before may have written it, or stopped the journal in the attempt.
        self.check_running()?;
        let written = log.reached.written();
        if written >= upto {
            return Ok(());
        }
        {
            let mut joined = log.joined.lock();
            assert!(
                joined.pending.first == written + 1,
                "what is taken is written"
            );
            let count = usize::try_from(upto - written).expect("handles are in memory");
            self.take(journal, writer, &mut joined, count, slack)?;
        }
        for index in 0..writer.pieces.len() {
            let piece = writer.pieces[index].clone();
            self.write_piece(log, writer, &piece)?;
        }
        assert!(
            log.reached.written() == upto,
            "all pieces of the prefix are written"
        );
        Ok(())
    }

    /// Takes the first `count` handles from `joined` into `writer.taken`, cut into
    /// `writer.pieces`; or leaves all as it is if the log is full.
    fn take(
        &self,
        journal: JournalId,
        writer: &mut Writer,
        joined: &mut Joined<S::Effect>,
        count: usize,
        slack: Slack,
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
        let usable = i64::from(segment_bytes_usable(self.segment_blocks));
        let segments = i64::try_from(segments).expect("a ring has few segments");
        let room = joined.room - segments * usable
            + i64::try_from(charge).expect("pending handles fit in memory");
        let full =
            segments > i64::from(writer.ring.free_count()) || (slack == Slack::Keep && room < 0);
        if full {
            writer.counters.log_full += 1;
            return Err(CommitError::LogFull(journal));
        }
        joined.room = room;
        joined.pending.take(count, &mut writer.taken);
        // From here on the marks are found in `links`: both locks are held, so no closure can
        // miss them in between.
        for piece in &writer.pieces {
            let marks = writer
                .taken
                .marks_between(piece.handles.start, piece.handles.end);
            joined.links.push_back(Link {
                first: writer.taken.first + to_u64(piece.handles.start),
                last: writer.taken.first + to_u64(piece.handles.end) - 1,
                marks: marks.to_vec(),
            });
        }
        Ok(())
    }

    /// Writes one transaction.
    fn write_piece(
        &self,
        log: &CoreLog<S::Effect>,
        writer: &mut Writer,
        piece: &Piece,
    ) -> Result<()> {
        let first = writer.taken.first + to_u64(piece.handles.start);
        let last = writer.taken.first + to_u64(piece.handles.end) - 1;
        self.choose_marks(log.id, writer, piece, first..=last);
        if piece.new_segment {
            writer.counters.gap_blocks += u64::from(writer.ring.blocks_left());
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
            durable_upto: log.reached.durable(),
            seed: self.seed,
        };
        let sealed = seal(writer.buffer.as_mut_slice(), &what, &writer.marks, records);
        assert!(
            to_usize(sealed) == blocks,
            "the transaction has the planned length"
        );
        if let Err(error) = self.queue.write(
            at,
            &writer.buffer.as_slice()[..blocks * BLOCK_BYTES],
            WriteFlags::NONE,
        ) {
            self.stop(StopReason {
                cause: StopCause::LogWrite,
                journal: Some(log.id),
                at: Some(at),
                detail: error.to_string(),
            });
            return self.check_running();
        }
        let (segment, offset) = writer.ring.head();
        let sequence = writer.sequence;
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
        writer.counters.transactions += 1;
        writer.counters.blocks += u64::from(sealed);
        writer.counters.record_bytes += to_u64(records.len());
        writer.counters.marks += to_u64(writer.marks.len());
        // Only now: a flush that starts after this covers the write.
        log.reached.set_written(last);
        Ok(())
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
            // Crash scenario if a mark went as soon as its handle is written or even durable: the
            // handle may still be rejected for what *it* depends on, and this one with it.
            let done = if self.rules.marks_until_valid {
                self.valid_upto(mark.journal())
            } else {
                self.log(mark.journal()).reached.written()
            };
            mark.number() > done
                && !(own && numbers.contains(&mark.number()))
                && (!own || self.rules.self_marks)
                && self.rules.marks
        };
        writer.marks.clear();
        writer.marks.extend(all.iter().copied().filter(needed));
        writer.marks.sort_unstable();
        writer.marks.dedup();
        writer.counters.marks_dropped += to_u64(all.len() - writer.marks.len());
    }
}

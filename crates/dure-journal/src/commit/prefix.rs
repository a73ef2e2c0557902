//! Which handles a commit writes: the prefix of a journal up to what its closure needs.
//!
//! **Problem.** Several committers may need the same journal, and handles join it all the time.
//! **Structure.** The committer locks `writer`; the others wait for the lock, and mostly find that
//! their handles are written. It takes the prefix under `joined`, also the handles that others wait
//! for ([`Journal::with_others`]), cut into pieces that fit the ring; or what was closed and captured
//! (compound transactions). **Invariants.** What is taken is written, or the journal stops. A prefix
//! for which the log has no room is not taken. **Crash.** Nothing is on the medium yet.

use dure_sync::{MutexGuard, clock, current_core};

use super::{Result, Slack};
use crate::error::CommitError;
use crate::ids::{JournalId, Mark};
use crate::journal::{Journal, Settle};
use crate::log::{CoreLog, Joined, Link, WRITER, Writer};
use crate::records::image::take_closed;
use crate::space::{HANDLE_BYTES, HandleEnd, plan};
use crate::statistics::Stall;
use crate::units::{to_u64, to_usize};

/// Up to this many record bytes in one log write, a committer also writes handles that others wait
/// for.
const BYTES_WITH_OTHERS_MAX: usize = 256 << 10;

impl<S: Settle> Journal<S> {
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
    pub(super) fn write_upto(
        &self,
        journal: JournalId,
        upto: u64,
        slack: Slack,
    ) -> Result<Option<u64>> {
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
        let is_independent = |number: u64| {
            let index = usize::try_from(number - pending.first).expect("handles are in memory");
            let marks = pending.marks_between(index, index + 1);
            let done = |mark: &Mark| mark.journal() == log.id || self.is_valid(*mark);
            // Long runs of handles are left to their own committer.
            to_usize(pending.start_of(index + 1).bytes) <= BYTES_WITH_OTHERS_MAX
                && marks.iter().all(done)
        };
        (upto + 1..=wanted)
            .take_while(|number| is_independent(*number))
            .last()
            .unwrap_or(upto)
    }

    /// Writes the closed transactions of `journal`, which are captured, up to handle `upto`, unless
    /// another committer has. Returns the time at which its write ended, if it wrote.
    pub(crate) fn write_closed(&self, journal: JournalId, upto: u64) -> Result<Option<u64>> {
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
}

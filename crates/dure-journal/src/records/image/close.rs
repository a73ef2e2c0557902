//! Closes running transactions: that of one journal for a commit, or all of them at one moment.
//!
//! **Problem.** A transaction that is committed must gain no more handles. **Structure.** Under the
//! lock `joined` of its journal its writes are planned; if the log has room, it closes. All close at
//! one moment for a checkpoint, which needs everything up to there, and for a commit whose chain of
//! transactions does not end ([`super::commit`]). **Invariants.** Of transactions that close at one
//! moment each marks only what is closed by then. If one log is full, none of them closes.
//! **Crash.** Nothing is on the medium yet.

use dure_sync::{Arc, Mutex, MutexGuard, clock};

use super::{Capture, Closed, Head, Work};
use crate::commit::{Cut, Slack};
use crate::error::CommitError;
use crate::ids::Mark;
use crate::journal::{Journal, Settle};
use crate::log::{CoreLog, JOINED, Joined, Link};
use crate::records::TransactionId;
use crate::space::{HANDLE_BYTES, HandleEnd, PIECE_BYTES, Piece, plan_pieces};
use crate::units::{BLOCK_BYTES_U32, to_u32, to_u64};

/// A journal's transaction that is about to close.
pub(super) struct Closing {
    /// As if it had all the two-way marks it may have.
    ends: Vec<HandleEnd>,
    pieces: Vec<Piece>,
    head: Head,
    room: i64,
}

impl<S: Settle> Journal<S> {
    fn lock_all(&self) -> Vec<MutexGuard<'_, JOINED, Joined<S::Effect>>> {
        let logs = self.logs.iter();
        logs.map(|log| log.joined.lock_ordered()).collect()
    }

    /// Closes all that run, at one moment, whatever their committers wait for.
    pub(super) fn close_all(&self, slack: Slack) -> Result<(), CommitError> {
        self.close_locked(&mut self.lock_all(), slack)
    }

    /// Closes everything, and returns the last number of each journal.
    pub(crate) fn close_cut(&self) -> Cut {
        let mut all = self.lock_all();
        // If a log is too full even for this, the commit of the cut returns the error.
        let _ = self.close_locked(&mut all, Slack::Use);
        Cut::new(all.iter().map(|joined| joined.next() - 1).collect())
    }

    fn close_locked(
        &self,
        all: &mut [MutexGuard<'_, JOINED, Joined<S::Effect>>],
        slack: Slack,
    ) -> Result<(), CommitError> {
        let mut closing = Vec::new();
        for (log, joined) in self.logs.iter().zip(all.iter()) {
            if !joined.pending.ends.is_empty() {
                closing.push((log.id.index(), self.plan_closing(log, joined, slack)?));
            }
        }
        for (index, one) in closing {
            close_running(&self.logs[index], &mut all[index], one);
        }
        Ok(())
    }

    /// Closes the running transaction of one journal.
    pub(super) fn close_one(
        &self,
        log: &CoreLog<S::Effect>,
        joined: &mut Joined<S::Effect>,
    ) -> Result<(), CommitError> {
        let closing = self.plan_closing(log, joined, Slack::Keep)?;
        close_running(log, joined, closing);
        Ok(())
    }

    /// How the running transaction would be written.
    fn plan_closing(
        &self,
        log: &CoreLog<S::Effect>,
        joined: &Joined<S::Effect>,
        slack: Slack,
    ) -> Result<Closing, CommitError> {
        let images = &joined.images;
        let mut ends = joined.pending.ends.clone();
        let mut end = joined.pending.start_of(ends.len());
        let mut uncharged = 0;
        if log.running.marks_max() > 0 {
            // `usable` has room for these.
            end.marks += to_u32(log.running.marks_max());
            ends.push(end);
            uncharged = end.charge(joined.pending.start_of(joined.pending.ends.len()), 1);
        }
        for _ in &images.buffers {
            end.bytes += self.image_cost() - HANDLE_BYTES;
            ends.push(end);
        }
        let mut head = images.head;
        let mut pieces = Vec::new();
        plan_pieces(&ends, head.blocks_left, self.segment_blocks, &mut pieces);
        let mut segments = 0;
        for piece in &pieces {
            if piece.new_segment {
                segments += 1;
                head.blocks_left = self.segment_blocks;
            }
            let start = match piece.handles.start {
                0 => HandleEnd::START,
                start => ends[start - 1],
            };
            let bytes = ends[piece.handles.end - 1].charge(start, 0) + u64::from(PIECE_BYTES);
            head.blocks_left -= to_u32(
                usize::try_from(bytes.div_ceil(u64::from(BLOCK_BYTES_U32)))
                    .expect("the blocks of a piece fit in a segment"),
            );
        }
        let charge = end.charge(HandleEnd::START, ends.len()) - uncharged;
        let charge = i64::try_from(charge).expect("the bytes of a log fit in 63 bits");
        let room = joined.room - i64::from(segments) * self.usable() + charge;
        if segments > head.segments_free || (slack == Slack::Keep && room < 0) {
            log.tallies.join.close_full.add(1);
            return Err(CommitError::LogFull(log.id));
        }
        head.segments_free -= segments;
        Ok(Closing {
            ends,
            pieces,
            head,
            room,
        })
    }
}

/// Closes the running transaction of a journal.
fn close_running<E>(log: &CoreLog<E>, joined: &mut Joined<E>, closing: Closing) {
    let first = joined.pending.first;
    let ns = clock::monotonic_ns();
    let since_ns = std::mem::replace(&mut joined.since_ns, ns);
    let mut prefix = std::mem::take(&mut joined.pending);
    let handles = prefix.ends.len();
    let bytes = prefix.start_of(handles).charge(HandleEnd::START, 0);
    log.tallies.join.took(handles, bytes, closing.pieces.len());
    joined.pending.first = first + to_u64(closing.ends.len());
    joined.room = closing.room;
    let planned = prefix.marks.len() + log.running.marks_max();
    log.running.close(joined.pending.first, &mut prefix.marks);
    let notes = handles + usize::from(log.running.marks_max() > 0);
    let missing = to_u32(planned - prefix.marks.len());
    prefix.ends = closing.ends;
    for end in &mut prefix.ends[handles..] {
        end.marks -= missing;
    }
    let images = &mut joined.images;
    let sequence = images.sequence;
    for (sequence, piece) in (sequence..).zip(&closing.pieces) {
        let handles = &piece.handles;
        let mut marks = prefix.marks_between(handles.start, handles.end).to_vec();
        // A handle that depends on one piece depends on all.
        marks.extend(
            piece
                .partner
                .map(|at| Mark::new(log.id, first + to_u64(at))),
        );
        joined.links.push_back(Link {
            first: first + to_u64(handles.start),
            last: first + to_u64(handles.end) - 1,
            marks,
            sequence,
            since_ns,
            taken_ns: ns,
        });
    }
    prefix.ends.truncate(notes);
    images.sequence += to_u64(closing.pieces.len());
    images.head = closing.head;
    let work = Work {
        transaction: TransactionId {
            journal: log.id,
            number: first,
        },
        prefix,
        buffers: std::mem::take(&mut images.buffers),
    };
    images.closed.push_back(Closed {
        first,
        sequence,
        pieces: closing.pieces,
        work: Arc::new(Capture(Mutex::new(Some(work)))),
        ready: None,
    });
}

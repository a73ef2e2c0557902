//! Closes running transactions: the closure of a commit, or all of them for a checkpoint.
//!
//! **Problem.** Of transactions that close together, none may gain a handle of which another holds
//! a part. **Structure.** Under the locks `joined` of all journals that the closure touches, it is
//! searched and its writes are planned; if the logs have room, it closes. A committer comes here by
//! [`super::turn`]; a checkpoint at once, since it needs everything up to one moment and no handle
//! that is still open. **Invariants.** If one log is full, nothing closes. **Crash.** Nothing is on
//! the medium yet.

use std::cell::RefCell;

use dure_sync::{Arc, Mutex, clock};

use super::{Capture, Closed, Guards, Head, Work};
use crate::closure::{Closure, MarkSource};
use crate::commit::{Cut, Slack};
use crate::error::CommitError;
use crate::ids::{JournalId, Mark};
use crate::journal::{Journal, Settle};
use crate::log::{CoreLog, Joined, Link};
use crate::records::TransactionId;
use crate::space::{HANDLE_BYTES, HandleEnd, PIECE_BYTES, Piece, plan_pieces};
use crate::units::{BLOCK_BYTES_U32, to_u32, to_u64};

/// A journal's transaction that is about to close.
struct Closing {
    journal: JournalId,
    ends: Vec<HandleEnd>,
    pieces: Vec<Piece>,
    head: Head,
    room: i64,
}

/// The marks of journals that are locked.
pub(super) struct Still<'g, 'j, S: Settle> {
    pub(super) journal: &'j Journal<S>,
    pub(super) guards: &'g Guards<'j, S::Effect>,
    /// Journals that were asked for and are not locked.
    pub(super) missing: RefCell<Vec<JournalId>>,
}

impl<'g, 'j, S: Settle> Still<'g, 'j, S> {
    pub(super) fn new(journal: &'j Journal<S>, guards: &'g Guards<'j, S::Effect>) -> Self {
        Self {
            journal,
            guards,
            missing: RefCell::new(Vec::new()),
        }
    }
}

impl<S: Settle> MarkSource for Still<'_, '_, S> {
    fn is_valid(&self, mark: Mark) -> bool {
        self.journal.is_valid(mark)
    }

    fn marks_of(
        &self,
        journal: JournalId,
        above: u64,
        upto: u64,
        sink: &mut dyn FnMut(Mark),
    ) -> u64 {
        let Some(joined) = self.guards.get(journal) else {
            self.missing.borrow_mut().push(journal);
            return upto;
        };
        let covered = joined.marks_of_links(above, upto, sink);
        if covered < joined.pending.first {
            return covered;
        }
        // The running transaction counts as a whole.
        joined.pending.marks.iter().copied().for_each(&mut *sink);
        joined.images.shared.iter().copied().for_each(sink);
        joined.next() - 1
    }
}

impl<S: Settle> Journal<S> {
    fn lock_all(&self) -> Guards<'_, S::Effect> {
        Guards::lock(self, self.logs.iter().map(|log| log.id).collect())
    }

    /// Closes the closure of `roots` for a checkpoint, at one moment, whatever its committers wait
    /// for. Nothing is closed if some log is full.
    pub(crate) fn close(&self, roots: impl Iterator<Item = Mark>) -> Result<Closure, CommitError> {
        let mut guards = self.lock_all();
        let mut closure = Closure::new(self.logs.len());
        let still = Still::new(self, &guards);
        roots.for_each(|root| closure.require(&still, root));
        if closure.is_empty() {
            return Ok(closure);
        }
        closure.extend(&still);
        self.close_covered(&mut guards, &mut closure, Slack::Use)?;
        Ok(closure)
    }

    /// Closes everything, and returns the last number of each journal.
    pub(crate) fn close_cut(&self) -> Cut {
        let mut guards = self.lock_all();
        let mut closure = Closure::new(self.logs.len());
        let still = Still::new(self, &guards);
        for (log, joined) in self.logs.iter().zip(&guards.guards) {
            if joined.next() > 1 {
                closure.require(&still, Mark::new(log.id, joined.next() - 1));
            }
        }
        closure.extend(&still);
        // If a log is too full even for this, the commit of the cut returns the error.
        let _ = self.close_covered(&mut guards, &mut closure, Slack::Use);
        let joined = guards.guards.iter();
        Cut::new(joined.map(|joined| joined.next() - 1).collect())
    }

    pub(super) fn close_covered(
        &self,
        guards: &mut Guards<'_, S::Effect>,
        closure: &mut Closure,
        slack: Slack,
    ) -> Result<(), CommitError> {
        let mut closing = Vec::new();
        for id in closure.journals() {
            let joined = &*guards.of(*id);
            if closure.upto(*id) >= joined.pending.first {
                let one = self.plan_closing(*id, joined, slack);
                let Some(one) = one else {
                    self.log(*id).tallies.join.close_full.add(1);
                    return Err(CommitError::LogFull(*id));
                };
                closing.push(one);
            }
        }
        for one in closing {
            let log = self.log(one.journal);
            let last = close_running(log, guards.of(one.journal), one);
            closure.cover(log.id, last);
        }
        Ok(())
    }

    /// How the running transaction would be written; `None` if the log is full.
    fn plan_closing(
        &self,
        journal: JournalId,
        joined: &Joined<S::Effect>,
        slack: Slack,
    ) -> Option<Closing> {
        let images = &joined.images;
        let mut ends = joined.pending.ends.clone();
        let mut end = joined.pending.start_of(ends.len());
        if !images.shared.is_empty() {
            end.marks += to_u32(images.shared.len());
            ends.push(end);
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
        let charge = end.charge(HandleEnd::START, ends.len());
        let charge = i64::try_from(charge).expect("the bytes of a log fit in 63 bits");
        let room = joined.room - i64::from(segments) * self.usable() + charge;
        if segments > head.segments_free || (slack == Slack::Keep && room < 0) {
            return None;
        }
        head.segments_free -= segments;
        Some(Closing {
            journal,
            ends,
            pieces,
            head,
            room,
        })
    }
}

/// Closes the running transaction of a journal; returns its last number.
fn close_running<E>(log: &CoreLog<E>, joined: &mut Joined<E>, closing: Closing) -> u64 {
    let first = joined.pending.first;
    let count = closing.ends.len();
    let last = first + to_u64(count) - 1;
    let ns = clock::monotonic_ns();
    let since_ns = std::mem::replace(&mut joined.since_ns, ns);
    let mut prefix = std::mem::take(&mut joined.pending);
    let handles = prefix.ends.len();
    let bytes = prefix.start_of(handles).charge(HandleEnd::START, 0);
    log.tallies.join.took(handles, bytes, closing.pieces.len());
    joined.pending.first = last + 1;
    joined.room = closing.room;
    let images = &mut joined.images;
    let notes = prefix.ends.len() + usize::from(!images.shared.is_empty());
    prefix.marks.append(&mut images.shared);
    prefix.ends = closing.ends;
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
    let transaction = TransactionId {
        journal: log.id,
        number: images.running,
    };
    images.running += 1;
    let work = Work {
        transaction,
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
    last
}

//! `records=image`: whole buffers, copied at commit (Z-Journal as published; with one journal,
//! JBD2).
//!
//! **Problem.** A copy taken at commit is one write for any number of changes, but holds the
//! changes of *every* handle up to then, and must hold none of them in part. **Structure.** A
//! joining handle *files* each buffer it changes in its journal's running transaction. If the
//! running transaction of another journal has the buffer, it stays there and the two transactions
//! mark each other. A commit *closes* the running transactions of its closure at one moment, then
//! *captures* their buffers and writes notes and images. A handle that changes a buffer which a
//! closed transaction has not captured yet first *freezes* a copy for it, so that no handle waits
//! for a commit, and files the buffer anew.
//!
//! # Why no image holds part of a handle
//! **Invariants.**
//! * Closing takes the lock `joined` of every journal, so the closure is fixed there and then; all
//!   its transactions close together, and none of them can gain a handle of which another holds a
//!   part.
//! * A handle joins, under the locks of all journals whose running transactions it touches, before
//!   it changes a byte; and it holds its buffers until it has changed them. So what a closed
//!   transaction captures is exactly the handles that had joined.
//! * A closed transaction that does not fit one segment is written in pieces, each of which marks
//!   the next, the last the first: closures and recovery take all of them or none.
//! * Images are charged like handles, one each: [`crate::space`] holds.
//!
//! **Crash.** As with deltas: if a closed set is half written, recovery cuts it back by the marks.
//! An image carries the versions of its granules; the newest counts, in whatever journal it is.
//!
//! # Faults of the released Z-Journal
//! None of them is possible here: recovery is one for all journals, marks stay until *valid* and
//! the greatest closed set decides; versions order images, no clock does; marks have a length; a
//! two-way mark is charged to the journal that gets it; cores map to journals modulo their number;
//! the end of a buffer's life has a version, newer than all before in any journal.

use std::collections::VecDeque;

use dure_sync::{Arc, CoreId, Mutex, MutexGuard, clock};

use super::{Buffer, Owner, Records, TransactionId};
use crate::closure::{Closure, MarkSource};
use crate::commit::{Cut, Slack};
use crate::error::{BeginError, CommitError};
use crate::format::{IMAGE_HEAD_BYTES, put_image};
use crate::handle::Handle;
use crate::ids::{JournalId, Mark};
use crate::journal::{Journal, Settle};
use crate::log::{CAPTURE, CoreLog, JOINED, Joined, Link, Prefix, Writer};
use crate::space::{HANDLE_BYTES, HandleEnd, MARK_BYTES, PIECE_BYTES, Piece, plan_pieces};
use crate::units::{BLOCK_BYTES_U32, to_u32, to_u64};

/// What an operation does to a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Its content changes.
    Content,
    /// Its life ends: it needs no image any more.
    End,
}

/// A buffer that a handle changes. The caller holds it exclusively.
#[derive(Debug)]
pub struct BufferUse {
    /// The buffer.
    pub buffer: Box<dyn Buffer>,
    /// The kind of change.
    pub change: Change,
}

/// The result of [`Handle::join_images`].
#[derive(Debug)]
pub struct ImageJoin {
    /// The handle's number.
    pub mark: Mark,
    /// Uses (by position) whose buffer the caller must [`super::Hold::freeze`] for a transaction
    /// before it changes it.
    pub freeze: Vec<(usize, TransactionId)>,
}

/// The running transaction of a journal and the closed ones that are not written. Protected by
/// `joined`.
#[derive(Debug)]
pub(crate) struct Images {
    /// Number of the running compound transaction.
    running: u64,
    /// The buffers filed in it.
    buffers: Vec<Box<dyn Buffer>>,
    /// Two-way marks: the last handle of each other journal that changed one of its buffers. Such a
    /// journal closes whenever this one does, so one mark each is enough.
    shared: Vec<Mark>,
    closed: VecDeque<Closed>,
    /// Sequence of the next piece.
    sequence: u64,
    /// Where the ring's head will be when all that is closed is written.
    pub(crate) head: Head,
}

/// Blocks left in the segment being written, and free segments after it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) blocks_left: u32,
    pub(crate) segments_free: u32,
}

/// A closed transaction: no further handle joins it.
#[derive(Debug)]
struct Closed {
    first: u64,
    /// Sequence of its first piece.
    sequence: u64,
    pieces: Vec<Piece>,
    work: Arc<Capture>,
    /// Its records, once captured.
    ready: Option<Prefix>,
}

/// The buffers to capture; empty once a task captures them.
#[derive(Debug)]
struct Capture(Mutex<CAPTURE, Option<Work>>);

#[derive(Debug)]
struct Work {
    transaction: TransactionId,
    prefix: Prefix,
    buffers: Vec<Box<dyn Buffer>>,
}

impl Images {
    pub(crate) fn new(head: Head) -> Self {
        Self {
            running: 1,
            buffers: Vec::new(),
            shared: Vec::new(),
            closed: VecDeque::new(),
            sequence: 1,
            head,
        }
    }

    /// Log bytes of the two-way marks, which are written as a handle of their own.
    fn shared_cost(&self) -> u32 {
        match to_u32(self.shared.len()) {
            0 => 0,
            marks => HANDLE_BYTES + marks * MARK_BYTES,
        }
    }
}

type Guards<'j, E> = Vec<MutexGuard<'j, JOINED, Joined<E>>>;
/// A journal's transaction that is about to close.
struct Closing {
    journal: usize,
    ends: Vec<HandleEnd>,
    pieces: Vec<Piece>,
    head: Head,
    room: i64,
}

/// All journals, with every `joined` locked.
struct Still<'g, 'j, S: Settle> {
    journal: &'j Journal<S>,
    guards: &'g Guards<'j, S::Effect>,
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
        let joined = &self.guards[journal.index()];
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
    /// Log bytes of one image, as charged.
    pub(crate) fn image_cost(&self) -> u32 {
        match self.records {
            Records::Delta => 0,
            Records::Image { image_bytes_max } => {
                to_u32(IMAGE_HEAD_BYTES) + image_bytes_max + HANDLE_BYTES
            }
        }
    }

    /// As [`Journal::begin`], for a handle that changes at most `buffers_max` buffers: their images
    /// are not part of `bytes_max`.
    ///
    /// # Errors
    /// As [`Journal::begin`].
    pub fn begin_images(
        &self,
        core: CoreId,
        bytes_max: usize,
        buffers_max: u32,
    ) -> Result<Handle<'_, S>, BeginError> {
        assert!(
            self.records != Records::Delta,
            "buffers are filed only with records=image"
        );
        self.begin_reserved(core, bytes_max, buffers_max * self.image_cost())
    }

    /// The least number of segments of a ring whose empty log has room for such a handle.
    #[must_use]
    pub fn segments_for(&self, bytes_max: usize, buffers_max: u32) -> u32 {
        let bytes = to_u32(bytes_max) + HANDLE_BYTES + buffers_max * self.image_cost();
        let segments = i64::from(bytes)
            .cast_unsigned()
            .div_ceil(self.usable().cast_unsigned());
        // Plus the one that is being written.
        1 + u32::try_from(segments).expect("no more segments than bytes, which fit in 32 bits")
    }

    fn lock_all(&self) -> Guards<'_, S::Effect> {
        let logs = self.logs.iter();
        logs.map(|log| log.joined.lock_ordered()).collect()
    }

    /// Closes the closure of `roots`, at one moment. Nothing is closed if some log is full.
    pub(crate) fn close(
        &self,
        roots: impl Iterator<Item = Mark>,
        slack: Slack,
    ) -> Result<Closure, CommitError> {
        let mut guards = self.lock_all();
        let still = Still {
            journal: self,
            guards: &guards,
        };
        let mut closure = Closure::new(self.logs.len());
        roots.for_each(|root| closure.require(&still, root));
        if closure.is_empty() {
            return Ok(closure);
        }
        closure.extend(&still);
        self.close_covered(&mut guards, &mut closure, slack)?;
        Ok(closure)
    }

    /// Closes everything, and returns the last number of each journal.
    pub(crate) fn close_cut(&self) -> Cut {
        let mut guards = self.lock_all();
        let mut closure = Closure::new(self.logs.len());
        let still = Still {
            journal: self,
            guards: &guards,
        };
        for (log, joined) in self.logs.iter().zip(&guards) {
            if joined.next() > 1 {
                closure.require(&still, Mark::new(log.id, joined.next() - 1));
            }
        }
        closure.extend(&still);
        // If a log is too full even for this, the commit of the cut returns the error.
        let _ = self.close_covered(&mut guards, &mut closure, Slack::Use);
        Cut::new(guards.iter().map(|joined| joined.next() - 1).collect())
    }

    fn close_covered(
        &self,
        guards: &mut Guards<'_, S::Effect>,
        closure: &mut Closure,
        slack: Slack,
    ) -> Result<(), CommitError> {
        let mut closing = Vec::new();
        for id in closure.journals() {
            let joined = &guards[id.index()];
            if closure.upto(*id) >= joined.pending.first {
                let one = self.plan_closing(id.index(), joined, slack);
                let Some(one) = one else {
                    self.log(*id).tallies.join.close_full.add(1);
                    return Err(CommitError::LogFull(*id));
                };
                closing.push(one);
            }
        }
        for one in closing {
            let log = &self.logs[one.journal];
            let last = close_running(log, &mut guards[one.journal], one);
            closure.cover(log.id, last);
        }
        Ok(())
    }

    /// How the running transaction would be written; `None` if the log is full.
    fn plan_closing(
        &self,
        journal: usize,
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

    /// Captures the images of everything closed in `journal` up to handle `upto`. A second task
    /// waits for the first.
    pub(crate) fn capture_closed(&self, journal: JournalId, upto: u64) {
        let log = self.log(journal);
        let work: Vec<Arc<Capture>> = {
            let joined = log.joined.lock();
            let closed = joined.images.closed.iter();
            let wanted = closed.filter(|closed| closed.first <= upto && closed.ready.is_none());
            wanted.map(|closed| Arc::clone(&closed.work)).collect()
        };
        for capture in work {
            let mut work = capture.0.lock();
            if let Some(work) = work.take() {
                capture_one(log, work);
            }
        }
    }
}

/// Moves the oldest closed transaction, which is captured, to the writer.
pub(crate) fn take_closed<E>(joined: &mut Joined<E>, writer: &mut Writer) {
    let closed = joined.images.closed.pop_front();
    let closed = closed.expect("what is joined and not written is closed before it is written");
    writer.taken = closed.ready.expect("captured before it is written");
    writer.pieces = closed.pieces;
    assert!(
        closed.sequence == writer.sequence && writer.taken.first == closed.first,
        "written in the order of closing"
    );
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

fn capture_one<E>(log: &CoreLog<E>, work: Work) {
    let Work {
        transaction,
        mut prefix,
        buffers,
    } = work;
    let mut image = Vec::new();
    let marks = prefix.start_of(prefix.ends.len()).marks;
    let mut logged = 0;
    for buffer in &buffers {
        image.clear();
        buffer.capture(transaction, &mut image);
        if !image.is_empty() {
            put_image(&mut prefix.bytes, buffer.nid(), &image);
            logged += 1;
        }
        prefix.ends.push(HandleEnd {
            bytes: to_u32(prefix.bytes.len()),
            marks,
        });
    }
    let mut joined = log.joined.lock();
    log.tallies.join.images.add(logged);
    let mut closed = joined.images.closed.iter_mut();
    let closed = closed
        .find(|closed| closed.first == prefix.first)
        .expect("it is written only once it is ready");
    closed.ready = Some(prefix);
}

impl<S: Settle> Handle<'_, S> {
    /// Ends the handle, as [`Handle::join`]; the bytes it changed are logged as images of `uses`.
    /// The caller holds these buffers exclusively until it has changed them; it first freezes the
    /// ones that the result names. It has marked the last writers of all they hold.
    ///
    /// # Panics
    /// If the handle did not reserve enough when it began.
    #[must_use = "images may have to be frozen"]
    pub fn join_images(mut self, uses: Vec<BufferUse>) -> ImageJoin {
        let mut buffers = self.take_buffers();
        let (journal, own) = (self.of(), self.journal());
        let owners: Vec<Option<Owner>> = uses.iter().map(|one| one.buffer.hold().owner()).collect();
        let foreign = owners
            .iter()
            .flatten()
            .map(|owner| owner.transaction.journal);
        let mut ids: Vec<JournalId> = foreign.chain([own]).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut guards: Guards<'_, S::Effect> = ids
            .iter()
            .map(|id| journal.log(*id).joined.lock_ordered())
            .collect();
        let place = |id: JournalId| ids.binary_search(&id).expect("locked above");
        let number = guards[place(own)].next();
        let transaction = TransactionId {
            journal: own,
            number: guards[place(own)].images.running,
        };
        let mut freeze = Vec::new();
        let mut filed = 0;
        for (at, (one, owner)) in uses.into_iter().zip(&owners).enumerate() {
            let running = owner.filter(|owner| {
                let there = &guards[place(owner.transaction.journal)];
                there.images.running == owner.transaction.number
            });
            if let Some(owner) = running {
                let theirs = owner.transaction.journal;
                if theirs != own {
                    // Both ways: only their image will hold this change.
                    let there = &mut guards[place(theirs)];
                    buffers.marks.push(Mark::new(theirs, there.pending.first));
                    if journal.rules.two_way.holds() {
                        share(there, Mark::new(own, number));
                        journal.log(theirs).tallies.join.two_way.add(1);
                    }
                }
                continue;
            }
            if let Some(owner) = owner
                && !owner.captured
                && journal.rules.freeze.holds()
            {
                freeze.push((at, owner.transaction));
            }
            if one.change == Change::End {
                one.buffer.hold().set_owner(None);
                continue;
            }
            one.buffer.hold().set_owner(Some(transaction));
            let here = &mut guards[place(own)];
            here.images.buffers.push(one.buffer);
            filed += 1;
        }
        let here = &mut guards[place(own)];
        journal
            .log(own)
            .tallies
            .join
            .frozen
            .add(to_u64(freeze.len()));
        let used = self.join_under(here, number, buffers, filed * journal.image_cost());
        drop(guards);
        ImageJoin {
            mark: self.trace_join(number, used),
            freeze,
        }
    }
}

/// Notes that the running transaction of this journal is valid only with handle `mark`.
fn share<E>(joined: &mut Joined<E>, mark: Mark) {
    let before = joined.images.shared_cost();
    let marks = &mut joined.images.shared;
    match marks
        .iter_mut()
        .find(|known| known.journal() == mark.journal())
    {
        Some(known) => *known = (*known).max(mark),
        None => marks.push(mark),
    }
    joined.room -= i64::from(joined.images.shared_cost() - before);
}

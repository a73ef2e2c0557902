//! Whole buffers, copied at commit: compound transactions as in JBD2 (one journal) and Z-Journal (one
//! per core).
//!
//! **Problem.** A copy taken at commit is one write for any number of changes, but holds the
//! changes of *every* handle up to then, and must hold none of them in part. **Structure.** A
//! joining handle *files* each buffer it changes in its journal's running transaction. If the
//! running transaction of another journal has the buffer, it stays there and the two transactions
//! mark each other. A commit waits until no handle is open in the running transactions of its closure,
//! *closes* them at one moment, then *captures* their buffers and writes notes and images. A handle that changes a buffer which a
//! closed transaction has not captured yet first *freezes* a copy for it, so that no handle waits
//! for a commit, and files the buffer anew. Filing is in [`join`], waiting in [`turn`], closing in
//! [`close`], capturing in [`capture`].
//!
//! # Why no image holds part of a handle
//! **Invariants.**
//! * Closing takes the lock `joined` of every journal of the closure, so it is fixed there and then;
//!   all its transactions close together, and none of them can gain a handle of which another holds
//!   a part.
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

mod capture;
mod close;
mod join;
mod turn;

use std::collections::VecDeque;

use dure_sync::{Arc, CoreId, Mutex, MutexGuard};

pub use turn::WriteAccess;
pub(crate) use turn::{OpenHandle, Phase};

pub(crate) use capture::take_closed;
pub use join::{BufferUse, Change, ImageJoin};

use super::{Buffer, Records, TransactionId};
use crate::error::BeginError;
use crate::format::IMAGE_HEAD_BYTES;
use crate::handle::Handle;
use crate::ids::{JournalId, Mark};
use crate::journal::{Journal, Settle};
use crate::log::{CAPTURE, JOINED, Joined, Prefix};
use crate::space::{HANDLE_BYTES, MARK_BYTES, Piece};
use crate::units::to_u32;

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
    /// Handles that have begun and neither joined nor been dropped.
    open: u32,
    /// How far the committer of the journal has come, if there is one.
    phase: Phase,
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
            open: 0,
            phase: Phase::Running,
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

/// Some journals, ascending, with their `joined` locked.
struct Guards<'j, E> {
    ids: Vec<JournalId>,
    guards: Vec<MutexGuard<'j, JOINED, Joined<E>>>,
}

impl<'j, E> Guards<'j, E> {
    /// Locks these; `ids` is sorted.
    fn lock<S: Settle<Effect = E>>(journal: &'j Journal<S>, ids: Vec<JournalId>) -> Self {
        let guards = ids.iter().map(|id| journal.log(*id).joined.lock_ordered());
        Self {
            guards: guards.collect(),
            ids,
        }
    }

    fn place(&self, id: JournalId) -> Option<usize> {
        self.ids.binary_search(&id).ok()
    }

    fn get(&self, id: JournalId) -> Option<&Joined<E>> {
        self.place(id).map(|place| &*self.guards[place])
    }

    fn of(&mut self, id: JournalId) -> &mut Joined<E> {
        let place = self.place(id).expect("the caller has locked it");
        &mut self.guards[place]
    }

    /// Unlocks all but one.
    fn keep(mut self, id: JournalId) -> MutexGuard<'j, JOINED, Joined<E>> {
        let place = self.place(id).expect("the caller has locked it");
        self.guards.swap_remove(place)
    }
}

impl<S: Settle> Journal<S> {
    /// Log bytes of one image, as charged.
    pub(crate) fn image_cost(&self) -> u32 {
        match self.records {
            Records::Delta | Records::None => 0,
            Records::Image { image_bytes_max } => {
                to_u32(IMAGE_HEAD_BYTES) + image_bytes_max + HANDLE_BYTES
            }
        }
    }

    /// Like [`Journal::begin`], for a handle that changes at most `buffers_max` buffers: their
    /// images are not part of `bytes_max`.
    ///
    /// # Errors
    /// Those of [`Journal::begin`].
    pub fn begin_images(
        &self,
        core: CoreId,
        bytes_max: usize,
        buffers_max: u32,
    ) -> Result<Handle<'_, S>, BeginError> {
        assert!(
            self.records != Records::Delta,
            "buffers are filed only with journal=zjournal"
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
}

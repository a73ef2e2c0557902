//! Whole buffers, copied at commit: compound transactions as in JBD2 (one journal) and Z-Journal (one
//! per core).
//!
//! **Problem.** A copy taken at commit is one write for any number of changes, but holds the
//! changes of *every* handle up to then, and must hold none of them in part. **Structure.** A
//! joining handle *files* each buffer it changes in its journal's running transaction. If the
//! running transaction of another journal has the buffer, it stays there and the two transactions
//! mark each other. A commit waits until no handle is open in the running transaction of one
//! journal, *closes* it, then *captures* its buffers and writes notes and images. Journals commit
//! independently, each by its own thread where there are threads; a *walk* over marks finds later
//! what is valid. A handle that changes a buffer which a closed transaction has not captured yet
//! first *freezes* a copy for it, so that no handle waits for a commit, and files the buffer anew.
//! Filing is in [`join`] and [`running`], waiting in [`turn`] and [`task`], closing in [`close`],
//! capturing in [`capture`], what a caller waits for in [`commit`], validity in [`walk`].
//!
//! # Why no image holds part of a handle
//! **Invariants.**
//! * A handle joins before it changes a byte, and holds its buffers until it has changed them. So
//!   what a closed transaction captures is the handles of its journal that had joined, and those of
//!   others that found it running.
//! * Of these others it has the marks: they put them before they look whether it runs, and it says
//!   that it does not before it takes the marks ([`running`]).
//! * A closed transaction that does not fit one segment is written in pieces, each of which marks
//!   the next, the last the first: recovery takes all of them or none.
//! * Images are charged like handles, one each: [`crate::space`] holds.
//!
//! **Crash.** As with deltas: recovery cuts what is on the medium back by the marks. An image
//! carries the versions of its granules; the newest counts, in whatever journal it is.
//!
//! # Faults of the released Z-Journal
//! None of them is possible here: recovery is one for all journals, marks stay until *valid* and
//! the greatest closed set decides; versions order images, no clock does; marks have a length, and
//! room of their own in each segment; cores map to journals modulo their number; the end of a
//! buffer's life has a version, newer than all before in any journal; a commit returns for what is
//! valid, not for what all journals have committed.

mod capture;
mod close;
mod commit;
mod join;
mod running;
mod task;
mod turn;
mod view;
mod walk;

use std::collections::VecDeque;

use dure_sync::{Arc, CoreId, Mutex};

pub(crate) use running::Running;
pub use task::CommitTask;
pub use turn::WriteAccess;
pub(crate) use turn::{OpenHandle, Phase};
pub use view::{TransactionState, TransactionView};

pub(crate) use capture::take_closed;
pub use join::{BufferUse, Change, ImageJoin};

use super::{Buffer, Records, TransactionId};
use crate::error::BeginError;
use crate::format::IMAGE_HEAD_BYTES;
use crate::handle::Handle;
use crate::journal::{Journal, Settle};
use crate::log::{CAPTURE, Prefix};
use crate::space::{HANDLE_BYTES, Piece};
use crate::units::to_u32;

/// The running transaction of a journal and the closed ones that are not written. Protected by
/// `joined`.
#[derive(Debug)]
pub(crate) struct Images {
    /// The buffers filed in the running transaction.
    buffers: Vec<Box<dyn Buffer>>,
    /// Handles that have begun and neither joined nor been dropped.
    open: u32,
    /// How far the committer of the journal has come, if there is one.
    phase: Phase,
    task: task::TaskState,
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
            buffers: Vec::new(),
            open: 0,
            phase: Phase::Running,
            task: task::TaskState::default(),
            closed: VecDeque::new(),
            sequence: 1,
            head,
        }
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

//! What the log holds of a change.
//!
//! **Problem.** A commit must write enough to restore every change. The changed bytes are few, but
//! need all changes before them; whole buffers need none, but also hold what *other* handles
//! changed in them. **Structure.** One file per policy:
//!
//! | policy | a handle logs | a commit writes | marks | origin |
//! |---|---|---|---|---|
//! | [`image`] | which buffers | copies of them | two ways | JBD2 (one journal), Z-Journal |
//! | delta ([`crate::handle`], [`crate::commit`]) | the bytes it changed | these | one way | dure |
//! | [`none`] | nothing | nothing | none | ext4 without a journal |
//!
//! With `image`, running transactions that share a buffer mark each other. Notes, marks, numbers,
//! the closure, validity, tails and recovery are the same for these two; each record in the log has its
//! kind.
//!
//! **Invariants.** The policy is fixed while a volume is mounted. **Crash.** See the policies.

pub(crate) mod image;
mod none;

use dure_sync::Mutex;

pub use image::{
    BufferUse, Change, CommitTask, ImageJoin, TransactionState, TransactionView, WriteAccess,
};

use crate::ids::{JournalId, Nid};
use crate::log::HOLD;

/// What the log holds of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Records {
    /// The bytes that changed: [`crate::Handle::delta`] and [`crate::Handle::join`].
    #[default]
    Delta,
    /// A copy of each changed buffer: [`crate::Handle::join_images`].
    Image {
        /// The longest image.
        image_bytes_max: u32,
    },
    /// Nothing. A crash loses what no checkpoint has, and more: the medium must not be used after
    /// one before it was repaired.
    None,
}

/// A compound transaction: what one journal gathers between two commits (policy `image`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransactionId {
    /// Its journal.
    pub(crate) journal: JournalId,
    /// That of its first handle.
    pub(crate) number: u64,
}

/// Something that is logged as a whole (policy `image`).
pub trait Buffer: Send + Sync + std::fmt::Debug {
    /// Its name in the log.
    fn nid(&self) -> Nid;

    /// The journal's state of it.
    fn hold(&self) -> &Hold;

    /// Appends to `out` the image that `transaction` logs: the frozen one if a handle has frozen
    /// one ([`Hold::take_frozen`]), else the present one ([`Hold::captured`] notes that it is
    /// taken), or nothing if the buffer's life has ended. It excludes handles that change the
    /// buffer from before it checks for a frozen image until after it has called
    /// [`Hold::captured`].
    fn capture(&self, transaction: TransactionId, out: &mut Vec<u8>);
}

/// Which transaction a buffer belongs to, and the images that younger handles have frozen for older
/// transactions. Changed only by a task that holds the buffer exclusively.
#[derive(Debug)]
pub struct Hold(Mutex<HOLD, HoldState>);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) transaction: TransactionId,
    /// The transaction has taken its image.
    pub(crate) captured: bool,
}

#[derive(Debug, Default)]
struct HoldState {
    owner: Option<Owner>,
    frozen: Vec<(TransactionId, Vec<u8>)>,
}

impl Default for Hold {
    fn default() -> Self {
        Self::new()
    }
}

impl Hold {
    /// The state of a buffer of no transaction.
    #[must_use]
    pub fn new() -> Self {
        Self(Mutex::new(HoldState::default()))
    }

    pub(crate) fn owner(&self) -> Option<Owner> {
        self.0.lock().owner
    }

    pub(crate) fn set_owner(&self, transaction: Option<TransactionId>) {
        self.0.lock().owner = transaction.map(|transaction| Owner {
            transaction,
            captured: false,
        });
    }

    /// Keeps the image as it was at the commit of `transaction`, before a younger handle changes
    /// it.
    pub fn freeze(&self, transaction: TransactionId, image: Vec<u8>) {
        let mut state = self.0.lock();
        assert!(
            state.frozen.iter().all(|(of, _)| *of != transaction),
            "an image is frozen once per transaction"
        );
        state.frozen.push((transaction, image));
    }

    /// The image frozen for `transaction`, if there is one.
    pub fn take_frozen(&self, transaction: TransactionId) -> Option<Vec<u8>> {
        let mut state = self.0.lock();
        let at = state.frozen.iter().position(|(of, _)| *of == transaction)?;
        Some(state.frozen.swap_remove(at).1)
    }

    /// `transaction` has taken its image: no handle has to freeze one for it any more.
    pub fn captured(&self, transaction: TransactionId) {
        let mut state = self.0.lock();
        if let Some(owner) = &mut state.owner
            && owner.transaction == transaction
        {
            owner.captured = true;
        }
    }
}

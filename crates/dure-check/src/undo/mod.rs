//! The undo file of a repair: what stood in every block before it was written.
//!
//! **Problem.** A repair decides; a user that does not like its decision, or whose machine stops in
//! the midst of it, wants the volume back as it was. **Structure.** [`UndoDevice`] stands between
//! the repair and the medium and saves blocks (`device`); [`undo`] puts them back (`apply`);
//! `format` has the bytes of the file, `read` follows its records.
//!
//! **Invariants.** A block's old content, and the checksum of what will replace it, are durable in
//! the file before the block is written. The file belongs to one volume, and to that volume as the
//! repair left it: another one, and one that was changed since, are refused, and nothing is written
//! then. **Crash.** Whenever a repair is cut off, its file brings the volume back. Whenever an undo
//! is cut off, it can be done again.

mod apply;
mod device;
mod format;
mod read;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::io;

pub use apply::{Undone, undo};
pub use device::{Saved, UndoDevice};

/// The rank of the lock of a file that is written.
pub(crate) const UNDO_RANK: u8 = 190;

/// The file, as the host stores it.
pub trait UndoFile: Send + Sync + Debug {
    /// Reads at byte `at`; returns how many bytes there were, fewer only at the end.
    ///
    /// # Errors
    /// The host's.
    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<usize>;

    /// Writes at byte `at`, behind the end if need be.
    ///
    /// # Errors
    /// The host's.
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// The host's.
    fn sync(&self) -> io::Result<()>;
}

/// Why an undo was refused, or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UndoError {
    /// The undo file cannot be read or written.
    #[error("the undo file: {0}")]
    File(#[from] io::Error),
    /// It is something else, or its beginning is damaged.
    #[error("is no undo file of dure: {0}")]
    NotUndo(&'static str),
    /// It was made of another volume.
    #[error("the undo file is of volume {file}, and this is volume {volume}")]
    OtherVolume {
        /// The volume the file was made of.
        file: uuid::Uuid,
        /// The one it was to be applied to.
        volume: uuid::Uuid,
    },
    /// The volume is not as the repair left it.
    #[error(
        "the volume was changed after the repair: block {block} is neither as before it nor as \
         after it; to take the repair back would destroy what came since"
    )]
    Changed {
        /// The first block that shows it.
        block: u64,
    },
    /// The volume cannot be read or written.
    #[error(transparent)]
    Volume(#[from] dure_store::error::Error),
}

//! Copies of whole trees between the host and a volume: what `dure put` and `dure get` do.
//!
//! **Problem.** A copy that loses hard links, holes or nanoseconds is not the same tree; one that
//! names or links lead out of its destination is an attack. **Structure.** `put` reads the host and
//! writes the volume, `get` the reverse
//! (from any [`Source`]); both walk depth first, the volume by path, the host by
//! open directories (`host`), and share the account in [`Progress`].
//!
//! **Invariants.** Names of one inode become names of one inode in the copy. On the host no link is
//! followed below the path the caller gave. **On a crash** the copied part is there as far as it
//! was made durable; nothing is synced here, the caller decides that.
//!
//! # Order of one entry
//! Content, owner, mode (a change of owner clears set-id bits), attributes, and times last; those
//! of a directory after its entries.
//!
//! ```
//! # let session = dure::Volume::in_memory(32 << 20)?.root();
//! # let host = tempfile::tempdir().unwrap();
//! use std::ops::ControlFlow::Continue;
//! session.create_dir("/notes")?;
//! session.write("/notes/today", b"sown")?;
//! let copied = dure::tree::get(&session, "/notes", host.path().join("copy"), &mut |_| Continue(()))?;
//! assert_eq!((copied.files, copied.bytes), (2, 4));
//! dure::tree::put(&session, host.path().join("copy"), "/again", &mut |_| Continue(()))?;
//! assert_eq!(session.read("/again/today")?, b"sown");
//! # Ok::<(), dure::Error>(())
//! ```

mod clone;
mod get;
mod host;
mod put;
mod source;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

pub use clone::{clone, clone_all};
pub use get::{get, get_all, get_all_from, get_from};
pub use put::{put, put_all};
pub use source::{Content, Failed, OfVolume, Source};

use crate::error::Cause;

/// Whether only root may set this extended attribute.
fn is_privileged(name: &[u8]) -> bool {
    name.starts_with(b"trusted.") || name.starts_with(b"security.")
}

/// Bytes copied at a time.
const CHUNK: usize = 1 << 20;

/// How far a copy is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Names created: files, directories, links and the rest.
    pub files: u64,
    /// Bytes of content copied; holes do not count.
    pub bytes: u64,
    /// Extended attributes that the target does not take.
    pub attributes_skipped: u64,
}

/// Called after every name and every mebibyte; `Break` stops the copy.
pub type Callback<'c> = &'c mut dyn FnMut(&Progress) -> ControlFlow<()>;

/// The account of a copy under way.
struct Account<'c> {
    progress: Progress,
    callback: Callback<'c>,
}

impl Account<'_> {
    fn tell(&mut self) -> Result<(), Cause> {
        match (self.callback)(&self.progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Cause::Interrupted),
        }
    }

    fn name_made(&mut self) -> Result<(), Cause> {
        self.progress.files += 1;
        self.tell()
    }

    fn copied(&mut self, bytes: usize) -> Result<(), Cause> {
        self.progress.bytes += u64::try_from(bytes).expect("a usize fits in 64 bits");
        self.tell()
    }
}

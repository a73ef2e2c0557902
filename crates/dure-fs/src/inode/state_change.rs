//! What a change under the shared inode lock has found.
//!
//! **Problem.** A task that finds a change done by another task must not return before stat shows
//! it. **Structure.** Whatever is changed under the shared lock returns a [`StateChange`], which
//! the caller passes to `StateLock::changed_shared`. **Invariants.** Those of
//! [`state_lock`](super::state_lock). **On a crash** nothing.

/// Which task made a change under the shared lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StateChange {
    /// The caller.
    Made,
    /// Another task, which may not have removed the cached attributes yet.
    Found,
}

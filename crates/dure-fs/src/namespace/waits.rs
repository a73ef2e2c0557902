//! Whether a call on an inode or a name would wait for the medium.
//!
//! **Problem, structure** and **invariants** are those of `file::cached::waits`: guesses for a
//! task that must not wait. **On a crash** nothing remains.

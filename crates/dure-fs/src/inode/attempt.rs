//! Starting over.
//!
//! **Problem.** An operation is sized, and its inodes are chosen, by what was seen without locks;
//! by the time it has the locks that may have changed. **Structure.** [`attempts`] runs a function
//! again and again, each time with the [`Scope`] that the last [`Attempt`] asked for.
//! **Invariants.** An attempt that ends without a result has changed nothing that users see.
//! `Again` and `Inherits` mean that another operation made progress, or once that a guess was
//! wrong; the others come once each.
//! **On a crash** nothing is needed: an operation that an attempt gave up is not in the log.

use dure_store::error::{Error, Result};
use dure_store::format::bucket::LEVELS_MAX;

use super::{Access, Inode};
use crate::volume::DirectoryRule;

/// Bucket nodes that the first attempt of an operation may make and free, besides those it touches
/// anyway.
const SPARE_NODES: u32 = 2;
/// Enough for two paths from the first node to a leaf.
const SPARE_NODES_MAX: u32 = 2 * LEVELS_MAX;

/// Why an attempt ended without a result.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// Another task changed what was seen before the locks were taken.
    Again,
    /// The directory needs more nodes than the operation has reserved.
    Short,
    /// The operation makes an inode that inherits more attributes than it has reserved blob nodes
    /// for: it needs so many.
    Inherits(u32),
    /// A directory is to get its first node or to lose a node.
    Whole,
    /// The call fails with this error.
    Failed(Error),
}

impl From<Error> for Attempt {
    fn from(error: Error) -> Attempt {
        Attempt::Failed(error)
    }
}

impl Attempt {
    /// What follows if the attempt guessed: an error may be due to that.
    pub(crate) fn unless_guessed(self, guessed: bool) -> Attempt {
        match self {
            Attempt::Failed(_) if guessed => Attempt::Again,
            other => other,
        }
    }
}

/// What an attempt may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scope {
    /// Bucket nodes it may make and free.
    pub(crate) spare: u32,
    /// Blob nodes it may make for the attributes that an inode inherits.
    pub(crate) blobs: u32,
    /// It may believe the dentry cache, and take a name that this does not know for a free one. If
    /// it fails then, the next one looks.
    pub(crate) guesses: bool,
    /// Contended directories are held exclusively all the same.
    whole: bool,
}

impl Scope {
    /// How to lock a directory whose entries are to change: shared once two such changes have
    /// contended.
    pub(crate) fn access(self, rule: DirectoryRule, directory: &Inode) -> Access {
        let share = match rule {
            DirectoryRule::WhenContended => directory.is_contended(),
            DirectoryRule::AtOnce | DirectoryRule::Uncounted(_) => true,
            DirectoryRule::Exclusive => false,
        };
        if share && !self.whole {
            Access::Shared
        } else {
            Access::Exclusive
        }
    }
}

/// Runs attempts until one has a result; each is told what it may do. `Again` means that another
/// operation made progress, `Inherits` that one has given a directory more attributes to be
/// inherited; `Short` and `Whole` happen once, so this ends.
pub(crate) fn attempts<T>(
    mut run: impl FnMut(Scope) -> std::result::Result<T, Attempt>,
) -> Result<T> {
    let mut scope = Scope {
        spare: SPARE_NODES,
        blobs: 0,
        guesses: true,
        whole: false,
    };
    loop {
        match run(scope) {
            Ok(done) => return Ok(done),
            Err(Attempt::Again) => scope.guesses = false,
            Err(Attempt::Short) => {
                if scope.spare == SPARE_NODES_MAX {
                    // No operation needs more nodes than two paths have.
                    return Err(Error::Corrupt {
                        what: "a directory has bucket nodes without entries".into(),
                        at: 0,
                        want: SPARE_NODES_MAX.into(),
                        got: u64::from(SPARE_NODES_MAX) + 1,
                    });
                }
                scope.spare = SPARE_NODES_MAX;
            }
            Err(Attempt::Inherits(blobs)) => {
                assert!(
                    blobs > scope.blobs,
                    "an attempt with room for {blobs} blob nodes asks for them again"
                );
                scope.blobs = blobs;
            }
            Err(Attempt::Whole) => {
                assert!(
                    !scope.whole,
                    "an attempt that held all it asked for exclusively fell short"
                );
                scope.whole = true;
            }
            Err(Attempt::Failed(error)) => return Err(error),
        }
    }
}

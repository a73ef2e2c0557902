//! Starting over: an operation sizes itself by what it saw without locks.

use dure_store::error::{Error, Result};
use dure_store::format::bucket::LEVELS_MAX;

use crate::inode::{Access, Inode};
use crate::volume::{DirectoryRule, Volume};

/// Bucket nodes an operation may make and free besides those it touches anyway, at the first
/// attempt.
const SPARE_NODES: u32 = 2;
/// Enough for two paths from top to bottom.
const SPARE_NODES_MAX: u32 = 2 * LEVELS_MAX;

/// Why an attempt ended without a result.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// Somebody changed what was seen before the locks were taken.
    Again,
    /// The directory needs more nodes than the operation has room for.
    Short,
    /// A directory is to get its first node or to lose one, or a file its first name.
    Whole,
    /// For good.
    Failed(Error),
}

impl From<Error> for Attempt {
    fn from(error: Error) -> Attempt {
        Attempt::Failed(error)
    }
}

/// What an attempt may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scope {
    /// Bucket nodes it may make and free.
    pub(crate) spare: u32,
    /// Directories are had alone, although tasks have met in them, and the file that gets a name.
    whole: bool,
}

impl Scope {
    /// How the entries of a directory are to be changed. Changes share it once two of them have
    /// met.
    pub(crate) fn access(self, volume: &Volume, directory: &Inode) -> Access {
        let share = match volume.options.volume_rules.directories {
            DirectoryRule::WhenMet => directory.is_met(),
            DirectoryRule::AtOnce | DirectoryRule::Uncounted(_) => true,
            DirectoryRule::Alone => false,
        };
        if share && !self.whole {
            Access::Shared
        } else {
            Access::Alone
        }
    }

    /// How an inode that gets a name is to be had. No inode is held.
    pub(crate) fn names_access(self, volume: &Volume, inode: &Inode) -> Access {
        if self.whole {
            Access::Alone
        } else {
            volume.names_access(inode)
        }
    }
}

/// Runs attempts until one has a result. Each is given what it may do. `Again` means that another
/// operation made progress, `Short` and `Whole` happen once, so this ends.
pub(crate) fn attempts<T>(
    mut run: impl FnMut(Scope) -> std::result::Result<T, Attempt>,
) -> Result<T> {
    let mut scope = Scope {
        spare: SPARE_NODES,
        whole: false,
    };
    loop {
        match run(scope) {
            Ok(done) => return Ok(done),
            Err(Attempt::Again) => {}
            Err(Attempt::Short) => {
                if scope.spare == SPARE_NODES_MAX {
                    // No operation of ours needs more nodes than two paths have.
                    return Err(Error::Corrupt {
                        what: "a directory has bucket nodes without entries".into(),
                        at: 0,
                        want: SPARE_NODES_MAX.into(),
                        got: u64::from(SPARE_NODES_MAX) + 1,
                    });
                }
                scope.spare = SPARE_NODES_MAX;
            }
            Err(Attempt::Whole) => {
                assert!(!scope.whole, "it had all alone");
                scope.whole = true;
            }
            Err(Attempt::Failed(error)) => return Err(error),
        }
    }
}

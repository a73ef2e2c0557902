//! Starting over: an operation sizes itself by what it saw without locks.

use crate::error::{Error, Result};
use crate::format::bucket::LEVELS_MAX;

/// Bucket nodes an operation may make and free besides those it touches anyway, at the first attempt.
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
    /// For good.
    Failed(Error),
}

impl From<Error> for Attempt {
    fn from(error: Error) -> Attempt {
        Attempt::Failed(error)
    }
}

/// Runs attempts until one has a result. Each is given the number of spare nodes. `Again` means that
/// another operation made progress, `Short` happens once, so this ends.
pub(crate) fn attempts<T>(
    mut run: impl FnMut(u32) -> std::result::Result<T, Attempt>,
) -> Result<T> {
    let mut spare = SPARE_NODES;
    loop {
        match run(spare) {
            Ok(done) => return Ok(done),
            Err(Attempt::Again) => {}
            Err(Attempt::Short) => {
                assert!(
                    spare < SPARE_NODES_MAX,
                    "no operation needs more nodes than two paths have"
                );
                spare = SPARE_NODES_MAX;
            }
            Err(Attempt::Failed(error)) => return Err(error),
        }
    }
}

//! What is half done: a stream that is half received, a snapshot that is half restored.
//!
//! **Problem.** Such a volume takes no change until that is ended. Without the snapshot that could end it,
//! it would take none for ever. **Structure.** [`half_done`] tells what is half done, under the name that
//! the snapshot has now; [`check_delete`] refuses to delete what is needed to end it.
//! **Invariants.** Snapshots are told apart by their identity, which a new name does not change. A
//! volume on which something is half done keeps a snapshot, if it has one. **Crash.** Only the state of
//! the root is read, which the work that was cut has left.

use dure_fs::{FileSystem, SnapshotInfo};

use super::fault::Fault;
use super::format::Identity;
use super::receive::open;
use super::state::{self, State};
use crate::error::{Cause, Context, Result};

/// Work on a volume that was cut, with the name of its snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Half {
    /// Its stream is half received.
    Received(String),
    /// It is half restored.
    Restored(String),
}

impl Half {
    /// The name of the snapshot: the one that it will have, or has.
    #[must_use]
    pub fn snapshot(&self) -> &str {
        match self {
            Half::Received(name) | Half::Restored(name) => name,
        }
    }

    /// `half received` or `half restored`.
    #[must_use]
    pub fn what(&self) -> &'static str {
        match self {
            Half::Received(_) => "half received",
            Half::Restored(_) => "half restored",
        }
    }
}

/// What is half done on this volume: until it is ended, its files are no state of anything, and who
/// changes them changes what the snapshot will be.
///
/// # Errors
/// Those of reading.
pub fn half_done(fs: &FileSystem) -> Result<Option<Half>> {
    let found = state_of_half(fs).during("open volume")?;
    Ok(found.map(|state| half_of(fs, state)))
}

/// Refuses to delete a snapshot that is needed to end what is half done: the one that is restored, the
/// one that the change is relative to, and the last one of all.
///
/// # Errors
/// `EBUSY` if it is needed; those of reading.
pub fn check_delete(fs: &FileSystem, name: &str) -> Result<()> {
    let Some(state) = state_of_half(fs).during("delete snapshot")? else {
        return Ok(());
    };
    let snapshots = fs.snapshots();
    let Some(info) = snapshots.iter().find(|info| info.name == name) else {
        // What deletes it says that it is not there.
        return Ok(());
    };
    let is_needed = |one: Identity| is_of(fs, info, one);
    if snapshots.len() == 1 || is_needed(state.snapshot) || state.base.is_some_and(is_needed) {
        let (name, half) = (name.to_owned(), half_of(fs, state));
        return Err(Cause::Stream(Fault::Needed { name, half })).during("delete snapshot");
    }
    Ok(())
}

/// The state of what is half done; nothing if its snapshot is there.
fn state_of_half(fs: &FileSystem) -> dure_fs::Result<Option<State>> {
    let state = State::of(fs)?;
    let is_there = |number| fs.snapshots().iter().any(|info| Some(info.id) == number);
    Ok(state.filter(|state| !is_there(state.whole)))
}

/// What a state is of: a snapshot that the volume has is restored, another one received.
fn half_of(fs: &FileSystem, state: State) -> Half {
    let snapshots = fs.snapshots();
    let mut latest_first = snapshots.iter().rev();
    match latest_first.find(|info| is_of(fs, info, state.snapshot)) {
        Some(info) => Half::Restored(info.name.clone()),
        None => Half::Received(state.name),
    }
}

/// Whether a snapshot is this one, or a copy of it. One that cannot be read is no copy.
fn is_of(fs: &FileSystem, info: &SnapshotInfo, wanted: Identity) -> bool {
    let volume = fs.layout().superblock.uuid;
    let identity = || state::identity(volume, info, &open(fs, &info.name).ok()?).ok()?;
    state::own(fs, info) == wanted || identity() == Some(wanted)
}

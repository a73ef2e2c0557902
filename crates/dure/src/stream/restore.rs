//! The files as they were in a snapshot, again.
//!
//! **Problem.** Somebody wants back what a snapshot has, or the rest of a stream that is half received is
//! lost. **Structure.** A snapshot is taken of what is there; then a stream of what differs from it to the
//! wanted one is written by one task and applied by another. **Invariants.** Files that are the same keep
//! their inodes. A volume whose wanted snapshot was received takes increments of it afterwards: a copy of
//! that snapshot is taken of the new tree. **On a crash** the tree is between the two; restored again, the
//! volume goes on from the same snapshot of what was there. The order is that of
//! [`receiver`](super::receiver).

use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;

use dure_fs::{FileSystem, SnapshotInfo};
use dure_sync::thread;

use super::fault::Fault;
use super::frames::FrameReader;
use super::receive::{How, Plan, open, under_way};
use super::receiver::Receiver;
use super::send::{Sender, Snapshot};
use super::state::{self, AWAY, State};
use super::{Callback, Done, beginning};
use crate::error::{Cause, Context, Result};
use crate::volume::Volume;

/// Where files are put away if what was there before has [`AWAY`]: of a stream half received.
const AWAY_AGAIN: &[u8] = b".dure-restore";
/// Bytes that are read at once of the stream.
const BUFFER_BYTES: usize = 256 << 10;

/// What [`restore`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The snapshot of the files as they were before.
    pub before: String,
    /// If the snapshot was received: that of the files as they are now, which increments are relative to
    /// from now on.
    pub copy: Option<String>,
    /// Bytes of the stream between the two: about those of what differs.
    pub bytes: u64,
}

/// Makes the files those of a snapshot of this volume, durably. What they were is kept as the snapshot
/// `before-NAME`, or with a number behind that.
///
/// It ends a stream that is half received. After an error or a crash the files are a mixture; the same
/// call goes on. Meanwhile they must not be changed otherwise.
///
/// # Errors
/// `ENOENT` for a name that is none; `EBUSY` for a snapshot that was taken while a stream was half
/// received; `EEXIST` if the trees use the reserved names `.dure-receive` and `.dure-restore`; `ENOSPC`:
/// what differs is written anew; corruption, with the path; those of the device.
pub fn restore(volume: &Volume, snapshot: &str, callback: Callback<'_>) -> Result<Restored> {
    restore_as(How::default(), (volume, snapshot), callback)
}

/// Like [`restore`], in a certain way.
pub(super) fn restore_as(
    how: How,
    (volume, snapshot): (&Volume, &str),
    callback: Callback<'_>,
) -> Result<Restored> {
    let _receiving = volume.shared().begin_receive().during("restore")?;
    let fs = volume.file_system();
    let wanted = Snapshot::open(fs, snapshot, "restore")?;
    let (before, begun) = before(volume, &wanted).during("restore")?;
    let older = open(fs, &before.name).during("restore")?;
    let away = free_away([&older, &wanted.fs]).during("restore")?;
    let is_copy = State::of(&wanted.fs).during("restore")?.is_some();
    let (base, name) = (state::own(fs, &before), before.name);
    let fresh = State {
        snapshot: wanted.identity,
        base: Some(base),
        name: match is_copy {
            true => free_name(fs, "restored", snapshot),
            false => snapshot.to_owned(),
        },
        offset: 0,
        digest: 0,
        whole: None,
    };
    // Times are compared with when the first of the two was taken.
    let taken = wanted.info.created;
    let sender = Sender::between(wanted, (taken, older.clone()), (base, name.clone()));
    let plan = match begun {
        Some(state) if state.whole.is_some() => Plan::Snapshot(state),
        Some(state) => Plan::Rest(Some(older), state),
        None => Plan::All(Some(older)),
    };
    let mut receiver = Receiver::new((how, volume), fresh);
    (receiver.away, receiver.takes) = (away, is_copy);
    let bytes = join(&sender, |input| {
        let mut frames = FrameReader::begin(input).during("restore")?;
        let begin = beginning(&mut frames);
        begin.map_err(|cause| frames.failure(cause).during("restore"))?;
        receiver.run(plan, &mut frames, callback)?;
        Ok(frames.at.offset)
    })?;
    Ok(Restored {
        before: name,
        copy: is_copy.then_some(receiver.state.name),
        bytes,
    })
}

/// The snapshot of the files as they were before, and how far an earlier call is that took it. Crash
/// scenario if it was not durable before the first change: they are lost.
fn before(volume: &Volume, wanted: &Snapshot) -> Done<(SnapshotInfo, Option<State>)> {
    let fs = volume.file_system();
    let snapshots = fs.snapshots();
    let begun = under_way(volume, &snapshots)?.and_then(|state| {
        let is_of = |info: &&SnapshotInfo| Some(state::own(fs, info)) == state.base;
        let before = snapshots.iter().find(is_of)?.clone();
        (state.snapshot == wanted.identity).then_some((before, Some(state)))
    });
    match begun {
        Some(begun) => Ok(begun),
        None => {
            let name = free_name(fs, "before", &wanted.info.name);
            Ok((fs.create_snapshot(&name)?, None))
        }
    }
}

/// `WORD-NAME`, or with the least number behind that no snapshot has; at most 64 bytes.
fn free_name(fs: &FileSystem, word: &str, name: &str) -> String {
    let mut stem = format!("{word}-{name}");
    while stem.len() > 64 - "-248".len() {
        stem.pop();
    }
    let snapshots = fs.snapshots();
    let is_free = |name: &String| snapshots.iter().all(|info| info.name != *name);
    let numbered = (2..).map(|number| format!("{stem}-{number}"));
    let mut names = std::iter::once(stem.clone()).chain(numbered);
    names.find(is_free).expect("numbers do not end")
}

/// A name in the root that neither has.
fn free_away(all: [&FileSystem; 2]) -> Done<&'static [u8]> {
    'names: for name in [AWAY, AWAY_AGAIN] {
        for fs in all {
            if fs.lookup(&fs.root()?, name)?.is_some() {
                continue 'names;
            }
        }
        return Ok(name);
    }
    Err(Cause::Stream(Fault::Reserved))
}

/// Has another task write the stream that this one reads.
fn join(sender: &Sender, apply: impl FnOnce(&mut dyn BufRead) -> Result<u64>) -> Result<u64> {
    let pair = UnixStream::pair().map_err(Cause::Host);
    let (input, mut output) = pair.during("restore")?;
    thread::scope(|scope| {
        let sending = scope.spawn(move || {
            // What cannot be read the stream says, too; and the reader, why it ends early.
            drop(sender.send(&mut output, &mut |_| ControlFlow::Continue(())));
        });
        let mut input = BufReader::with_capacity(BUFFER_BYTES, input);
        let applied = apply(&mut input);
        drop(input);
        sending.join().expect("a task that returns its errors");
        applied
    })
}

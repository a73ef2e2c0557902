//! Receiving a stream.
//!
//! **Problem.** A stream is cut, the receiver killed, the volume full: then the same stream, received
//! again, has to end with the same tree; and a stream must not be applied to a tree that it is not of.
//! **Structure.** [`Plan`] decides whether a stream can be received, and where it goes on. Then a
//! [`Receiver`] applies it. **Invariants.** A stream that begins finds the tree as in its base, or empty.
//! **Crash.** The order is in [`receiver`](super::receiver).

use std::io::BufRead;

use dure_fs::{FileSystem, MountOptions, SnapshotInfo};
use dure_sync::canary::Rule;

use super::apply::path_of;
use super::fault::Fault;
use super::format::Begin;
use super::frames::FrameReader;
use super::receiver::Receiver;
use super::state::{self, STATE, State};
use super::{Callback, Done, beginning, plain};
use crate::error::{Cause, Context, Result};
use crate::volume::Volume;

/// Bytes of a stream between two notes of how far it is.
const SYNC_BYTES: u64 = 256 << 20;
/// What a snapshot may keep in memory.
const CACHE_BYTES: u64 = 64 << 20;

/// What was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The snapshot, by its name here.
    pub snapshot: String,
    /// Records of the stream.
    pub records: u64,
    /// Bytes of the stream.
    pub bytes: u64,
    /// Bytes that an earlier receive had applied already; all of them, if it had taken the snapshot.
    pub skipped: u64,
}

/// How a stream is received.
#[derive(Debug, Clone, Copy)]
pub(super) struct How {
    pub(super) sync_bytes: u64,
    /// The state is durable before the first change.
    pub(super) state_first: Rule,
    /// What is skipped is durable.
    pub(super) sync_first: Rule,
    /// The state is there until the snapshot is.
    pub(super) state_last: Rule,
}

impl Default for How {
    fn default() -> How {
        How {
            sync_bytes: SYNC_BYTES,
            state_first: Rule::Holds,
            sync_first: Rule::Holds,
            state_last: Rule::Holds,
        }
    }
}

/// Applies a stream to the volume, whose files become those of the snapshot that was sent, and takes a
/// snapshot of them, durably, with the same name or `name`. A stream of everything needs a volume
/// without files; a relative one needs the snapshot that it is relative to, received before (or its
/// own), and the files as they are in that.
///
/// After an error or a crash the volume has a part of the changes, and its snapshots as before. The
/// same stream, received again from its start, goes on: what was durable is skipped. Meanwhile the
/// files must not be changed otherwise. What comes behind the end of the stream is left in `input`.
///
/// Owners, modes with set-id bits, devices and extended attributes of all namespaces are set as the
/// stream says, as by root: a volume that was received from elsewhere is mounted with `nosuid` and
/// `nodev`, unless the sender is trusted.
///
/// # Errors
/// What is wrong with the stream, with record and offset; `ENOENT` without the base; `EBUSY` if the
/// files are not as in the base, or another stream is half received; `ENOTEMPTY`; `EEXIST` if another
/// snapshot has the name; `ENOSPC`; those of the device and of `input`.
pub fn receive(
    volume: &Volume,
    name: Option<&str>,
    input: &mut dyn BufRead,
    callback: Callback<'_>,
) -> Result<Received> {
    receive_as(How::default(), (volume, name), input, callback)
}

/// Like [`receive`], in a certain way.
pub(super) fn receive_as(
    how: How,
    (volume, name): (&Volume, Option<&str>),
    input: &mut dyn BufRead,
    callback: Callback<'_>,
) -> Result<Received> {
    let mut frames = FrameReader::begin(input).during("receive")?;
    let begin = beginning(&mut frames);
    let begin = begin.map_err(|cause| frames.failure(cause).during("receive"))?;
    let name = name.unwrap_or(&begin.name);
    let _receiving = volume.shared().begin_receive().during("receive")?;
    let plan = Plan::of(volume, &begin, name).during("receive")?;
    let state = State {
        snapshot: begin.snapshot,
        base: begin.base.as_ref().map(|(base, _)| *base),
        name: name.to_owned(),
        offset: 0,
        digest: 0,
        whole: None,
    };
    let mut receiver = Receiver::new((how, volume), state);
    let skipped = receiver.run(plan, &mut frames, callback)?;
    Ok(Received {
        snapshot: receiver.state.name,
        records: frames.at.record,
        bytes: frames.at.offset,
        skipped,
    })
}

/// What there is to do.
pub(super) enum Plan {
    /// From the beginning.
    All(Option<FileSystem>),
    /// An earlier receive was cut.
    Rest(Option<FileSystem>, State),
    /// Only the snapshot is missing.
    Snapshot(State),
    /// Nothing: the snapshot is there, under this name.
    Nothing(String),
}

impl Plan {
    fn of(volume: &Volume, begin: &Begin, name: &str) -> Done<Plan> {
        let fs = volume.file_system();
        let wanted = begin.base.as_ref().map(|(base, _)| *base);
        let (mut base, mut there) = (None, None);
        let snapshots = fs.snapshots();
        for info in snapshots.iter().rev() {
            let opened = open(fs, &info.name).and_then(|opened| {
                let identity = state::identity(fs.layout().superblock.uuid, info, &opened)?;
                Ok((opened, identity))
            });
            // One that cannot be read is none of those.
            let Ok((opened, identity)) = opened else {
                continue;
            };
            if identity == Some(begin.snapshot) {
                there = Some(info.name.clone());
            }
            if identity.is_some() && identity == wanted && base.is_none() {
                base = Some((info, opened));
            }
        }
        let under_way = under_way(volume, &snapshots)?;
        if let Some(name) = there {
            return Ok(Plan::Nothing(name));
        }
        // Before the first change: all of the stream would be received in vain.
        fs.check_snapshot(name)?;
        let base = match (base, &begin.base) {
            (None, Some((base, name))) => {
                let (base, name) = (*base, plain(name.as_bytes()));
                return Err(Cause::Stream(Fault::NoBase { base, name }));
            }
            (base, _) => base,
        };
        match under_way {
            Some(state) if (state.snapshot, state.base) != (begin.snapshot, wanted) => {
                let name = state.name;
                Err(Cause::Stream(Fault::UnderWay { name }))
            }
            Some(state) if state.whole.is_some() => Ok(Plan::Snapshot(state)),
            Some(state) => Ok(Plan::Rest(base.map(|(_, opened)| opened), state)),
            None => {
                unchanged(fs, base.as_ref().map(|(info, _)| *info))?;
                Ok(Plan::All(base.map(|(_, opened)| opened)))
            }
        }
    }
}

pub(super) fn open(fs: &FileSystem, name: &str) -> dure_fs::Result<FileSystem> {
    let options = MountOptions {
        cache_bytes: CACHE_BYTES,
        ..MountOptions::default()
    };
    fs.open_snapshot(name, options)
}

/// The state of a receive that was cut. What is left of one whose snapshot is there is removed.
pub(super) fn under_way(
    volume: &Volume,
    snapshots: &[SnapshotInfo],
) -> dure_fs::Result<Option<State>> {
    let fs = volume.file_system();
    let state = State::of(fs)?;
    let number = state.as_ref().and_then(|state| state.whole);
    if number.is_some_and(|number| snapshots.iter().any(|info| info.id == number)) {
        volume.shared().remove_xattr(&fs.root()?, STATE)?;
        return Ok(None);
    }
    Ok(state)
}

/// The files are as in this snapshot; without one, there are none.
fn unchanged(fs: &FileSystem, base: Option<&SnapshotInfo>) -> Done {
    let Some(base) = base else {
        let names = fs.names(&fs.root_name()?)?;
        return match names.is_empty() {
            true => Ok(()),
            false => Err(Cause::Stream(Fault::NotEmpty)),
        };
    };
    let mut changed = None;
    fs.changes(&base.name, None, &mut |change| {
        // Of the root every stream says all; its state was removed since the snapshot.
        let is_root = change == dure_fs::Change::Modified(Vec::new());
        if !is_root && changed.is_none() {
            changed = Some(path_of(&change).to_owned());
        }
    })?;
    match changed {
        None => Ok(()),
        Some(path) => Err(Cause::Stream(Fault::Changed {
            path: path.display().to_string(),
            base: base.name.clone(),
        })),
    }
}

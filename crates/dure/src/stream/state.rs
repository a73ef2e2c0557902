//! What a volume knows about the stream that it receives, or received: an extended attribute of the
//! root.
//!
//! **Problem.** A receive may be cut anywhere, and the next increment needs to know which snapshots are
//! copies, and of what. **Structure.** While a stream is received, the live tree has a [`State`] that
//! says how far it is. The last one, which says that it is whole, goes into the snapshot and is then
//! removed from the live tree: a snapshot with it is a copy. **Invariants.** A snapshot counts as a copy
//! if it has the number that its state foretold; so one that a user takes before the state is removed
//! is none. **Crash.** The attribute is replaced in one operation.

use dure_fs::{FileSystem, SnapshotInfo};

use super::decode::Cursor;
use super::fault::Fault;
use super::format::{Identity, put_identity};

/// The attribute.
pub(super) const STATE: &[u8] = b"trusted.dure.receive";
/// Where files are put away; in the root.
pub(super) const AWAY: &[u8] = b".dure-receive";
const VERSION: u8 = 1;

/// How far a stream is received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    pub(super) snapshot: Identity,
    pub(super) base: Option<Identity>,
    /// Its name here.
    pub(super) name: String,
    /// Bytes of the stream whose effect is durable.
    pub(super) offset: u64,
    /// What tells the records before there from others.
    pub(super) digest: u32,
    /// All of it is: the number that the snapshot will have.
    pub(super) whole: Option<u64>,
}

impl State {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_identity(&mut out, Some(&self.snapshot));
        put_identity(&mut out, self.base.as_ref());
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.digest.to_le_bytes());
        out.extend_from_slice(&self.whole.unwrap_or(0).to_le_bytes());
        let name = self.name.as_bytes();
        let len = u32::try_from(name.len()).expect("64 bytes at most");
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(name);
        out
    }

    /// Nothing if the bytes are not those of a state.
    fn decode(bytes: &[u8]) -> Option<State> {
        let mut from = Cursor(bytes);
        let parse = |from: &mut Cursor<'_>| -> Result<State, Fault> {
            let identity = |from: &mut Cursor<'_>| Ok((from.byte()?, from.identity()?));
            let version = from.byte()?;
            let ((_, snapshot), (has_base, base)) = (identity(from)?, identity(from)?);
            let (offset, digest, whole) = (from.word()?, from.half()?, from.word()?);
            let name = from.snapshot_name()?;
            match version {
                VERSION => Ok(State {
                    snapshot,
                    base: (has_base == 1).then_some(base),
                    name,
                    offset,
                    digest,
                    whole: (whole != 0).then_some(whole),
                }),
                _ => Err(Fault::Malformed("the state of a receive")),
            }
        };
        parse(&mut from).ok()
    }

    /// That of a volume or snapshot.
    pub(super) fn of(fs: &FileSystem) -> dure_fs::Result<Option<State>> {
        let Some(value) = fs.get_xattr(&fs.root()?, STATE)? else {
            return Ok(None);
        };
        let state = State::decode(&value);
        let damaged = || dure_fs::Error::Corrupt {
            what: "attribute trusted.dure.receive of the root, or it is of a later dure".into(),
            at: 0,
            want: u64::from(VERSION),
            got: u64::from(value.first().copied().unwrap_or(0)),
        };
        state.ok_or_else(damaged).map(Some)
    }
}

/// That of a snapshot itself, whether it was received or not.
pub(super) fn own(fs: &FileSystem, info: &SnapshotInfo) -> Identity {
    own_of(fs.layout().superblock.uuid, info)
}

fn own_of(volume: [u8; 16], info: &SnapshotInfo) -> Identity {
    Identity {
        volume,
        id: info.id,
        created: info.created,
        checkpoint: info.checkpoint,
    }
}

/// Which snapshot this is one of: itself, or, if it was received, the one that was sent. Nothing if it
/// was taken while a stream was half received.
pub(super) fn identity(
    volume: [u8; 16],
    info: &SnapshotInfo,
    snapshot: &FileSystem,
) -> dure_fs::Result<Option<Identity>> {
    let own = own_of(volume, info);
    Ok(match State::of(snapshot)? {
        None => Some(own),
        Some(state) if state.whole == Some(info.id) => Some(state.snapshot),
        // The stream was whole, and the tree may have been changed since.
        Some(state) if state.whole.is_some() => Some(own),
        Some(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_what_was_stored() {
        let identity = Identity {
            volume: [7; 16],
            id: 3,
            created: -5,
            checkpoint: 77,
        };
        let mut state = State {
            snapshot: identity,
            base: None,
            name: "monday".into(),
            offset: 1 << 40,
            digest: 9,
            whole: None,
        };
        assert_eq!(State::decode(&state.encode()), Some(state.clone()));
        state.base = Some(identity);
        state.whole = Some(4);
        let bytes = state.encode();
        assert_eq!(State::decode(&bytes), Some(state));
        assert_eq!(State::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(State::decode(b"\x02"), None);
    }
}

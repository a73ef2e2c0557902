//! Notes of the logs that recovery reads, checked.

use zerocopy::FromBytes;

use crate::error::{Error, Result};
use crate::format::node::NodeKind;
use crate::format::note::{Blocks, Data, FREE_NODE, Life, NEW_NODE};
use crate::units::SlotRef;
use crate::units::{BLOCK_BYTES, BlockNo, Ino, Nid, Run};

/// A node is made or freed.
#[derive(Debug, Clone, Copy)]
pub(super) struct LifeNote {
    pub(super) nid: Nid,
    pub(super) version: u64,
    /// What is made; `None` for a node that is freed.
    pub(super) begins: Option<(NodeKind, Ino)>,
}

/// A record that says what cannot be.
pub(super) fn bad_record(what: &str, got: u64) -> Error {
    Error::Corrupt {
        what: format!("log record: {what}"),
        at: 0,
        want: 0,
        got,
    }
}

/// Blocks, and the first of the slots they were allocated for or freed from.
pub(super) fn parse_blocks(bytes: &[u8]) -> Result<(SlotRef, Run)> {
    let note = Blocks::read_from_bytes(bytes).map_err(|_| bad_record("block note length", 0))?;
    let owner = SlotRef {
        nid: Nid(note.nid.get()),
        granule: note.granule,
        slot: note.slot,
    };
    let count = u32::from(note.count.get());
    if count == 0 || count + u32::from(note.slot) > 256 {
        return Err(bad_record("block note count", u64::from(count)));
    }
    if note.first.get() >= 1 << 48 {
        return Err(bad_record("block note address", note.first.get()));
    }
    Ok((
        owner,
        Run {
            first: BlockNo(note.first.get()),
            count,
        },
    ))
}

/// A page: its slot, its block, its content.
pub(super) fn parse_data(bytes: &[u8]) -> Result<(SlotRef, BlockNo, &[u8])> {
    let short = || bad_record("data note length", crate::units::to_u64(bytes.len()));
    let (head, content) = Data::ref_from_prefix(bytes).map_err(|_| short())?;
    if content.len() != BLOCK_BYTES {
        return Err(short());
    }
    let owner = SlotRef {
        nid: Nid(head.nid.get()),
        granule: head.granule,
        slot: head.slot,
    };
    Ok((owner, BlockNo(head.block.get()), content))
}

/// A note of a kind that is neither blocks nor data.
pub(super) fn parse_life(kind: u8, bytes: &[u8]) -> Result<LifeNote> {
    let life = Life::read_from_bytes(bytes).map_err(|_| bad_record("life note length", 0))?;
    let begins = match kind {
        NEW_NODE => {
            let kind = NodeKind::from_code(life.kind)
                .ok_or_else(|| bad_record("node kind", u64::from(life.kind)))?;
            Some((kind, Ino(life.owner.get())))
        }
        FREE_NODE => None,
        other => return Err(bad_record("unknown note", u64::from(other))),
    };
    Ok(LifeNote {
        nid: Nid(life.nid.get()),
        version: life.version.get(),
        begins,
    })
}

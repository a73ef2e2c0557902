//! Byte streams over chains of blob nodes. A change rewrites only the nodes whose piece or link
//! differs.

use dure_store::Store;
use dure_store::error::{Error, Result};
use dure_store::format::blob::{BLOB_BYTES, BlobHeader};
use dure_store::format::node::NodeKind;
use dure_store::node::NodeRef;
use dure_store::op::{Op, RECORD_BYTES_MAX};
use dure_store::units::{Ino, Nid, to_u64};
use zerocopy::FromBytes;

/// Nodes of the longest stream, with some to spare; a longer chain is a loop.
const NODES_MAX: usize = 64;
/// Maximum bytes that a rewritten piece takes in the log: its own, notes and marks.
const PIECE_RECORD_BYTES: usize = NodeKind::Blob.payload(0) + 64;
/// Bytes reserved for what the operation logs besides the pieces.
const RECORDS_BESIDES: usize = 2048;
const HEADER_BYTES: usize = size_of::<BlobHeader>();

/// The nodes of a stream.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    nodes: Vec<NodeRef>,
}

/// Nodes for a stream of `bytes` bytes.
pub(crate) fn nodes_for(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(BLOB_BYTES)).expect("a stream has at most 128 KiB")
}

/// Maximum bytes of one record in the volume's log.
fn record_bytes_max(store: &Store) -> usize {
    store.journal().handle_bytes_max().min(RECORD_BYTES_MAX)
}

/// Pieces that one operation may write besides other changes.
pub(super) fn pieces_per_record(store: &Store) -> usize {
    let pieces = (record_bytes_max(store) - RECORDS_BESIDES) / PIECE_RECORD_BYTES;
    assert!(pieces > 0, "the smallest log segment takes a piece");
    pieces
}

/// The pieces of a stream.
pub(super) fn pieces(stream: &[u8]) -> impl Iterator<Item = &[u8]> {
    stream.chunks(BLOB_BYTES)
}

/// Fills the payload of a node.
pub(super) fn fill(payload: &mut [u8], next: u64, piece: &[u8]) {
    payload[..HEADER_BYTES].copy_from_slice(&next.to_le_bytes());
    payload[HEADER_BYTES..][..piece.len()].copy_from_slice(piece);
    payload[HEADER_BYTES + piece.len()..].fill(0);
}

fn holds(payload: &[u8], next: u64, piece: &[u8]) -> bool {
    next_of(payload) == next && payload[HEADER_BYTES..].starts_with(piece)
}

fn next_of(payload: &[u8]) -> u64 {
    let (header, _) =
        BlobHeader::ref_from_prefix(payload).expect("a blob node is longer than its header");
    header.next.get()
}

/// The chain of inode `owner` that begins at node `root`; an empty one for 0. If it may change
/// meanwhile, the caller checks afterwards that it has not.
pub(crate) fn load(store: &Store, root: u64, owner: Ino) -> Result<Chain> {
    let mut chain = Chain::default();
    let mut next = root;
    while next != 0 {
        let seen = chain.nodes.iter().any(|node| node.nid == Nid(next));
        if seen || chain.nodes.len() == NODES_MAX {
            let limit = to_u64(NODES_MAX);
            return Err(Error::Corrupt {
                what: format!("length of a chain of blob nodes of inode {owner}"),
                at: next,
                want: limit,
                got: limit + 1,
            });
        }
        let node = store.node(Nid(next), NodeKind::Blob.of(owner))?;
        next = node.look(0, next_of);
        chain.nodes.push(node);
    }
    Ok(chain)
}

impl Chain {
    /// Number of nodes.
    pub(crate) fn nodes(&self) -> u32 {
        u32::try_from(self.nodes.len()).expect("a chain has at most 64 nodes")
    }

    /// The first `bytes` bytes of the stream.
    pub(crate) fn read(&self, bytes: usize) -> Result<Vec<u8>> {
        if self.nodes() < nodes_for(bytes) {
            let at = self.nodes.first().map_or(0, |node| node.nid.0);
            let (want, got) = (u64::from(nodes_for(bytes)), u64::from(self.nodes()));
            return Err(Error::Corrupt {
                what: "pieces of a byte stream".into(),
                at,
                want,
                got,
            });
        }
        let mut stream = Vec::with_capacity(bytes);
        for node in &self.nodes {
            let len = (bytes - stream.len()).min(BLOB_BYTES);
            let piece = HEADER_BYTES..HEADER_BYTES + len;
            node.look_at(0, piece, |bytes| stream.extend_from_slice(bytes));
        }
        Ok(stream)
    }

    /// Frees all nodes.
    ///
    /// # Errors
    /// Those of [`Op::free_node`].
    pub(crate) fn free(&self, op: &mut Op<'_>) -> Result<()> {
        self.nodes.iter().try_for_each(|node| op.free_node(node))
    }

    /// Whether one operation can turn the stream into `new`.
    pub(super) fn fits_a_record(&self, store: &Store, new: &[u8]) -> bool {
        let unchanged = |&(at, piece): &(usize, &[u8])| {
            let last = (at + 1) * BLOB_BYTES >= new.len();
            let next = match self.nodes.get(at + 1) {
                _ if last => Some(0),
                next => next.map(|next| next.nid.0),
            };
            let same = |node: &NodeRef, next| node.look(0, |payload| holds(payload, next, piece));
            let node = self.nodes.get(at).zip(next);
            node.is_some_and(|(node, next)| same(node, next))
        };
        let changed = pieces(new).enumerate().filter(|piece| !unchanged(piece));
        changed.count() <= pieces_per_record(store)
    }

    /// Lets `op` turn the stream into `new`; returns the first node, 0 for an empty stream. New
    /// nodes belong to `owner`.
    ///
    /// # Errors
    /// `NoSpace` when the nodes run out, or one record of the volume's log cannot hold the change.
    /// Callers ask `fits_a_record` about the latter before, except for what a new inode inherits.
    pub(crate) fn write(&self, op: &mut Op<'_>, owner: Ino, new: &[u8]) -> Result<u64> {
        if new.is_empty() && self.nodes.is_empty() {
            return Ok(0);
        }
        let pieces: Vec<&[u8]> = pieces(new).collect();
        let mut nodes = self.nodes.clone();
        for extra in nodes.drain(pieces.len().min(self.nodes.len())..) {
            op.free_node(&extra)?;
        }
        while nodes.len() < pieces.len() {
            nodes.push(op.new_node_of(NodeKind::Blob, owner)?);
        }
        let mut logged = RECORDS_BESIDES;
        for (at, (node, piece)) in nodes.iter().zip(pieces).enumerate() {
            let next = nodes.get(at + 1).map_or(0, |next| next.nid.0);
            if op.view(node, 0, |payload| holds(payload, next, piece)) {
                continue;
            }
            logged += PIECE_RECORD_BYTES;
            if logged > op.record_bytes_max() {
                return Err(Error::NoSpace {
                    what: "the log: what a new inode inherits is one record",
                });
            }
            fill(op.edit(node, 0).all(), next, piece);
        }
        Ok(nodes.first().map_or(0, |node| node.nid.0))
    }
}

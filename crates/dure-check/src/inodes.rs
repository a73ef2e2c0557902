//! One small record per inode granule that exists: what the later passes ask of inodes other than
//! the one they look at.

use std::collections::BTreeMap;

use dure_store::format::nat;
use dure_store::units::{Ino, to_usize};

/// The facts kept of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct InodeFacts {
    /// `st_mode >> 12`; 0: free, or its node is broken.
    pub(super) kind: u8,
    /// The record was not to be trusted: its trees are not followed.
    pub(super) bad: bool,
    /// Has the orphan flag.
    pub(super) flagged: bool,
    /// Found in an orphan slot, to be deleted.
    pub(super) orphan: bool,
    /// Found in an orphan slot, to be truncated.
    pub(super) truncating: bool,
    /// `nlink` as recorded.
    pub(super) nlink: u32,
    /// Names found.
    pub(super) names: u32,
}

const INODES_PER_PAIR: u64 = nat::ENTRIES * Ino::PER_NODE;
const INODES_PER_PAIR_USIZE: usize = 2016;
const _: () = assert!(INODES_PER_PAIR == 2016);

/// Facts by inode number, in pieces of one NAT pair.
#[derive(Debug, Default)]
pub(super) struct InodeTable {
    pieces: BTreeMap<u64, Box<[InodeFacts]>>,
    /// For every directory that has a name: the directory its first name is in.
    pub(super) found_in: BTreeMap<Ino, Ino>,
}

impl InodeTable {
    /// The facts of `ino`; `None` when there is no such inode.
    pub(super) fn get(&self, ino: u64) -> Option<InodeFacts> {
        let piece = self.pieces.get(&(ino / INODES_PER_PAIR))?;
        Some(piece[to_usize(ino % INODES_PER_PAIR)]).filter(|facts| facts.kind != 0)
    }

    /// The facts of `ino`, to be changed.
    pub(super) fn get_mut(&mut self, ino: Ino) -> &mut InodeFacts {
        let piece = self.pieces.entry(ino.0 / INODES_PER_PAIR);
        let empty = || vec![InodeFacts::default(); INODES_PER_PAIR_USIZE].into_boxed_slice();
        &mut piece.or_insert_with(empty)[to_usize(ino.0 % INODES_PER_PAIR)]
    }

    /// All inodes that exist, ascending.
    pub(super) fn all(&self) -> impl Iterator<Item = (Ino, InodeFacts)> {
        self.pieces.iter().flat_map(|(piece, facts)| {
            let first = piece * INODES_PER_PAIR;
            let facts = facts.iter().copied();
            (first..)
                .map(Ino)
                .zip(facts)
                .filter(|(_, facts)| facts.kind != 0)
        })
    }
}

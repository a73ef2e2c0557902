//! One bucket: entries with holes in the 496 bytes of a granule's payload. Pure functions on bytes:
//! those that look are here, those that change it in [`change`].
//!
//! **Invariants.** Entries and holes lie side by side in `0..used`; two holes are never adjacent
//! and none is the last. `entries` and `subdirectories` count the entries. A bucket with a child
//! holds no entries. A removed entry becomes a hole whose old name stays in place, so that a
//! removal logs a few bytes only.

use std::ops::Range;

use dure_store::format::bucket::{
    BucketHeader, ENTRY_BYTES, ENTRY_HEADER_BYTES, EntryHeader, HEADER_BYTES, ORDINALS,
};
use dure_store::format::name::check_name;
use dure_store::format::node::NodeKind;
use dure_store::format::trie;
use dure_store::units::{Ino, Nid};
use zerocopy::FromBytes;

mod change;

pub(crate) use change::{Inserted, add, remove, retarget, set_child, set_stamps, split};
pub(crate) use dure_store::format::bucket::KIND_DIRECTORY;
/// Bytes of a bucket.
pub(crate) const BUCKET_BYTES: usize = NodeKind::Bucket.payload(0);
const _: () = assert!(BUCKET_BYTES == HEADER_BYTES + ENTRY_BYTES);

/// The error for bytes that are no bucket: the rule they break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

type Result<T> = std::result::Result<T, Malformed>;

/// An entry of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// The inode it names.
    pub(crate) ino: Ino,
    /// `st_mode >> 12`.
    pub(crate) kind: u8,
    /// Tells entries of one hash group apart.
    pub(crate) ordinal: u8,
    /// 1..=255 bytes.
    pub(crate) name: &'a [u8],
    /// Offset in the entry area.
    pub(crate) at: usize,
}

/// The header of a bucket.
pub(crate) fn header(payload: &[u8]) -> &BucketHeader {
    let (header, _) =
        BucketHeader::ref_from_prefix(payload).expect("a bucket is longer than its header");
    header
}

/// The bytes of a bucket's header.
pub(crate) const HEADER: Range<usize> = 0..HEADER_BYTES;

/// The node below a bucket, 0 if it holds entries itself. Needs no more than the bucket's
/// [`HEADER`].
pub(crate) fn child_of(payload: &[u8]) -> Result<Nid> {
    let header = header(payload);
    match header.child.get() {
        child if child != 0 && header.entries.get() > 0 => Err(Malformed("entries and a child")),
        child => Ok(Nid(child)),
    }
}

/// Number of entries of a bucket, and the node below it. Needs no more than the bucket's
/// [`HEADER`].
pub(crate) fn counts(payload: &[u8]) -> (u16, u64) {
    let header = header(payload);
    (header.entries.get(), header.child.get())
}

/// One piece of the entry area: an entry, or a hole (`entry` is `None`).
struct Piece<'a> {
    at: usize,
    space: usize,
    entry: Option<Entry<'a>>,
}

/// Walks the entry area; ends after the first malformed piece.
struct Pieces<'a> {
    area: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Result<Piece<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.area.len() {
            return None;
        }
        let piece = piece_at(self.area, self.at);
        self.at = piece
            .as_ref()
            .map_or(self.area.len(), |piece| self.at + piece.space);
        Some(piece)
    }
}

#[inline]
fn piece_at(area: &[u8], at: usize) -> Result<Piece<'_>> {
    let Ok((head, rest)) = EntryHeader::ref_from_prefix(&area[at..]) else {
        return Err(Malformed("entry header"));
    };
    let space = usize::from(head.space.get());
    if space < ENTRY_HEADER_BYTES || space > area.len() - at {
        return Err(Malformed("entry space"));
    }
    let ino = head.ino.get();
    if ino == 0 {
        return Ok(Piece {
            at,
            space,
            entry: None,
        });
    }
    let len = usize::from(head.name_len);
    if len == 0 || len > space - ENTRY_HEADER_BYTES {
        return Err(Malformed("entry name length"));
    }
    let entry = Entry {
        ino: Ino(ino),
        kind: head.kind & 15,
        ordinal: head.kind >> 4,
        name: &rest[..len],
        at,
    };
    Ok(Piece {
        at,
        space,
        entry: Some(entry),
    })
}

fn pieces(payload: &[u8]) -> Result<Pieces<'_>> {
    let used = usize::from(header(payload).used.get());
    if used > ENTRY_BYTES || (used > 0 && header(payload).child.get() != 0) {
        return Err(Malformed("bytes in use"));
    }
    Ok(Pieces {
        area: &payload[HEADER_BYTES..][..used],
        at: 0,
    })
}

/// The entries of a bucket, in no order. Here bytes of the medium become names: those that cannot
/// be names ("../x", "/x", "", ".") are refused, since callers that list a directory use them as
/// names.
pub(crate) fn entries(payload: &[u8]) -> Result<impl Iterator<Item = Result<Entry<'_>>>> {
    Ok(pieces(payload)?.filter_map(|piece| match piece {
        Ok(piece) => piece.entry.map(named),
        Err(malformed) => Some(Err(malformed)),
    }))
}

#[inline]
fn named(entry: Entry<'_>) -> Result<Entry<'_>> {
    match check_name(entry.name) {
        Ok(()) => Ok(entry),
        Err(_) => Err(Malformed("a name that cannot be one")),
    }
}

/// The entry called `name`. As that is the caller's, the name needs no check here.
pub(crate) fn find<'a>(payload: &'a [u8], name: &[u8]) -> Result<Option<Entry<'a>>> {
    for piece in pieces(payload)? {
        if let Some(entry) = piece?.entry
            && entry.is_called(name)
        {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

impl Entry<'_> {
    /// Names in one directory often differ in their last byte.
    #[inline]
    fn is_called(&self, name: &[u8]) -> bool {
        self.name.last() == name.last() && self.name == name
    }
}

/// A name in a bucket: its entry, or what there is for one.
#[derive(Debug, Clone)]
pub(crate) enum Search<'a> {
    /// The name is in use; its removal leaves this hole, with which adjacent ones are merged.
    Entry(Entry<'a>, Range<usize>),
    /// It is not.
    Room(Room),
}

/// Where the entry for a name that is not in a bucket may go, for as long as no entry changes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Bytes of all entries.
    live: usize,
    /// The first hole that is big enough: offset and bytes.
    hole: Option<(usize, usize)>,
    /// Whether no entry of the hash group has the ordinal that is tried first.
    first_is_free: bool,
}

/// The first ordinal tried is the part of the hash that the group leaves out: so few entries need
/// to be hashed to see that it is free.
fn first_ordinal(hash: u64) -> u8 {
    hash.to_le_bytes()[0] % ORDINALS
}

fn is_of_group(seed: u64, name: &[u8], wanted: u64) -> bool {
    trie::same_group(trie::name_hash(seed, name), wanted)
}

/// Looks for the entry of a name of this hash, and for where one could go.
pub(crate) fn search<'a>(
    payload: &'a [u8],
    (seed, hash): (u64, u64),
    name: &[u8],
) -> Result<Search<'a>> {
    let first = first_ordinal(hash);
    let need = ENTRY_HEADER_BYTES + name.len();
    let (mut live, mut hole, mut first_is_free) = (0, None, true);
    // Where the hole before the next piece begins, or the next piece.
    let mut start = 0;
    let mut pieces = pieces(payload)?;
    while let Some(piece) = pieces.next() {
        let piece = piece?;
        let end = piece.at + piece.space;
        match piece.entry {
            Some(entry) if entry.is_called(name) => {
                let next = pieces.next().transpose()?;
                let next = next.filter(|next| next.entry.is_none());
                let end = end + next.map_or(0, |next| next.space);
                return Ok(Search::Entry(entry, start..end));
            }
            Some(entry) => {
                start = end;
                live += ENTRY_HEADER_BYTES + entry.name.len();
                first_is_free &= entry.ordinal != first || !is_of_group(seed, entry.name, hash);
            }
            None if piece.space >= need && hole.is_none() => hole = Some((piece.at, piece.space)),
            None => {}
        }
    }
    Ok(Search::Room(Room {
        live,
        hole,
        first_is_free,
    }))
}

#[cfg(test)]
mod tests;

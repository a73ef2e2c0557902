//! One bucket: entries with holes in the 496 bytes of a granule's payload. Pure functions on bytes.
//!
//! **Invariants.** Entries and holes lie side by side in `0..used`; two holes are never adjacent
//! and none is the last. `entries` and `subdirectories` count the entries. A bucket with a child
//! holds no entries. A removed entry becomes a hole whose old name stays in place, so that a
//! removal logs a few bytes only.

use std::ops::Range;

use dure_store::format::bucket::{
    BucketHeader, ENTRY_BYTES, ENTRY_HEADER_BYTES, EntryHeader, HEADER_BYTES, NAME_MAX, ORDINALS,
};
use dure_store::format::inode::Time;
use dure_store::format::name::check_name;
use dure_store::format::node::NodeKind;
use dure_store::format::trie;
use dure_store::units::{Ino, Nid};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::stamp::{self, Stamps};

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

fn header_mut(payload: &mut [u8]) -> &mut BucketHeader {
    let (header, _) =
        BucketHeader::mut_from_prefix(payload).expect("a bucket is longer than its header");
    header
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
            && entry.name == name
        {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// What an insert did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inserted {
    /// The entry is in.
    Done,
    /// It does not fit; nothing has changed.
    Overflow,
    /// All ordinals of its hash group are in use; nothing has changed.
    Crowded,
}

/// A new entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NewEntry<'a> {
    /// The inode.
    pub(crate) ino: Ino,
    /// `st_mode >> 12`.
    pub(crate) kind: u8,
    /// Tells entries of one hash group apart.
    pub(crate) ordinal: u8,
    /// 1..=255 bytes, not in the bucket yet.
    pub(crate) name: &'a [u8],
}

/// Inserts an entry for a name of this hash that is not in the bucket, under an ordinal that no
/// entry of its hash group has. The first ordinal tried is the part of the hash that the group
/// leaves out: so few entries need to be hashed to see that it is free.
pub(crate) fn add(
    payload: &mut [u8],
    (seed, hash): (u64, u64),
    (ino, kind): (Ino, u8),
    name: &[u8],
) -> Result<Inserted> {
    let first = hash.to_le_bytes()[0] % ORDINALS;
    let mut is_free = true;
    let room = room(payload, ENTRY_HEADER_BYTES + name.len(), |entry| {
        is_free &= entry.ordinal != first || !is_of_group(seed, entry.name, hash);
    })?;
    let ordinal = if is_free {
        first
    } else if let Some(other) = free_ordinal(payload, seed, hash)? {
        other
    } else {
        return Ok(Inserted::Crowded);
    };
    let new = NewEntry {
        ino,
        kind,
        ordinal,
        name,
    };
    put_into(payload, &room, &new)
}

/// Inserts an entry.
fn insert(payload: &mut [u8], new: &NewEntry<'_>) -> Result<Inserted> {
    let room = room(payload, ENTRY_HEADER_BYTES + new.name.len(), |_| ())?;
    put_into(payload, &room, new)
}

/// Where an entry may go.
struct Room {
    /// Bytes of all entries.
    live: usize,
    /// The first hole that is big enough: offset and bytes.
    hole: Option<(usize, usize)>,
}

/// Where an entry of `need` bytes may go; passes all entries to `show`.
fn room<'p>(payload: &'p [u8], need: usize, mut show: impl FnMut(&Entry<'p>)) -> Result<Room> {
    let (mut live, mut hole) = (0, None);
    for piece in pieces(payload)? {
        let piece = piece?;
        match &piece.entry {
            Some(entry) => {
                live += ENTRY_HEADER_BYTES + entry.name.len();
                show(entry);
            }
            None if piece.space >= need && hole.is_none() => hole = Some((piece.at, piece.space)),
            None => {}
        }
    }
    Ok(Room { live, hole })
}

/// Inserts an entry into the first hole that is big enough, else at the end, else after compaction.
fn put_into(payload: &mut [u8], room: &Room, new: &NewEntry<'_>) -> Result<Inserted> {
    assert!(
        (1..=NAME_MAX).contains(&new.name.len()),
        "names are checked before"
    );
    assert!(new.ino.0 != 0 && new.kind < 16 && new.ordinal < ORDINALS);
    assert_eq!(
        header(payload).child.get(),
        0,
        "an entry is inserted above a child"
    );
    let need = ENTRY_HEADER_BYTES + new.name.len();
    let used = usize::from(header(payload).used.get());
    if let Some((at, space)) = room.hole {
        let rest = space - need;
        let space = if rest >= ENTRY_HEADER_BYTES {
            need
        } else {
            space
        };
        put(payload, at, space, new);
        if rest >= ENTRY_HEADER_BYTES {
            put_hole(payload, at + need, rest);
        }
    } else if ENTRY_BYTES - used >= need {
        put(payload, used, need, new);
        header_mut(payload).used = small(used + need);
    } else if ENTRY_BYTES - room.live >= need {
        compact(payload)?;
        put(payload, room.live, need, new);
        header_mut(payload).used = small(room.live + need);
    } else {
        return Ok(Inserted::Overflow);
    }
    count(payload, 1, new.kind)?;
    Ok(Inserted::Done)
}

/// Removes the entry at `at`: leaves a hole, merged with adjacent holes.
pub(crate) fn remove(payload: &mut [u8], at: usize) -> Result<()> {
    let mut start = at;
    let mut end = at;
    let mut kind = None;
    let mut before = None;
    for piece in pieces(payload)? {
        let piece = piece?;
        if piece.at == at {
            kind = piece.entry.map(|entry| entry.kind);
            start = before.unwrap_or(at);
            end = at + piece.space;
        } else if piece.at == end && end > at && piece.entry.is_none() {
            end += piece.space;
        }
        before = piece.entry.is_none().then_some(piece.at);
    }
    let kind = kind.expect("the caller found an entry there");
    if end == usize::from(header(payload).used.get()) {
        header_mut(payload).used = small(start);
    } else {
        put_hole(payload, start, end - start);
    }
    count(payload, -1, kind)
}

/// Makes the entry at `at` name another inode.
pub(crate) fn retarget(payload: &mut [u8], at: usize, ino: Ino, kind: u8) -> Result<()> {
    assert!(ino.0 != 0 && kind < 16);
    let (head, _) = EntryHeader::mut_from_prefix(&mut payload[HEADER_BYTES + at..])
        .expect("the entry was found there");
    let before = head.kind & 15;
    head.ino = U64::new(ino.0);
    head.kind = head.kind & 0xf0 | kind;
    count(payload, -1, before)?;
    count(payload, 1, kind)
}

/// The lowest ordinal that no entry of the same hash group in the bucket has.
fn free_ordinal(payload: &[u8], seed: u64, wanted: u64) -> Result<Option<u8>> {
    let mut taken = 0_u16;
    for piece in pieces(payload)? {
        if let Some(entry) = piece?.entry
            && is_of_group(seed, entry.name, wanted)
        {
            taken |= 1 << entry.ordinal;
        }
    }
    Ok((0..ORDINALS).find(|ordinal| taken >> ordinal & 1 == 0))
}

fn is_of_group(seed: u64, name: &[u8], wanted: u64) -> bool {
    trie::same_group(trie::name_hash(seed, name), wanted)
}

/// Stamps the bucket: an entry changes now.
pub(crate) fn set_stamps(payload: &mut [u8], now: Time, set_number: u32) {
    let mut fold = stamp::Fold::default();
    if let Some(before) = stamp::stamps_of(header(payload), set_number) {
        fold.add_stamps(before);
    }
    fold.add_stamps(Stamps {
        mtime: now,
        ctime: now,
    });
    let stamps = fold.stamps.expect("a stamp was just added");
    let header = header_mut(payload);
    header.mtime = stamps.mtime;
    header.ctime = stamps.ctime;
    header.set_number = U32::new(set_number);
}

/// Sets or clears the child of a bucket that holds no entries.
pub(crate) fn set_child(payload: &mut [u8], child: u64) {
    let header = header_mut(payload);
    assert_eq!(
        header.entries.get(),
        0,
        "a bucket with entries gets a child"
    );
    header.used = U16::ZERO;
    header.child = U64::new(child);
}

/// Moves all entries to eight buckets of a new node by their hash at `level`.
pub(crate) fn split(
    payload: &mut [u8],
    seed: u64,
    level: u32,
) -> Result<Box<[[u8; BUCKET_BYTES]; 8]>> {
    let mut children = Box::new([[0; BUCKET_BYTES]; 8]);
    for entry in entries(payload)? {
        let Entry {
            ino,
            kind,
            ordinal,
            name,
            ..
        } = entry?;
        let slot = trie::slot(trie::name_hash(seed, name), level);
        let new = NewEntry {
            ino,
            kind,
            ordinal,
            name,
        };
        let inserted = insert(&mut children[usize::from(slot)], &new)?;
        assert_eq!(
            inserted,
            Inserted::Done,
            "a part of a bucket does not fit into one"
        );
    }
    let header = header_mut(payload);
    header.entries = U16::ZERO;
    header.subdirectories = U32::ZERO;
    header.used = U16::ZERO;
    Ok(children)
}

fn compact(payload: &mut [u8]) -> Result<()> {
    let mut area = [0; ENTRY_BYTES];
    let mut end = 0;
    for entry in entries(payload)? {
        let entry = entry?;
        let len = ENTRY_HEADER_BYTES + entry.name.len();
        area[end..end + len].copy_from_slice(&payload[HEADER_BYTES + entry.at..][..len]);
        let (head, _) =
            EntryHeader::mut_from_prefix(&mut area[end..]).expect("the entry was copied there");
        head.space = small(len);
        end += len;
    }
    payload[HEADER_BYTES..][..end].copy_from_slice(&area[..end]);
    header_mut(payload).used = small(end);
    Ok(())
}

fn put(payload: &mut [u8], at: usize, space: usize, new: &NewEntry<'_>) {
    let head = EntryHeader {
        ino: U64::new(new.ino.0),
        space: small(space),
        kind: new.ordinal << 4 | new.kind,
        name_len: u8::try_from(new.name.len()).expect("names have at most 255 bytes"),
    };
    let to = &mut payload[HEADER_BYTES + at..][..ENTRY_HEADER_BYTES + new.name.len()];
    to[..ENTRY_HEADER_BYTES].copy_from_slice(head.as_bytes());
    to[ENTRY_HEADER_BYTES..].copy_from_slice(new.name);
}

fn put_hole(payload: &mut [u8], at: usize, space: usize) {
    let mut head = EntryHeader::new_zeroed();
    head.space = small(space);
    payload[HEADER_BYTES + at..][..ENTRY_HEADER_BYTES].copy_from_slice(head.as_bytes());
}

fn count(payload: &mut [u8], delta: i16, kind: u8) -> Result<()> {
    let wrong = Malformed("entry count");
    let header = header_mut(payload);
    let entries = header.entries.get().checked_add_signed(delta);
    header.entries = U16::new(entries.ok_or(wrong)?);
    if kind == KIND_DIRECTORY {
        let subdirectories = header
            .subdirectories
            .get()
            .checked_add_signed(i32::from(delta));
        header.subdirectories = U32::new(subdirectories.ok_or(wrong)?);
    }
    Ok(())
}

fn small(bytes: usize) -> U16 {
    U16::new(u16::try_from(bytes).expect("a bucket is smaller than 64 KiB"))
}

#[cfg(test)]
mod tests;

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
use dure_store::op::Draft;
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

fn header_mut(draft: &mut Draft) -> &mut BucketHeader {
    BucketHeader::mut_from_bytes(draft.part(HEADER)).expect("the header is as long as its range")
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
#[derive(Debug, Clone, Copy)]
pub(crate) enum Search<'a> {
    /// The name is in use.
    Entry(Entry<'a>),
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

/// Looks for the entry of a name of this hash, and for where one could go.
pub(crate) fn search<'a>(
    payload: &'a [u8],
    (seed, hash): (u64, u64),
    name: &[u8],
) -> Result<Search<'a>> {
    let first = first_ordinal(hash);
    let need = ENTRY_HEADER_BYTES + name.len();
    let (mut live, mut hole, mut first_is_free) = (0, None, true);
    for piece in pieces(payload)? {
        let piece = piece?;
        match piece.entry {
            Some(entry) if entry.is_called(name) => return Ok(Search::Entry(entry)),
            Some(entry) => {
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
/// entry of its hash group has. `room` is what [`search`] said, if no entry has changed since.
pub(crate) fn add(
    draft: &mut Draft,
    room: Option<Room>,
    (seed, hash): (u64, u64),
    (ino, kind): (Ino, u8),
    name: &[u8],
) -> Result<Inserted> {
    let room = match room {
        Some(room) => room,
        None => match search(draft, (seed, hash), name)? {
            Search::Room(room) => room,
            Search::Entry(_) => return Err(Malformed("a name twice")),
        },
    };
    let ordinal = if room.first_is_free {
        first_ordinal(hash)
    } else if let Some(other) = free_ordinal(draft, seed, hash)? {
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
    put_into(draft, &room, &new)
}

/// Appends an entry to those of a bucket without holes.
fn append(draft: &mut Draft, new: &NewEntry<'_>) -> Result<Inserted> {
    let room = Room {
        live: header(draft).used.get().into(),
        hole: None,
        first_is_free: true,
    };
    put_into(draft, &room, new)
}

/// Inserts an entry into the first hole that is big enough, else at the end, else after compaction.
fn put_into(draft: &mut Draft, room: &Room, new: &NewEntry<'_>) -> Result<Inserted> {
    assert!(
        (1..=NAME_MAX).contains(&new.name.len()),
        "names are checked before"
    );
    assert!(new.ino.0 != 0 && new.kind < 16 && new.ordinal < ORDINALS);
    assert_eq!(
        header(draft).child.get(),
        0,
        "an entry is inserted above a child"
    );
    let need = ENTRY_HEADER_BYTES + new.name.len();
    let used = usize::from(header(draft).used.get());
    if let Some((at, space)) = room.hole {
        let rest = space - need;
        let space = if rest >= ENTRY_HEADER_BYTES {
            need
        } else {
            space
        };
        put(draft, at, space, new);
        if rest >= ENTRY_HEADER_BYTES {
            put_hole(draft, at + need, rest);
        }
    } else if ENTRY_BYTES - used >= need {
        put(draft, used, need, new);
        header_mut(draft).used = small(used + need);
    } else if ENTRY_BYTES - room.live >= need {
        compact(draft)?;
        put(draft, room.live, need, new);
        header_mut(draft).used = small(room.live + need);
    } else {
        return Ok(Inserted::Overflow);
    }
    count(draft, 1, new.kind)?;
    Ok(Inserted::Done)
}

/// Removes the entry at `at`: leaves a hole, merged with adjacent holes.
pub(crate) fn remove(draft: &mut Draft, at: usize) -> Result<()> {
    let mut start = at;
    let mut end = at;
    let mut kind = None;
    let mut before = None;
    for piece in pieces(draft)? {
        let piece = piece?;
        if piece.at == at {
            kind = piece.entry.map(|entry| entry.kind);
            start = before.unwrap_or(at);
            end = at + piece.space;
        } else if piece.at == end && end > at && piece.entry.is_none() {
            end += piece.space;
        }
        if piece.at > at {
            break;
        }
        before = piece.entry.is_none().then_some(piece.at);
    }
    let kind = kind.expect("the caller found an entry there");
    if end == usize::from(header(draft).used.get()) {
        header_mut(draft).used = small(start);
    } else {
        put_hole(draft, start, end - start);
    }
    count(draft, -1, kind)
}

/// Makes the entry at `at` name another inode.
pub(crate) fn retarget(draft: &mut Draft, at: usize, ino: Ino, kind: u8) -> Result<()> {
    assert!(ino.0 != 0 && kind < 16);
    let head = draft.part(HEADER_BYTES + at..HEADER_BYTES + at + ENTRY_HEADER_BYTES);
    let head = EntryHeader::mut_from_bytes(head).expect("the range is that of a header");
    let before = head.kind & 15;
    head.ino = U64::new(ino.0);
    head.kind = head.kind & 0xf0 | kind;
    count(draft, -1, before)?;
    count(draft, 1, kind)
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
pub(crate) fn set_stamps(draft: &mut Draft, now: Time, set_number: u32) {
    let mut fold = stamp::Fold::default();
    if let Some(before) = stamp::stamps_of(header(draft), set_number) {
        fold.add_stamps(before);
    }
    fold.add_stamps(Stamps {
        mtime: now,
        ctime: now,
    });
    let stamps = fold.stamps.expect("a stamp was just added");
    let header = header_mut(draft);
    header.mtime = stamps.mtime;
    header.ctime = stamps.ctime;
    header.set_number = U32::new(set_number);
}

/// Sets or clears the child of a bucket that holds no entries.
pub(crate) fn set_child(draft: &mut Draft, child: u64) {
    let header = header_mut(draft);
    assert_eq!(
        header.entries.get(),
        0,
        "a bucket with entries gets a child"
    );
    header.used = U16::ZERO;
    header.child = U64::new(child);
}

/// Moves all entries to eight buckets of a new node by their hash at `level`.
pub(crate) fn split(draft: &mut Draft, seed: u64, level: u32) -> Result<Box<[Draft]>> {
    let empty = |_| Draft::copy_of(vec![0; BUCKET_BYTES].into());
    let mut children: Box<[Draft]> = (0..8).map(empty).collect();
    for entry in entries(draft)? {
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
        let inserted = append(&mut children[usize::from(slot)], &new)?;
        assert_eq!(
            inserted,
            Inserted::Done,
            "a part of a bucket does not fit into one"
        );
    }
    let header = header_mut(draft);
    header.entries = U16::ZERO;
    header.subdirectories = U32::ZERO;
    header.used = U16::ZERO;
    Ok(children)
}

fn compact(draft: &mut Draft) -> Result<()> {
    let mut area = [0; ENTRY_BYTES];
    let mut end = 0;
    for entry in entries(draft)? {
        let entry = entry?;
        let len = ENTRY_HEADER_BYTES + entry.name.len();
        area[end..end + len].copy_from_slice(&draft[HEADER_BYTES + entry.at..][..len]);
        let (head, _) =
            EntryHeader::mut_from_prefix(&mut area[end..]).expect("the entry was copied there");
        head.space = small(len);
        end += len;
    }
    draft
        .part(HEADER_BYTES..HEADER_BYTES + end)
        .copy_from_slice(&area[..end]);
    header_mut(draft).used = small(end);
    Ok(())
}

fn put(draft: &mut Draft, at: usize, space: usize, new: &NewEntry<'_>) {
    let head = EntryHeader {
        ino: U64::new(new.ino.0),
        space: small(space),
        kind: new.ordinal << 4 | new.kind,
        name_len: u8::try_from(new.name.len()).expect("names have at most 255 bytes"),
    };
    let start = HEADER_BYTES + at;
    let to = draft.part(start..start + ENTRY_HEADER_BYTES + new.name.len());
    to[..ENTRY_HEADER_BYTES].copy_from_slice(head.as_bytes());
    to[ENTRY_HEADER_BYTES..].copy_from_slice(new.name);
}

fn put_hole(draft: &mut Draft, at: usize, space: usize) {
    let mut head = EntryHeader::new_zeroed();
    head.space = small(space);
    draft
        .part(HEADER_BYTES + at..HEADER_BYTES + at + ENTRY_HEADER_BYTES)
        .copy_from_slice(head.as_bytes());
}

fn count(draft: &mut Draft, delta: i16, kind: u8) -> Result<()> {
    let wrong = Malformed("entry count");
    let header = header_mut(draft);
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

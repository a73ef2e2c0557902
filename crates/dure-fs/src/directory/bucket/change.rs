//! Changing a bucket. All is done in a [`Draft`], which knows the bytes that were written.

use std::ops::Range;

use dure_store::format::bucket::{
    BucketHeader, ENTRY_BYTES, ENTRY_HEADER_BYTES, EntryHeader, HEADER_BYTES, NAME_MAX, ORDINALS,
};
use dure_store::format::inode::Time;
use dure_store::format::trie;
use dure_store::op::Draft;
use dure_store::units::Ino;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::{
    BUCKET_BYTES, Entry, HEADER, KIND_DIRECTORY, Malformed, Result, Room, Search, entries,
    first_ordinal, header, is_of_group, pieces, search,
};
use crate::directory::stamp::{self, Stamps};

fn header_mut(draft: &mut Draft) -> &mut BucketHeader {
    BucketHeader::mut_from_bytes(draft.part(HEADER)).expect("the header is as long as its range")
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
            Search::Entry(..) => return Err(Malformed("a name twice")),
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
pub(super) fn append(draft: &mut Draft, new: &NewEntry<'_>) -> Result<Inserted> {
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

/// Removes an entry of this type, and leaves the hole that [`search`] said.
pub(crate) fn remove(draft: &mut Draft, kind: u8, hole: Range<usize>) -> Result<()> {
    if hole.end == usize::from(header(draft).used.get()) {
        header_mut(draft).used = small(hole.start);
    } else {
        put_hole(draft, hole.start, hole.len());
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

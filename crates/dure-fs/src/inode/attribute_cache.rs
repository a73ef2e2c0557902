//! Attributes that stat reads without a lock or a write.
//!
//! **Problem.** Overwrites change times of a file, chmod and link change its attributes; both have
//! to remove cached attributes of the inode, and neither should for that write a line which the
//! other one reads. **Structure.** [`AttributeCache`] is two seqlock tables: one has what changes
//! with an inode's attributes ([`PlainPart`]), the other what changes with its data ([`DataPart`]);
//! a record of either is a cache line.
//!
//! **Invariants.** What is in a table is true (see [`super::state_lock`]). A lookup that found both
//! parts has seen them true at one moment: the first was still there when the second had been read.
//! Both parts have a change time; the later one counts. Inodes with times that do not fit a word,
//! before 1697 or after 2242, are not cached. **On a crash** the tables are gone.

use dure_store::format::inode::{AttributesRecord, Time};
use dure_sync::{SeqLockTable, Words};
use zerocopy::little_endian::{I64, U32};

use super::Attributes;
use super::times::latest;
use crate::inode::InodeId;

const WORDS: usize = 7;
const WAYS: usize = 4;
/// Bytes of the two records of an inode in memory.
const RECORDS_BYTES: u64 = 128;

type Table = SeqLockTable<WORDS, WAYS>;
type Record = [u64; WORDS];

/// Attributes of inodes, found without a lock.
#[derive(Debug)]
pub(crate) struct AttributeCache {
    plain: Table,
    data: Table,
}

/// What changes with the names and attributes of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlainPart {
    pub(super) mode: u32,
    pub(super) nlink: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) rdev: u64,
    pub(super) btime: Time,
    /// Last change of these.
    pub(super) ctime: Time,
    pub(super) extended: bool,
}

/// What changes with the data of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DataPart {
    pub(super) size: u64,
    pub(super) blocks: u64,
    pub(super) atime: Time,
    pub(super) mtime: Time,
    /// Last change of these.
    pub(super) ctime: Time,
}

const SECS_MAX: i64 = 1 << 33;
const NANOS_BITS: u32 = 30;
const NANOS_MASK: u64 = (1 << NANOS_BITS) - 1;
/// Flag in the word of the mode, which leaves this bit unused.
const EXTENDED: u32 = 1 << 31;

/// A time as one word, if it fits.
fn pack(time: Time) -> Option<u64> {
    let (secs, nanos) = (time.secs.get(), u64::from(time.nanos.get()));
    let fits = (-SECS_MAX..SECS_MAX).contains(&secs) && nanos < 1_000_000_000;
    fits.then(|| (secs << NANOS_BITS).cast_unsigned() | nanos)
}

fn unpack(word: u64) -> Time {
    let nanos = u32::try_from(word & NANOS_MASK).expect("nanoseconds are masked to 30 bits");
    Time {
        secs: I64::new(word.cast_signed() >> NANOS_BITS),
        nanos: U32::new(nanos),
    }
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn halves(word: u64) -> (u32, u32) {
    let low = u32::try_from(word & u64::from(u32::MAX)).expect("half a word has 32 bits");
    (
        u32::try_from(word >> 32).expect("half a word has 32 bits"),
        low,
    )
}

/// The first word of a record.
fn hash(id: InodeId) -> u64 {
    // Not 0: no inode has that number.
    id.ino().0
}

fn is_of(words: Words<'_, WORDS>, id: InodeId) -> bool {
    words.get(0) == hash(id) && words.get(1) == id.life()
}

fn remove(table: &Table, id: InodeId) {
    table.remove(hash(id), |words| is_of(words, id));
}

/// Inserts a part, in place of another one if there is one. `same` says whether the part found in
/// the table is the same; `None`: none was found.
fn put(
    table: &Table,
    id: InodeId,
    same: Option<bool>,
    record: Option<Record>,
    holds: impl FnOnce() -> bool,
) {
    match same {
        Some(true) => return,
        Some(false) => remove(table, id),
        None => {}
    }
    if let Some(record) = record {
        table.insert_while(&record, holds);
    }
}

impl PlainPart {
    /// What stat shows of these attributes, and a number of links.
    pub(crate) fn of(attributes: &AttributesRecord, nlink: u32) -> PlainPart {
        PlainPart {
            mode: attributes.mode.get(),
            nlink,
            uid: attributes.uid.get(),
            gid: attributes.gid.get(),
            rdev: attributes.rdev.get(),
            btime: attributes.btime,
            ctime: attributes.ctime,
            extended: attributes.xattr_root.get() != 0,
        }
    }

    fn encode(&self, id: InodeId) -> Option<Record> {
        let mode = self.mode | if self.extended { EXTENDED } else { 0 };
        Some([
            hash(id),
            id.life(),
            pair(self.nlink, self.uid),
            pair(self.gid, mode),
            self.rdev,
            pack(self.btime)?,
            pack(self.ctime)?,
        ])
    }

    fn decode(words: Words<'_, WORDS>, id: InodeId) -> Option<PlainPart> {
        if !is_of(words, id) {
            return None;
        }
        let (nlink, uid) = halves(words.get(2));
        let (gid, mode) = halves(words.get(3));
        Some(PlainPart {
            mode: mode & !EXTENDED,
            nlink,
            uid,
            gid,
            rdev: words.get(4),
            btime: unpack(words.get(5)),
            ctime: unpack(words.get(6)),
            extended: mode & EXTENDED != 0,
        })
    }
}

impl DataPart {
    fn encode(&self, id: InodeId) -> Option<Record> {
        Some([
            hash(id),
            id.life(),
            self.size,
            self.blocks,
            pack(self.atime)?,
            pack(self.mtime)?,
            pack(self.ctime)?,
        ])
    }

    fn decode(words: Words<'_, WORDS>, id: InodeId) -> Option<DataPart> {
        is_of(words, id).then(|| DataPart {
            size: words.get(2),
            blocks: words.get(3),
            atime: unpack(words.get(4)),
            mtime: unpack(words.get(5)),
            ctime: unpack(words.get(6)),
        })
    }
}

impl Attributes {
    /// The attributes, from both parts as they were at one moment.
    #[inline]
    pub(crate) fn of(id: InodeId, plain: &PlainPart, data: &DataPart) -> Self {
        Attributes {
            ino: id.ino(),
            generation: id.generation(),
            kind: id.kind(),
            mode: plain.mode,
            nlink: plain.nlink,
            uid: plain.uid,
            gid: plain.gid,
            rdev: plain.rdev,
            size: data.size,
            blocks: data.blocks,
            atime: data.atime,
            mtime: data.mtime,
            ctime: latest(plain.ctime, data.ctime),
            btime: plain.btime,
            extended: plain.extended,
        }
    }
}

impl AttributeCache {
    /// Tables of at most about `bytes_max` bytes.
    pub(crate) fn new(bytes_max: u64) -> AttributeCache {
        let inodes = dure_store::units::to_usize(bytes_max / RECORDS_BYTES).max(1);
        AttributeCache {
            plain: Table::new(inodes),
            data: Table::new(inodes),
        }
    }

    /// The attributes of this generation of the inode, if they are cached.
    pub(crate) fn get(&self, id: InodeId) -> Option<Attributes> {
        // The data part is read within the lookup of the plain part: the result counts only if the
        // plain part was still there afterwards.
        self.plain.find(hash(id), |words| {
            let plain = PlainPart::decode(words, id)?;
            let data = self.data(id)?;
            Some(Attributes::of(id, &plain, &data))
        })
    }

    /// The attributes that do not change with the data.
    pub(crate) fn plain(&self, id: InodeId) -> Option<PlainPart> {
        self.plain
            .find(hash(id), |words| PlainPart::decode(words, id))
    }

    #[inline]
    fn data(&self, id: InodeId) -> Option<DataPart> {
        self.data
            .find(hash(id), |words| DataPart::decode(words, id))
    }

    /// Inserts the part unless the table has it; then nothing is written. A different one is
    /// removed: the task that changed the attributes under the shared lock has not removed it yet,
    /// and a caller that is told of the new part must not find the old one afterwards.
    pub(super) fn put_plain(&self, id: InodeId, part: &PlainPart, holds: impl FnOnce() -> bool) {
        let same = self.plain(id).map(|there| there == *part);
        put(&self.plain, id, same, part.encode(id), holds);
    }

    /// Like `AttributeCache::put_plain`, for the data part.
    pub(super) fn put_data(&self, id: InodeId, part: &DataPart, holds: impl FnOnce() -> bool) {
        let same = self.data(id).map(|there| there == *part);
        put(&self.data, id, same, part.encode(id), holds);
    }

    pub(super) fn remove_plain(&self, id: InodeId) {
        remove(&self.plain, id);
    }

    pub(super) fn remove_data(&self, id: InodeId) {
        remove(&self.data, id);
    }
}

#[cfg(test)]
mod tests {
    use dure_store::format::name::FileKind;
    use dure_store::units::Ino;

    use super::*;

    fn at(secs: i64, nanos: u32) -> Time {
        Time {
            secs: secs.into(),
            nanos: nanos.into(),
        }
    }

    fn id(life: u32) -> InodeId {
        InodeId::new(Ino(77), life, FileKind::Symlink)
    }

    const LIFE: u32 = u32::MAX - 3;

    fn parts() -> (PlainPart, DataPart) {
        let plain = PlainPart {
            mode: 0o120_777,
            nlink: 3,
            uid: u32::MAX,
            gid: 5,
            rdev: u64::MAX,
            btime: at(0, 3),
            ctime: at(7, 0),
            extended: true,
        };
        let data = DataPart {
            size: 1 << 50,
            blocks: 8,
            atime: at(-7, 1),
            mtime: at(SECS_MAX - 1, 999_999_999),
            ctime: at(1, 2),
        };
        (plain, data)
    }

    #[test]
    fn attributes_come_back_as_they_were_put_in() {
        let (plain, data) = parts();
        let table = AttributeCache::new(4096);
        table.put_plain(id(LIFE), &plain, || true);
        assert_eq!(table.get(id(LIFE)), None, "no data");
        assert_eq!(table.plain(id(LIFE)), Some(plain));
        table.put_data(id(LIFE), &data, || true);
        let both = Attributes::of(id(LIFE), &plain, &data);
        assert_eq!(table.get(id(LIFE)), Some(both));
        assert_eq!(both.ctime, at(7, 0), "the later one");
        assert_eq!(
            (both.atime, both.mtime, both.size),
            (at(-7, 1), data.mtime, 1 << 50)
        );
        assert_eq!(table.get(id(1)), None, "another life");
        table.remove_data(id(LIFE));
        assert_eq!(
            (table.get(id(LIFE)), table.plain(id(LIFE))),
            (None, Some(plain))
        );
        table.put_data(id(LIFE), &data, || true);
        table.remove_plain(id(LIFE));
        assert_eq!(table.get(id(LIFE)), None);
    }

    #[test]
    fn what_does_not_hold_or_fit_is_not_shown() {
        let (plain, data) = parts();
        let table = AttributeCache::new(4096);
        table.put_plain(id(LIFE), &plain, || true);
        table.put_data(id(LIFE), &data, || false);
        assert_eq!(table.get(id(LIFE)), None);
        let far = DataPart {
            mtime: at(-SECS_MAX - 1, 0),
            ..data
        };
        table.put_data(id(LIFE), &far, || true);
        assert_eq!(table.get(id(LIFE)), None);
    }
}

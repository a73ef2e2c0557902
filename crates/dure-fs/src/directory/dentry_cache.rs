//! The dentry cache: names that were looked up before, found again without a write.
//!
//! **Problem.** A lookup that locks the directory writes a line that all walks through it share.
//! **Structure.** A seqlock table of answers: directory and name to inode, or to nothing (a
//! negative entry). Directory and inode are stored with their generation, so that entries of a
//! deleted directory match no lookup.
//!
//! **Invariants.** An answer is inserted with the name's bucket locked, or the directory held
//! exclusively: by a lookup, or by the operation that made the entry, once it has finished. A task
//! that changes the entry removes the answer before other tasks can see the change, and until the
//! change is done holds the bucket, or the directory exclusively. So an answer is what a lookup with
//! the locks gave at a moment at which it could have been asked, and once a change is done no lookup
//! gets the answer from before. Names of more than [`NAME_BYTES`] bytes
//! are not cached. **On a crash** the table is gone.

use dure_store::units::{Ino, to_u64, to_usize};
use dure_sync::SeqLockTable;

use super::read::Name;
use crate::inode::{InodeId, InodeState};

const WORDS: usize = 15;
const WAYS: usize = 4;
/// The words before it: place, directory (two words), inode (two words), length of the name.
const FIRST_NAME_WORD: usize = 6;
const NAME_WORDS: usize = WORDS - FIRST_NAME_WORD;
/// Longest name that is cached.
const NAME_BYTES: usize = 8 * NAME_WORDS;
/// In place of an inode number, a negative entry: the name leads nowhere.
pub(crate) const ABSENT: u64 = 0;
/// In place of an inode number: the name is not cached.
pub(crate) const UNKNOWN: u64 = u64::MAX;
/// Bytes of one record in memory.
const RECORD_BYTES: u64 = 128;

/// Answers of earlier lookups.
#[derive(Debug)]
pub(crate) struct DentryCache(SeqLockTable<WORDS, WAYS>);

/// The words of a name, the last one padded with zeroes.
#[inline]
fn name_words(name: &[u8]) -> impl Iterator<Item = u64> {
    let (whole, rest) = name.as_chunks::<8>();
    let whole = whole.iter().map(|bytes| u64::from_le_bytes(*bytes));
    whole.chain((!rest.is_empty()).then(|| last_word(rest)))
}

/// At most seven bytes as a word. Loads that overlap take their place instead of a loop.
#[inline]
fn last_word(bytes: &[u8]) -> u64 {
    let len = bytes.len();
    if let (Some(head), Some(tail)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let (head, tail) = (u32::from_le_bytes(*head), u32::from_le_bytes(*tail));
        return u64::from(head) | u64::from(tail) << (8 * (len - 4));
    }
    let byte = |n: usize| u64::from(bytes[n]) << (8 * n);
    byte(0) | byte(len / 2) | byte(len - 1)
}

/// Where the answer is: the hash of the name, spread by the directory.
fn place(directory: Ino, name_hash: u64) -> u64 {
    (name_hash ^ directory.0.wrapping_mul(0xd6e8_feb8_6659_fd93)) | 1
}

impl DentryCache {
    /// A table of at most about `bytes_max` bytes.
    pub(crate) fn new(bytes_max: u64) -> DentryCache {
        let records = to_usize(bytes_max / RECORD_BYTES);
        DentryCache(SeqLockTable::new(records.max(1)))
    }

    /// The words of the inode that the name leads to; [`ABSENT`] for a negative entry, [`UNKNOWN`]
    /// if the name is not cached.
    pub(crate) fn get(&self, directory: InodeId, name: Name<'_>) -> (u64, u64) {
        let Name { bytes: name, hash } = name;
        if !DentryCache::keeps(name) {
            return (UNKNOWN, 0);
        }
        let found = self.0.find(place(directory.ino(), hash), |record| {
            let same = record.get(1) == directory.ino().0
                && record.get(2) == directory.life()
                && record.get(5) == to_u64(name.len())
                && name_words(name)
                    .zip(FIRST_NAME_WORD..)
                    .all(|(word, at)| record.get(at) == word);
            same.then(|| (record.get(3), record.get(4)))
        });
        found.unwrap_or((UNKNOWN, 0))
    }

    /// Whether the name is short enough to be cached.
    pub(crate) fn keeps(name: &[u8]) -> bool {
        name.len() <= NAME_BYTES
    }

    /// Caches an answer. The caller got it, or made it so, with the directory shared and the bucket
    /// locked, or with the directory exclusively, and still holds them.
    pub(crate) fn put(
        &self,
        _held: &InodeState,
        directory: InodeId,
        name: Name<'_>,
        answer: Option<InodeId>,
    ) {
        let Name { bytes: name, hash } = name;
        if !DentryCache::keeps(name) {
            return;
        }
        let mut record = [0; WORDS];
        record[0] = place(directory.ino(), hash);
        record[1] = directory.ino().0;
        record[2] = directory.life();
        if let Some(id) = answer {
            (record[3], record[4]) = (id.ino().0, id.life());
            assert!(
                ![ABSENT, UNKNOWN].contains(&record[3]),
                "a number that stands for no inode"
            );
        }
        record[5] = to_u64(name.len());
        for (word, at) in name_words(name).zip(FIRST_NAME_WORD..) {
            record[at] = word;
        }
        self.0.insert(&record);
    }

    /// Removes every answer about names with this hash. The caller is about to change the entry,
    /// and holds its bucket, or the directory exclusively.
    pub(crate) fn forget(&self, directory: Ino, name_hash: u64) {
        let place = place(directory, name_hash);
        self.0.remove(place, |record| record.get(1) == directory.0);
    }
}

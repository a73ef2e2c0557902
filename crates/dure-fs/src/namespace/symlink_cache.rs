//! Targets of symbolic links, found without a write.
//!
//! **Problem.** A walk through a link reads its target under the inode lock, with a pin.
//! **Structure.** A seqlock table of short targets, by inode and generation. **Invariants.** A
//! target never changes during a generation, so nothing has to be removed. Reading a link may count
//! as an access: whether it does follows from the attributes, which must be cached as well. **On a
//! crash** the table is gone.

use dure_store::units::{to_u64, to_usize};
use dure_sync::{SeqLockTable, Words};
use zerocopy::IntoBytes;

use crate::inode::InodeId;
use crate::namespace::Names;
use crate::volume::AccessTime;

const WORDS: usize = 15;
const WAYS: usize = 4;
/// The words before it: place, inode (two words), length of the target.
const FIRST_TARGET_WORD: usize = 4;
const TARGET_WORDS: usize = WORDS - FIRST_TARGET_WORD;
/// Longest target that is cached.
const TARGET_BYTES: usize = 8 * TARGET_WORDS;
/// Bytes of one record in memory.
const RECORD_BYTES: u64 = 128;

/// Targets that were read.
#[derive(Debug)]
pub(crate) struct SymlinkCache(SeqLockTable<WORDS, WAYS>);

/// Length and words of the target of `link`, if this is its record.
fn target_of(words: Words<'_, WORDS>, link: InodeId) -> Option<(u64, [u64; TARGET_WORDS])> {
    let same = words.get(1) == link.ino().0 && words.get(2) == link.life();
    let target = || std::array::from_fn(|n| words.get(FIRST_TARGET_WORD + n));
    same.then(|| (words.get(3), target()))
}

impl SymlinkCache {
    /// A table of at most about `bytes_max` bytes.
    pub(crate) fn new(bytes_max: u64) -> SymlinkCache {
        let records = to_usize(bytes_max / RECORD_BYTES);
        SymlinkCache(SeqLockTable::new(records.max(1)))
    }

    pub(crate) fn get(&self, link: InodeId) -> Option<Vec<u8>> {
        let (bytes, words) = self.0.find(link.place(), |words| target_of(words, link))?;
        let words = words.map(u64::to_le_bytes);
        Some(words.as_bytes()[..to_usize(bytes)].to_vec())
    }

    /// Caches the target of a link, if it is short enough and not cached yet.
    pub(super) fn put(&self, link: InodeId, target: &[u8]) {
        if target.len() > TARGET_BYTES || self.get(link).is_some() {
            return;
        }
        let mut bytes = [0; TARGET_BYTES];
        bytes[..target.len()].copy_from_slice(target);
        let mut record = [0; WORDS];
        record[0] = link.place();
        record[1] = link.ino().0;
        record[2] = link.life();
        record[3] = to_u64(target.len());
        let (words, _) = bytes.as_chunks::<8>();
        for (place, word) in record[FIRST_TARGET_WORD..].iter_mut().zip(words) {
            *place = u64::from_le_bytes(*word);
        }
        self.0.insert(&record);
    }
}

impl Names {
    /// Whether a read of the link leaves its access time unchanged.
    pub(crate) fn reads_unnoticed(&self, link: InodeId) -> bool {
        let policy = self.access_time;
        if policy == AccessTime::Never || self.inodes.options.read_only {
            return true;
        }
        self.inodes.attribute_cache.get(link).is_some_and(|shown| {
            let now = self.store.now();
            shown.atime == now || !policy.wants(shown.atime, (shown.mtime, shown.ctime), now)
        })
    }
}

#[cfg(test)]
mod tests {
    use dure_store::format::name::FileKind;
    use dure_store::units::Ino;

    use super::*;

    #[test]
    fn targets_come_back_as_they_were_put_in() {
        let table = SymlinkCache::new(4096);
        let link = |life| InodeId::new(Ino(9), life, FileKind::Symlink);
        for (life, bytes) in [(1, 1), (2, 7), (3, 8), (4, TARGET_BYTES)] {
            let target = vec![b'x'; bytes];
            assert_eq!(table.get(link(life)), None);
            table.put(link(life), &target);
            assert_eq!(table.get(link(life)), Some(target));
        }
        table.put(link(5), &[b'x'; TARGET_BYTES + 1]);
        assert_eq!(table.get(link(5)), None, "too long");
    }
}

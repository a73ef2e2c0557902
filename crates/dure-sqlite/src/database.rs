//! What the connections to one database share: its locks, and the index of its WAL.
//!
//! **Structure.** [`Databases`] finds by inode number, so that all names of a file lead to one
//! [`Database`]. A [`Link`] is what a connection has of it. **Invariants.** The index is memory of
//! this process: only connections of one process can have a database open, and a new one is filled
//! from the WAL. Parts of it stay where they are until the last connection has given them up. **On a
//! crash** locks and index are gone, as they must be.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ops::Range;

use dure_sync::atomic::{AtomicU64, Ordering, fence};
use dure_sync::{Arc, Mutex, Weak};

use crate::abi::code::SHM_NLOCK;
use crate::locks::{FileLocks, Held, Level, Mode, WalLocks};

/// Rank of the lock on the databases of a volume.
pub(crate) const DATABASES: u8 = 21;
/// Rank of the lock on what the connections to a database share.
pub(crate) const SHARED: u8 = 22;

/// The open databases of a volume.
#[derive(Debug, Default)]
pub(crate) struct Databases(Mutex<DATABASES, BTreeMap<u64, Weak<Database>>>);

impl Databases {
    /// A connection to the database that has inode number `ino`.
    pub(crate) fn connect(&self, ino: u64) -> Link {
        let mut open = self.0.lock();
        open.retain(|_, database| database.upgrade().is_some());
        let known = open.get(&ino).and_then(Weak::upgrade);
        let database = known.unwrap_or_else(|| {
            let database = Arc::new(Database::default());
            open.insert(ino, Arc::downgrade(&database));
            database
        });
        Link {
            database,
            level: Level::None,
            index: None,
        }
    }
}

#[derive(Debug, Default)]
struct Database(Mutex<SHARED, Shared>);

#[derive(Debug, Default)]
struct Shared {
    file: FileLocks,
    wal: WalLocks,
    /// Parts of the index, as large as SQLite asks for. The words are SQLite's, which reads and
    /// writes them in its own way.
    index: Vec<Box<[AtomicU64]>>,
    /// Connections that have the index.
    indexed: usize,
}

/// A connection to a database.
#[derive(Debug)]
pub(crate) struct Link {
    database: Arc<Database>,
    level: Level,
    /// Its locks of the index, once it has it.
    index: Option<Held>,
}

impl Link {
    /// Raises the lock on the file; whether it could be had.
    pub(crate) fn lock(&mut self, want: Level) -> bool {
        self.database.0.lock().file.lock(&mut self.level, want)
    }

    pub(crate) fn unlock(&mut self, to: Level) {
        self.database.0.lock().file.unlock(&mut self.level, to);
    }

    pub(crate) fn is_reserved(&self) -> bool {
        self.database.0.lock().file.is_reserved()
    }

    /// Part `number` of the index, made if it has to be; `None`: it is not there.
    pub(crate) fn map(&mut self, number: usize, bytes: usize, make: bool) -> Option<*mut c_void> {
        let mut shared = self.database.0.lock();
        if self.index.is_none() {
            self.index = Some(Held::default());
            shared.indexed += 1;
        }
        while make && shared.index.len() <= number {
            let words = bytes.div_ceil(8);
            shared.index.push(
                std::iter::repeat_with(AtomicU64::default)
                    .take(words)
                    .collect(),
            );
        }
        let part = shared.index.get(number)?;
        assert!(part.len() * 8 >= bytes, "parts of an index are of one size");
        Some(part.as_ptr().cast_mut().cast())
    }

    /// Takes or gives up locks of the index; whether it could be done.
    pub(crate) fn lock_index(&mut self, range: Range<usize>, flags: c_int) -> bool {
        use crate::abi::code::{SHM_SHARED, SHM_UNLOCK};
        assert!(range.end <= SHM_NLOCK, "a WAL index has eight locks");
        let Some(held) = &mut self.index else {
            return false;
        };
        let wal = &mut self.database.0.lock().wal;
        if flags & SHM_UNLOCK != 0 {
            wal.unlock(held, range);
            return true;
        }
        let mode = match flags & SHM_SHARED {
            0 => Mode::Exclusive,
            _ => Mode::Shared,
        };
        wal.lock(held, range, mode)
    }

    /// Gives up the index, with its locks.
    pub(crate) fn unmap(&mut self) {
        let mut shared = self.database.0.lock();
        let Some(mut held) = self.index.take() else {
            return;
        };
        shared.wal.unlock(&mut held, 0..SHM_NLOCK);
        shared.indexed -= 1;
        if shared.indexed == 0 {
            shared.index.clear();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.unmap();
        self.unlock(Level::None);
    }
}

/// Orders what this connection reads and writes of an index before and after.
pub(crate) fn barrier() {
    // SeqCst: SQLite reads one copy of the header of an index after it has written the other.
    fence(Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::code::{SHM_SHARED, SHM_UNLOCK};

    #[test]
    fn connections_share_a_database_by_its_number() {
        let databases = Databases::default();
        let (mut a, mut b, mut c) = (
            databases.connect(7),
            databases.connect(7),
            databases.connect(8),
        );
        assert!(a.lock(Level::Exclusive) && !b.lock(Level::Shared) && c.lock(Level::Exclusive));
        assert!(b.is_reserved());
        drop(a);
        assert!(b.lock(Level::Shared), "a closed connection has no lock");
    }

    #[test]
    fn an_index_is_there_until_the_last_has_given_it_up() {
        let databases = Databases::default();
        let (mut a, mut b) = (databases.connect(7), databases.connect(7));
        assert_eq!(a.map(0, 32768, false), None);
        let part = a.map(1, 32768, true).unwrap();
        assert_eq!(b.map(1, 32768, false), Some(part));
        assert!(a.lock_index(0..1, 0) && !b.lock_index(0..1, SHM_SHARED));
        a.unmap();
        assert!(
            b.lock_index(0..1, SHM_SHARED),
            "its locks are given up, too"
        );
        assert!(b.lock_index(0..1, SHM_UNLOCK | SHM_SHARED));
        assert_eq!(b.map(1, 32768, false), Some(part));
        b.unmap();
        assert_eq!(a.map(1, 32768, false), None);
    }
}

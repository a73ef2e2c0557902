//! Locks of a database between the connections of this process.
//!
//! **Problem.** A volume is open in one process, so no other one can have its databases open, and
//! connections exclude each other here. **Structure.** [`FileLocks`] are the five states of
//! <https://sqlite.org/lockingv3.html>; [`WalLocks`] the eight locks of a WAL index, each shared or
//! exclusive. A holder keeps what it has ([`Level`], [`Held`]). **Invariants.** Nobody waits: what
//! cannot be had is busy, and SQLite tries again. **Crash.** Nothing is kept.

use crate::abi::code::SHM_NLOCK;

/// What a connection has of a database file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Level {
    /// Nothing.
    #[default]
    None,
    /// It reads, as others may.
    Shared,
    /// It will write; others may read, and begin to.
    Reserved,
    /// It waits for readers to end; none may begin.
    Pending,
    /// It writes, and nobody else has anything.
    Exclusive,
}

impl Level {
    /// By its number in `sqlite3.h`.
    pub(crate) fn of(number: i32) -> Option<Level> {
        Some(match number {
            0 => Level::None,
            1 => Level::Shared,
            2 => Level::Reserved,
            3 => Level::Pending,
            4 => Level::Exclusive,
            _ => return None,
        })
    }
}

/// Who has what of a database file.
#[derive(Debug, Default)]
pub(crate) struct FileLocks {
    /// Connections with `Shared` or more.
    readers: usize,
    /// What the one with more than `Shared` has.
    writer: Level,
}

impl FileLocks {
    /// Raises `own` towards `want`; whether it got there. On the way to `Exclusive` it may end at
    /// `Pending`, which keeps new readers out.
    pub(crate) fn lock(&mut self, own: &mut Level, want: Level) -> bool {
        if *own >= want {
            return true;
        }
        if *own == Level::None {
            if self.writer >= Level::Pending {
                return false;
            }
            self.readers += 1;
            *own = Level::Shared;
        }
        if want == Level::Shared {
            return true;
        }
        if *own == Level::Shared && self.writer != Level::None {
            return false;
        }
        *own = match want {
            Level::Exclusive if self.readers == 1 => Level::Exclusive,
            Level::Exclusive => Level::Pending,
            want => want,
        };
        self.writer = *own;
        *own == want
    }

    /// Lowers `own` to `Shared` or `None`.
    pub(crate) fn unlock(&mut self, own: &mut Level, to: Level) {
        if *own <= to {
            return;
        }
        if *own > Level::Shared {
            self.writer = Level::None;
        }
        *own = Level::Shared;
        if to == Level::None {
            assert!(self.readers > 0, "a reader counts");
            self.readers -= 1;
            *own = Level::None;
        }
    }

    /// Whether a connection will write or does.
    pub(crate) fn is_reserved(&self) -> bool {
        self.writer != Level::None
    }
}

/// What a connection has of the locks of a WAL index, a bit a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Held {
    shared: u8,
    exclusive: u8,
}

/// The mode of a lock of the WAL index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Shared,
    Exclusive,
}

/// Locks of a WAL index: how many have each shared, and which are exclusive.
#[derive(Debug, Default)]
pub(crate) struct WalLocks {
    shared: [u32; SHM_NLOCK],
    exclusive: u8,
}

const _: () = assert!(SHM_NLOCK == 8, "a bit of a byte for each");

impl WalLocks {
    /// Takes all locks of `range`, or none; whether it got them.
    pub(crate) fn lock(
        &mut self,
        own: &mut Held,
        range: std::ops::Range<usize>,
        mode: Mode,
    ) -> bool {
        let bits = bits_of(&range);
        match mode {
            Mode::Shared => {
                if (self.exclusive & !own.exclusive) & bits != 0 {
                    return false;
                }
                for lock in range.filter(|lock| own.shared & (1 << lock) == 0) {
                    self.shared[lock] += 1;
                }
                own.shared |= bits;
            }
            Mode::Exclusive => {
                let shared = range.clone().any(|lock| self.shared[lock] > 0);
                if shared || (self.exclusive & !own.exclusive) & bits != 0 {
                    return false;
                }
                self.exclusive |= bits;
                own.exclusive |= bits;
            }
        }
        true
    }

    /// Gives up what `own` has of `range`.
    pub(crate) fn unlock(&mut self, own: &mut Held, range: std::ops::Range<usize>) {
        let bits = bits_of(&range);
        for lock in range.filter(|lock| own.shared & (1 << lock) != 0) {
            assert!(self.shared[lock] > 0, "a holder counts");
            self.shared[lock] -= 1;
        }
        self.exclusive &= !(own.exclusive & bits);
        own.shared &= !bits;
        own.exclusive &= !bits;
    }
}

fn bits_of(range: &std::ops::Range<usize>) -> u8 {
    range.clone().fold(0, |bits, lock| bits | 1 << lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_lets_readers_end_and_none_begin() {
        let mut locks = FileLocks::default();
        let (mut a, mut b, mut c) = (Level::None, Level::None, Level::None);
        assert!(locks.lock(&mut a, Level::Shared) && locks.lock(&mut b, Level::Shared));
        assert!(locks.lock(&mut a, Level::Reserved) && locks.is_reserved());
        assert!(!locks.lock(&mut b, Level::Reserved), "one will write");
        assert!(locks.lock(&mut c, Level::Shared), "readers may begin");
        assert!(!locks.lock(&mut a, Level::Exclusive));
        assert_eq!(a, Level::Pending);
        locks.unlock(&mut c, Level::None);
        assert!(!locks.lock(&mut c, Level::Shared), "none may begin");
        locks.unlock(&mut b, Level::None);
        assert!(locks.lock(&mut a, Level::Exclusive));
        locks.unlock(&mut a, Level::Shared);
        assert!(locks.lock(&mut b, Level::Shared) && !locks.is_reserved());
        locks.unlock(&mut a, Level::None);
        assert!(
            locks.lock(&mut b, Level::Exclusive),
            "no other connection has a lock"
        );
        locks.unlock(&mut b, Level::None);
        assert_eq!((locks.readers, locks.writer), (0, Level::None));
    }

    #[test]
    fn two_that_recover_do_not_both_wait_for_each_other() {
        let mut locks = FileLocks::default();
        let (mut a, mut b) = (Level::None, Level::None);
        assert!(locks.lock(&mut a, Level::Shared) && locks.lock(&mut b, Level::Shared));
        assert!(!locks.lock(&mut a, Level::Exclusive));
        assert!(!locks.lock(&mut b, Level::Exclusive));
        assert_eq!(b, Level::Shared, "a waits already");
    }

    #[test]
    fn wal_locks_are_shared_or_exclusive() {
        let mut locks = WalLocks::default();
        let (mut a, mut b) = (Held::default(), Held::default());
        assert!(locks.lock(&mut a, 3..4, Mode::Shared) && locks.lock(&mut b, 3..4, Mode::Shared));
        assert!(!locks.lock(&mut b, 0..8, Mode::Exclusive), "all or none");
        assert!(locks.lock(&mut a, 0..3, Mode::Exclusive));
        locks.unlock(&mut a, 0..4);
        assert_eq!(a, Held::default());
        locks.unlock(&mut b, 3..4);
        assert!(locks.lock(&mut b, 0..8, Mode::Exclusive));
        assert!(!locks.lock(&mut a, 7..8, Mode::Shared));
        locks.unlock(&mut b, 0..8);
        assert!(locks.lock(&mut a, 7..8, Mode::Shared));
    }
}

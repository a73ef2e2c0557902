//! A version by which a reader who keeps nobody out notices that it read beside a change.
//!
//! **Problem.** Whoever takes a lock to read writes a line that all readers share, and waits for
//! writers. **Structure.** A counter beside the bytes it speaks of: even while they are whole, odd
//! while somebody changes them. A reader looks at it, copies, and looks again; what was copied
//! counts if both looks saw the same even number. **Invariants.** One task changes at a time: a
//! lock of the caller sees to that. The copies are accesses that may meet a change: atomics, or
//! [`crate::SharedBytes`]. A reader writes nothing and waits for nobody; it may fail for as long as
//! changes follow each other, so after a few tries it takes the lock of those who change.
//! **Crash.** Nothing is kept.

use crate::atomic::{AtomicU64, Ordering, fence};
use crate::backend;

/// Copies that a reader tries.
const COPIES_MAX: u32 = 3;

/// See the module.
#[derive(Debug, Default)]
pub struct Version(
    /// Written by who changes the bytes, with their lock; read by anybody. Publishes the bytes.
    AtomicU64,
);

/// Bytes were whole when this was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen(u64);

impl Version {
    const_unless_loom! {
        /// The version of bytes that nobody has changed yet.
        pub fn new() -> Self {
            Self(AtomicU64::new(0))
        }
    }

    /// What a copy may begin with; `None` while somebody changes the bytes.
    #[inline]
    #[must_use]
    pub fn look(&self) -> Option<Seen> {
        // Acquire: pairs with the Release at the end of `change`; the bytes of this version are
        // visible.
        let version = self.0.load(Ordering::Acquire);
        version.is_multiple_of(2).then_some(Seen(version))
    }

    /// Whether what was copied since `seen` is whole: nobody has begun to change it.
    #[inline]
    #[must_use]
    pub fn is_still(&self, seen: Seen) -> bool {
        // Acquire: pairs with the fence in `change`. Whoever copied a byte of a later change sees
        // behind this fence that its version is odd, or later.
        fence(Ordering::Acquire);
        // Relaxed: the fence orders it behind the copies.
        self.0.load(Ordering::Relaxed) == seen.0
    }

    /// The same of bytes that had no version when the copy began: who changes them makes one first.
    /// `now` looks for it.
    #[inline]
    #[must_use]
    pub fn has_not_begun<'v>(now: impl FnOnce() -> Option<&'v Version>) -> bool {
        // Acquire: as in `is_still`; behind it the version is seen that was made before the change.
        fence(Ordering::Acquire);
        // Relaxed: the fence orders it behind the copies.
        now().is_none_or(|version| version.0.load(Ordering::Relaxed) == 0)
    }

    /// What `copy` makes of the bytes as they are at one moment. Waits some microseconds for a
    /// change to end; `None` if there was one beside each of a few copies: these cost more than a
    /// lock, as does each of them to who changes the bytes.
    #[inline]
    pub fn read<R>(&self, mut copy: impl FnMut() -> R) -> Option<R> {
        let mut turns = backend::PATIENT_TURNS;
        for _ in 0..COPIES_MAX {
            let seen = loop {
                match self.look() {
                    Some(seen) => break seen,
                    None if turns == 0 => return None,
                    None => turns -= 1,
                }
                backend::spin_hint();
            };
            let copied = copy();
            if self.is_still(seen) {
                return Some(copied);
            }
        }
        None
    }

    /// Lets `change` write the bytes. The caller has the right to do so alone.
    ///
    /// # Panics
    /// If somebody is changing them.
    #[inline]
    pub fn change<R>(&self, change: impl FnOnce() -> R) -> R {
        // Relaxed: the last one who changed them had the caller's lock before.
        let version = self.0.load(Ordering::Relaxed);
        assert!(
            version.is_multiple_of(2),
            "bytes are changed by two at once"
        );
        // Relaxed: the fence orders it before the change.
        self.0.store(version + 1, Ordering::Relaxed);
        self.finish(version, change)
    }

    /// The same beside others who may change them this way; `None` if one of them just does.
    #[inline]
    pub fn try_change<R>(&self, change: impl FnOnce() -> R) -> Option<R> {
        let Seen(version) = self.look()?;
        // Acquire: pairs with the Release in `finish`, so that changes follow each other.
        self.0
            .compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        Some(self.finish(version, change))
    }

    /// The caller made the version odd, which was `version`.
    #[inline]
    fn finish<R>(&self, version: u64, change: impl FnOnce() -> R) -> R {
        // Release: pairs with the fence in `is_still`; publishes the odd version with whatever is
        // written next.
        fence(Ordering::Release);
        let done = change();
        // Release: pairs with the Acquire in `look`; publishes the bytes.
        self.0.store(version + 2, Ordering::Release);
        done
    }
}

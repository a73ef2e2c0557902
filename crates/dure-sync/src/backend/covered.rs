//! Atomic types that announce each access.
//!
//! **Problem.** The simulation must be told before every access, and loom's canaries must be able
//! to weaken an ordering; both need a wrapper around another atomic type. **Structure.** One macro
//! makes the wrappers; the backend supplies the wrapped types (`inner`), a function called before
//! each access (`before`) and one that maps orderings (`order`). **Invariants.** A wrapper has the
//! size and alignment of what it wraps. **Crash.** Nothing is kept.

use super::chosen::{before, inner, order};
use std::fmt;
use std::sync::atomic::Ordering;

/// How an operation uses its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Load,
    Store,
    Update,
}

macro_rules! read_modify_writes {
    ($value:ty: $($name:ident),*) => {$(
        /// As the operation of the same name of the standard type; returns the value before.
        #[inline]
        pub fn $name(&self, value: $value, ordering: Ordering) -> $value {
            self.before(Use::Update);
            self.0.$name(value, order(ordering))
        }
    )*};
}

macro_rules! cover {
    ($name:ident $(<$param:ident>)?, $inner:ty, $value:ty, [$($rmw:ident),*]) => {
        /// The atomic type of this name, whose accesses the backend sees.
        #[repr(transparent)]
        pub struct $name $(<$param>)? ($inner);

        impl $(<$param>)? $name $(<$param>)? {
            const_unless_loom! {
                /// An atomic that holds `value`.
                pub fn new(value: $value) -> Self {
                    Self(<$inner>::new(value))
                }
            }

            #[inline]
            fn before(&self, how: Use) {
                before(how, std::ptr::from_ref(self).addr());
            }

            /// The value, taken out.
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }

            /// The value, for the sole owner.
            #[cfg(not(dure_backend = "loom"))]
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            /// Reads the value.
            #[inline]
            pub fn load(&self, ordering: Ordering) -> $value {
                self.before(Use::Load);
                self.0.load(order(ordering))
            }

            /// Writes the value.
            #[inline]
            pub fn store(&self, value: $value, ordering: Ordering) {
                self.before(Use::Store);
                self.0.store(value, order(ordering));
            }

            /// Writes `new` if the value is `current`.
            ///
            /// # Errors
            /// The value, if it is another.
            #[inline]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.before(Use::Update);
                self.0.compare_exchange(current, new, order(success), order(failure))
            }

            /// Like `compare_exchange`, but may fail without reason.
            ///
            /// # Errors
            /// The value, if it was not replaced.
            #[inline]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.before(Use::Update);
                self.0.compare_exchange_weak(current, new, order(success), order(failure))
            }

            /// Replaces the value by what `change` makes of it, until `change` declines.
            ///
            /// # Errors
            /// The value that `change` declined.
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut change: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut seen = self.load(fetch);
                while let Some(new) = change(seen) {
                    match self.compare_exchange_weak(seen, new, set, fetch) {
                        Ok(before) => return Ok(before),
                        Err(now) => seen = now,
                    }
                }
                Err(seen)
            }

            read_modify_writes!($value: swap $(, $rmw)*);
        }

        impl $(<$param>)? fmt::Debug for $name $(<$param>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

macro_rules! cover_number {
    ($($name:ident: $value:ty),*) => {$(
        cover!($name, inner::$name, $value, [
            fetch_add, fetch_sub, fetch_and, fetch_nand, fetch_or, fetch_xor, fetch_max, fetch_min
        ]);

        impl Default for $name {
            fn default() -> Self {
                Self::new(0)
            }
        }
    )*};
}

cover_number! {
    AtomicU8: u8, AtomicU16: u16, AtomicU32: u32, AtomicU64: u64, AtomicI64: i64, AtomicUsize: usize
}

#[cfg(dure_backend = "sim")]
impl AtomicU32 {
    /// The wrapped atomic: the futex word of the real machine.
    pub(crate) fn uncovered(&self) -> &inner::AtomicU32 {
        &self.0
    }
}

cover!(
    AtomicBool,
    inner::AtomicBool,
    bool,
    [fetch_and, fetch_nand, fetch_or, fetch_xor]
);

impl Default for AtomicBool {
    fn default() -> Self {
        Self::new(false)
    }
}

cover!(AtomicPtr<T>, inner::AtomicPtr<T>, *mut T, []);

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self::new(std::ptr::null_mut())
    }
}

/// Orders the accesses around it.
#[inline]
pub fn fence(ordering: Ordering) {
    match order(ordering) {
        // A canary has removed the fence.
        Ordering::Relaxed => {}
        ordering => inner::fence(ordering),
    }
}

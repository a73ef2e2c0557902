//! Counted references.
//!
//! **Problem.** Cloning a reference to a shared object writes a shared line, which can cost the
//! whole gain of a per-core design (16x to 1x in the journal study), so the simulation must see it.
//! **Structure.** A transparent wrapper around the standard type. It is the same wrapper in every
//! backend, so that what compiles for one compiles for all: no `self: Arc<Self>` receivers, and
//! `Arc<dyn Trait>` is made with `Arc::from(Box<dyn Trait>)`. **Invariants.** Those of the standard
//! type. Not for hot paths: use per-core data and borrowed references there. **Crash.** Nothing is
//! kept.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use crate::backend::{self, BackendArc, BackendWeak};

/// A shared, counted reference.
#[repr(transparent)]
pub struct Arc<T: ?Sized>(BackendArc<T>);

/// A counted reference that does not keep its object alive.
#[repr(transparent)]
pub struct Weak<T: ?Sized>(BackendWeak<T>);

impl<T> Arc<T> {
    /// Shares `value`.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(BackendArc::new(value))
    }

    /// Shares the value that `make` makes, which may keep a weak reference to itself.
    pub fn new_cyclic(make: impl FnOnce(&Weak<T>) -> T) -> Self {
        Self(BackendArc::new_cyclic(|weak| {
            make(&Weak(BackendWeak::clone(weak)))
        }))
    }

    /// The value, if this is the only reference.
    ///
    /// # Errors
    /// Gives the reference back if there are others.
    pub fn try_unwrap(this: Self) -> Result<T, Self> {
        BackendArc::try_unwrap(this.into_counted()).map_err(Self)
    }

    /// The value, if this was the last reference.
    #[must_use]
    pub fn into_inner(this: Self) -> Option<T> {
        BackendArc::into_inner(this.into_counted())
    }
}

impl<T: ?Sized> Arc<T> {
    fn touch(&self) {
        backend::reference_counted(&**self);
    }

    /// Takes the standard reference out, counted as a drop.
    fn into_counted(self) -> BackendArc<T> {
        self.touch();
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped, so the reference is moved, not doubled.
        unsafe { std::ptr::read(&raw const this.0) }
    }

    /// A reference that does not keep the object alive.
    #[must_use]
    pub fn downgrade(this: &Self) -> Weak<T> {
        this.touch();
        Weak(BackendArc::downgrade(&this.0))
    }

    /// The value for writing, if this is the only reference.
    pub fn get_mut(this: &mut Self) -> Option<&mut T> {
        BackendArc::get_mut(&mut this.0)
    }

    /// Whether both refer to one object.
    #[must_use]
    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        BackendArc::ptr_eq(&this.0, &other.0)
    }

    /// The address of the object.
    #[must_use]
    pub fn as_ptr(this: &Self) -> *const T {
        BackendArc::as_ptr(&this.0)
    }

    /// The number of references, at this moment.
    #[must_use]
    pub fn strong_count(this: &Self) -> usize {
        BackendArc::strong_count(&this.0)
    }
}

impl<T: Clone> Arc<T> {
    /// The value for writing; cloned first if there are other references.
    pub fn make_mut(this: &mut Self) -> &mut T {
        this.touch();
        BackendArc::make_mut(&mut this.0)
    }
}

impl<T: ?Sized> Clone for Arc<T> {
    #[inline]
    fn clone(&self) -> Self {
        self.touch();
        Self(BackendArc::clone(&self.0))
    }
}

impl<T: ?Sized> Drop for Arc<T> {
    #[inline]
    fn drop(&mut self) {
        self.touch();
    }
}

impl<T: ?Sized> Deref for Arc<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized> AsRef<T> for Arc<T> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<T: ?Sized> Borrow<T> for Arc<T> {
    fn borrow(&self) -> &T {
        self
    }
}

impl<T: Default> Default for Arc<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for Arc<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized> From<Box<T>> for Arc<T> {
    fn from(value: Box<T>) -> Self {
        Self(BackendArc::from(value))
    }
}

impl<T> From<Vec<T>> for Arc<[T]> {
    fn from(value: Vec<T>) -> Self {
        Self(BackendArc::from(value))
    }
}

impl<T: Clone> From<&[T]> for Arc<[T]> {
    fn from(value: &[T]) -> Self {
        Self(BackendArc::from(value))
    }
}

impl From<&str> for Arc<str> {
    fn from(value: &str) -> Self {
        Self(BackendArc::from(value))
    }
}

impl From<String> for Arc<str> {
    fn from(value: String) -> Self {
        Self(BackendArc::from(value))
    }
}

impl<T> FromIterator<T> for Arc<[T]> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self(BackendArc::from_iter(items))
    }
}

impl<T: ?Sized + PartialEq> PartialEq for Arc<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: ?Sized + Eq> Eq for Arc<T> {}

impl<T: ?Sized + PartialOrd> PartialOrd for Arc<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        (**self).partial_cmp(&**other)
    }
}

impl<T: ?Sized + Ord> Ord for Arc<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl<T: ?Sized + Hash> Hash for Arc<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Arc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for Arc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Weak<T> {
    /// A reference to nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self(BackendWeak::new())
    }
}

impl<T: ?Sized> Weak<T> {
    /// A full reference, if the object still lives.
    #[must_use]
    pub fn upgrade(&self) -> Option<Arc<T>> {
        let arc = Arc(self.0.upgrade()?);
        arc.touch();
        Some(arc)
    }
}

impl<T> Default for Weak<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: ?Sized> Clone for Weak<T> {
    fn clone(&self) -> Self {
        Self(BackendWeak::clone(&self.0))
    }
}

impl<T: ?Sized> fmt::Debug for Weak<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(Weak)")
    }
}

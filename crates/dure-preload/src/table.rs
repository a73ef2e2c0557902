//! The description behind each descriptor of the program.
//!
//! **Structure.** A pointer for each number, to a counted reference; null: the kernel has the call.
//! **Invariants.** The table owns what its pointers lead to. One is taken out before the descriptor is
//! closed, and given up when no thread uses it any more ([`crate::slot`]). **On a crash** of the program
//! the server gives up what is left.

use std::ops::RangeInclusive;

use dure_sync::Arc;
use dure_sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::description::Description;
use crate::slot::{self, Inside};

/// Descriptors with greater numbers are the kernel's.
const DESCRIPTORS: usize = 1 << 16;

/// Read by each call, written when a descriptor is opened or closed: see [`crate::slot`] for why
/// sequentially consistent.
static TABLE: [AtomicPtr<Arc<Description>>; DESCRIPTORS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; DESCRIPTORS];

/// No number from here on ever had a description.
static END: AtomicU32 = AtomicU32::new(0);

fn place(fd: i32) -> Option<(u32, &'static AtomicPtr<Arc<Description>>)> {
    let number = u32::try_from(fd).ok()?;
    let place = TABLE.get(usize::try_from(number).ok()?)?;
    Some((number, place))
}

/// What a call does.
pub(crate) enum How<T> {
    /// It is done.
    Short(T),
    /// It is the kernel's.
    Long,
}

/// Does a call with the description of `fd`, if it has one.
#[inline]
pub(crate) fn with<T>(fd: i32, call: impl FnOnce(&Description) -> How<T>) -> Option<T> {
    let (number, place) = place(fd)?;
    if place.load(Ordering::Relaxed).is_null() {
        return None;
    }
    let inside = Inside::with(number)?;
    let found = place.load(Ordering::SeqCst);
    if found.is_null() {
        return None;
    }
    // SAFETY: what takes it out of the table waits until this thread has left.
    match call(unsafe { &*found }) {
        How::Short(done) => {
            inside.count_short();
            Some(done)
        }
        How::Long => {
            inside.count_long();
            None
        }
    }
}

/// Gives a descriptor a description. One that it has was left there by a close that went by.
pub(crate) fn put(fd: i32, description: Arc<Description>) {
    slot::inside(|| put_inside(fd, description));
}

/// The same by a thread that is inside already.
pub(crate) fn put_inside(fd: i32, description: Arc<Description>) {
    let Some((number, place)) = place(fd) else {
        return;
    };
    END.fetch_max(number + 1, Ordering::SeqCst);
    let new = Box::into_raw(Box::new(description));
    let old = place.swap(new, Ordering::SeqCst);
    give_up(number, old);
}

/// Takes the description away from a descriptor, when no thread uses it any more.
pub(crate) fn take(fd: i32) -> Option<Arc<Description>> {
    let (number, place) = place(fd)?;
    if place.load(Ordering::Relaxed).is_null() || !slot::is_of_program() {
        return None;
    }
    taken(number, place.swap(std::ptr::null_mut(), Ordering::SeqCst))
}

fn taken(number: u32, old: *mut Arc<Description>) -> Option<Arc<Description>> {
    if old.is_null() {
        return None;
    }
    slot::wait_for_users_of(number);
    // A handler that comes while memory is given back would use the allocator within itself.
    // SAFETY: the table's own, which is this caller's now.
    slot::inside(|| Some(*unsafe { Box::from_raw(old) }))
}

fn give_up(number: u32, old: *mut Arc<Description>) {
    if let Some(old) = taken(number, old) {
        // The end of a file without names is work of the library.
        slot::inside(|| drop(old));
    }
}

/// The description of a descriptor, for another one of the same.
pub(crate) fn share(fd: i32) -> Option<Arc<Description>> {
    let (number, place) = place(fd)?;
    let _inside = Inside::with(number)?;
    let found = place.load(Ordering::SeqCst);
    if found.is_null() {
        return None;
    }
    // SAFETY: what takes it away waits for this thread.
    Some(Arc::clone(unsafe { &*found }))
}

/// The numbers that may have descriptions, of `range`.
fn numbers(range: RangeInclusive<u32>) -> impl Iterator<Item = i32> {
    let end = END.load(Ordering::SeqCst);
    let last = (*range.end()).min(end.saturating_sub(1));
    let numbers = (end > 0).then_some(*range.start()..=last);
    numbers.into_iter().flatten().map(u32::cast_signed)
}

/// Leaves descriptors to the kernel, for they are about to be closed.
pub(crate) fn take_range(range: RangeInclusive<u32>) {
    for fd in numbers(range) {
        let taken = take(fd);
        slot::inside(|| drop(taken));
    }
}

/// Leaves all descriptors of a description to the kernel, which is about to be open for something else.
pub(crate) fn take_all_of(fd: i32) {
    let Some(description) = share(fd) else { return };
    for other in numbers(0..=u32::MAX) {
        let Some((number, place)) = place(other) else {
            continue;
        };
        if share(other).is_some_and(|other| Arc::ptr_eq(&other, &description)) {
            give_up(number, place.swap(std::ptr::null_mut(), Ordering::SeqCst));
        }
    }
    slot::inside(|| drop(description));
}

/// Other processes are about to have the program's descriptors, too.
pub(crate) fn all_become_shared() {
    for fd in numbers(0..=u32::MAX) {
        let mark = |description: &Description| {
            description.becomes_shared();
            How::Short(())
        };
        with(fd, mark);
    }
}

/// What was taken out, and may be in use.
pub(crate) struct Left(Vec<*mut Arc<Description>>);

/// Leaves all to the kernel. Calls may still be under way.
pub(crate) fn close() -> Left {
    let places = numbers(0..=u32::MAX).filter_map(place);
    let taken = places.map(|(_, place)| place.swap(std::ptr::null_mut(), Ordering::SeqCst));
    Left(taken.filter(|old| !old.is_null()).collect())
}

impl Left {
    /// Gives it up, when no thread is within a call. Dropped otherwise, it stays.
    pub(crate) fn give_up(self) {
        for old in self.0 {
            // SAFETY: it was the table's own, and no call has it any more.
            drop(unsafe { Box::from_raw(old) });
        }
    }
}

//! What SQLite passes: text, buffers, places for results.
//!
//! **Structure.** Types as large as the pointers that C passes, so that only they need `unsafe`.
//! **Invariants.** SQLite passes what its documentation says: text ends with a zero and stays during
//! the call, buffers have the length that comes with them. **Crash.** Nothing is kept.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::slice;

use crate::abi::Slot;

/// Text, or NULL.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct Text<'a>(*const c_char, PhantomData<&'a CStr>);

impl<'a> Text<'a> {
    pub(crate) const NULL: Text<'static> = Text(std::ptr::null(), PhantomData);

    pub(crate) fn get(self) -> Option<&'a CStr> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: not null; SQLite passes text with an end that stays during the call.
        // JUSTIFICATION: it is how C passes text.
        Some(unsafe { CStr::from_ptr(self.0) })
    }

    pub(crate) fn path(self) -> Option<&'a Path> {
        let text = self.get()?;
        Some(Path::new(OsStr::from_bytes(text.to_bytes())))
    }
}

impl<'a> From<&'a CStr> for Text<'a> {
    fn from(text: &'a CStr) -> Self {
        Text(text.as_ptr(), PhantomData)
    }
}

fn len_of(len: c_int) -> usize {
    usize::try_from(len).unwrap_or(0)
}

/// Bytes to be written to a file.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct Source(*const c_void);

impl Source {
    /// The first `len` bytes.
    pub(crate) fn get<'a>(self, len: c_int) -> &'a [u8] {
        if self.0.is_null() || len <= 0 {
            return &[];
        }
        // SAFETY: not null; SQLite passes a buffer of this length that nobody changes meanwhile.
        // JUSTIFICATION: it is how C passes buffers.
        unsafe { slice::from_raw_parts(self.0.cast(), len_of(len)) }
    }
}

/// Room for bytes.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct Target(*mut c_void);

impl Target {
    /// The first `len` bytes.
    pub(crate) fn get<'a>(self, len: c_int) -> &'a mut [u8] {
        if self.0.is_null() || len <= 0 {
            return &mut [];
        }
        // SAFETY: not null; SQLite passes a buffer of this length for this call only. Bytes that were
        // not set yet are bytes to us, whose values are not looked at.
        // JUSTIFICATION: it is how C passes buffers.
        unsafe { slice::from_raw_parts_mut(self.0.cast(), len_of(len)) }
    }

    /// Text with an end, cut to `len` bytes with it; whether all of it went in.
    pub(crate) fn set_text(self, len: c_int, text: &[u8]) -> bool {
        let room = self.get(len);
        let Some(last) = room.len().checked_sub(1) else {
            return false;
        };
        let count = text.len().min(last);
        room[..count].copy_from_slice(&text[..count]);
        room[count] = 0;
        count == text.len()
    }
}

/// Where a result goes, if anywhere.
pub type Place<'a, T> = Option<&'a mut MaybeUninit<T>>;

/// Writes a result.
pub(crate) fn put<T>(place: Place<'_, T>, value: T) {
    if let Some(place) = place {
        place.write(value);
    }
}

/// Memory for an open file, of as many bytes as the VFS asks for.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct NewFile(*mut Slot);

impl NewFile {
    /// Makes it one of ours.
    pub(crate) fn set(self, slot: Slot) {
        // SAFETY: SQLite passes memory of at least the bytes that our VFS asks for, aligned for
        // anything, whose content is of no use before.
        // JUSTIFICATION: it is how SQLite has a VFS open files.
        unsafe { self.0.write(slot) };
    }
}

/// What a file control is passed: which type depends on the control.
pub(crate) fn control<'a, T>(argument: *mut c_void) -> Option<&'a mut T> {
    // SAFETY: SQLite passes a pointer to the type that the number of the control says, and callers
    // here ask for that type.
    // JUSTIFICATION: it is how SQLite passes it.
    unsafe { argument.cast::<T>().as_mut() }
}

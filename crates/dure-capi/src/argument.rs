//! What C passes besides handles.
//!
//! **Structure.** Each type is a pointer to C, with a method that checks it and gives what it
//! points to. **Invariants.** What a caller promises for a pointer is said where one is made, so
//! the functions are safe to call from Rust. NULL is an error, and not of a length of 0.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::slice;

use crate::answer::{Failure, Outcome, invalid};

/// Longest buffer of a call, `SSIZE_MAX`.
const LEN_MAX: usize = isize::MAX.unsigned_abs();
/// Most vectors of a call, `IOV_MAX`.
const VECTORS_MAX: usize = 1024;

fn missing<T>(what: &'static str) -> Outcome<T> {
    Err(Failure::Errno(libc::EFAULT, what))
}

/// Text that ends with a zero.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct Text<'a>(*const c_char, PhantomData<&'a CStr>);

impl<'a> Text<'a> {
    /// What C calls NULL.
    pub const NULL: Text<'static> = Text(std::ptr::null(), PhantomData);

    /// The text; `None` for NULL.
    pub(crate) fn get(self) -> Option<&'a CStr> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: not null; C callers promise text with an end that stays during the call, and
        // Rust makes one of a `CStr` only.
        // JUSTIFICATION: it is how C passes text.
        Some(unsafe { CStr::from_ptr(self.0) })
    }

    pub(crate) fn path(self) -> Outcome<&'a Path> {
        match self.get() {
            Some(text) => Ok(Path::new(OsStr::from_bytes(text.to_bytes()))),
            None => missing("no path"),
        }
    }

    pub(crate) fn bytes(self) -> Outcome<&'a [u8]> {
        match self.get() {
            Some(text) => Ok(text.to_bytes()),
            None => missing("no name"),
        }
    }

    /// Words of options; none for NULL.
    pub(crate) fn words(self) -> Outcome<&'a str> {
        let text = self.get().unwrap_or(c"");
        match text.to_str() {
            Ok(words) => Ok(words),
            Err(_) => invalid("options are text"),
        }
    }
}

impl<'a> From<&'a CStr> for Text<'a> {
    fn from(text: &'a CStr) -> Self {
        Text(text.as_ptr(), PhantomData)
    }
}

/// Bytes to be read by the library.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct Source(*const c_void);

impl Source {
    /// # Safety
    /// Calls it is passed to may read as many bytes as they are told, and no other task writes to them
    /// meanwhile.
    #[must_use]
    pub unsafe fn new(bytes: *const c_void) -> Source {
        Source(bytes)
    }

    /// Where NULL is no mistake.
    pub(crate) fn unless_null(self) -> Option<Source> {
        (!self.0.is_null()).then_some(self)
    }

    /// The first `len` bytes, or array elements.
    pub(crate) fn get<'a, T>(self, len: usize) -> Outcome<&'a [T]> {
        check_len(len, size_of::<T>())?;
        if len == 0 {
            return Ok(&[]);
        }
        let first: *const T = self.0.cast();
        if first.is_null() || !first.is_aligned() {
            return missing("no buffer, or not aligned");
        }
        // SAFETY: aligned, no longer than memory can be; callers promise the rest.
        // JUSTIFICATION: it is how C passes buffers.
        Ok(unsafe { slice::from_raw_parts(first, len) })
    }
}

/// Bytes to be written by the library.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct Target(*mut c_void);

impl Target {
    /// # Safety
    /// Calls it is passed to may write as many bytes as they are told, and no other task uses them
    /// meanwhile.
    #[must_use]
    pub unsafe fn new(bytes: *mut c_void) -> Target {
        Target(bytes)
    }

    /// The first `len` bytes.
    pub(crate) fn get<'a>(self, len: usize) -> Outcome<&'a mut [u8]> {
        check_len(len, 1)?;
        if len == 0 {
            return Ok(&mut []);
        }
        if self.0.is_null() {
            return missing("no buffer");
        }
        // SAFETY: not null, no longer than memory can be; callers promise the rest. Bytes that C
        // has not set yet are bytes to us, whose values are not looked at.
        // JUSTIFICATION: it is how C passes buffers.
        Ok(unsafe { slice::from_raw_parts_mut(self.0.cast(), len) })
    }
}

/// An array of `struct iovec`.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct Vectors(*const libc::iovec);

impl Vectors {
    /// # Safety
    /// Calls it is passed to may read as many vectors as they are told, and use their bytes as
    /// [`Source`] or [`Target`] says.
    #[must_use]
    pub unsafe fn new(vectors: *const libc::iovec) -> Vectors {
        Vectors(vectors)
    }

    /// The vectors that have bytes, and the sum of these.
    pub(crate) fn get(self, count: i32) -> Outcome<(Vec<(*mut c_void, usize)>, usize)> {
        let count = match usize::try_from(count) {
            Ok(count) if count <= VECTORS_MAX => count,
            _ => return invalid("0 to 1024 vectors"),
        };
        let vectors: &[libc::iovec] = Source(self.0.cast()).get(count)?;
        let vectors = vectors
            .iter()
            .map(|vector| (vector.iov_base, vector.iov_len));
        let vectors: Vec<_> = vectors.filter(|(_, len)| *len > 0).collect();
        let mut sum = 0_usize;
        for (_, len) in &vectors {
            sum = sum.saturating_add(*len);
            check_len(sum, 1)?;
        }
        Ok((vectors, sum))
    }
}

fn check_len(len: usize, bytes_of_each: usize) -> Outcome<()> {
    match len.checked_mul(bytes_of_each) {
        Some(bytes) if bytes <= LEN_MAX => Ok(()),
        _ => invalid("a buffer of more than SSIZE_MAX bytes"),
    }
}

/// An offset that is not negative.
#[inline]
pub(crate) fn offset_of(offset: i64) -> Outcome<u64> {
    match u64::try_from(offset) {
        Ok(offset) => Ok(offset),
        Err(_) => invalid("a negative offset"),
    }
}

/// Where a result goes: a pointer to memory of the caller, which need not be set before.
pub type Place<'a, T> = Option<&'a mut MaybeUninit<T>>;

/// What a new handle is returned through.
pub type NewHandle<'a, T> = Place<'a, Option<Box<T>>>;

/// Returns what `make` makes; nothing is made without a place, and after an error the place has NULL.
pub(crate) fn make_in<T>(
    place: NewHandle<'_, T>,
    make: impl FnOnce() -> Outcome<T>,
) -> Outcome<()> {
    let Some(place) = place else {
        return missing("no place for the new handle");
    };
    place.write(None);
    place.write(Some(Box::new(make()?)));
    Ok(())
}

/// The place of a result.
#[inline]
pub(crate) fn there<T>(place: Place<'_, T>) -> Outcome<&mut MaybeUninit<T>> {
    match place {
        Some(place) => Ok(place),
        None => missing("no place for the result"),
    }
}

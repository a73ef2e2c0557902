//! The boundary to C: results become numbers, errors `-errno`, and panics end here.
//!
//! **Structure.** Every function is `answer(handle, body)`. **Invariants.** The handle is there,
//! its volume was opened by this process, and no call on it has panicked; or `body` does not run.
//! After a panic the volume is closed to all: what it was doing ends as in a crash.

use std::any::Any;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::last_error;
use crate::owner::Owner;

/// Why a call fails.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Of this crate: the errno, and what is wrong.
    Errno(c_int, &'static str),
    /// The same in words that were found at run time.
    Said(c_int, String),
    /// Of the library.
    Dure(dure::Error),
}

pub(crate) type Outcome<T> = Result<T, Failure>;

impl From<dure::Error> for Failure {
    fn from(error: dure::Error) -> Self {
        Failure::Dure(error)
    }
}

impl Failure {
    pub(crate) fn errno(&self) -> c_int {
        match self {
            Failure::Errno(errno, _) | Failure::Said(errno, _) => *errno,
            Failure::Dure(error) => error.errno(),
        }
    }
}

pub(crate) fn invalid<T>(what: &'static str) -> Outcome<T> {
    Err(Failure::Errno(libc::EINVAL, what))
}

/// What a function returns in C.
pub(crate) trait Answer {
    type InC;
    fn good(self) -> Self::InC;
    fn bad(errno: c_int) -> Self::InC;
}

impl Answer for () {
    type InC = c_int;
    fn good(self) -> c_int {
        0
    }
    fn bad(errno: c_int) -> c_int {
        -errno
    }
}

/// Whether there was something.
impl Answer for bool {
    type InC = c_int;
    fn good(self) -> c_int {
        c_int::from(self)
    }
    fn bad(errno: c_int) -> c_int {
        -errno
    }
}

/// A number of bytes.
impl Answer for usize {
    type InC = isize;
    #[inline]
    fn good(self) -> isize {
        isize::try_from(self).expect("buffers are no longer")
    }
    fn bad(errno: c_int) -> isize {
        isize::try_from(-errno).expect("errors are small")
    }
}

/// An offset or size.
impl Answer for u64 {
    type InC = i64;
    fn good(self) -> i64 {
        i64::try_from(self).expect("files are no longer")
    }
    fn bad(errno: c_int) -> i64 {
        i64::from(-errno)
    }
}

/// A handle: it knows its volume.
pub(crate) trait Handle {
    fn owner(&self) -> &Owner;
}

/// A handle that calls may be made on.
#[inline]
pub(crate) fn live<H: Handle>(handle: Option<&H>) -> Outcome<&H> {
    let Some(handle) = handle else {
        return invalid("no handle");
    };
    handle.owner().check()?;
    Ok(handle)
}

/// Calls `body` with a handle.
#[inline]
pub(crate) fn answer<'h, H: Handle, A: Answer>(
    handle: Option<&'h H>,
    body: impl FnOnce(&'h H) -> Outcome<A>,
) -> A::InC {
    let outcome = catch_unwind(AssertUnwindSafe(|| body(live(handle)?)));
    match outcome {
        Ok(Ok(answer)) => answer.good(),
        Ok(Err(failure)) => refuse::<A>(failure),
        Err(panic) => {
            if let Some(handle) = handle {
                handle.owner().fail();
            }
            refuse::<A>(of_panic(&*panic))
        }
    }
}

/// Calls `body`, which has no handle yet, or its last.
pub(crate) fn answer_alone<A: Answer>(body: impl FnOnce() -> Outcome<A>) -> A::InC {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(answer)) => answer.good(),
        Ok(Err(failure)) => refuse::<A>(failure),
        Err(panic) => refuse::<A>(of_panic(&*panic)),
    }
}

#[cold]
fn refuse<A: Answer>(failure: Failure) -> A::InC {
    let errno = failure.errno();
    last_error::keep(failure);
    A::bad(errno)
}

#[cold]
fn of_panic(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("a panic without words");
    Failure::Said(
        libc::EIO,
        format!("a bug of dure, please report it: {text}"),
    )
}

/// Ends a handle; in a child, and after a bug, without doing anything.
pub(crate) fn end<H: Handle>(handle: Option<Box<H>>) -> c_int {
    answer_alone(|| {
        let Some(handle) = handle else {
            return Ok(());
        };
        match handle.owner().is_given_up() {
            true => std::mem::forget(handle),
            false => drop(handle),
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    struct Panics(dure_sync::Arc<Owner>);

    impl Handle for Panics {
        fn owner(&self) -> &Owner {
            &self.0
        }
    }

    #[test]
    fn a_panic_ends_at_the_boundary_and_closes_the_volume() {
        let handle = Panics(Owner::new().unwrap());
        let call = |fails: bool| {
            answer(Some(&handle), |_| {
                assert!(!fails, "by intent");
                Ok(7_usize)
            })
        };
        assert_eq!(call(false), 7);
        assert_eq!(call(true), -5);
        let text = last_error::dure_last_error();
        // SAFETY: the text is kept until this thread's next failure.
        let text = unsafe { CStr::from_ptr(text) }.to_str().unwrap();
        assert!(
            text.contains("a bug of dure") && text.contains("by intent"),
            "{text}"
        );
        assert_eq!(call(false), -5);
        assert_eq!(end(Some(Box::new(handle))), 0);
    }

    #[test]
    fn a_call_without_a_handle_is_refused() {
        let none: Option<&Panics> = None;
        assert_eq!(answer(none, |_| Ok(1_u64)), -22);
        assert_eq!(end::<Panics>(None), 0);
    }
}

//! The message of the last failed call of a thread.
//!
//! **Structure.** A failure is kept as it is, and put into words when a program asks: those that
//! probe for names fail often and never ask. **Invariants.** The words stay where they are until
//! the next failed call of the same thread.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};

use dure_sync::task_local;

use crate::answer::Failure;

#[derive(Default)]
struct Last {
    failure: Option<Failure>,
    /// Of `failure`, once they were asked for.
    words: Option<CString>,
}

task_local! {
    static LAST: RefCell<Last> = RefCell::new(Last::default());
}

pub(crate) fn keep(failure: Failure) {
    // A thread that is ending has no place for it any more.
    let _ = LAST.try_with(|last| {
        let before = last.replace(Last {
            failure: Some(failure),
            words: None,
        });
        drop(before);
    });
}

fn words_of(failure: &Failure) -> CString {
    let mut words = match failure {
        Failure::Errno(_, what) => (*what).to_owned(),
        Failure::Said(_, what) => what.clone(),
        Failure::Dure(error) => error.to_string(),
    };
    words.retain(|letter| letter != '\0');
    CString::new(words).expect("it has no zero left")
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_last_error() -> *const c_char {
    const NONE: &CStr = c"";
    let asked = LAST.try_with(|last| {
        let mut last = last.borrow_mut();
        let Last { failure, words } = &mut *last;
        let Some(failure) = failure else {
            return NONE.as_ptr();
        };
        words.get_or_insert_with(|| words_of(failure)).as_ptr()
    });
    asked.unwrap_or(NONE.as_ptr())
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

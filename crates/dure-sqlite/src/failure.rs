//! The boundary to SQLite: results become codes, failures are told, and panics end here.
//!
//! **Problem.** A code of SQLite says little: a volume that is in use and one that is damaged are both
//! "unable to open database file" elsewhere. **Structure.** A [`Failure`] is a code and words.
//! [`answer`] returns the code, writes the words to SQLite's log, and keeps them for
//! `dure_last_error()`. **Invariants.** What SQLite asks for routinely and does not get (a lock, bytes
//! behind the end, a file that is not there) is no failure. **Crash.** Nothing is kept.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use dure::Cause;
use dure_sync::task_local;

use crate::abi::code;
use crate::api;

/// Why a call fails.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: c_int,
    errno: i32,
    words: String,
}

pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: c_int, words: String) -> Failure {
        Failure {
            code,
            errno: 0,
            words,
        }
    }

    /// Of the library; `code` is what SQLite is told unless there is something better.
    pub(crate) fn of(code: c_int, error: &dure::Error) -> Failure {
        Failure {
            code: code_of(error.cause()).unwrap_or(code),
            errno: error.errno(),
            words: error.to_string(),
        }
    }
}

/// What a program can act on.
fn code_of(cause: &Cause) -> Option<c_int> {
    use dure_block::Error as Block;
    use dure_fs::Error as Fs;
    match cause {
        Cause::Device(block) | Cause::FileSystem(Fs::Block(block)) => match block {
            Block::Busy { .. } | Block::Locked { .. } => Some(code::BUSY),
            _ => None,
        },
        Cause::FileSystem(Fs::TakenOver) => Some(code::BUSY),
        Cause::FileSystem(Fs::NotDure) => Some(code::NOTADB),
        Cause::FileSystem(Fs::NoSpace { .. } | Fs::Quota { .. }) => Some(code::FULL),
        Cause::FileSystem(Fs::Corrupt { .. } | Fs::LogHole(_) | Fs::Unlogged) => {
            Some(code::IOERR_CORRUPTFS)
        }
        _ => None,
    }
}

/// Gives failures of the library the code of a call.
pub(crate) trait During<T> {
    fn during(self, code: c_int) -> Outcome<T>;
}

impl<T> During<T> for dure::Result<T> {
    fn during(self, code: c_int) -> Outcome<T> {
        self.map_err(|error| Failure::of(code, &error))
    }
}

/// The last failure of a thread.
#[derive(Default)]
struct Last {
    errno: i32,
    words: String,
}

task_local! {
    static LAST: RefCell<Last> = RefCell::new(Last::default());
}

/// Calls `body`; what SQLite is told.
pub(crate) fn answer(body: impl FnOnce() -> Outcome<c_int>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(code)) => code,
        Ok(Err(failure)) => tell(failure),
        Err(panic) => tell(of_panic(&*panic)),
    }
}

/// Writes a failure to the log of SQLite and keeps it for this thread; its code.
#[cold]
pub(crate) fn tell(failure: Failure) -> c_int {
    let Failure { code, errno, words } = failure;
    let text: Vec<u8> = words.bytes().filter(|byte| *byte != 0).collect();
    let text = CString::new(text).expect("it has no zero left");
    api::log(code, &text);
    // A thread that is ending has no place for it any more.
    let _ = LAST.try_with(|last| last.replace(Last { errno, words }));
    code
}

/// What this thread was told last: the errno, and the words.
pub(crate) fn last() -> (i32, String) {
    let last = LAST.try_with(|last| {
        let last = last.borrow();
        (last.errno, last.words.clone())
    });
    last.unwrap_or_default()
}

#[cold]
pub(crate) fn of_panic(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("a panic without words");
    Failure::new(
        code::IOERR,
        format!("a bug of dure, please report it: {text}"),
    )
}

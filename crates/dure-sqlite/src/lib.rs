//! SQLite on dure volumes, without a mount: an extension that SQLite loads, with the VFS `dure`.
//!
//! **Problem.** Through a mount each call of a database is a switch to another process; a program with
//! SQLite in it can have the volume in it as well. **Structure.** `docs/user/sqlite.md` is the page for
//! users. SQLite calls [`sqlite3_extension_init`] when it loads the library.
//! * `abi`, `argument`: what SQLite passes. All `unsafe` is in `argument` and `api`.
//! * `api`: the SQLite that has loaded the extension. No other one is linked.
//! * `vfs`: names: opening, removing, looking. `file`: open files.
//! * `place`: which part of a name is a volume. `volumes`: those that are open.
//! * `database`, `locks`: what connections to one database share.
//! * `failure`: codes, words, panics.
//!
//! **Invariants.** SQLite is told only what dure promises (`file::CHARACTERISTICS`). Locks and the
//! index of a WAL are in this process: a volume is open in one.
//!
//! **On a crash** a transaction that was committed with `synchronous=FULL` is there
//! (`tests/it/power.rs`, `tests/it/killed.rs`).

mod abi;
mod api;
mod argument;
mod database;
mod failure;
mod file;
mod locks;
mod place;
mod vfs;
mod volumes;

use std::ffi::{CString, c_char, c_int, c_void};
use std::panic::catch_unwind;

pub use abi::{IoMethods, Routines, Slot, Vfs};
pub use argument::{NewFile, Place, Source, Target, Text};
pub use volumes::{Lent, lend};

use abi::code;
use argument::put;

/// Begins; `message` gets what goes wrong.
fn begin(
    connection: *mut c_void,
    message: Place<'_, *mut c_char>,
    routines: &'static Routines,
) -> c_int {
    let begun = catch_unwind(|| api::begin(routines)).unwrap_or_else(|_| Err("a bug".to_owned()));
    match begun {
        Ok(()) => api::add_function(connection),
        Err(why) => {
            let why = CString::new(why).unwrap_or_default();
            put(message, api::text_by(routines, &why));
            code::ERROR
        }
    }
}

/// What SQLite calls when it loads the library: the VFS is registered, and stays.
#[unsafe(no_mangle)]
pub extern "C" fn sqlite3_extension_init(
    connection: *mut c_void,
    message: Place<'_, *mut c_char>,
    routines: &'static Routines,
) -> c_int {
    match begin(connection, message, routines) {
        // Connections that are made from now on have the function `dure_last_error()`, too.
        code::OK => match (routines.auto_extension)(sqlite3_dure_init) {
            code::OK => code::OK_LOAD_PERMANENTLY,
            code => code,
        },
        code => code,
    }
}

/// The same for programs that have SQLite and this crate linked: to be passed to
/// `sqlite3_auto_extension`, or called through it by `rusqlite`.
#[unsafe(no_mangle)]
pub extern "C" fn sqlite3_dure_init(
    connection: *mut c_void,
    message: Place<'_, *mut c_char>,
    routines: &'static Routines,
) -> c_int {
    begin(connection, message, routines)
}

//! The SQLite that has loaded the extension: its functions, and its default VFS.
//!
//! **Structure.** [`begin`] keeps the table and registers the VFS `dure`, once; the rest are calls.
//! **Invariants.** A process has one table: a second SQLite that loads the extension too is refused,
//! since the two would not know each other's locks. **Crash.** Nothing is kept.

use std::ffi::{CStr, CString, c_char, c_int};

use dure_sync::ProcessOnce;

use crate::abi::{Call, Connection, Function, OLDEST, Routines, Vfs, code};
use crate::argument::Text;
use crate::failure::last;
use crate::vfs;

/// What was found at the start.
#[derive(Debug)]
struct Api {
    routines: &'static Routines,
    default: Default,
}

/// The VFS for what is not in a volume: temporary files, time, libraries.
#[derive(Debug)]
pub(crate) struct Default {
    /// What its calls are passed.
    pub(crate) vfs: *mut Vfs,
    pub(crate) calls: Vfs,
}

// SAFETY: both are only read, and SQLite lets any thread call a VFS.
// JUSTIFICATION: pointers of C are in a static.
unsafe impl Send for Api {}
// SAFETY: as above.
// JUSTIFICATION: as above.
unsafe impl Sync for Api {}

static API: ProcessOnce<Api> = ProcessOnce::new();

/// SQLite calls no method of ours before [`begin`] has returned.
fn api() -> &'static Api {
    API.get().expect("the VFS was registered with it")
}

/// The default VFS.
pub(crate) fn default() -> &'static Default {
    &api().default
}

/// Registers the VFS, unless this SQLite has it.
pub(crate) fn begin(routines: &'static Routines) -> Result<(), String> {
    let version = (routines.libversion_number)();
    if version < OLDEST {
        return Err(format!(
            "dure needs SQLite 3.31 or later, this one is {}.{}",
            version / 1_000_000,
            version / 1000 % 1000
        ));
    }
    let default = (routines.vfs_find)(Text::NULL);
    // SAFETY: SQLite returns a registered VFS, which stays, or NULL.
    // JUSTIFICATION: it is how SQLite shows it.
    let calls = unsafe { default.as_ref() }.filter(|calls| calls.version >= 2);
    let Some(calls) = calls else {
        return Err("this SQLite has no default VFS, or one of version 1".to_owned());
    };
    let found = Api {
        routines,
        default: Default {
            vfs: default,
            calls: calls.clone(),
        },
    };
    if !std::ptr::eq(API.get_or_init(|| found).routines, routines) {
        return Err("another SQLite of this process has loaded the extension".to_owned());
    }
    if !(routines.vfs_find)(vfs::NAME.into()).is_null() {
        return Ok(());
    }
    match (routines.vfs_register)(vfs::make(calls.file_bytes), 0) {
        code::OK => Ok(()),
        code => Err(format!("SQLite does not register a VFS ({code})")),
    }
}

/// Writes a line to the log of SQLite.
pub(crate) fn log(code: c_int, text: &CStr) {
    // Before the start there is no log.
    if let Some(api) = API.get() {
        // SAFETY: a format with one text, and the text.
        // JUSTIFICATION: it is how SQLite is told.
        unsafe { (api.routines.log)(code, c"dure: %s".as_ptr(), text.as_ptr()) };
    }
}

/// A parameter of the URI by which a database is opened; `name` is what `xOpen` was passed.
pub(crate) fn uri_parameter<'a>(name: Text<'a>, key: &CStr) -> Option<&'a CStr> {
    (api().routines.uri_parameter)(name, key.into()).get()
}

/// Text in memory that SQLite frees.
pub(crate) fn text_of_sqlite(text: &CStr) -> *mut c_char {
    text_by(api().routines, text)
}

/// The same before [`begin`].
pub(crate) fn text_by(routines: &Routines, text: &CStr) -> *mut c_char {
    // SAFETY: a format with one text, and the text.
    // JUSTIFICATION: SQLite frees such text with its own allocator.
    unsafe { (routines.mprintf)(c"%s".as_ptr(), text.as_ptr()) }
}

/// `dure_last_error()`: why the last call of this thread on a volume has failed.
extern "C" fn last_error(call: Call, _count: c_int, _arguments: *mut *mut std::ffi::c_void) {
    const TRANSIENT: isize = -1;
    let (_, words) = last();
    let text = CString::new(words).unwrap_or_default();
    // SAFETY: text with an end, which SQLite copies.
    // JUSTIFICATION: it is how a function returns text.
    unsafe { (api().routines.result_text)(call, text.as_ptr(), -1, TRANSIENT) };
}

/// Gives a connection the function `dure_last_error()`.
pub(crate) fn add_function(connection: Connection) -> c_int {
    const FUNCTION: Function = last_error;
    let (name, none) = (c"dure_last_error".as_ptr(), std::ptr::null_mut());
    // SAFETY: the connection is the one that SQLite has just passed; the function has no data.
    // JUSTIFICATION: it is how a function is added.
    unsafe {
        (api().routines.create_function_v2)(
            connection,
            name,
            0,
            code::UTF8,
            none,
            FUNCTION,
            0,
            0,
            0,
        )
    }
}

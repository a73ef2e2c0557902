//! SQLite as the system has it, in this process, with the VFS of this crate.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use dure_sqlite::sqlite3_dure_init;
use dure_sync::ProcessOnce;

type Row = unsafe extern "C" fn(*mut c_void, c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;
type Init = extern "C" fn(
    *mut c_void,
    dure_sqlite::Place<'_, *mut c_char>,
    &'static dure_sqlite::Routines,
) -> c_int;

/// Functions of SQLite.
struct Sqlite {
    open: unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, *const c_char) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
    exec: unsafe extern "C" fn(
        *mut c_void,
        *const c_char,
        Option<Row>,
        *mut c_void,
        *mut *mut c_char,
    ) -> c_int,
    message: unsafe extern "C" fn(*mut c_void) -> *const c_char,
    code: unsafe extern "C" fn(*mut c_void) -> c_int,
    timeout: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
}

/// The function `name` of a library.
fn function<T: Copy>(library: *mut c_void, name: &CStr) -> T {
    // SAFETY: the library stays loaded.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!found.is_null(), "{name:?}");
    assert_eq!(size_of::<T>(), size_of::<*mut c_void>());
    // SAFETY: callers name the type that the function has.
    unsafe { std::mem::transmute_copy(&found) }
}

fn load() -> Option<Sqlite> {
    // SAFETY: it is loaded as any program does.
    let library = unsafe { libc::dlopen(c"libsqlite3.so.0".as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        eprintln!("skipped: there is no libsqlite3.so.0");
        return None;
    }
    let sqlite = Sqlite {
        open: function(library, c"sqlite3_open_v2"),
        close: function(library, c"sqlite3_close"),
        exec: function(library, c"sqlite3_exec"),
        message: function(library, c"sqlite3_errmsg"),
        code: function(library, c"sqlite3_extended_errcode"),
        timeout: function(library, c"sqlite3_busy_timeout"),
    };
    let auto: unsafe extern "C" fn(Init) -> c_int = function(library, c"sqlite3_auto_extension");
    // SAFETY: it is called with what SQLite passes to an extension.
    assert_eq!(unsafe { auto(sqlite3_dure_init) }, 0);
    Some(sqlite)
}

fn sqlite() -> Option<&'static Sqlite> {
    static SQLITE: ProcessOnce<Option<Sqlite>> = ProcessOnce::new();
    let sqlite = SQLITE.get_or_init(load).as_ref();
    // The first connection registers the VFS.
    if let Some(sqlite) = sqlite {
        drop(sqlite.open("file::memory:").unwrap());
    }
    sqlite
}

/// What SQLite says is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) code: c_int,
    pub(crate) words: String,
}

/// A connection to a database.
pub(crate) struct Connection {
    sqlite: &'static Sqlite,
    raw: *mut c_void,
}

// SAFETY: SQLite is built for threads that pass connections on.
unsafe impl Send for Connection {}

impl Sqlite {
    fn open(&'static self, uri: &str) -> Result<Connection, Wrong> {
        const READ_WRITE_CREATE_URI: c_int = 2 | 4 | 0x40;
        let uri = CString::new(uri).unwrap();
        let mut raw = std::ptr::null_mut();
        // SAFETY: text with an end, and a place for the connection.
        let code = unsafe {
            (self.open)(
                uri.as_ptr(),
                &raw mut raw,
                READ_WRITE_CREATE_URI,
                std::ptr::null(),
            )
        };
        let connection = Connection { sqlite: self, raw };
        match code {
            0 => {
                // SAFETY: the connection is open.
                unsafe { (self.timeout)(raw, 10_000) };
                Ok(connection)
            }
            _ => Err(connection.wrong()),
        }
    }
}

/// Opens a database by URI; `None`: there is no SQLite here.
pub(crate) fn open(uri: &str) -> Option<Result<Connection, Wrong>> {
    Some(sqlite()?.open(uri))
}

/// One text a row: columns with `|` between them.
unsafe extern "C" fn row(
    rows: *mut c_void,
    count: c_int,
    texts: *mut *mut c_char,
    _names: *mut *mut c_char,
) -> c_int {
    let mut columns = Vec::new();
    for column in 0..usize::try_from(count).unwrap() {
        // SAFETY: there are as many texts as columns.
        let place = unsafe { texts.add(column) };
        // SAFETY: as above.
        let text = unsafe { *place };
        columns.push(match text.is_null() {
            true => String::new(),
            // SAFETY: text with an end.
            false => unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .into_owned(),
        });
    }
    // SAFETY: `exec` passes a list of texts.
    let rows = unsafe { &mut *rows.cast::<Vec<String>>() };
    rows.push(columns.join("|"));
    0
}

impl Connection {
    fn wrong(&self) -> Wrong {
        // SAFETY: the connection is there, also after it could not be opened.
        let code = unsafe { (self.sqlite.code)(self.raw) };
        // SAFETY: as above.
        let words = unsafe { (self.sqlite.message)(self.raw) };
        // SAFETY: text with an end.
        let words = unsafe { CStr::from_ptr(words) };
        let words = words.to_string_lossy().into_owned();
        Wrong { code, words }
    }

    /// Runs statements; the rows of all.
    pub(crate) fn try_exec(&self, sql: &str) -> Result<Vec<String>, Wrong> {
        let sql = CString::new(sql).unwrap();
        let mut rows: Vec<String> = Vec::new();
        let place = (&raw mut rows).cast();
        // SAFETY: the connection is open, and the callback takes what it is passed.
        let code = unsafe {
            (self.sqlite.exec)(
                self.raw,
                sql.as_ptr(),
                Some(row),
                place,
                std::ptr::null_mut(),
            )
        };
        match code {
            0 => Ok(rows),
            _ => Err(self.wrong()),
        }
    }

    /// Runs statements that must succeed.
    pub(crate) fn exec(&self, sql: &str) -> Vec<String> {
        self.try_exec(sql)
            .unwrap_or_else(|wrong| panic!("{sql}: {wrong:?}"))
    }

    /// The only row of a query.
    pub(crate) fn one(&self, sql: &str) -> String {
        let rows = self.exec(sql);
        assert_eq!(rows.len(), 1, "{sql}: {rows:?}");
        rows.into_iter().next().unwrap()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: the connection is not used after this.
        let code = unsafe { (self.sqlite.close)(self.raw) };
        assert_eq!(code, 0, "no statement is open");
    }
}

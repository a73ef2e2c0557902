//! The part of SQLite's interface that a VFS needs: structs, numbers, and the functions of the table
//! that SQLite gives to extensions.
//!
//! **Problem.** A second SQLite must not be linked in: it would not share the locks of the first.
//! **Structure.** [`Vfs`] and [`IoMethods`] are `sqlite3_vfs` and `sqlite3_io_methods`, [`Slot`] is our
//! `sqlite3_file`, [`Routines`] the table `sqlite3_api_routines` with names for what is called.
//! **Invariants.** SQLite only ever adds to the ends of these. A test compares offsets and numbers with
//! the headers. **Crash.** Nothing is kept.

use std::ffi::{c_char, c_int, c_void};

use crate::argument::{NewFile, Place, Source, Target, Text};
use crate::file::Open;

/// Names of `sqlite3.h`, without `SQLITE_`.
pub(crate) mod code {
    use std::ffi::c_int;

    pub(crate) const OK: c_int = 0;
    pub(crate) const ERROR: c_int = 1;
    pub(crate) const BUSY: c_int = 5;
    pub(crate) const IOERR: c_int = 10;
    pub(crate) const NOTFOUND: c_int = 12;
    pub(crate) const FULL: c_int = 13;
    pub(crate) const CANTOPEN: c_int = 14;
    pub(crate) const MISUSE: c_int = 21;
    pub(crate) const NOTADB: c_int = 26;
    pub(crate) const OK_LOAD_PERMANENTLY: c_int = 256;
    pub(crate) const IOERR_READ: c_int = IOERR | 1 << 8;
    pub(crate) const IOERR_SHORT_READ: c_int = IOERR | 2 << 8;
    pub(crate) const IOERR_WRITE: c_int = IOERR | 3 << 8;
    pub(crate) const IOERR_FSYNC: c_int = IOERR | 4 << 8;
    pub(crate) const IOERR_DIR_FSYNC: c_int = IOERR | 5 << 8;
    pub(crate) const IOERR_TRUNCATE: c_int = IOERR | 6 << 8;
    pub(crate) const IOERR_FSTAT: c_int = IOERR | 7 << 8;
    pub(crate) const IOERR_DELETE: c_int = IOERR | 10 << 8;
    pub(crate) const IOERR_ACCESS: c_int = IOERR | 13 << 8;
    pub(crate) const IOERR_CLOSE: c_int = IOERR | 16 << 8;
    pub(crate) const IOERR_SHMMAP: c_int = IOERR | 21 << 8;
    pub(crate) const IOERR_DELETE_NOENT: c_int = IOERR | 23 << 8;
    pub(crate) const IOERR_CORRUPTFS: c_int = IOERR | 33 << 8;
    pub(crate) const CANTOPEN_ISDIR: c_int = CANTOPEN | 2 << 8;
    pub(crate) const CANTOPEN_FULLPATH: c_int = CANTOPEN | 3 << 8;
    pub(crate) const CANTOPEN_SYMLINK: c_int = CANTOPEN | 6 << 8;

    pub(crate) const OPEN_READONLY: c_int = 1;
    pub(crate) const OPEN_READWRITE: c_int = 2;
    pub(crate) const OPEN_CREATE: c_int = 4;
    pub(crate) const OPEN_DELETEONCLOSE: c_int = 8;
    pub(crate) const OPEN_EXCLUSIVE: c_int = 0x10;
    pub(crate) const OPEN_MAIN_DB: c_int = 0x100;
    pub(crate) const OPEN_MAIN_JOURNAL: c_int = 0x800;
    pub(crate) const OPEN_WAL: c_int = 0x8_0000;

    pub(crate) const ACCESS_EXISTS: c_int = 0;

    pub(crate) const IOCAP_ATOMIC512: c_int = 2;
    pub(crate) const IOCAP_ATOMIC1K: c_int = 4;
    pub(crate) const IOCAP_ATOMIC2K: c_int = 8;
    pub(crate) const IOCAP_ATOMIC4K: c_int = 0x10;
    pub(crate) const IOCAP_POWERSAFE_OVERWRITE: c_int = 0x1000;

    pub(crate) const SHM_UNLOCK: c_int = 1;
    pub(crate) const SHM_SHARED: c_int = 4;
    pub(crate) const SHM_NLOCK: usize = 8;

    pub(crate) const FCNTL_PERSIST_WAL: c_int = 10;
    pub(crate) const FCNTL_VFSNAME: c_int = 12;
    pub(crate) const FCNTL_HAS_MOVED: c_int = 20;

    pub(crate) const UTF8: c_int = 1;
}

/// An open file, in memory of SQLite: `sqlite3_file`.
#[repr(C)]
#[derive(Debug)]
pub struct Slot {
    /// `None`: it could not be opened, and is not closed.
    pub(crate) methods: Option<&'static IoMethods>,
    pub(crate) open: Option<Box<Open>>,
}

/// Calls on open files: `sqlite3_io_methods`, version 2 (with shared memory, without mappings).
#[repr(C)]
#[derive(Debug)]
pub struct IoMethods {
    pub(crate) version: c_int,
    pub(crate) close: extern "C" fn(&mut Slot) -> c_int,
    pub(crate) read: extern "C" fn(&mut Slot, Target, c_int, i64) -> c_int,
    pub(crate) write: extern "C" fn(&mut Slot, Source, c_int, i64) -> c_int,
    pub(crate) truncate: extern "C" fn(&mut Slot, i64) -> c_int,
    pub(crate) sync: extern "C" fn(&mut Slot, c_int) -> c_int,
    pub(crate) file_size: extern "C" fn(&mut Slot, Place<'_, i64>) -> c_int,
    pub(crate) lock: extern "C" fn(&mut Slot, c_int) -> c_int,
    pub(crate) unlock: extern "C" fn(&mut Slot, c_int) -> c_int,
    pub(crate) check_reserved_lock: extern "C" fn(&mut Slot, Place<'_, c_int>) -> c_int,
    pub(crate) file_control: extern "C" fn(&mut Slot, c_int, *mut c_void) -> c_int,
    pub(crate) sector_size: extern "C" fn(&mut Slot) -> c_int,
    pub(crate) device_characteristics: extern "C" fn(&mut Slot) -> c_int,
    pub(crate) shm_map:
        extern "C" fn(&mut Slot, c_int, c_int, c_int, Place<'_, *mut c_void>) -> c_int,
    pub(crate) shm_lock: extern "C" fn(&mut Slot, c_int, c_int, c_int) -> c_int,
    pub(crate) shm_barrier: extern "C" fn(&mut Slot),
    pub(crate) shm_unmap: extern "C" fn(&mut Slot, c_int) -> c_int,
}

/// `void (*)(void)`.
pub(crate) type Symbol = Option<extern "C" fn()>;

/// Calls of a VFS: `sqlite3_vfs`, version 2.
#[repr(C)]
#[derive(Debug, Clone)]
pub struct Vfs {
    pub(crate) version: c_int,
    /// Bytes of its `sqlite3_file`.
    pub(crate) file_bytes: c_int,
    pub(crate) path_max: c_int,
    /// SQLite's.
    pub(crate) next: *mut Vfs,
    pub(crate) name: *const c_char,
    pub(crate) app_data: *mut c_void,
    pub(crate) open: extern "C" fn(*mut Vfs, Text<'_>, NewFile, c_int, Place<'_, c_int>) -> c_int,
    pub(crate) delete: extern "C" fn(*mut Vfs, Text<'_>, c_int) -> c_int,
    pub(crate) access: extern "C" fn(*mut Vfs, Text<'_>, c_int, Place<'_, c_int>) -> c_int,
    pub(crate) full_pathname: extern "C" fn(*mut Vfs, Text<'_>, c_int, Target) -> c_int,
    pub(crate) dl_open: extern "C" fn(*mut Vfs, Text<'_>) -> *mut c_void,
    pub(crate) dl_error: extern "C" fn(*mut Vfs, c_int, Target),
    pub(crate) dl_sym: extern "C" fn(*mut Vfs, *mut c_void, Text<'_>) -> Symbol,
    pub(crate) dl_close: extern "C" fn(*mut Vfs, *mut c_void),
    pub(crate) randomness: extern "C" fn(*mut Vfs, c_int, Target) -> c_int,
    pub(crate) sleep: extern "C" fn(*mut Vfs, c_int) -> c_int,
    pub(crate) current_time: extern "C" fn(*mut Vfs, Place<'_, f64>) -> c_int,
    pub(crate) get_last_error: extern "C" fn(*mut Vfs, c_int, Target) -> c_int,
    /// From version 2 on, which the default VFS has had since 2010.
    pub(crate) current_time_int64: extern "C" fn(*mut Vfs, Place<'_, i64>) -> c_int,
}

/// `sqlite3 *`.
pub(crate) type Connection = *mut c_void;
/// `sqlite3_context *`.
pub(crate) type Call = *mut c_void;
/// What SQLite calls to begin with an extension.
pub(crate) type Init =
    extern "C" fn(Connection, Place<'_, *mut c_char>, &'static Routines) -> c_int;
/// An SQL function.
pub(crate) type Function = extern "C" fn(Call, c_int, *mut *mut c_void);

/// The table of functions: `sqlite3_api_routines`, up to the last one that is called here. Each
/// entry is a pointer; those without a name are not called.
#[repr(C)]
#[derive(Debug)]
pub struct Routines {
    skipped_0: [usize; 67],
    pub(crate) libversion_number: extern "C" fn() -> c_int,
    skipped_1: [usize; 1],
    pub(crate) mprintf: unsafe extern "C" fn(*const c_char, ...) -> *mut c_char,
    skipped_2: [usize; 15],
    pub(crate) result_text: unsafe extern "C" fn(Call, *const c_char, c_int, isize),
    skipped_3: [usize; 55],
    pub(crate) vfs_find: extern "C" fn(Text<'_>) -> *mut Vfs,
    pub(crate) vfs_register: extern "C" fn(*mut Vfs, c_int) -> c_int,
    skipped_4: [usize; 19],
    pub(crate) create_function_v2: unsafe extern "C" fn(
        Connection,
        *const c_char,
        c_int,
        c_int,
        *mut c_void,
        Function,
        usize,
        usize,
        usize,
    ) -> c_int,
    skipped_5: [usize; 4],
    pub(crate) log: unsafe extern "C" fn(c_int, *const c_char, ...),
    skipped_6: [usize; 21],
    pub(crate) uri_parameter: extern "C" fn(Text<'_>, Text<'_>) -> Text<'static>,
    skipped_7: [usize; 2],
    pub(crate) auto_extension: extern "C" fn(Init) -> c_int,
}

/// The oldest SQLite with all of this, and with names of journals that keep those of their database
/// (January 2020).
pub(crate) const OLDEST: c_int = 3_031_000;

#[cfg(test)]
mod tests;

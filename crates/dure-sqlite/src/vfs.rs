//! The VFS `dure`: the calls of `sqlite3_vfs`.
//!
//! **Structure.** Files with a name are in volumes, by paths that lead through them ([`crate::place`]).
//! Temporary files have no name, and are opened by SQLite's default VFS, as are time, random numbers
//! and libraries. **Invariants.** A database is not opened through a symbolic link of the volume: who
//! opens it by its own name would not find a journal that is named by the link's.
//!
//! **On a crash** a name that was removed with `syncDir` is gone. Another one may be there again: then
//! a journal rolls back the last transaction, as in SQLite elsewhere with `synchronous=FULL`.

use std::ffi::{CStr, c_int, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use dure::{Access, File, OpenOptions, Session};

use crate::abi::{Slot, Symbol, Vfs, code};
use crate::api;
use crate::argument::{NewFile, Place, Target, Text, put};
use crate::failure::{During, Failure, Outcome, answer, last};
use crate::file::{METHODS, Open};
use crate::place::split;
use crate::volumes;

/// What URIs say: `vfs=dure`.
pub(crate) const NAME: &CStr = c"dure";
/// Bytes of a path.
const PATH_MAX: c_int = 1024;
/// Of a database that is made.
const MODE: u32 = 0o644;

/// Makes the VFS, for good. An open file may be one of the default VFS, which has `file_bytes`.
pub(crate) fn make(file_bytes: c_int) -> *mut Vfs {
    let own = c_int::try_from(size_of::<Slot>()).expect("two pointers");
    Box::into_raw(Box::new(Vfs {
        version: 2,
        file_bytes: own.max(file_bytes),
        path_max: PATH_MAX,
        next: std::ptr::null_mut(),
        name: NAME.as_ptr(),
        app_data: std::ptr::null_mut(),
        open,
        delete,
        access,
        full_pathname,
        dl_open,
        dl_error,
        dl_sym,
        dl_close,
        randomness,
        sleep,
        current_time,
        get_last_error,
        current_time_int64,
    }))
}

extern "C" fn open(
    _vfs: *mut Vfs,
    name: Text<'_>,
    new: NewFile,
    flags: c_int,
    got: Place<'_, c_int>,
) -> c_int {
    let Some(path) = name.path() else {
        let default = api::default();
        return (default.calls.open)(default.vfs, name, new, flags, got);
    };
    new.set(Slot {
        methods: None,
        open: None,
    });
    answer(|| {
        let options = match flags & code::OPEN_MAIN_DB {
            0 => None,
            _ => api::uri_parameter(name, c"options"),
        };
        let words = options.unwrap_or(c"").to_string_lossy();
        let (open, read_only) = open_file(path, flags, &words)?;
        if read_only {
            put(
                got,
                flags & !(code::OPEN_READWRITE | code::OPEN_CREATE) | code::OPEN_READONLY,
            );
        } else {
            put(got, flags);
        }
        new.set(Slot {
            methods: Some(&METHODS),
            open: Some(Box::new(open)),
        });
        Ok(code::OK)
    })
}

/// Opens a file, and says whether only for reading.
fn open_file(path: &Path, flags: c_int, options: &str) -> Outcome<(Open, bool)> {
    let place = split(path)?;
    let used = volumes::open(&place, options)?;
    let session = &used.mounted.session;
    let has = |flag| flags & flag != 0;
    let mut how = OpenOptions::new().read(true).no_follow(true);
    let writes =
        has(code::OPEN_READWRITE) && !used.mounted.volume.file_system().options().read_only;
    if writes {
        how = how.write(true).create(has(code::OPEN_CREATE));
        how = how.create_new(has(code::OPEN_EXCLUSIVE) && has(code::OPEN_CREATE));
        how = how.mode(match has(code::OPEN_MAIN_JOURNAL | code::OPEN_WAL) {
            true => mode_of_database(session, &place.inner),
            false => MODE,
        });
    }
    let file = how.open(session, &place.inner).map_err(|error| {
        let code = match error.errno() {
            libc::ELOOP => code::CANTOPEN_SYMLINK,
            libc::EISDIR => code::CANTOPEN_ISDIR,
            _ => code::CANTOPEN,
        };
        Failure::of(code, &error)
    })?;
    must_be_a_file(&file, &place.inner)?;
    let link = has(code::OPEN_MAIN_DB).then(|| used.mounted.databases.connect(file.ino()));
    let open = Open {
        file,
        path: place.inner,
        link,
        keeps_wal: false,
        removed_at_close: has(code::OPEN_DELETEONCLOSE),
        used,
    };
    Ok((open, has(code::OPEN_READWRITE) && !writes))
}

fn must_be_a_file(file: &File, path: &Path) -> Outcome<()> {
    match file.metadata().during(code::CANTOPEN)?.is_file() {
        true => Ok(()),
        false => Err(Failure::new(
            code::CANTOPEN_ISDIR,
            format!("{}: is a directory", path.display()),
        )),
    }
}

/// Who may open a database may open its journals, which are named `DATABASE-...`.
fn mode_of_database(session: &Session, journal: &Path) -> u32 {
    let name = journal.as_os_str().as_bytes();
    let end = name.iter().rposition(|byte| *byte == b'-').unwrap_or(0);
    let database = Path::new(std::ffi::OsStr::from_bytes(&name[..end]));
    let found = session.metadata(database);
    found.map_or(MODE, |found| found.mode() & 0o777)
}

extern "C" fn delete(_vfs: *mut Vfs, name: Text<'_>, sync_directory: c_int) -> c_int {
    answer(|| {
        let place = split(name.path().unwrap_or(Path::new("")))?;
        let used = volumes::open(&place, "")?;
        let session = &used.mounted.session;
        match session.remove_file(&place.inner) {
            Err(error) if error.errno() == libc::ENOENT => return Ok(code::IOERR_DELETE_NOENT),
            removed => removed.during(code::IOERR_DELETE)?,
        }
        if sync_directory != 0 {
            let directory = place.inner.parent().unwrap_or(Path::new("/"));
            let synced = session.open(directory).and_then(|open| open.sync_all());
            synced.during(code::IOERR_DIR_FSYNC)?;
        }
        Ok(code::OK)
    })
}

extern "C" fn access(
    _vfs: *mut Vfs,
    name: Text<'_>,
    flags: c_int,
    answer_at: Place<'_, c_int>,
) -> c_int {
    answer(|| {
        let place = split(name.path().unwrap_or(Path::new("")))?;
        let used = volumes::open(&place, "")?;
        let session = &used.mounted.session;
        let yes = match session.metadata(&place.inner) {
            Err(error) if matches!(error.errno(), libc::ENOENT | libc::ENOTDIR) => false,
            // An empty journal is none.
            found if flags == code::ACCESS_EXISTS => {
                let found = found.during(code::IOERR_ACCESS)?;
                !found.is_file() || found.len() > 0
            }
            found => {
                found.during(code::IOERR_ACCESS)?;
                let want = Access::READ.and(Access::WRITE);
                session.access(&place.inner, want).is_ok()
            }
        };
        put(answer_at, c_int::from(yes));
        Ok(code::OK)
    })
}

/// Makes a path absolute. Nothing is looked up: the volume may not be open yet.
extern "C" fn full_pathname(_vfs: *mut Vfs, name: Text<'_>, len: c_int, into: Target) -> c_int {
    answer(|| {
        let refused = |why: String| Failure::new(code::CANTOPEN_FULLPATH, why);
        let path = name.path().unwrap_or(Path::new(""));
        let whole = match path.is_absolute() {
            true => path.to_owned(),
            false => {
                let here = rustix::process::getcwd(Vec::new());
                let here = here.map_err(|error| refused(format!("current directory: {error}")))?;
                PathBuf::from(std::ffi::OsString::from_vec(here.into_bytes())).join(path)
            }
        };
        match into.set_text(len, whole.as_os_str().as_bytes()) {
            true => Ok(code::OK),
            false => Err(refused(format!(
                "{}: longer than {PATH_MAX} bytes",
                whole.display()
            ))),
        }
    })
}

extern "C" fn dl_open(_vfs: *mut Vfs, name: Text<'_>) -> *mut c_void {
    let default = api::default();
    (default.calls.dl_open)(default.vfs, name)
}

extern "C" fn dl_error(_vfs: *mut Vfs, len: c_int, into: Target) {
    let default = api::default();
    (default.calls.dl_error)(default.vfs, len, into);
}

extern "C" fn dl_sym(_vfs: *mut Vfs, library: *mut c_void, name: Text<'_>) -> Symbol {
    let default = api::default();
    (default.calls.dl_sym)(default.vfs, library, name)
}

extern "C" fn dl_close(_vfs: *mut Vfs, library: *mut c_void) {
    let default = api::default();
    (default.calls.dl_close)(default.vfs, library);
}

extern "C" fn randomness(_vfs: *mut Vfs, len: c_int, into: Target) -> c_int {
    let default = api::default();
    (default.calls.randomness)(default.vfs, len, into)
}

extern "C" fn sleep(_vfs: *mut Vfs, microseconds: c_int) -> c_int {
    let default = api::default();
    (default.calls.sleep)(default.vfs, microseconds)
}

extern "C" fn current_time(_vfs: *mut Vfs, place: Place<'_, f64>) -> c_int {
    let default = api::default();
    (default.calls.current_time)(default.vfs, place)
}

extern "C" fn current_time_int64(_vfs: *mut Vfs, place: Place<'_, i64>) -> c_int {
    let default = api::default();
    (default.calls.current_time_int64)(default.vfs, place)
}

/// The errno of the last failure of this thread, and its words.
extern "C" fn get_last_error(_vfs: *mut Vfs, len: c_int, into: Target) -> c_int {
    let (errno, words) = last();
    into.set_text(len, words.as_bytes());
    errno
}

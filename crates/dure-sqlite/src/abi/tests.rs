//! The structs and numbers, compared with the headers of SQLite.

use std::fmt::Write;
use std::mem::offset_of;
use std::process::Command;

use super::*;

/// Each name of C with its value here.
fn ours() -> Vec<(String, usize)> {
    let mut found = Vec::new();
    macro_rules! fields {
        ($ours:ty, $theirs:literal: $($field:ident = $name:literal),* $(,)?) => {
            $(found.push((
                format!("offsetof({}, {})", $theirs, $name),
                offset_of!($ours, $field),
            ));)*
        };
    }
    fields!(Slot, "sqlite3_file": methods = "pMethods");
    fields!(IoMethods, "sqlite3_io_methods": version = "iVersion", close = "xClose",
        read = "xRead", write = "xWrite", truncate = "xTruncate", sync = "xSync",
        file_size = "xFileSize", lock = "xLock", unlock = "xUnlock",
        check_reserved_lock = "xCheckReservedLock", file_control = "xFileControl",
        sector_size = "xSectorSize", device_characteristics = "xDeviceCharacteristics",
        shm_map = "xShmMap", shm_lock = "xShmLock", shm_barrier = "xShmBarrier",
        shm_unmap = "xShmUnmap");
    fields!(Vfs, "sqlite3_vfs": version = "iVersion", file_bytes = "szOsFile",
        path_max = "mxPathname", next = "pNext", name = "zName", app_data = "pAppData",
        open = "xOpen", delete = "xDelete", access = "xAccess", full_pathname = "xFullPathname",
        dl_open = "xDlOpen", dl_error = "xDlError", dl_sym = "xDlSym", dl_close = "xDlClose",
        randomness = "xRandomness", sleep = "xSleep", current_time = "xCurrentTime",
        get_last_error = "xGetLastError", current_time_int64 = "xCurrentTimeInt64");
    fields!(Routines, "sqlite3_api_routines": libversion_number = "libversion_number",
        mprintf = "mprintf", result_text = "result_text", vfs_find = "vfs_find",
        vfs_register = "vfs_register", create_function_v2 = "create_function_v2", log = "log",
        uri_parameter = "uri_parameter", auto_extension = "auto_extension");
    found.extend(numbers());
    found
}

fn numbers() -> Vec<(String, usize)> {
    let mut found = Vec::new();
    macro_rules! codes {
        ($($name:ident),* $(,)?) => {
            $(found.push((
                concat!("SQLITE_", stringify!($name)).to_owned(),
                usize::try_from(code::$name).unwrap(),
            ));)*
        };
    }
    codes!(
        OK,
        ERROR,
        BUSY,
        IOERR,
        NOTFOUND,
        FULL,
        CANTOPEN,
        MISUSE,
        NOTADB,
        OK_LOAD_PERMANENTLY,
        IOERR_READ,
        IOERR_SHORT_READ,
        IOERR_WRITE,
        IOERR_FSYNC,
        IOERR_DIR_FSYNC,
        IOERR_TRUNCATE,
        IOERR_FSTAT,
        IOERR_DELETE,
        IOERR_ACCESS,
        IOERR_CLOSE,
        IOERR_SHMMAP,
        IOERR_DELETE_NOENT,
        IOERR_CORRUPTFS,
        CANTOPEN_ISDIR,
        CANTOPEN_FULLPATH,
        CANTOPEN_SYMLINK,
        OPEN_READONLY,
        OPEN_READWRITE,
        OPEN_CREATE,
        OPEN_DELETEONCLOSE,
        OPEN_EXCLUSIVE,
        OPEN_MAIN_DB,
        OPEN_MAIN_JOURNAL,
        OPEN_WAL,
        ACCESS_EXISTS,
        IOCAP_ATOMIC512,
        IOCAP_ATOMIC1K,
        IOCAP_ATOMIC2K,
        IOCAP_ATOMIC4K,
        IOCAP_POWERSAFE_OVERWRITE,
        SHM_UNLOCK,
        SHM_SHARED,
        SHM_NLOCK,
        FCNTL_PERSIST_WAL,
        FCNTL_VFSNAME,
        FCNTL_HAS_MOVED,
        UTF8,
    );
    found
}

#[test]
fn structs_and_numbers_are_those_of_the_headers() {
    let folder = tempfile::tempdir().unwrap();
    let mut source = "#include <sqlite3ext.h>\n#include <stddef.h>\n#include <stdio.h>\n\
                      int main(void)\n{\n"
        .to_owned();
    for (name, _) in ours() {
        writeln!(source, "printf(\"%zu\\n\", (size_t)({name}));").unwrap();
    }
    source.push_str("return 0;\n}\n");
    let (file, program) = (folder.path().join("a.c"), folder.path().join("a"));
    std::fs::write(&file, source).unwrap();
    let mut compile = Command::new("cc");
    compile.arg(&file).arg("-o").arg(&program);
    match compile.output() {
        Ok(made) if made.status.success() => {}
        Ok(made) if String::from_utf8_lossy(&made.stderr).contains("sqlite3ext.h: No such") => {
            eprintln!("skipped: there is no sqlite3ext.h (libsqlite3-dev)");
            return;
        }
        Ok(made) => panic!("{}", String::from_utf8_lossy(&made.stderr)),
        Err(_) => {
            eprintln!("skipped: there is no cc");
            return;
        }
    }
    let said = Command::new(program).output().unwrap().stdout;
    let said = String::from_utf8(said).unwrap();
    let theirs: Vec<usize> = said.lines().map(|line| line.parse().unwrap()).collect();
    let ours = ours();
    assert_eq!(ours.len(), theirs.len());
    for ((name, ours), theirs) in ours.into_iter().zip(theirs) {
        assert_eq!(ours, theirs, "{name}");
    }
}

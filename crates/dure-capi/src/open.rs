//! Opening: the flags of `open(2)`.

use std::ffi::c_int;

use dure::{File, OpenOptions, Session};
use dure_sync::Arc;

use crate::answer::{Outcome, answer, end, invalid, live};
use crate::argument::{NewHandle, Text, make_in};
use crate::file::dure_file;
use crate::session::dure_session;

/// Flags that mean something here.
const KNOWN: c_int = libc::O_ACCMODE
    | libc::O_CREAT
    | libc::O_EXCL
    | libc::O_TRUNC
    | libc::O_APPEND
    | libc::O_DIRECTORY
    | libc::O_NOFOLLOW
    | libc::O_SYNC
    | libc::O_TMPFILE;
/// Flags that ask for what is so anyway.
const NEEDLESS: c_int = libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK | libc::O_LARGEFILE;

fn has(flags: c_int, all_of: c_int) -> bool {
    flags & all_of == all_of
}

fn open(session: &Session, path: Text<'_>, flags: c_int, mode: u32) -> Outcome<File> {
    let path = path.path()?;
    if flags & !(KNOWN | NEEDLESS) != 0 {
        return invalid("a flag that dure does not know");
    }
    let access = flags & libc::O_ACCMODE;
    if access == libc::O_ACCMODE {
        return invalid("O_RDONLY, O_WRONLY or O_RDWR");
    }
    if has(flags, libc::O_TMPFILE) {
        let others = flags & !(NEEDLESS | libc::O_TMPFILE | libc::O_ACCMODE);
        if access != libc::O_RDWR || others != 0 {
            return invalid("O_TMPFILE with O_RDWR and nothing else");
        }
        return Ok(session.temporary(path, mode)?);
    }
    let (creates, is_new) = (has(flags, libc::O_CREAT), has(flags, libc::O_EXCL));
    let options = OpenOptions::new()
        .posix()
        .read(access != libc::O_WRONLY)
        .write(access != libc::O_RDONLY)
        .append(access != libc::O_RDONLY && has(flags, libc::O_APPEND))
        .truncate(has(flags, libc::O_TRUNC))
        .create(creates)
        .create_new(creates && is_new)
        .directory(has(flags, libc::O_DIRECTORY))
        .no_follow(has(flags, libc::O_NOFOLLOW))
        .mode(mode);
    let options = match (has(flags, libc::O_SYNC), has(flags, libc::O_DSYNC)) {
        (true, _) => options.sync(true),
        (_, true) => options.data_sync(true),
        _ => options,
    };
    Ok(options.open(session, path)?)
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_open(
    session: Option<&dure_session>,
    path: Text<'_>,
    flags: c_int,
    mode: u32,
    file: NewHandle<'_, dure_file>,
) -> c_int {
    answer(session, |session| {
        make_in(file, || {
            let file = open(&session.session, path, flags, mode)?;
            let owner = Arc::clone(&session.owner);
            Ok(dure_file { file, owner })
        })
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_openat(
    session: Option<&dure_session>,
    directory: Option<&dure_file>,
    path: Text<'_>,
    flags: c_int,
    mode: u32,
    file: NewHandle<'_, dure_file>,
) -> c_int {
    answer(session, |session| {
        let directory = live(directory)?;
        session.owner.same(&directory.owner)?;
        make_in(file, || {
            let at = session.session.at(&directory.file)?;
            let file = open(&at, path, flags, mode)?;
            let owner = Arc::clone(&session.owner);
            Ok(dure_file { file, owner })
        })
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_dup(file: Option<&dure_file>, copy: NewHandle<'_, dure_file>) -> c_int {
    answer(file, |file| {
        make_in(copy, || {
            Ok(dure_file {
                file: file.file.try_clone(),
                owner: Arc::clone(&file.owner),
            })
        })
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_close(file: Option<Box<dure_file>>) -> c_int {
    end(file)
}

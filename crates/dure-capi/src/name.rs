//! Names: made, moved, removed.

use std::ffi::c_int;
use std::os::unix::ffi::OsStrExt;

use dure::{RenameMode, Special};

use crate::answer::{Outcome, answer, invalid, live};
use crate::argument::{Target, Text};
use crate::file::dure_file;
use crate::session::dure_session;

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_mkdir(session: Option<&dure_session>, path: Text<'_>, mode: u32) -> c_int {
    answer(session, |session| {
        Ok(session.session.create_dir_with_mode(path.path()?, mode)?)
    })
}

/// The file that `mknod(2)` means.
fn special(mode: u32, rdev: u64) -> Outcome<Special> {
    Ok(match mode & libc::S_IFMT {
        0 | libc::S_IFREG => Special::File,
        libc::S_IFIFO => Special::Fifo,
        libc::S_IFSOCK => Special::Socket,
        libc::S_IFCHR => Special::CharacterDevice(rdev),
        libc::S_IFBLK => Special::BlockDevice(rdev),
        _ => return invalid("mknod makes no directory and no link"),
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_mknod(
    session: Option<&dure_session>,
    path: Text<'_>,
    mode: u32,
    rdev: u64,
) -> c_int {
    answer(session, |session| {
        let special = special(mode, rdev)?;
        Ok(session
            .session
            .mknod(path.path()?, special, mode & 0o7777)?)
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_rmdir(session: Option<&dure_session>, path: Text<'_>) -> c_int {
    answer(session, |session| {
        Ok(session.session.remove_dir(path.path()?)?)
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_unlink(session: Option<&dure_session>, path: Text<'_>) -> c_int {
    answer(session, |session| {
        Ok(session.session.remove_file(path.path()?)?)
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_rename(
    session: Option<&dure_session>,
    from: Text<'_>,
    to: Text<'_>,
    flags: u32,
) -> c_int {
    answer(session, |session| {
        let mode = match flags {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return invalid("0, RENAME_NOREPLACE or RENAME_EXCHANGE"),
        };
        Ok(session
            .session
            .rename_with(from.path()?, to.path()?, mode)?)
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_link(session: Option<&dure_session>, from: Text<'_>, to: Text<'_>) -> c_int {
    answer(session, |session| {
        Ok(session.session.hard_link(from.path()?, to.path()?)?)
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_flink(
    session: Option<&dure_session>,
    file: Option<&dure_file>,
    to: Text<'_>,
) -> c_int {
    answer(session, |session| {
        let file = live(file)?;
        session.owner.same(&file.owner)?;
        Ok(session.session.link_file(&file.file, to.path()?)?)
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_symlink(
    session: Option<&dure_session>,
    target: Text<'_>,
    path: Text<'_>,
) -> c_int {
    answer(session, |session| {
        Ok(session.session.symlink(target.path()?, path.path()?)?)
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_readlink(
    session: Option<&dure_session>,
    path: Text<'_>,
    buf: Target,
    len: usize,
) -> isize {
    answer(session, |session| {
        let buf = buf.get(len)?;
        if buf.is_empty() {
            return invalid("a buffer of no bytes");
        }
        let target = session.session.read_link(path.path()?)?;
        let target = target.as_os_str().as_bytes();
        let count = target.len().min(buf.len());
        buf[..count].copy_from_slice(&target[..count]);
        Ok(count)
    })
}

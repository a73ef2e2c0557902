//! Extended attributes.

use std::ffi::c_int;

use dure::XattrMode;

use crate::answer::{Failure, Outcome, answer, invalid};
use crate::argument::{Source, Target, Text};
use crate::file::dure_file;
use crate::session::dure_session;

/// Copies what was found; with a buffer of no bytes, only says how long it is.
fn give(found: &[u8], buf: &mut [u8]) -> Outcome<usize> {
    if !buf.is_empty() {
        let Some(place) = buf.get_mut(..found.len()) else {
            return Err(Failure::Errno(libc::ERANGE, "the buffer is too short"));
        };
        place.copy_from_slice(found);
    }
    Ok(found.len())
}

fn give_value(value: Option<Vec<u8>>, buf: &mut [u8]) -> Outcome<usize> {
    match value {
        Some(value) => give(&value, buf),
        None => Err(Failure::Errno(libc::ENODATA, "no such attribute")),
    }
}

/// Names, each with a zero behind it.
fn give_names(names: Vec<Vec<u8>>, buf: &mut [u8]) -> Outcome<usize> {
    let ended = names.into_iter().map(|mut name| {
        name.push(0);
        name
    });
    give(&ended.collect::<Vec<_>>().concat(), buf)
}

fn mode_of(flags: c_int) -> Outcome<XattrMode> {
    Ok(match flags {
        0 => XattrMode::Any,
        libc::XATTR_CREATE => XattrMode::Create,
        libc::XATTR_REPLACE => XattrMode::Replace,
        _ => return invalid("0, XATTR_CREATE or XATTR_REPLACE"),
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_getxattr(
    session: Option<&dure_session>,
    path: Text<'_>,
    name: Text<'_>,
    buf: Target,
    len: usize,
) -> isize {
    answer(session, |session| {
        let (buf, name) = (buf.get(len)?, name.bytes()?);
        give_value(session.session.get_xattr(path.path()?, name)?, buf)
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_fgetxattr(
    file: Option<&dure_file>,
    name: Text<'_>,
    buf: Target,
    len: usize,
) -> isize {
    answer(file, |file| {
        let buf = buf.get(len)?;
        give_value(file.file.get_xattr(name.bytes()?)?, buf)
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_setxattr(
    session: Option<&dure_session>,
    path: Text<'_>,
    name: Text<'_>,
    value: Source,
    len: usize,
    flags: c_int,
) -> c_int {
    answer(session, |session| {
        let (value, mode) = (value.get(len)?, mode_of(flags)?);
        let (path, name) = (path.path()?, name.bytes()?);
        Ok(session.session.set_xattr(path, name, value, mode)?)
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_fsetxattr(
    file: Option<&dure_file>,
    name: Text<'_>,
    value: Source,
    len: usize,
    flags: c_int,
) -> c_int {
    answer(file, |file| {
        let (value, mode) = (value.get(len)?, mode_of(flags)?);
        Ok(file.file.set_xattr(name.bytes()?, value, mode)?)
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_listxattr(
    session: Option<&dure_session>,
    path: Text<'_>,
    buf: Target,
    len: usize,
) -> isize {
    answer(session, |session| {
        let buf = buf.get(len)?;
        give_names(session.session.list_xattr(path.path()?)?, buf)
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_flistxattr(file: Option<&dure_file>, buf: Target, len: usize) -> isize {
    answer(file, |file| {
        let buf = buf.get(len)?;
        give_names(file.file.list_xattr()?, buf)
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_removexattr(
    session: Option<&dure_session>,
    path: Text<'_>,
    name: Text<'_>,
) -> c_int {
    answer(session, |session| {
        let (path, name) = (path.path()?, name.bytes()?);
        Ok(session.session.remove_xattr(path, name)?)
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_fremovexattr(file: Option<&dure_file>, name: Text<'_>) -> c_int {
    answer(file, |file| Ok(file.file.remove_xattr(name.bytes()?)?))
}

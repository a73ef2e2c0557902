//! Attributes: read and changed.

use std::ffi::c_int;

use dure::{Access, FileTimes, TimeChange, Timestamp};

use crate::answer::{Outcome, answer, invalid};
use crate::argument::{Place, Source, Text, offset_of, there};
use crate::file::dure_file;
use crate::layout::dure_stat;
use crate::session::dure_session;

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_stat(
    session: Option<&dure_session>,
    path: Text<'_>,
    stat: Place<'_, dure_stat>,
) -> c_int {
    answer(session, |session| {
        let place = there(stat)?;
        let found = session.session.metadata(path.path()?)?;
        place.write(dure_stat::from(&found));
        Ok(())
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_lstat(
    session: Option<&dure_session>,
    path: Text<'_>,
    stat: Place<'_, dure_stat>,
) -> c_int {
    answer(session, |session| {
        let place = there(stat)?;
        let found = session.session.symlink_metadata(path.path()?)?;
        place.write(dure_stat::from(&found));
        Ok(())
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_fstat(file: Option<&dure_file>, stat: Place<'_, dure_stat>) -> c_int {
    answer(file, |file| {
        let place = there(stat)?;
        place.write(dure_stat::from(&file.file.metadata()?));
        Ok(())
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_access(
    session: Option<&dure_session>,
    path: Text<'_>,
    want: c_int,
) -> c_int {
    answer(session, |session| {
        let access = match u32::try_from(want) {
            Ok(bits) if bits <= 7 => Access::from_bits(bits),
            _ => return invalid("F_OK, or R_OK, W_OK, X_OK"),
        };
        Ok(session.session.access(path.path()?, access)?)
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_truncate(
    session: Option<&dure_session>,
    path: Text<'_>,
    size: i64,
) -> c_int {
    answer(session, |session| {
        let size = offset_of(size)?;
        Ok(session.session.truncate(path.path()?, size)?)
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_chmod(session: Option<&dure_session>, path: Text<'_>, mode: u32) -> c_int {
    answer(session, |session| {
        Ok(session.session.set_permissions(path.path()?, mode)?)
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_fchmod(file: Option<&dure_file>, mode: u32) -> c_int {
    answer(file, |file| Ok(file.file.set_permissions(mode)?))
}

/// A user or group, unless it is -1.
fn unless_kept(id: u32) -> Option<u32> {
    (id != u32::MAX).then_some(id)
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_chown(
    session: Option<&dure_session>,
    path: Text<'_>,
    uid: u32,
    gid: u32,
) -> c_int {
    answer(session, |session| {
        let (uid, gid) = (unless_kept(uid), unless_kept(gid));
        Ok(session.session.chown(path.path()?, uid, gid)?)
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_lchown(
    session: Option<&dure_session>,
    path: Text<'_>,
    uid: u32,
    gid: u32,
) -> c_int {
    answer(session, |session| {
        let (uid, gid) = (unless_kept(uid), unless_kept(gid));
        Ok(session.session.lchown(path.path()?, uid, gid)?)
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_fchown(file: Option<&dure_file>, uid: u32, gid: u32) -> c_int {
    answer(file, |file| {
        Ok(file.file.chown(unless_kept(uid), unless_kept(gid))?)
    })
}

/// What `utimensat(2)` says of two times; NULL: both now.
fn times_of(times: Option<Source>) -> Outcome<FileTimes> {
    let Some(times) = times else {
        return Ok(FileTimes {
            accessed: TimeChange::Now,
            modified: TimeChange::Now,
        });
    };
    let times: &[libc::timespec] = times.get(2)?;
    Ok(FileTimes {
        accessed: change_of(&times[0])?,
        modified: change_of(&times[1])?,
    })
}

fn change_of(time: &libc::timespec) -> Outcome<TimeChange> {
    Ok(match time.tv_nsec {
        libc::UTIME_NOW => TimeChange::Now,
        libc::UTIME_OMIT => TimeChange::Keep,
        nanos => match u32::try_from(nanos) {
            Ok(nanos) if nanos < 1_000_000_000 => TimeChange::Set(Timestamp {
                secs: time.tv_sec,
                nanos,
            }),
            _ => return invalid("0 to 999999999 nanoseconds"),
        },
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_utimens(
    session: Option<&dure_session>,
    path: Text<'_>,
    times: Source,
    flags: c_int,
) -> c_int {
    answer(session, |session| {
        let (path, times) = (path.path()?, times_of(times.unless_null())?);
        match flags {
            0 => Ok(session.session.set_times(path, times)?),
            libc::AT_SYMLINK_NOFOLLOW => Ok(session.session.set_symlink_times(path, times)?),
            _ => invalid("0 or AT_SYMLINK_NOFOLLOW"),
        }
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_futimens(file: Option<&dure_file>, times: Source) -> c_int {
    answer(file, |file| {
        Ok(file.file.set_times(times_of(times.unless_null())?)?)
    })
}

//! Open files: reading, writing, positions, durability.

#![expect(non_camel_case_types, reason = "they are named as in C")]

use std::ffi::c_int;

use dure::{Advice, AllocateMode, File, Seek};
use dure_sync::Arc;

use crate::answer::{Failure, Handle, Outcome, answer, invalid};
use crate::argument::{Source, Target, offset_of};
use crate::owner::Owner;

/// An open file or directory.
#[derive(Debug)]
pub struct dure_file {
    pub(crate) file: File,
    pub(crate) owner: Arc<Owner>,
}

impl Handle for dure_file {
    #[inline]
    fn owner(&self) -> &Owner {
        &self.owner
    }
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_pread(
    file: Option<&dure_file>,
    buf: Target,
    len: usize,
    offset: i64,
) -> isize {
    answer(file, |file| {
        Ok(file.file.read_at(buf.get(len)?, offset_of(offset)?)?)
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_pwrite(
    file: Option<&dure_file>,
    buf: Source,
    len: usize,
    offset: i64,
) -> isize {
    answer(file, |file| {
        Ok(file.file.write_at(buf.get(len)?, offset_of(offset)?)?)
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_read(file: Option<&dure_file>, buf: Target, len: usize) -> isize {
    answer(file, |file| Ok(file.file.read_next(buf.get(len)?)?))
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_write(file: Option<&dure_file>, buf: Source, len: usize) -> isize {
    answer(file, |file| Ok(file.file.write_next(buf.get(len)?)?))
}

fn seek_of(offset: i64, whence: c_int) -> Outcome<Seek> {
    let at = || match u64::try_from(offset) {
        Ok(offset) => Ok(offset),
        Err(_) => Err(Failure::Errno(libc::ENXIO, "nothing before the start")),
    };
    Ok(match whence {
        libc::SEEK_SET => Seek::Set(offset_of(offset)?),
        libc::SEEK_CUR => Seek::Current(offset),
        libc::SEEK_END => Seek::End(offset),
        libc::SEEK_DATA => Seek::Data(at()?),
        libc::SEEK_HOLE => Seek::Hole(at()?),
        _ => return invalid("SEEK_SET, _CUR, _END, _DATA or _HOLE"),
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_lseek(file: Option<&dure_file>, offset: i64, whence: c_int) -> i64 {
    answer(file, |file| {
        Ok(file.file.seek_to(seek_of(offset, whence)?)?)
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_fsync(file: Option<&dure_file>) -> c_int {
    answer(file, |file| Ok(file.file.sync_all()?))
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_fdatasync(file: Option<&dure_file>) -> c_int {
    answer(file, |file| Ok(file.file.sync_data()?))
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_ftruncate(file: Option<&dure_file>, size: i64) -> c_int {
    answer(file, |file| Ok(file.file.set_len(offset_of(size)?)?))
}

fn allocate_mode(mode: c_int) -> Outcome<AllocateMode> {
    const PUNCH: c_int = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    const ZERO_KEEP: c_int = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
    Ok(match mode {
        0 => AllocateMode::Extend,
        libc::FALLOC_FL_KEEP_SIZE => AllocateMode::KeepSize,
        PUNCH => AllocateMode::Punch,
        libc::FALLOC_FL_ZERO_RANGE => AllocateMode::Zero,
        ZERO_KEEP => AllocateMode::ZeroKeepSize,
        _ => {
            return Err(Failure::Errno(
                libc::EOPNOTSUPP,
                "no such mode of fallocate",
            ));
        }
    })
}

/// What the library makes of an advice; `None`: nothing.
fn advice_of(advice: c_int) -> Outcome<Option<Advice>> {
    Ok(match advice {
        libc::POSIX_FADV_WILLNEED => Some(Advice::WillNeed),
        libc::POSIX_FADV_DONTNEED => Some(Advice::DontNeed),
        libc::POSIX_FADV_NORMAL
        | libc::POSIX_FADV_SEQUENTIAL
        | libc::POSIX_FADV_RANDOM
        | libc::POSIX_FADV_NOREUSE => None,
        _ => return invalid("one of POSIX_FADV_*"),
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_fadvise(
    file: Option<&dure_file>,
    offset: i64,
    len: i64,
    advice: c_int,
) -> c_int {
    answer(file, |file| {
        let (offset, len) = (offset_of(offset)?, offset_of(len)?);
        match advice_of(advice)? {
            Some(advice) => Ok(file.file.advise(advice, offset, len)?),
            None => Ok(()),
        }
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_fallocate(
    file: Option<&dure_file>,
    mode: c_int,
    offset: i64,
    len: i64,
) -> c_int {
    answer(file, |file| {
        let mode = allocate_mode(mode)?;
        let (offset, len) = (offset_of(offset)?, offset_of(len)?);
        Ok(file.file.allocate(mode, offset, len)?)
    })
}

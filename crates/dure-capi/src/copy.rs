//! Copies within the library.

use std::ffi::c_int;

use dure::{File, Seek};

use crate::answer::{Failure, Outcome, answer, invalid, live};
use crate::argument::{Place, Text, offset_of};
use crate::file::dure_file;
use crate::session::dure_session;

/// Most bytes of a call, as of Linux.
const COPY_MAX: usize = 0x7fff_f000;
/// Bytes that are copied at once.
const CHUNK: usize = 1 << 20;

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_copy(session: Option<&dure_session>, from: Text<'_>, to: Text<'_>) -> i64 {
    answer(session, |session| {
        Ok(session.session.copy(from.path()?, to.path()?)?)
    })
}

/// A file and where in it: at an offset of the caller, which moves, or at its position.
struct Side<'a> {
    file: &'a File,
    offset: u64,
    moves: Option<&'a mut i64>,
}

impl<'a> Side<'a> {
    fn new(file: &'a dure_file, moves: Option<&'a mut i64>) -> Outcome<Side<'a>> {
        let file = &file.file;
        if !file.metadata()?.is_file() {
            return invalid("only regular files are copied");
        }
        let offset = match &moves {
            Some(offset) => offset_of(**offset)?,
            None => file.seek_to(Seek::Current(0))?,
        };
        Ok(Side {
            file,
            offset,
            moves,
        })
    }

    fn end(self, count: u64) -> Outcome<()> {
        let behind = self.offset.saturating_add(count);
        match self.moves {
            Some(offset) => *offset = i64::try_from(behind).unwrap_or(i64::MAX),
            None => drop(self.file.seek_to(Seek::Set(behind))?),
        }
        Ok(())
    }
}

/// Copies up to `len` bytes; an error behind the first bytes ends it.
fn copy(from: &Side<'_>, to: &Side<'_>, len: usize) -> Outcome<u64> {
    let wide = |count: usize| u64::try_from(count).expect("a usize fits in 64 bits");
    let mut bytes = vec![0; CHUNK.min(len)];
    let mut copied = 0_usize;
    while copied < len {
        let room = bytes.len().min(len - copied);
        let at = |side: &Side<'_>| side.offset.saturating_add(wide(copied));
        let read = from.file.read_at(&mut bytes[..room], at(from));
        let written = read.and_then(|read| to.file.write_at(&bytes[..read], at(to)));
        match written {
            Ok(0) => break,
            Ok(count) => copied += count,
            Err(error) if copied == 0 => return Err(error.into()),
            Err(_) => break,
        }
    }
    Ok(wide(copied))
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_copy_file_range(
    from: Option<&dure_file>,
    from_offset: Option<&mut i64>,
    to: Option<&dure_file>,
    to_offset: Option<&mut i64>,
    len: usize,
    flags: u32,
) -> i64 {
    answer(from, |from| {
        let to = live(to)?;
        if flags != 0 {
            return invalid("flags are 0");
        }
        let same_volume = from.owner.same(&to.owner).is_ok();
        let is_one = same_volume && from.file.ino() == to.file.ino();
        let (from, to) = (Side::new(from, from_offset)?, Side::new(to, to_offset)?);
        let len = len.min(COPY_MAX);
        let bytes = u64::try_from(len).expect("a usize fits in 64 bits");
        if is_one {
            // What is behind the end is not copied, and overlaps nothing.
            let left = from.file.metadata()?.len().saturating_sub(from.offset);
            if from.offset.abs_diff(to.offset) < bytes.min(left) {
                return Err(Failure::Errno(libc::EINVAL, "the ranges overlap"));
            }
        }
        let copied = match same_volume {
            // Shares blocks where it can.
            true => to
                .file
                .copy_range(from.file, from.offset, to.offset, bytes)?,
            false => copy(&from, &to, len)?,
        };
        from.end(copied)?;
        to.end(copied)?;
        Ok(copied)
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_clone_range(
    from: Option<&dure_file>,
    from_offset: i64,
    to: Option<&dure_file>,
    to_offset: i64,
    len: i64,
) -> c_int {
    answer(from, |from| {
        let to = live(to)?;
        let [start, at, len] = [from_offset, to_offset, len].map(offset_of);
        to.file.clone_range(&from.file, start?, at?, len?)?;
        Ok(())
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_dedupe_range(
    from: Option<&dure_file>,
    from_offset: i64,
    to: Option<&dure_file>,
    to_offset: i64,
    len: i64,
    differs: Place<'_, c_int>,
) -> i64 {
    answer(from, |from| {
        let to = live(to)?;
        let [start, at, len] = [from_offset, to_offset, len].map(offset_of);
        let found = to.file.dedupe_range(&from.file, start?, at?, len?)?;
        if let Some(differs) = differs {
            differs.write(c_int::from(found.differs));
        }
        Ok(found.same)
    })
}

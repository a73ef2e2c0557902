//! Reads into and writes from many buffers.
//!
//! **Structure.** One buffer is used where it is. Several that are short go through one of our own, so
//! that the call is one read or one write to all others; longer ones are read and written one after the
//! other. **Invariants.** What is returned is what a caller finds in the first bytes of its buffers.

use std::ffi::{c_int, c_void};

use dure::File;

use crate::answer::{Outcome, answer};
use crate::argument::{Source, Target, Vectors, offset_of};
use crate::file::dure_file;

/// Most bytes that are read or written as one.
const AS_ONE: usize = 1 << 20;

/// A buffer: where, and how many bytes.
type Vector = (*mut c_void, usize);

/// Where a call begins.
#[derive(Clone, Copy)]
enum From {
    Position,
    Offset(u64),
}

impl From {
    /// Behind `count` bytes.
    fn behind(self, count: usize) -> From {
        match self {
            From::Position => self,
            From::Offset(offset) => From::Offset(offset.saturating_add(wide(count))),
        }
    }
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).expect("a usize fits in 64 bits")
}

fn target<'a>((base, len): Vector) -> Outcome<&'a mut [u8]> {
    // SAFETY: callers promised it of each vector.
    // JUSTIFICATION: it is how C passes buffers.
    unsafe { Target::new(base) }.get(len)
}

fn source<'a>((base, len): Vector) -> Outcome<&'a [u8]> {
    // SAFETY: callers promised it of each vector.
    // JUSTIFICATION: it is how C passes buffers.
    unsafe { Source::new(base) }.get(len)
}

fn read_once(file: &File, from: From, bytes: &mut [u8]) -> dure::Result<usize> {
    match from {
        From::Position => file.read_next(bytes),
        From::Offset(offset) => file.read_at(bytes, offset),
    }
}

fn write_once(file: &File, from: From, bytes: &[u8]) -> dure::Result<usize> {
    match from {
        From::Position => file.write_next(bytes),
        From::Offset(offset) => file.write_at(bytes, offset),
    }
}

/// Passes each vector to `step`, with the bytes done before, until one is not done wholly. An error
/// behind the first bytes ends it like the end of the file. Without a vector, an empty one is passed.
fn each(
    vectors: &[Vector],
    mut step: impl FnMut(Vector, usize) -> Outcome<usize>,
) -> Outcome<usize> {
    if vectors.is_empty() {
        return step((std::ptr::null_mut(), 0), 0);
    }
    let mut done = 0;
    for vector in vectors {
        let count = match step(*vector, done) {
            Ok(count) => count,
            Err(failure) if done == 0 => return Err(failure),
            Err(_) => break,
        };
        done += count;
        if count < vector.1 {
            break;
        }
    }
    Ok(done)
}

fn read(file: &File, from: From, vectors: Vectors, count: c_int) -> Outcome<usize> {
    let (vectors, sum) = vectors.get(count)?;
    if vectors.len() < 2 || sum > AS_ONE {
        return each(&vectors, |vector, done| {
            Ok(read_once(file, from.behind(done), target(vector)?)?)
        });
    }
    // No place may be missing before the position moves.
    let mut places = Vec::new();
    for vector in vectors {
        places.push(target(vector)?);
    }
    let mut bytes = vec![0; sum];
    let read = read_once(file, from, &mut bytes)?;
    let mut rest = &bytes[..read];
    for place in places {
        let (now, later) = rest.split_at(place.len().min(rest.len()));
        place[..now.len()].copy_from_slice(now);
        rest = later;
    }
    Ok(read)
}

fn write(file: &File, from: From, vectors: Vectors, count: c_int) -> Outcome<usize> {
    let (vectors, sum) = vectors.get(count)?;
    if vectors.len() < 2 || sum > AS_ONE {
        return each(&vectors, |vector, done| {
            Ok(write_once(file, from.behind(done), source(vector)?)?)
        });
    }
    let mut bytes = Vec::with_capacity(sum);
    for vector in vectors {
        bytes.extend_from_slice(source(vector)?);
    }
    Ok(write_once(file, from, &bytes)?)
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_readv(file: Option<&dure_file>, iov: Vectors, iovcnt: c_int) -> isize {
    answer(file, |file| read(&file.file, From::Position, iov, iovcnt))
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_writev(file: Option<&dure_file>, iov: Vectors, iovcnt: c_int) -> isize {
    answer(file, |file| write(&file.file, From::Position, iov, iovcnt))
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_preadv(
    file: Option<&dure_file>,
    iov: Vectors,
    iovcnt: c_int,
    offset: i64,
) -> isize {
    answer(file, |file| {
        let from = From::Offset(offset_of(offset)?);
        read(&file.file, from, iov, iovcnt)
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_pwritev(
    file: Option<&dure_file>,
    iov: Vectors,
    iovcnt: c_int,
    offset: i64,
) -> isize {
    answer(file, |file| {
        let from = From::Offset(offset_of(offset)?);
        write(&file.file, from, iov, iovcnt)
    })
}

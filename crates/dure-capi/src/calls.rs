//! Many reads and writes of one thread under way at once.

#![expect(non_camel_case_types, reason = "they are named as in C")]

use std::ffi::c_int;

use dure::{Calls, Done, File};
use dure_sync::{Arc, Mutex};

use crate::answer::{Handle, Outcome, answer, end, invalid, live};
use crate::argument::{NewHandle, Place, Source, Target, make_in, offset_of, there};
use crate::file::dure_file;
use crate::layout::dure_done;
use crate::owner::Owner;
use crate::volume::dure_volume;

/// Rank of calls under way: below the locks of the file system, because it is held while one is
/// waited for.
const CALLS: u8 = 29;

/// The buffer of a call: memory of the caller, which leaves it alone until the call is reaped.
#[derive(Debug)]
enum Buffer {
    Read(&'static mut [u8]),
    Written(&'static [u8]),
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Buffer::Read(bytes) => bytes,
            Buffer::Written(_) => &mut [],
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        match self {
            Buffer::Read(bytes) => bytes,
            Buffer::Written(bytes) => bytes,
        }
    }
}

/// Reads and writes that were submitted and not reaped.
#[derive(Debug)]
pub struct dure_calls {
    calls: Mutex<CALLS, Calls<File, u64, Buffer>>,
    owner: Arc<Owner>,
}

impl Handle for dure_calls {
    fn owner(&self) -> &Owner {
        &self.owner
    }
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_calls_open(
    volume: Option<&dure_volume>,
    depth: u32,
    calls: NewHandle<'_, dure_calls>,
) -> c_int {
    answer(volume, |volume| {
        make_in(calls, || {
            let depth = usize::try_from(depth).expect("32 bits fit in a usize");
            if depth == 0 {
                return invalid("at least one call has to be under way");
            }
            Ok(dure_calls {
                calls: Mutex::new(Calls::new(depth)),
                owner: Arc::clone(&volume.owner),
            })
        })
    })
}

/// A file of its own for a call: it may be closed before the call is done.
fn file_of(calls: &dure_calls, file: Option<&dure_file>) -> Outcome<File> {
    let file = live(file)?;
    calls.owner.same(&file.owner)?;
    Ok(file.file.try_clone())
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_submit_read(
    calls: Option<&dure_calls>,
    file: Option<&dure_file>,
    buf: Target,
    len: usize,
    offset: i64,
    token: u64,
) -> c_int {
    answer(calls, |calls| {
        let (buf, offset) = (Buffer::Read(buf.get(len)?), offset_of(offset)?);
        let file = file_of(calls, file)?;
        calls.calls.lock().read(file, buf, offset, token);
        Ok(())
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_submit_write(
    calls: Option<&dure_calls>,
    file: Option<&dure_file>,
    buf: Source,
    len: usize,
    offset: i64,
    token: u64,
) -> c_int {
    answer(calls, |calls| {
        let (buf, offset) = (Buffer::Written(buf.get(len)?), offset_of(offset)?);
        let file = file_of(calls, file)?;
        calls.calls.lock().write(file, buf, offset, token);
        Ok(())
    })
}

fn shown(done: &Done<u64, Buffer>) -> dure_done {
    let result = match &done.result {
        Ok(count) => i64::try_from(*count).expect("buffers are no longer"),
        Err(error) => i64::from(-error.errno()),
    };
    dure_done {
        token: done.token,
        result,
    }
}

fn give(
    place: Place<'_, dure_done>,
    reap: impl FnOnce() -> Option<Done<u64, Buffer>>,
) -> Outcome<bool> {
    let place = there(place)?;
    Ok(match reap() {
        None => false,
        Some(done) => {
            place.write(shown(&done));
            true
        }
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_reap(calls: Option<&dure_calls>, done: Place<'_, dure_done>) -> c_int {
    answer(calls, |calls| give(done, || calls.calls.lock().reap()))
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_try_reap(calls: Option<&dure_calls>, done: Place<'_, dure_done>) -> c_int {
    answer(calls, |calls| give(done, || calls.calls.lock().try_reap()))
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_calls_close(calls: Option<Box<dure_calls>>) -> c_int {
    end(calls)
}

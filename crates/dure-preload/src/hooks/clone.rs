//! Clones: files that share blocks, which the kernel asks no FUSE server for.
//!
//! **Structure.** ioctl(2) with the requests of Linux for clones, of two files of the volume; all else goes
//! to the kernel. **Invariants** and **crash**: those of [`dure::File::clone_range`].

use std::slice;

use dure::Deduped;
use libc::{FICLONE, FICLONERANGE, c_int, c_ulong, c_void, file_clone_range};

use super::{borrowed, hook, refuse};
use crate::description::Description;
use crate::slot;
use crate::table::{self, How};

const FIDEDUPERANGE: c_ulong = 0xc018_9436;
/// `FILE_DEDUPE_RANGE_DIFFERS`.
const DIFFERS: i32 = 1;

type Ask = unsafe extern "C" fn(c_int, c_ulong, *mut c_void) -> c_int;

/// `struct file_dedupe_range`, with its targets behind it.
#[repr(C)]
#[derive(Clone, Copy)]
struct DedupeRange {
    from: u64,
    len: u64,
    targets: u16,
    reserved: [u16; 3],
}

/// `struct file_dedupe_range_info`.
#[repr(C)]
struct Target {
    fd: i64,
    to: u64,
    same: u64,
    status: i32,
    reserved: u32,
}

// An argument more than some requests have is in a register, which the kernel does not look at.
hook!(ioctl: (fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int = ask);

unsafe fn ask(real: Ask, fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // Some programs have the number with a sign.
    let short = match request & 0xffff_ffff {
        FICLONE => {
            // The kernel looks at 32 bits.
            let source = u32::try_from(argument.addr() & 0xffff_ffff).unwrap_or(u32::MAX);
            clone(fd, (source.cast_signed(), 0), (0, 0))
        }
        FICLONERANGE => {
            // SAFETY: the caller's structure, if it is one.
            let range = || unsafe { argument.cast::<file_clone_range>().read_unaligned() };
            (!argument.is_null()).then(range).and_then(|range| {
                let source = i32::try_from(range.src_fd).ok()?;
                let place = (range.dest_offset, range.src_length);
                clone(fd, (source, range.src_offset), place)
            })
        }
        // SAFETY: the caller's structure, if it is one.
        FIDEDUPERANGE => unsafe { dedupe(fd, argument.cast()) },
        _ => None,
    };
    match short {
        Some(Ok(())) => 0,
        Some(Err(errno)) => refuse(errno),
        // SAFETY: the caller's arguments.
        None => unsafe { real(fd, request, argument) },
    }
}

/// Does something with a source, if it is of the volume.
fn with_source<T>(source: c_int, body: impl FnOnce(&Description) -> T) -> Option<T> {
    let source = table::share(source)?;
    let done = body(&source);
    slot::inside(|| drop(source));
    Some(done)
}

/// Does something with a file that is changed, if it is of the volume.
fn with_target<T>(fd: c_int, body: impl FnOnce(&Description) -> T) -> Option<T> {
    table::with(fd, |target| How::Short(body(target)))
}

fn clone(
    fd: c_int,
    (source, from): (c_int, u64),
    (to, len): (u64, u64),
) -> Option<Result<(), i32>> {
    with_source(source, |source| {
        with_target(fd, |target| {
            target.clone_from((source, from), (borrowed(fd), to), len)
        })
    })?
}

/// # Safety
/// `asked` is null or a structure with its targets.
unsafe fn dedupe(source: c_int, asked: *mut DedupeRange) -> Option<Result<(), i32>> {
    // SAFETY: the caller's promise.
    let asked_for = (!asked.is_null()).then(|| unsafe { asked.read_unaligned() })?;
    // SAFETY: the targets lie behind it.
    let first = unsafe { asked.add(1) }.cast::<Target>();
    // SAFETY: so many are there.
    let targets = unsafe { slice::from_raw_parts_mut(first, asked_for.targets.into()) };
    with_source(source, |source| {
        for target in targets {
            let from = (source, asked_for.from);
            (target.same, target.status) = match deduped(target, from, asked_for.len) {
                // As the kernel, which shares all of a range or nothing.
                Ok(found) if found.differs => (0, DIFFERS),
                Ok(found) => (found.same, 0),
                Err(errno) => (0, -errno),
            };
        }
        Ok(())
    })
}

fn deduped(target: &Target, from: (&Description, u64), len: u64) -> Result<Deduped, i32> {
    let fd = i32::try_from(target.fd).unwrap_or(-1);
    let done = with_target(fd, |file| file.dedupe_from(from, target.to, len));
    done.unwrap_or_else(|| {
        // One that is open, but not for the library, is taken for one of another file system.
        // SAFETY: a number.
        let is_open = unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
        Err(if is_open { libc::EXDEV } else { libc::EBADF })
    })
}

//! Clones: files that share blocks, which the kernel asks no FUSE server for.
//!
//! **Structure.** ioctl(2) with the requests of Linux for clones, of two files of the volume; all else goes
//! to the kernel. **Invariants.** What is stored in a mapping of either file is there before.
//! **On a crash** see [`dure::File::clone_range`].

use std::slice;

use libc::{c_int, c_ulong, c_void};

use super::{borrowed, hook, refuse};
use crate::description::Description;
use crate::slot;
use crate::table::{self, How};

const FICLONE: c_ulong = 0x4004_9409;
const FICLONERANGE: c_ulong = 0x4020_940d;
const FIDEDUPERANGE: c_ulong = 0xc018_9436;
/// `FILE_DEDUPE_RANGE_DIFFERS`.
const DIFFERS: i32 = 1;

type Ask = unsafe extern "C" fn(c_int, c_ulong, *mut c_void) -> c_int;

/// `struct file_clone_range`.
#[repr(C)]
#[derive(Clone, Copy)]
struct CloneRange {
    source: i64,
    from: u64,
    len: u64,
    to: u64,
}

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
            let range = || unsafe { argument.cast::<CloneRange>().read_unaligned() };
            (!argument.is_null()).then(range).and_then(|range| {
                let source = i32::try_from(range.source).ok()?;
                clone(fd, (source, range.from), (range.to, range.len))
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

/// Does something with a file and a source, if both are of the volume.
fn with_both<T>(
    fd: c_int,
    source: c_int,
    body: impl FnOnce(&Description, &Description) -> T,
) -> Option<T> {
    let source = table::share(source)?;
    let done = table::with(fd, |target| How::Short(body(target, &source)));
    slot::inside(|| drop(source));
    done
}

fn clone(
    fd: c_int,
    (source, from): (c_int, u64),
    (to, len): (u64, u64),
) -> Option<Result<(), i32>> {
    with_both(fd, source, |target, source| {
        target.clone_from((source, from), (borrowed(fd), to), len)
    })
}

/// # Safety
/// `asked` is null or a structure with its targets.
unsafe fn dedupe(source: c_int, asked: *mut DedupeRange) -> Option<Result<(), i32>> {
    // SAFETY: the caller's promise.
    let DedupeRange {
        from, len, targets, ..
    } = unsafe { asked.as_ref() }.copied()?;
    // What is not the library's the kernel knows.
    let is_known = table::share(source).map(|source| slot::inside(|| drop(source)));
    is_known?;
    // SAFETY: they lie behind it.
    let first = unsafe { asked.add(1) }.cast::<Target>();
    // SAFETY: so many are there.
    let targets = unsafe { slice::from_raw_parts_mut(first, targets.into()) };
    let mut done = None;
    for target in targets {
        let fd = i32::try_from(target.fd).unwrap_or(-1);
        let of_both = |file: &Description, source: &Description| {
            file.dedupe_from((source, from), target.to, len)
        };
        // One that is open, but not for the library, is taken for one of another file system.
        // SAFETY: a number.
        let is_open = unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
        let other = if is_open { libc::EXDEV } else { libc::EBADF };
        let found = with_both(fd, source, of_both).unwrap_or(Err(other));
        (target.same, target.status) = match found {
            // As the kernel, which shares all of a range or nothing.
            Ok(found) if found.differs => (0, DIFFERS),
            Ok(found) => (found.same, 0),
            Err(errno) => (0, -errno),
        };
        done = Some(Ok(()));
    }
    done
}

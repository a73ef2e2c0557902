//! Open files: the calls of `sqlite3_io_methods`.
//!
//! **Structure.** [`METHODS`] are the functions, each [`on`] an [`Open`] file. A database has a link
//! to what its connections share; journals have none. **Invariants.** SQLite calls on a file from one
//! thread at a time. What [`CHARACTERISTICS`] says is what dure promises (docs/design/durability.md),
//! and no more.
//!
//! **On a crash** what `sync` had returned for is there, with the name of the file.

use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use dure::File;

use crate::abi::{IoMethods, Slot, code};
use crate::api;
use crate::argument::{Place, Source, Target, control, put};
use crate::database::{Link, barrier};
use crate::failure::{During, Failure, Outcome, answer, of_panic};
use crate::locks::Level;
use crate::vfs::NAME;
use crate::volumes::Use;

/// What is written at once on the medium.
const BLOCK_BYTES: c_int = 4096;

/// An open file in a volume. Its fields end in this order: the volume is the last.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) file: File,
    /// In the volume.
    pub(crate) path: PathBuf,
    /// Of a database.
    pub(crate) link: Option<Link>,
    /// The last connection leaves the WAL.
    pub(crate) keeps_wal: bool,
    pub(crate) removed_at_close: bool,
    pub(crate) used: Use,
}

/// The functions of our open files.
pub(crate) static METHODS: IoMethods = IoMethods {
    version: 2,
    close,
    read,
    write,
    truncate,
    sync,
    file_size,
    lock,
    unlock,
    check_reserved_lock,
    file_control,
    sector_size,
    device_characteristics,
    shm_map,
    shm_lock,
    shm_barrier,
    shm_unmap,
};

/// Calls `body` with an open file, unless its volume may not be used. After a panic it may not.
fn on(slot: &mut Slot, body: impl FnOnce(&mut Open) -> Outcome<c_int>) -> c_int {
    let Some(open) = slot.open.as_mut() else {
        return code::MISUSE;
    };
    answer(|| {
        open.used.mounted.check()?;
        let called = catch_unwind(AssertUnwindSafe(|| body(open)));
        called.unwrap_or_else(|panic| {
            open.used.mounted.fail();
            Err(of_panic(&*panic))
        })
    })
}

fn offset_of(offset: i64) -> Outcome<u64> {
    let refused = |_| Failure::new(code::MISUSE, "a negative offset".to_owned());
    u64::try_from(offset).map_err(refused)
}

extern "C" fn close(slot: &mut Slot) -> c_int {
    slot.methods = None;
    let Some(open) = slot.open.take() else {
        return code::OK;
    };
    answer(|| {
        if open.used.mounted.check().is_err() {
            // In a child, and after a bug: its parts are given up without a trace.
            std::mem::forget(open);
            return Ok(code::OK);
        }
        if open.removed_at_close {
            let removed = open.used.mounted.session.remove_file(&open.path);
            removed.during(code::IOERR_DELETE)?;
        }
        drop(open);
        Ok(code::OK)
    })
}

extern "C" fn read(slot: &mut Slot, into: Target, len: c_int, offset: i64) -> c_int {
    on(slot, |open| {
        let bytes = into.get(len);
        let count = open.file.read_at(bytes, offset_of(offset)?);
        let count = count.during(code::IOERR_READ)?;
        // SQLite relies on zeroes behind the end.
        bytes[count..].fill(0);
        Ok(match count == bytes.len() {
            true => code::OK,
            false => code::IOERR_SHORT_READ,
        })
    })
}

extern "C" fn write(slot: &mut Slot, from: Source, len: c_int, offset: i64) -> c_int {
    on(slot, |open| {
        let written = open.file.write_all_at(from.get(len), offset_of(offset)?);
        written.during(code::IOERR_WRITE)?;
        Ok(code::OK)
    })
}

extern "C" fn truncate(slot: &mut Slot, size: i64) -> c_int {
    on(slot, |open| {
        let cut = open.file.set_len(offset_of(size)?);
        cut.during(code::IOERR_TRUNCATE)?;
        Ok(code::OK)
    })
}

/// The content, and the names of the file as well: no sync of a directory is needed after it.
extern "C" fn sync(slot: &mut Slot, _flags: c_int) -> c_int {
    on(slot, |open| {
        open.file.sync_data().during(code::IOERR_FSYNC)?;
        Ok(code::OK)
    })
}

extern "C" fn file_size(slot: &mut Slot, place: Place<'_, i64>) -> c_int {
    on(slot, |open| {
        let len = open.file.metadata().during(code::IOERR_FSTAT)?.len();
        put(place, i64::try_from(len).expect("files are no longer"));
        Ok(code::OK)
    })
}

/// The lock of a file that no other connection opens is always had.
fn locked(open: &mut Open, want: c_int) -> Outcome<c_int> {
    let refused = || Failure::new(code::MISUSE, format!("{want} is no lock"));
    let want = Level::of(want).ok_or_else(refused)?;
    let had = open.link.as_mut().is_none_or(|link| link.lock(want));
    Ok(if had { code::OK } else { code::BUSY })
}

extern "C" fn lock(slot: &mut Slot, want: c_int) -> c_int {
    on(slot, |open| locked(open, want))
}

extern "C" fn unlock(slot: &mut Slot, to: c_int) -> c_int {
    on(slot, |open| {
        if let (Some(link), Some(to)) = (&mut open.link, Level::of(to)) {
            link.unlock(to);
        }
        Ok(code::OK)
    })
}

extern "C" fn check_reserved_lock(slot: &mut Slot, place: Place<'_, c_int>) -> c_int {
    on(slot, |open| {
        let reserved = open.link.as_ref().is_some_and(Link::is_reserved);
        put(place, c_int::from(reserved));
        Ok(code::OK)
    })
}

extern "C" fn file_control(slot: &mut Slot, which: c_int, argument: *mut c_void) -> c_int {
    on(slot, |open| match which {
        code::FCNTL_PERSIST_WAL => {
            let Some(value) = control::<c_int>(argument) else {
                return Ok(code::MISUSE);
            };
            match *value {
                -1 => *value = c_int::from(open.keeps_wal),
                other => open.keeps_wal = other != 0,
            }
            Ok(code::OK)
        }
        code::FCNTL_VFSNAME => {
            if let Some(value) = control::<*mut c_char>(argument) {
                *value = api::text_of_sqlite(NAME);
            }
            Ok(code::OK)
        }
        code::FCNTL_HAS_MOVED => {
            let there = open.used.mounted.session.symlink_metadata(&open.path);
            let same = there.is_ok_and(|there| there.ino() == open.file.ino());
            if let Some(value) = control::<c_int>(argument) {
                *value = c_int::from(!same);
            }
            Ok(code::OK)
        }
        _ => Ok(code::NOTFOUND),
    })
}

extern "C" fn sector_size(_slot: &mut Slot) -> c_int {
    BLOCK_BYTES
}

/// What SQLite may rely on in a power cut. In docs/design/durability.md, contract 2: *of buffered
/// writes each 4 KiB page is old or new, never a mixture; a size is never there without the pages
/// that make it up.* (Volumes that promise less are refused, in `crate::volumes`.)
///
/// * `POWERSAFE_OVERWRITE`: the other bytes of a page are the same in an old page and a new
///   one. So SQLite takes no neighbours of a page into the journal.
/// * `ATOMIC512` to `ATOMIC4K`: what lies in one page is old or new.
///
/// Not said: `SAFE_APPEND`, although the content of a file is there before its size: SQLite then
/// believes a journal to its end, also where it writes over an old one (PERSIST, or exclusive
/// locking), whose pages may be old or new each for itself; `ATOMIC8K` and more and `BATCH_ATOMIC`, since pages of one file become durable each for
/// itself; `SEQUENTIAL`, since they do so in any order; `UNDELETABLE_WHEN_OPEN`, since names can be
/// removed.
pub(crate) const CHARACTERISTICS: c_int = code::IOCAP_POWERSAFE_OVERWRITE
    | code::IOCAP_ATOMIC512
    | code::IOCAP_ATOMIC1K
    | code::IOCAP_ATOMIC2K
    | code::IOCAP_ATOMIC4K;

extern "C" fn device_characteristics(_slot: &mut Slot) -> c_int {
    CHARACTERISTICS
}

extern "C" fn shm_map(
    slot: &mut Slot,
    number: c_int,
    bytes: c_int,
    make: c_int,
    place: Place<'_, *mut c_void>,
) -> c_int {
    on(slot, |open| {
        let wrong = || Failure::new(code::IOERR_SHMMAP, "no part of a WAL index".to_owned());
        let number = usize::try_from(number).map_err(|_| wrong())?;
        let bytes = usize::try_from(bytes).map_err(|_| wrong())?;
        let link = open.link.as_mut().ok_or_else(wrong)?;
        let part = link.map(number, bytes, make != 0);
        put(place, part.unwrap_or(std::ptr::null_mut()));
        Ok(code::OK)
    })
}

extern "C" fn shm_lock(slot: &mut Slot, first: c_int, count: c_int, flags: c_int) -> c_int {
    on(slot, |open| {
        let range = usize::try_from(first).ok().zip(usize::try_from(count).ok());
        let range = range.map(|(first, count)| first..first + count);
        let (Some(range), Some(link)) = (range, &mut open.link) else {
            return Ok(code::MISUSE);
        };
        Ok(match link.lock_index(range, flags) {
            true => code::OK,
            false => code::BUSY,
        })
    })
}

extern "C" fn shm_barrier(_slot: &mut Slot) {
    barrier();
}

extern "C" fn shm_unmap(slot: &mut Slot, _delete: c_int) -> c_int {
    on(slot, |open| {
        if let Some(link) = &mut open.link {
            link.unmap();
        }
        Ok(code::OK)
    })
}

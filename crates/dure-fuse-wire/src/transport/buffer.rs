//! The memory of a worker: one buffer that requests are read into, one that replies are built in.
//!
//! **Problem.** Data must be neither copied nor moved: what a WRITE carries should begin at a page,
//! and so should the reply to a READ. **Structure.** Both buffers begin a header before a page
//! boundary. A reply is built behind room for its header, so that one write(2) of one piece sends
//! it. **Invariants.** A reply never grows beyond its room; its header is written last.
//! **Crash.** Nothing is kept.

use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use zerocopy::{Immutable, IntoBytes};

use crate::protocol::reply::{Dirent, OutHeader};
use crate::protocol::request::{InHeader, WriteIn};
use crate::service::Errno;

/// Largest READ and WRITE.
pub const IO_BYTES: usize = 1 << 20;

/// Largest READ and WRITE for a server with a cache of so many bytes: each of its threads may have
/// one of either in memory.
#[must_use]
pub fn io_bytes(cache_bytes: u64) -> usize {
    let afforded = usize::try_from(cache_bytes / 64).unwrap_or(IO_BYTES);
    (afforded / PAGE * PAGE).clamp(IO_BYTES / 8, IO_BYTES)
}

pub(super) const PAGE: usize = 4096;
/// Where requests begin: the data of a WRITE then begin at a page.
const REQUEST_AT: usize = PAGE - size_of::<InHeader>() - size_of::<WriteIn>();
/// Where replies begin: what follows the header then begins at a page.
const REPLY_AT: usize = PAGE - size_of::<OutHeader>();

// Records in a request are read where they lie.
const _: () = assert!(REQUEST_AT.is_multiple_of(8));

/// Bytes of a buffer.
const BYTES: usize = PAGE + IO_BYTES;

/// A mapping of the buffer's own: zeroes that take no memory before they are used, and can be
/// released after use. The allocator would hand out memory that was used before, and clear all of
/// it: two megabytes for each thread.
pub(super) struct Pages(NonNull<u8>);

// SAFETY: it owns plain bytes.
unsafe impl Send for Pages {}

impl Pages {
    fn new() -> Pages {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice changes no memory in use.
        let mapped =
            unsafe { mmap_anonymous(std::ptr::null_mut(), BYTES, access, MapFlags::PRIVATE) };
        let memory = mapped.expect("a megabyte of address space for a worker");
        Pages(NonNull::new(memory.cast()).expect("no mapping is at 0"))
    }

    /// Returns the memory; the bytes read as zeroes again.
    fn release(&mut self) {
        let at = self.0.as_ptr().cast();
        // SAFETY: the mapping is this buffer's, and no reference to its bytes exists.
        let released = unsafe { madvise(at, BYTES, Advice::LinuxDontNeed) };
        debug_assert!(
            released.is_ok(),
            "madvise on a mapped buffer failed: {released:?}"
        );
    }

    /// Where it lies, for the kernel.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.0
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has so many bytes and lives as long as this.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), BYTES) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), BYTES) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is this buffer's, and is not used after the drop.
        let unmapped = unsafe { munmap(self.0.as_ptr().cast(), BYTES) };
        debug_assert!(
            unmapped.is_ok(),
            "munmap of a mapped buffer failed: {unmapped:?}"
        );
    }
}

/// What a request is read into.
pub struct RequestBuffer {
    pages: Pages,
}

impl RequestBuffer {
    /// An empty one.
    #[must_use]
    pub fn new() -> RequestBuffer {
        RequestBuffer {
            pages: Pages::new(),
        }
    }

    /// Returns the memory until it is needed again.
    pub fn release(&mut self) {
        self.pages.release();
    }

    /// All of it, to be filled from the start.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.pages.bytes_mut()[REQUEST_AT..]
    }

    /// The first `len` bytes.
    #[must_use]
    pub fn filled(&self, len: usize) -> &[u8] {
        &self.pages.bytes()[REQUEST_AT..REQUEST_AT + len]
    }
}

impl Default for RequestBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for RequestBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestBuffer").finish_non_exhaustive()
    }
}

/// A reply that is being built.
pub struct Reply {
    pages: Pages,
    /// Bytes behind the header.
    len: usize,
}

impl Reply {
    /// An empty one.
    #[must_use]
    pub fn new() -> Reply {
        Reply {
            pages: Pages::new(),
            len: 0,
        }
    }

    /// Returns the memory until it is needed again.
    pub fn release(&mut self) {
        assert!(self.is_empty(), "the last reply was finished");
        self.pages.release();
    }

    /// Its memory: a page, then what is put.
    pub(super) fn pages(&mut self) -> &mut Pages {
        &mut self.pages
    }

    /// Bytes put so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was put.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes back everything beyond the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Appends a record.
    ///
    /// # Panics
    /// If there is no room: the caller bounds what it puts.
    pub fn put<T: IntoBytes + Immutable>(&mut self, record: &T) {
        self.put_bytes(record.as_bytes());
    }

    /// Appends bytes.
    ///
    /// # Panics
    /// If there is no room: the caller bounds what it puts.
    pub fn put_bytes(&mut self, bytes: &[u8]) {
        let at = self.len;
        self.body()[at..at + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Appends what `fill` writes into `want` bytes, of which it says how many count.
    ///
    /// # Errors
    /// Those of `fill`; EIO if there is no room for so many.
    pub fn fill(
        &mut self,
        want: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<(), Errno> {
        let at = self.len;
        let end = at.checked_add(want).ok_or(libc::EIO)?;
        let room = self.body().get_mut(at..end).ok_or(libc::EIO)?;
        let got = fill(room)?;
        assert!(got <= want, "{got} of {want} bytes were filled");
        self.len = at + got;
        Ok(())
    }

    /// Appends an entry of a directory, behind `before`, if both fit into the first `limit` bytes;
    /// says whether they did.
    pub fn put_name<T: IntoBytes + Immutable>(
        &mut self,
        limit: usize,
        before: &T,
        dirent: Dirent,
        name: &[u8],
    ) -> bool {
        const UNIT: usize = 8;
        if self.len + name_bytes::<T>(name) > limit.min(IO_BYTES) {
            return false;
        }
        self.put(before);
        self.put(&dirent);
        self.put_bytes(name);
        let fill = name.len().next_multiple_of(UNIT) - name.len();
        self.put_bytes(&[0; UNIT][..fill]);
        true
    }

    /// The finished reply to request `unique`; with an error it carries nothing else.
    pub fn finish(&mut self, unique: u64, answer: Result<(), Errno>) -> &[u8] {
        let error = match answer {
            Ok(()) => 0,
            Err(errno) => {
                assert!(errno > 0, "an error has a number");
                self.len = 0;
                -errno
            }
        };
        let all = size_of::<OutHeader>() + self.len;
        let header = OutHeader {
            len: u32::try_from(all).expect("a reply is a megabyte at most"),
            error,
            unique,
        };
        self.len = 0;
        let bytes = self.pages.bytes_mut();
        bytes[REPLY_AT..PAGE].copy_from_slice(header.as_bytes());
        &bytes[REPLY_AT..REPLY_AT + all]
    }

    fn body(&mut self) -> &mut [u8] {
        &mut self.pages.bytes_mut()[PAGE..]
    }
}

/// What an entry of a directory takes behind a `T`.
#[must_use]
pub fn name_bytes<T>(name: &[u8]) -> usize {
    size_of::<T>() + size_of::<Dirent>() + name.len().next_multiple_of(8)
}

impl Default for Reply {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

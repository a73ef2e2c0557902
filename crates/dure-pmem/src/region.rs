//! A region: loads, stores, write-backs and fences, by offset.

use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use dure_sync::{Arc, persistent};

use crate::access::{self, Faulted};
use crate::instructions::{self, WriteBack};
use crate::mapping::{Access, Mapping, Medium, Need};
use crate::persist::{Dirty, Flushed, Persisted};
use crate::record::{Observer, Recorder};
use crate::{Error, Result, WORD_BYTES};

/// A piece of persistent memory, or of what stands for it.
///
/// Any number of threads may use it at once. Accesses that overlap give a mixture, as on a device;
/// aligned words of 8 bytes are whole.
#[derive(Debug)]
pub struct Region {
    mapping: Mapping,
    write_back: WriteBack,
    /// Is told what is done to it, for crash tests.
    observer: Option<Box<dyn Observer>>,
}

impl Region {
    /// Maps the first `bytes` bytes of `file`, which may be closed then.
    ///
    /// # Errors
    /// [`Error::NotDirect`] if `need` is direct and the file cannot be; that of the system.
    pub fn map(file: BorrowedFd<'_>, bytes: u64, access: Access, need: Need) -> Result<Region> {
        let bytes = usize::try_from(bytes).map_err(|_| Error::Map { errno: libc::EFBIG })?;
        Region::of(Mapping::of_file(file, bytes, access, need)?)
    }

    /// Emulated NVM in memory, zeroes, gone with the region.
    ///
    /// # Errors
    /// That of the system.
    pub fn anonymous(bytes: usize) -> Result<Region> {
        Region::of(Mapping::anonymous(bytes)?)
    }

    /// Emulated NVM that holds `content` and records all that is done to it.
    ///
    /// # Errors
    /// That of the system.
    pub fn recording(content: &[u8]) -> Result<(Region, Arc<Recorder>)> {
        let recorder = Arc::new(Recorder::new(content));
        let mut region = Region::anonymous(content.len())?;
        region.copy(0, content)?.fence();
        region.observe(Box::new(Arc::clone(&recorder)));
        Ok((region, recorder))
    }

    /// From now on `observer` is told all that is done to it.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observer = Some(observer);
    }

    fn of(mapping: Mapping) -> Result<Region> {
        access::catch_faults()?;
        Ok(Region {
            mapping,
            write_back: WriteBack::best(),
            observer: None,
        })
    }

    /// Its length in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> u64 {
        u64::try_from(self.mapping.bytes()).expect("a usize fits in 64 bits")
    }

    /// Where it is in memory.
    #[must_use]
    pub fn addresses(&self) -> Range<usize> {
        let first = self.mapping.address(0).addr();
        first..first + self.mapping.bytes()
    }

    /// What it is on.
    #[must_use]
    pub fn medium(&self) -> Medium {
        self.mapping.medium
    }

    /// The instruction by which lines are written back.
    #[must_use]
    pub fn instruction(&self) -> WriteBack {
        self.write_back
    }

    /// Fills `out` with the bytes from `at` on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Poison`].
    pub fn read(&self, at: u64, out: &mut [u8]) -> Result<()> {
        let range = self.range(at, out.len())?;
        let from = self.mapping.address(range.start);
        persistent::before_read(from.addr(), out.len());
        // SAFETY: the range is within the mapping; `out` is a borrowed slice apart from it.
        let read = unsafe { access::copy(out.as_mut_ptr(), from, out.len()) };
        self.whole(read, &range)
    }

    /// Stores `bytes` from `at` on, through the cache.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], and as [`Region::read`]; a part may have been stored.
    pub fn store(&self, at: u64, bytes: &[u8]) -> Result<Dirty<'_>> {
        let range = self.writable(at, bytes.len())?;
        let to = self.mapping.address(range.start);
        if let Some(observer) = &self.observer {
            observer.stored(range.start, bytes);
        }
        persistent::before_write(to.addr(), bytes.len());
        // SAFETY: the range is within the mapping; `bytes` is a borrowed slice apart from it.
        let stored = unsafe { access::copy(to, bytes.as_ptr(), bytes.len()) };
        self.whole(stored, &range)?;
        Ok(Dirty {
            region: self,
            bytes: range,
            here: PhantomData,
        })
    }

    /// Copies `bytes` to `at` past the cache; what is not whole words goes through it and is
    /// written back. For pages and records: it costs a third of [`Region::store`] and write-back.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], and as [`Region::read`]; a part may have been stored.
    pub fn copy(&self, at: u64, bytes: &[u8]) -> Result<Flushed<'_>> {
        let range = self.writable(at, bytes.len())?;
        let head = range.start.next_multiple_of(WORD_BYTES).min(range.end) - range.start;
        let words = (bytes.len() - head) / WORD_BYTES;
        let tail = head + words * WORD_BYTES;
        for part in [0..head, tail..bytes.len()] {
            if !part.is_empty() {
                let at = at + u64::try_from(part.start).expect("a usize fits in 64 bits");
                let _ = self.store(at, &bytes[part])?.write_back();
            }
        }
        if words > 0 {
            let (to, from) = (range.start + head, &bytes[head..tail]);
            if let Some(observer) = &self.observer {
                observer.streamed(to, from);
            }
            let to = self.mapping.address(to);
            persistent::before_write(to.addr(), from.len());
            // SAFETY: the range is within the mapping; `bytes` is a borrowed slice apart from it.
            let streamed = unsafe { access::stream(to, from.as_ptr(), words) };
            self.whole(streamed, &range)?;
        }
        Ok(Flushed {
            region: self,
            here: PhantomData,
        })
    }

    /// Stores a word that leads to what `after` has made durable.
    ///
    /// # Errors
    /// Those of [`Region::read`].
    ///
    /// # Panics
    /// If `at` is no multiple of 8: such a word could be torn.
    pub fn publish(&self, at: u64, word: u64, after: Persisted<'_>) -> Result<Dirty<'_>> {
        assert!(at.is_multiple_of(8), "a word at {at} could be torn");
        let Persisted(_) = after;
        self.store(at, &word.to_le_bytes())
    }

    pub(crate) fn write_back(&self, bytes: Range<usize>) {
        if let Some(observer) = &self.observer {
            observer.written_back(&bytes);
        }
        let from = self.mapping.address(bytes.start);
        // SAFETY: the range was checked when it was stored.
        unsafe { instructions::write_back(self.write_back, from, bytes.len()) }
    }

    pub(crate) fn fence(&self) {
        instructions::fence();
        if let Some(observer) = &self.observer {
            observer.fenced();
        }
    }

    fn writable(&self, at: u64, bytes: usize) -> Result<Range<usize>> {
        match self.mapping.access {
            Access::ReadWrite => self.range(at, bytes),
            Access::Read => Err(Error::ReadOnly),
        }
    }

    fn range(&self, at: u64, bytes: usize) -> Result<Range<usize>> {
        let start = usize::try_from(at).ok();
        let end = start.and_then(|start| start.checked_add(bytes));
        match (start, end) {
            (Some(start), Some(end)) if end <= self.mapping.bytes() => Ok(start..end),
            _ => Err(Error::OutOfRange {
                at,
                bytes: u64::try_from(bytes).expect("a usize fits in 64 bits"),
                region_bytes: self.len(),
            }),
        }
    }

    fn whole(
        &self,
        accessed: std::result::Result<(), Faulted>,
        range: &Range<usize>,
    ) -> Result<()> {
        let number = |value: usize| u64::try_from(value).expect("a usize fits in 64 bits");
        accessed.map_err(|Faulted| Error::Poison {
            at: number(range.start),
            bytes: number(range.len()),
        })
    }
}

//! Sparse memory of a disk that is gone with the process.
//!
//! **Problem.** A disk in memory must take memory for what is written only, and any thread may read
//! and write any block of it, without a lock that cores share. **Structure.** One anonymous mapping:
//! the kernel finds a page by the processor's own tables, makes it when it is first written, and
//! takes it back when it is zeroed. **Invariants.** As of a [`crate::Region`]: copies that overlap
//! give a mixture. **On a crash** nothing of it remains.

use std::arch::asm;
use std::ops::Range;

use rustix::mm::{Advice, madvise};

use crate::mapping::Mapping;
use crate::{Result, access};

const PAGE_BYTES: usize = 4096;

/// Memory of zeroes that any number of threads may use at once.
#[derive(Debug)]
pub struct Memory {
    mapping: Mapping,
}

impl Memory {
    /// `bytes` zeroes, which take no memory yet.
    ///
    /// # Errors
    /// That of the system: so many addresses are not free, or not allowed.
    pub fn new(bytes: usize) -> Result<Memory> {
        let mapping = Mapping::anonymous(bytes)?;
        Ok(Memory { mapping })
    }

    /// Fills `out` with the bytes from `at` on.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn read(&self, at: usize, out: &mut [u8]) {
        let from = self.address(&(at..at + out.len()));
        // SAFETY: the range is within the mapping; `out` is a borrowed slice apart from it.
        let read = unsafe { access::copy(out.as_mut_ptr(), from, out.len()) };
        read.expect("nobody makes this memory shorter");
    }

    /// The byte at `at`.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn byte(&self, at: usize) -> u8 {
        let from = self.address(&(at..at + 1));
        let byte: u8;
        // JUSTIFICATION: a copy of one byte takes 10 ns; and as in `access`, an instruction is no
        // data race with copies by others.
        // SAFETY: the byte is within the mapping.
        unsafe {
            asm!("mov {0}, [{1}]", out(reg_byte) byte, in(reg) from, options(nostack, preserves_flags, readonly));
        }
        byte
    }

    /// Stores `bytes` from `at` on.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn store(&self, at: usize, bytes: &[u8]) {
        let to = self.address(&(at..at + bytes.len()));
        // SAFETY: the range is within the mapping; `bytes` is a borrowed slice apart from it.
        let stored = unsafe { access::copy(to, bytes.as_ptr(), bytes.len()) };
        stored.expect("nobody makes this memory shorter");
    }

    /// Makes bytes zeroes; whole pages take no memory then.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn zero(&self, bytes: Range<usize>) {
        let base = self.address(&bytes);
        let head = bytes.start.next_multiple_of(PAGE_BYTES).min(bytes.end);
        let tail = (bytes.end / PAGE_BYTES * PAGE_BYTES).max(head);
        if head < tail {
            let first = base.wrapping_add(head - bytes.start).cast();
            // SAFETY: the pages are within the mapping, which is never borrowed.
            let freed = unsafe { madvise(first, tail - head, Advice::LinuxDontNeed) };
            freed.expect("pages of our own that are not locked can be given back");
        }
        for part in [bytes.start..head, tail..bytes.end] {
            self.store(part.start, &[0; PAGE_BYTES][..part.len()]);
        }
    }

    fn address(&self, bytes: &Range<usize>) -> *mut u8 {
        let end = self.mapping.bytes();
        assert!(
            bytes.start <= bytes.end && bytes.end <= end,
            "{bytes:?} of {end} bytes"
        );
        self.mapping.address(bytes.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory that the process has, in pages.
    fn resident_pages() -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn what_is_zeroed_takes_no_memory() {
        const BYTES: usize = 64 << 20;
        let memory = Memory::new(1 << 40).unwrap();
        memory.store(5000, &vec![7; BYTES]);
        let before = resident_pages();
        memory.zero(5000..5000 + BYTES);
        let freed = before.saturating_sub(resident_pages());
        assert!(freed > BYTES / PAGE_BYTES / 2, "{freed} pages");
    }

    #[test]
    fn zeroes_end_where_they_should() {
        let memory = Memory::new(5 << 12).unwrap();
        let mut expected = vec![1; 5 << 12];
        for range in [
            0..1,
            4095..4096,
            4096..8192,
            8191..16385,
            20479..20480,
            9..9,
        ] {
            memory.store(0, &vec![1; 5 << 12]);
            expected.fill(1);
            memory.zero(range.clone());
            expected[range.clone()].fill(0);
            let mut out = vec![9; 5 << 12];
            memory.read(0, &mut out);
            assert_eq!(out, expected, "{range:?}");
        }
    }

    #[test]
    #[should_panic(expected = "4095..4097 of 4096 bytes")]
    fn what_is_outside_is_refused() {
        Memory::new(4096).unwrap().store(4095, &[1, 2]);
    }
}

//! What a write writes.

use dure_store::units::BLOCK_BYTES;

use super::super::page::Page;

/// Whether others may read a page while it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::file::cached) enum Readers {
    Concurrent,
    None,
}

/// What a write puts there.
#[derive(Clone, Copy, Debug)]
pub(in crate::file::cached) enum Source<'a> {
    Bytes(&'a [u8]),
    /// So many zeroes.
    Zeroes(usize),
}

impl Source<'_> {
    pub(in crate::file::cached) fn len(&self) -> usize {
        match self {
            Source::Bytes(bytes) => bytes.len(),
            Source::Zeroes(len) => *len,
        }
    }

    pub(super) fn part(&self, from: usize, len: usize) -> Source<'_> {
        match self {
            Source::Bytes(bytes) => Source::Bytes(&bytes[from..from + len]),
            Source::Zeroes(_) => Source::Zeroes(len),
        }
    }

    /// Fills memory with what is from `from` on.
    pub(in crate::file::cached) fn fill(&self, from: usize, out: &mut [u8]) {
        match self {
            Source::Bytes(bytes) => out.copy_from_slice(&bytes[from..from + out.len()]),
            Source::Zeroes(_) => out.fill(0),
        }
    }

    /// Copies `len` bytes from `from` on into a page, from its byte `within` on.
    #[inline]
    pub(in crate::file::cached) fn copy_to(
        &self,
        from: usize,
        page: &Page,
        within: usize,
        len: usize,
        readers: Readers,
    ) {
        let bytes = match self {
            Source::Bytes(bytes) => &bytes[from..from + len],
            Source::Zeroes(_) => &[0; BLOCK_BYTES][..len],
        };
        match readers {
            Readers::None => page.store(within, bytes),
            Readers::Concurrent => page.store_versioned(within, bytes),
        }
    }
}

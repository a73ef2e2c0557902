//! A plain copy of 4 KiB between two private buffers: the floor of every read and write, and what a
//! second thread gains on this machine.

use std::hint::black_box;

use anyhow::Result;

use super::workload::{FILE_BYTES, IO_BYTES};
use crate::measure::Worker;

/// Which way it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Into one page of a megabyte after the other, as a write.
    In,
    /// Out of them, as a read.
    Out,
}

/// Copies between a page and one page of a megabyte after the other.
pub(super) struct Copier {
    direction: Direction,
    file: Vec<u8>,
    buffer: Vec<u8>,
    page: usize,
}

impl Copier {
    pub(super) fn new(direction: Direction) -> Copier {
        let bytes = usize::try_from(FILE_BYTES).expect("a megabyte");
        Copier {
            direction,
            file: vec![1; bytes],
            buffer: vec![2; IO_BYTES],
            page: 0,
        }
    }
}

impl Worker for Copier {
    fn operate(&mut self) -> Result<Option<u64>> {
        let from = self.page * IO_BYTES;
        self.page = (self.page + 1) % (self.file.len() / IO_BYTES);
        let page = &mut self.file[from..from + IO_BYTES];
        match self.direction {
            Direction::In => page.copy_from_slice(black_box(&self.buffer)),
            Direction::Out => self.buffer.copy_from_slice(black_box(page)),
        }
        black_box((&mut self.file, &mut self.buffer));
        Ok(Some(1))
    }
}

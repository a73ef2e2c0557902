//! A plain copy of 4 KiB between two private buffers: the floor of every read and write, and what a
//! second thread gains on this machine.

use std::hint::black_box;

use anyhow::Result;
use dure_block::BlockBuf;

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
    file: BlockBuf,
    buffer: BlockBuf,
    page: usize,
}

impl Copier {
    pub(super) fn new(direction: Direction) -> Copier {
        let pages =
            usize::try_from(FILE_BYTES).expect("the size of the file fits in memory") / IO_BYTES;
        Copier {
            direction,
            file: BlockBuf::from_slice(&vec![1; pages * IO_BYTES]),
            buffer: BlockBuf::from_slice(&[2; IO_BYTES]),
            page: 0,
        }
    }
}

impl Worker for Copier {
    fn operate(&mut self) -> Result<Option<u64>> {
        let from = self.page * IO_BYTES;
        self.page = (self.page + 1) % (self.file.blocks());
        let page = &mut self.file.as_mut_slice()[from..from + IO_BYTES];
        match self.direction {
            Direction::In => page.copy_from_slice(black_box(self.buffer.as_slice())),
            Direction::Out => self.buffer.as_mut_slice().copy_from_slice(black_box(page)),
        }
        black_box((&mut self.file, &mut self.buffer));
        Ok(Some(1))
    }
}

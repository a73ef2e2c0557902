//! A plain copy of 4 KiB between two private buffers: the floor of every read and write, and what a
//! second thread gains on this machine.

use std::hint::black_box;

use anyhow::Result;

use super::Worker;
use crate::workload::{FILE_BYTES, IO_BYTES};

pub(super) struct Copier {
    file: Vec<u8>,
    buffer: Vec<u8>,
}

impl Copier {
    pub(super) fn new() -> Copier {
        let bytes = usize::try_from(FILE_BYTES).expect("a megabyte");
        Copier {
            file: vec![1; bytes],
            buffer: vec![2; IO_BYTES],
        }
    }
}

impl Worker for Copier {
    fn operate(&mut self, turn: u64) -> Result<()> {
        let page = usize::try_from(turn).expect("64 bits") * IO_BYTES % self.file.len();
        self.file[page..page + IO_BYTES].copy_from_slice(black_box(&self.buffer));
        black_box(&mut self.file);
        Ok(())
    }
}

//! DWAL and DWTL: the end of a private file goes up, or down.

use anyhow::{Result, ensure};
use dure_block::BlockBuf;

use super::data::BLOCK;
use super::seat::Seat;
use crate::measure::Worker;
use crate::micro::content;
use crate::target::{How, OpenFile, Tree, is_full};

/// A private file, and how many blocks it must have.
pub(super) struct Tail {
    tree: Tree,
    file: OpenFile,
    buffer: BlockBuf,
    seat: Seat,
    blocks: u64,
    blocks_max: u64,
}

impl Tail {
    pub(super) fn new(tree: &Tree, name: &str, seat: Seat) -> Result<Tail> {
        let path = tree.path(&format!("{name}-{}.dat", seat.number));
        Ok(Tail {
            tree: tree.clone(),
            file: tree.open_for(&path, How::CreateNew, seat.io)?,
            buffer: BlockBuf::from_slice(&content(seat.number)),
            seat,
            blocks: 0,
            blocks_max: 0,
        })
    }

    fn empty(&mut self) -> Result<()> {
        self.file.set_len(0)?;
        self.file.seek(0)?;
        self.blocks = 0;
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let (found, want) = (self.file.len()?, self.blocks * BLOCK);
        ensure!(found == want, "{found} bytes are there, not {want}");
        Ok(())
    }
}

/// DWAL.
pub(super) struct Appender(pub(super) Tail);

impl Worker for Appender {
    fn prepare(&mut self) -> Result<()> {
        let tail = &mut self.0;
        tail.empty()?;
        tail.blocks_max = tail.seat.blocks_max(&tail.tree)?;
        ensure!(tail.blocks_max >= 16, "no room to append to a file");
        Ok(())
    }

    /// Begins again before it has used an eighth of its room.
    fn warm(&mut self) -> Result<Option<u64>> {
        if self.0.blocks >= self.0.blocks_max / 8 {
            self.0.empty()?;
        }
        self.operate()
    }

    #[inline]
    fn operate(&mut self) -> Result<Option<u64>> {
        let tail = &mut self.0;
        if tail.blocks == tail.blocks_max {
            return Ok(None);
        }
        tail.file.write(tail.buffer.as_slice())?;
        tail.blocks += 1;
        Ok(Some(1))
    }

    fn batch(&self) -> u64 {
        16
    }

    fn check(&mut self) -> Result<()> {
        ensure!(self.0.blocks > 0, "nothing was appended");
        self.0.check()
    }
}

/// DWTL.
pub(super) struct Truncater(pub(super) Tail);

impl Worker for Truncater {
    /// Up to the bound, not to the last block of the device as the original.
    fn prepare(&mut self) -> Result<()> {
        let tail = &mut self.0;
        let room = tail.blocks + tail.seat.blocks_max(&tail.tree)?;
        let most = tail.seat.fill.min(room);
        while tail.blocks < most {
            let end = tail.blocks * BLOCK;
            match tail.file.write_at(tail.buffer.as_slice(), end) {
                Ok(()) => tail.blocks += 1,
                Err(error) if is_full(&error) => break,
                Err(error) => return Err(error),
            }
        }
        ensure!(tail.blocks > 0, "no room for a file to truncate");
        Ok(())
    }

    /// Appends a block, and cuts it off again.
    fn warm(&mut self) -> Result<Option<u64>> {
        let tail = &self.0;
        let end = tail.blocks * BLOCK;
        tail.file.write_at(tail.buffer.as_slice(), end)?;
        tail.file.set_len(end)?;
        Ok(Some(1))
    }

    #[inline]
    fn operate(&mut self) -> Result<Option<u64>> {
        let tail = &mut self.0;
        if tail.blocks == 0 {
            return Ok(None);
        }
        tail.blocks -= 1;
        tail.file.set_len(tail.blocks * BLOCK)?;
        Ok(Some(1))
    }

    fn batch(&self) -> u64 {
        8
    }

    fn check(&mut self) -> Result<()> {
        self.0.check()
    }
}

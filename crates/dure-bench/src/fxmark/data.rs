//! The data workloads that stay at their block: it is read, overwritten, synced.

use anyhow::{Result, ensure};
use dure_block::BlockBuf;
use dure_sync::random::Seeded;

use super::seat::Seat;
use super::tail::{Appender, Tail, Truncater};
use super::workload::Workload;
use crate::interrupt;
use crate::measure::Worker;
use crate::micro::content;
use crate::target::{How, OpenFile, Tree};

pub(super) const BLOCK: u64 = 4096;
/// Bytes between the blocks of two workers in a shared file.
pub(super) const REGION: u64 = 8 << 20;

pub(super) fn make(tree: &Tree, workload: Workload, seat: Seat) -> Result<Box<dyn Worker>> {
    Ok(match workload {
        Workload::Drbl | Workload::DrblBg => {
            let act = if seat.is_background() {
                Act::Write
            } else {
                Act::Read
            };
            Box::new(private(tree, "n_file_rd.dat", seat, act)?)
        }
        Workload::Dwol => Box::new(private(tree, "n_blk_wrt.dat", seat, Act::Write)?),
        Workload::Dwsl => Box::new(private(tree, "n_jnl_cmt.dat", seat, Act::WriteSync)?),
        Workload::Drbm | Workload::DrbmBg => Box::new(own_region(tree, seat)?),
        Workload::Drbh | Workload::DrbhBg => Box::new(one_block(tree, seat)?),
        Workload::Dwom => Box::new(shared(tree, seat, &[Act::Write])?),
        Workload::Dwom75 => Box::new(shared(tree, seat, &MOSTLY_WRITES)?),
        Workload::Dwom25 => Box::new(shared(tree, seat, &MOSTLY_READS)?),
        Workload::Dwal => Box::new(Appender(Tail::new(tree, "n_blk_alloc", seat)?)),
        _ => Box::new(Truncater(Tail::new(tree, "u_file_tr", seat)?)),
    })
}

/// DWOM75.
pub(super) const MOSTLY_WRITES: [Act; 4] = [Act::Write, Act::Write, Act::Write, Act::ReadOther];
/// DWOM25.
pub(super) const MOSTLY_READS: [Act; 4] =
    [Act::Write, Act::ReadOther, Act::ReadOther, Act::ReadOther];

/// What is done with a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Read,
    /// The block of any worker.
    ReadOther,
    Write,
    /// The block of any worker.
    WriteOther,
    WriteSync,
}

/// A worker that stays at its block.
struct Block {
    file: OpenFile,
    offset: u64,
    buffer: BlockBuf,
    /// What it reads, apart from what it writes.
    read: BlockBuf,
    /// The acts, done in turn.
    turns: Vec<Act>,
    turn: usize,
    seat: Seat,
    random: Seeded,
    reads: u64,
    writes: u64,
}

fn block(file: OpenFile, offset: u64, seat: Seat, turns: &[Act]) -> Block {
    Block {
        file,
        offset,
        buffer: BlockBuf::from_slice(&content(seat.number + 1)),
        read: BlockBuf::zeroed(1),
        turns: turns.to_vec(),
        turn: 0,
        seat,
        random: Seeded::new(seat.id()),
        reads: 0,
        writes: 0,
    }
}

/// The content before anything is overwritten.
fn old() -> BlockBuf {
    BlockBuf::from_slice(&content(0))
}

fn private(tree: &Tree, name: &str, seat: Seat, act: Act) -> Result<Block> {
    let own = seat.private(tree)?;
    let file = own.open_for(&own.path(name), How::Create, seat.io)?;
    file.write_at(old().as_slice(), 0)?;
    file.sync()?;
    Ok(block(file, 0, seat, &[act]))
}

/// DRBM: every worker fills a region, and reads the first block of it; one in the background
/// overwrites these blocks.
fn own_region(tree: &Tree, seat: Seat) -> Result<Block> {
    let file = tree.open_for(&tree.path("n_shfile_rd.dat"), How::Create, seat.io)?;
    if seat.is_background() {
        return Ok(block(file, 0, seat, &[Act::WriteOther]));
    }
    let start = seat.id() * seat.region;
    fill(&file, start..start + seat.region)?;
    Ok(block(file, start, seat, &[Act::Read]))
}

/// DRBH: one block for all, which one in the background overwrites.
fn one_block(tree: &Tree, seat: Seat) -> Result<Block> {
    let file = tree.open_for(&tree.path("n_shblk_rd.dat"), How::Create, seat.io)?;
    if seat.is_leader() {
        file.write_at(old().as_slice(), 0)?;
        file.sync()?;
    }
    let act = if seat.is_background() {
        Act::Write
    } else {
        Act::Read
    };
    Ok(block(file, 0, seat, &[act]))
}

/// DWOM and the mixes: the first worker fills the file.
fn shared(tree: &Tree, seat: Seat, turns: &[Act]) -> Result<Block> {
    let file = tree.open_for(&tree.path("n_mtime_upt.dat"), How::Create, seat.io)?;
    if seat.is_leader() {
        let count = u64::try_from(seat.count)?;
        fill(&file, 0..count * seat.region)?;
        file.sync()?;
    }
    Ok(block(
        file,
        seat.id() * seat.region,
        seat,
        share_of(turns, seat),
    ))
}

/// With four workers or more each does one thing, as in pNOVA's measurements; fewer do all in turn.
pub(super) fn share_of(turns: &[Act], seat: Seat) -> &[Act] {
    let own = seat.number % turns.len();
    if seat.count < 4 {
        turns
    } else {
        &turns[own..=own]
    }
}

fn fill(file: &OpenFile, bytes: std::ops::Range<u64>) -> Result<()> {
    let page = old();
    let pages = (bytes.start / BLOCK)..(bytes.end / BLOCK);
    pages.into_iter().try_for_each(|number| {
        interrupt::check()?;
        file.write_at(page.as_slice(), number * BLOCK)
    })
}

impl Block {
    /// The block of a worker picked at random.
    fn other(&mut self) -> u64 {
        let count = u64::try_from(self.seat.count).expect("workers are few");
        self.random.below(count) * self.seat.region
    }

    /// Whether this was there before, or one of the workers wrote it.
    fn is_page(&self, page: &BlockBuf) -> bool {
        // The one in the background writes a content of its own, the last one.
        let mut contents = (0..=self.seat.count + 1).map(content);
        contents.any(|content| page.as_slice() == content)
    }

    #[inline]
    fn read_block(&mut self, offset: u64) -> Result<()> {
        self.reads += 1;
        self.file.read_at(self.read.as_mut_slice(), offset)
    }

    #[inline]
    fn write_block(&mut self, offset: u64) -> Result<()> {
        self.writes += 1;
        self.file.write_at(self.buffer.as_slice(), offset)
    }
}

impl Worker for Block {
    #[inline]
    fn operate(&mut self) -> Result<Option<u64>> {
        let act = self.turns[self.turn];
        self.turn += 1;
        if self.turn == self.turns.len() {
            self.turn = 0;
        }
        match act {
            Act::Read => self.read_block(self.offset)?,
            Act::ReadOther => {
                let offset = self.other();
                self.read_block(offset)?;
            }
            Act::Write => self.write_block(self.offset)?,
            Act::WriteOther => {
                let offset = self.other();
                self.write_block(offset)?;
            }
            Act::WriteSync => {
                self.write_block(self.offset)?;
                self.file.sync()?;
            }
        }
        Ok(Some(1))
    }

    fn batch(&self) -> u64 {
        if self.turns == [Act::WriteSync] {
            1
        } else {
            64
        }
    }

    /// A written block holds what was written, a read one what some worker wrote, or what had been
    /// there if no worker wrote; there was no other.
    fn check(&mut self) -> Result<()> {
        ensure!(self.reads + self.writes > 0, "nothing was done");
        let mut found = BlockBuf::zeroed(1);
        self.file.read_at(found.as_mut_slice(), self.offset)?;
        let is_own = self.turns != [Act::WriteOther] && self.writes > 0;
        let is_right = if is_own {
            found.as_slice() == self.buffer.as_slice()
        } else {
            self.is_page(&found)
        };
        let offset = self.offset;
        ensure!(is_right, "the block at {offset} is not what was written");
        if self.reads > 0 {
            ensure!(self.is_page(&self.read), "a read gave what nobody wrote");
        }
        Ok(())
    }
}

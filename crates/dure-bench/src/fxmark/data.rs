//! The data workloads that stay at their block: it is read, overwritten, synced.

use anyhow::{Result, ensure};
use dure_block::BlockBuf;
use dure_sync::random::Seeded;

use super::seat::Seat;
use super::tail::{Appender, Tail, Truncater};
use super::workload::Workload;
use crate::measure::Worker;
use crate::micro::content;
use crate::target::{How, OpenFile, Tree};

pub(super) const BLOCK: u64 = 4096;
/// Bytes between the blocks of two workers in a shared file.
const REGION: u64 = 8 << 20;

pub(super) fn make(tree: &Tree, workload: Workload, seat: Seat) -> Result<Box<dyn Worker>> {
    Ok(match workload {
        Workload::Drbl => Box::new(private(tree, "n_file_rd.dat", seat, Act::Read)?),
        Workload::Dwol => Box::new(private(tree, "n_blk_wrt.dat", seat, Act::Write)?),
        Workload::Dwsl => Box::new(private(tree, "n_jnl_cmt.dat", seat, Act::WriteSync)?),
        Workload::Drbm => Box::new(own_region(tree, seat)?),
        Workload::Drbh => Box::new(one_block(tree, seat)?),
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
fn old() -> Vec<u8> {
    content(0)
}

fn private(tree: &Tree, name: &str, seat: Seat, act: Act) -> Result<Block> {
    let own = seat.private(tree)?;
    let file = own.open(&own.path(name), How::Create)?;
    file.write_at(&old(), 0)?;
    file.sync()?;
    Ok(block(file, 0, seat, &[act]))
}

/// DRBM: every worker fills a region, and reads the first block of it.
fn own_region(tree: &Tree, seat: Seat) -> Result<Block> {
    let file = tree.open(&tree.path("n_shfile_rd.dat"), How::Create)?;
    let start = seat.id() * REGION;
    fill(&file, start..start + REGION)?;
    Ok(block(file, start, seat, &[Act::Read]))
}

/// DRBH: one block for all.
fn one_block(tree: &Tree, seat: Seat) -> Result<Block> {
    let file = tree.open(&tree.path("n_shblk_rd.dat"), How::Create)?;
    if seat.is_leader() {
        file.write_at(&old(), 0)?;
        file.sync()?;
    }
    Ok(block(file, 0, seat, &[Act::Read]))
}

/// DWOM and the mixes: the first worker fills the file.
fn shared(tree: &Tree, seat: Seat, turns: &[Act]) -> Result<Block> {
    let file = tree.open(&tree.path("n_mtime_upt.dat"), How::Create)?;
    if seat.is_leader() {
        let count = u64::try_from(seat.count)?;
        fill(&file, 0..count * REGION)?;
        file.sync()?;
    }
    Ok(block(file, seat.id() * REGION, seat, share_of(turns, seat)))
}

/// Of four workers and more each does one thing, as in pNOVA's measurements; fewer do all in turn.
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
    pages
        .into_iter()
        .try_for_each(|number| file.write_at(&page, number * BLOCK))
}

impl Block {
    /// The block of a worker picked at random.
    fn other(&mut self) -> u64 {
        let count = u64::try_from(self.seat.count).expect("workers are few");
        self.random.below(count) * REGION
    }

    #[inline]
    fn read_block(&mut self, offset: u64) -> Result<()> {
        self.reads += 1;
        self.file.read_at(self.read.as_mut_slice(), offset)
    }

    #[inline]
    fn write_block(&mut self) -> Result<()> {
        self.writes += 1;
        self.file.write_at(self.buffer.as_slice(), self.offset)
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
            Act::Write => self.write_block()?,
            Act::WriteSync => {
                self.write_block()?;
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

    /// A written block holds what was written, a read one what had been there; there was no other.
    fn check(&mut self) -> Result<()> {
        let offset = self.offset;
        let mut found = vec![0; 4096];
        self.file.read_at(&mut found, offset)?;
        let want = if self.writes > 0 {
            self.buffer.as_slice().to_vec()
        } else {
            old()
        };
        ensure!(
            found == want,
            "the block at {offset} is not what was written"
        );
        if self.reads > 0 {
            let is_page =
                (0..=self.seat.count).any(|writer| self.read.as_slice() == content(writer));
            ensure!(is_page, "a read gave what nobody wrote");
        }
        ensure!(self.reads + self.writes > 0, "nothing was done");
        Ok(())
    }
}

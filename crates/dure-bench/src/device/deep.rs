//! Reads of one thread, several under way at once.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use dure::Calls;
use dure_block::file::{Direct, Engine, OpenOptions, RingOptions, Sharing, open_file};
use dure_block::{Bio, Lba, Queue, QueueConfig, share};
use dure_sync::Arc;

use crate::target::{How, OpenFile, Tree};

const PAGE_BYTES: usize = 4096;

/// A file to read of, and how many reads are under way.
pub(super) struct Deep {
    depth: usize,
    side: Side,
}

enum Side {
    /// A file of a volume.
    Calls(dure::File),
    /// A file of the host, used as a device, past the kernel's cache.
    Ring(Arc<Queue>),
}

impl Deep {
    pub(super) fn open(tree: &Tree, path: &Path, depth: usize) -> Result<Deep> {
        let side = match tree.open(path, How::Read)? {
            OpenFile::Library(file) => Side::Calls(file),
            OpenFile::System(_) => {
                let options = OpenOptions {
                    read_only: true,
                    sharing: Sharing::Anybody,
                    direct: Direct::Always,
                    engine: Engine::Uring(RingOptions::default()),
                };
                let device = open_file(path, options)?;
                Side::Ring(Queue::new(share(device), QueueConfig::default()))
            }
        };
        Ok(Deep { depth, side })
    }

    /// Reads a page at each of these offsets.
    pub(super) fn read_all(&self, offsets: impl Iterator<Item = u64>) -> Result<()> {
        match &self.side {
            Side::Calls(file) => self.read_by_calls(file, offsets),
            Side::Ring(queue) => self.read_by_ring(queue, offsets),
        }
    }

    fn read_by_calls(&self, file: &dure::File, offsets: impl Iterator<Item = u64>) -> Result<()> {
        let mut calls = Calls::new(self.depth);
        for at in offsets {
            let buf = match calls.len() < self.depth {
                true => vec![0; PAGE_BYTES],
                false => page(calls.reap())?,
            };
            calls.read(file, buf, at, ());
        }
        while !calls.is_empty() {
            page(calls.reap())?;
        }
        Ok(())
    }

    fn read_by_ring(&self, queue: &Queue, offsets: impl Iterator<Item = u64>) -> Result<()> {
        let mut under_way = Vec::with_capacity(self.depth);
        let mut spare = Vec::new();
        for at in offsets {
            while under_way.len() == self.depth {
                reap(queue, &mut under_way, &mut spare)?;
            }
            let buf = spare.pop().unwrap_or_else(|| queue.buffer(1));
            let lba = Lba::new(at / u64::try_from(PAGE_BYTES)?);
            under_way.push(queue.submit(Bio::read(lba, buf))?);
        }
        while !under_way.is_empty() {
            reap(queue, &mut under_way, &mut spare)?;
        }
        Ok(())
    }
}

/// The page of a read that is over.
fn page(done: Option<dure::Done<()>>) -> Result<Vec<u8>> {
    let done = done.context("a call is under way")?;
    ensure!(done.result? == PAGE_BYTES, "a short read");
    Ok(done.buf)
}

/// Waits for at least one read, and takes all that are complete.
fn reap(
    queue: &Queue,
    under_way: &mut Vec<dure_block::Ticket>,
    spare: &mut Vec<dure_block::BlockBuf>,
) -> Result<()> {
    if !under_way.iter().any(dure_block::Ticket::is_done) && queue.wait_any() == 0 {
        // Submitted by another core.
        let oldest = queue.wait(under_way.remove(0));
        spare.extend(oldest.into_segments()?);
        return Ok(());
    }
    let mut at = 0;
    while at < under_way.len() {
        if under_way[at].is_done() {
            let done = queue.wait(under_way.swap_remove(at));
            spare.extend(done.into_segments()?);
        } else {
            at += 1;
        }
    }
    Ok(())
}

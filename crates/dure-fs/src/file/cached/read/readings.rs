//! Reads that are under way while no task waits for them.
//!
//! **Problem.** A task that wants several reads, or knows what will be read next, has other work to
//! do while the device has its own. **Structure.** [`Readings`] are the runs of some pages of a
//! file that are on the device and not in memory, submitted together. Their holder ends them:
//! waits, compares the CRCs, and puts the pages in memory. Then a read finds them there, as if it
//! had never missed.
//!
//! # Invariants
//! They begin with what the slots name at that moment; what counts is found out when they end, as
//! of any read that holds no lock ([`super::miss`]). What cannot be read, or does not count, is
//! dropped; a task that needs it reads it again, and learns why. Credit for the pages is taken when
//! they begin, and goes back when they end or are given up.
//! **On a crash** nothing is lost.

use std::ops::Range;

use dure_block::{BlockBuf, UnderWay};
use dure_store::error::Result;
use dure_store::format::slot::Slot;
use dure_store::units::{BLOCK_BYTES_U64, to_u64};
use dure_sync::Arc;

use super::miss::{Gap, Run};
use crate::file::Files;
use crate::file::bytes::{pages_up_to, split};
use crate::file::cached::cache::Grant;
use crate::file::cached::writeback::BATCH_PAGES;
use crate::file::read::{Begun, ReadMode};
use crate::inode::Inode;

/// Pages that the device is reading.
#[derive(Debug)]
struct Reading {
    first: u64,
    slots: Vec<Slot>,
    request: UnderWay,
}

/// Pages of a file that the device is reading.
#[derive(Debug, Default)]
pub(crate) struct Readings {
    runs: Vec<Reading>,
    /// Bytes that the file had at least.
    size: u64,
    /// Pages for which there is credit.
    credit: u32,
}

/// Pages whose blocks lie side by side: the first, and their slots.
type PageRun = (u64, Vec<Slot>);

impl Files {
    /// [`Body::begin_read`](crate::file::body::Body::begin_read).
    pub(in crate::file) fn begin_cached_read(
        &self,
        inode: &Arc<Inode>,
        (offset, buf): (u64, &mut [u8]),
    ) -> Result<Begun<Readings>> {
        // A range that is held over the call cannot be held between two.
        if self.store.reads_wait() && !self.options.ranges_queue {
            let (len, hit) = self.read_in_memory(inode, offset, buf);
            if hit == len {
                return Ok(Begun::Read(len));
            }
            let (page, _) = split(offset + to_u64(hit));
            let end = pages_up_to(offset + to_u64(len));
            // A reader that has to wait for a window anyway learns of an error at once.
            if self.read_ahead.find(inode.ino, page).is_none() {
                let end = end.max(page + self.read_in_order(inode, page, end - page));
                if let Ok(Some(readings)) = self.begin_readings(inode, page..end) {
                    return Ok(Begun::UnderWay(hit, readings));
                }
            }
        }
        let read = self.read_cached(inode, (offset, buf), ReadMode::Cached)?;
        Ok(Begun::Read(read))
    }

    /// Submits what is on the device of these pages and not in memory. `None`: nothing is, or there
    /// is no memory for it.
    pub(super) fn begin_readings(
        &self,
        inode: &Arc<Inode>,
        pages: Range<u64>,
    ) -> Result<Option<Readings>> {
        let (runs, size) = self.runs_to_read(inode, pages)?;
        let pages: usize = runs.iter().map(|(_, slots)| slots.len()).sum();
        let pages = u32::try_from(pages).expect("a read has few pages");
        let grant = match pages {
            0 => None,
            _ => self.grant_to_read(pages),
        };
        let Some(grant) = grant else {
            return Ok(None);
        };
        let core = grant.core();
        let reads = runs.iter().map(|(_, slots)| {
            // There may be many windows, and in a small cache they are short: then a buffer is no
            // longer than its window.
            let buf = match slots.len() < BATCH_PAGES / 2 {
                true => BlockBuf::zeroed(slots.len()),
                false => self.pages.take_scratch(core, slots.len()),
            };
            (slots[0].block(), buf)
        });
        let requests = self.store.region.begin_reads(reads.collect());
        let runs = runs.into_iter().zip(requests);
        let reading = |((first, slots), request)| Reading {
            first,
            slots,
            request,
        };
        Ok(Some(Readings {
            runs: runs.map(reading).collect(),
            size,
            credit: grant.keep_credit(),
        }))
    }

    /// The runs of these pages that are on the device and not in memory, and the size of the file.
    fn runs_to_read(&self, inode: &Arc<Inode>, pages: Range<u64>) -> Result<(Vec<PageRun>, u64)> {
        let state = inode.state().read();
        let size = inode.size_up_to(&state, pages.end.saturating_mul(BLOCK_BYTES_U64));
        let end = pages.end.min(pages_up_to(size));
        let (mut runs, mut page) = (Vec::new(), pages.start);
        while page < end {
            if state.file().pages.contains(page) {
                page += 1;
                continue;
            }
            match self.gap(inode, &state, size, page..end)? {
                Gap::Zero(pages) => page += pages,
                Gap::Run(mut slots) => {
                    let count = slots.len();
                    // Of a page in the data log its block has something else.
                    slots.truncate(self.store.placement.count_in_place(&slots));
                    if !slots.is_empty() {
                        runs.push((page, slots));
                    }
                    page += to_u64(count);
                }
            }
        }
        Ok((runs, size))
    }

    /// Waits for pages, and puts in memory what counts of them.
    pub(crate) fn end_readings(&self, inode: &Arc<Inode>, readings: Readings) {
        let mut grant = Grant::of_credit(self, readings.credit);
        for Reading {
            first,
            slots,
            request,
        } in readings.runs
        {
            let (buf, read) = self.store.region.end(request);
            let good = match read {
                Ok(()) => self.store.placement.count_good(&slots, buf.as_slice()),
                Err(_) => 0,
            };
            let slots = &slots[..good];
            let end = (first + to_u64(good)) * BLOCK_BYTES_U64;
            let run = Run { first, slots };
            if good > 0 && !self.passes_dram_by(run) {
                let data = (buf.as_slice(), end.min(readings.size));
                let _read_again = self.keep(inode, run, data, &mut grant);
            }
            self.pages.give_scratch(grant.core(), buf);
        }
    }

    /// Gives up readings whose pages no task wants any more.
    pub(crate) fn give_readings_up(&self, readings: Readings) {
        drop(Grant::of_credit(self, readings.credit));
    }
}

impl Readings {
    /// Whether the device is done with them.
    pub(in crate::file) fn are_done(&self) -> bool {
        self.runs.iter().all(|reading| reading.request.is_done())
    }
}

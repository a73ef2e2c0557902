//! What happens at mount after a crash.
//!
//! **Structure.** `mend` puts the SIT right after a checkpoint that was cut off; `replay` gives the
//! state of the surviving log records, in memory and without writing: `gather` finds those about
//! each node, `apply` puts them on its image; `liveness` decides which blocks named by records are
//! live; [`recover`] puts them together; `replace` writes the pages that came with the logs.
//!
//! **Invariants.** The result depends only on the medium, not on the number of threads. Until the
//! one last write of the volume header nothing that a second recovery would read is destroyed: logs
//! and tails stay, images go to blocks that are free in the recovered state, and the NAT entries
//! they get are at least as new as the records (model cases A0r, A12). **On a crash** it starts
//! again.

mod apply;
mod gather;
pub(crate) mod liveness;
pub(crate) mod mend;
mod notes;
pub(crate) mod replace;
pub(crate) mod replay;
mod slots;

use dure_block::{Lba, Queue};
use dure_journal::recovery::Scan;

use crate::error::Result;
use crate::format::nat::NatEntry;
use crate::format::node::NodeImage;
use crate::layout::Layout;
use crate::node::nat::Nat;
use crate::units::{BLOCK_BYTES, BlockNo, Nid};
use replay::Replayed;

/// Where replay finds what is on the medium.
pub(crate) trait Base: Sync {
    /// The NAT entry.
    fn entry(&self, nid: Nid) -> Result<NatEntry>;
    /// The image the entry names.
    fn image(&self, nid: Nid, entry: &NatEntry) -> Result<NodeImage>;
    /// Seed of all checksums.
    fn seed(&self) -> u32;
    /// One block.
    fn block(&self, block: BlockNo, out: &mut [u8]) -> Result<()>;
}

/// The medium behind a queue and a NAT.
#[derive(Debug)]
pub(crate) struct Medium<'v> {
    pub(crate) queue: &'v Queue,
    pub(crate) layout: &'v Layout,
    pub(crate) nat: &'v Nat,
}

impl Base for Medium<'_> {
    fn entry(&self, nid: Nid) -> Result<NatEntry> {
        self.nat.entry(nid)
    }

    fn image(&self, nid: Nid, entry: &NatEntry) -> Result<NodeImage> {
        let mut bytes = [0; BLOCK_BYTES];
        self.block(entry.block(), &mut bytes)?;
        NodeImage::open(&bytes, nid, entry.block(), self.layout.crc_seed)
    }

    fn seed(&self) -> u32 {
        self.layout.crc_seed
    }

    fn block(&self, block: BlockNo, out: &mut [u8]) -> Result<()> {
        if self.layout.locate(block).is_none() {
            return Err(crate::error::Error::Corrupt {
                what: "block address outside the main area".into(),
                at: block.0,
                want: self.layout.main,
                got: block.0,
            });
        }
        self.queue.read(Lba::new(block.0), out)?;
        Ok(())
    }
}

/// Applies the logs in memory, repeating until every slot that survives and may have been in flight
/// at the crash matches its data (one-flush rule; model cases B3 and B4 are the simpler rules that
/// fail).
pub(crate) fn recover(
    base: &impl Base,
    scan: &mut Scan,
    threads: usize,
    data_check: bool,
) -> Result<Replayed> {
    loop {
        let mut replayed = replay::replay(base, scan, threads)?;
        if !data_check {
            return Ok(replayed);
        }
        let torn = replay::transactions_with_lost_data(base, scan, &replayed)?;
        if torn.is_empty() {
            replay::forget_lost_pages(base, scan, &mut replayed)?;
            return Ok(replayed);
        }
        for index in torn {
            scan.discard(index);
        }
    }
}

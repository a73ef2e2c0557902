//! What happens at mount after a crash.
//!
//! **Structure.** The tables are those of the last complete checkpoint. `replay` gives the state of
//! the surviving log records, in memory and without writing: `gather` finds those about each node,
//! `apply` puts them on its image; `liveness` decides which blocks named by records are live;
//! [`recover`] puts them together; `replace` writes the pages that came with the logs.
//!
//! **Invariants.** The result depends only on the medium, not on the number of threads. Until the
//! one last write of the volume header nothing that a second recovery would read is destroyed: logs
//! and tails stay, images go to blocks that are free in the recovered state, and the NAT entries
//! they get are at least as new as the records (model cases A0r, A12).
//!
//! **On a crash** it starts again.

mod apply;
pub(crate) mod first_nodes;
mod gather;
pub mod liveness;
mod notes;
pub(crate) mod replace;
pub mod replay;
mod slots;

use dure_journal::Rules;
use dure_journal::recovery::{Scan, scan};

use crate::error::{Error, Result};
use crate::format::nat::NatEntry;
use crate::format::node::NodeImage;
use crate::format::volume::VolumeHeader;
use crate::headers;
use crate::layout::Layout;
use crate::media::Region;
use crate::node::nat::Nat;
use crate::options::Recover;
use crate::units::{BLOCK_BYTES, BlockNo, Nid};
use replay::Replayed;

/// Where replay finds what is on the medium.
pub trait Base: Sync {
    /// The NAT entry.
    fn entry(&self, nid: Nid) -> Result<NatEntry>;
    /// The image the entry names.
    fn image(&self, nid: Nid, entry: &NatEntry) -> Result<NodeImage>;
    /// Where everything lies.
    fn layout(&self) -> &Layout;
    /// Seed of all checksums.
    fn seed(&self) -> u32 {
        self.layout().crc_seed
    }
    /// Whether the image of the node, or what says where it is, is destroyed: records about it may
    /// stand on nothing, and are left out then. Only what rebuilds a volume knows of such.
    fn is_lost(&self, nid: Nid) -> bool {
        let _ = nid;
        false
    }
    /// One block.
    fn block(&self, block: BlockNo, out: &mut [u8]) -> Result<()>;
}

/// The medium behind a region and a NAT.
#[derive(Debug)]
pub(crate) struct Medium<'v> {
    pub(crate) region: &'v Region,
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

    fn layout(&self) -> &Layout {
        self.layout
    }

    fn block(&self, block: BlockNo, out: &mut [u8]) -> Result<()> {
        if self.layout.locate(block).is_none() {
            return Err(Error::Corrupt {
                what: "block address outside the main area".into(),
                at: block.0,
                want: self.layout.main,
                got: block.0,
            });
        }
        self.region.read(block, out)?;
        Ok(())
    }
}

/// Reads the logs of the running epoch, for a mount and for a check: what one refuses the other
/// does not believe either.
///
/// # Errors
/// `LogHole` when something durable is missing and that is not tolerated; `Corrupt`; failed reads.
pub fn read_logs(
    region: &Region,
    (layout, header): (&Layout, &VolumeHeader),
    rules: Rules,
    recover: Recover,
    threads: usize,
) -> Result<Scan> {
    let log = headers::log_layout(layout, header, rules);
    let mut logs = scan(&region.log_medium(), &log, header.epoch.get(), threads)?;
    headers::check_numbers(&logs, layout)?;
    match recover {
        Recover::Whole => refuse_holes(&logs)?,
        Recover::Tolerate => logs.tolerate_holes(),
    }
    Ok(logs)
}

/// Refuses logs that lack something durable.
///
/// # Errors
/// `LogHole`, the first.
pub(crate) fn refuse_holes(logs: &Scan) -> Result<()> {
    let first = logs.holes().into_iter().next();
    first.map_or(Ok(()), |hole| Err(Error::LogHole(hole)))
}

/// Applies the logs in memory, repeating until every slot that survives and may have been in flight
/// at the crash matches its data (one-flush rule; model cases B3 and B4 are the simpler rules that
/// fail).
pub fn recover(
    base: &impl Base,
    scan: &mut Scan,
    threads: usize,
    data_check: bool,
) -> Result<Replayed> {
    loop {
        let mut replayed = replay::replay(base, scan, threads)?;
        let mut torn = std::mem::take(&mut replayed.baseless);
        if torn.is_empty() && data_check {
            torn = replay::transactions_with_lost_data(base, scan, &replayed)?;
        }
        if torn.is_empty() && !data_check {
            return Ok(replayed);
        }
        if torn.is_empty() {
            replay::forget_lost_pages(base, scan, &mut replayed)?;
            return Ok(replayed);
        }
        for index in torn {
            scan.discard(index);
        }
    }
}

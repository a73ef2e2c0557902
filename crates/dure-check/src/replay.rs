//! Reads the logs. For a volume that was not unmounted: the state that a mount would recover, in
//! memory.
//!
//! **Structure.** The same pure functions as recovery: scan, survivors, replay over the images the
//! NAT names. **Invariants.** Nothing is written. Blocks whose SIT bit the recovery would correct
//! (those a record names, those of nodes the logs free) are *unsettled*: the SIT pass leaves them
//! out.

use std::collections::BTreeMap;

use dure_journal::recovery::Scan;
use dure_store::error::{Error, Result};
use dure_store::format::nat::{NatEntry, place_of};
use dure_store::format::node::NodeImage;
use dure_store::format::volume::VolumeHeader;
use dure_store::layout::Layout;
use dure_store::media::Region;
use dure_store::recovery::{self, Base, replay::Replayed};
use dure_store::units::{BLOCK_BYTES, BlockNo, Nid, SlotRef};

use crate::context::{Context, Lost, NatEntries};
use crate::issue::{Issue, IssueKind, Severity};

/// The medium as replay sees it.
struct View<'c> {
    region: &'c Region,
    layout: &'c Layout,
    nat: &'c BTreeMap<u64, NatEntries>,
    lost: &'c Lost,
}

impl Base for View<'_> {
    fn entry(&self, nid: Nid) -> Result<NatEntry> {
        Error::expect_eq(
            "node id within the NAT",
            self.layout.nat,
            1,
            u64::from(nid.0 < self.layout.nids()),
        )?;
        let (pair, within) = place_of(nid);
        let entries = self.nat.get(&pair);
        Ok(entries.map_or_else(NatEntry::default, |entries| entries[within]))
    }

    fn image(&self, nid: Nid, entry: &NatEntry) -> Result<NodeImage> {
        let mut bytes = [0; BLOCK_BYTES];
        self.block(entry.block(), &mut bytes)?;
        NodeImage::open(&bytes, nid, entry.block(), self.layout.crc_seed)
    }

    fn layout(&self) -> &Layout {
        self.layout
    }

    fn is_lost(&self, nid: Nid) -> bool {
        self.lost.nodes.contains(&nid) || self.lost.pairs.contains(&place_of(nid).0)
    }

    fn block(&self, block: BlockNo, out: &mut [u8]) -> Result<()> {
        let inside = self.layout.locate(block).is_some();
        Error::expect_eq("block within the main area", block.0, 1, u64::from(inside))?;
        self.region.read(block, out)?;
        Ok(())
    }
}

/// Slots and blocks that no record names, though recovery changes them.
type Moved = Vec<(SlotRef, BlockNo)>;

fn threads(context: &Context<'_>) -> usize {
    let threads = context.options.threads;
    threads.unwrap_or_else(dure_sync::core_count)
}

fn read_logs(context: &Context<'_>, header: &VolumeHeader) -> Result<Scan> {
    recovery::read_logs(
        &context.region,
        (&context.layout, header),
        dure_journal::Rules::default(),
        context.options.recover,
        threads(context),
    )
}

/// The state that the logs leave, and the logs.
fn recover(context: &Context<'_>, header: &VolumeHeader) -> Result<(Replayed, Moved, Scan)> {
    let mut logs = read_logs(context, header)?;
    let layout = &context.layout;
    let view = View {
        region: &context.region,
        layout,
        nat: &context.nat,
        lost: &context.lost,
    };
    let replayed = recovery::recover(&view, &mut logs, threads(context), true)?;
    let moved = recovery::liveness::moved(&view, &replayed)?;
    Ok((replayed, moved, logs))
}

/// Reads the logs of a volume that was unmounted, because a mount does, and reports what a mount
/// would refuse. They should be empty, and the tables the whole state.
fn read_empty(context: &mut Context<'_>, header: &VolumeHeader) -> bool {
    // A wrong header was reported, and does not say where its log is.
    let hides_logs =
        |issue: &Issue| issue.kind.severity() >= Severity::Error && !issue.kind.is_lost_copy();
    if context.report.issues().iter().any(hides_logs) {
        return true;
    }
    match read_logs(context, header) {
        Ok(_) => true,
        Err(Error::LogHole(hole)) => {
            let why = hole.to_string();
            context.issue(IssueKind::LogHole { why });
            true
        }
        Err(error) => {
            let why = error.to_string();
            context.issue(IssueKind::ReplayFailed { why });
            false
        }
    }
}

/// Applies the logs to the images; false after reporting why that is not possible.
pub(super) fn load(context: &mut Context<'_>, header: &VolumeHeader) -> bool {
    if context.clean {
        return read_empty(context, header);
    }
    match recover(context, header) {
        Ok((replayed, moved, logs)) => {
            context.replay_number = logs.max_number();
            let all = logs.transactions().len();
            let counting = logs
                .survivors()
                .into_iter()
                .filter(|counts| *counts)
                .count();
            context.replay_dropped = (all - counting, all);
            let transactions = dure_store::units::to_u64(all);
            context.issue(IssueKind::NotClean { transactions });
            for hole in logs.holes() {
                let why = hole.to_string();
                context.issue(IssueKind::LogHole { why });
            }
            settle_notes(context, &replayed);
            for (_, block) in moved {
                unsettle(context, block);
            }
            context.logged = replayed.data;
            for (nid, node) in replayed.nodes {
                if node.image.is_none() {
                    unsettle(context, context.entry(nid).block());
                }
                context.replayed.insert(nid, node.image);
            }
            true
        }
        Err(error) => {
            context.issue(IssueKind::ReplayFailed {
                why: error.to_string(),
            });
            false
        }
    }
}

fn unsettle(context: &mut Context<'_>, block: BlockNo) {
    if context.layout.locate(block).is_some() {
        context.unsettled.set(block.0 - context.layout.main);
    }
}

fn settle_notes(context: &mut Context<'_>, replayed: &Replayed) {
    for (_, run) in &replayed.blocks {
        for n in 0..u64::from(run.count) {
            let block = BlockNo(run.first.0 + n);
            unsettle(context, block);
            context.noted.set(block.0 - context.layout.main);
        }
    }
}

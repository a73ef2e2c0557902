//! What the passes share: the medium, the NAT, the owners of blocks and nodes, and the findings.
//!
//! **Invariants.** Memory is bounded by the volume, not by what a hostile image says: a bit per
//! block and per node, the live part of the NAT, one [`InodeFacts`] per inode granule that exists.
//! Every block and node is claimed once; what is claimed twice is reported and not followed, so no
//! walk is endless.

use std::collections::{BTreeMap, BTreeSet};

use dure_store::format::nat::{self, NatEntry};
use dure_store::format::node::{NodeImage, NodeKind};
use dure_store::format::sit::{ENTRIES, SitBlock};
use dure_store::layout::Layout;
use dure_store::media::Region;
use dure_store::packs::Packs;
use dure_store::recovery::replay::LoggedPage;
use dure_store::snapshot::Snapshots;
use dure_store::units::{BLOCK_BYTES, BlockNo, Nid, SegNo, to_u64, to_usize};
use dure_sync::Arc;

use crate::bits::Bits;
use crate::inodes::InodeTable;
use crate::issue::IssueKind;
use crate::options::{CheckOptions, Progress, Repair};
use crate::owner::{BlockUse, NodeUse};
use crate::quota_facts::QuotaFacts;
use crate::repairs::Repairs;
use crate::report::Report;
use crate::shared::SharedBlocks;
use crate::summaries::Summaries;

/// The entries of one NAT pair.
pub(super) type NatEntries = Box<[NatEntry]>;

/// What records of the logs may be about though it is destroyed.
#[derive(Debug, Clone, Default)]
pub(super) struct Lost {
    /// Nodes whose images are destroyed.
    pub(super) nodes: BTreeSet<Nid>,
    /// NAT pairs that are.
    pub(super) pairs: BTreeSet<u64>,
}

/// State of a check.
#[derive(Debug)]
pub(super) struct Context<'o> {
    pub(super) options: &'o CheckOptions<'o>,
    pub(super) region: Arc<Region>,
    pub(super) layout: Layout,
    /// The logs are empty: SIT, summaries and NAT are the whole state.
    pub(super) clean: bool,
    pub(super) epoch: u64,
    pub(super) report: Report,
    /// Which slots of the tables are current.
    pub(super) packs: Arc<Packs>,
    /// The snapshots that the volume header names; none if they are damaged.
    pub(super) snapshots: Arc<Snapshots>,
    /// Entries of the NAT pairs that have any.
    pub(super) nat: BTreeMap<u64, NatEntries>,
    /// The SIT pairs that were ever written.
    pub(super) sit: BTreeMap<u32, Box<SitBlock>>,
    /// What a rebuild does without; a check finds nothing of it.
    pub(super) lost: Lost,
    /// SIT pairs whose current slot is lost.
    pub(super) sit_lost: BTreeSet<u32>,
    /// Nodes as the logs leave them; `None` = free. Empty on a clean volume.
    pub(super) replayed: BTreeMap<Nid, Option<NodeImage>>,
    /// Content of blocks that the logs carry; it counts as if it lay in the block. Empty on a clean
    /// volume.
    pub(super) logged: BTreeMap<BlockNo, LoggedPage>,
    /// Blocks of the main area that have an owner, counted from its start.
    pub(super) owned: Bits,
    /// Blocks that several slots name.
    pub(super) shared: SharedBlocks,
    /// Blocks of a dirty volume whose SIT bit the recovery will correct.
    pub(super) unsettled: Bits,
    /// The blocks of `unsettled` that notes of the logs name.
    pub(super) noted: Bits,
    /// Nodes that have an owner.
    pub(super) claimed: Bits,
    /// Nodes whose image was reported already.
    pub(super) broken: Bits,
    pub(super) inodes: InodeTable,
    pub(super) summaries: Summaries,
    /// Segments of the rings.
    pub(super) log_segments: BTreeSet<SegNo>,
    /// Greatest handle number in the logs.
    pub(super) replay_number: u64,
    /// Transactions of the logs that do not count, and all of them.
    pub(super) replay_dropped: (usize, usize),
    /// What a repair may do.
    pub(super) repairs: Repairs,
    /// What users and groups have.
    pub(super) quotas: QuotaFacts,
}

impl<'o> Context<'o> {
    pub(super) fn new(
        options: &'o CheckOptions<'o>,
        region: Arc<Region>,
        layout: Layout,
        report: Report,
    ) -> Context<'o> {
        let main_blocks = u64::from(layout.segments) * u64::from(layout.segment_blocks);
        let nids = layout.nids();
        let mut context = Context {
            options,
            region,
            clean: true,
            epoch: 0,
            report,
            packs: Arc::new(Packs::new(&layout)),
            snapshots: Arc::default(),
            nat: BTreeMap::new(),
            sit: BTreeMap::new(),
            lost: Lost::default(),
            sit_lost: BTreeSet::new(),
            replayed: BTreeMap::new(),
            logged: BTreeMap::new(),
            owned: Bits::new(main_blocks),
            shared: SharedBlocks::default(),
            unsettled: Bits::new(main_blocks),
            noted: Bits::new(main_blocks),
            claimed: Bits::new(nids),
            broken: Bits::new(nids),
            inodes: InodeTable::default(),
            summaries: Summaries::default(),
            log_segments: BTreeSet::new(),
            replay_number: 0,
            replay_dropped: (0, 0),
            repairs: Repairs::default(),
            quotas: QuotaFacts::default(),
            layout,
        };
        context.report.counts.blocks_total = main_blocks;
        context
    }

    /// Whether the SIT has a block as live. Once the SIT is loaded.
    pub(super) fn is_live(&self, block: BlockNo) -> bool {
        let Some((SegNo(segment), index)) = self.layout.locate(block) else {
            return false;
        };
        let pair = self.sit.get(&(segment / ENTRIES));
        let entry = pair.map(|pair| &pair.entries[to_usize(u64::from(segment % ENTRIES))]);
        let byte = to_usize(u64::from(index / 8));
        entry.is_some_and(|entry| entry.live[byte] >> (index % 8) & 1 != 0)
    }

    /// Forgets what the passes have found, so that they can run again: the tables, the replayed
    /// nodes and the logs' content stay.
    pub(super) fn reset(&mut self) -> Report {
        let main_blocks = u64::from(self.layout.segments) * u64::from(self.layout.segment_blocks);
        let nids = self.layout.nids();
        self.owned = Bits::new(main_blocks);
        self.unsettled = Bits::new(main_blocks);
        self.noted = Bits::new(main_blocks);
        self.claimed = Bits::new(nids);
        self.broken = Bits::new(nids);
        self.inodes = InodeTable::default();
        self.summaries = Summaries::default();
        self.log_segments = BTreeSet::new();
        self.repairs = Repairs::default();
        self.shared.run_again();
        // A rebuild raises the number of mounts: what was stored for the next one does not count.
        self.quotas = QuotaFacts::default();
        let report = std::mem::take(&mut self.report);
        self.report.counts.blocks_total = main_blocks;
        report
    }

    /// Lets the passes run once more over the same volume, to find all owners of blocks that turned
    /// out to be shared: forgets the owners of blocks, and keeps what is known of logs.
    pub(super) fn forget_owners(&mut self) {
        let per_segment = u64::from(self.layout.segment_blocks);
        self.owned = Bits::new(u64::from(self.layout.segments) * per_segment);
        for SegNo(segment) in &self.log_segments {
            let first = u64::from(*segment) * per_segment;
            for index in first..first + per_segment {
                self.owned.set(index);
            }
        }
        self.claimed = Bits::new(self.layout.nids());
        self.inodes = InodeTable::default();
        self.summaries = Summaries::default();
        self.repairs = Repairs {
            counts: self.repairs.counts.take(),
            ..Repairs::default()
        };
        self.quotas = QuotaFacts {
            mounts: self.quotas.mounts,
            ..QuotaFacts::default()
        };
        self.shared.run_again();
    }

    pub(super) fn issue(&mut self, kind: IssueKind) {
        self.report.add(kind);
    }

    pub(super) fn progress(&self, pass: &'static str, done: u64, total: u64) {
        if let Some(progress) = self.options.progress {
            progress(&Progress { pass, done, total });
        }
    }

    /// Reads `count` blocks; `None` after reporting that they cannot be read.
    pub(super) fn read(&mut self, first: u64, count: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; count * BLOCK_BYTES];
        match self.region.read(BlockNo(first), &mut bytes) {
            Ok(()) => Some(bytes),
            Err(error) => {
                self.issue(IssueKind::Unreadable {
                    at: first,
                    why: error.to_string(),
                });
                None
            }
        }
    }

    /// The NAT entry on the medium; zero for a nid that never lived.
    pub(super) fn entry(&self, nid: Nid) -> NatEntry {
        let (pair, within) = nat::place_of(nid);
        let entries = self.nat.get(&pair);
        entries.map_or_else(NatEntry::default, |entries| entries[within])
    }

    /// Whether the node lives in the state that is checked.
    pub(super) fn lives(&self, nid: Nid) -> bool {
        match self.replayed.get(&nid) {
            Some(node) => node.is_some(),
            None => !self.entry(nid).block().is_none(),
        }
    }

    /// Whether a repair was asked for.
    pub(super) fn repairing(&self) -> bool {
        self.options.repair != Repair::No
    }

    /// Whether a live node should hold inodes, by what the NAT or the logs say.
    pub(super) fn is_inode_node(&self, nid: Nid) -> bool {
        match self.replayed.get(&nid) {
            Some(node) => node
                .as_ref()
                .is_some_and(|node| node.kind == NodeKind::Inode),
            None => self.entry(nid).kind_code() == NodeKind::Inode.code(),
        }
    }

    /// The NAT pairs that may have live nids.
    pub(super) fn pairs_in_use(&self) -> BTreeSet<u64> {
        let replayed = self.replayed.keys().map(|nid| nat::place_of(*nid).0);
        self.nat.keys().copied().chain(replayed).collect()
    }

    /// The live nids of NAT pair `pair`.
    pub(super) fn live_in_pair(&self, pair: u64) -> Vec<Nid> {
        let nids = pair * nat::ENTRIES..(pair + 1) * nat::ENTRIES;
        let known = self.nat.get(&pair);
        let mut replayed = self.replayed.range(Nid(nids.start)..Nid(nids.end));
        if known.is_none() && replayed.next().is_none() {
            return Vec::new();
        }
        nids.map(Nid).filter(|nid| self.lives(*nid)).collect()
    }

    /// The image of a node that lives; `None` when it is bad, which the pass over all nodes
    /// reports.
    pub(super) fn image(&mut self, nid: Nid) -> Option<NodeImage> {
        if let Some(node) = self.replayed.get(&nid) {
            return node.clone();
        }
        if self.broken.get(nid.0) {
            return None;
        }
        let block = self.entry(nid).block();
        self.layout.locate(block)?;
        let bytes = self.read(block.0, 1)?;
        NodeImage::open(&bytes, nid, block, self.layout.crc_seed).ok()
    }

    /// Follows a pointer to node `nid`: claims it for `by` and reads it. `None` after reporting why
    /// not.
    pub(super) fn take(&mut self, nid: Nid, kind: NodeKind, by: NodeUse) -> Option<NodeImage> {
        if nid.0 >= self.layout.nids() || !self.lives(nid) {
            self.issue(IssueKind::NodeMissing { nid, by });
            return None;
        }
        if self.claimed.get(nid.0) {
            self.issue(IssueKind::NodeShared { nid, by });
            return None;
        }
        let image = self.image(nid);
        if let Some(got) = image.as_ref().map(|image| image.kind)
            && got != kind
        {
            self.issue(IssueKind::NodeWrongKind { nid, by, got });
            return None;
        }
        self.claimed.set(nid.0);
        if let Some(image) = &image {
            self.expect_inode(nid, image, by);
        }
        image
    }

    /// Compares the owner that an image names with the inode that refers to the node.
    pub(super) fn expect_inode(&mut self, nid: Nid, image: &NodeImage, by: NodeUse) {
        let got = image.owner;
        if got != by.inode() {
            self.issue(IssueKind::NodeOwner { nid, by, got });
        }
    }

    /// Claims a block of the main area; false after reporting that it has another owner.
    pub(super) fn own(&mut self, block: BlockNo, by: BlockUse) -> bool {
        let Some(index) = block.0.checked_sub(self.layout.main) else {
            unreachable!("the caller has checked that {block:?} is in the main area")
        };
        if !self.owned.set(index) {
            self.issue(IssueKind::BlockShared { block: block.0, by });
            return false;
        }
        self.report.counts.blocks_used += 1;
        true
    }

    /// Number of pages that hold `bytes` bytes.
    pub(super) fn pages(bytes: u64) -> u64 {
        bytes.div_ceil(to_u64(BLOCK_BYTES))
    }
}

//! How many nodes and inodes there are, kept right by every write of the NAT.
//!
//! **Problem.** statfs must know the inodes in use at once, after a clean unmount and after a
//! crash, and reading the whole NAT for that takes too long.
//!
//! **Structure.** A NAT entry says whether its node is in use and how many of its inodes are free.
//! The writer of NAT pairs sums what the entries gain over those they replace, and the volume
//! header that completes the checkpoint carries the sum.
//!
//! **Invariants.** The header's counts are those of the NAT that its checkpoint completed.
//!
//! **On a crash** between NAT and header, both slots of each announced pair tell the difference
//! (`recovery::mend`); what the logs add is counted when recovery writes its images.

use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

use crate::format::inode::InodeLife;
use crate::format::nat::NatEntry;
use crate::format::node::{NodeImage, NodeKind};
use crate::format::volume::VolumeHeader;
use crate::layout::Layout;
use crate::units::{Ino, Nid};

/// Live nodes and inodes in use, or how many more of them there are than before.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Census {
    /// Nodes.
    pub nodes: i64,
    /// Inodes.
    pub inodes: i64,
}

impl Census {
    /// What the entry of `nid` counts.
    pub fn of_entry(nid: Nid, entry: &NatEntry) -> Census {
        if entry.block().is_none() {
            return Census::default();
        }
        Census::of_node(nid, entry.kind_code(), entry.free_inodes())
    }

    /// What the image of `nid` will count once the NAT names it.
    pub fn of_image(nid: Nid, image: &NodeImage) -> Census {
        Census::of_node(nid, image.kind.code(), free_inodes(nid, image))
    }

    fn of_node(nid: Nid, kind: u8, free_inodes: u8) -> Census {
        let mut inodes = 0;
        if kind == NodeKind::Inode.code() {
            // Number 0 is never used and never counted as free.
            let usable = Ino::PER_NODE - u64::from(nid == Ino(0).nid());
            inodes = usable.saturating_sub(u64::from(free_inodes));
        }
        Census {
            nodes: 1,
            inodes: i64::try_from(inodes).expect("a node has at most 8 inodes"),
        }
    }

    /// Adds what `after` has more than `before`.
    pub fn change(&mut self, before: Census, after: Census) {
        self.nodes += after.nodes - before.nodes;
        self.inodes += after.inodes - before.inodes;
    }

    /// Adds it to the counts of the header.
    pub fn apply(self, header: &mut VolumeHeader) {
        header.nodes = U64::new(header.nodes.get().saturating_add_signed(self.nodes));
        header.inodes = U64::new(header.inodes.get().saturating_add_signed(self.inodes));
    }
}

/// Whether the header's counts can be right. Those of a volume that was never counted cannot: there
/// is always the node of the root and one of orphans.
pub(crate) fn is_counted(header: &VolumeHeader, layout: &Layout) -> bool {
    let (nodes, inodes) = (header.nodes.get(), header.inodes.get());
    nodes > u64::from(layout.journals)
        && nodes <= layout.nids()
        && (1..nodes.saturating_mul(Ino::PER_NODE)).contains(&inodes)
}

/// Inodes of the node that are not in use.
pub(crate) fn free_inodes(nid: Nid, image: &NodeImage) -> u8 {
    if image.kind != NodeKind::Inode {
        return 0;
    }
    let free = |ino: &Ino| {
        let payload = image.payload(usize::from(ino.index()));
        let (life, _) = InodeLife::ref_from_prefix(payload).expect("a granule has room for a life");
        life.is_free() && ino.0 != 0
    };
    let count = Ino::all_of(nid).filter(free).count();
    u8::try_from(count).expect("a node has at most 8 inodes")
}

//! Moving node images: the checkpoint does it.

use dure_store::error::Result;
use dure_store::node::NodeRef;
use dure_store::space::OpClass;
use dure_store::units::{BlockNo, Nid};

use crate::cleaner::Cleaner;

use super::CleanReport;

impl Cleaner {
    /// Makes the next checkpoint write the node's image elsewhere, if `block` is its image.
    pub(super) fn move_image(
        &self,
        block: BlockNo,
        nid: Nid,
        report: &mut CleanReport,
    ) -> Result<()> {
        let is_image = |nid: Nid| -> Result<bool> {
            Ok(nid.0 < self.store.layout.nids() && self.store.nat.entry(nid)?.block() == block)
        };
        if !is_image(nid)? {
            report.disowned += 1;
            return Ok(());
        }
        // A node that is gone from memory and NAT by now leaves a dead block behind: nothing to do.
        let Some(node) = self.node_if_alive(nid)? else {
            return Ok(());
        };
        match self.make_dirty(&node) {
            true => report.images += 1,
            false => report.homeless += 1,
        }
        Ok(())
    }

    /// Puts a node on a dirty list although nothing in it has changed; `false` without a block for
    /// its next image.
    pub(crate) fn make_dirty(&self, node: &NodeRef) -> bool {
        let core = self.store.partition();
        if !self.store.space.reserve(core, 1, OpClass::Delete) {
            return false;
        }
        // Under a granule's lock, as a node is freed under all of them: a freed node must not come
        // onto a list after the checkpoint that noted its end. It would free the next node with
        // that nid.
        let alive = node.read(0);
        let dirtied = node.freed().is_none() && self.store.nodes.make_dirty(core, node);
        drop(alive);
        if !dirtied {
            self.store.space.unreserve(core, 1);
        }
        true
    }
}

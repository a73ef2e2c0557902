//! stub
#![expect(missing_docs, unused, reason = "stub")]
use crate::error::Result;
use crate::format::{sit::SegmentUse, summary::SummaryEntry};
use crate::layout::Layout;
use crate::units::*;
use dure_block::Queue;
use dure_sync::{Arc, CoreId};
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpClass {
    Normal,
    Delete,
}
#[derive(Debug, Clone, Copy)]
pub(crate) enum Effect {
    Live(Run),
    Free(Run),
    NidFree { nid: Nid, version: u64 },
}
pub(crate) struct PairWrite {
    pub first: u64,
    pub kind: u32,
    pub generation: u64,
    pub payload: Vec<u8>,
}
#[derive(Debug)]
pub(crate) struct Space;
impl Space {
    pub(crate) fn new_empty(q: Arc<Queue>, l: &Layout) -> Space {
        Space
    }
    pub(crate) fn load(q: Arc<Queue>, l: &Layout) -> Result<Space> {
        Ok(Space)
    }
    pub(crate) fn reserve(&self, c: CoreId, n: u32, k: OpClass) -> bool {
        true
    }
    pub(crate) fn unreserve(&self, c: CoreId, n: u32) {}
    pub(crate) fn alloc_node(&self, c: CoreId) -> Option<BlockNo> {
        None
    }
    pub(crate) fn alloc_segment(&self, u: SegmentUse) -> Option<SegNo> {
        None
    }
    pub(crate) fn settle(&self, e: impl Iterator<Item = Effect>) {}
    pub(crate) fn image_moved(&self, a: BlockNo, b: BlockNo) {}
    pub(crate) fn images_released(&self) {}
    pub(crate) fn set_owner(&self, b: BlockNo, o: SummaryEntry) {}
    pub(crate) fn owner(&self, b: BlockNo) -> Result<SummaryEntry> {
        panic!()
    }
    pub(crate) fn collect(&self, k: u64) -> Vec<PairWrite> {
        vec![]
    }
    pub(crate) fn mend_live(&self, r: Run) -> Result<()> {
        Ok(())
    }
    pub(crate) fn mend_dead(&self, r: Run) -> Result<()> {
        Ok(())
    }
    pub(crate) fn is_live(&self, b: BlockNo) -> bool {
        false
    }
    pub(crate) fn mark_log(&self, b: BlockNo) -> Result<()> {
        Ok(())
    }
    pub(crate) fn ready(&self) {}
}

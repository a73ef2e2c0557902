//! Nodes that are about to be needed, read together.
//!
//! **Problem.** A task that goes from node to node waits for a request at each. **Structure.** The
//! images of many are submitted at once and put in memory as they come. **Invariants.** What cannot
//! be read, or is not what it should be, is left to the task that needs it, which then learns why.
//! **On a crash** nothing is lost.

use dure_block::BlockBuf;

use super::Store;
use crate::format::nat::NatEntry;
use crate::units::{BLOCK_BYTES, Nid};

/// Nodes that are read together.
const TOGETHER_MAX: usize = 64;
/// The part of the node cache that they may take.
const PART_OF_CACHE: usize = 32;

impl Store {
    /// Puts these nodes in memory, as far as they are not, or the first of them if they are many for
    /// the cache. Reads one by one are no slower on a medium in memory, where this does nothing.
    pub fn preload(&self, nids: impl IntoIterator<Item = Nid>) {
        if !self.reads_wait() {
            return;
        }
        let most = TOGETHER_MAX.min(self.nodes.nodes_max() / PART_OF_CACHE);
        let mut absent = Vec::new();
        for nid in nids {
            if absent.len() == most {
                break;
            }
            if self.nodes.get(nid).is_none()
                && let Ok(entry) = self.nat.entry(nid)
                && !entry.block().is_none()
                && self.layout.locate(entry.block()).is_some()
            {
                absent.push((nid, entry));
            }
        }
        // Those side by side become one request.
        absent.sort_unstable_by_key(|(_, entry)| entry.block());
        self.load_together(&absent);
    }

    fn load_together(&self, absent: &[(Nid, NatEntry)]) {
        // A single one is read by the task that needs it, in one system call.
        if absent.len() < 2 {
            return;
        }
        let reads = absent
            .iter()
            .map(|(_, entry)| (entry.block(), BlockBuf::zeroed(1)));
        let requests = self.region.begin_reads(reads.collect());
        for ((nid, entry), request) in absent.iter().zip(requests) {
            let (buf, read) = self.region.end(request);
            if read.is_ok()
                && let Ok(bytes) = <&[u8; BLOCK_BYTES]>::try_from(buf.as_slice())
            {
                let _read_when_needed = self.insert_image((*nid, entry), bytes);
            }
        }
    }
}

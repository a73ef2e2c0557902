//! What was listed last, for a task that asks for the attributes of all of it next.
//!
//! **Problem.** `ls -l` asks for one inode after the other, in the order of a listing, which is not
//! that of their nodes: on a cold volume that is a request for each node. **Structure.** Each core
//! remembers the inodes that it has listed last. A task that finds the node of one of them missing
//! reads it together with those of the inodes behind it. Nothing is read for listings that no task
//! follows. **Invariants.** A hint: what it says may be gone, and a task that was moved to another
//! core finds nothing. **On a crash** nothing of this remains.

use dure_store::units::{Ino, Nid};
use dure_sync::{Mutex, PerCore};

use crate::ranks::LAST_LISTED;

/// Inodes a core remembers.
const INODES_MAX: usize = 4096;
/// Nodes that are read together, and inodes that are looked through for them.
const NODES_TOGETHER: usize = 64;
const LOOKED_THROUGH: usize = 512;

/// The inodes that each core has listed last, in their order.
#[derive(Debug)]
pub(crate) struct LastListed {
    /// [LAST_LISTED] Of each core.
    cores: PerCore<Mutex<LAST_LISTED, Vec<Ino>>>,
}

impl LastListed {
    /// Nothing was listed.
    pub(crate) fn new(cores: usize) -> LastListed {
        LastListed {
            cores: PerCore::new(cores, |_| Mutex::default()),
        }
    }

    /// These were listed.
    pub(crate) fn note(&self, inodes: impl ExactSizeIterator<Item = Ino>) {
        let mut listed = self.cores.local().lock();
        if listed.len() + inodes.len() > INODES_MAX {
            let half = listed.len() / 2;
            listed.drain(..half);
        }
        listed.extend(inodes.take(INODES_MAX / 2));
    }

    /// The nodes of `ino` and of those listed behind it that are `wanted`; none if it was not
    /// listed.
    pub(crate) fn nodes_from(&self, ino: Ino, wanted: impl Fn(Nid) -> bool) -> Vec<Nid> {
        let mut nodes = Vec::new();
        for nid in self.listed_from(ino).into_iter().map(Ino::nid) {
            if nodes.len() == NODES_TOGETHER {
                break;
            }
            if !nodes.contains(&nid) && wanted(nid) {
                nodes.push(nid);
            }
        }
        nodes
    }

    fn listed_from(&self, ino: Ino) -> Vec<Ino> {
        let listed = self.cores.local().lock();
        // The latest listing counts.
        let at = listed.iter().rposition(|&other| other == ino);
        let from = at.map_or(&[][..], |at| &listed[at..]);
        from[..from.len().min(LOOKED_THROUGH)].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_those_behind_an_inode_of_the_latest_listing() {
        let listed = LastListed::new(1);
        let inodes = |from: u64, to: u64| (from..to).map(|n| Ino(n * 64)).collect::<Vec<_>>();
        listed.note(inodes(0, 10).into_iter());
        let all = |_| true;
        let from = |n: u64| listed.nodes_from(Ino(n * 64), all);
        assert_eq!(from(8), [Ino(8 * 64).nid(), Ino(9 * 64).nid()]);
        assert_eq!(from(10), []);
        assert_eq!(
            listed.nodes_from(Ino(0), |nid| nid == Ino(64).nid()).len(),
            1
        );
        // Far more than are remembered.
        for _ in 0..100 {
            listed.note(inodes(1000, 1200).into_iter());
        }
        assert_eq!(from(8), []);
        assert_eq!(from(1000).len(), NODES_TOGETHER);
        assert!(listed.cores.local().lock().len() <= INODES_MAX);
    }
}

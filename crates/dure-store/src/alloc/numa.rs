//! Which region of persistent memory a partition allocates in: the policies of `numa=`.
//!
//! **Problem.** Memory of another node has less bandwidth and is farther. **Structure.** Regions are
//! runs of segments, each on a node; a partition is on the node of its core. A policy is an order of
//! the regions.
//!
//! | policy | order | origin |
//! |---|---|---|
//! | `first` | as on the volume, as if they were one | the baseline: a linear device |
//! | `interleave` | each region in turn, a segment from each | `numactl -i` |
//! | `local` | those of the own node, then the others | pNOVA's NUMA device virtualisation |
//!
//! **Invariants.** Each order has every region once, so only *where* differs: what is full is passed
//! over. A node without persistent memory has none of its own; its partitions begin at different
//! regions. **On a crash** nothing of this is remembered: any topology reads any volume.

use std::ops::Range;

use dure_sync::{Arc, CoreId, Topology};

/// An order of regions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NumaPolicy {
    /// The core's own first.
    #[default]
    Local,
    /// Each in turn.
    Interleave,
    /// As they lie.
    First,
}

impl NumaPolicy {
    /// All, with their names in `numa=`.
    pub const ALL: [(&'static str, NumaPolicy); 3] = [
        ("local", NumaPolicy::Local),
        ("interleave", NumaPolicy::Interleave),
        ("first", NumaPolicy::First),
    ];
}

/// A policy on a machine.
#[derive(Clone, Debug, Default)]
pub struct Numa {
    /// The order.
    pub policy: NumaPolicy,
    /// The machine; `None`: this one.
    pub topology: Option<Arc<Topology>>,
}

impl Numa {
    /// The machine.
    #[must_use]
    pub fn topology(&self) -> Arc<Topology> {
        let system = || Arc::new(Topology::system());
        self.topology.clone().unwrap_or_else(system)
    }
}

/// A run of segments in persistent memory, and the node it is on.
pub(crate) type NodeSegments = (Range<u32>, u32);

/// The regions of a volume, and the nodes of its partitions.
#[derive(Debug, Default)]
pub(crate) struct Homes {
    policy: NumaPolicy,
    regions: Vec<NodeSegments>,
    /// By partition.
    nodes: Vec<u32>,
}

impl Homes {
    pub(crate) fn new(numa: &Numa, regions: Vec<NodeSegments>, partitions: u32) -> Homes {
        let topology = numa.topology();
        let core = |number| CoreId::new(u16::try_from(number).expect("at most 1000 partitions"));
        let nodes = (0..partitions).map(|partition| topology.node_of(core(partition)));
        Homes {
            policy: numa.policy,
            nodes: nodes.collect(),
            regions,
        }
    }

    /// The parts of `area`, in the order in which the partition looks for segments; `turn` rises with
    /// each that it has taken.
    pub(crate) fn order(&self, partition: u32, area: &Range<u32>, turn: u32) -> Vec<Range<u32>> {
        let within = |(range, node): &NodeSegments| {
            let part = range.start.max(area.start)..range.end.min(area.end);
            (!part.is_empty()).then_some((part, *node))
        };
        let mut parts: Vec<NodeSegments> = self.regions.iter().filter_map(within).collect();
        if parts.len() < 2 || self.policy == NumaPolicy::First {
            return vec![area.clone()];
        }
        let count = u32::try_from(parts.len()).expect("few media");
        let begin = match self.policy {
            NumaPolicy::Interleave => partition.wrapping_add(turn),
            NumaPolicy::Local | NumaPolicy::First => partition,
        };
        parts.rotate_left(crate::units::to_usize(u64::from(begin % count)));
        if self.policy == NumaPolicy::Local {
            let own = self.nodes.get(crate::units::to_usize(u64::from(partition)));
            // Stable: others stay in their order.
            parts.sort_by_key(|(_, node)| own != Some(node));
        }
        parts.into_iter().map(|(part, _)| part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn homes(policy: NumaPolicy, topology: Topology) -> Homes {
        let numa = Numa {
            policy,
            topology: Some(Arc::new(topology)),
        };
        // Nodes differ in size, one has two regions, and node 2 has none.
        let regions = vec![(0..10, 1), (10..14, 0), (14..40, 1)];
        Homes::new(&numa, regions, 6)
    }

    fn firsts(homes: &Homes, turn: u32) -> Vec<u32> {
        let first = |partition| homes.order(partition, &(0..40), turn)[0].start;
        (0..6).map(first).collect()
    }

    #[test]
    fn every_order_has_every_segment_once() {
        for (_, policy) in NumaPolicy::ALL {
            let homes = homes(policy, Topology::logical(3, 2));
            for partition in 0..6 {
                for turn in 0..4 {
                    let mut order = homes.order(partition, &(2..38), turn);
                    order.sort_by_key(|range| range.start);
                    let all: Vec<u32> = order.into_iter().flatten().collect();
                    assert_eq!(all, (2..38).collect::<Vec<_>>());
                }
            }
        }
    }

    #[test]
    fn a_partition_begins_at_home() {
        let local = homes(NumaPolicy::Local, Topology::logical(3, 2));
        // Cores 0 and 1 on node 0, 2 and 3 on node 1, whose regions they share; 4 and 5 have none.
        assert_eq!(firsts(&local, 0), [10, 10, 14, 0, 10, 14]);
        assert_eq!(firsts(&local, 1), firsts(&local, 0));
        let interleaved = homes(NumaPolicy::Interleave, Topology::logical(3, 2));
        assert_eq!(firsts(&interleaved, 0), [0, 10, 14, 0, 10, 14]);
        assert_eq!(firsts(&interleaved, 1), [10, 14, 0, 10, 14, 0]);
        let first = homes(NumaPolicy::First, Topology::logical(3, 2));
        assert_eq!(firsts(&first, 5), [0; 6]);
    }

    #[test]
    fn cores_need_not_follow_nodes() {
        let nodes = [(0, vec![0, 2, 4]), (1, vec![1, 3, 5])];
        let local = homes(NumaPolicy::Local, Topology::of(&nodes));
        assert_eq!(firsts(&local, 0), [10, 14, 10, 0, 10, 14]);
    }
}

//! Which cores are on which NUMA node.
//!
//! **Problem.** Memory of another node is slower to reach, so what a core uses is to lie on its own;
//! and tests and measurements want machines that are not there. **Structure.** A table from cores to
//! nodes: that of the system, or a logical one. **Invariants.** Numbers of cores need not follow
//! nodes; a node may have no core, and a core that nothing is known of counts as one of the first
//! node. **Crash.** Nothing is kept.

use std::str::FromStr;

use crate::{CoreId, backend, core_count};

/// The table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// Numbers of the nodes, ascending; at least one.
    nodes: Vec<u32>,
    /// By core; repeats for higher ones.
    of_core: Vec<u32>,
}

impl Topology {
    /// That of the machine.
    #[must_use]
    pub fn system() -> Topology {
        Topology::of(&backend::numa_nodes())
    }

    /// These nodes, by number, with the cores of each; up to the highest core, those of no node are on
    /// the first.
    #[must_use]
    pub fn of(nodes: &[(u32, Vec<usize>)]) -> Topology {
        let mut numbers: Vec<u32> = nodes.iter().map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let first = *numbers.first().unwrap_or(&0);
        if numbers.is_empty() {
            numbers.push(first);
        }
        let cores = nodes.iter().flat_map(|(_, cores)| cores.iter());
        let count = cores.max().map_or(1, |last| last + 1).max(core_count());
        let mut of_core = vec![first; count];
        for (number, cores) in nodes {
            cores.iter().for_each(|core| of_core[*core] = *number);
        }
        Topology {
            nodes: numbers,
            of_core,
        }
    }

    /// A logical one: nodes 0 .. `nodes` of `cores` cores each, one after the other; higher cores
    /// begin again with node 0.
    ///
    /// # Panics
    /// Without nodes, or without cores.
    #[must_use]
    pub fn logical(nodes: u16, cores: u16) -> Topology {
        assert!(nodes > 0 && cores > 0, "a machine has nodes and cores");
        let each = |node: u16| std::iter::repeat_n(u32::from(node), usize::from(cores));
        Topology {
            nodes: (0..u32::from(nodes)).collect(),
            of_core: (0..nodes).flat_map(each).collect(),
        }
    }

    /// The node of a core.
    #[inline]
    #[must_use]
    pub fn node_of(&self, core: CoreId) -> u32 {
        self.of_core[core.index() % self.of_core.len()]
    }

    /// All nodes, ascending.
    #[must_use]
    pub fn nodes(&self) -> &[u32] {
        &self.nodes
    }
}

/// Most nodes and cores of each: there are no more cores than Linux can have.
const MOST: u16 = 8192;

impl FromStr for Topology {
    type Err = String;

    /// "NODESxCORES".
    fn from_str(text: &str) -> Result<Topology, String> {
        let number = |text: &str| text.parse().ok().filter(|n| (1..=MOST).contains(n));
        let parts = text.split_once('x');
        let parts = parts.and_then(|(nodes, cores)| Some((number(nodes)?, number(cores)?)));
        match parts {
            Some((nodes, cores)) if u32::from(nodes) * u32::from(cores) <= u32::from(MOST) => {
                Ok(Topology::logical(nodes, cores))
            }
            _ => Err(format!(
                "{text}: it is NODESxCORES, as in 2x8: nodes, and cores of each, {MOST} at most \
                 together"
            )),
        }
    }
}

#[cfg(all(test, not(dure_backend = "loom")))]
mod tests {
    use super::*;

    fn nodes_of(topology: &Topology, cores: u16) -> Vec<u32> {
        (0..cores)
            .map(|core| topology.node_of(CoreId::new(core)))
            .collect()
    }

    #[test]
    fn a_logical_topology_has_as_many_cores_on_each_node() {
        let topology: Topology = "2x3".parse().unwrap();
        assert_eq!(nodes_of(&topology, 8), [0, 0, 0, 1, 1, 1, 0, 0]);
        assert_eq!(topology.nodes(), [0, 1]);
        for wrong in ["", "2", "x", "0x1", "2x", "2x3x4", "100x100", "-1x2"] {
            let error = wrong.parse::<Topology>().unwrap_err();
            assert!(error.contains("NODESxCORES"), "{wrong}: {error}");
        }
    }

    #[test]
    fn cores_need_not_follow_nodes_and_nodes_need_no_cores() {
        let interleaved = [(4, vec![1, 3]), (0, vec![0, 2, 5]), (7, vec![])];
        let topology = Topology::of(&interleaved);
        assert_eq!(nodes_of(&topology, 6), [0, 4, 0, 4, 0, 0]);
        assert_eq!(topology.nodes(), [0, 4, 7]);
        assert_eq!(Topology::of(&[]).nodes(), [0]);
    }

    #[test]
    fn the_system_has_a_node_for_every_core() {
        let topology = Topology::system();
        for core in (0..core_count()).map(|core| CoreId::new(u16::try_from(core).unwrap())) {
            assert!(topology.nodes().contains(&topology.node_of(core)));
        }
    }
}

//! The number of a core.
//!
//! **Problem.** Per-core data needs an index that is not mistaken for another number.
//! **Structure.** A newtype, the current core, how many there can be, and which of them lie near
//! each other. **Invariants.** The
//! current core is a hint: the thread may have moved before the answer is used, so per-core data
//! is still protected by its own lock or atomics. **Crash.** Nothing is kept.

use std::fmt;

use crate::backend;

/// The number of a core, real or virtual.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoreId(u16);

impl CoreId {
    /// Core `number`.
    #[must_use]
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    /// The number, for indexing.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The number, for storing.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for CoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The core the calling task runs on, at this moment.
#[inline]
#[must_use]
pub fn current_core() -> CoreId {
    CoreId(u16::try_from(backend::current_core_index()).expect("Linux has at most 8192 cores"))
}

/// How many cores there can be: the machine's possible cores, or the virtual ones. At least 1.
#[must_use]
pub fn core_count() -> usize {
    backend::core_count()
}

/// All cores, in groups of at most `most` that share a NUMA node; each core is in one group.
///
/// # Panics
/// If `most` is 0.
#[must_use]
pub fn core_groups(most: usize) -> Vec<Vec<CoreId>> {
    assert!(most > 0, "a group has at least one core");
    let nodes = backend::numa_nodes().into_iter();
    let mut nodes: Vec<Vec<usize>> = nodes.map(|(_, cores)| cores).collect();
    let count = core_count();
    // Cores that are on no node by now: they can come online later.
    let known: Vec<usize> = nodes.concat();
    nodes.push((0..count).filter(|core| !known.contains(core)).collect());
    let groups = nodes.iter().flat_map(|node| node.chunks(most));
    let id = |core: &usize| CoreId(u16::try_from(*core).expect("Linux has at most 8192 cores"));
    groups
        .map(|group| group.iter().filter(|core| **core < count).map(id).collect())
        .filter(|group: &Vec<CoreId>| !group.is_empty())
        .collect()
}

#[cfg(all(test, not(dure_backend = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn each_core_is_in_one_group() {
        for most in [1, 3, 8, 1024] {
            let groups = core_groups(most);
            assert!(groups.iter().all(|group| (1..=most).contains(&group.len())));
            let mut all = groups.concat();
            all.sort_unstable();
            let every = (0..core_count()).map(|core| CoreId(u16::try_from(core).unwrap()));
            assert_eq!(all, every.collect::<Vec<_>>());
        }
    }
}

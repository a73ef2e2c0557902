//! Which hardware queues serve a core.
//!
//! **Problem.** A hardware queue whose cores lie on several NUMA nodes moves its tags between
//! them. **Structure.** The cores in the order of their nodes are cut into runs of equal length,
//! one for each hardware queue. If there are more queues than cores, the queues are cut into runs
//! instead, one for each core. **Invariants.** Each core has a hardware queue, each hardware queue a
//! core. A queue of several cores is the only one of each. **Crash.** Nothing is kept.

use dure_sync::{CoreId, core_count, core_groups};

/// The cores of each of `hw_queues` hardware queues.
pub(super) fn cores_of_queues(hw_queues: u32) -> Vec<Vec<CoreId>> {
    let cores: Vec<CoreId> = core_groups(core_count()).concat();
    spread(&cores, usize::try_from(hw_queues).unwrap_or(usize::MAX))
}

fn spread(cores: &[CoreId], queues: usize) -> Vec<Vec<CoreId>> {
    assert!(queues > 0, "a device has at least one hardware queue");
    (0..queues)
        .map(|queue| {
            let from = queue * cores.len() / queues;
            let to = (queue + 1) * cores.len() / queues;
            cores[from..to.max(from + 1)].to_vec()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_core_has_a_queue_and_each_queue_a_core() {
        let even = |counts: &mut dyn Iterator<Item = usize>| {
            let counts: Vec<_> = counts.collect();
            let (least, most) = (counts.iter().min(), counts.iter().max());
            assert!(least >= Some(&1) && most <= least.map(|least| least + 1).as_ref());
        };
        for count in [1_u16, 2, 3, 8, 120] {
            let cores: Vec<_> = (0..count).map(CoreId::new).collect();
            for queues in [1, 2, 3, 8, 30, 120, 1024] {
                let spread = spread(&cores, queues);
                assert_eq!(spread.len(), queues);
                even(&mut spread.iter().map(Vec::len));
                let mut all = spread.concat();
                let queues_of = |core| all.iter().filter(|other| *other == core).count();
                even(&mut cores.iter().map(queues_of));
                all.dedup();
                assert_eq!(all, cores, "in order");
            }
        }
    }
}

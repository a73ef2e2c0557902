//! Which hardware queue serves a core.
//!
//! **Problem.** A hardware queue whose cores lie on several NUMA nodes moves its tags between
//! them. **Structure.** The cores in the order of their nodes are cut into runs of equal length,
//! one for each hardware queue. **Invariants.** Each core has one hardware queue, each hardware
//! queue at least one core. **Crash.** Nothing is kept.

use dure_sync::{CoreId, core_count, core_groups};

/// The cores of each of `hw_queues` hardware queues, or of fewer: no more than there are cores.
pub(super) fn cores_of_queues(hw_queues: u32) -> Vec<Vec<CoreId>> {
    let cores: Vec<CoreId> = core_groups(core_count()).concat();
    spread(&cores, usize::try_from(hw_queues).unwrap_or(usize::MAX))
}

fn spread(cores: &[CoreId], queues: usize) -> Vec<Vec<CoreId>> {
    assert!(queues > 0, "a device has at least one hardware queue");
    let queues = queues.min(cores.len());
    (0..queues)
        .map(|queue| {
            let from = queue * cores.len() / queues;
            cores[from..(queue + 1) * cores.len() / queues].to_vec()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_core_has_one_queue_and_each_queue_a_core() {
        for count in [1_u16, 2, 3, 8, 120] {
            let cores: Vec<_> = (0..count).map(CoreId::new).collect();
            for queues in [1, 2, 3, 8, 30, 1000] {
                let spread = spread(&cores, queues);
                assert_eq!(spread.len(), queues.min(cores.len()));
                assert_eq!(spread.concat(), cores, "in order, each once");
                let lengths = spread.iter().map(Vec::len);
                let (least, most) = (lengths.clone().min(), lengths.max());
                assert!(least >= Some(1) && most <= least.map(|least| least + 1));
            }
        }
    }
}

//! Which partition a task works for.
//!
//! **Problem.** What a page, a node or a handle costs later (allocation, a log record, an image)
//! belongs to the partition of the core that made it, also when a worker in the background does it.
//! **Structure.** A task works for the partition of its core, unless it has called [`serve`].
//! **Invariants.** Only *where* differs; any partition is right. **On a crash** nothing of this
//! remains.

use std::cell::Cell;

use dure_sync::CoreId;
use dure_sync::atomic::{AtomicUsize, Ordering};

dure_sync::task_local! {
    static SERVED: Cell<Option<CoreId>> = const { Cell::new(None) };
}

/// Does `work` for `partition`, whatever core it runs on.
pub fn serve<R>(partition: CoreId, work: impl FnOnce() -> R) -> R {
    let _restored = Restored(SERVED.with(|served| served.replace(Some(partition))));
    work()
}

/// Puts back what was served before, also after a panic.
struct Restored(Option<CoreId>);

impl Drop for Restored {
    fn drop(&mut self) {
        SERVED.with(|served| served.set(self.0));
    }
}

/// The partition (and journal) this task works for: the one it serves, or that of the core it runs
/// on, or of the one a test pretends to run on.
#[inline]
pub(crate) fn partition_of(journals: usize, pretended: Option<&AtomicUsize>) -> CoreId {
    let served = SERVED.with(Cell::get);
    let core = match (served, pretended) {
        (Some(partition), _) => partition.index(),
        (None, None) => dure_sync::current_core().index(),
        // Relaxed: any core is right.
        (None, Some(core)) => core.load(Ordering::Relaxed),
    };
    CoreId::new(u16::try_from(core % journals).expect("a volume has at most 1000 journals"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_serves_one_partition_at_a_time() {
        let pretended = AtomicUsize::new(6);
        let now = || partition_of(4, Some(&pretended)).number();
        assert_eq!(now(), 2);
        let inner = serve(CoreId::new(3), || (serve(CoreId::new(1), now), now()));
        assert_eq!((inner, now()), ((1, 3), 2));
    }
}

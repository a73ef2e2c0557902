//! Emulated persistent memory at the pace of a module.
//!
//! **Problem.** Emulated memory is as fast as DRAM. What a slower medium would change, such as where
//! writers stop gaining from more cores, or what another NUMA node costs, does not show.
//! **Structure.** A [`NvmModel`] says how long a copy takes; [`Pace`] keeps, per module and
//! direction, until when its modelled bus is busy. Writes go through a queue of each module, which the
//! module empties at its bandwidth: a write is durable when it is in the queue, and waits while the
//! queue is full. The copying task spins until the model's copy would be done. **Invariants.**
//! Copies share the bandwidth of a module and overlap in their latencies; a copy is never faster than
//! the model, nor than the real one. The words of the busy bus are lines that all cores write: a model
//! for measurements, which is off unless asked for.
//! **Crash.** Nothing is kept.

use dure_sync::CachePadded;
use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::{clock, thread};

use crate::nvm::NvmBlocks;
use crate::{BLOCK_BYTES, Lba};

/// Which module of several a block is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Modules {
    /// There is one.
    One,
    /// So many, one block on each in turn.
    Interleaved(u64),
    /// So many, of which each has an equal run of the blocks.
    Separate(u64),
}

impl Modules {
    /// How many.
    fn count(self) -> u64 {
        match self {
            Modules::One => 1,
            Modules::Interleaved(count) | Modules::Separate(count) => count,
        }
    }

    /// That of block `lba` of `blocks`.
    fn of(self, lba: u64, blocks: u64) -> u64 {
        match self {
            Modules::One => 0,
            Modules::Interleaved(count) => lba % count,
            Modules::Separate(count) => (lba / blocks.div_ceil(count).max(1)).min(count - 1),
        }
    }
}

/// How fast persistent memory is: each of its modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NvmModel {
    /// Nanoseconds until the first byte is read.
    pub read_ns: u64,
    /// Nanoseconds until a write that is fenced is done.
    pub write_ns: u64,
    /// Read at most.
    pub read_bytes_per_second: u64,
    /// Written at most.
    pub write_bytes_per_second: u64,
    /// What a module takes in before it has written it.
    pub write_queue_bytes: u64,
    /// Time of a copy from or to another NUMA node, in percent of one on the own node.
    pub remote_percent: u64,
    /// How many there are, and how the blocks lie on them.
    pub modules: Modules,
}

impl NvmModel {
    /// One module of Intel Optane of 256 GB: 6.8 GB/s read, 2.3 GB/s written, distances of NUMA
    /// nodes 11 and 21 (the measurements published for pNOVA); idle latencies of a random read and
    /// of a non-temporal store after Yang et al., "An Empirical Guide to the Behavior and Use of
    /// Scalable Persistent Memory", FAST 2020. The size of the write queue is an assumption: as large
    /// as the buffer in a module that they estimate.
    pub const OPTANE: NvmModel = NvmModel {
        read_ns: 305,
        write_ns: 90,
        read_bytes_per_second: 6_800_000_000,
        write_bytes_per_second: 2_300_000_000,
        write_queue_bytes: 16 << 10,
        remote_percent: 190,
        modules: Modules::One,
    };
    /// The modules of a socket, as pNOVA was measured with: six, interleaved.
    pub const OPTANE_INTERLEAVED: NvmModel = NvmModel {
        modules: Modules::Interleaved(6),
        ..NvmModel::OPTANE
    };
    /// The same six modules, not interleaved.
    pub const OPTANE_SEPARATE: NvmModel = NvmModel {
        modules: Modules::Separate(6),
        ..NvmModel::OPTANE
    };
}

/// What is copied.
#[derive(Debug, Clone, Copy)]
pub(super) enum Copy {
    /// So many bytes from the medium.
    Read(usize),
    /// So many bytes to it.
    Write(usize),
}

/// Until when a module is busy, in nanoseconds of the clock; written by every task that copies.
#[derive(Debug, Default)]
struct Module {
    reading: CachePadded<AtomicU64>,
    /// Until its queue is empty.
    writing: CachePadded<AtomicU64>,
}

/// The pace of one medium.
#[derive(Debug)]
pub(super) struct Pace {
    model: NvmModel,
    modules: Box<[Module]>,
    /// Of the medium.
    blocks: u64,
}

impl Pace {
    /// The pace of a medium of `blocks` blocks.
    pub(super) fn new(model: NvmModel, blocks: u64) -> Pace {
        Pace {
            modules: (0..model.modules.count())
                .map(|_| Module::default())
                .collect(),
            model,
            blocks,
        }
    }

    /// The pace of these blocks, if they have a model.
    pub(super) fn of(blocks: &NvmBlocks) -> Option<Box<Pace>> {
        let model = blocks.model()?;
        Some(Box::new(Pace::new(model, blocks.blocks())))
    }

    /// Copies by `run` from or to block `at` on, and returns when the copy is done, also by the model.
    pub(super) fn around<T>(
        &self,
        at: Lba,
        copy: Copy,
        is_remote: bool,
        run: impl FnOnce() -> T,
    ) -> T {
        let due = self.due_ns(at, copy, clock::monotonic_ns(), is_remote);
        let done = run();
        while clock::monotonic_ns() < due {
            thread::spin_hint();
        }
        done
    }

    /// When the last part of a copy is done: its blocks may be on several modules.
    fn due_ns(&self, at: Lba, copy: Copy, begin_ns: u64, is_remote: bool) -> u64 {
        let due = |module, bytes| self.module_due_ns(module, copy, bytes, begin_ns, is_remote);
        let mut left = match copy {
            Copy::Read(bytes) | Copy::Write(bytes) => bytes,
        };
        if self.modules.len() == 1 {
            return due(0, left);
        }
        let (mut lba, mut latest) = (at.number(), begin_ns);
        while left > 0 {
            let bytes = left.min(BLOCK_BYTES);
            latest = latest.max(due(self.model.modules.of(lba, self.blocks), bytes));
            lba += 1;
            left -= bytes;
        }
        latest
    }

    fn module_due_ns(
        &self,
        module: u64,
        copy: Copy,
        bytes: usize,
        begin_ns: u64,
        is_remote: bool,
    ) -> u64 {
        let model = &self.model;
        let module = &self.modules[usize::try_from(module).expect("few modules")];
        let transfer = |bytes: u64, rate: u64| bytes.saturating_mul(1_000_000_000) / rate.max(1);
        let (latency, rate, busy, queue_ns) = match copy {
            Copy::Read(_) => {
                let rate = model.read_bytes_per_second;
                (model.read_ns, rate, &module.reading, 0)
            }
            Copy::Write(_) => {
                let rate = model.write_bytes_per_second;
                let queue_ns = transfer(model.write_queue_bytes, rate);
                (model.write_ns, rate, &module.writing, queue_ns)
            }
        };
        let scaled = |ns: u64| {
            let percent = if is_remote { model.remote_percent } else { 100 };
            ns.saturating_mul(percent) / 100
        };
        let bytes = u64::try_from(bytes).expect("a usize fits in 64 bits");
        let transfer = scaled(transfer(bytes, rate));
        let after = |until: u64| Some(until.max(begin_ns).saturating_add(transfer));
        // Relaxed: only the number counts.
        let before = busy.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
        let until = before.expect("the update always has a value").max(begin_ns);
        // In the queue when no more than it holds is left to be written.
        let taken_in = (until + transfer).saturating_sub(queue_ns).max(begin_ns);
        taken_in.saturating_add(scaled(latency))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: NvmModel = NvmModel {
        read_ns: 300,
        write_ns: 100,
        read_bytes_per_second: 4_000_000_000,
        write_bytes_per_second: 2_000_000_000,
        write_queue_bytes: 8000,
        remote_percent: 200,
        modules: Modules::One,
    };

    fn read(pace: &Pace, bytes: usize, begin_ns: u64) -> u64 {
        pace.due_ns(Lba::new(0), Copy::Read(bytes), begin_ns, false)
    }

    fn write(pace: &Pace, lba: u64, begin_ns: u64) -> u64 {
        pace.due_ns(Lba::new(lba), Copy::Write(4000), begin_ns, false)
    }

    #[test]
    fn copies_share_the_bandwidth_and_overlap_in_their_latencies() {
        let pace = Pace::new(MODEL, 60);
        assert_eq!(read(&pace, 4000, 1000), 1000 + 1000 + 300);
        // The second one waits for the bus, not for the first one's latency.
        assert_eq!(read(&pace, 4000, 1000), 2000 + 1000 + 300);
        // Writes have a bus of their own; one that has been idle is free.
        assert_eq!(write(&pace, 0, 1000), 1000 + 100);
        assert_eq!(read(&pace, 400, 9000), 9000 + 100 + 300);
    }

    #[test]
    fn a_write_queue_takes_a_burst_and_then_fills() {
        let pace = Pace::new(MODEL, 60);
        // Two writes fit into the queue, which a write of 4000 bytes leaves in 2000 ns.
        assert_eq!([write(&pace, 0, 0), write(&pace, 0, 0)], [100, 100]);
        // It is full: each more waits until one is written.
        assert_eq!(write(&pace, 0, 0), 2000 + 100);
        assert_eq!(write(&pace, 0, 0), 4000 + 100);
        // From then on the module's bandwidth is all there is, from however many tasks.
        let last = (0..100).map(|_| write(&pace, 0, 0)).max();
        assert_eq!(last, Some(102 * 2000 + 100));
        // An empty queue takes a burst again.
        assert_eq!(write(&pace, 0, 1_000_000), 1_000_100);
    }

    /// Six modules write six times as much, if writes go to all of them.
    #[test]
    fn interleaved_modules_fill_together_and_separate_ones_one_by_one() {
        let pace = |modules| Pace::new(NvmModel { modules, ..MODEL }, 60);
        let last = |modules, blocks| {
            let pace = pace(modules);
            (0..blocks).map(|lba| write(&pace, lba, 0)).max()
        };
        assert_eq!(last(Modules::One, 60), Some(58 * 2000 + 100));
        for six in [Modules::Interleaved(6), Modules::Separate(6)] {
            assert_eq!(last(six, 60), Some(8 * 2000 + 100));
        }
        // The first ten blocks are those of one of the separate modules.
        assert_eq!(last(Modules::Separate(6), 10), last(Modules::One, 10));
        assert_eq!(last(Modules::Interleaved(6), 10), Some(100));
        // A long copy is done when its last module is.
        let pace = pace(Modules::Interleaved(6));
        let long = Copy::Read(12 * BLOCK_BYTES);
        let two_blocks = 2 * 1024;
        assert_eq!(pace.due_ns(Lba::new(7), long, 0, false), two_blocks + 300);
    }

    #[test]
    fn a_copy_of_another_node_takes_so_much_longer() {
        let pace = Pace::new(MODEL, 60);
        let copy = Copy::Read(4000);
        assert_eq!(pace.due_ns(Lba::new(0), copy, 0, true), 2 * (1000 + 300));
    }

    #[test]
    fn who_waits_returns_behind_the_time_of_the_model() {
        let pace = Pace::new(MODEL, 60);
        let begin = clock::monotonic_ns();
        pace.around(Lba::new(0), Copy::Write(28_000), false, || ());
        assert!(clock::monotonic_ns() >= begin + 10_100, "20 KB at 2 GB/s");
    }
}

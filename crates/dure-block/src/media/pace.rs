//! Emulated persistent memory at the pace of a module.
//!
//! **Problem.** Emulated memory is as fast as DRAM. What a slower medium would change, such as where
//! writers stop gaining from more cores, or what another NUMA node costs, does not show.
//! **Structure.** A [`NvmModel`] says how long a copy takes; [`Pace`] keeps, per medium and
//! direction, until when its modelled bus is busy. The copying task spins until the model's copy would
//! be done. **Invariants.** Copies share the bandwidth of a medium and overlap in their latencies; a
//! copy is never faster than the model, nor than the real one. The words of the busy bus are
//! lines that all cores write: a model for measurements, which is off unless asked for.
//! **Crash.** Nothing is kept.

use dure_sync::CachePadded;
use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::{clock, thread};

/// How fast a module of persistent memory is.
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
    /// Time of a copy from or to another NUMA node, in percent of one on the own node.
    pub remote_percent: u64,
}

impl NvmModel {
    /// One module of Intel Optane of 256 GB: 6.8 GB/s read, 2.3 GB/s written, distances of NUMA
    /// nodes 11 and 21 (the measurements published for pNOVA); idle latencies of a random read and
    /// of a non-temporal store after Yang et al., "An Empirical Guide to the Behavior and Use of
    /// Scalable Persistent Memory", FAST 2020.
    pub const OPTANE: NvmModel = NvmModel {
        read_ns: 305,
        write_ns: 90,
        read_bytes_per_second: 6_800_000_000,
        write_bytes_per_second: 2_300_000_000,
        remote_percent: 190,
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

/// The pace of one medium.
#[derive(Debug)]
pub(super) struct Pace {
    model: NvmModel,
    /// Until when the bus is busy, in nanoseconds of the clock; written by every task that copies.
    read_busy_until: CachePadded<AtomicU64>,
    write_busy_until: CachePadded<AtomicU64>,
}

impl Pace {
    pub(super) fn new(model: NvmModel) -> Pace {
        Pace {
            model,
            read_busy_until: CachePadded::new(AtomicU64::new(0)),
            write_busy_until: CachePadded::new(AtomicU64::new(0)),
        }
    }

    /// Copies by `run`, and returns when the copy is done, also by the model.
    pub(super) fn around<T>(&self, copy: Copy, is_remote: bool, run: impl FnOnce() -> T) -> T {
        let due = self.due_ns(copy, clock::monotonic_ns(), is_remote);
        let done = run();
        while clock::monotonic_ns() < due {
            thread::spin_hint();
        }
        done
    }

    fn due_ns(&self, copy: Copy, begin_ns: u64, is_remote: bool) -> u64 {
        let model = &self.model;
        let (bytes, latency, rate, busy) = match copy {
            Copy::Read(bytes) => {
                let rate = model.read_bytes_per_second;
                (bytes, model.read_ns, rate, &self.read_busy_until)
            }
            Copy::Write(bytes) => {
                let rate = model.write_bytes_per_second;
                (bytes, model.write_ns, rate, &self.write_busy_until)
            }
        };
        let scaled = |ns: u64| {
            let percent = if is_remote { model.remote_percent } else { 100 };
            ns.saturating_mul(percent) / 100
        };
        let bytes = u64::try_from(bytes).expect("a usize fits in 64 bits");
        let transfer = scaled(bytes.saturating_mul(1_000_000_000) / rate.max(1));
        let after = |until: u64| Some(until.max(begin_ns).saturating_add(transfer));
        // Relaxed: only the number counts.
        let before = busy.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
        let until = before.expect("the update always has a value").max(begin_ns);
        until.saturating_add(transfer + scaled(latency))
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
        remote_percent: 200,
    };

    #[test]
    fn copies_share_the_bandwidth_and_overlap_in_their_latencies() {
        let pace = Pace::new(MODEL);
        assert_eq!(
            pace.due_ns(Copy::Read(4000), 1000, false),
            1000 + 1000 + 300
        );
        // The second one waits for the bus, not for the first one's latency.
        assert_eq!(
            pace.due_ns(Copy::Read(4000), 1000, false),
            2000 + 1000 + 300
        );
        // Writes have a bus of their own; one that has been idle is free.
        assert_eq!(
            pace.due_ns(Copy::Write(4000), 1000, false),
            1000 + 2000 + 100
        );
        assert_eq!(pace.due_ns(Copy::Read(400), 9000, false), 9000 + 100 + 300);
    }

    #[test]
    fn a_copy_of_another_node_takes_so_much_longer() {
        let pace = Pace::new(MODEL);
        assert_eq!(pace.due_ns(Copy::Read(4000), 0, true), 2 * (1000 + 300));
    }

    #[test]
    fn who_waits_returns_behind_the_time_of_the_model() {
        let pace = Pace::new(MODEL);
        let begin = clock::monotonic_ns();
        pace.around(Copy::Write(20_000), false, || ());
        assert!(clock::monotonic_ns() >= begin + 10_100, "10 us at 2 GB/s");
    }
}

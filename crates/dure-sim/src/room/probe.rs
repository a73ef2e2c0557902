//! What a worker tells the machine it runs on: a virtual one counts, a real one does not.

#[cfg(dure_backend = "sim")]
mod chosen {
    use std::ops::Range;
    use std::time::Duration;

    use dure_sync::sim::{self, Account};

    pub(in crate::room) type Counts = Account;

    pub(in crate::room) fn measure_within(start_ns: u64, stop_ns: u64) {
        sim::measure_within(start_ns, stop_ns);
        sim::measure(true);
    }

    pub(in crate::room) fn counts() -> Counts {
        sim::measured().unwrap_or_default()
    }

    pub(in crate::room) fn set_pace(picoseconds: u64) {
        sim::set_pace(picoseconds);
    }

    pub(in crate::room) fn place_persistent(addresses: Range<usize>, socket: usize) {
        sim::place_persistent(addresses, socket);
    }

    /// Lets so much time pass.
    pub(in crate::room) fn delay(ns: u64) {
        sim::charge(Duration::from_nanos(ns));
    }
}

#[cfg(not(dure_backend = "sim"))]
mod chosen {
    /// Nothing.
    #[derive(Debug)]
    pub(in crate::room) struct Counts;

    pub(in crate::room) fn measure_within(_start_ns: u64, _stop_ns: u64) {}

    pub(in crate::room) fn counts() -> Counts {
        Counts
    }

    pub(in crate::room) fn set_pace(_picoseconds: u64) {}

    pub(in crate::room) fn place_persistent(_addresses: std::ops::Range<usize>, _socket: usize) {}

    /// Nothing: real cores are never in step.
    pub(in crate::room) fn delay(_ns: u64) {}
}

pub(super) use chosen::*;

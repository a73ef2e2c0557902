//! What the pieces cost without contention:
//! `cargo run --release -p dure-sync --example lock_cost`.
#![expect(clippy::print_stdout, reason = "it is a program")]

use std::hint::black_box;

use dure_sync::range_lock::{ByteRange, Config, Policy, RangeLock};
use dure_sync::{Condvar, Counter, Mutex, OnceLock, RwLock, clock, core_count, current_core};

const TURNS: u64 = 5_000;
const RUNS: u64 = 500;

fn main() {
    let lock: Mutex<10, u64> = Mutex::new(0);
    let shared: RwLock<10, u64> = RwLock::new(0);
    let counter = Counter::new();
    let once = OnceLock::new();
    once.get_or_init(|| 1_u64);
    let nobody = Condvar::new();
    println!("{} cores", core_count());
    measure("nothing", || ());
    measure("mutex lock and unlock", || *lock.lock() += 1);
    measure("read lock and unlock", || *shared.read());
    measure("write lock and unlock", || *shared.write() += 1);
    for policy in Policy::ALL {
        let file: RangeLock<10> = RangeLock::new(Config::new(policy));
        let page = ByteRange::new(8192, 4096).expect("not empty");
        let name = |what: &str| format!("{what} {policy}");
        measure(&name("write page"), || drop(file.write(page)));
        measure(&name("read page"), || drop(file.read(page)));
        let many = ByteRange::new(65536, 65536).expect("not empty");
        measure(&name("write 16 pages"), || drop(file.write(many)));
        let endless = ByteRange::from_offset(8192);
        measure(&name("write to infinity"), || drop(file.write(endless)));
    }
    measure("once get", || once.get().copied());
    measure("notify nobody", || nobody.notify_one());
    measure("current core", current_core);
    measure("counter add", || counter.add(1));
    measure("monotonic clock", clock::monotonic_ns);
    measure("coarse time of day", clock::wall_coarse);
}

/// Prints the time of the fastest of many short runs: what the piece costs when nobody else has
/// the core.
fn measure<R>(what: &str, mut act: impl FnMut() -> R) {
    let run = |_| {
        let start = clock::monotonic_ns();
        (0..TURNS).for_each(|_| {
            black_box(act());
        });
        (clock::monotonic_ns() - start) * 1_000 / TURNS
    };
    let picoseconds = (0..RUNS).map(run).min().expect("at least one run");
    println!(
        "{what:24} {:4}.{:01} ns",
        picoseconds / 1_000,
        picoseconds % 1_000 / 100
    );
}

//! Measures how fast the machine runs: `cargo run --release -p dure-vcpu --example switch_rate`.
#![expect(clippy::print_stdout, reason = "it is a program")]
#![expect(
    clippy::disallowed_methods,
    reason = "it measures the simulator itself in real time"
)]

use std::time::Instant;

use dure_vcpu::{Access, Config, LineAllocator, Schedule, access, join, run, spawn};

#[global_allocator]
static ALLOCATOR: LineAllocator = LineAllocator(std::alloc::System);

fn main() {
    for (name, cores, schedule) in [
        ("min-clock", 80, Schedule::MinClock { ahead_ns: 0 }),
        (
            "min-clock, 100 ns ahead",
            80,
            Schedule::MinClock { ahead_ns: 100 },
        ),
        ("min-clock", 1, Schedule::MinClock { ahead_ns: 0 }),
        ("random", 8, Schedule::Random),
        (
            "stall",
            8,
            Schedule::Stall {
                every: 50,
                ns: 50_000,
            },
        ),
    ] {
        for shared in [false, true] {
            let start = Instant::now();
            let report = run(Config::new(cores, 1, schedule), move || {
                let common = Box::leak(Box::new(0_u64));
                let common = std::ptr::from_ref(common).addr();
                let tasks: Vec<_> = (0..cores)
                    .map(|core| {
                        spawn("worker", Some(core), move || {
                            let own = Box::new(0_u64);
                            let own = std::ptr::from_ref(&*own).addr();
                            let word = if shared { common } else { own };
                            (0..2_000_000 / cores).for_each(|_| access(Access::Update, word));
                        })
                    })
                    .collect();
                tasks.into_iter().for_each(join);
            })
            .report;
            let seconds = start.elapsed().as_secs_f64();
            let per_second =
                |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / seconds / 1e6;
            println!(
                "{cores:3} cores, {name:24} {:12}: {:5.1} M operations/s, {:5.1} M switches/s, hash {:016x}",
                if shared { "one line" } else { "own lines" },
                per_second(report.steps),
                per_second(report.switches),
                report.schedule_hash,
            );
        }
    }
}

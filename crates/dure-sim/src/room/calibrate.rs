//! The file of the machine at hand.
//!
//! **Structure.** Each figure is measured by a loop of its own on one or two cores, the fastest of
//! [`ROUNDS`] rounds; what cannot be measured is assumed, and says so. The time of an instruction is
//! that of calls whose instructions are counted, on one core. **Invariants.** Sources name what was
//! measured. **Crash.** Nothing is kept.

use std::hint::black_box;
use std::time::Duration;

use dure_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use dure_sync::futex::{wait, wake};
use dure_sync::{CachePadded, CoreId, Topology, clock, core_count, thread};

use super::instructions::of_work;
use super::stage::{Window, play};
use super::{FIGURES, Machine, Plan, Policy, Workload};

/// Rounds of each loop.
const ROUNDS: u32 = 9;

/// Seconds as a number of ns, of the fastest round, for each of `count` turns.
fn fastest(count: u64, mut round: impl FnMut()) -> f64 {
    let mut best = u64::MAX;
    for _ in 0..ROUNDS {
        let begin = clock::monotonic_ns();
        round();
        best = best.min(clock::monotonic_ns() - begin);
    }
    ratio(best, count)
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive figures, rounded"
)]
fn whole(figure: f64) -> u64 {
    figure.max(0.0).round() as u64
}

/// Runs both at once, on two cores; returns the ns that both together took for one of `count` turns.
fn both(cores: (u16, u16), count: u64, first: impl Fn() + Sync, second: impl Fn() + Sync) -> f64 {
    fastest(count, || {
        let come = AtomicU32::new(0);
        let meet = || {
            come.fetch_add(1, Ordering::AcqRel);
            while come.load(Ordering::Acquire) < 2 {
                thread::spin_hint();
            }
        };
        thread::scope(|scope| {
            scope.spawn_on(CoreId::new(cores.0), || {
                meet();
                first();
            });
            scope.spawn_on(CoreId::new(cores.1), || {
                meet();
                second();
            });
        });
    })
}

const TURNS: u64 = 100_000;

/// A locked operation on a line of one's own.
fn locked_ns() -> f64 {
    let word = AtomicU64::new(0);
    fastest(TURNS, || {
        for _ in 0..TURNS {
            word.fetch_add(1, Ordering::AcqRel);
        }
    })
}

/// A word goes to and fro: each turn moves the line four times.
fn transfer_ns(cores: (u16, u16)) -> f64 {
    let word = CachePadded::new(AtomicU64::new(0));
    let side = |own: u64| {
        let word = &word;
        move || {
            for turn in 0..TURNS {
                while word.load(Ordering::Acquire) != 2 * turn + own {
                    std::hint::spin_loop();
                }
                word.store((2 * turn + own + 1) % (2 * TURNS), Ordering::Release);
            }
        }
    };
    both(cores, TURNS, side(0), side(1)) / 4.0
}

/// How long a core keeps a line that another one wants, from how often two cores can add to a word:
/// while it keeps it, it adds once more each `locked` ns.
fn hold_ns(cores: (u16, u16), transfer: f64, locked: f64) -> f64 {
    let word = CachePadded::new(AtomicU64::new(0));
    let add = || {
        for _ in 0..TURNS {
            word.fetch_add(1, Ordering::AcqRel);
        }
    };
    let each = both(cores, 2 * TURNS, add, add);
    // (1 + hold / locked) additions in (transfer + hold) ns.
    let rate = 1.0 / each.max(locked * 1.01);
    ((rate * transfer - 1.0) / (1.0 / locked - rate)).clamp(0.0, 200.0)
}

fn wake_ns(cores: (u16, u16), call: f64) -> f64 {
    const WAKES: u64 = 2_000;
    let words = [(); 2].map(|()| CachePadded::new(AtomicU32::new(0)));
    let sleep = |word: &AtomicU32, turn: u32| {
        while word.load(Ordering::Acquire) < turn {
            wait(word, turn - 1, Some(Duration::from_millis(100)));
        }
    };
    let turns = || 1..=u32::try_from(WAKES).expect("few");
    let tell = |word: &AtomicU32| {
        word.fetch_add(1, Ordering::AcqRel);
        wake(word, 1);
    };
    let first = || {
        let begin = words[1].load(Ordering::Acquire);
        for turn in turns() {
            tell(&words[0]);
            sleep(&words[1], begin + turn);
        }
    };
    let second = || {
        let begin = words[1].load(Ordering::Acquire);
        for turn in turns() {
            sleep(&words[0], begin + turn);
            tell(&words[1]);
        }
    };
    (both(cores, 2 * WAKES, first, second) - 2.0 * call).max(0.0)
}

fn switch_ns(call: f64) -> f64 {
    const YIELDS: u64 = 20_000;
    let give_way = || (0..YIELDS).for_each(|_| thread::yield_now());
    (both((0, 0), 2 * YIELDS, give_way, give_way) - call).max(0.0)
}

const PAGE: usize = 4096;
/// More than caches hold, mostly.
const LARGE: usize = 256 << 20;

/// MB/s of copies of pages into `bytes` of memory, on so many cores together.
fn copy_mb_s(bytes: usize, cores: usize, pages: u64) -> f64 {
    let page = vec![7_u8; PAGE];
    let copies = |core: usize| {
        let mut large = vec![1_u8; bytes];
        let mut at = core * PAGE * 7919;
        let mut best = u64::MAX;
        for _ in 0..ROUNDS {
            let begin = clock::monotonic_ns();
            for _ in 0..pages {
                // A stride that prefetchers do not follow, over all of it.
                at = (at + 7919 * PAGE) % bytes;
                large[at..at + PAGE].copy_from_slice(black_box(&page));
            }
            best = best.min(clock::monotonic_ns() - begin);
        }
        black_box(&large);
        ratio(pages * 4096 * 1_000, best)
    };
    thread::scope(|scope| {
        let started: Vec<_> = (0..cores)
            .map(|core| {
                let number = CoreId::new(u16::try_from(core).expect("few"));
                let copies = &copies;
                scope.spawn_on(number, move || copies(core))
            })
            .collect();
        let rates = started.into_iter().map(|thread| thread.join());
        rates.map(|rate| rate.expect("it only copies")).sum()
    })
}

/// Workloads whose instructions are counted and that share nothing.
const TIMED: [Workload; 4] = [
    Workload::Mrpl,
    Workload::Mwcl,
    Workload::Mwul,
    Workload::Mwrl,
];

/// Picoseconds of an instruction: the middle of what these workloads take on one core.
fn instruction_ps(machine: &Machine) -> anyhow::Result<u64> {
    let mut times = Vec::new();
    for workload in TIMED {
        let plan = Plan {
            machine: machine.clone(),
            workload,
            policy: Policy::default(),
            cores: 1,
            seed: 1,
            planted: None,
        };
        let window = Window {
            warm_ns: 1_000_000,
            run_ns: 4_000_000,
            fill: 8_000,
        };
        let mut best = f64::MAX;
        for _ in 0..ROUNDS {
            let done = play(&plan, 1, window, 0)?;
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
            let ns = done.mean_ns / done.works as f64;
            best = best.min(ns);
        }
        let instructions = of_work(workload, &plan.policy).expect("these are counted");
        times.push(best * 1_000.0 / ratio(instructions, 1));
    }
    times.sort_by(f64::total_cmp);
    Ok(whole(f64::midpoint(times[1], times[2])))
}

fn measured(what: &str) -> String {
    format!("measured by `dure sim calibrate`: {what}, the fastest of {ROUNDS} rounds")
}

/// The two cores that are measured, and another pair on two sockets if there is one.
fn pairs() -> anyhow::Result<((u16, u16), Option<(u16, u16)>)> {
    let topology = Topology::system();
    let all = 0..u16::try_from(core_count())?;
    let node = |core: u16| topology.node_of(CoreId::new(core));
    let near = all.clone().skip(1).find(|core| node(*core) == node(0));
    let far = all.clone().skip(1).find(|core| node(*core) != node(0));
    let near = near.ok_or_else(|| anyhow::anyhow!("one core: what two do cannot be measured"))?;
    Ok(((0, near), far.map(|core| (0, core))))
}

/// Measures the machine at hand.
///
/// # Errors
/// It has one core only, or a call of the volume in memory failed.
pub fn calibrate() -> anyhow::Result<Machine> {
    let (near, far) = pairs()?;
    let nodes = u64::try_from(Topology::system().nodes().len())?;
    let cores = u64::try_from(core_count())?;
    let call = fastest(TURNS, || {
        (0..TURNS).for_each(|_| {
            black_box(rustix::process::getppid());
        });
    });
    let hint = fastest(TURNS, || (0..TURNS).for_each(|_| std::hint::spin_loop()));
    let (locked, transfer) = (locked_ns(), transfer_ns(near));
    let cross = far.map_or(transfer, transfer_ns);
    let cached = copy_mb_s(16 * PAGE, 1, 20_000);
    let memory = copy_mb_s(LARGE, 1, 20_000);
    let together = copy_mb_s(LARGE, core_count(), 20_000) / ratio(nodes, 1);
    let all_cores = "what the system says of its cores and NUMA nodes".to_owned();
    let figures = [
        ("cores.sockets", nodes, all_cores.clone()),
        ("cores.per_socket", cores.div_ceil(nodes), all_cores),
        (
            "cores.locked_ns",
            whole(locked),
            measured("fetch_add on a line of its own"),
        ),
        (
            "cores.load_ns",
            1,
            "assumed: less than can be measured".to_owned(),
        ),
        ("cores.spin_hint_ns", whole(hint), measured("PAUSE")),
        (
            "lines.same_socket_ns",
            whole(transfer),
            measured("a quarter of a word's way to and fro"),
        ),
        (
            "lines.cross_socket_ns",
            whole(cross),
            match far {
                Some(_) => measured("the same between two NUMA nodes"),
                None => "one NUMA node: as within it".to_owned(),
            },
        ),
        ("lines.third_node_ns", 0, "assumed: not measured".to_owned()),
        (
            "lines.hold_ns",
            whole(hold_ns(near, transfer, locked)),
            measured("from the rate at which two cores add to one word"),
        ),
        (
            "lines.read_share_ns",
            7,
            "assumed: readers of a clean line overlap but for 6 to 8 ns".to_owned(),
        ),
        ("kernel.call_ns", whole(call), measured("getppid")),
        (
            "kernel.wake_ns",
            whole(wake_ns(near, call)),
            measured("futex wake-ups to and fro, less the calls"),
        ),
        (
            "kernel.switch_ns",
            whole(switch_ns(call)),
            measured("two threads of a core that yield"),
        ),
        (
            "kernel.slice_ns",
            3_000_000,
            "Linux: 3 ms, the base slice of its scheduler".to_owned(),
        ),
        (
            "copy.cached_mb_s",
            whole(cached),
            measured("copies of 4 KiB within 64 KiB"),
        ),
        (
            "copy.memory_mb_s",
            whole(memory),
            measured("copies of 4 KiB into 256 MiB"),
        ),
        (
            "copy.socket_mb_s",
            whole(together),
            measured("the same on all cores, by NUMA nodes"),
        ),
    ];
    let mut machine = Machine::of_figures("this machine", &figures).map_err(anyhow::Error::msg)?;
    let ps = instruction_ps(&machine)?;
    let names: Vec<&str> = TIMED.iter().map(|workload| workload.name()).collect();
    let what = format!(
        "the middle of {}, by the instructions of docs/performance/cost.md",
        names.join(", ")
    );
    let place = FIGURES
        .iter()
        .position(|figure| figure.name == "cores.instruction_ps");
    let place = place.expect("a figure of the list");
    machine.instruction_ps = ps.max(1);
    machine.sources[place] = measured(&what);
    Ok(machine)
}

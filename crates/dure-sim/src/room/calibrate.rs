//! The file of the machine at hand.
//!
//! **Structure.** Each figure is measured by a loop of its own on one or two cores, the fastest of
//! several rounds; what cannot be measured is assumed, and says so. The times of an instruction are
//! those of calls whose instructions are counted, on one core. **Invariants.** Sources name what was
//! measured. **Crash.** Nothing is kept.

use std::hint::black_box;
use std::time::Duration;

use dure_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use dure_sync::futex::{wait, wake};
use dure_sync::{CachePadded, CoreId, Topology, clock, core_count, thread};

use super::instructions::of_work;
use super::{FIGURES, Machine, Plan, Policy, Work, Workload, measure};

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

/// Rounds of two cores. They are short, so that one of them falls into a moment when both cores have
/// nothing else to do.
const SHORT_ROUNDS: u32 = 200;

/// Which round counts.
#[derive(Debug, Clone, Copy)]
enum Pick {
    /// Of what others on the machine can only slow.
    Fastest,
    /// Of what two cores do to each other: in the fastest round one of them was not there.
    Middle,
}

/// Runs both at once, on two cores; the ns that the first one took for each of `count` turns.
fn both(
    cores: (u16, u16),
    count: (u64, Pick),
    first: impl Fn() + Sync,
    second: impl Fn() + Sync,
) -> f64 {
    let come = AtomicU32::new(0);
    // Both arrive once a round.
    let meet = |round: u32| {
        come.fetch_add(1, Ordering::AcqRel);
        let mut turns = 0_u32;
        while come.load(Ordering::Acquire) < 2 * (round + 1) {
            turns += 1;
            // They may be on one core.
            if turns.is_multiple_of(1024) {
                thread::yield_now();
            }
        }
    };
    let mut times = thread::scope(|scope| {
        let timed = scope.spawn_on(CoreId::new(cores.0), || {
            let mut times = Vec::new();
            for round in 0..SHORT_ROUNDS {
                meet(round);
                let begin = clock::monotonic_ns();
                first();
                times.push(clock::monotonic_ns() - begin);
            }
            times
        });
        scope.spawn_on(CoreId::new(cores.1), || {
            for round in 0..SHORT_ROUNDS {
                meet(round);
                second();
            }
        });
        timed.join().expect("it only takes times")
    });
    times.sort_unstable();
    let (count, pick) = count;
    let place = match pick {
        Pick::Fastest => 0,
        Pick::Middle => times.len() / 2,
    };
    ratio(times[place], count)
}

/// Turns of two cores in a round.
const SHORT_TURNS: u64 = 2_000;
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
            for turn in 0..SHORT_TURNS {
                while word.load(Ordering::Acquire) != 2 * turn + own {
                    std::hint::spin_loop();
                }
                word.store((2 * turn + own + 1) % (2 * SHORT_TURNS), Ordering::Release);
            }
        }
    };
    both(cores, (SHORT_TURNS, Pick::Fastest), side(0), side(1)) / 4.0
}

/// How long a core keeps a line that another one wants, from how often two cores can add to a word:
/// while it keeps it, it adds once more each `locked` ns.
fn hold_ns(cores: (u16, u16), transfer: f64, locked: f64) -> f64 {
    let word = CachePadded::new(AtomicU64::new(0));
    let add = || {
        for _ in 0..SHORT_TURNS {
            word.fetch_add(1, Ordering::AcqRel);
        }
    };
    let each = both(cores, (SHORT_TURNS, Pick::Middle), add, add) / 2.0;
    // (1 + hold / locked) additions in (transfer + hold) ns.
    let rate = 1.0 / each.max(locked * 1.01);
    ((rate * transfer - 1.0) / (1.0 / locked - rate)).clamp(0.0, 200.0)
}

fn wake_ns(cores: (u16, u16), call: f64) -> f64 {
    const WAKES: u64 = 20;
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
    (both(cores, (2 * WAKES, Pick::Middle), first, second) - 2.0 * call).max(0.0)
}

fn switch_ns(call: f64) -> f64 {
    const YIELDS: u64 = 200;
    let give_way = || (0..YIELDS).for_each(|_| thread::yield_now());
    (both((0, 0), (2 * YIELDS, Pick::Middle), give_way, give_way) - call).max(0.0)
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

/// Workloads on cached memory, of which the times of instructions are taken.
const HOT: [Workload; 2] = [Workload::Drbl, Workload::Mrpl];
/// Workloads that make and remove something.
const NEW: [Workload; 2] = [Workload::Mwcl, Workload::Mwul];

/// Picoseconds of an instruction: the mean of what these workloads take on one core.
fn instruction_ps(machine: &Machine, workloads: [Workload; 2]) -> anyhow::Result<u64> {
    let mut sum = 0.0;
    for workload in workloads {
        let plan = Plan {
            machine: machine.clone(),
            work: Work::Calls(workload, Policy::default()),
            cores: 1,
            seed: 1,
            planted: None,
        };
        let rate = measure(&plan, 3 * ROUNDS)?.fastest();
        let work = of_work(&plan.work).expect("these are counted");
        // A read copies a page, within the caches.
        let copied = if workload == Workload::Drbl { 4096 } else { 0 };
        let copying_ps = ratio(copied * 1_000_000, machine.costs.copy_mb_s);
        sum += (1e12 / rate - copying_ps) / ratio(work.instructions(), 1);
    }
    Ok(whole(sum / 2.0).max(1))
}

/// Enters times of instructions, and where they are from.
fn enter(machine: &mut Machine, name: &str, workloads: [Workload; 2]) -> anyhow::Result<()> {
    let ps = instruction_ps(machine, workloads)?;
    let [first, second] = workloads.map(Workload::name);
    let what = format!("{first} and {second}, by the instructions of docs/performance/cost.md");
    let place = FIGURES.iter().position(|figure| figure.name == name);
    machine.sources[place.expect("a figure of the list")] = measured(&what);
    match name {
        "cores.instruction_ps" => machine.instruction_ps = ps,
        _ => machine.instruction_new_ps = ps,
    }
    Ok(())
}

fn measured(what: &str) -> String {
    format!(
        "measured by `dure sim calibrate`: {what}, the fastest of {ROUNDS} rounds or more, of locks and wake-ups the middle"
    )
}

/// Two cores.
type Pair = (u16, u16);

/// The two cores that are measured, and another pair on two sockets if there is one.
fn pairs() -> anyhow::Result<(Pair, Option<Pair>)> {
    let topology = Topology::system();
    let all = 0..u16::try_from(core_count())?;
    let node = |core: u16| topology.node_of(CoreId::new(core));
    let near = all.clone().skip(1).find(|core| node(*core) == node(0));
    let far = all.clone().skip(1).find(|core| node(*core) != node(0));
    let near = near.ok_or_else(|| anyhow::anyhow!("one core: what two do cannot be measured"))?;
    Ok(((0, near), far.map(|core| (0, core))))
}

type Entry = (&'static str, u64, String);

fn cores() -> anyhow::Result<Vec<Entry>> {
    let nodes = u64::try_from(Topology::system().nodes().len())?;
    let cores = u64::try_from(core_count())?;
    let hint = fastest(TURNS, || (0..TURNS).for_each(|_| std::hint::spin_loop()));
    let said = || "what the system says of its cores and NUMA nodes".to_owned();
    let own = measured("fetch_add on a line of its own");
    let least = "assumed: less than can be measured".to_owned();
    Ok(vec![
        ("cores.sockets", nodes, said()),
        ("cores.per_socket", cores.div_ceil(nodes), said()),
        ("cores.locked_ns", whole(locked_ns()), own),
        ("cores.load_ns", 1, least),
        ("cores.spin_hint_ns", whole(hint), measured("PAUSE")),
    ])
}

fn lines() -> anyhow::Result<Vec<Entry>> {
    let (near, far) = pairs()?;
    let transfer = transfer_ns(near);
    let hold = hold_ns(near, transfer, locked_ns());
    let (cross, between) = match far {
        Some(far) => (
            transfer_ns(far),
            measured("the same between two NUMA nodes"),
        ),
        None => (transfer, "one NUMA node: as within it".to_owned()),
    };
    let shared = "assumed: readers of a clean line overlap but for 6 to 8 ns".to_owned();
    let within = measured("a quarter of a word's way to and fro");
    let kept = measured("from the rate at which two cores add to one word");
    Ok(vec![
        ("lines.same_socket_ns", whole(transfer), within),
        ("lines.cross_socket_ns", whole(cross), between),
        ("lines.third_node_ns", 0, "assumed: not measured".to_owned()),
        ("lines.hold_ns", whole(hold), kept),
        ("lines.read_share_ns", 7, shared),
    ])
}

fn kernel() -> anyhow::Result<Vec<Entry>> {
    let (near, _) = pairs()?;
    let call = fastest(TURNS, || {
        (0..TURNS).for_each(|_| {
            black_box(rustix::process::getppid());
        });
    });
    let wake = measured("futex wake-ups to and fro, less the calls");
    let switch = measured("two threads of a core that yield");
    let slice = "Linux: 3 ms, the base slice of its scheduler".to_owned();
    Ok(vec![
        ("kernel.call_ns", whole(call), measured("getppid")),
        ("kernel.wake_ns", whole(wake_ns(near, call)), wake),
        ("kernel.switch_ns", whole(switch_ns(call)), switch),
        ("kernel.slice_ns", 3_000_000, slice),
    ])
}

fn copies() -> anyhow::Result<Vec<Entry>> {
    let nodes = u64::try_from(Topology::system().nodes().len())?;
    let cached = copy_mb_s(2 * PAGE, 1, 20_000);
    let memory = copy_mb_s(LARGE, 1, 20_000);
    let together = copy_mb_s(LARGE, core_count(), 20_000) / ratio(nodes, 1);
    let within = measured("copies of 4 KiB within 12 KiB");
    let into = measured("copies of 4 KiB into 256 MiB");
    let all = measured("the same on all cores, by NUMA nodes");
    Ok(vec![
        ("copy.cached_mb_s", whole(cached), within),
        ("copy.memory_mb_s", whole(memory), into),
        ("copy.socket_mb_s", whole(together), all),
    ])
}

/// Measures the machine at hand.
///
/// # Errors
/// It has one core only, or a call of the volume in memory failed.
pub fn calibrate() -> anyhow::Result<Machine> {
    let figures = [cores()?, lines()?, kernel()?, copies()?].concat();
    let mut machine = Machine::of_figures("this machine", &figures).map_err(anyhow::Error::msg)?;
    enter(&mut machine, "cores.instruction_ps", HOT)?;
    enter(&mut machine, "cores.instruction_new_ps", NEW)?;
    Ok(machine)
}

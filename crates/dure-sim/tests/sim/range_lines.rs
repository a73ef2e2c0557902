//! Cache lines that move for a call on a shared file, with each range lock, waiting or trying, on 2
//! to 16 simulated cores: the table of docs/design/protocols/range-locks.md.
//!
//! Runs with the sim backend only: `cargo xtask sim -p dure-sim -- sim_range_lines --nocapture`.
//! Lines are counted, not time: a task that sleeps moves a few more than one that spins.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test prints its table"
)]

use dure_block::share;
use dure_fs::{
    Background, FileSystem, InodeRef, MountOptions, NewInode, RangeRule, ReadMode, Stamp,
    VolumeRules,
};
use dure_sim::schedules::small_volume;
use dure_sync::range_lock::Waits;
use dure_sync::sim::{Config, Rng, try_run};
use dure_sync::{Arc, CoreId, Mutex, thread};

const PAGE: usize = 4096;
/// Bytes from one core's page to the next one's: chunks of pages, and of words, are apart.
const REGION: u64 = 64 * 4096;
const CORES: [u16; 4] = [2, 4, 8, 16];

/// What each core does, as in FxMark and pNOVA's measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    /// Reads a page of its own.
    Drbm,
    /// Reads the first page.
    Drbh,
    /// Overwrites a page of its own.
    Dwom,
    /// Three calls of four overwrite the core's own page, the fourth reads any core's.
    Dwom75,
    /// One call of four.
    Dwom25,
}

const LOADS: [Load; 5] = [
    Load::Drbm,
    Load::Drbh,
    Load::Dwom,
    Load::Dwom75,
    Load::Dwom25,
];

const LOCKS: [&str; 8] = [
    "range_lock=inode",
    "range_lock=rwsem",
    "range_lock=tree",
    "range_lock=bitmap",
    "range_lock=segment",
    "range_lock=tree,range_lock_wait=queue",
    "range_lock=bitmap,range_lock_wait=queue",
    "range_lock=segment,range_lock_wait=queue",
];

fn mount(policy: &str) -> FileSystem {
    let mut options = MountOptions {
        background: Background::None,
        cache_bytes: 4 << 20,
        recovery_threads: Some(1),
        volume_rules: VolumeRules {
            ranges: RangeRule::AtOnce,
            ..VolumeRules::default()
        },
        ..MountOptions::default()
    };
    for word in policy.split(',') {
        let (key, value) = word.split_once('=').unwrap();
        assert_eq!(options.set_policy(key, value), Ok(true));
    }
    FileSystem::open(share(small_volume(4096)), options).unwrap()
}

fn call(fs: &FileSystem, inode: &InodeRef, load: Load, (core, cores): (u16, u16), round: u64) {
    let own = u64::from(core) * REGION;
    let mut bytes = [2; PAGE];
    let writes = match load {
        Load::Drbm | Load::Drbh => false,
        Load::Dwom => true,
        Load::Dwom75 => round % 4 != 3,
        Load::Dwom25 => round.is_multiple_of(4),
    };
    let at = match load {
        Load::Drbh => 0,
        Load::Dwom75 | Load::Dwom25 if !writes => {
            let seed = u64::from(core) << 32 | round;
            Rng::new(seed).below(u64::from(cores)) * REGION
        }
        _ => own,
    };
    let done = match writes {
        true => fs.write(inode, at, &bytes, Stamp::Set),
        false => fs.read(inode, at, &mut bytes, ReadMode::Cached),
    };
    assert_eq!(done.unwrap(), PAGE);
}

/// Lines moved by so many rounds on each core, and how often tasks waited for ranges.
fn transfers(policy: &'static str, load: Load, cores: u16, rounds: u64) -> (u64, Waits) {
    let waits = Arc::new(Mutex::<240, Waits>::new(Waits::default()));
    let found = Arc::clone(&waits);
    let done = try_run(Config::min_clock(usize::from(cores)), move || {
        let fs = mount(policy);
        let new = NewInode {
            mode: 0o100_644,
            ..NewInode::default()
        };
        let inode = fs.create(&fs.root().unwrap(), b"file", &new);
        let inode = inode.unwrap();
        for core in 0..u64::from(cores) {
            fs.write(&inode, core * REGION, &[1; PAGE], Stamp::Set)
                .unwrap();
        }
        thread::scope(|scope| {
            for core in 0..cores {
                let (fs, inode) = (&fs, &inode);
                scope.spawn_on(CoreId::new(core), move || {
                    (0..rounds).for_each(|round| call(fs, inode, load, (core, cores), round));
                });
            }
        });
        *found.lock() = fs.range_waits();
    });
    let report = done.unwrap_or_else(|failure| panic!("{failure}")).report;
    let waits = *waits.lock();
    (report.transfers, waits)
}

/// Hundredths of lines moved by a call, once all has been touched; and waits of the longer run.
fn lines_of_a_call(policy: &'static str, load: Load, cores: u16) -> (u64, Waits) {
    let (few, _) = transfers(policy, load, cores, 40);
    let (many, waits) = transfers(policy, load, cores, 120);
    let calls = 80 * u64::from(cores);
    (many.saturating_sub(few) * 100 / calls, waits)
}

#[test]
fn sim_range_lines_of_a_call() {
    for load in LOADS {
        println!("| {load:?} | {CORES:?} cores | waited, slept with 16 |");
        for policy in LOCKS {
            let found = CORES.map(|cores| lines_of_a_call(policy, load, cores));
            let lines = found.map(|(lines, _)| format!("{}.{:02}", lines / 100, lines % 100));
            let waits = found[CORES.len() - 1].1;
            println!("| {policy} | {} | {waits:?} |", lines.join(" | "));
            let parts = !(policy.ends_with("=inode") || policy.ends_with("=rwsem"));
            let apart = matches!(load, Load::Drbm | Load::Dwom);
            let most = found.map(|(lines, _)| lines).into_iter().max().unwrap();
            match (load, policy) {
                // One count for all readers; one mutex for all claims of a tree.
                (Load::Drbm | Load::Drbh, "range_lock=rwsem")
                | (Load::Drbm, "range_lock=tree,range_lock_wait=queue") => {
                    assert!(most >= 50, "{load:?} {policy}: readers share no line");
                }
                (Load::Drbm | Load::Drbh, "range_lock=inode") => {
                    assert!(most <= 5, "{load:?} {policy}: {most} hundredths of a line");
                }
                _ if apart && parts && !policy.contains("tree") => {
                    assert!(most <= 5, "{load:?} {policy}: {most} hundredths of a line");
                }
                _ => {}
            }
        }
    }
}

/// Readers of one page: a bit has one holder, so they sleep; a word of `segment` counts them.
#[test]
fn sim_range_lines_readers_of_a_page_queue_for_a_bit_only() {
    let [_, _, _, _, _, tree, bitmap, segment] = LOCKS;
    let waited = |policy| transfers(policy, Load::Drbh, 8, 60).1;
    assert_eq!(waited(tree), Waits::default());
    assert_eq!(waited(segment), Waits::default());
    let bits = waited(bitmap);
    assert!(bits.queued > 0 && bits.slept > 0, "{bits:?}");
}

//! What an fsync takes while a checkpoint runs, in virtual time: nothing of the machine is in it.
//!
//! A flush takes a millisecond, so an fsync takes a little more; it waits longer where a flush that
//! began before its write keeps it from beginning its own, or where a checkpoint holds a lock over
//! its requests. Runs with the sim backend only: `cargo xtask sim -p dure-sim`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests print what they have seen"
)]

use std::time::Duration;

use dure_block::delay::DelayDevice;
use dure_block::share;
use dure_fs::{FileSystem, InodeRef, MountOptions, NewInode, Stamp, SyncScope};
use dure_sim::schedules::small_volume;
use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::sim::{Config, Schedule, seeds, try_run};
use dure_sync::{CoreId, clock, thread};

const PAGE: usize = 4096;
const WRITE: Duration = Duration::from_micros(20);
const FLUSH: Duration = Duration::from_millis(1);
/// Leaves of files that a checkpoint finds dirty, of each of two cores.
const LEAVES: u64 = 300;
/// Bytes from one page to the next: more than a leaf maps.
const STRIDE: u64 = 321 * 4096;

fn create(fs: &FileSystem, name: &str) -> InodeRef {
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    fs.create(&fs.root().unwrap(), name.as_bytes(), &new)
        .unwrap()
}

/// Times of fsyncs in ns: before, and while checkpoints run that a worker helps with.
fn fsyncs(config: Config) -> [Vec<u64>; 2] {
    let ram = small_volume(1 << 15);
    let run = try_run(config, move || {
        let slow = DelayDevice::new(share(ram), WRITE, FLUSH);
        let options = MountOptions {
            cache_bytes: 96 << 20,
            commit_interval: Duration::from_secs(3600),
            workers: Some(1),
            recovery_threads: Some(1),
            ..MountOptions::default()
        };
        let fs = FileSystem::open(share(slow), options).unwrap();
        // A log that gets full is another reason to wait.
        fs.grow_logs(1 << 12).unwrap();
        let synced = create(&fs, "synced");
        let mut before = Vec::new();
        for _ in 0..30 {
            before.push(sync_once(&fs, &synced));
        }
        let mut meanwhile = Vec::new();
        for round in 0..4 {
            dirty(&fs, round);
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                let syncs = scope.spawn_on(CoreId::new(0), || {
                    let mut times = Vec::new();
                    while !over.load(Ordering::Acquire) {
                        times.push(sync_once(&fs, &synced));
                    }
                    times
                });
                let made = scope.spawn_on(CoreId::new(1), || {
                    fs.checkpoint_now().unwrap();
                    over.store(true, Ordering::Release);
                });
                made.join().unwrap();
                meanwhile.extend(syncs.join().unwrap());
            });
        }
        fs.close().unwrap();
        [before, meanwhile]
    });
    run.map_err(|failure| failure.to_string()).unwrap().value
}

/// Makes leaves dirty on two cores.
fn dirty(fs: &FileSystem, round: u8) {
    thread::scope(|scope| {
        for core in 1..3 {
            scope.spawn_on(CoreId::new(core), move || {
                let name = format!("file{core}");
                let root = fs.root().unwrap();
                let found = fs.lookup(&root, name.as_bytes()).unwrap();
                let file = found.unwrap_or_else(|| create(fs, &name));
                for leaf in 1..=LEAVES {
                    fs.write(&file, leaf * STRIDE, &[round; PAGE], Stamp::Set)
                        .unwrap();
                }
                fs.fsync(&file, SyncScope::All).unwrap();
            });
        }
    });
}

fn sync_once(fs: &FileSystem, file: &InodeRef) -> u64 {
    let begin = clock::monotonic_ns();
    fs.write(file, 0, &[7; PAGE], Stamp::Set).unwrap();
    fs.fsync(file, SyncScope::All).unwrap();
    clock::monotonic_ns() - begin
}

#[test]
fn sim_checkpoint_waits_fsyncs_wait_for_no_checkpoint() {
    let mut all = [Vec::new(), Vec::new()];
    for seed in seeds(50).step_by(50) {
        // Times mean little where any task may run next.
        let schedule = Schedule::Jitter { percent: 20 };
        let times = fsyncs(Config::new(3, seed, schedule));
        for (sum, times) in all.iter_mut().zip(times) {
            sum.extend(times);
        }
    }
    let of = |times: &mut Vec<u64>, percent: usize| {
        times.sort_unstable();
        times[(times.len() - 1) * percent / 100] / 1000
    };
    let [before, meanwhile] = &mut all;
    let [p50, p99, most] = [50, 99, 100].map(|percent| of(meanwhile, percent));
    println!(
        "before: {} fsyncs, p50 {} us, p99 {} us; meanwhile: {}, p50 {p50} us, p99 {p99} us, most {most} us",
        before.len(),
        of(before, 50),
        of(before, 99),
        meanwhile.len()
    );
    assert!(p99 <= 2 * p50, "p99 {p99} us, p50 {p50} us");
}

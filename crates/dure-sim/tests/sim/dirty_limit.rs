//! Writers that are faster than their device: how long one write takes, with the limit of dirty
//! pages and without, in virtual time.
//!
//! Without it memory fills, and then one write waits for the write-back of a whole file. Runs with
//! the sim backend only: `cargo xtask sim -p dure-sim`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests print what they have seen"
)]

use std::time::Duration;

use dure_block::delay::DelayDevice;
use dure_block::share;
use dure_fs::{DirtyLimit, FileSystem, MountOptions, NewInode, Stamp};
use dure_sim::schedules::small_volume;
use dure_sync::sim::{Config, seeds, try_run};
use dure_sync::{CoreId, clock, thread};

const PAGE: usize = 4096;
/// Pages that a writer appends: several times what may be in memory.
const PAGES: u64 = 8000;
/// Bytes of the caches; a half is for pages.
const CACHE: u64 = 24 << 20;
/// What a write to the device takes, or a flush; and each block of it: 40 MB/s.
const WRITE: Duration = Duration::from_micros(200);
const BLOCK: Duration = Duration::from_micros(100);

/// What was seen of one run.
#[derive(Debug)]
struct Seen {
    /// The longest write, and the time of all, in ns.
    longest: u64,
    all: u64,
    pauses: u64,
    /// Most dirty pages of all partitions at the end of a write.
    dirty: u64,
}

/// Two cores append to a file each, on a slow device.
fn append(config: Config, limit: DirtyLimit) -> Seen {
    let ram = small_volume(1 << 15);
    let run = try_run(config, move || {
        let slow = DelayDevice::new(share(ram), WRITE, WRITE).in_turn(BLOCK);
        let options = MountOptions {
            cache_bytes: CACHE,
            dirty_limit: limit,
            workers: Some(2),
            recovery_threads: Some(1),
            ..MountOptions::default()
        };
        let fs = FileSystem::open(share(slow), options).unwrap();
        let begin = clock::monotonic_ns();
        let tasks = [0, 1].map(|core| {
            let fs = fs.clone();
            thread::spawn_on("writer", CoreId::new(core), move || append_to(&fs, core))
        });
        let seen = tasks.map(|task| task.join().unwrap());
        let all = clock::monotonic_ns() - begin;
        let pauses = fs.activity().pauses;
        fs.sync().unwrap();
        let left: u64 = fs.activity().workers.iter().map(|it| it.backlog).sum();
        assert_eq!(left, 0, "each page that became dirty was counted once");
        fs.close().unwrap();
        Seen {
            longest: seen[0].0.max(seen[1].0),
            all,
            pauses,
            dirty: seen[0].1.max(seen[1].1),
        }
    });
    run.map_err(|failure| failure.to_string()).unwrap().value
}

/// The longest write, and the most dirty pages.
fn append_to(fs: &FileSystem, core: u16) -> (u64, u64) {
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let root = fs.root().unwrap();
    let file = fs
        .create(&root, format!("file{core}").as_bytes(), &new)
        .unwrap();
    let (mut longest, mut dirty) = (0, 0);
    for page in 0..PAGES {
        let begin = clock::monotonic_ns();
        let written = fs.write(&file, page * 4096, &[7; PAGE], Stamp::Set);
        assert_eq!(written.unwrap(), PAGE);
        longest = longest.max(clock::monotonic_ns() - begin);
        let workers = fs.activity().workers;
        dirty = dirty.max(workers.iter().map(|worker| worker.backlog).sum());
    }
    (longest, dirty)
}

#[test]
fn sim_dirty_limit_no_write_waits_long_on_a_slow_device() {
    for seed in seeds(20).step_by(50) {
        let with = append(Config::stall(2, seed), DirtyLimit::Half);
        let without = append(Config::stall(2, seed), DirtyLimit::None);
        println!("seed {seed}: {with:?}, without a limit {without:?}");
        assert!(with.pauses > 0 && without.pauses == 0);
        assert!(2 * with.longest < without.longest, "many short waits");
        assert!(4 * with.dirty < 3 * without.dirty, "memory is not full");
        assert!(with.all < without.all / 2 * 3, "the device is as busy");
    }
}

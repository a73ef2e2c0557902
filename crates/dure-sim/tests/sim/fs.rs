//! The whole file system on virtual cores under unfair schedules, then crashes of each run.
//!
//! Runs with the sim backend only: `cargo xtask sim -p dure-sim`. The number of seeds is
//! `DURE_SIM_SEEDS`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests print what they have seen"
)]

use dure_block::crash::{CrashImages, Selection};
use dure_block::record::RecordDevice;
use dure_block::{Device, share};
use dure_fs::{
    Background, FileSystem, InodeRef, MountOptions, NewInode, Rules, SetAttributes, Stamp,
    SyncScope,
};
use dure_sim::schedules::{Base, Counts, Plan, Scene, play, small_volume};
use dure_sync::canary::Rule;
use dure_sync::sim::{Config, seeds, try_run};
use dure_sync::{Arc, CoreId, thread};

/// Calls of all cores of a run together.
const CALLS: u32 = 60;
/// The same, where all are about the entries of one directory.
const CROWD_CALLS: u32 = 200;
const CUTS: u32 = 6;

/// Two to eight cores on two to four journals.
fn plan(config: fn(usize, u64) -> Config, seed: u64) -> Plan {
    let cores: u16 = [2, 3, 4, 8][usize::try_from(seed % 4).unwrap()];
    Plan {
        config: config(usize::from(cores), seed),
        cores,
        calls: CALLS / u32::from(cores),
        scene: Scene::Tree,
        cuts: CUTS,
        rules: Rules::default(),
        policies: &[],
        strict_joins: Rule::default(),
    }
}

fn bases() -> [Base; 3] {
    [2, 3, 4].map(Base::new)
}

fn base_of(bases: &[Base], seed: u64) -> &Base {
    &bases[usize::try_from(seed / 4 % 3).unwrap()]
}

fn explore(config: fn(usize, u64) -> Config) {
    let bases = bases();
    let (mut total, mut runs) = (Counts::default(), 0);
    for seed in seeds(100) {
        match play(base_of(&bases, seed), &plan(config, seed)) {
            Ok(counts) => total.add(counts),
            Err(what) => panic!("{what}"),
        }
        runs += 1;
    }
    let worked = total.rounds > 0 && total.worker_pages > 0;
    assert!(worked || runs < 20, "workers do nothing: {total:?}");
    println!("{runs} seeds, 0 violations, {total:?}");
}

#[test]
fn sim_fs_random_schedules_survive_crashes() {
    explore(Config::random);
}

#[test]
fn sim_fs_stalls_survive_crashes() {
    explore(Config::stall);
}

#[test]
fn sim_fs_priorities_survive_crashes() {
    explore(Config::priority);
}

/// The same with policies other than the default ones, for one seed in five.
fn explore_with(policies: &'static [(&'static str, &'static str)]) {
    let bases = bases();
    let mut total = Counts::default();
    for seed in seeds(200).step_by(5) {
        let config = [Config::random, Config::stall, Config::priority];
        let config = config[usize::try_from(seed % 3).unwrap()];
        let plan = Plan {
            policies,
            ..plan(config, seed)
        };
        match play(base_of(&bases, seed), &plan) {
            Ok(counts) => total.add(counts),
            Err(what) => panic!("{policies:?}: {what}"),
        }
    }
    println!("{policies:?}: 0 violations, {total:?}");
}

#[test]
fn sim_fs_images_survive_crashes() {
    explore_with(&[("journal", "zjournal")]);
}

/// Without a log nothing is promised, but that a repair brings back a volume that can be used.
#[test]
fn sim_fs_without_a_log_crashes_can_be_repaired() {
    explore_with(&[("journal", "none"), ("no-crash-guarantee", "")]);
}

/// In persistent memory, without a page cache: what any call has returned for is there.
#[test]
fn sim_fs_direct_calls_are_durable_when_they_return() {
    explore_with(&[("page_cache", "none")]);
}

#[test]
fn sim_fs_direct_calls_are_durable_when_they_are_synced() {
    explore_with(&[("page_cache", "none"), ("durability", "posix")]);
}

/// The same where each file has a range lock from its first call on: overwrites share the file.
#[test]
fn sim_fs_direct_overwrites_that_share_a_file_survive_crashes() {
    explore_with(&[("page_cache", "none"), ("range_lock_wait", "queue")]);
    explore_with(&[
        ("page_cache", "none"),
        ("range_lock_wait", "queue"),
        ("durability", "posix"),
    ]);
}

/// Operations that are not committed before they release their locks.
#[test]
fn sim_fs_direct_canary_operations_that_are_not_committed() {
    let bases = bases();
    let seen = (0..40).any(|seed| {
        let plan = Plan {
            policies: &[("page_cache", "none")],
            strict_joins: Rule::LEFT_OUT,
            ..plan(Config::random, seed)
        };
        play(base_of(&bases, seed), &plan).is_err()
    });
    assert!(seen, "calls that returned were lost, and nobody noticed");
}

/// JBD2.
#[test]
fn sim_fs_the_baseline_survives_crashes() {
    explore_with(&[("journal", "jbd2"), ("data", "journal")]);
}

#[test]
fn sim_fs_data_in_the_log_survives_crashes() {
    explore_with(&[("data", "journal"), ("alloc", "global"), ("fsync", "all")]);
}

#[test]
fn sim_fs_one_lock_per_file_survives_crashes() {
    explore_with(&[("range_lock", "inode")]);
}

#[test]
fn sim_fs_node_locks_survive_crashes() {
    explore_with(&[("node_lock", "mutex")]);
    explore_with(&[("node_lock", "rwsem")]);
}

#[test]
fn sim_fs_range_locks_survive_crashes() {
    explore_with(&[("range_lock", "tree")]);
    explore_with(&[("range_lock", "bitmap")]);
    explore_with(&[("range_lock", "segment"), ("segment_size", "16K")]);
}

/// One directory, in which all cores create, unlink, link, rename, list and look up.
fn crowd(config: fn(usize, u64) -> Config, policies: &'static [(&'static str, &'static str)]) {
    let bases = bases();
    let mut total = Counts::default();
    for seed in seeds(60) {
        let plan = plan(config, seed);
        let plan = Plan {
            calls: CROWD_CALLS / u32::from(plan.cores),
            scene: Scene::Directory,
            policies,
            ..plan
        };
        match play(base_of(&bases, seed), &plan) {
            Ok(counts) => total.add(counts),
            Err(what) => panic!("{what}"),
        }
    }
    println!("0 violations, {total:?}");
}

#[test]
fn sim_fs_a_shared_directory_survives_crashes() {
    crowd(Config::random, &[]);
}

#[test]
fn sim_fs_a_shared_directory_survives_stalls_and_crashes() {
    crowd(Config::stall, &[]);
}

#[test]
fn sim_fs_a_shared_directory_survives_priorities_and_crashes() {
    crowd(Config::priority, &[]);
}

#[test]
fn sim_fs_a_shared_directory_of_images_survives_crashes() {
    crowd(Config::random, &[("journal", "zjournal")]);
}

/// Whether one of some seeds shows a violation when a rule is off.
fn is_noticed(rules: Rules, config: fn(usize, u64) -> Config) {
    let bases = bases();
    for seed in 0..400 {
        let plan = Plan {
            rules,
            ..plan(config, seed)
        };
        if let Err(what) = play(base_of(&bases, seed), &plan) {
            println!("noticed: {what}");
            return;
        }
    }
    panic!("400 seeds did not show that {rules:?} is wrong");
}

/// Canary: transactions that do not say what they depend on.
#[test]
fn sim_fs_canary_no_marks() {
    is_noticed(
        Rules {
            marks: Rule::LEFT_OUT,
            ..Rules::default()
        },
        Config::random,
    );
}

/// Canary: an fsync that does not flush.
#[test]
fn sim_fs_canary_no_flush() {
    is_noticed(
        Rules {
            flush: Rule::LEFT_OUT,
            ..Rules::default()
        },
        Config::stall,
    );
}

/// Two cores on a small volume. Gives the volume as a power cut leaves it when the first is done,
/// without anything that was not flushed.
fn two_cores(
    seed: u64,
    first: fn(&FileSystem),
    second: fn(&FileSystem),
    before: fn(&FileSystem),
) -> FileSystem {
    let run = try_run(Config::random(2, seed), move || {
        let ram = small_volume(2048);
        let base = ram.snapshot();
        let record = RecordDevice::new(share(ram));
        let log = record.log();
        let fs = FileSystem::open(share(record), quiet()).unwrap();
        before(&fs);
        let step = thread::scope(|scope| {
            let one = scope.spawn_on(CoreId::new(0), || {
                first(&fs);
                log.step()
            });
            scope.spawn_on(CoreId::new(1), || second(&fs));
            one.join().unwrap()
        });
        let images = CrashImages::new(base, &log);
        let point = images.at(step);
        let nothing = point.choices(Selection::default()).get(0);
        let device: Arc<dyn Device> = share(point.image(&nothing));
        device
    });
    let device = run.unwrap_or_else(|failure| panic!("{failure}")).value;
    FileSystem::open(device, quiet()).unwrap()
}

fn quiet() -> MountOptions {
    MountOptions {
        background: Background::None,
        cache_bytes: 1 << 20,
        recovery_threads: Some(1),
        ..MountOptions::default()
    }
}

fn file(fs: &FileSystem) -> InodeRef {
    fs.lookup(&fs.root().unwrap(), b"file").unwrap().unwrap()
}

fn make_file(fs: &FileSystem) {
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    fs.create(&fs.root().unwrap(), b"file", &new).unwrap();
}

/// An fsync that found no dirty page and was about to log the longer size left it out when another
/// core wrote a page below it meanwhile.
#[test]
fn sim_race_fsync_logs_a_size_over_a_page_written_meanwhile() {
    for seed in seeds(300) {
        let fs = two_cores(
            seed,
            |fs| fs.fsync(&file(fs), SyncScope::All).unwrap(),
            |fs| {
                fs.write(&file(fs), 5000, &[1; 100], Stamp::Set).unwrap();
            },
            |fs| {
                make_file(fs);
                let set = SetAttributes {
                    size: Some(17_000),
                    ..SetAttributes::default()
                };
                fs.set_attributes(&file(fs), &set).unwrap();
            },
        );
        let size = fs.attributes(&file(&fs)).unwrap().size;
        assert_eq!(size, 17_000, "seed={seed}");
    }
}

/// Two runs of one seed take the same steps, whatever the memory of the process looks like.
#[test]
fn sim_fs_a_seed_is_one_schedule() {
    let bases = bases();
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for seed in seeds(40).step_by(2) {
        let config = [Config::random, Config::stall, Config::priority];
        let config = config[usize::try_from(seed % 3).unwrap()];
        let in_nvm = &[("page_cache", "none")][..];
        let plan = Plan {
            policies: if seed % 4 == 0 { in_nvm } else { &[] },
            cuts: 0,
            ..plan(config, seed)
        };
        let first = play(base_of(&bases, seed), &plan).unwrap();
        // The second run finds other memory free.
        let sizes = std::iter::successors(Some(64_usize), |bytes| Some(bytes + bytes / 3));
        let blocks = sizes.take_while(|bytes| *bytes < 1 << 22);
        kept.extend(blocks.map(|bytes| vec![1; bytes]));
        kept = kept.into_iter().step_by(2).collect();
        let second = play(base_of(&bases, seed), &plan).unwrap();
        assert_eq!(first, second, "seed {seed}");
    }
}

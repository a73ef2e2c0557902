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
use dure_block::record::{LostFlushes, LostStores, RecordDevice};
use dure_block::{Device, share};
use dure_fs::{
    Background, FileSystem, InodeRef, MountOptions, NewInode, Rules, SetAttributes, Stamp,
    StoreRules, SyncScope,
};
use dure_sim::schedules::{Base, Counts, On, Plan, Scene, play, small_volume};
use dure_sync::canary::Rule;
use dure_sync::sim::{Config, seeds, try_run};
use dure_sync::{Arc, CoreId, thread};

use crate::media::{HYBRID, NVRAM};

/// Calls of all cores of a run together.
const CALLS: u32 = 60;
/// The same, where all are about the entries of one directory.
const CROWD_CALLS: u32 = 200;
const CUTS: u32 = 6;

/// Two to eight cores on two to four journals.
pub(crate) fn plan(config: fn(usize, u64) -> Config, seed: u64) -> Plan {
    let cores: u16 = [2, 3, 4, 8][usize::try_from(seed % 4).unwrap()];
    Plan {
        config: config(usize::from(cores), seed),
        cores,
        calls: CALLS / u32::from(cores),
        scene: Scene::Tree,
        cuts: CUTS,
        rules: Rules::default(),
        policies: &[],
        store_rules: StoreRules::default(),
        lost_flushes: LostFlushes::None,
        lost_stores: LostStores::None,
    }
}

fn bases() -> [Base; 3] {
    bases_on(On::Disk)
}

pub(crate) fn bases_on(media: On) -> [Base; 3] {
    [2, 3, 4].map(|journals| Base::new(media, journals))
}

pub(crate) fn base_of(bases: &[Base], seed: u64) -> &Base {
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
    explore_plans((On::Disk, 200, 5), |plan| Plan { policies, ..plan });
}

/// The same on such media, with one in `step` of so many seeds, and plans that `change` makes.
pub(crate) fn explore_plans(
    (media, count, step): (On, u64, usize),
    change: impl Fn(Plan) -> Plan,
) -> Counts {
    let bases = bases_on(media);
    let (mut total, mut what) = (Counts::default(), String::new());
    for seed in seeds(count).step_by(step) {
        let config = [Config::random, Config::stall, Config::priority];
        let config = config[usize::try_from(seed % 3).unwrap()];
        let plan = change(plan(config, seed));
        what = format!("{media:?} {:?}", plan.policies);
        match play(base_of(&bases, seed), &plan) {
            Ok(counts) => total.add(counts),
            Err(violation) => panic!("{what}: {violation}"),
        }
    }
    println!("{what}: 0 violations, {total:?}");
    total
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

/// A base volume is the same on whichever core of the real machine, and whenever, it is made: else a
/// seed is another schedule in another process.
#[test]
fn sim_fs_a_base_is_the_same_wherever_it_is_made() {
    let made_on = |core| {
        let make = || Base::new(On::Disk, 2);
        let task = thread::spawn_on("maker", CoreId::new(core), make);
        task.join().unwrap()
    };
    let [first, second] = [0, 1].map(made_on);
    for seed in 0..8 {
        let plan = Plan {
            cuts: 0,
            ..plan(Config::random, seed)
        };
        assert_eq!(play(&first, &plan), play(&second, &plan), "seed {seed}");
    }
}

/// Two runs of one seed take the same steps, whatever the memory of the process looks like.
#[test]
fn sim_fs_a_seed_is_one_schedule() {
    let (on_disk, in_nvm, hybrid) = (bases(), bases_on(On::Nvm), bases_on(HYBRID));
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for seed in seeds(40).step_by(2) {
        let config = [Config::random, Config::stall, Config::priority];
        let config = config[usize::try_from(seed % 3).unwrap()];
        let (bases, policies) = match seed % 8 {
            0 => (&in_nvm, &[("page_cache", "none")][..]),
            4 => (&hybrid, NVRAM),
            _ => (&on_disk, &[][..]),
        };
        let plan = Plan {
            policies,
            cuts: 0,
            ..plan(config, seed)
        };
        let first = play(base_of(bases, seed), &plan).unwrap();
        // The second run finds other memory free.
        let sizes = std::iter::successors(Some(64_usize), |bytes| Some(bytes + bytes / 3));
        let blocks = sizes.take_while(|bytes| *bytes < 1 << 22);
        kept.extend(blocks.map(|bytes| vec![1; bytes]));
        kept = kept.into_iter().step_by(2).collect();
        let second = play(base_of(bases, seed), &plan).unwrap();
        assert_eq!(first, second, "seed {seed}");
    }
}

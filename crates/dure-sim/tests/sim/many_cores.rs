//! Volumes on machines of many cores: nothing that is per core ends at a number of cores.
//!
//! Runs with the sim backend only: `cargo xtask sim -p dure-sim -- sim_many_cores`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests print what they have seen"
)]

use dure_block::crash::{CrashImages, Selection};
use dure_block::ram::RamDevice;
use dure_block::record::RecordDevice;
use dure_block::share;
use dure_fs::{FileSystem, FormatOptions, MountOptions, NewInode, ReadMode, Stamp, SyncScope};
use dure_sim::schedules::{Trial, assert_whole};
use dure_sync::sim::{Config, heap_bytes, run, seeds};
use dure_sync::{Arc, CoreId, thread};

const PAGE: usize = 4096;
/// The most journals a volume has; more cores share them.
const JOURNALS_MAX: u16 = 1000;
/// Segments of 32 blocks for each core.
const SEGMENTS: u64 = 16;

const FILE: NewInode = NewInode {
    mode: 0o100_644,
    umask: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
};

/// A fresh volume with a journal for each core.
fn volume(cores: u16) -> Arc<RamDevice> {
    let blocks = u64::from(cores.max(4)) * SEGMENTS * 32;
    let ram = Arc::new(RamDevice::new("many", blocks));
    let format = FormatOptions {
        journals: Some(cores.min(JOURNALS_MAX).into()),
        segment_blocks: Some(32),
        ..FormatOptions::default()
    };
    FileSystem::format(share(Arc::clone(&ram)), &format).unwrap();
    ram
}

/// What a server has: workers, and a thread per core for recovery.
fn options() -> MountOptions {
    MountOptions {
        cache_bytes: 64 << 20,
        ..MountOptions::default()
    }
}

/// Each of these cores does `work`, at the same time.
fn on_cores(cores: impl Iterator<Item = u16>, work: impl Fn(u16) + Sync) {
    thread::scope(|scope| {
        for core in cores {
            let work = &work;
            scope.spawn_on(CoreId::new(core), move || work(core));
        }
    });
}

fn name(core: u16) -> String {
    format!("file{core}")
}

fn page(core: u16, round: u8) -> Vec<u8> {
    let mut page = vec![round; PAGE];
    page[..2].copy_from_slice(&core.to_le_bytes());
    page
}

/// Makes a file in the directory that all share, and syncs it.
fn make(fs: &FileSystem, core: u16) {
    let root = fs.root().unwrap();
    let file = fs.create(&root, name(core).as_bytes(), &FILE).unwrap();
    assert_eq!(
        fs.write(&file, 0, &page(core, 1), Stamp::Set).unwrap(),
        PAGE
    );
    fs.fsync(&file, SyncScope::All).unwrap();
}

/// Finds the file as it was synced, and adds to it.
fn find(fs: &FileSystem, core: u16) {
    let root = fs.root().unwrap();
    let file = fs.lookup(&root, name(core).as_bytes()).unwrap();
    let file = file.unwrap_or_else(|| panic!("the file of core {core} is gone"));
    let mut bytes = vec![0; 2 * PAGE];
    let len = fs.read(&file, 0, &mut bytes, ReadMode::Cached).unwrap();
    assert!(bytes[..len] == page(core, 1), "the page of core {core}");
    let (at, _) = fs.append(&file, &page(core, 2)).unwrap();
    assert_eq!(at, 4096);
    fs.fsync(&file, SyncScope::Data).unwrap();
}

/// A run takes a second: however many seeds others play, this plays few.
const SEEDS_MAX: usize = 10;

/// Files, fsyncs, a crash that loses all that was not flushed, recovery, and more of it.
#[test]
fn sim_many_cores_a_volume_on_192_lives_through_a_crash() {
    for seed in seeds(3).take(SEEDS_MAX) {
        let trial = Trial::new(seed, 192);
        let played = trial.play(move || {
            let ram = volume(trial.cores);
            let base = ram.snapshot();
            let record = RecordDevice::new(share(ram));
            let log = record.log();
            let fs = FileSystem::open(share(record), options()).unwrap();
            assert_eq!(fs.activity().workers.len(), 24, "one for eight cores");
            on_cores(0..trial.cores, |core| make(&fs, core));
            let images = CrashImages::new(base, &log);
            let point = images.at(log.step());
            let nothing = point.choices(Selection::default()).get(0);
            let crashed = Arc::new(RamDevice::from_image(
                "crashed",
                &point.image(&nothing).snapshot(),
            ));
            drop(fs);
            let fs = FileSystem::open(share(Arc::clone(&crashed)), options()).unwrap();
            on_cores(0..trial.cores, |core| find(&fs, core));
            fs.close().unwrap();
            drop(fs);
            assert_whole(crashed);
        });
        if let Err(what) = played {
            panic!("{what}");
        }
    }
}

/// Bytes of a mounted volume of its own on a machine of so many cores, on which some have synced a
/// file.
fn mounted_bytes(cores: u16) -> i64 {
    let config = Config::min_clock(usize::from(cores)).with_steps_max(500_000_000);
    let done = run(config, move || {
        let ram = volume(cores);
        let before = heap_bytes().unwrap();
        let fs = FileSystem::open(share(Arc::clone(&ram)), options()).unwrap();
        let mounted = heap_bytes().unwrap() - before;
        on_cores((0..cores).step_by(64), |core| make(&fs, core));
        fs.close().unwrap();
        drop(fs);
        assert_whole(ram);
        mounted
    });
    done.value
}

/// All of it is made for 1,024 cores, on a volume of 1,000 journals.
#[test]
fn sim_many_cores_1024_cost_little_memory_each() {
    let counts = [1, 64, 192, 1024];
    let bytes = counts.map(mounted_bytes);
    println!("{counts:?} cores: {bytes:?} bytes");
    let each = (bytes[3] - bytes[1]) / (1024 - 64);
    println!("{each} bytes for each core");
    assert!(each <= 40 << 10, "{each} bytes for each core");
}

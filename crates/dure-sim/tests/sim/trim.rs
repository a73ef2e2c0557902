//! A trim beside tasks that write: no block of a file is discarded.
//!
//! Runs with the sim backend only: `cargo xtask sim -p dure-sim -- trim`. The device forgets what is
//! discarded, and each page has a checksum.

#![expect(clippy::unwrap_used, reason = "tests say what they expect")]

use dure_block::share;
use dure_fs::{FileSystem, InodeRef, MountOptions, NewInode, ReadMode, Stamp, SyncScope};
use dure_sim::schedules::{Trial, assert_whole, play_each, quiet, small_volume};
use dure_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use dure_sync::sim::Rng;
use dure_sync::{CoreId, thread};

const PAGE: usize = 4096;
const PAGES: u64 = 24;
/// Blocks that are available when the tasks begin.
const LEFT: u64 = 200;
/// Calls of a writer.
const CALLS: u8 = 24;

fn create(fs: &FileSystem, name: &[u8]) -> InodeRef {
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    fs.create(&fs.root().unwrap(), name, &new).unwrap()
}

/// Data goes to its blocks, not into the log.
fn options(trial: Trial) -> MountOptions {
    MountOptions {
        log_data_pages: 0,
        ..trial.options()
    }
}

/// Trims until `done`, at least once; how many bytes.
fn trim(fs: &FileSystem, done: &AtomicBool) -> u64 {
    let mut told = 0;
    loop {
        let last = done.load(Ordering::SeqCst);
        told += fs.trim(0..u64::MAX, 0).unwrap();
        if last {
            return told;
        }
    }
}

/// Rewrites pages of its file and syncs it; what it has at the end.
fn write(fs: &FileSystem, core: u16, seed: u64) -> Vec<u8> {
    let mut random = Rng::new(seed ^ u64::from(core) << 32);
    let file = create(fs, &[b'a' + u8::try_from(core).unwrap()]);
    let mut content = vec![0; usize::try_from(PAGES).unwrap() * PAGE];
    for call in 1..=CALLS {
        let first = random.below(PAGES);
        let count = 1 + random.below((PAGES - first).min(6));
        let [from, to] = [first, first + count].map(|page| usize::try_from(page).unwrap() * PAGE);
        content[from..to].fill(call);
        let at = u64::try_from(from).unwrap();
        fs.write(&file, at, &content[from..to], Stamp::Set).unwrap();
        if random.one_in(2) {
            fs.fsync(&file, SyncScope::Data).unwrap();
        }
    }
    fs.fsync(&file, SyncScope::All).unwrap();
    let size = usize::try_from(fs.size(&file).unwrap()).unwrap();
    content.truncate(size);
    content
}

/// Leaves so few segments that tasks take them while they are being trimmed.
fn fill(fs: &FileSystem) {
    let file = create(fs, b"fill");
    while let Some(more @ 1..) = fs.statistics().blocks_available.checked_sub(LEFT) {
        let bytes = vec![9; usize::try_from(more.min(64)).unwrap() * PAGE];
        let end = fs.size(&file).unwrap();
        fs.write(&file, end, &bytes, Stamp::Set).unwrap();
        fs.fsync(&file, SyncScope::All).unwrap();
    }
}

fn beside_writers(trial: Trial, told: &AtomicU64) {
    let ram = small_volume(1024);
    let fs = FileSystem::open(share(ram.clone()), options(trial)).unwrap();
    fill(&fs);
    let done = AtomicBool::new(false);
    let written: Vec<Vec<u8>> = thread::scope(|scope| {
        let (fs, done) = (&fs, &done);
        let trims = scope.spawn_on(CoreId::new(0), move || trim(fs, done));
        let writers: Vec<_> = (1..3)
            .map(|core| scope.spawn_on(CoreId::new(core), move || write(fs, core, trial.seed)))
            .collect();
        let written = writers.into_iter().map(|writer| writer.join().unwrap());
        let written = written.collect();
        done.store(true, Ordering::SeqCst);
        told.fetch_add(trims.join().unwrap(), Ordering::SeqCst);
        written
    });
    fs.close().unwrap();
    let again = FileSystem::open(share(ram.clone()), quiet()).unwrap();
    for (name, want) in [b"b", b"c"].into_iter().zip(written) {
        let file = again.lookup(&again.root().unwrap(), name).unwrap().unwrap();
        let mut got = vec![0; want.len()];
        again.read(&file, 0, &mut got, ReadMode::Cached).unwrap();
        assert!(got == want, "{name:?} has other bytes");
    }
    again.close().unwrap();
    assert_whole(ram);
}

#[test]
fn sim_trim_discards_no_block_of_a_file() {
    static TOLD: AtomicU64 = AtomicU64::new(0);
    play_each(200, 3, |trial| beside_writers(trial, &TOLD));
    let told = TOLD.load(Ordering::SeqCst);
    assert!(told > 1 << 20, "only {told} bytes were trimmed");
}

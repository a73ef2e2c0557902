//! Every call is followed by a sync, and the power fails anywhere: afterwards the file is what it
//! was after the last sync that returned, or what the running one would have made it; never
//! anything else.

use dure_block::crash::{CrashImages, Selection, Tear};
use dure_block::ram::RamDevice;
use dure_block::record::RecordDevice;
use dure_block::{Device, share};
use dure_sync::Arc;
use dure_sync::atomic::{AtomicBool, Ordering};

use super::{World, check, content, file, fsck, nth_file};
use crate::FlushRule;
use crate::volume::FileSystem;
use crate::{AllocateMode, Stamp, SyncScope};
use dure_sync::random::Seeded;

/// What a run promised: from `step` on, the file is at least in state `index`.
struct Promise {
    step: u64,
    index: usize,
}

/// One call and its sync; the states it may leave behind on the way, the last of them promised.
fn call(fs: &FileSystem, rng: &mut Seeded, bytes: &[u8]) -> Vec<Vec<u8>> {
    let inode = file(fs);
    let mut new = bytes.to_vec();
    let offset = usize::try_from(rng.below(60) * 4096 + rng.below(3) * 1000).unwrap();
    let len = usize::try_from(1 + rng.below(12) * 2048).unwrap();
    let mut states = Vec::new();
    match rng.below(6) {
        0..=2 => {
            let fill = u8::try_from(1 + rng.below(250)).unwrap();
            fs.write(&inode, offset as u64, &vec![fill; len], Stamp::Set)
                .unwrap();
            new.resize(new.len().max(offset + len), 0);
            new[offset..offset + len].fill(fill);
        }
        3 => {
            let size = usize::try_from(rng.below(new.len() as u64 + 1)).unwrap();
            fs.0.files.truncate(&inode, size as u64).unwrap();
            new.truncate(size);
        }
        4 => {
            fs.allocate(&inode, AllocateMode::KeepSize, offset as u64, len as u64)
                .unwrap();
        }
        _ => {
            // Whole pages: the edges of a hole are written later than the hole is made.
            let start = offset - offset % 4096;
            let end = (start + 8 * 4096).min(new.len());
            fs.allocate(&inode, AllocateMode::Punch, start as u64, 8 * 4096)
                .unwrap();
            if start < end {
                let whole = end - end % 4096;
                if start < whole {
                    new[start..whole].fill(0);
                    states.push(new.clone());
                }
                new[start..end].fill(0);
            }
        }
    }
    fs.fsync(&inode, SyncScope::All).unwrap();
    states.push(new);
    states
}

fn run(seed: u64, flush: FlushRule, steps: usize) -> usize {
    let mut world = World::new(2048, 1 << 20);
    world.options.flush = Some(flush);
    {
        let fs = world.mount();
        file(&fs);
        fs.close().unwrap();
    }
    let base = world.ram.snapshot();
    let record = Arc::new(RecordDevice::new(world.device()));
    let log = record.log();
    let mut states = vec![Vec::new()];
    let mut promises = vec![Promise { step: 0, index: 0 }];
    {
        let fs = FileSystem::open(share(record.clone()), world.options.clone()).unwrap();
        let mut rng = Seeded::new(seed);
        for n in 0..steps {
            let next = call(&fs, &mut rng, &states[states.len() - 1]);
            states.extend(next);
            promises.push(Promise {
                step: log.step(),
                index: states.len() - 1,
            });
            if n % 5 == 4 {
                fs.0.store.checkpoint().unwrap();
            }
        }
    }
    let images = CrashImages::new(base, &log);
    let mut tried = 0;
    let selection = Selection {
        exhaustive_max: 4,
        random: 2,
        seed,
        tear: Tear::None,
    };
    for step in images.frontiers() {
        let last = promises
            .iter()
            .rposition(|promise| promise.step <= step)
            .unwrap();
        let from = promises[last].index;
        let to = promises.get(last + 1).map_or(from, |promise| promise.index);
        let point = images.at(step);
        for choice in point.choices(selection) {
            tried += 1;
            let device: Arc<dyn Device> = share(Arc::new(point.image(&choice)));
            let what = format!("seed {seed}, {flush:?}, crash after step {step}, choice {choice}");
            let fs = FileSystem::open(device.clone(), world.options.clone())
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            let inode = file(&fs);
            let bytes = content(&fs, &inode);
            assert!(
                states[from..=to].contains(&bytes),
                "{what}: {} bytes, none of the states {from}..={to}, which have {:?}",
                bytes.len(),
                states[from..=to].iter().map(Vec::len).collect::<Vec<_>>(),
            );
            check(&fs, &inode);
            fs.close().unwrap();
            drop(fs);
            fsck(device, &what);
        }
    }
    tried
}

#[test]
fn a_synced_file_survives_a_crash_anywhere() {
    let tried: usize = (0..4).map(|seed| run(seed, FlushRule::One, 14)).sum();
    assert!(tried > 300, "only {tried} crashes");
}

#[test]
fn a_synced_file_survives_a_crash_anywhere_with_two_flushes() {
    run(7, FlushRule::Two, 14);
}

/// A truncate that takes several operations: the file is whole or cut, and nothing stays behind.
#[test]
fn an_fsync_waits_for_operations_of_before_the_file_left_memory() {
    let world = World::new(8192, 8 << 20);
    let fs = world.mount();
    let inode = file(&fs);
    fs.fsync(&inode, SyncScope::All).unwrap();
    // Stands for one that changes the file without its granules, which tell their last operation
    // themselves.
    let other = nth_file(&fs, 1);
    let mark = other.inode().node.last_writer(other.inode().index);
    inode.inode().state().write_keep_cached().note_mark(mark);
    let memory = Arc::downgrade(inode.inode());
    drop(inode);
    fs.0.inodes.cache.evict_all();
    assert!(memory.upgrade().is_none(), "nothing keeps it");
    fs.fsync(&file(&fs), SyncScope::All).unwrap();
    let ram = RamDevice::from_image("crashed", &world.ram.snapshot());
    let crashed = FileSystem::open(share(Arc::new(ram)), world.options.clone()).unwrap();
    let root = crashed.root().unwrap();
    assert!(crashed.lookup(&root, b"file 1").unwrap().is_some());
}

/// What programs rely on that write a new file and rename it over the old one without an fsync: the
/// name has the old content or the new. Of a file that is renamed to a new name, or is not renamed,
/// there is what write-back got to, from its beginning on.
#[test]
fn a_rename_that_replaces_is_not_durable_before_the_data() {
    let world = World::new(8192, 8 << 20);
    let fs = world.mount();
    let root = fs.root().unwrap();
    let files = [0, 1, 2].map(|n| nth_file(&fs, n));
    fs.write(&files[0], 0, &[1; 75_000], Stamp::Set).unwrap();
    fs.fsync(&files[0], SyncScope::All).unwrap();
    for inode in &files[1..] {
        fs.write(inode, 0, &[2; 75_000], Stamp::Set).unwrap();
    }
    let rename = |from: &[u8], to: &[u8]| {
        let replaced = fs.rename(&root, from, &root, to, crate::RenameMode::Replace);
        replaced.unwrap();
    };
    rename(b"file 1", b"file 0");
    rename(b"file 2", b"file 3");
    fs.fsync(&root, SyncScope::All).unwrap();
    drop(files);
    drop(root);
    drop(fs);
    let fs = world.mount();
    assert_eq!(content(&fs, &nth_file(&fs, 0)), vec![2; 75_000]);
    assert_eq!(content(&fs, &nth_file(&fs, 3)), b"");
}

#[test]
fn a_long_truncate_is_finished_by_the_mount() {
    let world = World::new(8192, 8 << 20);
    let data: Vec<u8> = (0..1500 * 4096_u64)
        .map(|n| ((n * 7) >> 9).to_le_bytes()[0] | 1)
        .collect();
    let fs = world.mount();
    fs.write(&file(&fs), 0, &data, Stamp::Set).unwrap();
    fs.close().unwrap();
    drop(fs);
    let base = world.ram.snapshot();
    let record = Arc::new(RecordDevice::new(world.device()));
    let log = record.log();
    let fs = FileSystem::open(share(record.clone()), world.options.clone()).unwrap();
    let inode = file(&fs);
    // Each operation is made durable by itself, so that the crash can come between any two.
    let done = AtomicBool::new(false);
    dure_sync::thread::scope(|scope| {
        scope.spawn(|| {
            fs.0.files.truncate(&inode, 5000).unwrap();
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            fs.0.store.commit_all().unwrap();
        }
    });
    fs.fsync(&inode, SyncScope::All).unwrap();
    let images = CrashImages::new(base, &log);
    let mut cut = 0;
    for step in images.frontiers() {
        let point = images.at(step);
        for choice in point.choices(Selection {
            exhaustive_max: 2,
            random: 1,
            ..Selection::default()
        }) {
            let device: Arc<dyn Device> = share(Arc::new(point.image(&choice)));
            let fs = FileSystem::open(device.clone(), world.options.clone()).unwrap();
            let inode = file(&fs);
            let bytes = content(&fs, &inode);
            if bytes.len() == 5000 {
                cut += 1;
                assert!(bytes == data[..5000]);
                assert_eq!(inode.inode().data_head().blocks.get(), 2);
            } else {
                assert!(
                    bytes == data,
                    "{} bytes, crash after step {step}",
                    bytes.len()
                );
            }
            check(&fs, &inode);
            drop(inode);
            fs.close().unwrap();
            fsck(device, &format!("crash after step {step}, choice {choice}"));
        }
    }
    assert!(cut > 0, "some crash came after the truncate");
}

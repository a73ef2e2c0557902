//! Data that is in the log and whose block cannot be written when a checkpoint comes.

use dure_block::crash::{CrashImages, Selection, Tear};
use dure_block::fault::{Fault, FaultDevice, Rule, When};
use dure_block::record::RecordDevice;
use dure_block::{Device, DeviceInfo, Error as BlockError, Io, Lba, Op, OsError, share};
use dure_store::units::to_u64;
use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{Arc, CoreId, thread};

use super::{World, check, content, file, fsck, nth_file};
use crate::file::map::MapReader;
use crate::inode::InodeRef;
use crate::volume::FileSystem;
use crate::{Error, ReadMode, Stamp, SyncScope};
use dure_sync::random::Seeded;

/// What pages of file data begin and end with: the device below knows them by it.
const PAGE: &[u8; 8] = b"filedata";

/// A device whose every third block takes no file data.
#[derive(Debug)]
struct BadBlocks {
    inner: Arc<dyn Device>,
    good: AtomicBool,
}

impl BadBlocks {
    fn new(inner: Arc<dyn Device>) -> Arc<BadBlocks> {
        let good = AtomicBool::new(false);
        Arc::new(BadBlocks { inner, good })
    }
}

fn is_bad(block: u64) -> bool {
    block.is_multiple_of(3)
}

impl Device for BadBlocks {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn execute(&self, io: Io<'_>) -> dure_block::Result<()> {
        let is_page = |block: &[u8]| block.starts_with(PAGE) && block.ends_with(PAGE);
        if let Io::Write { lba, parts, .. } = &io {
            let blocks = parts.iter().flat_map(|part| part.chunks_exact(4096));
            let refused = blocks
                .zip(lba.number()..)
                .any(|(block, number)| is_page(block) && is_bad(number));
            // Relaxed: a test's switch.
            if refused && !self.good.load(Ordering::Relaxed) {
                return Err(BlockError::Io {
                    device: "bad blocks".into(),
                    op: Op::Write,
                    lba: *lba,
                    blocks: io.blocks(),
                    os: OsError::EIO,
                });
            }
        }
        self.inner.execute(io)
    }
}

fn page_of(version: u64) -> [u8; 4096] {
    let mut bytes = [u8::try_from(version % 251).unwrap(); 4096];
    bytes[..8].copy_from_slice(PAGE);
    bytes[8..16].copy_from_slice(&version.to_le_bytes());
    bytes[4088..].copy_from_slice(PAGE);
    bytes
}

fn block_of(fs: &FileSystem, inode: &InodeRef, page: u64) -> u64 {
    let _held = inode.inode().state().read();
    let slot = MapReader::new(&fs.0.files, inode.inode()).slot(page);
    slot.unwrap().block().0
}

fn write_synced(fs: &FileSystem, inode: &InodeRef, page: u64, version: u64) {
    fs.write(inode, page * 4096, &page_of(version), Stamp::Set)
        .unwrap();
    fs.fsync(inode, SyncScope::All).unwrap();
}

/// The policies under which data goes through the log.
const POLICIES: &[&[(&str, &str)]] = &[
    &[],
    &[("journal", "zjournal")],
    &[("data", "journal")],
    &[("flush", "two"), ("fsync", "all")],
    &[
        ("journal", "single"),
        ("journal", "zjournal"),
        ("data", "journal"),
    ],
];

fn world(blocks: u64, policies: &[(&str, &str)]) -> World {
    let mut world = World::new(blocks, 4 << 20);
    for (key, value) in policies {
        assert_eq!(world.options.set_policy(key, value), Ok(true));
    }
    world
}

#[test]
fn a_logged_page_whose_block_cannot_be_written_goes_to_another() {
    for policies in POLICIES {
        let world = world(8192, policies);
        let device = Arc::new(FaultDevice::new(world.device()));
        let fs = FileSystem::open(share(device.clone()), world.options.clone()).unwrap();
        let inode = file(&fs);
        // Beyond the slots of the inode itself, too.
        let pages = [0, 1, 2, 3, 38, 39, 40, 41];
        for page in pages {
            write_synced(&fs, &inode, page, page + 1);
        }
        assert_eq!(
            fs.0.store.counters.checkpoints.sum(),
            0,
            "all is in the log"
        );
        let bad = [block_of(&fs, &inode, 1), block_of(&fs, &inode, 40)];
        assert!(bad.iter().all(|block| {
            fs.0.store
                .data_log
                .holds(dure_store::units::BlockNo(*block))
        }));
        let refuse = move |lba: Lba| bad.contains(&lba.number());
        let rule = Rule::new(When::From(1), Fault::Error(OsError::EIO));
        device.add(rule.on(Op::Write).where_block(refuse));
        fs.0.store.checkpoint().unwrap();
        assert_eq!(fs.stopped(), None, "{policies:?}");
        assert_eq!(fs.0.store.placement.fenced_off.sum(), 2);
        for page in pages {
            assert!(!bad.contains(&block_of(&fs, &inode, page)), "page {page}");
        }
        check(&fs, &inode);
        fs.0.store.checkpoint().unwrap();
        assert_eq!(fs.0.files.pages.evict(fs.0.store.partition(), 8), 8);
        for page in pages {
            let mut bytes = [0; 4096];
            fs.read(&inode, page * 4096, &mut bytes, ReadMode::Bypass)
                .unwrap();
            assert_eq!(bytes, page_of(page + 1), "{policies:?}");
        }
        drop((inode, fs));
        fsck(world.device(), "after a crash");
        let fs = world.mount();
        assert_eq!(content(&fs, &file(&fs)).len(), 42 * 4096);
        fs.close().unwrap();
        drop(fs);
        fsck(world.device(), "after an unmount");
    }
}

/// Two writes in a row of a checkpoint fail, for every two, and the power fails after it: a run,
/// and its first block by itself.
#[test]
fn every_two_writes_of_a_checkpoint_that_places_logged_pages_fail() {
    // Cores allocate in places of their own: elsewhere each page would be a run.
    thread::pin_to(CoreId::new(0));
    for policies in POLICIES {
        let mut replaced = 0;
        for n in 1.. {
            let world = world(4096, policies);
            let device = Arc::new(FaultDevice::new(world.device()));
            let fs = FileSystem::open(share(device.clone()), world.options.clone()).unwrap();
            let inode = file(&fs);
            // Every other page, so that runs are short.
            for page in [0, 2, 4, 30, 32] {
                fs.write(&inode, page * 4096, &page_of(page), Stamp::Set)
                    .unwrap();
                fs.fsync(&inode, SyncScope::All).unwrap();
                fs.write(&nth_file(&fs, 1), page * 4096, &page_of(99), Stamp::Set)
                    .unwrap();
                fs.fsync(&nth_file(&fs, 1), SyncScope::All).unwrap();
            }
            let data: Vec<u64> = [0, 2, 4, 30, 32].map(|p| block_of(&fs, &inode, p)).into();
            for n in [n, n + 1] {
                device.add(Rule::new(When::Nth(n), Fault::Error(OsError::EIO)).on(Op::Write));
            }
            let done = fs.0.store.checkpoint();
            let met = device.seen().hits > 0;
            device.clear();
            match (&done, fs.stopped()) {
                (Ok(()), None) => {
                    let now = [0, 2, 4, 30, 32].map(|page| block_of(&fs, &inode, page));
                    replaced += u32::from(now[..] != data[..]);
                }
                (Err(_), Some(reason)) => assert!(reason.contains("failed"), "{reason}"),
                other => panic!("{policies:?}, write {n}: {other:?}"),
            }
            for page in [0, 2, 4, 30, 32] {
                let mut bytes = [0; 4096];
                fs.read(&inode, page * 4096, &mut bytes, ReadMode::Bypass)
                    .unwrap();
                assert_eq!(bytes, page_of(page), "{policies:?}, write {n}");
            }
            drop((inode, fs));
            fsck(world.device(), "after the crash");
            let fs = world.mount();
            for page in [0, 2, 4, 30, 32] {
                let bytes = &content(&fs, &file(&fs))[usize::try_from(page).unwrap() * 4096..];
                assert_eq!(bytes[..4096], page_of(page), "{policies:?}, write {n}");
            }
            fs.close().unwrap();
            drop(fs);
            fsck(world.device(), "after the recovery");
            if !met {
                break;
            }
        }
        assert!(replaced > 0, "{policies:?}: {replaced} pages replaced");
    }
}

/// Calls on three files of a device on which every third block takes no data; crashes between.
fn random_calls(seed: u64, policies: &[(&str, &str)]) {
    const PAGES: usize = 40;
    let world = world(4096, policies);
    let mut rng = Seeded::new(seed);
    let mut model = vec![[0_u64; PAGES]; 3];
    let mut version = 0;
    let mut fenced = 0;
    for round in 0..4 {
        let device = BadBlocks::new(world.device());
        let fs = FileSystem::open(share(device.clone()), world.options.clone()).unwrap();
        for _ in 0..60 {
            let number = rng.below(3);
            let inode = nth_file(&fs, number);
            let pages = &mut model[usize::try_from(number).unwrap()];
            match rng.below(16) {
                0 => fs.0.store.checkpoint().unwrap(),
                // The cleaner leaves a page that finds no place where it is.
                1 => drop(fs.0.cleaner.clean(2)),
                2 => {
                    let keep = rng.below(to_u64(PAGES));
                    let size = fs.attributes(&inode).unwrap().size.min(keep * 4096);
                    fs.0.files.truncate(&inode, size).unwrap();
                    pages[usize::try_from(keep).unwrap()..].fill(0);
                }
                3 => {
                    let root = fs.root().unwrap();
                    fs.unlink(&root, format!("file {number}").as_bytes())
                        .unwrap();
                    pages.fill(0);
                }
                4 => drop(fs.0.files.write_back(inode.inode()).unwrap()),
                5..8 => fs.fsync(&inode, SyncScope::All).unwrap(),
                _ => {
                    version += 1;
                    let page = rng.below(to_u64(PAGES));
                    fs.write(&inode, page * 4096, &page_of(version), Stamp::Set)
                        .unwrap();
                    pages[usize::try_from(page).unwrap()] = version;
                }
            }
        }
        fs.sync().unwrap();
        fenced += fs.0.store.placement.fenced_off.sum();
        if round % 2 == 0 {
            fs.close().unwrap();
        }
        drop(fs);
        fsck(
            world.device(),
            &format!("seed {seed}, {policies:?}, round {round}"),
        );
        // The next mount recovers on the bad blocks, too, or on good ones.
        let again = BadBlocks::new(world.device());
        again.good.store(round % 3 == 0, Ordering::Relaxed);
        let fs = FileSystem::open(share(again), world.options.clone()).unwrap();
        for (number, pages) in (0..).zip(&model) {
            let bytes = content(&fs, &nth_file(&fs, number));
            for (page, &version) in pages.iter().enumerate() {
                let found = bytes.get(page * 4096..(page + 1) * 4096).unwrap_or(&[]);
                let as_written = match version {
                    0 => found.iter().all(|byte| *byte == 0),
                    version => found == page_of(version),
                };
                assert!(as_written, "seed {seed}, {policies:?}, {number}.{page}");
            }
            check(&fs, &nth_file(&fs, number));
        }
        fs.close().unwrap();
        drop(fs);
        fsck(world.device(), "after a good mount");
    }
    assert!(fenced > 0, "seed {seed}: no block was bad");
}

#[test]
fn random_calls_on_bad_blocks() {
    for policies in POLICIES {
        for seed in 0..6 {
            random_calls(seed, policies);
        }
    }
}

/// Logs that fill up: the checkpoint that finds a bad block has no room in the log.
#[test]
fn a_full_log_has_room_for_the_replacement() {
    for policies in POLICIES {
        let world = world(8192, policies);
        let device = BadBlocks::new(world.device());
        let fs = FileSystem::open(share(device.clone()), world.options.clone()).unwrap();
        let inode = file(&fs);
        let mut version = 0;
        while fs.0.store.counters.checkpoints.sum() < 6 {
            version += 1;
            write_synced(&fs, &inode, version % 20, version);
        }
        assert!(fs.0.store.placement.fenced_off.sum() > 0);
        let whole = content(&fs, &inode);
        fs.close().unwrap();
        drop((inode, fs));
        fsck(world.device(), "after the unmount");
        let fs = world.mount();
        assert_eq!(content(&fs, &file(&fs)), whole);
    }
}

/// Recovery replaces what its blocks do not take, and so does one that follows a recovery that was
/// cut off at any step.
#[test]
fn recovery_places_pages_elsewhere_too() {
    for policies in POLICIES {
        let world = world(2048, policies);
        let pages = [0, 1, 2, 3, 30, 31, 32];
        let fs = world.mount();
        for page in pages {
            write_synced(&fs, &file(&fs), page, page + 1);
        }
        assert_eq!(fs.0.store.data_log.logged.sum(), 7, "all in the log");
        drop(fs);
        let whole = |fs: &FileSystem, what: &str| {
            let bytes = content(fs, &file(fs));
            for page in pages {
                let at = usize::try_from(page).unwrap() * 4096;
                assert_eq!(
                    bytes[at..at + 4096],
                    page_of(page + 1),
                    "{policies:?}, {what}"
                );
            }
        };
        let base = world.ram.snapshot();
        let record = Arc::new(RecordDevice::new(share(BadBlocks::new(world.device()))));
        let log = record.log();
        let fs = FileSystem::open(share(record.clone()), world.options.clone()).unwrap();
        whole(&fs, "recovered");
        fs.0.files.pages.evict(fs.0.store.partition(), 99);
        whole(&fs, "from the blocks");
        let blocks = pages.map(|page| block_of(&fs, &file(&fs), page));
        assert!(blocks.iter().all(|block| !is_bad(*block)), "{blocks:?}");
        fs.close().unwrap();
        drop(fs);
        fsck(world.device(), "after the recovery");
        let images = CrashImages::new(base, &log);
        for step in images.frontiers() {
            let point = images.at(step);
            for choice in point.choices(Selection {
                exhaustive_max: 6,
                random: 8,
                seed: 1,
                tear: Tear::None,
            }) {
                let what = format!("step {step} of the recovery, {choice:?}");
                let device: Arc<dyn Device> = share(Arc::new(point.image(&choice)));
                fsck(device.clone(), &what);
                let again = share(BadBlocks::new(device.clone()));
                let fs = FileSystem::open(again, world.options.clone()).unwrap();
                whole(&fs, &what);
                fs.close().unwrap();
                drop(fs);
                fsck(device, &what);
            }
        }
    }
}

#[test]
fn a_recovery_that_finds_no_block_says_so_and_a_read_only_mount_shows_the_page() {
    let world = World::new(2048, 1 << 20);
    let fs = world.mount();
    write_synced(&fs, &file(&fs), 0, 7);
    drop(fs);
    let device = Arc::new(FaultDevice::new(world.device()));
    device.add(Rule::new(When::From(1), Fault::Error(OsError::EIO)).on(Op::Write));
    let refused = FileSystem::open(share(device.clone()), world.options.clone());
    let refused = refused.unwrap_err();
    assert!(matches!(refused, Error::Unplaced { .. }), "{refused:?}");
    let told = refused.to_string();
    assert!(
        told.contains("page of the logs") && told.contains("read-only mount"),
        "{told}"
    );
    let mut options = world.options.clone();
    options.read_only = true;
    let fs = FileSystem::open(share(device.clone()), options).unwrap();
    assert_eq!(content(&fs, &file(&fs)), page_of(7));
    drop(fs);
    device.clear();
    let fs = world.mount();
    assert_eq!(content(&fs, &file(&fs)), page_of(7));
}

/// The power fails at every step of a run in which pages are replaced.
#[test]
fn no_crash_loses_a_page_that_was_replaced() {
    for policies in POLICIES {
        let world = world(2048, policies);
        {
            let fs = world.mount();
            for page in 0..4 {
                write_synced(&fs, &file(&fs), page, 1);
            }
            fs.close().unwrap();
        }
        let base = world.ram.snapshot();
        let record = Arc::new(RecordDevice::new(share(BadBlocks::new(world.device()))));
        let log = record.log();
        let mut promised = vec![(0, 1)];
        {
            let fs = FileSystem::open(share(record.clone()), world.options.clone()).unwrap();
            for version in 2..10 {
                write_synced(&fs, &file(&fs), 2, version);
                promised.push((log.step(), version));
                for page in [0, 1, 3] {
                    write_synced(&fs, &file(&fs), page, version);
                }
                if version % 3 == 1 {
                    fs.0.store.checkpoint().unwrap();
                }
            }
            assert!(fs.0.store.placement.fenced_off.sum() > 0, "{policies:?}");
        }
        let images = CrashImages::new(base, &log);
        for step in images.frontiers() {
            let last = promised.iter().rposition(|(at, _)| *at <= step).unwrap();
            let least = promised[last].1;
            let point = images.at(step);
            for choice in point.choices(Selection {
                exhaustive_max: 4,
                random: 2,
                seed: 1,
                tear: Tear::None,
            }) {
                let device: Arc<dyn Device> = share(Arc::new(point.image(&choice)));
                let fs = FileSystem::open(device.clone(), world.options.clone());
                let fs = fs.unwrap_or_else(|e| panic!("{policies:?}, step {step}: {e}"));
                let bytes = content(&fs, &file(&fs));
                let found = &bytes[2 * 4096..3 * 4096];
                assert!(
                    found == page_of(least) || found == page_of(least + 1),
                    "{policies:?}, step {step}: not version {least}"
                );
                for page in bytes.chunks_exact(4096) {
                    let version = u64::from_le_bytes(page[8..16].try_into().unwrap());
                    assert!(page == page_of(version), "{policies:?}, step {step}");
                }
                fs.close().unwrap();
                drop(fs);
                fsck(device, &format!("{policies:?}, step {step}"));
            }
        }
    }
}

/// A checkpoint finds bad blocks while the pages are overwritten, cut off and moved.
#[cfg(dure_backend = "sim")]
#[test]
fn sim_pages_are_replaced_beside_writers() {
    use dure_sync::sim::{Config, seeds, try_run};
    use dure_sync::{CoreId, thread};

    for seed in seeds(150) {
        let run = try_run(Config::random(3, seed), move || {
            let policies = POLICIES[usize::try_from(seed).unwrap() % POLICIES.len()];
            let world = world(2048, policies);
            let device = BadBlocks::new(world.device());
            let fs = FileSystem::open(share(device), world.options.clone()).unwrap();
            let (one, two) = (file(&fs), nth_file(&fs, 1));
            for page in [0, 1, 2, 30, 31] {
                write_synced(&fs, &one, page, 1);
                write_synced(&fs, &two, page, 1);
            }
            thread::scope(|scope| {
                scope.spawn_on(CoreId::new(0), || {
                    for (page, version) in [(1, 2), (30, 3), (1, 4)] {
                        write_synced(&fs, &one, page, version);
                    }
                });
                scope.spawn_on(CoreId::new(1), || {
                    for _ in 0..2 {
                        fs.0.store.checkpoint().unwrap();
                    }
                });
                scope.spawn_on(CoreId::new(2), || {
                    drop(fs.0.cleaner.clean(1));
                    fs.0.files.truncate(&two, 4096).unwrap();
                    let root = fs.root().unwrap();
                    fs.unlink(&root, b"file 1").unwrap();
                    drop(two);
                });
            });
            assert_eq!(fs.stopped(), None);
            let whole = content(&fs, &one);
            drop((one, fs));
            fsck(world.device(), "after the crash");
            let fs = world.mount();
            let bytes = content(&fs, &file(&fs));
            for (page, version) in [(0, 1), (1, 4), (2, 1), (30, 3), (31, 1)] {
                assert_eq!(
                    bytes[page * 4096..][..4096],
                    page_of(version),
                    "page {page}"
                );
            }
            assert_eq!(bytes, whole);
            fs.close().unwrap();
            drop(fs);
            fsck(world.device(), "after the recovery");
        });
        if let Err(failure) = run {
            panic!("{failure}");
        }
    }
}

//! Writes that add pages to a file beside tasks that use its other parts: nothing is lost or shown
//! too early, what fsync promised is there after a crash, and who stays in the middle shares no
//! line with who appends.
//!
//! Runs with the sim backend only: `cargo xtask sim -p dure-sim -- sim_growth`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests print what they have seen"
)]

use dure_block::crash::{CrashImages, Selection, Tear};
use dure_block::ram::{Image, RamDevice};
use dure_block::record::{RecordDevice, RecordLog};
use dure_block::{Device, share};
use dure_fs::{
    AllocateMode, FileSystem, InodeRef, MountOptions, NewInode, RangeRule, ReadMode, SeekTarget,
    SetAttributes, Stamp, SyncScope, VolumeRules, XattrMode,
};
use dure_sim::schedules::{Trial, assert_whole, quiet, small_volume};
use dure_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use dure_sync::canary::LeftOut;
use dure_sync::sim::{Config, Rng, seeds, try_run};
use dure_sync::{Arc, CoreId, Mutex, thread};

const PAGE: u64 = 4096;
/// What writes that do not append are multiples of.
const UNIT: u64 = 2048;
/// Pages that are there from the beginning, and are overwritten.
const BASE: u64 = 4;
/// From here on data is appended; in front of it is a hole, which is written to.
const APPENDED: u64 = 16 * PAGE + 100;
const CALLS: u32 = 20;

const POLICIES: [&str; 4] = ["tree", "bitmap", "segment", "inode"];

fn mount(
    device: Arc<dyn Device>,
    options: MountOptions,
    policy: &str,
    ranges: RangeRule,
) -> FileSystem {
    let mut options = MountOptions {
        volume_rules: VolumeRules {
            ranges,
            ..VolumeRules::default()
        },
        ..options
    };
    assert_eq!(options.set_policy("range_lock", policy), Ok(true));
    FileSystem::open(device, options).unwrap()
}

fn file(fs: &FileSystem) -> InodeRef {
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let root = fs.root().unwrap();
    let found = fs.lookup(&root, b"file").unwrap();
    found.unwrap_or_else(|| fs.create(&root, b"file", &new).unwrap())
}

fn len(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap()
}

/// What is appended at an offset: never zero.
fn appended(offset: u64) -> u8 {
    u8::try_from(offset * 7 % 251).unwrap() + 1
}

fn check_appended(from: u64, bytes: &[u8], what: &str) {
    for (at, &byte) in (from..).zip(bytes) {
        assert_eq!(
            byte,
            appended(at),
            "{what}: byte {at} is not what was appended"
        );
    }
}

fn resize(fs: &FileSystem, inode: &InodeRef, size: u64) {
    let set = SetAttributes {
        size: Some(size),
        ..SetAttributes::default()
    };
    fs.change_attributes(inode, &set).unwrap();
}

fn read(fs: &FileSystem, inode: &InodeRef, from: u64, most: u64) -> Vec<u8> {
    let mut bytes = vec![0xee; len(most)];
    let done = fs.read(inode, from, &mut bytes, ReadMode::Cached).unwrap();
    bytes.truncate(done);
    bytes
}

/// A volume whose power may fail at any step.
struct Disk {
    ram: Arc<RamDevice>,
    base: Arc<Image>,
    log: Arc<RecordLog>,
}

impl Disk {
    fn mount(trial: Trial, policy: &str, ranges: RangeRule) -> (Disk, FileSystem) {
        let ram = small_volume(2048);
        let base = Arc::new(ram.snapshot());
        let record = RecordDevice::new(share(Arc::clone(&ram)));
        let log = record.log();
        let fs = mount(share(record), trial.options(), policy, ranges);
        (Disk { ram, base, log }, fs)
    }

    /// What a power failure after `step` may leave: nothing of what was not flushed, all, or some.
    fn crashed(&self, step: u64, seed: u64) -> Vec<Arc<RamDevice>> {
        let images = CrashImages::new(Arc::clone(&self.base), &self.log);
        let point = images.at(step);
        let selection = Selection {
            exhaustive_max: 1,
            random: 2,
            seed,
            tear: Tear::None,
        };
        let images = point.choices(selection).map(|choice| {
            let image = point.image(&choice).snapshot();
            Arc::new(RamDevice::from_image("crashed", &image))
        });
        images.collect()
    }
}

/// One file, and how far it has come. SeqCst: the order in which calls end and begin.
struct World {
    disk: Disk,
    fs: FileSystem,
    inode: InodeRef,
    /// Appends up to here have ended.
    ended: AtomicU64,
    /// And are durable.
    synced: AtomicU64,
    done: AtomicBool,
    /// When the power fails, and what had been promised before.
    crashed: Mutex<200, Option<(u64, u64)>>,
}

impl World {
    fn new(trial: Trial, policy: &str, rule: RangeRule) -> World {
        let (disk, fs) = Disk::mount(trial, policy, rule);
        let inode = file(&fs);
        fs.write(&inode, 0, &vec![0; len(BASE * PAGE)], Stamp::Set)
            .unwrap();
        resize(&fs, &inode, APPENDED);
        fs.fsync(&inode, SyncScope::All).unwrap();
        World {
            disk,
            fs,
            inode,
            ended: AtomicU64::new(APPENDED),
            synced: AtomicU64::new(APPENDED),
            done: AtomicBool::new(false),
            crashed: Mutex::new(None),
        }
    }

    fn append(&self, seed: u64) {
        let mut random = Rng::new(seed ^ 0xa);
        let mut size = APPENDED;
        for n in 0..CALLS {
            let more = [10, 100, 3000, PAGE, 9000][random.index(5)];
            let bytes: Vec<u8> = (size..size + more).map(appended).collect();
            if n % 3 == 2 {
                let done = self.fs.write(&self.inode, size, &bytes, Stamp::Set);
                assert_eq!(done.unwrap(), bytes.len());
            } else {
                let (at, done) = self.fs.append(&self.inode, &bytes).unwrap();
                assert_eq!((at, done), (size, bytes.len()), "nobody else appends");
            }
            size += more;
            self.ended.store(size, Ordering::SeqCst);
            if random.below(5) == 0 {
                self.fs.fsync(&self.inode, SyncScope::Data).unwrap();
                self.synced.store(size, Ordering::SeqCst);
            }
        }
    }

    /// The size, in one of the ways to ask for it.
    fn size(&self, random: &mut Rng) -> u64 {
        match random.below(4) {
            0 => self.fs.size(&self.inode).unwrap(),
            1 => {
                let found = self.fs.seek(&self.inode, APPENDED, SeekTarget::Hole);
                found.unwrap().unwrap_or(APPENDED)
            }
            2 => match self.fs.peek_attributes(self.inode.id()) {
                Some(shown) => shown.size,
                None => self.fs.attributes(&self.inode).unwrap().size,
            },
            _ => self.fs.attributes(&self.inode).unwrap().size,
        }
    }

    fn look(&self, seed: u64) {
        let mut random = Rng::new(seed ^ 0xb);
        let mut last = APPENDED;
        while !self.done.load(Ordering::SeqCst) {
            last = last.max(self.ended.load(Ordering::SeqCst));
            let seen = self.size(&mut random);
            assert!(seen >= last, "a size of {seen}, and it was {last}");
            last = seen;
            let from = APPENDED + random.below(1 + last - APPENDED);
            let most = [1, 500, 2 * PAGE, 100 * PAGE][random.index(4)];
            let bytes = read(&self.fs, &self.inode, from, most);
            check_appended(from, &bytes, "read");
            let least = most.min(last - from);
            assert!(
                bytes.len() >= len(least),
                "{} bytes of {least}",
                bytes.len()
            );
            if from < last {
                let data = self.fs.seek(&self.inode, from, SeekTarget::Data).unwrap();
                assert_eq!(data, Some(from), "it is data up to {last}");
            }
        }
    }

    /// Writes to the pages in front; nobody else does.
    fn fill(&self, seed: u64) {
        let mut random = Rng::new(seed ^ 0xc);
        let units = 16 * PAGE / UNIT;
        let mut known = vec![0; len(units)];
        for n in 0..CALLS {
            let first = random.below(units);
            let count = 1 + random.below((units - first).min(5));
            let number = u8::try_from(n + 1).unwrap();
            let bytes = vec![number; len(count * UNIT)];
            let done = self.fs.write(&self.inode, first * UNIT, &bytes, Stamp::Set);
            assert_eq!(done.unwrap(), bytes.len());
            known[len(first)..len(first + count)].fill(number);
            let from = random.below(units);
            let seen = read(&self.fs, &self.inode, from * UNIT, (units - from) * UNIT);
            for (unit, bytes) in (from..).zip(seen.chunks(len(UNIT))) {
                let expected = vec![known[len(unit)]; len(UNIT)];
                assert!(bytes == expected, "unit {unit} lost what was written to it");
            }
        }
    }

    /// Whatever else one does with a file, none of which changes what is in it.
    fn disturb(&self, seed: u64) {
        let mut random = Rng::new(seed ^ 0xd);
        let crash = random.below(u64::from(CALLS));
        for n in 0..CALLS {
            if u64::from(n) == crash {
                let promised = self.synced.load(Ordering::SeqCst);
                *self.crashed.lock() = Some((self.disk.log.step(), promised));
            }
            match random.below(8) {
                0 => self.fs.fsync(&self.inode, SyncScope::All).unwrap(),
                1 => self.fs.sync().unwrap(),
                2 | 3 => {
                    let set = SetAttributes {
                        mode: Some(0o600 + n % 8),
                        ..SetAttributes::default()
                    };
                    self.fs.change_attributes(&self.inode, &set).unwrap();
                }
                4 => {
                    let value = n.to_le_bytes();
                    let set = self
                        .fs
                        .set_xattr(&self.inode, b"user.n", &value, XattrMode::Any);
                    set.unwrap();
                }
                5 => {
                    let offset = APPENDED + random.below(20 * PAGE);
                    let keep = AllocateMode::KeepSize;
                    self.fs.allocate(&self.inode, keep, offset, PAGE).unwrap();
                }
                6 => {
                    let root = self.fs.root().unwrap();
                    self.fs.link(&self.inode, &root, b"other").unwrap();
                    self.fs.unlink(&root, b"other").unwrap();
                }
                _ => drop(read(&self.fs, &self.inode, 0, BASE * PAGE)),
            }
        }
    }

    /// After the power failure all is there that was promised, and nothing that never was.
    fn check_crashed(&self, trial: Trial, policy: &str) {
        let Some((step, promised)) = self.crashed.lock().take() else {
            return;
        };
        for image in self.disk.crashed(step, trial.seed) {
            let device = share(Arc::clone(&image));
            let fs = mount(device, trial.options(), policy, RangeRule::WhenContended);
            let inode = file(&fs);
            let size = fs.size(&inode).unwrap();
            assert!(size >= promised, "{size} of {promised} promised bytes");
            let bytes = read(&fs, &inode, APPENDED, 1 << 20);
            assert_eq!(APPENDED + u64::try_from(bytes.len()).unwrap(), size);
            check_appended(APPENDED, &bytes, "after the crash");
            fs.close().unwrap();
            drop(inode);
            drop(fs);
            assert_whole(image);
        }
    }
}

fn use_together(policy: &'static str, rule: RangeRule, seed: u64) -> Result<(), String> {
    let trial = Trial::new(seed, 4);
    trial.play(move || {
        let world = World::new(trial, policy, rule);
        thread::scope(|scope| {
            let world = &world;
            let works: [fn(&World, u64); 3] = [World::append, World::fill, World::disturb];
            let tasks: Vec<_> = (1..)
                .zip(works)
                .map(|(core, work)| scope.spawn_on(CoreId::new(core), move || work(world, seed)))
                .collect();
            scope.spawn_on(CoreId::new(0), || world.look(seed));
            for task in tasks {
                if task.join().is_err() {
                    panic!("a task failed");
                }
            }
            world.done.store(true, Ordering::SeqCst);
        });
        world.check_crashed(trial, policy);
        let size = world.ended.load(Ordering::SeqCst);
        world.fs.close().unwrap();
        let ram = Arc::clone(&world.disk.ram);
        let device = share(Arc::clone(&ram));
        let again = mount(device, trial.options(), policy, RangeRule::WhenContended);
        let bytes = read(&again, &file(&again), APPENDED, 1 << 20);
        assert_eq!(APPENDED + u64::try_from(bytes.len()).unwrap(), size);
        check_appended(APPENDED, &bytes, "mounted again");
        again.close().unwrap();
        drop(again);
        assert_whole(ram);
    })
}

#[test]
fn sim_added_pages_come_beside_everything() {
    for seed in seeds(100) {
        let rule = [RangeRule::WhenContended, RangeRule::AtOnce][len(seed / 4 % 2)];
        let policy = POLICIES[len(seed % 4)];
        if let Err(what) = use_together(policy, rule, seed) {
            panic!("{policy} {rule:?} seed={seed}: {what}");
        }
    }
}

#[test]
fn sim_added_canary_a_size_before_its_bytes_is_seen() {
    for seed in 0..200 {
        if let Err(what) = use_together("segment", RangeRule::SizeFirst(LeftOut), seed) {
            assert!(what.contains("not what was appended"), "{what}");
            println!("noticed: seed={seed}: {what}");
            return;
        }
    }
    panic!("200 seeds did not show a size before its bytes");
}

/// What the next tests append, in pieces of a multiple of [`PIECE`] bytes.
const FILL: u8 = 0xa5;
const PIECE: u64 = 100;

fn check_filled(bytes: &[u8], what: &str) {
    let strange = bytes.iter().position(|&byte| byte != FILL);
    assert_eq!(
        strange,
        None,
        "{what}: a byte of {} that nobody wrote",
        bytes.len()
    );
    let rest = bytes.len() % len(PIECE);
    assert_eq!(rest, 0, "{what}: part of a piece");
}

fn append_pieces(fs: &FileSystem, inode: &InodeRef, seed: u64) {
    let mut random = Rng::new(seed);
    for _ in 0..CALLS {
        let bytes = vec![FILL; len(PIECE * (1 + random.below(90)))];
        let (at, done) = fs.append(inode, &bytes).unwrap();
        assert_eq!((at % PIECE, done), (0, bytes.len()));
    }
}

/// Two append, one makes the file shorter, one reads it and makes it durable.
fn cut_beside(rule: RangeRule, seed: u64) {
    let policy = POLICIES[len(seed % 4)];
    let trial = Trial::new(seed, 4);
    let played = trial.play(move || {
        let (disk, fs) = Disk::mount(trial, policy, rule);
        let inode = file(&fs);
        let crashed = thread::scope(|scope| {
            let (fs, inode) = (&fs, &inode);
            for core in 0..2 {
                let seed = seed << 8 | u64::from(core);
                scope.spawn_on(CoreId::new(core), move || append_pieces(fs, inode, seed));
            }
            scope.spawn_on(CoreId::new(2), move || {
                let mut random = Rng::new(seed ^ 0xe);
                for _ in 0..CALLS {
                    let pieces = fs.size(inode).unwrap() / PIECE;
                    let size = random.below(1 + pieces) * PIECE;
                    resize(fs, inode, size);
                }
            });
            let log = &disk.log;
            let reader = scope.spawn_on(CoreId::new(3), move || {
                let mut random = Rng::new(seed ^ 0xf);
                let crash = random.below(u64::from(CALLS));
                let mut crashed = None;
                for n in 0..u64::from(CALLS) {
                    if n == crash {
                        crashed = Some(log.step());
                    }
                    check_filled(&read(fs, inode, 0, 1 << 20), "read");
                    if random.below(4) == 0 {
                        fs.fsync(inode, SyncScope::Data).unwrap();
                    }
                }
                crashed.unwrap()
            });
            reader.join().unwrap()
        });
        check_filled(&read(&fs, &inode, 0, 1 << 20), "at the end");
        let size = fs.size(&inode).unwrap();
        resize(&fs, &inode, size + 5000);
        let behind = read(&fs, &inode, size, 1 << 20);
        assert_eq!(behind, [0; 5000], "behind the end is nothing");
        fs.close().unwrap();
        drop(inode);
        drop(fs);
        assert_whole(Arc::clone(&disk.ram));
        for crashed in disk.crashed(crashed, seed) {
            let fs = mount(share(crashed), trial.options(), policy, rule);
            let found = fs.lookup(&fs.root().unwrap(), b"file").unwrap();
            if let Some(inode) = found {
                let bytes = read(&fs, &inode, 0, 1 << 20);
                assert!(bytes.iter().all(|&byte| byte == FILL), "after the crash");
            }
            fs.close().unwrap();
        }
    });
    if let Err(what) = played {
        panic!("{policy} {rule:?} seed={seed}: {what}");
    }
}

#[test]
fn sim_added_pages_go_when_the_file_becomes_shorter() {
    for seed in seeds(100) {
        let rule = [RangeRule::WhenContended, RangeRule::AtOnce][len(seed / 4 % 2)];
        cut_beside(rule, seed);
    }
}

/// What is done to the middle of a file beside appends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Read,
    Overwrite,
    /// Looks for data in it.
    Seek,
    /// Its bytes are asked for with more room than there are in front of a hole.
    ReadHole,
}

/// Cache lines that moved between two cores: one appends, the other uses page 1.
fn transfers(policy: &'static str, used: Use, rounds: u64) -> u64 {
    let run = try_run(Config::min_clock(2), move || {
        let fs = mount(
            share(small_volume(4096)),
            quiet(),
            policy,
            RangeRule::AtOnce,
        );
        let inode = file(&fs);
        resize(&fs, &inode, 64 * PAGE);
        fs.fsync(&inode, SyncScope::All).unwrap();
        // The size has settled, and the pages are dirty.
        fs.write(&inode, 0, &[1; 4 * 4096], Stamp::Set).unwrap();
        thread::scope(|scope| {
            let (fs, inode) = (&fs, &inode);
            scope.spawn_on(CoreId::new(0), move || {
                for _ in 0..rounds / 2 {
                    fs.append(inode, &[2; 500]).unwrap();
                }
            });
            scope.spawn_on(CoreId::new(1), move || {
                let mut page = [3; 4096];
                for _ in 0..rounds {
                    match used {
                        Use::Read => {
                            let done = fs.read(inode, PAGE, &mut page, ReadMode::Cached);
                            assert_eq!(done.unwrap(), page.len());
                        }
                        Use::Overwrite => {
                            let done = fs.write(inode, PAGE, &page, Stamp::Set);
                            assert_eq!(done.unwrap(), page.len());
                        }
                        Use::Seek => {
                            let found = fs.seek(inode, PAGE, SeekTarget::Data);
                            assert_eq!(found.unwrap(), Some(PAGE));
                        }
                        Use::ReadHole => {
                            let done = fs.read(inode, 7 * PAGE, &mut page, ReadMode::Cached);
                            assert_eq!((done.unwrap(), page[0]), (page.len(), 0));
                        }
                    }
                }
            });
        });
    });
    let report = run.unwrap_or_else(|failure| panic!("{failure}")).report;
    println!("{policy} {used:?} {rounds}: {:#?}", report.hot_lines);
    report.transfers
}

/// Lines moved by 200 more appends and 400 more uses of the middle.
fn transfers_of_more(policy: &'static str, used: Use) -> u64 {
    transfers(policy, used, 600).saturating_sub(transfers(policy, used, 200))
}

#[test]
fn sim_added_a_use_of_the_middle_beside_appends_shares_no_line() {
    for used in [Use::Read, Use::Overwrite, Use::Seek, Use::ReadHole] {
        let more = transfers_of_more("segment", used);
        // A tick of the clock moves the times.
        assert!(more <= 20, "{used:?}: {more} transfers in 600 calls");
    }
}

#[test]
fn sim_added_canary_one_lock_per_file_is_shared() {
    let more = transfers_of_more("inode", Use::Read);
    // Reads are far shorter than appends: what moves is one line for each concurrent append.
    assert!(more > 40, "{more} transfers in 600 calls");
}

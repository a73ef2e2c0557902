//! Tasks that share one file, under every range lock and unfair schedules: what a read may see, and
//! what is there at the end.
//!
//! Runs with the sim backend only: `cargo xtask sim -p dure-sim`. There a copy of a page is two
//! steps, so a writer whom nobody keeps out is seen half way through.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests print what they have seen"
)]

use dure_block::nvm::NvmDevice;
use dure_block::ram::RamDevice;
use dure_block::{Device, Io, WriteFlags, share};
use dure_fs::{
    AllocateMode, Error, FileSystem, InodeRef, MountOptions, NewInode, PageCaching, RangeRule,
    RangeWait, ReadMode, SetAttributes, Stamp, SyncScope,
};
use dure_pmem::Region;
use dure_sim::schedules::{Trial, play_each, play_under, quiet, small_volume};
use dure_sync::canary::LeftOut;
use dure_sync::sim::{Config, Rng, seeds, try_run};
use dure_sync::{Arc, CoreId, thread};

/// Half a page: what writes are multiples of.
const UNIT: usize = 2048;
const PAGE: usize = 2 * UNIT;
/// Units of the shared file.
const UNITS: u64 = 8;
/// Calls of one core.
const CALLS: u32 = 16;

fn file(fs: &FileSystem) -> InodeRef {
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let root = fs.root().unwrap();
    let found = fs.lookup(&root, b"file").unwrap();
    found.unwrap_or_else(|| fs.create(&root, b"file", &new).unwrap())
}

fn mount(options: MountOptions, policy: &str, rule: RangeRule) -> FileSystem {
    mount_on(&small_volume(2048), options, policy, rule)
}

fn mount_on(
    ram: &Arc<RamDevice>,
    mut options: MountOptions,
    policy: &str,
    rule: RangeRule,
) -> FileSystem {
    options.volume_rules.ranges = rule;
    for word in policy.split(',') {
        let (key, value) = word.split_once('=').unwrap();
        assert_eq!(options.set_policy(key, value), Ok(true));
    }
    let device = match options.page_cache {
        Some(PageCaching::None) => in_nvm(ram),
        _ => share(Arc::clone(ram)),
    };
    FileSystem::open(device, options).unwrap()
}

/// The content of a device, in emulated persistent memory.
fn in_nvm(ram: &RamDevice) -> Arc<dyn Device> {
    let blocks = ram.info().blocks;
    let region = Region::anonymous(usize::try_from(blocks).unwrap() * PAGE).unwrap();
    let nvm = NvmDevice::in_memory("nvm", region);
    // The others are zeroes in both.
    for (lba, block) in ram.snapshot().stored() {
        let (parts, flags) = (&[block.bytes()][..], WriteFlags::NONE);
        nvm.execute(Io::Write { lba, parts, flags }).unwrap();
    }
    share(nvm)
}

/// A write of some units. Its number, core * 256 + n, is what the units are filled with.
#[derive(Debug, Clone, Copy)]
struct Written {
    first: u64,
    count: u64,
}

fn write_of(core: u16, n: u32) -> Written {
    let mut random = Rng::new(u64::from(core) << 32 | u64::from(n));
    let first = random.below(UNITS);
    let count = 1 + random.below(UNITS - first);
    Written { first, count }
}

fn filled(number: u32, bytes: usize) -> Vec<u8> {
    number.to_le_bytes().repeat(bytes / 4)
}

/// The number that fills a unit.
fn number_of(unit: &[u8], what: &str) -> u32 {
    let number = u32::from_le_bytes(unit[..4].try_into().unwrap());
    assert_eq!(
        unit,
        filled(number, unit.len()),
        "{what}: a unit is of one write"
    );
    number
}

/// Of two writes that cover each other's units, the later one is seen in both. `within` says which
/// units were seen at one moment.
fn check_seen(bytes: &[u8], within: impl Fn(u64, u64) -> bool, what: &str) {
    let seen: Vec<u32> = bytes
        .chunks_exact(UNIT)
        .map(|unit| number_of(unit, what))
        .collect();
    let covers = |number: u32, unit: u64| {
        let core = u16::try_from(number >> 8).unwrap();
        let written = write_of(core, number & 0xff);
        (written.first..written.first + written.count).contains(&unit)
    };
    for (i, &one) in (0..).zip(&seen) {
        for (j, &other) in (0..).zip(&seen) {
            let mixed = i < j && one != other && one != 0 && other != 0 && within(i, j);
            assert!(
                !(mixed && covers(one, j) && covers(other, i)),
                "{what}: units {i} and {j} hold {one:#x} and {other:#x} of {seen:x?}"
            );
        }
    }
}

/// One core's calls on the units of the shared file that begin at byte `base`.
fn work(fs: &FileSystem, core: u16, seed: u64, (base, mode): (u64, ReadMode)) {
    let inode = file(fs);
    // Where readers hold their range, a read is one moment; else each page of it is.
    let options = fs.options();
    let whole =
        options.range_wait == RangeWait::InTurn || options.page_cache == Some(PageCaching::None);
    let mut random = Rng::new(seed.wrapping_mul(1009) ^ u64::from(core));
    for n in 0..CALLS {
        let what = format!("core {core}, call {n}");
        let (unit, count) = (random.below(UNITS), 1 + random.below(UNITS));
        let (offset, len) = (base + unit * UNIT as u64, count * UNIT as u64);
        match random.below(16) {
            0..7 => {
                let Written { first, count } = write_of(core, n);
                let data = filled(
                    u32::from(core) << 8 | n,
                    usize::try_from(count).unwrap() * UNIT,
                );
                let done = fs.write(&inode, base + first * UNIT as u64, &data, Stamp::Set);
                assert_eq!(done.unwrap(), data.len());
            }
            7..12 => {
                let mut bytes = vec![0; usize::try_from(UNITS).unwrap() * UNIT];
                let len = fs.read(&inode, base, &mut bytes, mode).unwrap();
                assert_eq!(len % UNIT, 0, "sizes are multiples of a unit");
                check_seen(&bytes[..len], |i, j| whole || i / 2 == j / 2, &what);
            }
            12 => {
                let size = SetAttributes {
                    size: Some(offset),
                    ..SetAttributes::default()
                };
                fs.set_attributes(&inode, &size).unwrap();
            }
            13 => fs.fsync(&inode, SyncScope::Data).unwrap(),
            14 => fs
                .allocate(&inode, AllocateMode::Punch, offset, len)
                .unwrap(),
            _ => {
                let mode = [AllocateMode::ZeroKeepSize, AllocateMode::KeepSize];
                fs.allocate(&inode, mode[random.index(2)], offset, len)
                    .unwrap();
            }
        }
    }
}

fn share_a_file(policy: &'static str, rule: RangeRule, trial: Trial) -> Result<(), String> {
    let Trial { seed, cores } = trial;
    trial.play(move || {
        let fs = mount(trial.options(), policy, rule);
        let start = vec![0; usize::try_from(UNITS).unwrap() * UNIT];
        fs.write(&file(&fs), 0, &start, Stamp::Set).unwrap();
        thread::scope(|scope| {
            for core in 0..cores {
                let fs = &fs;
                scope.spawn_on(CoreId::new(core), move || {
                    work(fs, core, seed, (0, ReadMode::Cached));
                });
            }
        });
        fs.close().unwrap();
    })
}

fn must_hold(policy: &'static str) {
    let rules = [RangeRule::WhenContended, RangeRule::AtOnce];
    play_under(&rules, 100, |rule, trial| share_a_file(policy, rule, trial));
}

#[test]
fn sim_ranges_inode() {
    play_under(&[RangeRule::WhenContended], 100, |rule, trial| {
        share_a_file("range_lock=inode", rule, trial)
    });
}

#[test]
fn sim_ranges_tree() {
    must_hold("range_lock=tree");
}

#[test]
fn sim_ranges_bitmap() {
    must_hold("range_lock=bitmap");
}

#[test]
fn sim_ranges_segment() {
    must_hold("range_lock=segment");
}

#[test]
fn sim_ranges_large_segment() {
    must_hold("range_lock=segment,segment_size=8K");
}

/// With any wait, `inode` and `rwsem` lock a file as a whole.
#[test]
fn sim_ranges_rwsem() {
    must_hold("range_lock=rwsem");
}

#[test]
fn sim_ranges_queue_tree() {
    must_hold("range_lock=tree,range_lock_wait=queue");
}

#[test]
fn sim_ranges_queue_bitmap() {
    must_hold("range_lock=bitmap,range_lock_wait=queue");
}

#[test]
fn sim_ranges_queue_segment() {
    must_hold("range_lock=segment,range_lock_wait=queue");
}

#[test]
fn sim_ranges_queue_large_segment() {
    must_hold("range_lock=segment,segment_size=8K,range_lock_wait=queue");
}

/// Without a page cache, where slots change under the shared inode lock.
#[test]
fn sim_ranges_direct_tree() {
    must_hold("page_cache=none,range_lock=tree");
}

#[test]
fn sim_ranges_direct_bitmap() {
    must_hold("page_cache=none,range_lock=bitmap");
}

#[test]
fn sim_ranges_direct_segment() {
    must_hold("page_cache=none,range_lock=segment,segment_size=8K");
}

#[test]
fn sim_ranges_direct_posix() {
    must_hold("page_cache=none,durability=posix");
}

#[test]
fn sim_ranges_direct_queue() {
    must_hold("page_cache=none,range_lock=bitmap,range_lock_wait=queue");
}

/// Canary: overwrites whose ranges keep no other out lose half of a page, and readers find blocks
/// that are in use again.
#[test]
fn sim_ranges_direct_canary_writers_share() {
    let seen = ["of one write", " hold 0x", "it is free"];
    for policy in [
        "page_cache=none,range_lock=segment",
        "page_cache=none,range_lock=tree",
    ] {
        must_be_noticed(policy, RangeRule::Broken(LeftOut), &seen);
    }
}

/// Canary: without their ranges readers see two moments of several pages, or half a write.
#[test]
fn sim_ranges_queue_canary_readers_take_none() {
    for policy in QUEUES {
        must_be_noticed(
            policy,
            RangeRule::Unchecked(LeftOut),
            &["of one write", " hold 0x"],
        );
    }
}

const QUEUES: [&str; 3] = [
    "range_lock=tree,range_lock_wait=queue",
    "range_lock=bitmap,range_lock_wait=queue",
    "range_lock=segment,range_lock_wait=queue",
];

/// Tasks whose pages lie deep in a map: each walk goes through three nodes, which come and go with
/// the pages they name (truncates free them, write-back moves them, another file's pages push these
/// out).
fn share_a_map(policy: &'static str, trial: Trial) {
    // Behind the direct slots and the first leaves: an index is the root.
    let base = 4096 * (24 + 320 * 448 + 318);
    let seed = trial.seed;
    let options = MountOptions {
        cache_bytes: 96 << 10,
        ..trial.options()
    };
    let fs = mount(options, policy, RangeRule::WhenContended);
    let inode = file(&fs);
    let start = vec![0; usize::try_from(UNITS).unwrap() * UNIT];
    fs.write(&inode, base, &start, Stamp::Set).unwrap();
    fs.fsync(&inode, SyncScope::All).unwrap();
    let other = fs.temporary(&fs.root().unwrap(), &NewInode::default());
    let other = other.unwrap();
    thread::scope(|scope| {
        for core in 0..2 {
            let fs = &fs;
            let mode = [ReadMode::Cached, ReadMode::Bypass][usize::from(core)];
            scope.spawn_on(CoreId::new(core), move || {
                work(fs, core, seed, (base, mode))
            });
        }
        scope.spawn_on(CoreId::new(2), || {
            for page in 0..12 {
                fs.write(&other, page * 4096, &[7; PAGE], Stamp::Set)
                    .unwrap();
                if page % 4 == 3 {
                    fs.sync().unwrap();
                }
            }
        });
    });
    fs.close().unwrap();
}

#[test]
fn sim_nodes_mutex() {
    play_each(60, 3, |trial| share_a_map("node_lock=mutex", trial));
}

#[test]
fn sim_nodes_rwsem() {
    play_each(60, 3, |trial| share_a_map("node_lock=rwsem", trial));
}

#[test]
fn sim_nodes_optimistic() {
    play_each(60, 3, |trial| share_a_map("node_lock=optimistic", trial));
}

/// Canary: writers whose ranges keep no other out are seen half way through, under each lock: it is
/// what they go by.
#[test]
fn sim_ranges_canary_writers_share() {
    let seen = ["of one write", " hold 0x", "changed by two at once"];
    for policy in RANGE_LOCKS.into_iter().chain(QUEUES) {
        must_be_noticed(policy, RangeRule::Broken(LeftOut), &seen);
    }
}

const RANGE_LOCKS: [&str; 4] = [
    "range_lock=tree",
    "range_lock=bitmap",
    "range_lock=segment",
    "range_lock=segment,segment_size=8K",
];

/// Canary: readers that do not look at a page's version see half a write.
#[test]
fn sim_ranges_canary_readers_do_not_look() {
    let seen = ["of one write", " hold 0x"];
    must_be_noticed("range_lock=segment", RangeRule::Unchecked(LeftOut), &seen);
}

fn must_be_noticed(policy: &'static str, rule: RangeRule, seen: &[&str]) {
    for seed in 0..200 {
        if let Err(what) = share_a_file(policy, rule, Trial::any(seed)) {
            assert!(seen.iter().any(|text| what.contains(text)), "{what}");
            println!("{policy}: noticed: {what}");
            return;
        }
    }
    panic!("{policy}: 200 seeds did not show what {rule:?} allows");
}

/// What core `core` appends as its n-th record.
fn record(core: u16, n: u32) -> Vec<u8> {
    let len = [100, 3000, 9000][usize::try_from((n + u32::from(core)) % 3).unwrap()];
    let number = u32::from(core) << 8 | n | 0x8000;
    let mut bytes = filled(number, len);
    bytes[4..8].copy_from_slice(&u32::try_from(len).unwrap().to_le_bytes());
    bytes
}

/// A file is whole records, one behind the other. Gives them.
fn records(bytes: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let number = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) & !0x8000;
        let expected = record(u16::try_from(number >> 8).unwrap(), number & 0xff);
        assert_eq!(
            bytes.get(at..at + expected.len()),
            Some(&expected[..]),
            "a whole record at {at} of {}",
            bytes.len()
        );
        found.push((at, expected.clone()));
        at += expected.len();
    }
    found
}

fn read_all(fs: &FileSystem) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    let len = fs.read(&file(fs), 0, &mut bytes, ReadMode::Cached).unwrap();
    bytes.truncate(len);
    bytes
}

/// Appends records until they are all there or there is no room; gives where they went.
fn append_some(fs: &FileSystem, core: u16, count: u32) -> Vec<(usize, Vec<u8>)> {
    let inode = file(fs);
    let mut done = Vec::new();
    for n in 0..count {
        let bytes = record(core, n);
        match fs.append(&inode, &bytes) {
            Ok((offset, written)) => {
                assert_eq!(written, bytes.len(), "a record is appended whole or not");
                done.push((usize::try_from(offset).unwrap(), bytes));
            }
            Err(Error::NoSpace { .. }) => break,
            Err(error) => panic!("{error}"),
        }
        match n % 4 {
            1 => drop(records(&read_all(fs))),
            // No room for write-back is no reason to lose anything.
            3 => match fs.fsync(&inode, SyncScope::All) {
                Ok(()) | Err(Error::NoSpace { .. }) => {}
                Err(error) => panic!("{error}"),
            },
            _ => {}
        }
    }
    done
}

/// Another file takes all blocks but a few.
fn leave_room(fs: &FileSystem, blocks: u64) {
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let other = fs.create(&fs.root().unwrap(), b"other", &new).unwrap();
    let (mut at, mut step) = (0, 64);
    while step > 0 {
        let room = fs.statistics().blocks_available.saturating_sub(blocks);
        let len = room.min(step) * 4096;
        if len == 0 {
            break;
        }
        match fs.allocate(&other, AllocateMode::KeepSize, at, len) {
            Ok(()) => at += len,
            Err(Error::NoSpace { .. }) => step /= 2,
            Err(error) => panic!("{error}"),
        }
    }
}

fn append_together(policy: &'static str, rule: RangeRule, fill: u64, seed: u64) {
    let trial = Trial::new(seed, 3);
    let played = trial.play(move || {
        let fs = mount(trial.options(), policy, rule);
        file(&fs);
        if fill > 0 {
            leave_room(&fs, fill);
        }
        let mut all: Vec<(usize, Vec<u8>)> = thread::scope(|scope| {
            let tasks: Vec<_> = (0..3)
                .map(|core| {
                    let fs = &fs;
                    scope.spawn_on(CoreId::new(core), move || append_some(fs, core, 8))
                })
                .collect();
            let joined = tasks.into_iter().map(|task| task.join().unwrap());
            joined.flatten().collect()
        });
        all.sort();
        let full = all.len() < 24;
        let room = fs.statistics();
        assert_eq!(
            full,
            fill > 0,
            "there is room exactly if nothing fills it: {room:?}"
        );
        assert_eq!(
            records(&read_all(&fs)),
            all,
            "what was appended is there, once and whole"
        );
    });
    if let Err(what) = played {
        panic!("{policy} {rule:?} seed={seed}: {what}");
    }
}

#[test]
fn sim_ranges_appends_follow_each_other() {
    for seed in seeds(60) {
        let policies = [
            "range_lock=inode",
            "range_lock=rwsem",
            "range_lock=tree",
            "range_lock=bitmap",
            "range_lock=segment",
            QUEUES[0],
            QUEUES[1],
            QUEUES[2],
        ];
        let policy = policies[usize::try_from(seed % 8).unwrap()];
        let rule =
            [RangeRule::WhenContended, RangeRule::AtOnce][usize::try_from(seed / 8 % 2).unwrap()];
        append_together(policy, rule, 0, seed);
    }
}

#[test]
fn sim_ranges_an_append_without_room_takes_nothing_away() {
    for seed in seeds(60) {
        let rule =
            [RangeRule::WhenContended, RangeRule::AtOnce][usize::try_from(seed % 2).unwrap()];
        append_together("range_lock=segment", rule, 4, seed);
    }
}

/// What each core does, again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    /// Overwrites a page of its own.
    Overwrite,
    /// Reads a page of its own.
    ReadOwn,
    /// Reads the first page.
    ReadOne,
    /// Reads a page of its own, deep in the map, past the cache.
    ReadUncached,
}

/// Where the pages of `ReadUncached` are: behind a root, an index and leaves of their own.
const DEEP: u64 = 4096 * (24 + 320 * 448);
/// From one core's page to the next one's: a leaf.
const DEEP_STEP: u64 = 4096 * 320;

/// Cache lines that moved between four cores, in a file in which they have met: when they meet is
/// chance.
fn transfers(policy: &'static str, load: Load, rounds: u64) -> u64 {
    let done = try_run(Config::min_clock(4), move || {
        let ram = small_volume(2048);
        {
            let fs = mount_on(&ram, quiet(), policy, RangeRule::WhenContended);
            for core in 0..4 {
                let at = DEEP + core * DEEP_STEP;
                fs.write(&file(&fs), at, &[1; PAGE], Stamp::Set).unwrap();
            }
            fs.close().unwrap();
        }
        // Nothing is in memory.
        let fs = mount_on(&ram, quiet(), policy, RangeRule::AtOnce);
        let inode = file(&fs);
        // Chunks of 64 pages are apart.
        for page in 0..4 {
            fs.write(&inode, page * 64 * 4096, &[1; PAGE], Stamp::Set)
                .unwrap();
        }
        thread::scope(|scope| {
            for core in 0..4_u16 {
                let (fs, inode) = (&fs, &inode);
                scope.spawn_on(CoreId::new(core), move || {
                    let own = u64::from(core) * 64 * 4096;
                    let mut bytes = [2; PAGE];
                    for _ in 0..rounds {
                        let done = match load {
                            Load::Overwrite => fs.write(inode, own, &bytes, Stamp::Set),
                            Load::ReadOwn => fs.read(inode, own, &mut bytes, ReadMode::Cached),
                            Load::ReadOne => fs.read(inode, 0, &mut bytes, ReadMode::Cached),
                            Load::ReadUncached => {
                                let at = DEEP + u64::from(core) * DEEP_STEP;
                                fs.read(inode, at, &mut bytes, ReadMode::Bypass)
                            }
                        };
                        assert_eq!(done.unwrap(), PAGE);
                    }
                });
            }
        });
    });
    done.unwrap_or_else(|failure| panic!("{failure}"))
        .report
        .transfers
}

/// Lines moved by 4 x 400 more rounds.
fn transfers_of_more(policy: &'static str, load: Load) -> u64 {
    transfers(policy, load, 500).saturating_sub(transfers(policy, load, 100))
}

#[test]
fn sim_tasks_on_pages_of_their_own_share_no_lines() {
    for load in [Load::Overwrite, Load::ReadOwn, Load::ReadOne] {
        let more = transfers_of_more("range_lock=segment", load);
        // A tick of the clock moves the times.
        assert!(more <= 40, "{load:?}: {more} transfers in 1600 calls");
    }
}

#[test]
fn sim_canary_one_lock_per_file_is_shared() {
    let more = transfers_of_more("range_lock=inode", Load::Overwrite);
    // A core that makes several calls in a row moves it once; how many is chance.
    assert!(more > 200, "{more} transfers in 1600 calls");
}

/// A walk through a shared map writes nothing that another walk sees; with the other policies it
/// does.
#[test]
fn sim_nodes_optimistic_walks_share_no_lines() {
    let more = NODE_LOCKS.map(|policy| transfers_of_more(policy, Load::ReadUncached));
    println!("{NODE_LOCKS:?}: {more:?} transfers in 1600 calls");
    assert!(more[2] <= 40, "{more:?}");
    assert!(more[0].min(more[1]) > 1_600, "{more:?}");
}

const NODE_LOCKS: [&str; 3] = ["node_lock=mutex", "node_lock=rwsem", "node_lock=optimistic"];

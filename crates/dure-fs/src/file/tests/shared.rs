//! Several tasks in one file, with every range lock.

use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::random::Seeded;
use dure_sync::range_lock::Policy;
use dure_sync::thread;

use super::random::byte;
use super::{World, check, content, file, fsck, nth_file};
use crate::inode::InodeRef;
use crate::volume::{FileSystem, RangeRule, RangeWait};
use crate::{AllocateMode, Error, FILE_BYTES_MAX, ReadMode, SetAttributes, Stamp, SyncScope};

/// Bytes of a piece, of which each thread has every fourth: neighbours share pages.
const PIECE: u64 = 3000;
const THREADS: u64 = 4;
/// Pieces of one thread.
const PIECES: u64 = 24;

fn world(words: &str, rule: RangeRule, cache_bytes: u64) -> World {
    with(World::new(16384, cache_bytes), words, rule)
}

/// The world with these policies.
pub(super) fn with(mut world: World, words: &str, rule: RangeRule) -> World {
    world.options.volume_rules.ranges = rule;
    for word in words.split(',') {
        let (key, value) = word.split_once('=').unwrap();
        assert_eq!(world.options.set_policy(key, value), Ok(true), "{word}");
    }
    world
}

pub(super) fn policies() -> impl Iterator<Item = String> {
    let names = Policy::ALL.map(|policy| format!("range_lock={policy}"));
    let queues = Policy::ALL.map(|policy| format!("range_lock={policy},range_lock_wait=queue"));
    let large = "range_lock=segment,segment_size=64K".to_owned();
    names.into_iter().chain(queues).chain([large])
}

fn len_of(len: u64) -> usize {
    usize::try_from(len).unwrap()
}

/// Random reads and writes of the thread's own pieces. Gives what they hold at the end.
fn work(fs: &FileSystem, inode: &InodeRef, thread: u64, seed: u64) -> Vec<Vec<u8>> {
    let mut rng = Seeded::new(seed * 100 + thread);
    let mut pieces = vec![vec![0; len_of(PIECE)]; len_of(PIECES)];
    for round in 0..150 {
        let n = rng.below(PIECES);
        let start = (n * THREADS + thread) * PIECE;
        let from = rng.below(PIECE);
        let len = 1 + rng.below(PIECE - from);
        let own = &mut pieces[len_of(n)][len_of(from)..len_of(from + len)];
        match rng.below(20) {
            0..9 => {
                own.fill_with(|| byte(&mut rng));
                let done = fs.write(inode, start + from, own, Stamp::Set).unwrap();
                assert_eq!(done, own.len());
            }
            9..17 => {
                let mut seen = vec![0xee; own.len()];
                let mode = [ReadMode::Cached, ReadMode::Bypass][usize::from(round % 5 == 0)];
                assert_eq!(
                    fs.read(inode, start + from, &mut seen, mode).unwrap(),
                    own.len()
                );
                assert!(
                    seen == own,
                    "thread {thread} lost an update of piece {n}, round {round}"
                );
            }
            17 => {
                fs.allocate(inode, AllocateMode::Punch, start + from, len)
                    .unwrap();
                own.fill(0);
            }
            18 => fs.fsync(inode, SyncScope::Data).unwrap(),
            _ => drop(fs.0.files.pages.evict(fs.0.store.partition(), 8)),
        }
    }
    pieces
}

fn share_a_file(words: &str, rule: RangeRule, cache_bytes: u64) {
    let what = format!("{words} {rule:?}");
    share_a_file_of(&world(words, rule, cache_bytes), &what, cache_bytes);
}

pub(super) fn share_a_file_of(world: &World, what: &str, seed: u64) {
    let fs = world.mount();
    let inode = file(&fs);
    let zeroes = vec![0; len_of(PIECE * THREADS * PIECES)];
    fs.write(&inode, 0, &zeroes, Stamp::Set).unwrap();
    let parts: Vec<Vec<Vec<u8>>> = thread::scope(|scope| {
        let tasks: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (fs, inode) = (&fs, &inode);
                scope.spawn(move || work(fs, inode, thread, seed))
            })
            .collect();
        tasks.into_iter().map(|task| task.join().unwrap()).collect()
    });
    let pieces = (0..len_of(PIECES)).flat_map(|n| parts.iter().map(move |part| &part[n]));
    let whole: Vec<u8> = pieces.flatten().copied().collect();
    assert!(content(&fs, &inode) == whole, "{what}");
    let policy = world.options.range_lock.policy();
    if world.options.volume_rules.ranges == RangeRule::AtOnce {
        let taken = inode.inode().ranges().bytes() > 0;
        assert_eq!(taken, !policy.is_whole_file(), "{what}: ranges were taken");
    }
    check(&fs, &inode);
    fs.close().unwrap();
    drop(inode);
    drop(fs);
    let fs = world.mount();
    assert!(content(&fs, &file(&fs)) == whole, "{what}, mounted again");
    fs.close().unwrap();
    drop(fs);
    fsck(world.device(), what);
}

#[test]
fn pages_that_tasks_share_lose_no_update() {
    for words in policies() {
        share_a_file(&words, RangeRule::WhenContended, 8 << 20);
        share_a_file(&words, RangeRule::AtOnce, 8 << 20);
    }
}

#[test]
fn pages_that_tasks_share_lose_no_update_with_a_tiny_cache() {
    for words in policies() {
        share_a_file(&words, RangeRule::AtOnce, 64 << 10);
    }
}

#[test]
fn a_file_of_one_task_has_no_range_lock() {
    let world = world("range_lock=segment", RangeRule::WhenContended, 8 << 20);
    let fs = world.mount();
    let inode = file(&fs);
    for page in 0..40 {
        fs.write(&inode, page * 4000, &[1; 4096], Stamp::Set)
            .unwrap();
    }
    fs.fsync(&inode, SyncScope::All).unwrap();
    fs.append(&inode, &[2; 9000]).unwrap();
    assert!(!inode.inode().ranges().are_locked());
    // Somebody else is there at the same time.
    let reading = inode.inode().state().read();
    thread::scope(|scope| {
        scope.spawn(|| fs.write(&inode, 0, &[3; 100], Stamp::Set).unwrap());
        thread::sleep(std::time::Duration::from_millis(20));
        drop(reading);
    });
    assert!(inode.inode().ranges().are_locked());
    assert_eq!(
        content(&fs, &inode)[..101],
        [[3; 100].as_slice(), &[1]].concat()
    );
}

/// The holder of a range excludes writers of that range and of no other.
#[test]
fn writers_of_other_ranges_go_on() {
    let parts = |words: &String| {
        !(words.contains("=inode") || words.contains("=rwsem") || words.contains("=queue"))
    };
    for words in policies().filter(parts) {
        let world = world(&words, RangeRule::AtOnce, 8 << 20);
        let fs = world.mount();
        let inode = file(&fs);
        fs.write(&inode, 0, &vec![1; 256 << 10], Stamp::Set)
            .unwrap();
        let lock = format!("{:?}", inode.inode().ranges()).to_lowercase();
        let policy = world.options.range_lock.policy();
        assert!(lock.contains(&format!("policy: {policy}")), "{lock}");
        let held = inode
            .inode()
            .ranges()
            .take(0, 4096)
            .expect("it is not contended");
        let written = AtomicU64::new(0);
        let write = |offset| {
            fs.write(&inode, offset, &[2; 4096], Stamp::Set).unwrap();
            written.fetch_add(1, Ordering::Relaxed);
        };
        thread::scope(|scope| {
            // A writer that wants the inode exclusively waits.
            let reading = inode.inode().state().read();
            let writes_within = |offset, turns| {
                // Relaxed: the sleeps are long.
                let count = || written.load(Ordering::Relaxed);
                let (before, write) = (count(), &write);
                scope.spawn(move || write(offset));
                let wait = || thread::sleep(std::time::Duration::from_millis(20));
                (0..turns)
                    .take_while(|_| count() == before)
                    .for_each(|_| wait());
                count() > before
            };
            assert!(writes_within(128 << 10, 500), "{words}: elsewhere");
            assert!(!writes_within(0, 2), "{words}: where somebody is");
            drop((reading, held));
        });
        assert_eq!(
            content(&fs, &inode)[..4097],
            [[2; 4096].as_slice(), &[1]].concat()
        );
    }
}

#[test]
fn the_baseline_has_no_range_lock() {
    for words in ["range_lock=inode", "range_lock=rwsem"] {
        let world = world(words, RangeRule::AtOnce, 8 << 20);
        let fs = world.mount();
        let inode = file(&fs);
        fs.write(&inode, 0, &[1; 5000], Stamp::Set).unwrap();
        assert!(!inode.inode().ranges().are_locked(), "{words}");
    }
}

#[test]
fn ranges_that_are_empty_or_past_every_end() {
    for words in policies() {
        let world = world(&words, RangeRule::AtOnce, 8 << 20);
        let fs = world.mount();
        let inode = file(&fs);
        fs.write(&inode, 0, &[1; 5000], Stamp::Set).unwrap();
        let mut buf = [0; 100];
        let mut read = |offset, len: usize| {
            fs.read(&inode, offset, &mut buf[..len], ReadMode::Cached)
                .unwrap()
        };
        assert_eq!(read(4950, 100), 50);
        for offset in [5000, 5001, 1 << 40, FILE_BYTES_MAX, u64::MAX - 3, u64::MAX] {
            assert_eq!(read(offset, 100), 0, "{offset}");
        }
        assert_eq!(read(0, 0), 0);
        assert_eq!(fs.write(&inode, 17, &[], Stamp::Set).unwrap(), 0);
        assert_eq!(fs.write(&inode, u64::MAX, &[], Stamp::Set).unwrap(), 0);
        assert_eq!(fs.append(&inode, &[]).unwrap(), (5000, 0));
        for offset in [FILE_BYTES_MAX, u64::MAX - 1, u64::MAX] {
            let refused = fs.write(&inode, offset, &[1; 10], Stamp::Set);
            assert!(matches!(refused, Err(Error::TooLarge)), "{offset}");
            let refused = fs.allocate(&inode, AllocateMode::Extend, offset, 10);
            assert!(matches!(refused, Err(Error::TooLarge)), "{offset}");
        }
        let refused = fs.allocate(&inode, AllocateMode::Punch, 10, 0);
        assert!(matches!(refused, Err(Error::Invalid(_))));
        fs.allocate(&inode, AllocateMode::Punch, 4000, FILE_BYTES_MAX - 4000)
            .unwrap();
        let last = FILE_BYTES_MAX - 5;
        assert_eq!(fs.write(&inode, last, &[7; 10], Stamp::Set).unwrap(), 5);
        assert_eq!(read(last, 100), 5);
        let size = SetAttributes {
            size: Some(3),
            ..SetAttributes::default()
        };
        fs.set_attributes(&inode, &size).unwrap();
        assert_eq!(content(&fs, &inode), [1; 3]);
        check(&fs, &inode);
    }
}

/// Files for which tasks contend have words within a share of `cache=`, however many they are.
#[test]
fn range_words_of_many_files_stay_within_their_share() {
    const CACHE: u64 = 4 << 20;
    const FILES: u64 = 12;
    const PLACES: u64 = 32;
    for words in ["range_lock=bitmap", "range_lock=segment"] {
        let world = world(words, RangeRule::AtOnce, CACHE);
        let fs = world.mount();
        let inodes: Vec<InodeRef> = (0..FILES).map(|n| nth_file(&fs, n)).collect();
        // From chunk of words to chunk of words.
        let offset = |place: u64| place << 22;
        for (n, inode) in (1..).zip(&inodes) {
            fs.append(inode, &[0]).unwrap();
            let size = SetAttributes {
                size: Some(offset(PLACES)),
                ..SetAttributes::default()
            };
            fs.set_attributes(inode, &size).unwrap();
            for place in 0..PLACES {
                let done = fs.write(inode, offset(place), &[n; 100], Stamp::Set);
                assert_eq!(done.unwrap(), 100);
            }
        }
        let bytes = inodes.iter().map(|inode| inode.inode().ranges().bytes());
        let (bytes, share) = (bytes.sum::<usize>(), len_of(CACHE / 64));
        assert!(bytes <= share && bytes > share / 2, "{bytes} of {share}");
        assert!(fs.0.inodes.range_words.bytes() <= share);
        for (n, inode) in (1..).zip(&inodes) {
            for place in 0..PLACES {
                let mut seen = [0; 100];
                let mode = ReadMode::Cached;
                assert_eq!(fs.read(inode, offset(place), &mut seen, mode).unwrap(), 100);
                assert_eq!(seen, [n; 100], "place {place}");
            }
        }
        fs.close().unwrap();
        drop(inodes);
        let budget = dure_sync::Arc::clone(&fs.0.inodes.range_words);
        drop(fs);
        assert_eq!(budget.bytes(), 0, "they go with the inodes");
        fsck(world.device(), words);
    }
}

#[test]
fn options_say_what_they_take() {
    let mut options = crate::MountOptions::default();
    assert_eq!(options.range_lock.policy(), Policy::Segment);
    for policy in Policy::ALL {
        assert_eq!(options.set_policy("range_lock", policy.name()), Ok(true));
        assert_eq!(options.range_lock.policy(), policy);
    }
    for (name, wait) in [("queue", RangeWait::InTurn), ("try", RangeWait::Try)] {
        assert_eq!(options.set_policy("range_lock_wait", name), Ok(true));
        assert_eq!(options.range_wait, wait);
    }
    let refused = options.set_policy("range_lock_wait", "fifo").unwrap_err();
    assert!(refused.contains("try or queue"), "{refused}");
    for size in ["4096", "4K", "64K", "1M", "1T"] {
        assert_eq!(options.set_policy("segment_size", size), Ok(true), "{size}");
        assert_eq!(options.range_lock.policy(), Policy::Segment, "kept");
    }
    for size in ["", "K", "0", "2K", "5K", "2T", "99999999999999T", "-4K"] {
        let refused = options.set_policy("segment_size", size).unwrap_err();
        assert!(refused.contains("power of two, 4K to 1T"), "{refused}");
    }
    let refused = options.set_policy("range_lock", "page").unwrap_err();
    assert!(
        refused.contains("inode or rwsem or tree or bitmap or segment"),
        "{refused}"
    );
}

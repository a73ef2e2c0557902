//! Snapshots taken while tasks change the volume: each is a moment of it.
//!
//! Runs with the sim backend only: `cargo xtask sim -p dure-sim -- snapshots`. Writers make files in
//! pairs, the second when the call for the first has returned, and move a file between two
//! directories; a snapshot has no second file without its first, everything that was acknowledged
//! before it began, and the moved file once.

#![expect(clippy::unwrap_used, reason = "tests say what they expect")]

use dure_block::share;
use dure_fs::{
    Error, FileSystem, InodeRef, MountOptions, NewInode, RenameMode, StoreRules, VolumeRules,
};
use dure_sim::schedules::{Trial, assert_whole, play_each, quiet, small_volume};
use dure_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use dure_sync::canary::Rule;
use dure_sync::{CoreId, thread};

/// Pairs that each writer makes.
const PAIRS: u64 = 12;
const WRITERS: u16 = 2;

fn new(mode: u32) -> NewInode {
    NewInode {
        mode,
        ..NewInode::default()
    }
}

fn directory(fs: &FileSystem, name: &str) -> InodeRef {
    let root = fs.root().unwrap();
    fs.lookup(&root, name.as_bytes()).unwrap().unwrap()
}

/// Makes pairs of files in two directories, and moves one between these.
fn write(fs: &FileSystem, core: u16, acknowledged: &AtomicU64) {
    let (a, b) = (directory(fs, "a"), directory(fs, "b"));
    let moved = format!("moved{core}").into_bytes();
    for n in 0..PAIRS {
        let name = format!("{core}-{n}").into_bytes();
        fs.create(&a, &name, &new(0o100_644)).unwrap();
        fs.create(&b, &name, &new(0o100_644)).unwrap();
        acknowledged.store(n + 1, Ordering::SeqCst);
        let (from, to) = if n % 2 == 0 { (&a, &b) } else { (&b, &a) };
        fs.rename(from, &moved, to, &moved, RenameMode::Replace)
            .unwrap();
    }
}

/// What is wrong with a snapshot before which writers had made these numbers of pairs.
fn wrong(then: &FileSystem, acknowledged: &[u64]) -> Option<String> {
    let (a, b) = (directory(then, "a"), directory(then, "b"));
    let has = |directory: &InodeRef, name: &str| {
        let found = then.lookup(directory, name.as_bytes());
        found.map(|inode| inode.is_some())
    };
    for (core, least) in (1..=WRITERS).zip(acknowledged) {
        for n in 0..PAIRS {
            let name = format!("{core}-{n}");
            let both = (has(&a, &name), has(&b, &name));
            match both {
                (Ok(true), Ok(true)) => {}
                (Ok(_), Ok(false)) if n >= *least => {}
                both => return Some(format!("{name} of {least}: {both:?}")),
            }
        }
        let moved = format!("moved{core}");
        match (has(&a, &moved), has(&b, &moved)) {
            (Ok(true), Ok(false)) | (Ok(false), Ok(true)) => {}
            both => return Some(format!("{moved}: {both:?}")),
        }
    }
    None
}

/// What is wrong with snapshots that are taken while tasks write.
fn with_concurrent_writers(trial: Trial, rules: StoreRules) -> Option<String> {
    let options = MountOptions {
        volume_rules: VolumeRules {
            store: rules,
            ..VolumeRules::default()
        },
        ..trial.options()
    };
    let ram = small_volume(4096);
    let fs = FileSystem::open(share(ram.clone()), options).unwrap();
    let root = fs.root().unwrap();
    for name in ["a", "b"] {
        fs.mkdir(&root, name.as_bytes(), &new(0o755)).unwrap();
    }
    for core in 1..=WRITERS {
        let name = format!("moved{core}");
        fs.create(&directory(&fs, "a"), name.as_bytes(), &new(0o100_644))
            .unwrap();
    }
    let acknowledged: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    let mut before = Vec::new();
    thread::scope(|scope| {
        let (fs, done, acknowledged) = (&fs, &done, &acknowledged);
        let taker = scope.spawn_on(CoreId::new(0), move || {
            let mut before = Vec::new();
            while !done.load(Ordering::SeqCst) && before.len() < 6 {
                let seen: Vec<u64> = acknowledged
                    .iter()
                    .map(|count| count.load(Ordering::SeqCst))
                    .collect();
                match fs.create_snapshot(&before.len().to_string()) {
                    Ok(_) => before.push(seen),
                    Err(Error::NoSpace { .. }) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            before
        });
        let writers: Vec<_> = (1..=WRITERS)
            .map(|core| {
                let count = &acknowledged[usize::from(core) - 1];
                scope.spawn_on(CoreId::new(core), move || write(fs, core, count))
            })
            .collect();
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::SeqCst);
        before = taker.join().unwrap();
    });
    assert!(!before.is_empty(), "no snapshot was taken");
    let found = before.iter().enumerate().find_map(|(n, acknowledged)| {
        let then = fs.open_snapshot(&n.to_string(), quiet()).unwrap();
        wrong(&then, acknowledged).map(|wrong| format!("snapshot {n}: {wrong}"))
    });
    fs.close().unwrap();
    assert_whole(ram);
    found
}

#[test]
fn sim_snapshots_are_moments_of_a_volume_that_changes() {
    play_each(150, 3, |trial| {
        assert_eq!(with_concurrent_writers(trial, StoreRules::default()), None);
    });
}

#[test]
fn sim_snapshots_need_a_moment_without_operations() {
    static WRONG: AtomicU64 = AtomicU64::new(0);
    play_each(60, 3, |trial| {
        let rules = StoreRules {
            quiet_snapshots: Rule::LEFT_OUT,
            ..StoreRules::default()
        };
        let found = with_concurrent_writers(trial, rules).is_some();
        WRONG.fetch_add(u64::from(found), Ordering::SeqCst);
    });
    assert!(
        WRONG.load(Ordering::SeqCst) > 0,
        "no schedule showed half of an operation"
    );
}

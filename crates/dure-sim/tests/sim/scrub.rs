//! A scrub of a volume that changes blames nothing.
//!
//! And of a volume with two copies of its tables it mends what another task destroys of one copy, while
//! checkpoints write both.
//!
//! Runs with the sim backend only: `cargo xtask sim -p dure-sim -- scrub`. Writers overwrite, truncate,
//! make and remove files; another task cleans, checkpoints, and takes and deletes snapshots. Scrubs run
//! meanwhile, one after the other, and at the end one over a volume that holds still.

#![expect(clippy::unwrap_used, reason = "tests say what they expect")]

use std::ops::ControlFlow;

use dure_block::ram::RamDevice;
use dure_block::{Device, Io, Lba, WriteFlags, share};
use dure_fs::units::BLOCK_BYTES;
use dure_fs::{
    AllocateMode, BadBlock, Error, FileSystem, InodeRef, NewInode, ScrubOptions, SetAttributes,
    Stamp, TableCopies, VolumeInfo,
};
use dure_sim::schedules::{Trial, assert_whole, play_each, small_volume, small_volume_with};
use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{Arc, CoreId, thread};

const WRITERS: u16 = 2;
const ROUNDS: u64 = 6;
/// Pages of each file.
const PAGES: u64 = 40;

fn file(fs: &FileSystem, name: &str) -> InodeRef {
    let root = fs.root().unwrap();
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    match fs.lookup(&root, name.as_bytes()).unwrap() {
        Some(found) => found,
        None => fs.create(&root, name.as_bytes(), &new).unwrap(),
    }
}

fn resize(fs: &FileSystem, file: &InodeRef, size: u64) {
    let set = SetAttributes {
        size: Some(size),
        ..SetAttributes::default()
    };
    fs.set_attributes(file, &set).unwrap();
}

/// Overwrites files, truncates them, and removes others.
fn write(fs: &FileSystem, core: u16) {
    let kept = file(fs, &format!("kept{core}"));
    for round in 0..ROUNDS {
        let byte = u8::try_from(16 * u64::from(core) + round).unwrap();
        let bytes = vec![byte; BLOCK_BYTES];
        let name = format!("gone{core}-{round}");
        let gone = file(fs, &name);
        for page in 0..PAGES {
            let at = page * 4096;
            if page % 3 == round % 3 {
                fs.write(&kept, at, &bytes, Stamp::Set).unwrap();
            }
            if page < 8 {
                fs.write(&gone, at, &bytes, Stamp::Set).unwrap();
            }
        }
        fs.sync().unwrap();
        let shorter = PAGES / 2 * 4096;
        resize(fs, &kept, shorter);
        let root = fs.root().unwrap();
        fs.unlink(&root, name.as_bytes()).unwrap();
        fs.sync().unwrap();
    }
}

/// Lets blocks of what was freed be used again, moves others, and keeps some for snapshots.
fn stir(fs: &FileSystem, round: u64) {
    fs.checkpoint_now().unwrap();
    fs.background_now().unwrap();
    let name = (round / 2).to_string();
    let kept = match round % 2 {
        0 => fs.create_snapshot(&name).map(drop),
        _ => fs.delete_snapshot(&name),
    };
    match kept {
        Ok(()) | Err(Error::NoSpace { .. } | Error::NoSnapshot { .. }) => {}
        Err(Error::SnapshotBusy { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

/// What a scrub finds damaged.
fn scrub(fs: &FileSystem) -> Vec<BadBlock> {
    let mut found = Vec::new();
    let options = ScrubOptions {
        rate: Some(64 << 20),
        ..ScrubOptions::default()
    };
    fs.scrub(&options, &mut |now| {
        found.extend(now.found.iter().cloned());
        ControlFlow::Continue(())
    })
    .unwrap();
    found
}

/// What scrubs of an undamaged volume find while tasks change it.
fn blamed(trial: Trial) -> Vec<BadBlock> {
    let ram = small_volume(2048);
    let fs = FileSystem::open(share(ram.clone()), trial.options()).unwrap();
    for core in 1..=WRITERS {
        let kept = file(&fs, &format!("kept{core}"));
        fs.allocate(&kept, AllocateMode::Extend, 0, 4 * 4096)
            .unwrap();
    }
    let done = AtomicBool::new(false);
    let mut found = thread::scope(|scope| {
        let (fs, done) = (&fs, &done);
        let scrubber = scope.spawn_on(CoreId::new(0), move || {
            let mut found = Vec::new();
            while !done.load(Ordering::SeqCst) {
                found.extend(scrub(fs));
            }
            found
        });
        let stirrer = scope.spawn_on(CoreId::new(3), move || {
            for round in 0..8 {
                stir(fs, round);
            }
        });
        let writers: Vec<_> = (1..=WRITERS)
            .map(|core| scope.spawn_on(CoreId::new(core), move || write(fs, core)))
            .collect();
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
        stirrer.join().unwrap();
        done.store(true, Ordering::SeqCst);
        scrubber.join().unwrap()
    });
    found.extend(scrub(&fs));
    fs.close().unwrap();
    assert_whole(ram);
    found
}

#[test]
fn sim_scrub_blames_nothing_that_changes() {
    play_each(100, 4, |trial| {
        assert_eq!(blamed(trial), []);
    });
}

/// Destroys blocks of one copy of NAT and SIT, one after the other.
fn destroy(ram: &Arc<RamDevice>, first: u64, blocks: u64, done: &AtomicBool) {
    let block = [0xa5; BLOCK_BYTES];
    let mut n = 0;
    while !done.load(Ordering::SeqCst) {
        ram.execute(Io::Write {
            lba: Lba::new(first + n % blocks),
            parts: &[&block],
            flags: WriteFlags::NONE,
        })
        .unwrap();
        n += 1;
        thread::yield_now();
    }
}

/// Writes and checkpoints while scrubs mend what is destroyed of one copy of the tables.
fn mend_while_written(trial: Trial, second: bool) {
    let ram = small_volume_with(2048, TableCopies::Two);
    let layout = VolumeInfo::read(share(ram.clone())).unwrap().layout;
    let blocks = 2 * (u64::from(layout.nat_pairs) + u64::from(layout.sit_pairs));
    let first = if second { layout.copies } else { layout.nat };
    let fs = FileSystem::open(share(ram.clone()), trial.options()).unwrap();
    let done = AtomicBool::new(false);
    let left = |found: Vec<BadBlock>| found.into_iter().find(|bad| !bad.mended);
    thread::scope(|scope| {
        let (fs, done, ram) = (&fs, &done, &ram);
        let scrubber = scope.spawn_on(CoreId::new(0), move || {
            while !done.load(Ordering::SeqCst) {
                assert_eq!(left(scrub(fs)), None);
            }
        });
        let destroyer = scope.spawn_on(CoreId::new(3), move || destroy(ram, first, blocks, done));
        let writers: Vec<_> = (1..=WRITERS)
            .map(|core| scope.spawn_on(CoreId::new(core), move || write(fs, core)))
            .collect();
        for _ in 0..4 {
            fs.checkpoint_now().unwrap();
        }
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::SeqCst);
        destroyer.join().unwrap();
        scrubber.join().unwrap();
    });
    assert_eq!(left(scrub(&fs)), None);
    assert_eq!(scrub(&fs), []);
    fs.close().unwrap();
    assert_whole(ram);
}

#[test]
fn sim_scrub_mends_copies_that_are_written() {
    play_each(60, 4, |trial| {
        mend_while_written(trial, true);
    });
    play_each(60, 4, |trial| {
        mend_while_written(trial, false);
    });
}

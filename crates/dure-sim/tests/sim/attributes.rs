//! Tasks that change attributes of one file while others use its data: no change is lost or comes
//! back, what fsync promised is there after a crash, and reads write no line that a change writes.
//!
//! Runs with the sim backend only: `cargo xtask sim -p dure-sim -- sim_attributes`.

#![expect(clippy::unwrap_used, reason = "tests say what they expect")]

use dure_block::ram::RamDevice;
use dure_block::share;
use dure_fs::{
    AllocateMode, AttributeRule, Attributes, FileSystem, InodeRef, NewInode, ReadMode,
    SetAttributes, Stamp, SyncScope, VolumeRules, XattrMode,
};
use dure_sim::schedules::{Trial, assert_whole, mount_small, play_each, play_under, small_volume};
use dure_sync::canary::LeftOut;
use dure_sync::clock::wall_coarse;
use dure_sync::sim::{Config, Rng, run};
use dure_sync::{Arc, CoreId, thread};

const PAGE: usize = 4096;
/// Calls of one core.
const CALLS: u32 = 24;

fn file(fs: &FileSystem) -> InodeRef {
    let new = NewInode {
        mode: 0o100_000,
        ..NewInode::default()
    };
    let root = fs.root().unwrap();
    let found = fs.lookup(&root, b"file").unwrap();
    found.unwrap_or_else(|| fs.create(&root, b"file", &new).unwrap())
}

fn rules(attributes: AttributeRule) -> VolumeRules {
    VolumeRules {
        attributes,
        ..VolumeRules::default()
    }
}

fn mount(trial: Trial, ram: &Arc<RamDevice>, rule: AttributeRule) -> FileSystem {
    trial.mount(share(Arc::clone(ram)), rules(rule))
}

/// What a core did last: number of its mode (core 0 only) and of its extended attribute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Last {
    mode: u32,
    attribute: u32,
}

fn name(core: u16) -> Vec<u8> {
    format!("user.core{core}").into_bytes()
}

/// Long enough now and then for the attributes to take another node.
fn value(n: u32) -> Vec<u8> {
    let mut value = n.to_le_bytes().to_vec();
    value.resize(if n % 4 == 3 { 3000 } else { 20 }, 7);
    value
}

fn attribute(fs: &FileSystem, inode: &InodeRef, core: u16) -> u32 {
    let value = fs.get_xattr(inode, &name(core)).unwrap();
    value.map_or(0, |value| {
        u32::from_le_bytes(value[..4].try_into().unwrap())
    })
}

fn permissions(seen: &Attributes) -> u32 {
    seen.mode & 0o777
}

/// Modes are counted up. (Times may go back: a call has the time of its beginning.)
fn check_order(before: &Attributes, after: &Attributes) {
    assert!(
        permissions(before) <= permissions(after),
        "a former mode comes back"
    );
}

/// Calls of one core. Core 0 counts the mode up; each has an extended attribute and a page of its
/// own.
fn work(fs: &FileSystem, core: u16, seed: u64) -> Last {
    let mut random = Rng::new(seed ^ u64::from(core) << 32);
    let inode = file(fs);
    let own = u64::from(core) * 4096;
    let mut last = Last::default();
    let mut page = vec![0; PAGE];
    let mut seen = fs.attributes(&inode).unwrap();
    for n in 1..=CALLS {
        match random.index(10) {
            0 | 1 if core == 0 => {
                let mode = Some(n);
                let set = SetAttributes {
                    mode,
                    ..SetAttributes::default()
                };
                let shown = fs.set_attributes(&inode, &set).unwrap();
                assert_eq!(permissions(&shown), n, "only core 0 sets the mode");
                last.mode = n;
            }
            0 | 1 => {
                let uid = Some(n);
                let set = SetAttributes {
                    uid,
                    ..SetAttributes::default()
                };
                fs.set_attributes(&inode, &set).unwrap();
            }
            2 | 3 => {
                let new = value(n);
                fs.set_xattr(&inode, &name(core), &new, XattrMode::Any)
                    .unwrap();
                last.attribute = n;
            }
            4 => {
                page.fill(u8::try_from(n).unwrap());
                fs.write(&inode, own, &page, Stamp::Set).unwrap();
                let mut read = vec![0; PAGE];
                fs.read(&inode, own, &mut read, ReadMode::Cached).unwrap();
                assert_eq!(read, page, "nobody else writes there");
            }
            5 => match n % 3 {
                0 => drop(fs.append(&inode, &[1; 100]).unwrap()),
                1 => fs
                    .allocate(&inode, AllocateMode::KeepSize, own, 4096)
                    .unwrap(),
                _ => fs.fsync(&inode, SyncScope::Data).unwrap(),
            },
            6 => fs.fsync(&inode, SyncScope::All).unwrap(),
            7 | 8 => {
                let (now, peeked) = (
                    fs.attributes(&inode).unwrap(),
                    fs.peek_attributes(inode.id()),
                );
                check_order(&seen, &now);
                if let Some(peeked) = peeked {
                    check_order(&now, &peeked);
                }
                seen = now;
            }
            _ => {
                fs.read(&inode, own, &mut page, ReadMode::Cached).unwrap();
            }
        }
        assert_eq!(attribute(fs, &inode, core), last.attribute, "lost or back");
        if core == 0 {
            assert_eq!(permissions(&fs.attributes(&inode).unwrap()), last.mode);
        }
    }
    last
}

/// What the file shows of the cores' last calls, and its whole attributes.
fn check_file(fs: &FileSystem, last: &[Last]) {
    let inode = file(fs);
    for (core, last) in (0..).zip(last) {
        assert_eq!(attribute(fs, &inode, core), last.attribute, "core {core}");
    }
    let seen = fs.attributes(&inode).unwrap();
    assert_eq!(permissions(&seen), last[0].mode);
}

fn share_a_file(rule: AttributeRule, trial: Trial) -> Result<(), String> {
    let Trial { seed, cores } = trial;
    trial.play(move || {
        let ram = small_volume(2048);
        let fs = mount(trial, &ram, rule);
        let pages = vec![0; usize::from(cores) * PAGE];
        fs.write(&file(&fs), 0, &pages, Stamp::Set).unwrap();
        let last = thread::scope(|scope| {
            let tasks: Vec<_> = (0..cores)
                .map(|core| {
                    let fs = &fs;
                    scope.spawn_on(CoreId::new(core), move || work(fs, core, seed))
                })
                .collect();
            let ends = tasks.into_iter().map(|task| task.join().unwrap());
            ends.collect::<Vec<_>>()
        });
        check_file(&fs, &last);
        // What a crash leaves is what was promised.
        fs.fsync(&file(&fs), SyncScope::All).unwrap();
        let crashed = Arc::new(RamDevice::from_image("crashed", &ram.snapshot()));
        let recovered = mount(trial, &crashed, rule);
        check_file(&recovered, &last);
        recovered.close().unwrap();
        fs.close().unwrap();
        [ram, crashed].into_iter().for_each(assert_whole);
    })
}

#[test]
fn sim_attributes_change_while_data_is_used() {
    play_under(&[AttributeRule::Apart], 100, share_a_file);
}

#[test]
fn sim_attributes_canary_attributes_that_stay_cached_are_noticed() {
    let rule = AttributeRule::KeptCached(LeftOut);
    let failed = (0..20).any(|seed| share_a_file(rule, Trial::any(seed)).is_err());
    assert!(failed, "attributes of before were not noticed");
}

/// The time of change that is shown, as the clock tells it.
fn change_time(fs: &FileSystem, inode: &InodeRef) -> (i64, u32) {
    let ctime = fs.attributes(inode).unwrap().ctime;
    (ctime.secs.get(), ctime.nanos.get())
}

fn clock() -> (i64, u32) {
    let now = wall_coarse();
    (now.secs, now.nanos)
}

/// One core changes the mode, others write, read and sync: what that core is shown is not older
/// than its change.
fn stamp_a_file(trial: Trial) {
    let seed = trial.seed;
    let ram = small_volume(2048);
    let fs = mount(trial, &ram, AttributeRule::Apart);
    let inode = file(&fs);
    fs.write(&inode, 0, &[0; 3 * PAGE], Stamp::Set).unwrap();
    let last = thread::scope(|scope| {
        for core in 1..3_u16 {
            let (fs, inode) = (&fs, &inode);
            scope.spawn_on(CoreId::new(core), move || {
                let mut random = Rng::new(seed ^ u64::from(core) << 32);
                let mut page = [1; PAGE];
                let own = u64::from(core) * 4096;
                for _ in 0..CALLS {
                    match random.index(8) {
                        0 => fs.fsync(inode, SyncScope::All).unwrap(),
                        1 | 2 => drop(fs.read(inode, own, &mut page, ReadMode::Cached)),
                        3 => drop(fs.append(inode, &[1; 10]).unwrap()),
                        _ => drop(fs.write(inode, own, &page, Stamp::Set).unwrap()),
                    }
                }
            });
        }
        let (fs, inode) = (&fs, &inode);
        let changes = scope.spawn_on(CoreId::new(0), move || {
            let mut last = clock();
            for n in 1..=CALLS {
                last = clock();
                let set = SetAttributes {
                    mode: Some(n),
                    ..SetAttributes::default()
                };
                fs.change_attributes(inode, &set).unwrap();
                for _ in 0..3 {
                    assert!(change_time(fs, inode) >= last, "an older time is shown");
                }
            }
            last
        });
        changes.join().unwrap()
    });
    assert!(change_time(&fs, &inode) >= last, "it has gone back");
    fs.fsync(&inode, SyncScope::All).unwrap();
    let crashed = Arc::new(RamDevice::from_image("crashed", &ram.snapshot()));
    let recovered = mount(trial, &crashed, AttributeRule::Apart);
    assert!(
        change_time(&recovered, &file(&recovered)) >= last,
        "it was not kept"
    );
    recovered.close().unwrap();
    fs.close().unwrap();
}

#[test]
fn sim_attributes_the_time_of_change_does_not_go_back() {
    play_each(100, 3, stamp_a_file);
}

/// What is done to the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Read,
    Overwrite,
}

/// Cache lines that moved between a core that changes the mode and three that use pages of their
/// own.
fn transfers(rule: AttributeRule, used: Use, rounds: u32) -> u64 {
    let done = run(Config::min_clock(4), move || {
        let fs = mount_small(&small_volume(2048), rules(rule));
        let inode = file(&fs);
        fs.write(&inode, 0, &[1; 4 * PAGE], Stamp::Set).unwrap();
        thread::scope(|scope| {
            for core in 0..4_u16 {
                let (fs, inode) = (&fs, &inode);
                scope.spawn_on(CoreId::new(core), move || {
                    let mut bytes = [0; PAGE];
                    // The reads take as long as the changes, about.
                    for n in 0..if core == 0 { rounds / 10 } else { rounds } {
                        if core == 0 {
                            let set = SetAttributes {
                                mode: Some(n & 0o777),
                                ..SetAttributes::default()
                            };
                            fs.change_attributes(inode, &set).unwrap();
                        } else {
                            let at = u64::from(core) * 4096;
                            match used {
                                Use::Read => fs.read(inode, at, &mut bytes, ReadMode::Cached),
                                Use::Overwrite => fs.write(inode, at, &bytes, Stamp::Set),
                            }
                            .unwrap();
                        }
                    }
                });
            }
        });
    });
    done.report.transfers
}

fn transfers_of_more(rule: AttributeRule, used: Use) -> u64 {
    transfers(rule, used, 1_100).saturating_sub(transfers(rule, used, 300))
}

#[test]
fn sim_attributes_changes_and_uses_of_data_share_no_lines() {
    for used in [Use::Read, Use::Overwrite] {
        let more = transfers_of_more(AttributeRule::Apart, used);
        // A tick of the clock moves the times.
        assert!(
            more <= 60,
            "{more} transfers, 80 changes beside {used:?} 2400 times"
        );
    }
}

#[test]
fn sim_attributes_canary_changes_that_hold_the_state_share_lines() {
    let more = transfers_of_more(AttributeRule::WithData, Use::Read);
    assert!(more > 300, "{more} transfers in 80 changes and 2400 reads");
}

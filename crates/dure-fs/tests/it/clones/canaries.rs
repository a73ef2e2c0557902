//! Orders of clones that are left out, and noticed.

use std::ops::Range;
use std::time::Duration;

use dure_block::crash::{CrashImages, Selection};
use dure_block::ram::RamDevice;
use dure_block::record::RecordDevice;
use dure_block::{Device, DeviceInfo, Io, Lba, share};
use dure_fs::{FileSystem, MountOptions, StoreRules, SyncScope, VolumeRules};
use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::canary::Rule;
use dure_sync::{Arc, OnceLock, thread};

use super::model::{Model, crash_everywhere, look};
use super::{clone, file, write};
use crate::snapshots::{formatted, options};

fn canary(what: &str, rules: StoreRules) {
    let noticed = (0..12).any(|seed| crash_everywhere(seed, rules).1.is_some());
    assert!(noticed, "{what}: not noticed");
}

/// Holds the first write to a SIT pair, once it is told to.
#[derive(Debug)]
struct Gate {
    ram: Arc<RamDevice>,
    sit: OnceLock<Range<u64>>,
    state: AtomicU64,
}

const IDLE: u64 = 0;
const ARMED: u64 = 1;
const WAITING: u64 = 2;

impl Device for Gate {
    fn info(&self) -> &DeviceInfo {
        self.ram.info()
    }

    fn execute(&self, io: Io<'_>) -> dure_block::Result<()> {
        let is_sit = |lba: Lba| {
            self.sit
                .get()
                .is_some_and(|sit| sit.contains(&lba.number()))
        };
        let state = |from, to| {
            let ordering = Ordering::SeqCst;
            self.state.compare_exchange(from, to, ordering, ordering)
        };
        if let Io::Write { lba, .. } = io
            && is_sit(lba)
            && state(ARMED, WAITING).is_ok()
        {
            while self.state.load(Ordering::SeqCst) == WAITING {
                thread::sleep(Duration::from_millis(1));
            }
        }
        self.ram.execute(io)
    }
}

/// The source of a clone is overwritten, durably, while a checkpoint is between the lists and the
/// end of the summaries; then the power is cut. What is wrong then.
fn overwritten_in_a_checkpoint(rules: StoreRules) -> Option<String> {
    let gate = Arc::new(Gate {
        ram: formatted(2048),
        sit: OnceLock::new(),
        state: AtomicU64::new(IDLE),
    });
    let mount = MountOptions {
        volume_rules: VolumeRules {
            store: rules,
            ..VolumeRules::default()
        },
        ..options()
    };
    let fs = FileSystem::open(share(gate.clone()), mount).expect("it mounts");
    let layout = fs.layout();
    let sit = layout.sit_pair(0)..layout.sit_pair(0) + 2 * u64::from(layout.sit_pairs);
    gate.sit.set(sit).expect("once");
    write(&fs, "a", 0, &[5; 8 << 12]);
    assert!(clone(&fs, "a", "b"));
    fs.sync().expect("a good device");
    fs.checkpoint_now().expect("a good device");
    write(&fs, "other", 0, &[6; 8 << 12]);
    fs.sync().expect("a good device");
    gate.state.store(ARMED, Ordering::SeqCst);
    let checkpoint = {
        let fs = fs.clone();
        thread::spawn("checkpoint", move || fs.checkpoint_now())
    };
    while gate.state.load(Ordering::SeqCst) != WAITING {
        thread::sleep(Duration::from_millis(1));
    }
    write(&fs, "a", 0, &[7; 8 << 12]);
    fs.fsync(&file(&fs, "a"), SyncScope::All)
        .expect("a good device");
    gate.state.store(IDLE, Ordering::SeqCst);
    checkpoint.join().expect("no panic").expect("a good device");
    let crashed = Arc::new(RamDevice::from_image("crashed", &gate.ram.snapshot()));
    let content = |byte| vec![byte; 8 << 12];
    let must = [("a", 7), ("b", 5), ("other", 6)];
    let must = must.map(|(name, byte)| (name.to_owned(), content(byte)));
    look(&crashed, &Model::from(must))
}

#[test]
fn canary_lists_that_are_younger_than_the_summaries_lose_a_block() {
    assert_eq!(overwritten_in_a_checkpoint(StoreRules::default()), None);
    let wrong = overwritten_in_a_checkpoint(StoreRules {
        shared_before_space: Rule::LEFT_OUT,
        ..StoreRules::default()
    });
    assert!(wrong.is_some(), "not noticed");
}

/// Cuts the power around the first clone, with every choice of what is on the medium.
fn crash_in_the_first_clone(rules: StoreRules) -> Option<String> {
    let ram = formatted(1024);
    let base = ram.snapshot();
    let record = RecordDevice::new(share(ram));
    let log = record.log();
    let mount = MountOptions {
        volume_rules: VolumeRules {
            store: rules,
            ..VolumeRules::default()
        },
        ..options()
    };
    let fs = FileSystem::open(share(record), mount).expect("it mounts");
    write(&fs, "a", 0, &[5; 2 << 12]);
    let b = file(&fs, "b");
    fs.sync().expect("a good device");
    let begin = log.step();
    assert!(clone(&fs, "a", "b"));
    fs.fsync(&b, SyncScope::All).expect("a good device");
    let must = Model::from([("a".to_owned(), vec![5; 2 << 12])]);
    let images = CrashImages::new(base, &log);
    for at in images.frontiers().into_iter().filter(|at| *at >= begin) {
        let point = images.at(at);
        for choice in point.choices(Selection::default()) {
            let image = point.image(&choice).snapshot();
            let crashed = Arc::new(RamDevice::from_image("crashed", &image));
            if let Some(wrong) = look(&crashed, &must) {
                return Some(format!("step {at}: {wrong}"));
            }
        }
    }
    None
}

#[test]
fn canary_the_first_clone_is_announced_before_it_is_made() {
    assert_eq!(crash_in_the_first_clone(StoreRules::default()), None);
    let wrong = crash_in_the_first_clone(StoreRules {
        flag_before_use: Rule::LEFT_OUT,
        ..StoreRules::default()
    });
    assert!(wrong.is_some(), "not noticed");
}

#[test]
fn canary_a_clone_notes_both_slots() {
    let rules = StoreRules {
        clones_note_sources: Rule::LEFT_OUT,
        ..StoreRules::default()
    };
    canary("a note of the target only", rules);
}

#[test]
fn canary_a_block_is_free_when_the_last_slot_lets_go() {
    let rules = StoreRules {
        clones_count: Rule::LEFT_OUT,
        ..StoreRules::default()
    };
    canary("references that are not counted", rules);
}

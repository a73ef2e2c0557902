//! `journal=none`: what it refuses, and what a crash leaves.

use dure_block::ram::RamDevice;
use dure_block::share;
use dure_check::{CheckOptions, Repair, check};
use dure_journal::JournalId;
use dure_store::VolumeInfo;
use dure_store::VolumeState;
use dure_sync::Arc;
use dure_sync::canary::Rule;

use super::{options, ram, shared};
use crate::{
    CrashGuarantee, DataMode, Error, FileSystem, InodeRef, MountOptions, NewInode, ReadMode,
    RecordPolicy, Stamp, SyncScope,
};

fn unlogged() -> MountOptions {
    MountOptions {
        records: RecordPolicy::None,
        crash_guarantee: CrashGuarantee::Waived,
        ..options()
    }
}

fn refused(options: MountOptions) -> String {
    let device = ram(2048, 2);
    let error = FileSystem::open(shared(&device), options).expect_err("they contradict each other");
    assert!(matches!(error, Error::BadOption { .. }), "{error}");
    error.to_string()
}

#[test]
fn a_mount_without_a_log_must_be_asked_for_outright() {
    let silent = MountOptions {
        crash_guarantee: CrashGuarantee::Needed,
        ..unlogged()
    };
    let error = refused(silent);
    assert!(error.contains("no-crash-guarantee"), "{error}");
    let data = MountOptions {
        data: DataMode::Journal,
        ..unlogged()
    };
    let error = refused(data);
    assert!(error.contains("data=journal"), "{error}");
    let logged = MountOptions {
        records: RecordPolicy::Delta,
        ..unlogged()
    };
    let error = refused(logged);
    assert!(error.contains("only journal=none"), "{error}");
    let mut words = options();
    for (key, value) in [("journal", "none"), ("no-crash-guarantee", "")] {
        assert_eq!(words.set_policy(key, value), Ok(true), "{key}");
    }
    let fs = FileSystem::open(shared(&ram(2048, 2)), words).expect("it was asked for");
    fs.close().expect("nothing fails");
}

fn file(fs: &FileSystem, name: &str, byte: u8) -> InodeRef {
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let root = fs.root().expect("there is one");
    let file = fs.create(&root, name.as_bytes(), &new).expect("room");
    fs.write(&file, 0, &[byte; 9000], Stamp::Set).expect("room");
    fs.fsync(&file, SyncScope::All).expect("nothing fails");
    file
}

fn holds(fs: &FileSystem, name: &str, byte: u8) -> bool {
    let root = fs.root().expect("there is one");
    let Ok(Some(file)) = fs.lookup(&root, name.as_bytes()) else {
        return false;
    };
    let mut content = vec![0; 9001];
    let read = fs.read(&file, 0, &mut content, ReadMode::Cached);
    read.is_ok_and(|count| count == 9000) && content[..9000] == [byte; 9000]
}

#[test]
fn an_unmounted_volume_is_one_like_others() {
    let device = ram(2048, 2);
    let fs = FileSystem::open(shared(&device), unlogged()).expect("it was asked for");
    file(&fs, "kept", 1);
    let written = fs.0.store.journal().counters();
    assert_eq!(
        (written.transactions, written.blocks),
        (0, 0),
        "it has a log"
    );
    assert!(written.handles > 0 && written.flushes > 0);
    let state = VolumeInfo::read(shared(&device)).expect("a volume").state;
    assert_eq!(state, VolumeState::Unlogged);
    fs.close().expect("nothing fails");
    let report = check(shared(&device), &CheckOptions::default()).expect("a volume");
    assert!(report.is_spotless(), "{:?}", report.issues());
    let fs = FileSystem::open(shared(&device), options()).expect("it was unmounted");
    assert!(holds(&fs, "kept", 1));
}

/// Regression: a header that was written for another reason than a checkpoint said that handles
/// behind the tail were durable, and the unmounted volume was refused for a hole in its log.
#[test]
fn a_ring_that_grows_and_shrinks_has_no_hole() {
    let device = ram(8192, 2);
    let fs = FileSystem::open(shared(&device), unlogged()).expect("it was asked for");
    file(&fs, "kept", 1);
    // Both grow.
    let ids = (0..2).map(|id| JournalId::new(id).expect("a volume may have two"));
    let blocks: u64 = ids.map(|id| fs.0.store.journal().usage(id).capacity).sum();
    fs.0.store.grow_rings(2 * blocks).expect("there is room");
    fs.close().expect("nothing fails");
    let report = check(shared(&device), &CheckOptions::default()).expect("a volume");
    assert!(report.is_spotless(), "{:?}", report.issues());
    let fs = FileSystem::open(shared(&device), options()).expect("it was unmounted");
    assert!(holds(&fs, "kept", 1));
}

/// A volume that has been checkpointed with one file, then got another, synced, and crashed.
fn crashed(rule: Rule) -> Arc<RamDevice> {
    let device = ram(2048, 2);
    let mut options = unlogged();
    options.volume_rules.store.mark_unlogged = rule;
    let fs = FileSystem::open(shared(&device), options).expect("it was asked for");
    file(&fs, "old", 1);
    fs.0.store.checkpoint().expect("nothing fails");
    file(&fs, "new", 2);
    drop(fs);
    device
}

#[test]
fn a_crashed_volume_is_refused_until_it_is_repaired() {
    let device = crashed(Rule::default());
    for read_only in [false, true] {
        let again = MountOptions {
            read_only,
            ..options()
        };
        let error = FileSystem::open(shared(&device), again).expect_err("it has no log");
        assert!(matches!(error, Error::Unlogged), "{error}");
        assert!(error.to_string().contains("dure check --repair"), "{error}");
    }
    let found = check(shared(&device), &CheckOptions::default()).expect("a volume");
    assert!(
        !found.is_sound() && found.issues().len() == 1,
        "{:?}",
        found.issues()
    );
    let full = CheckOptions {
        repair: Repair::Full,
        ..CheckOptions::default()
    };
    let report = check(shared(&device), &full).expect("room");
    assert!(
        report.is_sound() && report.repaired(),
        "{:?}",
        report.issues()
    );
    let report = check(shared(&device), &CheckOptions::default()).expect("a volume");
    assert!(report.is_spotless(), "{:?}", report.issues());
    let fs = FileSystem::open(share(Arc::clone(&device)), options()).expect("it was repaired");
    assert!(holds(&fs, "old", 1));
    fs.close().expect("nothing fails");
}

/// A file that was synced is gone, and nobody says so.
#[test]
fn canary_without_the_mark_a_synced_file_is_lost_without_a_word() {
    let device = crashed(Rule::LEFT_OUT);
    let fs = FileSystem::open(shared(&device), options()).expect("the rule was left out");
    assert!(!holds(&fs, "new", 2));
}

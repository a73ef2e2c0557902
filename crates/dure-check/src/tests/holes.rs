//! Logs that have lost a transaction: what was durable is missed, by the mount and the check alike,
//! and what is left can be read.

use dure_block::ram::RamDevice;
use dure_block::share;
use dure_fs::{
    Background, Error, FileKind, FileSystem, FormatOptions, MountOptions, NewInode, Recover, Stamp,
    SyncScope,
};
use dure_journal::recovery::{Scan, scan};
use dure_store::media::Region;
use dure_store::units::BLOCK_BYTES;
use dure_store::{log_layout, read_header, read_layout};
use dure_sync::Arc;
use dure_sync::atomic::{AtomicUsize, Ordering};

use super::disk::{Disk, lines};
use crate::CheckOptions;

const FILES: usize = 30;
/// "DRtx".
const MAGIC: u32 = 0x7874_5244;

/// A transaction in a log.
#[derive(Debug, Clone, Copy)]
struct Found {
    block: u64,
    blocks: u64,
    journal: usize,
    last: u64,
}

fn name(n: usize) -> Vec<u8> {
    format!("file {n}").into_bytes()
}

/// What the file with this number holds.
fn content(n: usize) -> Vec<u8> {
    vec![u8::try_from(n).unwrap() + 1; 3000 * (1 + n % 4)]
}

fn options() -> MountOptions {
    MountOptions {
        background: Background::None,
        cache_bytes: 8 << 20,
        recovery_threads: Some(1),
        ..MountOptions::default()
    }
}

/// A volume that crashed when so many files had been made and synced, by cores in turn.
fn crashed(journals: u32) -> Disk {
    let device = Arc::new(RamDevice::new("holes", 16384));
    let format = FormatOptions {
        journals: Some(journals),
        ..FormatOptions::default()
    };
    FileSystem::format(share(Arc::clone(&device)), &format).unwrap();
    let core = Arc::new(AtomicUsize::new(0));
    let mut options = options();
    options.core = Some(Arc::clone(&core));
    let fs = FileSystem::open(share(Arc::clone(&device)), options).unwrap();
    let root = fs.root().unwrap();
    for n in 0..FILES {
        let turn = n / 3 % usize::try_from(journals).unwrap();
        core.store(turn, Ordering::Relaxed);
        let new = NewInode {
            mode: FileKind::File.mode() | 0o644,
            ..NewInode::default()
        };
        let file = fs.create(&root, &name(n), &new).unwrap();
        fs.write(&file, 0, &content(n), Stamp::Set).unwrap();
        fs.fsync(&file, SyncScope::All).unwrap();
    }
    drop(root);
    drop(fs);
    let region = Region::open(share(Arc::clone(&device)));
    let layout = read_layout(&region).unwrap();
    Disk { device, layout }
}

fn logs(disk: &Disk) -> Scan {
    let region = Region::open(disk.device());
    let (header, _) = read_header(&region, &disk.layout).unwrap();
    let log = log_layout(&disk.layout, &header, dure_journal::Rules::default());
    scan(&region.log_medium(), &log, header.epoch.get(), 1).unwrap()
}

/// The transactions of the present epoch, by place.
fn transactions(disk: &Disk) -> Vec<Found> {
    let logs = logs(disk);
    let complete = logs.transactions();
    let mut found = Vec::new();
    for (journal, ring) in logs.rings().iter().enumerate() {
        for segment in &ring.start.segments {
            for block in 0..u64::from(disk.layout.segment_blocks) {
                let at = segment.number() + block;
                let bytes = disk.get(at);
                let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
                let magic = u32::from_le_bytes(bytes[..4].try_into().unwrap());
                let known = complete.iter().any(|transaction| {
                    transaction.journal.index() == journal && transaction.last == word(40)
                });
                if magic == MAGIC && word(8) == at && known {
                    let blocks = word(68) & 0xffff_ffff;
                    let last = word(40);
                    found.push(Found {
                        block: at,
                        blocks,
                        journal,
                        last,
                    });
                }
            }
        }
    }
    assert_eq!(found.len(), complete.len());
    found
}

/// How many files are there as they were synced.
fn whole_files(fs: &FileSystem) -> usize {
    let root = fs.root().unwrap();
    let whole = (0..FILES).filter(|n| {
        let Ok(Some(file)) = fs.lookup(&root, &name(*n)) else {
            return false;
        };
        let mut bytes = vec![0; content(*n).len() + 1];
        let read = fs.read(&file, 0, &mut bytes, dure_fs::ReadMode::Cached);
        read.is_ok_and(|len| bytes[..len] == content(*n))
    });
    whole.count()
}

fn mount(disk: &Disk, read_only: bool, recover: Recover) -> dure_fs::Result<FileSystem> {
    let options = MountOptions {
        read_only,
        recover,
        ..options()
    };
    FileSystem::open(disk.device(), options)
}

/// Mount and check refuse; asked to tolerate it they show the rest.
fn assert_refused(disk: &Disk, what: &str) {
    for read_only in [false, true] {
        match mount(disk, read_only, Recover::Whole) {
            Err(Error::LogHole(_)) => {}
            Err(other) => panic!("{what}: {other}"),
            Ok(fs) => panic!("{what}: {} files and no error", whole_files(&fs)),
        }
    }
    let found = disk.issues();
    assert!(
        found.iter().any(|line| line.starts_with("fatal: ")),
        "{what}: {found:?}"
    );
    let tolerant = CheckOptions {
        recover: Recover::Tolerate,
        ..CheckOptions::default()
    };
    let found = lines(&disk.check_with(&tolerant));
    let hole = "error: the log of journal ";
    assert!(
        found.iter().any(|line| line.starts_with(hole)),
        "{what}: {found:?}"
    );
    let fs = mount(disk, false, Recover::Tolerate).unwrap();
    assert!(whole_files(&fs) < FILES, "{what}");
    let root = fs.root().unwrap();
    assert!(
        matches!(fs.unlink(&root, &name(0)), Err(Error::ReadOnly)),
        "{what}"
    );
}

/// Nothing says that the transaction was durable: it may be missing, unless something builds on it.
fn assert_agreed(disk: &Disk, what: &str) {
    let report = disk.check();
    match mount(disk, true, Recover::Whole) {
        Ok(_) => assert!(report.is_sound(), "{what}"),
        Err(Error::Corrupt { .. }) => assert!(!report.is_sound(), "{what}"),
        Err(other) => panic!("{what}: {other}"),
    }
    mount(disk, true, Recover::Tolerate).unwrap();
}

/// Every transaction, damaged in several ways: if a later one, a header, or a transaction of another
/// journal says that it was durable, nothing is silent.
fn each_damage(journals: u32) -> usize {
    let disk = crashed(journals);
    let all = transactions(&disk);
    let logs = logs(&disk);
    let mut proven = 0;
    for found in &all {
        let journal = dure_journal::JournalId::new(u16::try_from(found.journal).unwrap()).unwrap();
        let known = found.last <= logs.durable_upto(journal);
        proven += usize::from(known);
        let end = found.block + found.blocks;
        for (first, count, zero) in [
            (found.block, 1, false),
            (found.block, 1, true),
            (end - 1, 1, true),
            (found.block, found.blocks, true),
        ] {
            let what = format!("{found:?}, {count} from {first}, zero: {zero}");
            let before: Vec<Vec<u8>> = (first..first + count).map(|at| disk.get(at)).collect();
            for at in first..first + count {
                disk.damage(at, |block| match zero {
                    true => block.copy_from_slice(&[0; BLOCK_BYTES]),
                    false => block[90] ^= 4,
                });
            }
            if known {
                assert_refused(&disk, &what);
            } else {
                assert_agreed(&disk, &what);
            }
            for (at, block) in (first..).zip(&before) {
                disk.put(at, block);
            }
        }
    }
    assert_eq!(
        whole_files(&mount(&disk, true, Recover::Whole).unwrap()),
        FILES
    );
    assert!(all.len() >= 8, "{} transactions", all.len());
    all.len() - proven
}

/// Regression: 7 of 30 synced files were gone, and neither mount nor check said a word.
#[test]
fn a_rotten_transaction_does_not_end_a_log_in_silence() {
    assert_eq!(each_damage(1), 1, "nothing follows the last one");
}

#[test]
fn a_journal_knows_what_another_one_had_made_durable() {
    // The last one of all, and what nothing later depends on.
    assert!(each_damage(3) <= 3);
}

/// What is left is all that does not depend on what is lost.
#[test]
fn a_mount_that_tolerates_a_hole_shows_what_stands_behind_it() {
    let disk = crashed(1);
    let all = transactions(&disk);
    let middle = all[all.len() / 2];
    disk.damage(middle.block, |block| block[90] ^= 4);
    let fs = mount(&disk, false, Recover::Tolerate).unwrap();
    let left = whole_files(&fs);
    assert!(left >= all.len() / 2 - 1, "{left}");
}

#[test]
fn a_whole_volume_mounts_read_only_when_holes_are_tolerated() {
    let disk = crashed(2);
    let fs = mount(&disk, false, Recover::Tolerate).unwrap();
    assert_eq!(whole_files(&fs), FILES);
    let root = fs.root().unwrap();
    assert!(matches!(fs.unlink(&root, &name(0)), Err(Error::ReadOnly)));
    drop(root);
    drop(fs);
    assert_eq!(
        whole_files(&mount(&disk, false, Recover::Whole).unwrap()),
        FILES
    );
}

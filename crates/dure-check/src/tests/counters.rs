//! Counters near their end, in blocks with right checksums: the mount, or the first call that reads
//! the block, refuses it and says what is wrong, and the check reports it. Nothing overflows.

use dure_fs::{Background, FileSystem, FormatOptions, MountOptions, NewInode, Stamp};
use dure_journal::format::JournalHeader;
use dure_journal::{JournalId, Mark};
use dure_store::OpKind;
use dure_store::error::{Error, Result};
use dure_store::format::node::NodeKind;
use dure_store::format::pair_kind;
use dure_store::format::volume::VolumeHeader;
use dure_store::space::OpClass;
use dure_store::units::{BlockNo, SegNo, to_usize};

use zerocopy::FromBytes;

use super::disk::{Disk, lines};
use super::volume::{TestVolume, place::*};
use crate::{CheckOptions, Repair, Severity, check};

/// Values from which a count would overflow, at once or soon. Odd, as the tests write slot 1.
const GREAT: [u64; 3] = [u64::MAX, u64::MAX - 2, (1 << 62) + 1];

fn header(disk: &Disk, change: impl FnOnce(&mut VolumeHeader)) {
    let first = disk.layout.volume_header;
    disk.reseal(pair_kind::VOLUME, first, |payload| {
        change(VolumeHeader::mut_from_prefix(payload).unwrap().0);
    });
}

/// Writes the pair at `first` again, as generation `great`.
fn renumber(disk: &Disk, kind: u32, first: u64, great: u64) {
    let payload = disk.get(first + 1)[32..].to_vec();
    disk.pair(kind, first, great, &payload);
}

fn journal(disk: &Disk, change: impl FnOnce(&mut JournalHeader)) {
    let mut header = disk.journal_header();
    change(&mut header);
    disk.journal(&header);
}

/// Everything that reads and writes every structure.
fn use_all(disk: &Disk) -> Result<()> {
    let options = MountOptions {
        background: Background::None,
        cache_bytes: 8 << 20,
        recovery_threads: Some(1),
        ..MountOptions::default()
    };
    let fs = FileSystem::open(disk.device(), options)?;
    let root = fs.root()?;
    for name in ["small", "big", "deep", "long"] {
        let inode = fs.lookup(&root, name.as_bytes())?.ok_or(Error::NotFound)?;
        fs.list_xattr(&inode)?;
        if inode.kind() == dure_fs::FileKind::File {
            fs.write(&inode, 30 * 4096, b"x", Stamp::Set)?;
        }
    }
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    for n in 0..40 {
        fs.create(&root, format!("new {n}").as_bytes(), &new)?;
    }
    fs.sync()?;
    fs.checkpoint_now()?;
    fs.checkpoint_now()?;
    fs.close()
}

#[track_caller]
fn expect_refused(what: &str, change: impl Fn(&Disk, u64)) {
    for great in GREAT {
        let disk = TestVolume::new().write();
        change(&disk, great);
        let report = disk.check();
        let found = lines(&report);
        assert!(report.worst() >= Some(Severity::Error), "{what} {great}");
        assert!(
            found.iter().any(|line| line.contains(what)),
            "{what} {great}: {found:?}"
        );
        let repair = CheckOptions {
            repair: Repair::Safe,
            ..CheckOptions::default()
        };
        let _ = check(disk.device(), &repair);
        match use_all(&disk).map_err(|error| (error.errno(), error.to_string())) {
            Err((libc::EIO, why)) => assert!(why.contains(what), "{what} {great}: {why}"),
            other => panic!("{what} {great}: {other:?}"),
        }
    }
}

#[test]
fn of_the_volume_header() {
    expect_refused("epoch", |disk, great| {
        header(disk, |header| header.epoch.set(great));
    });
    expect_refused("first number", |disk, great| {
        header(disk, |header| header.first_number.set(great));
    });
    expect_refused("checkpoint", |disk, great| {
        header(disk, |header| header.checkpoint.set(great));
    });
    expect_refused("generation of", |disk, great| {
        renumber(disk, pair_kind::VOLUME, disk.layout.volume_header, great);
    });
}

#[test]
fn zero_is_no_epoch_and_no_number() {
    for field in ["epoch", "first number"] {
        let disk = TestVolume::new().write();
        header(&disk, |header| match field {
            "epoch" => header.epoch.set(0),
            _ => header.first_number.set(0),
        });
        let why = use_all(&disk).unwrap_err().to_string();
        assert!(why.contains(field), "{why}");
        assert_eq!(disk.check().worst(), Some(Severity::Fatal));
    }
}

/// A slot that is named counts whatever its generation is, and nothing counts on from that.
#[test]
fn of_named_slots_say_nothing() {
    for great in GREAT {
        let disk = TestVolume::new().write();
        let layout = &disk.layout;
        renumber(&disk, pair_kind::PACK, layout.pack_pair(0), great);
        renumber(&disk, pair_kind::NAT, layout.nat_pair(0), great);
        renumber(&disk, pair_kind::SIT, layout.sit_pair(0), great);
        for segment in 0..layout.segments {
            let first = layout.summary_pair(SegNo(segment), 0);
            renumber(&disk, pair_kind::SUMMARY, first, great);
        }
        assert!(disk.check().is_spotless());
        use_all(&disk).unwrap();
        assert!(disk.check().is_spotless());
    }
}

#[test]
fn of_nodes() {
    expect_refused("version of node", |disk, great| {
        disk.nat(300, |entry| entry.version.set(great));
        disk.nat(20, |entry| entry.version.set(great));
    });
    expect_refused("version of", |disk, great| {
        let BlockNo(block) = disk.nat_entry(ROOT_BUCKETS).block();
        let at = NodeKind::Bucket.offset(3) - 32;
        disk.forge(block, at, &great.to_le_bytes());
        disk.nat(ROOT_BUCKETS, |entry| entry.version.set(9));
    });
}

#[test]
fn of_journal_headers() {
    expect_refused("journal header: generation", |disk, great| {
        journal(disk, |header| header.generation = great);
    });
    expect_refused("journal header: sequence of the tail", |disk, great| {
        journal(disk, |header| header.tail.sequence = great);
    });
    expect_refused("journal header: number of the tail", |disk, great| {
        journal(disk, |header| header.tail.number = great);
    });
    expect_refused("journal header: durable_upto", |disk, great| {
        journal(disk, |header| header.durable_upto = great);
    });
    expect_refused("journal header: checkpoint", |disk, great| {
        journal(disk, |header| header.checkpoint = great);
    });
    expect_refused("journal header: epoch", |disk, great| {
        journal(disk, |header| header.epoch = great);
    });
}

#[test]
fn numbers_that_leave_none_for_the_next_epoch() {
    let disk = TestVolume::new().write();
    journal(&disk, |header| header.durable_upto = Mark::NUMBER_MAX - 1);
    let why = use_all(&disk).unwrap_err().to_string();
    assert!(why.contains("durable_upto"), "{why}");
    assert!(!disk.check().is_sound());
}

/// A volume that was not unmounted, with one transaction in its log, which makes a node first.
fn with_a_transaction() -> (Disk, u64) {
    let disk = TestVolume::new().write();
    FileSystem::format(
        disk.device(),
        &FormatOptions {
            journals: Some(1),
            uuid: Some([7; 16]),
            ..FormatOptions::default()
        },
    )
    .unwrap();
    let options = MountOptions {
        background: Background::None,
        ..MountOptions::default()
    };
    let fs = FileSystem::open(disk.device(), options).unwrap();
    let mut op = fs.store().op(OpKind::Write, OpClass::Normal, 1).unwrap();
    op.new_node(NodeKind::Blob).unwrap();
    let mark = op.finish();
    fs.store().commit(&[mark]).unwrap();
    drop(fs);
    let logs = disk.layout.main..disk.layout.total_blocks;
    let mut found = logs.filter(|block| disk.get(*block)[..4] == *b"DRtx");
    let at = found.next().unwrap();
    (disk, at)
}

#[test]
fn of_log_records() {
    // Behind the transaction's header: kind and length of the note, its kind, the node.
    const VERSION: usize = 80 + 4 + 1 + 8;
    for great in GREAT {
        let (disk, at) = with_a_transaction();
        disk.forge(at, VERSION - 32, &great.to_le_bytes());
        let why = use_all(&disk).unwrap_err().to_string();
        assert!(why.contains("log record: version of node"), "{why}");
        let found = disk.issues().concat();
        assert!(found.contains("log record: version of node"), "{found}");
    }
    let (disk, _) = with_a_transaction();
    assert!(disk.check().is_sound(), "{:?}", disk.issues());
}

#[test]
fn of_transactions() {
    // A transaction with numbers beyond the last ends the log: it was never written by anybody.
    let (disk, at) = with_a_transaction();
    disk.forge(at, 32 - 32, &u64::MAX.to_le_bytes());
    disk.forge(at, 40 - 32, &u64::MAX.to_le_bytes());
    assert!(disk.check().is_sound(), "{:?}", disk.issues());
    // A mark of such a number leaves none for the next epoch.
    let (disk, at) = with_a_transaction();
    let block = disk.get(at);
    let records = u32::from_le_bytes(block[60..64].try_into().unwrap());
    let end = 80 + to_usize(u64::from(records));
    let mut moved = Mark::new(JournalId::new(0).unwrap(), Mark::NUMBER_MAX)
        .as_u64()
        .to_le_bytes()
        .to_vec();
    moved.extend(&block[80..end]);
    disk.forge(at, 80 - 32, &moved);
    disk.forge(at, 56 - 32, &1_u32.to_le_bytes());
    let why = use_all(&disk).unwrap_err().to_string();
    assert!(why.contains("greatest handle number in the logs"), "{why}");
    let found = disk.issues().concat();
    assert!(
        found.contains("greatest handle number in the logs"),
        "{found}"
    );
}

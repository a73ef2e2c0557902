//! A base that is not there, a tree that was changed, no room, a damaged page.

use dure_block::{BLOCK_BYTES, Device, Io, Lba, WriteFlags};

use super::super::Fault;
use super::*;
use crate::Cause;

fn fault(error: &crate::Error) -> Fault {
    match error.cause() {
        Cause::Stream(fault) => fault.clone(),
        Cause::Record { cause, .. } => match &**cause {
            Cause::Stream(fault) => fault.clone(),
            other => panic!("{other}"),
        },
        other => panic!("{other}"),
    }
}

/// A source with three snapshots.
fn source() -> Disk {
    let disk = Disk::new(8192);
    let session = disk.volume.root();
    for name in ["one", "two", "three"] {
        session.write(name, &vec![3; 100_000]).unwrap();
        disk.take(name);
    }
    disk
}

#[test]
fn an_increment_names_the_base_that_it_needs() {
    let disk = source();
    let copy = Disk::new(8192);
    let increment = disk.stream("three", Some("two"));
    let error = copy.receive(&increment).unwrap_err();
    assert!(matches!(fault(&error), Fault::NoBase { .. }), "{error}");
    let told = error.to_string();
    let uuid = disk.fs().layout().superblock.uuid;
    let end: String = uuid[10..]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert!(
        told.contains("snapshot two (number 2)") && told.contains(&end),
        "{told}"
    );
    copy.receive(&disk.stream("one", None)).unwrap();
    let error = copy.receive(&increment).unwrap_err();
    assert!(matches!(fault(&error), Fault::NoBase { .. }), "{error}");
    copy.receive(&disk.stream("two", Some("one"))).unwrap();
    // Whatever the base is called here.
    copy.volume.rename_snapshot("two", "deux").unwrap();
    copy.receive(&increment).unwrap();
    expect_same(&disk.past("three"), &content(copy.fs()));
    let error = send(&disk.volume, "one", Some("two"), &mut Vec::new(), &mut go).unwrap_err();
    assert_eq!(fault(&error), Fault::NotOlder);
    let none = send(&disk.volume, "none", None, &mut Vec::new(), &mut go).unwrap_err();
    assert!(
        none.to_string().contains("no snapshot called none"),
        "{none}"
    );
}

#[test]
fn a_tree_that_was_changed_is_left_alone() {
    let disk = source();
    let copy = Disk::new(8192);
    copy.receive(&disk.stream("one", None)).unwrap();
    copy.volume.root().write("one", b"mine").unwrap();
    let before = content(copy.fs());
    let error = copy.receive(&disk.stream("two", Some("one"))).unwrap_err();
    let told = error.to_string();
    assert!(matches!(fault(&error), Fault::Changed { .. }), "{told}");
    assert!(
        told.contains("one is not as it is in snapshot one"),
        "{told}"
    );
    expect_same(&before, &content(copy.fs()));
}

#[test]
fn a_stream_half_received_is_ended_before_another() {
    let disk = source();
    let copy = Disk::new(8192);
    let whole = disk.stream("one", None);
    copy.receive(&whole[..whole.len() - 1]).unwrap_err();
    let error = copy.receive(&disk.stream("two", None)).unwrap_err();
    assert_eq!(fault(&error), Fault::UnderWay { name: "one".into() });
    let half = super::super::half_done(copy.fs()).unwrap();
    assert_eq!(half, Some(super::super::Half::Received("one".into())));
    // What it has is not sent on as a whole.
    copy.volume.create_snapshot("half").unwrap();
    let error = send(&copy.volume, "half", None, &mut Vec::new(), &mut go).unwrap_err();
    assert_eq!(
        fault(&error),
        Fault::NotWhole {
            name: "half".into()
        }
    );
    copy.receive(&whole).unwrap();
    assert_eq!(super::super::half_done(copy.fs()).unwrap(), None);
    expect_same(&disk.past("one"), &content(copy.fs()));
    copy.receive(&disk.stream("two", Some("one"))).unwrap();
    expect_same(&disk.past("two"), &content(copy.fs()));
}

#[test]
fn a_snapshot_that_was_taken_after_is_no_copy() {
    let disk = source();
    let copy = Disk::new(8192);
    copy.receive(&disk.stream("one", None)).unwrap();
    copy.volume.root().write("mine", b"new").unwrap();
    copy.take("own");
    let third = Disk::new(8192);
    third.receive(&copy.stream("own", None)).unwrap();
    let error = third.receive(&disk.stream("two", Some("one"))).unwrap_err();
    assert!(matches!(fault(&error), Fault::NoBase { .. }), "{error}");
}

#[test]
fn other_records_of_the_same_snapshot_are_applied_from_the_start() {
    let disk = source();
    let copy = Disk::new(8192);
    let whole = disk.stream("three", None);
    let how = How {
        sync_bytes: 1,
        ..How::default()
    };
    copy.receive_as(how, &whole[..whole.len() / 2]).unwrap_err();
    // As if an older dure had sent them in another order.
    let mut state = super::super::state::State::of(copy.fs()).unwrap().unwrap();
    state.digest ^= 1;
    let (root, shared) = (copy.fs().root().unwrap(), copy.volume.shared());
    let how_set = (crate::XattrMode::Any, dure_fs::SetGid::Keep);
    shared
        .set_xattr(&root, (STATE, &state.encode()), how_set)
        .unwrap();
    let error = copy.receive(&whole).unwrap_err();
    assert_eq!(fault(&error), Fault::OtherRecords);
    let received = copy.receive(&whole).unwrap();
    assert_eq!(received.skipped, 0);
    expect_same(&disk.past("three"), &content(copy.fs()));
}

#[test]
fn a_full_volume_goes_on_when_there_is_room() {
    let disk = Disk::new(16384);
    let session = disk.volume.root();
    session.write("old", &vec![1; 9 << 20]).unwrap();
    disk.take("one");
    session.remove_file("old").unwrap();
    disk.take("two");
    session.write("new", &vec![2; 9 << 20]).unwrap();
    session.write("last", b"small").unwrap();
    disk.take("three");
    let copy = Disk::new(4096);
    copy.receive(&disk.stream("one", None)).unwrap();
    copy.receive(&disk.stream("two", Some("one"))).unwrap();
    let increment = disk.stream("three", Some("two"));
    let error = copy.receive(&increment).unwrap_err();
    assert_eq!(
        error.errno(),
        rustix::io::Errno::NOSPC.raw_os_error(),
        "{error}"
    );
    assert!(
        error.to_string().starts_with("receive new: no space"),
        "{error}"
    );
    let copy = copy.killed();
    assert_eq!(copy.receive(&increment).unwrap_err().errno(), error.errno());
    copy.volume.delete_snapshot("one").unwrap();
    copy.receive(&increment).unwrap();
    expect_same(&disk.past("three"), &content(copy.fs()));
    copy.expect_sound();
}

/// Damages the block that holds nothing but these bytes.
fn damage(ram: &RamDevice, byte: u8) {
    for lba in (0..ram.info().blocks).map(Lba::new) {
        let mut block = vec![0; BLOCK_BYTES];
        let out = &mut block[..];
        ram.execute(Io::Read { lba, out }).unwrap();
        if block.iter().all(|found| *found == byte) {
            block[9] ^= 1;
            let (parts, flags) = (&[&block[..]][..], WriteFlags::NONE);
            ram.execute(Io::Write { lba, parts, flags }).unwrap();
            return;
        }
    }
    panic!("no block of {byte}");
}

#[test]
fn a_damaged_page_is_told_with_its_path_to_both_sides() {
    let disk = Disk::new(8192);
    let session = disk.volume.root();
    session.create_dir("d").unwrap();
    session.write("d/sound", b"sound").unwrap();
    session.write("d/rotten", &vec![0xb7; 40_000]).unwrap();
    disk.take("one");
    damage(&disk.ram, 0xb7);
    let disk = disk.killed();
    let mut stream = Vec::new();
    let error = send(&disk.volume, "one", None, &mut stream, &mut go).unwrap_err();
    assert_eq!(error.path(), Some(std::path::Path::new("d/rotten")));
    let copy = Disk::new(8192);
    let told = copy.receive(&stream).unwrap_err().to_string();
    assert!(
        told.contains("the sender could not go on: send d/rotten: "),
        "{told}"
    );
    assert!(copy.volume.snapshots().is_empty());
}

/// Takes some bytes, then no more.
struct Full(usize);

impl std::io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let some = bytes.len().min(self.0);
        self.0 -= some;
        match some {
            0 => Err(std::io::ErrorKind::BrokenPipe.into()),
            some => Ok(some),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_reader_that_is_gone_ends_the_send() {
    let disk = source();
    let whole = disk.stream("three", None).len();
    for bytes in [0, 10, 1000, whole - 1] {
        let error = send(&disk.volume, "three", None, &mut Full(bytes), &mut go).unwrap_err();
        let Cause::Host(host) = error.cause() else {
            panic!("{error}");
        };
        assert_eq!(host.kind(), std::io::ErrorKind::BrokenPipe, "{bytes}");
    }
}

#[test]
fn a_stream_is_passed_on_as_it_is() {
    let disk = source();
    let stream = disk.stream("three", None);
    let more = [&stream[..], b"more"].concat();
    let (mut out, mut input) = (Vec::new(), &more[..]);
    let passed = super::super::relay(&mut input, &mut out, &mut go).unwrap();
    assert_eq!((passed.bytes, input), (stream.len() as u64, &b"more"[..]));
    assert_eq!(out, stream);
    let mut out = Vec::new();
    let cut = &mut &stream[..stream.len() - 7];
    super::super::relay(cut, &mut out, &mut go).unwrap_err();
    assert!(stream.starts_with(&out));
}

/// Lets the entry `name` of some directory lead to another inode, with a sound checksum.
fn lead_elsewhere(disk: &Disk, name: &str, ino: u64) {
    let seed = disk.fs().layout().crc_seed;
    let was = disk.fs().root_name().unwrap();
    let was = disk.fs().names(&was).unwrap()[name.as_bytes()]
        .attributes
        .ino
        .0;
    let mut found = 0;
    for lba in (0..disk.ram.info().blocks).map(Lba::new) {
        let mut block = vec![0; BLOCK_BYTES];
        let out = &mut block[..];
        disk.ram.execute(Io::Read { lba, out }).unwrap();
        let at = block
            .windows(name.len())
            .position(|bytes| bytes == name.as_bytes());
        let magic = dure_fs::format::node::MAGIC.to_le_bytes();
        let Some(at) = at.filter(|_| block.starts_with(&magic)) else {
            continue;
        };
        let number = was.to_le_bytes();
        let entry = block[..at].windows(8).rposition(|bytes| bytes == number);
        let entry = entry.filter(|entry| at - entry < 40).unwrap();
        block[entry..entry + 8].copy_from_slice(&ino.to_le_bytes());
        block[4..8].fill(0);
        let crc = dure_block::crc32c::crc32c_append(seed, &block);
        block[4..8].copy_from_slice(&crc.to_le_bytes());
        let (parts, flags) = (&[&block[..]][..], WriteFlags::NONE);
        disk.ram.execute(Io::Write { lba, parts, flags }).unwrap();
        found += 1;
    }
    assert!(found > 0, "{name} is in some node");
}

/// A file that cannot be found for damage is not one that was removed.
#[test]
fn an_entry_that_leads_nowhere_is_damage_and_not_a_removal() {
    let disk = Disk::new(4096);
    let session = disk.volume.root();
    session.create_dir("d").unwrap();
    session.write("good", b"good").unwrap();
    session.write("unfindable", b"kept").unwrap();
    disk.take("one");
    let copy = Disk::new(4096);
    copy.receive(&disk.stream("one", None)).unwrap();
    // In a node of its own since.
    session.write("more", b"more").unwrap();
    disk.take("two");
    disk.volume.close().unwrap();
    let mut tried = 0;
    for ino in [9000, 200_000] {
        let disk = disk.killed();
        lead_elsewhere(&disk, "unfindable", ino);
        let disk = disk.killed();
        for from in [None, Some("one")] {
            let mut stream = Vec::new();
            let sent = send(&disk.volume, "two", from, &mut stream, &mut go);
            let told = sent.unwrap_err().to_string();
            assert!(
                told.contains("unfindable") || told.contains("damage"),
                "{told}"
            );
            tried += 1;
        }
    }
    assert_eq!(tried, 4);
}

#[test]
fn a_name_that_no_snapshot_can_have_is_refused_before_the_first_change() {
    let disk = source();
    let whole = disk.stream("one", None);
    let copy = Disk::new(8192);
    let long = "n".repeat(65);
    for name in ["", ".", "a/b", "a\nb", &long] {
        let received = receive(&copy.volume, Some(name), &mut &whole[..], &mut go);
        assert!(received.is_err(), "{name:?}");
        assert!(
            copy.fs()
                .names(&copy.fs().root_name().unwrap())
                .unwrap()
                .is_empty()
        );
    }
    copy.receive(&whole).unwrap();
}

#[test]
fn a_state_that_cannot_be_read_is_not_taken_for_none() {
    let disk = source();
    let copy = Disk::new(8192);
    let root = copy.fs().root().unwrap();
    let set = (crate::XattrMode::Any, dure_fs::SetGid::Keep);
    let state = (STATE, &b"\x09of a later dure"[..]);
    copy.volume.shared().set_xattr(&root, state, set).unwrap();
    let whole = disk.stream("one", None);
    let told = copy.receive(&whole).unwrap_err().to_string();
    assert!(told.contains("trusted.dure.receive"), "{told}");
    copy.volume.create_snapshot("half").unwrap();
    let error = send(&copy.volume, "half", None, &mut Vec::new(), &mut go).unwrap_err();
    assert!(
        error.to_string().contains("trusted.dure.receive"),
        "{error}"
    );
}

#[test]
fn one_stream_is_received_at_a_time() {
    let disk = source();
    let copy = Disk::new(8192);
    let receiving = copy.volume.shared().begin_receive().unwrap();
    let whole = disk.stream("one", None);
    assert_eq!(fault(&copy.receive(&whole).unwrap_err()), Fault::Busy);
    drop(receiving);
    copy.receive(&whole).unwrap();
}

/// Its number and its name come again, in the same second.
#[test]
fn a_snapshot_that_was_deleted_and_taken_again_is_another() {
    let disk = source();
    let copy = Disk::new(8192);
    copy.receive(&disk.stream("three", None)).unwrap();
    disk.volume.delete_snapshot("three").unwrap();
    disk.volume.root().write("four", b"new").unwrap();
    disk.take("three");
    let error = copy.receive(&disk.stream("three", None)).unwrap_err();
    assert!(
        error.to_string().contains("called three already"),
        "{error}"
    );
    disk.volume.root().write("five", b"new").unwrap();
    disk.take("four");
    let error = copy
        .receive(&disk.stream("four", Some("three")))
        .unwrap_err();
    assert!(matches!(fault(&error), Fault::NoBase { .. }), "{error}");
}

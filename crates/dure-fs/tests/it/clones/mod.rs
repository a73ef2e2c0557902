//! Clones: what is written to one of two files that share blocks leaves the other as it was, on a full
//! volume, with a scrub, and while others write. [`model`] has scripts, and cuts the power; in
//! [`canaries`] an order is left out. [`dedupe`]: files that have the same content share it.

mod canaries;
mod dedupe;
mod model;

use std::ops::{ControlFlow, Range};

use dure_block::fault::{Fault, FaultDevice, Rule, When};
use dure_block::ram::RamDevice;
use dure_block::{Device, Io, Lba, Op, OsError, share};
use dure_fs::{Error, FileSystem, InodeRef, NewInode, ReadMode, SetAttributes, Stamp};
use dure_store::format::node::{HEADER_BYTES, NodeHeader, NodeImage, NodeKind};
use dure_store::media::Region;
use dure_store::read_layout;
use dure_store::units::{BlockNo, Nid};
use dure_sync::random::Seeded;
use dure_sync::{Arc, thread};

use zerocopy::FromBytes;

use crate::snapshots::{expect_sound, made, options};
use model::{Model, expect};

const P: u64 = 4096;
/// Most pages of a file: direct slots and a leaf.
const PAGES: u64 = 40;

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("small files")
}

pub(crate) fn file(fs: &FileSystem, name: &str) -> InodeRef {
    let root = fs.root().expect("a root");
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    match fs.lookup(&root, name.as_bytes()).expect("a lookup") {
        Some(found) => found,
        None => fs.create(&root, name.as_bytes(), &new).expect("room"),
    }
}

pub(crate) fn read(fs: &FileSystem, name: &str) -> Vec<u8> {
    let inode = file(fs, name);
    let bytes = fs.attributes(&inode).expect("attributes").size;
    let mut data = vec![0; size(bytes)];
    let read = fs.read(&inode, 0, &mut data, ReadMode::Bypass);
    assert_eq!(read.expect("data"), data.len(), "{name}");
    data
}

/// Clones all of a file; says whether all of it could be.
pub(crate) fn clone(fs: &FileSystem, from: &str, to: &str) -> bool {
    let (from, to) = (file(fs, from), file(fs, to));
    let len = fs.attributes(&from).expect("attributes").size;
    fs.clone_range((&from, 0), (&to, 0), len)
        .expect("a good device")
        == len
}

pub(crate) fn write(fs: &FileSystem, name: &str, offset: u64, data: &[u8]) {
    let done = fs.write(&file(fs, name), offset, data, Stamp::Set);
    assert_eq!(done.expect("room"), data.len());
}

#[test]
fn what_is_written_to_a_clone_or_to_its_source_leaves_the_other_as_it_was() {
    let (ram, fs) = made(4096);
    let content: Vec<u8> = (0..50 * P + 123)
        .map(|n| n.to_le_bytes()[1] ^ 0x5a)
        .collect();
    write(&fs, "a", 0, &content);
    fs.sync().expect("a good device");
    let free = fs.statistics().blocks_free;
    assert!(clone(&fs, "a", "b") && clone(&fs, "b", "c"));
    fs.sync().expect("a good device");
    let now = fs.statistics().blocks_free;
    assert!(free - now < 60, "{free} and {now}: 102 pages are shared");
    assert_eq!(fs.blocks_shared(), 2 * 51);
    write(&fs, "b", 3 * P, &[1; 4096]);
    write(&fs, "a", 7 * P + 5, &[2; 100]);
    let mut model = Model::from([
        ("a".to_owned(), content.clone()),
        ("b".to_owned(), content.clone()),
        ("c".to_owned(), content),
    ]);
    model.get_mut("b").expect("one")[size(3 * P)..size(4 * P)].fill(1);
    model.get_mut("a").expect("one")[size(7 * P + 5)..size(7 * P + 105)].fill(2);
    expect(&fs, &model);
    fs.close().expect("a good device");
    expect_sound(&ram);
    let fs = FileSystem::open(share(ram.clone()), options()).expect("it mounts");
    expect(&fs, &model);
    let root = fs.root().expect("a root");
    for (name, left) in [("a", 50 - 1 + 1), ("c", 0)] {
        fs.unlink(&root, name.as_bytes()).expect("it is there");
        model.remove(name);
        fs.sync().expect("a good device");
        assert!(fs.blocks_shared() <= left, "after {name}");
    }
    expect(&fs, &model);
    fs.close().expect("a good device");
    expect_sound(&ram);
}

#[test]
fn a_clone_on_a_full_volume_is_refused_or_whole() {
    let (ram, fs) = made(1024);
    write(&fs, "a", 0, &[5; 20 << 12]);
    fs.sync().expect("a good device");
    let fill = file(&fs, "fill");
    let mut end = 0;
    while let Ok(done @ 1..) = fs.write(&fill, end, &[6; 20 << 12], Stamp::Set) {
        end += done as u64;
    }
    let set = SetAttributes {
        size: Some(end - 100 * P),
        ..SetAttributes::default()
    };
    fs.set_attributes(&fill, &set).expect("less");
    fs.sync().expect("a good device");
    let mut clones = Vec::new();
    let root = fs.root().expect("a root");
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    for n in 0..200 {
        let name = format!("clone{n}");
        let target = match fs.create(&root, name.as_bytes(), &new) {
            Err(Error::NoSpace { .. }) => break,
            made => made.expect("a good device"),
        };
        let done = fs.clone_range((&file(&fs, "a"), 0), (&target, 0), 20 << 12);
        let done = done.expect("a good device");
        clones.push((name, size(done)));
    }
    assert!(
        clones.iter().any(|(_, done)| *done == 20 << 12),
        "none was whole"
    );
    // What was accepted can be written, and files can go.
    fs.sync().expect("room for what was accepted");
    for (name, done) in &clones {
        assert_eq!(read(&fs, name), vec![5; *done], "{name}");
    }
    for (name, _) in clones.iter().step_by(2) {
        fs.unlink(&root, name.as_bytes()).expect("room to remove");
    }
    fs.unlink(&root, b"a").expect("room to remove");
    fs.sync().expect("a good device");
    fs.close().expect("a good device");
    expect_sound(&ram);
}

#[test]
fn what_cannot_be_shared_is_left_to_the_caller() {
    let (ram, fs) = made(2048);
    write(&fs, "a", 0, &[5; 3 * 4096 + 7]);
    let (a, b) = (file(&fs, "a"), file(&fs, "b"));
    write(&fs, "b", 0, &[1; 8 * 4096]);
    let share =
        |from: u64, to: u64, len: u64| fs.clone_range((&a, from), (&b, to), len).expect("good");
    assert_eq!(share(1, 0, P), 0, "no page of the source");
    assert_eq!(share(0, 7, P), 0, "no page of the target");
    assert_eq!(share(0, 0, P - 1), 0, "less than a page");
    assert_eq!(share(0, 0, 2 * P + 9), 2 * P, "whole pages");
    assert_eq!(
        share(0, 0, 1 << 40),
        3 * P,
        "the end, in the middle of the target"
    );
    assert_eq!(
        share(0, 6 * P, 1 << 40),
        3 * P + 7,
        "the end, behind that of the target"
    );
    assert_eq!(share(4 * P, 0, P), 0, "behind the end");
    assert_eq!(
        fs.clone_range((&a, 0), (&a, 8 * P), P).expect("good"),
        0,
        "one file"
    );
    let mut expected = vec![1; size(6 * P)];
    expected[..size(3 * P)].fill(5);
    expected.extend(vec![5; 3 * 4096 + 7]);
    assert_eq!(read(&fs, "b"), expected);
    fs.close().expect("a good device");
    expect_sound(&ram);
}

/// A scrub reads each shared block once, and finds nothing wrong.
fn expect_scrubbed(fs: &FileSystem) {
    let options = dure_fs::ScrubOptions {
        rate: Some(1 << 40),
        ..dure_fs::ScrubOptions::default()
    };
    let mut found = Vec::new();
    let counts = fs.scrub(&options, &mut |now| {
        found.extend(now.found.iter().map(|bad| format!("{bad:?}")));
        ControlFlow::Continue(())
    });
    assert_eq!(counts.expect("a good device").bad, 0, "{found:?}");
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn a_volume_with_clones_is_scrubbed_trimmed_and_grown() {
    let (ram, fs) = made(2048);
    write(&fs, "a", 0, &[5; 20 << 12]);
    assert!(clone(&fs, "a", "b") && clone(&fs, "a", "c"));
    fs.sync().expect("a good device");
    // The owner in the summary lets go.
    fs.unlink(&fs.root().expect("a root"), b"a").expect("there");
    fs.sync().expect("a good device");
    expect_scrubbed(&fs);
    fs.close().expect("a good device");
    expect_sound(&ram);
    let info = dure_fs::VolumeInfo::read(share(ram.clone())).expect("a volume");
    assert_eq!(info.blocks_spared, 20);
    // What is free may be anything.
    let free: Vec<Range<u64>> = info.free_runs;
    for block in free.into_iter().flatten() {
        let write = Io::Write {
            lba: Lba::new(block),
            parts: &[&[0x5a; 4096]],
            flags: dure_block::WriteFlags::NONE,
        };
        ram.execute(write).expect("memory");
    }
    let larger = Arc::new(RamDevice::new("larger", 8192));
    let region = dure_store::media::Region::open(share(larger.clone()));
    let bytes = ram.snapshot().to_bytes();
    region
        .write(dure_store::units::BlockNo(0), &bytes)
        .expect("memory");
    FileSystem::grow(share(larger.clone())).expect("it grows");
    expect_sound(&larger);
    let fs = FileSystem::open(share(larger.clone()), options()).expect("it mounts");
    assert_eq!(
        (read(&fs, "b"), fs.blocks_shared()),
        (vec![5; 20 << 12], 20)
    );
    write(&fs, "c", 0, &[6; 20 << 12]);
    expect_scrubbed(&fs);
    assert_eq!(read(&fs, "b"), vec![5; 20 << 12]);
    fs.close().expect("a good device");
    expect_sound(&larger);
}

/// Segments in which something is shared stay as they are; the others are cleaned, and what is
/// written finds room.
#[test]
fn a_volume_with_clones_can_be_filled_again_and_again() {
    let (ram, fs) = made(2048);
    write(&fs, "kept", 0, &[5; 100 << 12]);
    assert!(clone(&fs, "kept", "clone"));
    // One page of each segment is shared.
    for page in (0..100).filter(|page| page % 30 != 7) {
        write(&fs, "kept", page * P, &[1; 4096]);
    }
    let root = fs.root().expect("a root");
    for round in 0..12_u8 {
        fs.sync().expect("a good device");
        for n in 0..40 {
            write(&fs, &format!("f{n}"), 0, &[round; 20 << 12]);
        }
        fs.sync().expect("room for what was accepted");
        for n in (0..40).filter(|n| n % 3 != usize::from(round % 3)) {
            let name = format!("f{n}");
            fs.unlink(&root, name.as_bytes()).expect("it is there");
        }
    }
    assert_eq!(read(&fs, "clone"), vec![5; 100 << 12]);
    drop(root);
    fs.close().expect("a good device");
    expect_sound(&ram);
}

/// Clones, overwrites, checkpoints and ends of clones at the same time: each page of a clone is one
/// that its source had.
#[test]
fn files_are_cloned_while_they_are_written() {
    let (ram, fs) = made(4096);
    let pages = 30;
    write(&fs, "a", 0, &vec![1; size(pages * P)]);
    let writer = {
        let fs = fs.clone();
        thread::spawn_on("writer", dure_sync::CoreId::new(0), move || {
            let random = &mut Seeded::new(1);
            for n in 0..400_u32 {
                let byte = n.to_le_bytes()[0] | 1;
                write(&fs, "a", random.below(pages) * P, &[byte; 4096]);
                match n % 16 {
                    0 => fs.sync().expect("a good device"),
                    5 => fs.checkpoint_now().expect("a good device"),
                    _ => {}
                }
            }
        })
    };
    let cloners = (0..2_u16).map(|core| {
        let fs = fs.clone();
        thread::spawn_on("cloner", dure_sync::CoreId::new(core), move || {
            for n in 0..60 {
                let name = format!("clone{core}-{}", n % 7);
                let (from, to) = (file(&fs, "a"), file(&fs, &name));
                let done = fs.clone_range((&from, 0), (&to, 0), pages * P);
                let done = size(done.expect("a good device"));
                let found = read(&fs, &name);
                for page in found[..done].chunks(size(P)) {
                    assert!(page[0] & 1 == 1 && page.iter().all(|byte| *byte == page[0]));
                }
                if n % 5 == 4 {
                    let root = fs.root().expect("a root");
                    fs.unlink(&root, name.as_bytes()).expect("it is there");
                }
            }
        })
    });
    let cloners: Vec<_> = cloners.collect();
    writer.join().expect("no panic");
    cloners
        .into_iter()
        .for_each(|one| one.join().expect("no panic"));
    fs.close().expect("a good device");
    expect_sound(&ram);
}

/// Nothing is shared by a copy of holes: an older dure may still mount the volume.
#[test]
fn a_copy_of_holes_is_not_announced() {
    let (ram, fs) = made(1024);
    let has_clones = || {
        let layout = read_layout(&Region::open(share(ram.clone()))).expect("a volume");
        layout.superblock.has_clones()
    };
    let set = SetAttributes {
        size: Some(8 * P),
        ..SetAttributes::default()
    };
    fs.set_attributes(&file(&fs, "a"), &set).expect("room");
    assert!(clone(&fs, "a", "b"));
    assert_eq!(read(&fs, "b"), vec![0; size(8 * P)]);
    assert!(!has_clones());
    write(&fs, "a", 0, &[5; 2 << 12]);
    assert!(clone(&fs, "a", "b"));
    assert!(has_clones());
    fs.close().expect("a good device");
    expect_sound(&ram);
}

/// What was freed a moment ago is not available yet: a clone brings it about, as a write does.
#[test]
fn a_clone_makes_room_for_its_lists() {
    let (ram, fs) = made(1024);
    write(&fs, "a", 0, &[5; 20 << 12]);
    fs.sync().expect("a good device");
    let (source, target, fill) = (file(&fs, "a"), file(&fs, "b"), file(&fs, "fill"));
    // The nodes of a first clone are there already.
    assert!(clone(&fs, "a", "b"));
    write(&fs, "b", 0, &[6; 20 << 12]);
    fs.sync().expect("a good device");
    let mut end = 0;
    while let Ok(done @ 1..) = fs.write(&fill, end, &[6; 4096], Stamp::Set) {
        end += done as u64;
    }
    let set = SetAttributes {
        size: Some(end - 100 * P),
        ..SetAttributes::default()
    };
    fs.set_attributes(&fill, &set).expect("less");
    let done = fs.clone_range((&source, 0), (&target, 0), 20 * P);
    assert_eq!(done.expect("a good device"), 20 * P);
    assert_eq!(read(&fs, "b"), vec![5; size(20 * P)]);
    fs.close().expect("a good device");
    expect_sound(&ram);
}

/// The blocks of the leaves of this file.
fn leaves_of(ram: &Arc<RamDevice>, ino: u64) -> Vec<(BlockNo, Vec<u8>)> {
    let region = Region::open(share(ram.clone()));
    let layout = read_layout(&region).expect("a volume");
    let block = |at| {
        let mut bytes = vec![0; size(P)];
        region.read(BlockNo(at), &mut bytes).expect("memory");
        (BlockNo(at), bytes)
    };
    let is_leaf = |(at, bytes): &(BlockNo, Vec<u8>)| {
        let header = NodeHeader::read_from_bytes(&bytes[..HEADER_BYTES]).expect("size");
        let image = NodeImage::open(bytes, Nid(header.nid.get()), *at, layout.crc_seed);
        image.is_ok_and(|image| image.kind == NodeKind::Leaf && image.owner.0 == ino)
    };
    let blocks = (layout.main..layout.total_blocks - 1).map(block);
    blocks.filter(is_leaf).collect()
}

/// Regression: after a crash, one bad node of a clone refused the volume. A listed slot that cannot
/// be read stays an owner.
#[test]
fn a_bad_node_of_a_clone_refuses_no_volume() {
    let (ram, fs) = made(2048);
    write(&fs, "a", 0, &vec![5; size(PAGES * P)]);
    assert!(clone(&fs, "a", "b"));
    fs.close().expect("a good device");
    let fs = FileSystem::open(share(ram.clone()), options()).expect("it mounts");
    let ino = file(&fs, "b").ino().0;
    write(&fs, "a", 0, &vec![6; size(PAGES * P)]);
    fs.sync().expect("a good device");
    let crashed = Arc::new(RamDevice::from_image("crashed", &ram.snapshot()));
    drop(fs);
    let leaves = leaves_of(&crashed, ino);
    assert!(!leaves.is_empty());
    let region = Region::open(share(crashed.clone()));
    for (at, _) in &leaves {
        region.write(*at, &[0x5a; 4096]).expect("memory");
    }
    let fs =
        FileSystem::open(share(crashed.clone()), options()).expect("the node is not asked for");
    assert_eq!(read(&fs, "a"), vec![6; size(PAGES * P)]);
    for n in 0..20 {
        write(&fs, &format!("new{n}"), 0, &[9; 8 << 12]);
    }
    fs.close().expect("a good device");
    for (at, bytes) in &leaves {
        region.write(*at, bytes).expect("memory");
    }
    expect_sound(&crashed);
    let fs = FileSystem::open(share(crashed), options()).expect("it mounts");
    assert_eq!(read(&fs, "b"), vec![5; size(PAGES * P)]);
}

/// Regression: a crash while a copy of the superblock was written, for the flag of clones, left it torn
/// for good: the mount went by the other copy, and the check called the volume damaged.
#[test]
fn a_torn_copy_of_the_superblock_is_written_anew_after_a_crash() {
    for torn in [0, 1023] {
        let (ram, fs) = made(1024);
        write(&fs, "a", 0, &[5; 8 << 12]);
        assert!(clone(&fs, "a", "b"));
        fs.sync().expect("a good device");
        let crashed = Arc::new(RamDevice::from_image("crashed", &ram.snapshot()));
        let write = Io::Write {
            lba: Lba::new(torn),
            parts: &[&[7; 4096]],
            flags: dure_block::WriteFlags::NONE,
        };
        crashed.execute(write).expect("memory");
        let fs = FileSystem::open(share(crashed.clone()), options()).expect("it mounts");
        assert_eq!(read(&fs, "b"), [5; 8 << 12]);
        fs.close().expect("a good device");
        expect_sound(&crashed);
    }
}

/// A block that takes no copy any more takes no volume.
#[test]
fn a_copy_of_the_superblock_that_cannot_be_written_refuses_no_mount() {
    let (ram, fs) = made(1024);
    write(&fs, "a", 0, &[5; 8 << 12]);
    fs.sync().expect("a good device");
    let crashed = Arc::new(RamDevice::from_image("crashed", &ram.snapshot()));
    let disk = Arc::new(FaultDevice::new(share(crashed)));
    let bad = || {
        let rule = Rule::new(When::From(1), Fault::Error(OsError::EIO));
        rule.within(Lba::new(1023)..Lba::new(1024))
    };
    disk.add(bad().on(Op::Read));
    disk.add(bad().on(Op::Write));
    let fs = FileSystem::open(share(disk), options()).expect("it mounts");
    assert_eq!(read(&fs, "a"), [5; 8 << 12]);
    fs.close().expect("what is in use is good");
}

use std::collections::BTreeSet;

use dure_block::crash::{CrashImages, Selection};
use dure_block::fault::{Fault, FaultDevice, Rule, When};
use dure_block::ram::{Image, RamDevice};
use dure_block::record::RecordDevice;
use dure_block::{Lba, OsError, share};
use dure_check::{CheckOptions, Data, check};
use dure_fs::{FormatOptions, MountOptions, ReadMode};
use dure_fuse_wire::protocol::reply::WriteOut;
use dure_sync::atomic::AtomicU32;
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::protocol::opcode as op;
use crate::protocol::{ROOT, parse};
use crate::service::answer;
use crate::tests::{World, request};

const BLOCKS: u64 = 4096;
const LARGER: u64 = BLOCKS * 5;

/// A new volume of `BLOCKS` blocks on a device of `LARGER` ones.
fn small_on_large() -> Image {
    let small = Arc::new(RamDevice::new("fuse", BLOCKS));
    let format = FormatOptions {
        journals: Some(2),
        ..FormatOptions::default()
    };
    FileSystem::format(share(Arc::clone(&small)), &format).unwrap();
    let image = small.snapshot();
    let mut larger = Image::zeroed(LARGER);
    for lba in (0..BLOCKS).map(Lba::new) {
        if let Some(block) = image.get(lba) {
            larger.set(lba, block.clone());
        }
    }
    larger
}

fn world() -> (World, Arc<RamDevice>) {
    let ram = Arc::new(RamDevice::from_image("fuse", &small_on_large()));
    let settings = MountSettings::default();
    let world = World::on(share(Arc::clone(&ram)), Arc::clone(&ram), &settings);
    (world, ram)
}

fn total(world: &World) -> u64 {
    world.mounted.file_system().layout().total_blocks
}

#[test]
fn open_files_stay_open_while_a_volume_grows() {
    let (mut world, ram) = world();
    let named = world.create(b"named");
    world.write(named, b"sown");
    let open = world.create(b"open");
    world.write(open, b"reaped");
    world.known.insert(open);
    world.done(op::UNLINK, ROOT, &[b"open\0"]);
    let before = world.mounted.file_system();
    world.mounted.grow(share(Arc::clone(&ram))).unwrap();
    assert_eq!(total(&world), LARGER);
    assert!(before.sync().is_err(), "the old mount changes nothing");
    drop(before);
    assert_eq!(world.read(named, 100), b"sown");
    assert_eq!(world.read(open, 100), b"reaped");
    world.write(open, b"goes on");
    // It does not grow twice to the same size, and all goes on.
    world.mounted.grow(share(ram)).unwrap_err();
    assert_eq!(world.read(open, 100), b"goes on");
    // The last use of it deletes it, as ever.
    world.known.clear();
    let forget = request(op::FORGET, open, &[1_u64.as_bytes()]);
    assert!(world.ask(&forget).is_none());
    assert_eq!(world.errno(op::GETATTR, open, &[]), libc::ESTALE);
    world.end();
}

/// The bytes of a WRITE of `data` at `offset`; with `flags` of the protocol.
fn write_record(offset: u64, size: usize, flags: u32) -> Vec<u8> {
    let size = u32::try_from(size).unwrap();
    let place = [0, offset];
    [place.as_bytes(), [size, flags].as_bytes(), &[0; 16]].concat()
}

/// A WRITE as a worker answers it; the errno.
fn write(gate: &Gate, node: u64, offset: u64, data: &[u8], flags: u32) -> i32 {
    let record = write_record(offset, data.len(), flags);
    let asked = request(op::WRITE, node, &[&record, data]);
    let mut reply = Reply::new();
    let bytes = answer(gate, &|_| true, parse(asked.get()), &mut reply).unwrap();
    let (header, body) =
        dure_fuse_wire::protocol::reply::OutHeader::read_from_prefix(bytes).unwrap();
    if header.error == 0 {
        let size = WriteOut::read_from_bytes(body).unwrap().size;
        assert_eq!(usize::try_from(size), Ok(data.len()));
    }
    -header.error
}

#[test]
fn writers_go_on_while_a_volume_grows() {
    const WRITERS: u32 = 4;
    let (mut world, ram) = world();
    let names = (0..WRITERS).map(|n| format!("file{n}"));
    let nodes: Vec<u64> = names.map(|name| world.create(name.as_bytes())).collect();
    let gate = Arc::clone(&world.mounted.0);
    let (round, ends) = (AtomicU32::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let writers: Vec<_> = nodes
            .iter()
            .map(|&node| {
                let (gate, round, ends) = (&gate, &round, &ends);
                scope.spawn(move || {
                    let mut count = 0_u64;
                    while !ends.load(Ordering::Relaxed) {
                        let data = [count.to_le_bytes(); 64].concat();
                        assert_eq!(write(gate, node, count % 900 * 512, &data, 0), 0);
                        count += 1;
                        round.fetch_add(1, Ordering::Relaxed);
                    }
                    count
                })
            })
            .collect();
        let rounds_past = |count: u32| {
            let from = round.load(Ordering::Relaxed);
            while round.load(Ordering::Relaxed) < from + count {
                thread::sleep(LOOKS);
            }
        };
        rounds_past(200);
        world.mounted.grow(share(ram)).unwrap();
        rounds_past(200);
        ends.store(true, Ordering::Relaxed);
        for (writer, &node) in writers.into_iter().zip(&nodes) {
            let count = writer.join().unwrap();
            let found = world.read(node, 900 * 512);
            for (place, part) in found.chunks_exact(512).enumerate() {
                let place = u64::try_from(place).unwrap();
                // The last write there.
                let last = (count - 1 - place) / 900 * 900 + place;
                assert_eq!(part[..8], last.to_le_bytes());
            }
        }
    });
    assert_eq!(total(&world), LARGER);
    world.end();
}

/// A FORGET asks the kernel, which first has its cache written: this WRITE must not wait for the
/// growth, which waits for the FORGET.
#[test]
fn a_write_that_a_request_waits_for_passes_a_growth_that_waits() {
    let (mut world, ram) = world();
    let open = world.create(b"open");
    world.write(open, b"sown");
    world.done(op::UNLINK, ROOT, &[b"open\0"]);
    let other = world.create(b"other");
    let gate = &Arc::clone(&world.mounted.0);
    let wanted = || {
        while !gate.wanted.load(Ordering::Relaxed) {
            thread::sleep(LOOKS);
        }
    };
    let (asking, written) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let knows = |_| {
            asking.store(true, Ordering::Relaxed);
            while !written.load(Ordering::Relaxed) {
                thread::sleep(LOOKS);
            }
            false
        };
        let forgets = scope.spawn(move || {
            let asked = request(op::FORGET, open, &[1_u64.as_bytes()]);
            let mut reply = Reply::new();
            assert!(answer(&**gate, &knows, parse(asked.get()), &mut reply).is_none());
        });
        while !asking.load(Ordering::Relaxed) {
            thread::sleep(LOOKS);
        }
        let (asking, written) = (&asking, &written);
        scope.spawn(move || {
            wanted();
            // Another request waits meanwhile.
            let asked = request(op::GETATTR, ROOT, &[&[0; 16]]);
            let asked = parse(asked.get()).unwrap();
            assert!(gate.answer_promptly(&asked, &mut Reply::new()).is_none());
            assert!(asking.load(Ordering::Relaxed) && !written.load(Ordering::Relaxed));
            assert_eq!(write(gate, other, 0, b"cached", op::WRITE_CACHE), 0);
            written.store(true, Ordering::Relaxed);
        });
        world.mounted.grow(share(ram)).unwrap();
        forgets.join().unwrap();
    });
    assert_eq!(world.read(other, 100), b"cached");
    assert_eq!(world.errno(op::GETATTR, open, &[]), libc::ESTALE);
    world.end();
}

/// Cut anywhere while a mounted volume grows: what was synced is there, at the old size or the new.
#[test]
fn a_crash_while_a_mounted_volume_grows_loses_nothing_synced() {
    let base = small_on_large();
    let ram = Arc::new(RamDevice::from_image("fuse", &base));
    let record = RecordDevice::new(share(Arc::clone(&ram)));
    let log = record.log();
    let device = share(record);
    let mut world = World::on(Arc::clone(&device), ram, &MountSettings::default());
    let mut synced = Vec::new();
    let mut sync = |world: &mut World, name: &'static str| {
        let node = world.create(name.as_bytes());
        world.write(node, name.as_bytes());
        world.done(op::FSYNC, node, &[&[0; 16]]);
        synced.push((log.step(), name));
        node
    };
    sync(&mut world, "before");
    let open = sync(&mut world, "open");
    world.known.insert(open);
    world.done(op::UNLINK, ROOT, &[b"open\0"]);
    world.mounted.grow(device).unwrap();
    sync(&mut world, "after");
    assert_eq!(world.read(open, 100), b"open");
    let images = CrashImages::new(base, &log);
    synced.retain(|(_, name)| *name != "open");
    let (mut sizes, mut states) = (BTreeSet::new(), 0);
    for at in synced[0].0..=images.last_step() {
        let point = images.at(at);
        for choice in point.choices(Selection::default()).take(4) {
            let image = point.image(&choice).snapshot();
            let wanted = synced.iter().filter(|(step, _)| *step <= at);
            sizes.insert(recovers(&image, wanted.map(|(_, name)| *name), at));
            states += 1;
        }
    }
    assert_eq!(sizes, BTreeSet::from([BLOCKS, LARGER]));
    assert!(states > 50, "{states} states");
}

/// What a growth on a device that fails has left.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    Grown,
    AsItWas,
    ReadOnly,
}

/// Whatever request of the larger device fails, once or from then on: the mount goes on as before,
/// or it is read-only; all that was done is durable.
#[test]
fn a_growth_on_a_device_that_fails_loses_nothing() {
    let base = small_on_large();
    for kind in [When::From, When::Nth] {
        let mut all = BTreeSet::new();
        for count in 1.. {
            let Some(left) = left_by(&base, kind(count)) else {
                assert!(count > 20, "{count} requests");
                break;
            };
            all.insert(left);
        }
        assert!(all.contains(&Left::ReadOnly), "{all:?}");
        if kind(1) == When::Nth(1) {
            assert!(all.contains(&Left::AsItWas), "{all:?}");
        }
    }
}

/// What is left when these requests of the larger device fail; `None` if it has not so many.
fn left_by(base: &Image, when: When) -> Option<Left> {
    let ram = Arc::new(RamDevice::from_image("fuse", base));
    let settings = MountSettings::default();
    let mut world = World::on(share(Arc::clone(&ram)), Arc::clone(&ram), &settings);
    let named = world.create(b"named");
    world.write(named, b"named");
    let open = world.create(b"open");
    world.write(open, b"reaped");
    world.known.insert(open);
    world.done(op::UNLINK, ROOT, &[b"open\0"]);
    let faulty = Arc::new(FaultDevice::new(share(Arc::clone(&ram))));
    faulty.add(Rule::new(when, Fault::Error(OsError::EIO)));
    let grown = world.mounted.grow(share(Arc::clone(&faulty)));
    let hits = faulty.seen().hits;
    faulty.clear();
    assert_eq!(world.read(named, 100), b"named", "{when:?}");
    assert_eq!(world.read(open, 100), b"reaped", "{when:?}");
    let errno = write(&world.mounted.0, open, 0, b"more", 0);
    let left = match grown {
        Ok(_) => Left::Grown,
        Err(GrowError::Refused(_)) => Left::AsItWas,
        Err(GrowError::NotMounted(_)) => Left::ReadOnly,
    };
    let (want, blocks) = match left {
        Left::Grown => (0, LARGER),
        Left::AsItWas => (0, BLOCKS),
        Left::ReadOnly => (libc::EROFS, BLOCKS),
    };
    assert_eq!((errno, total(&world)), (want, blocks), "{when:?} {left:?}");
    // The last use of an inode without a name, and a request that waits for its deletion.
    world.known.clear();
    let forget = request(op::FORGET, open, &[1_u64.as_bytes()]);
    assert!(world.ask(&forget).is_none());
    world.done(op::STATFS, ROOT, &[]);
    if left == Left::ReadOnly {
        // As an unmount does.
        world.mounted.file_system().close().unwrap();
    }
    drop(world);
    recovers(&ram.snapshot(), ["named"].into_iter(), hits);
    (hits > 0).then_some(left)
}

/// The user that asked for it is told what happened, and what to do.
#[test]
fn a_volume_that_could_not_be_mounted_again_says_what_to_do() {
    let reason = "broken".to_owned();
    let said = GrowError::NotMounted(Error::Stopped { reason }).to_string();
    for word in [
        "broken",
        "read-only",
        "nothing lost",
        "dure umount",
        "mount it",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
}

/// The volume mounts, has these files, and is sound; its blocks.
fn recovers<'n>(image: &Image, names: impl Iterator<Item = &'n str>, at: u64) -> u64 {
    let ram = Arc::new(RamDevice::from_image("crashed", image));
    let options = MountOptions {
        background: dure_fs::Background::None,
        cache_bytes: 2 << 20,
        recovery_threads: Some(1),
        ..MountOptions::default()
    };
    let fs = FileSystem::open(share(Arc::clone(&ram)), options).unwrap();
    let root = fs.root().unwrap();
    for name in names {
        let file = fs.lookup(&root, name.as_bytes()).unwrap();
        let file = file.unwrap_or_else(|| panic!("{name} is lost at step {at}"));
        let mut content = [0; 100];
        let read = fs.read(&file, 0, &mut content, ReadMode::Cached).unwrap();
        assert_eq!(&content[..read], name.as_bytes(), "step {at}");
    }
    fs.close().unwrap();
    let options = CheckOptions {
        data: Data::Verify,
        ..CheckOptions::default()
    };
    let report = check(share(ram), &options).unwrap();
    assert!(report.issues().is_empty(), "{at}: {:#?}", report.issues());
    fs.layout().total_blocks
}

//! Bad data, full volumes, devices that fail.

use dure_block::fault::{Fault, FaultDevice, Rule, When};
use dure_block::{Lba, Op, OsError, share};
use dure_sync::Arc;

use super::{World, check, content, file};
use dure_store::OpKind;
use dure_store::space::OpClass;
use dure_store::units::BlockNo;

use crate::file::map::MapReader;
use crate::inode::InodeRef;
use crate::volume::FileSystem;
use crate::{AllocateMode, Error, ReadMode, Stamp, SyncScope};
use dure_sync::random::Seeded;

fn block_of(fs: &FileSystem, inode: &InodeRef, page: u64) -> u64 {
    let _held = inode.inode().state().read();
    MapReader::new(&fs.0.files, inode.inode())
        .slot(page)
        .unwrap()
        .block()
        .0
}

#[test]
fn a_last_transaction_whose_data_is_lost_is_not_complete() {
    assert_eq!(
        first_page_after_its_block_was_lost(0),
        9,
        "the state before it"
    );
}

#[test]
fn a_transaction_whose_data_is_in_the_log_needs_no_block() {
    assert_eq!(first_page_after_its_block_was_lost(1), 7);
}

fn first_page_after_its_block_was_lost(log_data_pages: u32) -> u8 {
    let mut world = World::new(8192, 8 << 20);
    world.options.log_data_pages = log_data_pages;
    {
        let fs = world.mount();
        let inode = file(&fs);
        fs.write(&inode, 0, &[9; 8 * 4096], Stamp::Set).unwrap();
        fs.fsync(&inode, SyncScope::All).unwrap();
        fs.write(&inode, 0, &[7; 4096], Stamp::Set).unwrap();
        fs.fsync(&inode, SyncScope::All).unwrap();
        // With one flush the log may reach the medium without the data.
        let lost = BlockNo(block_of(&fs, &inode, 0));
        fs.0.store.region.write(lost, &[8; 4096]).unwrap();
    }
    let fs = world.mount();
    let bytes = content(&fs, &file(&fs));
    assert!(bytes[..4096].iter().all(|byte| *byte == bytes[0]));
    assert!(bytes[4096..] == [9; 7 * 4096]);
    bytes[0]
}

#[test]
fn a_page_that_changed_on_the_medium_fails_alone() {
    let world = World::new(8192, 8 << 20);
    let bad = {
        let fs = world.mount();
        let inode = file(&fs);
        fs.write(&inode, 0, &[9; 8 * 4096], Stamp::Set).unwrap();
        fs.close().unwrap();
        block_of(&fs, &inode, 5)
    };
    let fs = world.mount();
    let inode = file(&fs);
    fs.0.store.region.write(BlockNo(bad), &[8; 4096]).unwrap();
    let mut buf = [0; 8 * 4096];
    for mode in [ReadMode::Bypass, ReadMode::Cached] {
        assert_eq!(fs.read(&inode, 0, &mut buf, mode).unwrap(), 5 * 4096);
        match fs.read(&inode, 5 * 4096 + 10, &mut buf, mode) {
            Err(Error::Corrupt {
                what,
                at,
                want,
                got,
            }) => {
                assert_eq!(what, format!("checksum of page 5 of inode {}", inode.ino()));
                assert_eq!(at, bad);
                assert_eq!(want, u64::from(dure_block::crc32c::crc32c(&[9; 4096])));
                assert_eq!(got, u64::from(dure_block::crc32c::crc32c(&[8; 4096])));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(fs.read(&inode, 6 * 4096, &mut buf, mode).unwrap(), 2 * 4096);
    }
    let partial = fs.write(&inode, 5 * 4096 + 1, b"x", Stamp::Set);
    assert!(matches!(partial, Err(Error::Corrupt { .. })), "{partial:?}");
    // A whole page is overwritten without being read.
    fs.write(&inode, 5 * 4096, &[7; 4096], Stamp::Set).unwrap();
    fs.fsync(&inode, SyncScope::All).unwrap();
    assert_eq!(content(&fs, &inode).len(), 8 * 4096);
}

fn faulty(world: &World) -> (FileSystem, Arc<FaultDevice>) {
    let device = Arc::new(FaultDevice::new(world.device()));
    let fs = FileSystem::open(share(device.clone()), world.options.clone()).unwrap();
    (fs, device)
}

#[test]
fn a_block_that_cannot_be_written_is_replaced() {
    let world = World::new(8192, 8 << 20);
    let (fs, device) = faulty(&world);
    let inode = file(&fs);
    fs.write(&inode, 0, &[1; 64 * 4096], Stamp::Set).unwrap();
    // The next data goes behind the last: some of these blocks will be bad.
    fs.fsync(&inode, SyncScope::All).unwrap();
    let last = block_of(&fs, &inode, 63);
    let bad = move |lba: Lba| lba.number() == last + 3 || lba.number() == last + 7;
    device.add(
        Rule::new(When::From(1), Fault::Error(OsError::EIO))
            .on(Op::Write)
            .where_block(bad),
    );
    fs.write(&inode, 0, &[2; 32 * 4096], Stamp::Set).unwrap();
    fs.fsync(&inode, SyncScope::All).unwrap();
    assert!(device.seen().requests() > 0);
    assert_eq!(fs.0.store.placement.fenced_off.sum(), 2);
    for page in 0..64 {
        assert!(!bad(Lba::new(block_of(&fs, &inode, page))));
    }
    check(&fs, &inode);
    drop(fs);
    let fs = world.mount();
    let bytes = content(&fs, &file(&fs));
    assert!(bytes[..32 * 4096].iter().all(|&byte| byte == 2));
    assert!(bytes[32 * 4096..].iter().all(|&byte| byte == 1));
}

#[test]
fn a_write_back_that_fails_keeps_failing_until_it_succeeds() {
    let mut world = World::new(8192, 8 << 20);
    world.options.log_data_pages = 0;
    let (fs, device) = faulty(&world);
    let inode = file(&fs);
    fs.write(&inode, 0, &[1; 3 * 4096], Stamp::Set).unwrap();
    fs.fsync(&inode, SyncScope::All).unwrap();
    let main = fs.0.store.layout.main;
    let free = fs.0.store.space.statistics().available;
    device.add(
        Rule::new(When::From(1), Fault::Error(OsError::EIO))
            .on(Op::Write)
            .where_block(move |lba| lba.number() >= main),
    );
    fs.write(&inode, 4096, &[2; 4096], Stamp::Set).unwrap();
    for _ in 0..3 {
        let failed = fs.fsync(&inode, SyncScope::All);
        assert!(matches!(failed, Err(Error::Block(_))), "{failed:?}");
        let bytes = content(&fs, &inode);
        assert_eq!(
            (bytes[0], bytes[4096], bytes[8192]),
            (1, 2, 1),
            "the data is still there"
        );
    }
    assert!(fs.stopped().is_none(), "no metadata was lost");
    device.clear();
    fs.fsync(&inode, SyncScope::All).unwrap();
    check(&fs, &inode);
    let fenced = u64::try_from(fs.0.store.placement.fenced_off.sum()).unwrap();
    fs.0.store.commit_all().unwrap();
    assert_eq!(
        fs.0.store.space.statistics().available + fenced,
        free,
        "no reserved block was lost"
    );
    drop(fs);
    let fs = world.mount();
    assert_eq!(content(&fs, &file(&fs))[4096], 2);
}

/// With two flushes per fsync the first one's failure was an error of that fsync alone; what others
/// had written since the last flush may have gone with it.
#[test]
fn a_failed_flush_of_data_stops_the_volume() {
    let mut world = World::new(8192, 8 << 20);
    assert_eq!(world.options.set_policy("flush", "two"), Ok(true));
    world.options.log_data_pages = 0;
    let (fs, device) = faulty(&world);
    let inode = file(&fs);
    fs.write(&inode, 0, &[1; 4096], Stamp::Set).unwrap();
    device.add(Rule::new(When::Nth(1), Fault::Error(OsError::EIO)).on(Op::Flush));
    let failed = fs.fsync(&inode, SyncScope::All);
    assert!(matches!(failed, Err(Error::Block(_))), "{failed:?}");
    let reason = fs.stopped().expect("nothing can be relied on any more");
    assert!(reason.contains("flush"), "{reason}");
    let again = fs.fsync(&inode, SyncScope::All);
    assert!(matches!(again, Err(Error::Stopped { .. })), "{again:?}");
    assert_eq!(content(&fs, &inode), [1; 4096]);
}

#[test]
fn a_full_volume_refuses_and_loses_nothing() {
    for seed in 0..4 {
        let world = World::new(2048, 1 << 20);
        let fs = world.mount();
        let inode = file(&fs);
        let mut rng = Seeded::new(seed);
        let mut model: Vec<u8> = Vec::new();
        let mut refused = 0;
        for n in 0..400_u64 {
            let fill = u8::try_from(n % 251 + 1).unwrap();
            let len = usize::try_from(1 + rng.below(100_000)).unwrap();
            let offset = usize::try_from(rng.below(8 << 20)).unwrap();
            match fs.write(&inode, offset as u64, &vec![fill; len], Stamp::Set) {
                Ok(done) => {
                    if model.len() < offset + done {
                        model.resize(offset + done, 0);
                    }
                    model[offset..offset + done].fill(fill);
                }
                Err(Error::NoSpace { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
            if n % 50 == 49 {
                match fs.fsync(&inode, SyncScope::All) {
                    Ok(()) | Err(Error::NoSpace { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            if refused > 5 {
                break;
            }
        }
        assert!(refused > 0, "8 MiB do not fit");
        assert!(content(&fs, &inode) == model, "seed {seed}");
        check(&fs, &inode);
        let full = fs.allocate(&inode, AllocateMode::KeepSize, 1 << 30, 64 << 20);
        assert!(matches!(full, Err(Error::NoSpace { .. })), "{full:?}");
        check(&fs, &inode);
        fs.0.files.truncate(&inode, 4 << 20).unwrap();
        model.resize(4 << 20, 0);
        fs.fsync(&inode, SyncScope::All).unwrap();
        fs.write(&inode, 0, &[0xdd; 100_000], Stamp::Set).unwrap();
        model[..100_000].fill(0xdd);
        fs.fsync(&inode, SyncScope::All).unwrap();
        drop(fs);
        let fs = world.mount();
        assert!(
            content(&fs, &file(&fs)) == model,
            "after the mount, seed {seed}"
        );
        check(&fs, &file(&fs));
    }
}

#[test]
fn what_was_synced_before_the_volume_filled_survives() {
    let world = World::new(2048, 1 << 20);
    let fs = world.mount();
    let (kept, other) = (file(&fs), super::nth_file(&fs, 1));
    fs.write(&kept, 0, &[5; 50_000], Stamp::Set).unwrap();
    fs.fsync(&kept, SyncScope::All).unwrap();
    let mut at = 0;
    let refused = loop {
        match fs.write(&other, at, &[6; 65536], Stamp::Set) {
            Ok(done) => at += done as u64,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    drop(fs);
    let fs = world.mount();
    assert_eq!(content(&fs, &file(&fs)), [5; 50_000]);
}

#[test]
fn a_file_that_counts_fewer_blocks_than_it_has_is_corrupt() {
    let world = World::new(4096, 8 << 20);
    let fs = world.mount();
    let inode = file(&fs);
    fs.write(&inode, 0, &[1; 9000], Stamp::Set).unwrap();
    fs.fsync(&inode, SyncScope::All).unwrap();
    let mut op = fs.0.store.op(OpKind::Write, OpClass::Normal, 1).unwrap();
    let mut state = inode.inode().state().write();
    let mut data = inode.inode().data();
    data.blocks = 1.into();
    inode.inode().store_data(&mut op, &data);
    inode.inode().data_stored(&mut state, &data, op.finish());
    drop(state);
    let cut = fs.allocate(&inode, AllocateMode::Punch, 0, 100_000);
    assert!(
        matches!(&cut, Err(Error::Corrupt { what, .. }) if what.contains("number of blocks")),
        "{cut:?}"
    );
}

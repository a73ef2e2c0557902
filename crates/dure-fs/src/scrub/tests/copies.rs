//! Volumes with two copies of NAT and SIT.

use dure_block::fault::{Fault, FaultDevice, Rule as FaultRule, When};
use dure_block::{Lba, Op, OsError};

use super::*;

/// The block of the slot that counts of each pair that was written, and that of its copy.
fn counting(fs: &FileSystem) -> Vec<[BlockNo; 2]> {
    let tables = [Table::Nat, Table::Sit].into_iter();
    tables
        .flat_map(|table| fs.0.store.copies_of(table))
        .collect()
}

fn block(fs: &FileSystem, at: BlockNo) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_BYTES];
    fs.0.store.region.read(at, &mut bytes).unwrap();
    bytes
}

fn are_the_same(fs: &FileSystem) {
    let places = counting(fs);
    assert!(places.len() >= 3, "{places:?}");
    for [first, second] in places {
        assert_eq!(block(fs, first), block(fs, second), "{first:?}");
    }
}

/// The volume mounted once more, with nothing of it in memory.
fn again(device: &Arc<dyn Device>, fs: FileSystem) -> FileSystem {
    fs.close().unwrap();
    drop(fs);
    open(device)
}

fn content_is_whole(fs: &FileSystem) {
    let file = file(fs);
    let mut bytes = vec![0; BLOCK_BYTES];
    for page in 0..PAGES {
        let at = page * BLOCK_BYTES_U64;
        let read = fs.read(&file, at, &mut bytes, ReadMode::Cached);
        assert_eq!(read.unwrap(), BLOCK_BYTES);
        assert_eq!(bytes[..8], (page << 8 | 1).to_le_bytes());
    }
}

#[test]
fn a_scrub_writes_each_damaged_copy_anew() {
    let (device, fs) = filled_on(device(TableCopies::Two));
    let fs = again(&device, fs);
    are_the_same(&fs);
    for places in counting(&fs) {
        for at in places {
            let before = block(&fs, at);
            flip(&fs, at);
            let bad = only(&fs);
            assert_eq!((bad.block, bad.mended), (at, true), "{bad:?}");
            assert_eq!(block(&fs, at), before);
            assert_eq!(scrub(&fs).0, []);
        }
    }
}

/// Both verify, and differ: the first counts.
#[test]
fn of_two_whole_copies_the_first_counts() {
    let (device, fs) = filled_on(device(TableCopies::Two));
    let fs = again(&device, fs);
    let [first, second] = counting(&fs)[0];
    let mut old = block(&fs, first);
    // Another generation of the same pair, as a lost write would leave it.
    let seed = fs.0.store.layout.crc_seed;
    old[24] ^= 2;
    old[4..8].fill(0);
    let crc = dure_block::crc32c::crc32c_append(seed, &old);
    old[4..8].copy_from_slice(&crc.to_le_bytes());
    fs.0.store.region.write_once(second, &old).unwrap();
    let bad = only(&fs);
    assert_eq!((bad.block, bad.mended), (second, true), "{bad:?}");
    assert_eq!(block(&fs, first), block(&fs, second));
}

#[test]
fn a_mount_reads_the_other_copy_and_a_checkpoint_mends() {
    for which in 0..2 {
        let (device, fs) = filled_on(device(TableCopies::Two));
        let fs = again(&device, fs);
        counting(&fs)
            .iter()
            .for_each(|places| flip(&fs, places[which]));
        // What memory has of the tables is gone.
        let fs = again(&device, fs);
        content_is_whole(&fs);
        write(&fs, &file(&fs), 0..3, 1);
        fs.sync().unwrap();
        fs.checkpoint_now().unwrap();
        if which == 0 {
            // Each pair was read, but for what nobody asked of the NAT.
            let left = counting(&fs);
            let left = left
                .iter()
                .filter(|[one, two]| block(&fs, *one) != block(&fs, *two));
            assert!(left.count() < counting(&fs).len() / 2);
        }
        let (found, _) = scrub(&fs);
        assert!(found.iter().all(|bad| bad.mended), "{found:?}");
        are_the_same(&fs);
        let fs = again(&device, fs);
        assert_eq!(scrub(&fs).0, []);
        content_is_whole(&fs);
    }
}

/// As of a volume with one copy.
#[test]
fn what_is_damaged_in_both_copies_is_named() {
    let (device, fs) = filled_on(device(TableCopies::Two));
    let fs = again(&device, fs);
    let places = counting(&fs)[0];
    let nids = fs.0.store.nat.pairs_in_memory();
    assert!(nids > 0);
    places.into_iter().for_each(|at| flip(&fs, at));
    let bad = only(&fs);
    assert_eq!(bad.block, places[0]);
    assert!(bad.why.contains("NAT pair"), "{bad:?}");
    assert!(bad.mended, "from memory, as with one copy");
    assert_eq!(scrub(&fs).0, []);
    are_the_same(&fs);
}

#[test]
fn a_copy_that_cannot_be_read_is_damaged() {
    let ram = device(TableCopies::Two);
    let faults = Arc::new(FaultDevice::new(ram));
    let (device, fs) = filled_on(share(Arc::clone(&faults)));
    let (nat, copies) = (fs.0.store.layout.nat, fs.0.store.layout.copies);
    let pairs = fs.0.store.pairs(Table::Nat) + fs.0.store.pairs(Table::Sit);
    let mut fs = fs;
    for first in [nat, copies] {
        let range = Lba::new(first)..Lba::new(first + 2 * pairs);
        let eio = Fault::Error(OsError::new(5));
        let rule = FaultRule::new(When::From(1), eio);
        faults.add(rule.on(Op::Read).within(range));
        fs = again(&device, fs);
        content_is_whole(&fs);
        let (found, counts) = scrub(&fs);
        let written = u64::try_from(counting(&fs).len()).unwrap();
        assert_eq!(counts.bad, written, "{found:?}");
        faults.clear();
        are_the_same(&fs);
    }
}

//! Snapshots on damaged and forged volumes: an error that names what is wrong, and the files are not
//! lost.

use dure_block::ram::RamDevice;
use dure_block::{Lba, share};
use dure_check::{CheckOptions, Repair, check};
use dure_fs::{Error, FileSystem, MountOptions};
use dure_journal::format::slotted::{self, SlotKind};
use dure_store::format::pair_kind;
use dure_store::format::sit::SitBlock;
use dure_store::format::snapshot::{Kept, KeptList, SnapshotTable};
use dure_store::format::volume::SlotCode;
use dure_store::layout::Layout;
use dure_store::media::Region;
use dure_store::packs::{Packs, PairIndex, Table};
use dure_store::units::BlockNo;
use dure_store::{pair, read_header, read_layout};
use dure_sync::Arc;
use dure_sync::random::Seeded;
use zerocopy::FromBytes;

use crate::snapshots::{content, expect_sound, made, options};
use crate::workload::step;

/// Where the tables of snapshots lie.
struct Places {
    layout: Layout,
    checkpoint: u64,
    table: u64,
    list: u64,
    /// A pair of the SIT that is kept for the first snapshot.
    kept_sit: u64,
    /// The slot that counts of the first pair of the SIT.
    sit: u64,
}

impl Places {
    fn of(ram: &Arc<RamDevice>) -> Places {
        let region = Region::open(share(ram.clone()));
        let layout = read_layout(&region).expect("a volume");
        let (header, _) = read_header(&region, &layout).expect("a volume");
        let packs = Packs::read(&region, &layout, &header).expect("sound");
        let body = |at, kind| pair::read_single(&region, BlockNo(at), kind, layout.crc_seed);
        let table = header.snapshots.get();
        let payload = body(table, pair_kind::SNAPSHOTS).expect("sound");
        let entries = SnapshotTable::read_from_bytes(&payload)
            .expect("size")
            .entries;
        let list = entries[0].list.get();
        let payload = body(list, pair_kind::KEPT_LIST).expect("sound");
        let kept = KeptList::read_from_bytes(&payload).expect("size").entries;
        let is_sit = |kept: &&Kept| kept.pair.get() >> 63 == 1 && kept.block.get() != 0;
        let kept_sit = kept.iter().find(is_sit).expect("the SIT has changed");
        let first = PairIndex {
            table: Table::Sit,
            index: 0,
        };
        let SlotCode::Slot(slot) = packs.code(first) else {
            panic!("the SIT was written");
        };
        Places {
            checkpoint: header.checkpoint.get(),
            table,
            list,
            kept_sit: kept_sit.block.get(),
            sit: layout.sit_pair(0) + slot,
            layout,
        }
    }
}

/// The volume, with this block destroyed.
pub(crate) fn without(ram: &RamDevice, block: u64) -> Arc<RamDevice> {
    let damaged = Arc::new(RamDevice::from_image("damaged", &ram.snapshot()));
    let region = Region::open(share(damaged.clone()));
    region.write(BlockNo(block), &[0x5a; 4096]).expect("memory");
    damaged
}

#[test]
fn damage_of_snapshots_is_found_and_the_volume_is_not_lost() {
    let (ram, fs) = made(4096);
    let mut random = Seeded::new(5);
    (0..200).for_each(|_| drop(step(&fs, &mut random)));
    fs.create_snapshot("then").expect("room");
    (0..200).for_each(|_| drop(step(&fs, &mut random)));
    let now = content(&fs);
    fs.close().expect("a good device");
    let places = Places::of(&ram);
    for at in [places.table, places.list, places.kept_sit] {
        let damaged = without(&ram, at);
        let report = check(share(damaged.clone()), &CheckOptions::default()).expect("a superblock");
        let said: Vec<String> = report.issues().iter().map(ToString::to_string).collect();
        assert!(
            !said.is_empty() && said.iter().all(|one| one.contains("snapshot")),
            "{said:?}"
        );
        let opened = FileSystem::open(share(damaged.clone()), options());
        assert!(opened.is_err(), "block {at}: {opened:?}");
        drop(opened);
        let damaged = without(&ram, at);
        let reading = MountOptions {
            read_only: true,
            ..options()
        };
        let read = FileSystem::open(share(damaged.clone()), reading).expect("nothing is written");
        assert_eq!(content(&read), now);
        let repair = CheckOptions {
            repair: Repair::Full,
            ..CheckOptions::default()
        };
        let report = check(share(damaged.clone()), &repair).expect("a superblock");
        let losses: Vec<String> = report.losses().iter().map(ToString::to_string).collect();
        assert!(
            losses.iter().any(|loss| loss.contains("snapshots")),
            "{losses:?}"
        );
        expect_sound(&damaged);
        let again = FileSystem::open(share(damaged), options()).expect("repaired");
        assert_eq!(content(&again), now);
        assert_eq!(again.snapshots(), []);
    }
}

/// Changes the body of a sealed block of kind `kind`, and seals it again.
pub(crate) fn forge(
    ram: &RamDevice,
    at: u64,
    kind: u32,
    change: impl FnOnce(&mut [u8]),
) -> Arc<RamDevice> {
    let damaged = Arc::new(RamDevice::from_image("forged", &ram.snapshot()));
    let region = Region::open(share(damaged.clone()));
    let layout = read_layout(&region).expect("a volume");
    let mut block = vec![0; 4096];
    region.read(BlockNo(at), &mut block).expect("memory");
    let generation = u64::from_le_bytes(*block[24..].first_chunk().expect("a head"));
    change(&mut block[slotted::SLOT_HEADER_BYTES..]);
    let pair = Lba::new(at - generation % 2);
    slotted::seal(
        &mut block,
        SlotKind(kind),
        pair,
        generation,
        layout.crc_seed,
    );
    region.write(BlockNo(at), &block).expect("memory");
    damaged
}

#[test]
fn tables_that_lie_about_snapshots_are_refused() {
    // One pair has the whole SIT, and entries to spare.
    let (ram, fs) = made(1400);
    let mut random = Seeded::new(11);
    (0..100).for_each(|_| drop(step(&fs, &mut random)));
    fs.create_snapshot("then").expect("room");
    (0..50).for_each(|_| drop(step(&fs, &mut random)));
    fs.close().expect("a good device");
    let places = Places::of(&ram);
    let (layout, table) = (&places.layout, places.table);
    assert!(layout.segments < 50, "{}", layout.segments);
    let (segment, index) = layout.locate(BlockNo(table)).expect("in the main area");
    let forged = [
        // A segment that does not exist has a live block.
        forge(&ram, places.kept_sit, pair_kind::KEPT, |body| {
            let sit = SitBlock::mut_from_bytes(body).expect("size");
            let entry = &mut sit.entries[49];
            entry.live[0] = 1;
            entry.valid.set(1);
        }),
        forge(&ram, table, pair_kind::SNAPSHOTS, |body| {
            let table = SnapshotTable::mut_from_bytes(body).expect("size");
            table.entries[0].id.set(u64::MAX);
        }),
        forge(&ram, table, pair_kind::SNAPSHOTS, |body| {
            let table = SnapshotTable::mut_from_bytes(body).expect("size");
            table.entries[0].checkpoint.set(places.checkpoint + 1);
        }),
        forge(&ram, table, pair_kind::SNAPSHOTS, |body| {
            let table = SnapshotTable::mut_from_bytes(body).expect("size");
            table.next.set(places.table);
        }),
        // A file's block is the snapshots' own, too.
        forge(&ram, places.sit, pair_kind::SIT, |body| {
            let sit = SitBlock::mut_from_bytes(body).expect("size");
            let entry = &mut sit.entries[usize::try_from(segment.0 % 50).expect("small")];
            entry.live[usize::try_from(index / 8).expect("small")] |= 1 << (index % 8);
            entry.valid.set(entry.valid.get() + 1);
        }),
    ];
    for (n, forged) in forged.into_iter().enumerate() {
        let report = check(share(forged.clone()), &CheckOptions::default()).expect("a superblock");
        let said: Vec<String> = report.issues().iter().map(ToString::to_string).collect();
        assert!(
            said.iter().any(|one| one.contains("snapshot")),
            "{n}: {said:?}"
        );
        let opened = FileSystem::open(share(forged), options());
        assert!(
            matches!(opened, Err(Error::Corrupt { .. })),
            "{n}: {opened:?}"
        );
    }
}

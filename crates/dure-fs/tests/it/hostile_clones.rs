//! Lists of shared blocks that are damaged, or lie: an error that names what is wrong, a repair that
//! writes them anew, and no file is lost.

use dure_block::ram::RamDevice;
use dure_block::share;
use dure_check::{CheckOptions, Repair, check};
use dure_fs::{Error, FileSystem, MountOptions};
use dure_store::format::pair_kind::{SHARED_INDEX, SHARED_RUNS, VOLUME};
use dure_store::format::shared::{SharedIndex, SharedRuns};
use dure_store::format::volume::SlotCode;
use dure_store::media::Region;
use dure_store::packs::{Packs, PairIndex, Table};
use dure_store::units::BlockNo;
use dure_store::{pair, read_header, read_layout};
use dure_sync::Arc;
use zerocopy::{FromBytes, FromZeros};

use crate::clones::{clone, file, read, write};
use crate::hostile_snapshots::{forge, without};
use crate::snapshots::{expect_sound, made, options};

/// A volume on which two files share eight pages; where its index and its first list are.
fn volume() -> (Arc<RamDevice>, u64, u64) {
    let (ram, fs) = made(2048);
    write(&fs, "a", 0, &[5; 8 << 12]);
    assert!(clone(&fs, "a", "b"));
    write(&fs, "c", 0, &[6; 8 << 12]);
    fs.close().expect("a good device");
    expect_sound(&ram);
    let region = Region::open(share(ram.clone()));
    let layout = read_layout(&region).expect("a volume");
    assert!(layout.superblock.has_clones());
    let (header, _) = read_header(&region, &layout).expect("a volume");
    let index = header.shared.get();
    let body = pair::read_single(&region, BlockNo(index), SHARED_INDEX, layout.crc_seed);
    let body = SharedIndex::read_from_bytes(&body.expect("sound")).expect("size");
    (ram, index, body.chains[0].first.get())
}

fn issues(ram: &Arc<RamDevice>) -> Vec<String> {
    let report = check(share(ram.clone()), &CheckOptions::default()).expect("a superblock");
    report.issues().iter().map(ToString::to_string).collect()
}

/// The volume is repaired, and both files are there; what is written to one leaves the other.
fn expect_repaired(damaged: &Arc<RamDevice>) {
    expect_mended(damaged, Repair::Safe);
}

fn expect_mended(damaged: &Arc<RamDevice>, repair: Repair) {
    let repair = CheckOptions {
        repair,
        ..CheckOptions::default()
    };
    let report = check(share(damaged.clone()), &repair).expect("a superblock");
    let left: Vec<_> = report
        .issues()
        .iter()
        .filter(|issue| !issue.repaired)
        .collect();
    assert!(left.is_empty(), "{left:?}");
    expect_sound(damaged);
    let fs = FileSystem::open(share(damaged.clone()), options()).expect("repaired");
    assert_eq!(fs.blocks_shared(), 8);
    let root = fs.root().expect("a root");
    fs.unlink(&root, b"a").expect("it is there");
    fs.sync().expect("a good device");
    for n in 0..20 {
        write(&fs, &format!("new{n}"), 0, &[9; 8 << 12]);
    }
    assert_eq!(read(&fs, "b"), [5; 8 << 12]);
    assert_eq!(read(&fs, "c"), [6; 8 << 12]);
    fs.close().expect("a good device");
    expect_sound(damaged);
}

#[test]
fn damaged_lists_are_found_and_written_anew() {
    let (ram, index, list) = volume();
    for at in [index, list] {
        let damaged = without(&ram, at);
        let said = issues(&damaged);
        assert!(
            said.iter().all(|one| one.contains("shared blocks")) && !said.is_empty(),
            "{said:?}"
        );
        let opened = FileSystem::open(share(damaged.clone()), options());
        assert!(matches!(opened, Err(Error::Corrupt { .. })), "{opened:?}");
        let reading = MountOptions {
            read_only: true,
            ..options()
        };
        let fs = FileSystem::open(share(damaged.clone()), reading).expect("nothing is written");
        assert_eq!(read(&fs, "b"), [5; 8 << 12]);
        drop(fs);
        expect_repaired(&damaged);
    }
}

#[test]
fn lists_that_cannot_be_are_refused() {
    let (ram, index, list) = volume();
    let runs = |change: &dyn Fn(&mut SharedRuns)| {
        forge(&ram, list, SHARED_RUNS, |body| {
            change(SharedRuns::mut_from_bytes(body).expect("size"));
        })
    };
    let chains = |change: &dyn Fn(&mut SharedIndex)| {
        forge(&ram, index, SHARED_INDEX, |body| {
            change(SharedIndex::mut_from_bytes(body).expect("size"));
        })
    };
    let forged = [
        runs(&|list| list.count.set(169)),
        runs(&|list| list.count.set(0)),
        runs(&|list| list.segment.set(u32::MAX)),
        runs(&|list| list.next.set(index)),
        runs(&|list| list.reserved[3] = 1),
        runs(&|list| list.runs[0].blocks.set(2)),
        runs(&|list| list.runs[0].blocks.set(u64::MAX)),
        runs(&|list| list.runs[0].nid.set(u64::MAX)),
        runs(&|list| list.runs[0].place.set(u64::MAX)),
        // One slot twice, and a block with a single slot.
        runs(&|list| list.runs[1] = list.runs[0]),
        runs(&|list| {
            list.count.set(1);
            list.runs[1..].iter_mut().for_each(FromZeros::zero);
        }),
        chains(&|index| index.count.set(254)),
        chains(&|index| index.chains[0].segment.set(u32::MAX)),
        chains(&|index| index.chains[0].blocks.set(u32::MAX)),
        chains(&|index| index.chains[0].blocks.set(0)),
        chains(&|all| all.next.set(index)),
    ];
    for (n, forged) in forged.iter().enumerate() {
        let said = issues(forged);
        let names = |one: &String| one.contains("lists of shared blocks are damaged");
        assert!(said.iter().any(names), "{n}: {said:?}");
        let opened = FileSystem::open(share(forged.clone()), options());
        assert!(
            matches!(opened, Err(Error::Corrupt { .. })),
            "{n}: {opened:?}"
        );
        expect_repaired(forged);
    }
}

#[test]
fn lists_that_lie_are_found_and_written_anew() {
    let (ram, _, list) = volume();
    let region = Region::open(share(ram.clone()));
    let layout = read_layout(&region).expect("a volume");
    // No list at all.
    let (_, generation) = read_header(&region, &layout).expect("a volume");
    let at = layout.volume_header + generation % 2;
    let mut forged = forge(&ram, at, VOLUME, |body| body[64..72].fill(0));
    forged = forge(&forged, at + 2, VOLUME, |body| body[64..72].fill(0));
    let said = issues(&forged);
    let missing = "is in no list of shared blocks";
    assert!(
        said.len() == 8 && said.iter().all(|one| one.contains(missing)),
        "{said:?}"
    );
    expect_repaired(&forged);
    // A slot that does not name the block.
    let fs = FileSystem::open(share(ram.clone()), options()).expect("it mounts");
    let other = file(&fs, "c").ino().0;
    fs.close().expect("a good device");
    let forged = self::forge(&ram, list, SHARED_RUNS, |body| {
        let list = SharedRuns::mut_from_bytes(body).expect("size");
        let count = usize::try_from(list.count.get()).expect("few");
        let mut more = list.runs[0];
        let granule = 8 + other % 8;
        let place = more.place.get() & ((1 << 48) - 1) | granule << 48 | 20 << 56;
        more.place.set(place);
        more.nid.set(other / 8);
        more.blocks.set(1);
        list.runs[count] = more;
        list.count.set(list.count.get() + 1);
    });
    let said = issues(&forged);
    assert!(
        said.iter().any(|one| one.contains("has 1 slot too many")),
        "{said:?}"
    );
    expect_repaired(&forged);
    // Slots of others in place of one that does.
    let forged = self::forge(&ram, list, SHARED_RUNS, |body| {
        let list = SharedRuns::mut_from_bytes(body).expect("size");
        let granule = 8 + other % 8;
        let place = list.runs[0].place.get() & ((1 << 48) - 1) | granule << 48;
        list.runs[0].place.set(place);
        list.runs[0].nid.set(other / 8);
    });
    let said = issues(&forged);
    assert!(
        said.iter()
            .any(|one| one.contains("who share it lacks 1 slot")),
        "{said:?}"
    );
    expect_repaired(&forged);
}

/// A rebuild keeps every file that has the content of a block, and lists them.
#[test]
fn a_rebuild_keeps_files_that_share_blocks() {
    let (ram, _, list) = volume();
    let region = Region::open(share(ram.clone()));
    let layout = read_layout(&region).expect("a volume");
    let (header, _) = read_header(&region, &layout).expect("a volume");
    let packs = Packs::read(&region, &layout, &header).expect("sound");
    let (table, index) = (Table::Sit, 0);
    let SlotCode::Slot(slot) = packs.code(PairIndex { table, index }) else {
        panic!("the SIT was written");
    };
    let sit = layout.sit_pair(0) + slot;
    expect_mended(&without(&ram, sit), Repair::Full);
    expect_mended(&without(&without(&ram, sit), list), Repair::Full);
}

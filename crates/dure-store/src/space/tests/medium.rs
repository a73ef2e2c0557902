//! What is on the medium: SIT and summaries, sound and not; and mending at mount.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::error::Error;
use crate::format::pair_kind;
use crate::format::sit::SitBlock;
use crate::format::summary::OWNER_NODE;
use crate::format::volume::SlotCode;
use crate::units::{BLOCK_BYTES, BlockNo};

/// The slot that counts of SIT pair 0, and what it says.
fn counting(space: &Space) -> (u64, Vec<u8>) {
    let SlotCode::Slot(slot) = space.packs.code(pair_index(0)) else {
        panic!("never written");
    };
    let (first, seed) = (space.layout.sit_pair(0), space.layout.crc_seed);
    let payload = pair::read_slot(&space.region, first, slot, pair_kind::SIT, seed).unwrap();
    (slot, payload)
}

fn overwrite(space: &Space, block: u64, byte: u8) {
    let bytes = [byte; BLOCK_BYTES];
    space.region.write(BlockNo(block), &bytes).unwrap();
}

#[test]
fn an_empty_volume_writes_no_table_and_reads_none() {
    let space = empty(2);
    assert_eq!(write(&space, 1), 0);
    for block in 0..space.layout.total_blocks {
        overwrite(&space, block, 0xee);
    }
    assert_eq!(reload(&space).unwrap().statistics(), space.statistics());
}

#[test]
fn slots_alternate() {
    let space = empty(1);
    for checkpoint in 1..6 {
        let block = take(&space, 0);
        space.settle([Effect::Live(one(block))]);
        space.set_owner(block, owner(checkpoint, 1));
        write(&space, checkpoint);
        let (slot, payload) = counting(&space);
        let block = SitBlock::read_from_bytes(&payload).unwrap();
        assert_eq!((slot, block.checkpoint.get()), (checkpoint % 2, checkpoint));
        let named = SlotCode::Slot(checkpoint % 2).bits();
        assert_eq!(block.entries[0].summaries, named);
    }
}

#[test]
fn what_a_checkpoint_that_was_cut_short_wrote_does_not_count() {
    let space = empty(1);
    let (old, new) = (take(&space, 0), take(&space, 0));
    for block in [old, new] {
        space.set_owner(block, owner(block.0, 1));
    }
    space.settle([Effect::Live(one(old))]);
    write(&space, 1);
    space.settle([Effect::Live(one(new)), Effect::Free(one(old))]);
    write_unnamed(&space, 2);
    let after = reload(&space).unwrap();
    assert!(after.is_live(old) && !after.is_live(new));
    // The next one writes to the same slot, and is named.
    after.mend_live(one(new)).unwrap();
    write(&after, 2);
    assert!(reload(&after).unwrap().is_live(new));
}

#[test]
fn a_damaged_slot_that_counts_is_never_replaced_by_the_older_one() {
    let space = empty(1);
    for checkpoint in 1..4 {
        let block = take(&space, 0);
        space.settle([Effect::Live(one(block))]);
        write(&space, checkpoint);
        let (slot, _) = counting(&space);
        let first = space.layout.sit_pair(0);
        let mut bytes = vec![0; BLOCK_BYTES];
        let at = BlockNo(first + slot);
        space.region.read(at, &mut bytes).unwrap();
        overwrite(&space, first + 1 - slot, 0xee);
        assert!(reload(&space).unwrap().is_live(block), "the other slot");
        overwrite(&space, first + slot, 0xee);
        let error = reload(&space).unwrap_err();
        assert!(
            matches!(&error, Error::Corrupt { what, at, .. }
                if what.contains("SIT pair") && *at == first + slot),
            "{error}"
        );
        space.region.write(at, &bytes).unwrap();
    }
}

#[test]
fn impossible_sit_entries_are_corrupt() {
    type Damage = fn(&mut SitBlock);
    let cases: [(&str, Damage); 7] = [
        ("live blocks", |block| block.entries[0].valid.set(7)),
        ("beyond its end", |block| {
            block.entries[1].live[4] = 1;
            block.entries[1].valid.set(1);
        }),
        ("summaries", |block| block.entries[2].summaries = 3),
        ("reserved", |block| block.entries[2].reserved.set(1)),
        ("usage", |block| block.entries[3].usage = 4),
        ("pair index", |block| block.index.set(1)),
        ("reserved bytes", |block| block.reserved[47] = 1),
    ];
    for (name, damage) in cases {
        let space = empty(1);
        let block = take(&space, 0);
        space.settle([Effect::Live(one(block))]);
        write(&space, 1);
        let first = space.layout.sit_pair(0);
        let (slot, payload) = counting(&space);
        let mut block = SitBlock::read_from_bytes(&payload).unwrap();
        damage(&mut block);
        let (kind, seed) = (pair_kind::SIT, space.layout.crc_seed);
        let content = (2, block.as_bytes());
        pair::write_slot(&space.region, first, slot, kind, content, seed).unwrap();
        let error = reload(&space).unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, Error::Corrupt { .. }) && text.contains(name),
            "{name}: {text}"
        );
    }
}

#[test]
fn owners_outlive_the_overlay() {
    let space = empty(1);
    let mut expected = Vec::new();
    for checkpoint in 1..5 {
        assert!(space.reserve(core(0), 3, OpClass::Normal));
        let run = space.alloc_data(core(0), Temperature::Warm, 3).unwrap();
        space.set_owners(run, owner(checkpoint, 10));
        space.settle([Effect::Live(run)]);
        for (block, slot) in (run.first.0..).zip(10..13) {
            expected.push((BlockNo(block), owner(checkpoint, slot)));
        }
        assert_eq!(
            space.owners(SegNo(0)).unwrap(),
            expected,
            "partly in memory"
        );
        write(&space, checkpoint);
        assert_eq!(
            space.owners(SegNo(0)).unwrap(),
            expected,
            "all on the medium"
        );
    }
    let space = reload(&space).unwrap();
    assert_eq!(space.owners(SegNo(0)).unwrap(), expected);
    // After a mount the rest of the segment is used, and the pair is merged again.
    let image = SummaryEntry {
        nid: U64::new(9),
        kind: OWNER_NODE,
        ..SummaryEntry::default()
    };
    let block = BlockNo(space.layout.main + 20);
    space.mend_live(one(block)).unwrap();
    space.set_owner(block, image);
    expected.push((block, image));
    write(&space, 9);
    assert_eq!(reload(&space).unwrap().owners(SegNo(0)).unwrap(), expected);
    assert_eq!(space.owner(block).unwrap(), image);
}

#[test]
fn an_owner_set_before_its_block_is_live_is_kept() {
    let space = empty(1);
    let (early, late) = (take(&space, 0), take(&space, 0));
    space.set_owner(early, owner(1, 1));
    write(&space, 1);
    space.set_owner(late, owner(2, 2));
    write(&space, 2);
    space.settle([Effect::Live(one(early)), Effect::Live(one(late))]);
    let owners = space.owners(SegNo(0)).unwrap();
    assert_eq!(owners, [(early, owner(1, 1)), (late, owner(2, 2))]);
}

#[test]
fn big_segments_have_two_summary_pairs() {
    let options = FormatOptions {
        journals: Some(1),
        label: String::new(),
        segment_blocks: Some(512),
        uuid: Some([7; 16]),
        ..FormatOptions::default()
    };
    let layout = Layout::plan(8192, &options, 1).unwrap();
    let packs = Arc::new(Packs::new(&layout));
    let space = Space::new_empty(region(&layout), &layout, packs);
    assert!(space.reserve(core(0), 512, OpClass::Normal));
    let run = space.alloc_data(core(0), Temperature::Warm, 512).unwrap();
    assert_eq!(run.count, 512);
    for block in run.first.0..run.first.0 + 512 {
        space.set_owner(BlockNo(block), owner(block, 0));
    }
    space.settle([Effect::Live(run)]);
    write(&space, 1);
    let owners = reload(&space).unwrap().owners(SegNo(0)).unwrap();
    assert_eq!(owners.len(), 512);
    assert!(
        owners
            .iter()
            .all(|(block, owner)| owner.nid.get() == block.0)
    );
}

#[test]
fn a_lost_summary_stops_the_cleaner_but_not_the_checkpoint() {
    let space = empty(1);
    let block = take(&space, 0);
    space.set_owner(block, owner(1, 1));
    space.settle([Effect::Live(one(block))]);
    write(&space, 1);
    let space = reload(&space).unwrap();
    let first = space.layout.summary_pair(SegNo(0), 0);
    // Slot 1 is the first one written.
    overwrite(&space, first + 1, 0xee);
    let refused = |error: &Error| matches!(error, Error::Corrupt { at, .. } if *at == first + 1);
    let error = space.owners(SegNo(0)).unwrap_err();
    assert!(refused(&error), "{error}");
    let error = space.owner(block).unwrap_err();
    assert!(
        refused(&error),
        "recovery cannot say who owns the block: {error}"
    );
    let other = BlockNo(block.0 + 1);
    space.mend_live(one(other)).unwrap();
    space.set_owner(other, owner(2, 2));
    write(&space, 2);
    assert_eq!(space.statistics().summaries_lost, 1);
    let owners = space.owners(SegNo(0)).unwrap();
    assert_eq!(
        owners,
        [(block, SummaryEntry::default()), (other, owner(2, 2))]
    );
}

#[test]
fn mending_keeps_the_counts() {
    let space = empty(2);
    let blocks: Vec<_> = (0..10).map(|_| take(&space, 0)).collect();
    space.settle(blocks.iter().map(|&block| Effect::Live(one(block))));
    write(&space, 1);
    let space = reload(&space).unwrap();
    let start = space.statistics();
    let fresh = Run {
        first: BlockNo(blocks[9].0 + 1),
        count: 100,
    };
    for _ in 0..2 {
        space.mend_live(fresh).unwrap();
        space.mend_dead(one(blocks[3])).unwrap();
    }
    let after = space.statistics();
    assert_eq!(start.available - after.available, 99);
    assert_eq!(start.free - after.free, 99);
    assert!(!space.is_live(blocks[3]) && space.is_live(BlockNo(fresh.first.0 + 99)));
    for run in [
        one(BlockNo(3)),
        Run {
            first: BlockNo(2040),
            count: 200,
        },
    ] {
        assert!(matches!(space.mend_live(run), Err(Error::Corrupt { .. })));
        assert!(matches!(space.mend_dead(run), Err(Error::Corrupt { .. })));
        assert!(matches!(space.fence(run), Err(Error::Corrupt { .. })));
    }
    assert!(!space.is_live(BlockNo(3)));
}

#[test]
fn journal_headers_overrule_the_sit() {
    let space = empty(1);
    let block = take(&space, 0);
    space.settle([Effect::Live(one(block))]);
    let freed = space.alloc_log_segment(CoreId::new(0)).unwrap();
    write(&space, 1);
    let space = reload(&space).unwrap();
    assert_eq!(
        space.statistics().segments_log,
        0,
        "only a header makes a log"
    );
    let (segment, _) = space.locate(block);
    let start = space.layout.segment_start(segment);
    space.mark_log(start).unwrap();
    assert!(!space.is_live(block), "the SIT was behind");
    let statistics = space.statistics();
    assert_eq!(statistics.free, statistics.total - 32);
    assert_eq!(statistics.available + statistics.kept, statistics.free);
    assert!(
        matches!(space.mark_log(start), Err(Error::Corrupt { .. })),
        "in two rings"
    );
    assert!(matches!(
        space.mark_log(BlockNo(start.0 + 1)),
        Err(Error::Corrupt { .. })
    ));
    assert!(matches!(
        space.mend_live(one(block)),
        Err(Error::Corrupt { .. })
    ));
    space.mend_dead(one(block)).unwrap();
    space.fence(one(block)).unwrap();
    space.lift_fences();
    assert_eq!(space.statistics(), statistics);
    assert_ne!(freed, segment);
}

#[test]
fn fenced_blocks_are_not_given_out_until_the_fences_are_lifted() {
    let space = reload(&empty(1)).unwrap();
    let start = space.statistics();
    let run = Run {
        first: BlockNo(space.layout.main),
        count: 40,
    };
    space.mend_live(one(run.first)).unwrap();
    space.fence(run).unwrap();
    let block = take(&space, 0);
    assert_eq!(
        block.0,
        run.first.0 + 64,
        "the first wholly free segment behind the fence"
    );
    space.lift_fences();
    assert_eq!(start.available - space.statistics().available, 2);
    assert!(space.is_live(run.first));
}

//! Logs made by an enemy: the scan ends, panics nowhere, and says the same with any threads.

use crate::support::buffers::TestRules;
use crate::support::disk::{DEVICE_BLOCKS, SEED, SEGMENT_BLOCKS, format, header_at, segment_at};
use crate::support::medium::queue_on;
use crate::support::recover::mount;
use crate::support::workload::{Work, run};
use dure_block::ram::{Image, SharedBlock};
use dure_block::{BLOCK_BYTES, Lba, Media};
use dure_journal::format::{JournalHeader, TailPosition};
use dure_journal::recovery::{LogLayout, scan};
use dure_journal::{Error, JournalId, LogMedium, Rules};
use dure_sync::canary::Rule;
use dure_sync::random::Seeded;

const JOURNALS: usize = 2;

/// A volume with some log in both journals.
fn used() -> Image {
    let buffers = mount(format(JOURNALS, 12), TestRules::default());
    let work = Work {
        cores: 2,
        changes: 25,
        commit_percent: 60,
        checkpoint_percent: 0,
        note_max: 1500,
        threads: false,
    };
    run(&buffers, work, 3);
    buffers.faulty_image()
}

fn layout(rules: Rules) -> LogLayout {
    LogLayout {
        seed: SEED,
        segment_blocks: SEGMENT_BLOCKS,
        first_number: 1,
        device_blocks: DEVICE_BLOCKS,
        headers: (0..JOURNALS).map(header_at).collect(),
        clean: false,
        rules,
    }
}

fn scan_both_ways(image: &Image, rules: Rules) -> Result<usize, Error> {
    let medium = LogMedium::on(Media::behind(queue_on(image.clone())));
    let alone = scan(&medium, &layout(rules), 1, 1);
    let together = scan(&medium, &layout(rules), 1, 2);
    match (alone, together) {
        (Ok(alone), Ok(together)) => {
            assert_eq!(alone, together);
            let survivors = alone.survivors();
            assert_eq!(survivors.len(), alone.transactions().len());
            // What the next epoch is made from can be counted on.
            assert!(alone.max_number() < 1 << 55);
            Ok(alone.transactions().len())
        }
        (Err(alone), Err(together)) => {
            assert_eq!(alone.to_string(), together.to_string());
            Err(alone)
        }
        _ => panic!("the outcome depends on the number of threads"),
    }
}

/// With the checksum rule off, every mutation counts as one that an enemy has sealed.
#[test]
fn mutated_logs_end_the_scan_and_nothing_else() {
    let good = used();
    let sealed = Rules {
        checksum: Rule::LEFT_OUT,
        ..Rules::default()
    };
    let blocks: Vec<Lba> = (0..2 * 16)
        .flat_map(|segment| (0..8).map(move |block| segment_at(segment).offset(block)))
        .filter(|at| good.get(*at).is_some())
        .collect();
    let whole = scan_both_ways(&good, sealed).unwrap();
    assert!(whole > 10, "there is something to damage");
    let mut random = Seeded::new(5);
    let (mut shorter, mut same) = (0, 0);
    for _ in 0..1500 {
        let mut image = good.clone();
        for _ in 0..=random.below(3) {
            let at = blocks[random.index(blocks.len())];
            let mut bytes = image.get(at).unwrap().bytes().to_vec();
            // Mostly where lengths and numbers are.
            let place = if random.below(2) == 0 {
                random.index(96)
            } else {
                random.index(BLOCK_BYTES)
            };
            bytes[place] = [0, 1, 0x7f, 0x80, 0xff][random.index(5)];
            image.set(at, SharedBlock::new(&bytes));
        }
        let found = scan_both_ways(&image, sealed).unwrap();
        if found < whole {
            shorter += 1
        } else {
            same += 1
        }
        assert!(scan_both_ways(&image, Rules::default()).unwrap() <= whole);
    }
    println!("{shorter} logs ended early, {same} did not");
    assert!(shorter > 100);
}

/// A header of which anything may be nonsense.
fn hostile_header(random: &mut Seeded) -> JournalHeader {
    let extreme = |random: &mut Seeded| {
        [
            0,
            1,
            2,
            7,
            8,
            9,
            1 << 54,
            1 << 62,
            u64::MAX / 2,
            u64::MAX - 1,
            u64::MAX,
        ][random.index(11)]
    };
    let small = |random: &mut Seeded| u32::try_from(random.below(10)).unwrap();
    let count = 1 + random.index(4);
    let segments = (0..count)
        .map(|_| match random.below(4) {
            0 => Lba::new(extreme(random)),
            _ => segment_at(random.below(20)),
        })
        .collect();
    JournalHeader {
        epoch: random.below(3),
        journal: JournalId::new(0).unwrap(),
        generation: extreme(random),
        segment_blocks: if random.below(4) == 0 {
            small(random)
        } else {
            SEGMENT_BLOCKS
        },
        tail: TailPosition {
            segment: small(random) % 4,
            offset: small(random),
            sequence: if random.below(2) == 0 {
                extreme(random)
            } else {
                1
            },
            number: if random.below(2) == 0 {
                extreme(random)
            } else {
                1
            },
        },
        durable_upto: if random.below(2) == 0 {
            extreme(random)
        } else {
            0
        },
        checkpoint: extreme(random),
        segments,
    }
}

#[test]
fn sealed_headers_with_any_content_are_refused_or_harmless() {
    let good = used();
    let mut random = Seeded::new(11);
    let (mut refused, mut accepted) = (0, 0);
    for _ in 0..2000 {
        let header = hostile_header(&mut random);
        let mut block = vec![0; BLOCK_BYTES];
        let at = header.seal(&mut block, header_at(0), SEED);
        let mut image = good.clone();
        (0..4).for_each(|n| image.clear(header_at(0).offset(n)));
        image.set(at, SharedBlock::new(&block));
        match scan_both_ways(&image, Rules::default()) {
            Ok(_) => accepted += 1,
            Err(Error::Corrupt { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    println!("{refused} refused, {accepted} accepted");
    assert!(refused > 100 && accepted > 10);
}

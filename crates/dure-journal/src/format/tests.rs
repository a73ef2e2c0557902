use dure_block::{BLOCK_BYTES, Lba};

use super::record::{LoggedRecords, RecordError};
use super::slotted::{self, SlotKind};
use super::transaction::{Expected, Seal, SealBuffer, open, peek};
use super::*;
use crate::error::Error;
use crate::ids::{GranuleId, JournalId, Mark, Nid};
use crate::rules::Rules;

const SEED: u32 = 77;
const PAIR: Lba = Lba::new(10);
const KIND: SlotKind = SlotKind(5);

fn slot(generation: u64, byte: u8) -> Vec<u8> {
    let mut block = vec![byte; BLOCK_BYTES];
    assert_eq!(
        slotted::seal(&mut block, KIND, PAIR, generation, SEED),
        slotted::address(PAIR, generation)
    );
    block
}

#[test]
fn the_newest_valid_slot_counts() {
    let (older, newer) = (slot(4, 1), slot(5, 2));
    let found = slotted::open(&older, &newer, KIND, PAIR, SEED).unwrap();
    assert_eq!((found.generation, found.body[0]), (5, 2));
    // A torn write of the newer one leaves the older one.
    let mut torn = newer.clone();
    torn[BLOCK_BYTES - 1] ^= 1;
    let found = slotted::open(&older, &torn, KIND, PAIR, SEED).unwrap();
    assert_eq!((found.generation, found.body[0]), (4, 1));
    assert!(slotted::open(&torn, &torn, KIND, PAIR, SEED).is_none());
}

#[test]
fn a_slot_of_another_kind_place_seed_or_parity_is_not_valid() {
    let good = slot(4, 1);
    assert!(slotted::open_slot(&good, KIND, PAIR, 0, SEED).is_some());
    assert!(slotted::open_slot(&good, SlotKind(6), PAIR, 0, SEED).is_none());
    assert!(slotted::open_slot(&good, KIND, Lba::new(12), 0, SEED).is_none());
    assert!(slotted::open_slot(&good, KIND, PAIR, 1, SEED).is_none());
    assert!(slotted::open_slot(&good, KIND, PAIR, 0, SEED + 1).is_none());
    assert!(slotted::open_slot(&vec![0; BLOCK_BYTES], KIND, PAIR, 0, SEED).is_none());
}

fn header() -> JournalHeader {
    JournalHeader {
        epoch: 3,
        journal: JournalId::new(2).unwrap(),
        generation: 8,
        segment_blocks: 16,
        tail: TailPosition {
            segment: 1,
            offset: 7,
            sequence: 90,
            number: 1234,
        },
        durable_upto: 1300,
        checkpoint: 12,
        segments: vec![Lba::new(100), Lba::new(200), Lba::new(150)],
    }
}

#[test]
fn a_journal_header_survives_the_medium() {
    let mut block = vec![0; BLOCK_BYTES];
    assert_eq!(header().seal(&mut block, PAIR, SEED), PAIR);
    block.resize(4 * BLOCK_BYTES, 0);
    let read = JournalHeader::open(&block, PAIR, SEED, header().journal).unwrap();
    assert_eq!(read, header());
}

#[test]
fn a_rotten_copy_of_a_journal_header_does_not_make_an_older_one_count() {
    let mut blocks = vec![0; 4 * BLOCK_BYTES];
    for generation in [8, 9] {
        for pair in slotted::mirrors(PAIR) {
            let header = JournalHeader {
                generation,
                ..header()
            };
            let mut block = vec![0; BLOCK_BYTES];
            let at = header.seal(&mut block, pair, SEED);
            let n = usize::try_from(at.number() - PAIR.number()).unwrap();
            blocks[n * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(&block);
        }
    }
    let newest = |blocks: &[u8]| {
        let read = JournalHeader::open(blocks, PAIR, SEED, header().journal);
        read.map(|header| header.generation)
    };
    for bit in (0..4 * BLOCK_BYTES * 8).step_by(97) {
        blocks[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(newest(&blocks).unwrap(), 9, "bit {bit}");
        blocks[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn a_header_with_two_bad_slots_or_impossible_fields_is_corrupt() {
    let zero = vec![0; 4 * BLOCK_BYTES];
    let corrupt = |header: &JournalHeader, journal: u16| {
        let mut blocks = zero.clone();
        header.seal(&mut blocks[..BLOCK_BYTES], PAIR, SEED);
        let id = JournalId::new(journal).unwrap();
        let error = JournalHeader::open(&blocks, PAIR, SEED, id).unwrap_err();
        assert!(matches!(error, Error::Corrupt { at: PAIR, .. }), "{error}");
        error.to_string()
    };
    assert!(corrupt(&header(), 3).contains("journal header: journal"));
    let mut bad = header();
    bad.tail.segment = 3;
    assert!(corrupt(&bad, 2).contains("segment of the tail"));
    bad = header();
    bad.tail.offset = 17;
    assert!(corrupt(&bad, 2).contains("tail offset"));
    let error = JournalHeader::open(&zero, PAIR, SEED, header().journal).unwrap_err();
    assert!(error.to_string().contains("valid slots"), "{error}");
}

const AT: Lba = Lba::new(300);

fn expected() -> Expected {
    let journal = JournalId::new(1).unwrap();
    Expected {
        epoch: 9,
        journal,
        seed: SEED,
        rules: Rules::default(),
    }
}

fn records() -> (Vec<u8>, Vec<Record<'static>>) {
    let granule = GranuleId {
        nid: Nid(77),
        index: 5,
    };
    let mut bytes = Vec::new();
    put_delta(&mut bytes, granule, 8, 16, b"abc");
    put_note_of(&mut bytes, 4, &[9; 3000], &[9; 2000]);
    put_delta(&mut bytes, granule, 9, 0, b"");
    let note = Record::Note {
        kind: 4,
        bytes: &[9; 5000],
    };
    let first = Record::Delta {
        granule,
        version: 8,
        offset: 16,
        bytes: b"abc",
    };
    let last = Record::Delta {
        granule,
        version: 9,
        offset: 0,
        bytes: b"",
    };
    (bytes, vec![first, note, last])
}

fn transaction() -> Vec<u8> {
    let what = Seal {
        address: AT,
        epoch: 9,
        journal: JournalId::new(1).unwrap(),
        sequence: 41,
        first: 100,
        last: 102,
        durable_upto: 99,
        seed: SEED,
    };
    let marks = [
        Mark::new(JournalId::new(0).unwrap(), 7),
        Mark::new(what.journal, 98),
    ];
    let mut buffer = SealBuffer::default();
    let fresh = buffer.seal(&what, &marks, &records().0).0.to_vec();
    assert_eq!(fresh.len(), 2 * BLOCK_BYTES);
    // Neither a longer one before it nor a shorter one leaves anything in it.
    for before in [vec![0xee; 3 * BLOCK_BYTES], vec![0xee; 1]] {
        buffer.seal(&what, &marks, &before);
        assert_eq!(buffer.seal(&what, &marks, &records().0).0, fresh);
    }
    fresh
}

#[test]
fn a_transaction_survives_the_medium() {
    let blocks = transaction();
    assert_eq!(peek(&blocks[..BLOCK_BYTES], AT, &expected()), Some((41, 2)));
    let parsed = open(&blocks, &expected()).unwrap();
    assert_eq!(
        (
            parsed.sequence,
            parsed.first,
            parsed.last,
            parsed.durable_upto
        ),
        (41, 100, 102, 99)
    );
    assert_eq!(parsed.marks.len(), 2);
    assert_eq!(parsed.records.count(), 3);
    assert_eq!(parsed.records.iter().collect::<Vec<_>>(), records().1);
    for (place, record) in parsed.records.places() {
        assert_eq!(parsed.records.at(place), record);
    }
}

#[test]
fn every_single_wrong_byte_makes_it_incomplete() {
    let good = transaction();
    let used = good.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    for place in 0..used {
        let mut bad = good.clone();
        bad[place] ^= 0x40;
        assert!(
            open(&bad, &expected()).is_none(),
            "byte {place} is not covered"
        );
    }
}

/// Persistent memory keeps there what it had.
#[test]
fn what_lies_behind_the_records_does_not_count() {
    let good = transaction();
    let used = good.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    // The last bytes of a record may be zeroes.
    let behind = used.next_multiple_of(64);
    let mut other = good.clone();
    assert!(behind < other.len(), "the transaction has padding");
    other[behind..].fill(0x40);
    let parsed = open(&other, &expected()).unwrap();
    assert_eq!(parsed.records.iter().collect::<Vec<_>>(), records().1);
}

#[test]
fn a_transaction_of_another_place_epoch_or_journal_is_not_looked_at() {
    let blocks = transaction();
    assert!(peek(&blocks, Lba::new(301), &expected()).is_none());
    assert!(
        peek(
            &blocks,
            AT,
            &Expected {
                epoch: 8,
                ..expected()
            }
        )
        .is_none()
    );
    let journal = JournalId::new(0).unwrap();
    assert!(
        peek(
            &blocks,
            AT,
            &Expected {
                journal,
                ..expected()
            }
        )
        .is_none()
    );
    assert!(
        open(
            &blocks,
            &Expected {
                seed: 1,
                ..expected()
            }
        )
        .is_none()
    );
}

/// An enemy can compute checksums: every field is bounded before it is used.
#[test]
fn hostile_headers_with_good_checksums_do_no_harm() {
    let good = transaction();
    for place in 8..80 {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bad = good.clone();
            bad[place] = value;
            let crc = super::checksum::crc_without_field(SEED, &bad, 4);
            bad[4..8].copy_from_slice(&crc.to_le_bytes());
            if let Some(parsed) = open(&bad, &expected()) {
                assert!(parsed.first <= parsed.last && parsed.last <= Mark::NUMBER_MAX);
            }
        }
    }
}

#[test]
fn records_that_do_not_add_up_are_refused() {
    let (bytes, _) = records();
    assert_eq!(
        LoggedRecords::read(&bytes[..bytes.len() - 1]),
        Err(RecordError::Short)
    );
    assert_eq!(LoggedRecords::read(&[1, 0]), Err(RecordError::Short));
    assert_eq!(LoggedRecords::read(&[1, 19, 0, 0]), Err(RecordError::Short));
    assert_eq!(LoggedRecords::read(&[2, 0, 0, 0]), Err(RecordError::Short));
    assert_eq!(
        LoggedRecords::read(&[9, 0, 0, 0]),
        Err(RecordError::Kind(9))
    );
    let mut reserved = bytes;
    reserved[4 + 19] = 1;
    assert_eq!(LoggedRecords::read(&reserved), Err(RecordError::Reserved));
}

#[test]
fn a_mark_keeps_its_parts() {
    let id = JournalId::new(1023).unwrap();
    let mark = Mark::new(id, Mark::NUMBER_MAX);
    assert_eq!((mark.journal(), mark.number()), (id, Mark::NUMBER_MAX));
    assert_eq!(Mark::from_u64(mark.as_u64()), mark);
    assert_eq!(JournalId::new(1024), None);
    assert!(Mark::NONE.is_none() && !mark.is_none());
}

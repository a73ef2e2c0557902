//! Journal headers.

use dure_block::Lba;
use dure_journal::JournalId;
use dure_journal::format::JournalHeader;

use super::cases::Case;
use super::disk::Disk;
use super::volume::TestVolume;
use crate::units::BLOCK_BYTES;

fn changed(change: impl FnOnce(&mut JournalHeader)) -> Disk {
    let disk = TestVolume::new().write();
    let pair = Lba::new(disk.layout.journal_headers);
    let (first, second) = (disk.get(pair.number()), disk.get(pair.number() + 1));
    let seed = disk.layout.crc_seed;
    let id = JournalId::new(0).unwrap();
    let mut header = JournalHeader::open(&first, &second, pair, seed, id).unwrap();
    header.generation += 1;
    change(&mut header);
    let mut block = vec![0; BLOCK_BYTES];
    let at = header.seal(&mut block, pair, seed);
    disk.put(at.number(), &block);
    disk
}

pub(super) const CASES: &[Case] = &[
    Case {
        kind: "JournalHeaderBad",
        make: || changed(|header| header.tail.segment = 9),
        expect: &[
            "error: header of journal 0 at block 6: corrupt journal header: segment of the tail \
                   at block 6: expected 2, found 9; run the check",
        ],
    },
    Case {
        kind: "JournalEpoch",
        make: || changed(|header| header.epoch = 4),
        expect: &["error: header of journal 0: epoch 4, but the volume is in epoch 3"],
    },
    Case {
        kind: "JournalSegmentBlocks",
        make: || changed(|header| header.segment_blocks = 64),
        expect: &["error: header of journal 0: log segments of 64 blocks, the volume has 32"],
    },
    Case {
        kind: "LogSegmentOutside",
        make: || changed(|header| header.segments[1] = Lba::new(97)),
        expect: &[
            "error: journal 0: its log segment at block 97 is not a segment of the main area",
        ],
    },
    Case {
        kind: "BlockShared",
        make: || changed(|header| header.segments[1] = header.segments[0]),
        expect: &["error: block 96 is used by the log of journal 0 and by something else"],
    },
];

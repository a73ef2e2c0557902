//! Journal headers.

use dure_block::Lba;
use dure_journal::format::JournalHeader;

use super::cases::Case;
use super::disk::Disk;
use super::volume::TestVolume;

fn changed(change: impl FnOnce(&mut JournalHeader)) -> Disk {
    let disk = TestVolume::new().write();
    let mut header = disk.journal_header();
    header.generation += 1;
    change(&mut header);
    disk.journal(&header);
    disk
}

pub(super) const CASES: &[Case] = &[
    Case {
        kind: "JournalHeaderBad",
        make: || changed(|header| header.tail.segment = 9),
        expect: &[
            "error: header of journal 0 at block 14: corrupt journal header: segment of the tail \
                   at block 14: expected 2, found 9; run the check",
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

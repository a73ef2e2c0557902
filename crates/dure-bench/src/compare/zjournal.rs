//! Z-Journal: a journal for each core, and marks between transactions (000, 2; 002).

use super::table::{Load, Paper, PaperName, Part, Row, System, elsewhere, here, part, system};
use crate::filebench::Personality;
use crate::fxmark::Workload;

const DRIVE: &str = "drive=sz985";

const JOURNALS: &[System] = &[
    system("JBD2", "preset=jbd2"),
    system("Z-Journal", "preset=zjournal"),
    system("no journal", "journal=none,no-crash-guarantee"),
    system("dure", ""),
];
/// With the lock of ext4 for a file.
const SHARED: &[System] = &[
    system("JBD2", "preset=jbd2,range_lock=rwsem"),
    system("Z-Journal", "preset=zjournal,range_lock=rwsem"),
    system("dure", ""),
];
/// Blocks of all cores in the same segments, as ext4 has them.
const HIGH_SHARING: &[System] = &[
    system("JBD2", "preset=jbd2,alloc=global"),
    system("Z-Journal", "preset=zjournal,alloc=global"),
    system("dure", ""),
];
const LOW_SHARING: &[System] = &[
    system("JBD2", "preset=jbd2,alloc=local"),
    system("Z-Journal", "preset=zjournal,alloc=local"),
    system("dure", ""),
];
const FEW: Option<usize> = Some(4);
const MANY: Option<usize> = Some(100);

const fn fileserver(folders: Option<usize>, systems: &'static [System]) -> Part {
    part(
        Load::Filebench(Personality::Fileserver, folders),
        systems,
        DRIVE,
    )
}

const ROWS: &[Row] = &[
    elsewhere(&["000-1"]),
    here(
        &["000-2a", "002-4"],
        &[part(Load::FxMark(Workload::Dwol), JOURNALS, DRIVE)],
        "few cores, so one journal has few to serve",
    ),
    here(
        &["000-2b", "002-5"],
        &[part(Load::FxMark(Workload::Dwom), SHARED, DRIVE)],
        "few cores; dure's own range lock in the last line",
    ),
    here(
        &["000-2c"],
        &[
            fileserver(FEW, HIGH_SHARING),
            fileserver(MANY, HIGH_SHARING),
            part(
                Load::Filebench(Personality::Varmail, None),
                HIGH_SHARING,
                DRIVE,
            ),
        ],
        "2,000 files of 128 KiB, a worker for each core; many folders and varmail are not in the document",
    ),
    here(
        &["000-2c-low"],
        &[fileserver(FEW, LOW_SHARING)],
        "as 000-2c with few folders, but each core allocates in segments of its own",
    ),
    elsewhere(&["002-1", "002-2", "002-3"]),
];

pub(super) const PAPER: Paper = Paper {
    name: PaperName::Zjournal,
    spelled: "zjournal",
    documents: "000, 2; 002",
    rows: ROWS,
};

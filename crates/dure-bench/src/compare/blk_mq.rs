//! The queues and tags of the block layer, and the lock above it (001; 000, 5.1 to 5.3).

use super::table::{
    Load, Metric, Paper, PaperName, Part, Row, System, elsewhere, here, part, system,
};

/// A device that completes a request after 10 us, so that tags run out.
const NULL: &str = "--device null --irqmode 2 --iodepth 32";

/// Its defaults.
const DURE: System = system("dure", "--hw-queues 1 --nr-requests 256");
const FEW_TAGS: &[System] = &[
    system("1 queue", "--hw-queues 1 --nr-requests 4"),
    system("2 queues", "--hw-queues 2 --nr-requests 4"),
    DURE,
];
const MORE_TAGS: &[System] = &[
    system("1 queue", "--hw-queues 1 --nr-requests 32"),
    system("2 queues", "--hw-queues 2 --nr-requests 32"),
    DURE,
];
const BY_TAGS: &[System] = &[
    system("4 tags", "--hw-queues 1 --nr-requests 4"),
    system("16 tags", "--hw-queues 1 --nr-requests 16"),
    system("64 tags", "--hw-queues 1 --nr-requests 64"),
    DURE,
];
const PHASES: &[System] = &[
    system("1 queue, 4 tags", "--hw-queues 1 --nr-requests 4"),
    DURE,
];
const SUBMISSION: &[System] = &[
    system("F2FS", "--through-fs=submit_lock=all"),
    system("F2FS, reads unlocked", "--through-fs=submit_lock=writes"),
    system("dure", "--through-fs"),
];

const fn null(systems: &'static [System]) -> Part {
    part(Load::Requests(NULL, &[Metric::Rate]), systems, "")
}

const SCALED: &str =
    "scaled down: 4 tags stand for 64, two queues for 30, and each job has 32 requests under way";

const ROWS: &[Row] = &[
    elsewhere(&["001-2"]),
    here(&["001-3"], &[null(FEW_TAGS)], SCALED),
    here(
        &["001-4"],
        &[Part {
            load: Load::Requests(NULL, &[Metric::WaitByRest]),
            systems: PHASES,
            medium: "",
            threads: &[2, 8],
        }],
        SCALED,
    ),
    here(
        &["001-5", "000-14"],
        &[null(MORE_TAGS)],
        "scaled down: 32 tags stand for 1024, two queues for 15",
    ),
    here(
        &["001-6", "000-15"],
        &[null(BY_TAGS)],
        "scaled down: one queue stands for 8, 4, 16 and 64 tags for 1024 to 10240",
    ),
    here(
        &["000-16", "000-t4"],
        &[Part {
            load: Load::Requests(
                "--device ram --drive 960-pro --size 64M",
                &[Metric::Rate, Metric::LockCpu],
            ),
            systems: SUBMISSION,
            medium: "",
            threads: &[1, 8, 15],
        }],
        "the drive is a model, 23 requests at once; ext4 is missing; jobs share the cores",
    ),
];

pub(super) const PAPER: Paper = Paper {
    name: PaperName::BlkMq,
    spelled: "blk-mq",
    documents: "001; 000, 5.1 to 5.3",
    rows: ROWS,
};

//! The interfaces to a fast drive (000, 5.4).

use super::table::{Load, Metric, Paper, PaperName, Part, Row, System, here, system};

const ENGINES: &[System] = &[
    system("libaio", "--engine libaio --iodepth 32"),
    system("pvsync2", "--engine pvsync2"),
    system("io_uring", "--engine io_uring --iodepth 32"),
    system(
        "io_uring, registered",
        "--engine io_uring --registered --iodepth 32",
    ),
    system("dure", "--iodepth 32"),
];
/// A driver in user space has no kernel below it: only how its jobs wait is left.
const WAITS: &[System] = &[
    system("asleep", "--poll sleep --iodepth 32"),
    system("polled", "--poll poll --iodepth 32"),
];

const ROWS: &[Row] = &[here(
    &["000-17", "000-t5"],
    &[
        Part {
            load: Load::Requests("--device FILE", &[Metric::Rate]),
            systems: ENGINES,
            medium: "",
            threads: &[1, 2],
        },
        Part {
            load: Load::Requests("--device ram --drive 983-zet", &[Metric::Rate]),
            systems: WAITS,
            medium: "",
            threads: &[1, 2],
        },
    ],
    "engines of the kernel on this machine's file or device, which cannot be polled from user space; polling on a \
     model of the drive",
)];

pub(super) const PAPER: Paper = Paper {
    name: PaperName::Interfaces,
    spelled: "interfaces",
    documents: "000, 5.4",
    rows: ROWS,
};

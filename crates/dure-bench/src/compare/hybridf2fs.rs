//! hybridF2FS: range locks, nCache, and the node log in persistent memory (000, 3).

use super::table::{Load, Paper, PaperName, Row, System, elsewhere, here, part, system};
use crate::aim7::Mix;
use crate::fxmark::Workload;

const TESTBED_I: &str = "drive=970-evo";
const TESTBED_II: &str = "drive=intel-750";

const WHOLE: &[System] = &[
    system("F2FS", "preset=f2fs-locks"),
    system("hybridF2FS", "preset=hybridf2fs-locks,node_log=nvm"),
    system("dure", ""),
];
const NODE_LOG: &[System] = &[
    system("F2FS", "preset=f2fs-locks"),
    system("node log in NVM", "preset=f2fs-locks,node_log=nvm"),
    system("dure", ""),
];
const LOCKS: &[System] = &[
    system("F2FS", "preset=f2fs-locks"),
    system(
        "range lock",
        "range_lock=bitmap,range_lock_wait=queue,node_lock=mutex",
    ),
    system("range lock + nCache", "preset=hybridf2fs-locks"),
    system("dure", ""),
];
/// Less than the file that is read.
const MISSING: &str = "cache=16M,drive=970-evo";

const ROWS: &[Row] = &[
    here(
        &["000-3", "000-8"],
        &[
            part(Load::Aim7(Mix::Fserver), WHOLE, TESTBED_II),
            part(Load::Aim7(Mix::Dbase), WHOLE, TESTBED_II),
            part(Load::Aim7(Mix::Shared), WHOLE, TESTBED_II),
        ],
        "the document names no mix of AIM7; a user for each core, files of 128 KiB; the log of F2FS is dure's",
    ),
    elsewhere(&["000-4"]),
    elsewhere(&["000-5", "000-6"]),
    here(
        &["000-7a"],
        &[part(Load::FxMark(Workload::Dwsl), NODE_LOG, TESTBED_I)],
        "no checkpoint at an fsync, in no line",
    ),
    here(
        &["000-7b"],
        &[
            part(Load::FxMark(Workload::Drbm), LOCKS, TESTBED_I),
            part(Load::Misses, LOCKS, MISSING),
        ],
        "DRBM finds its pages in memory; reads that miss wait for the drive, which 13 of them fill",
    ),
    here(
        &["000-7c"],
        &[part(Load::FxMark(Workload::Dwom), LOCKS, TESTBED_I)],
        "pages and nodes are in memory",
    ),
];

pub(super) const PAPER: Paper = Paper {
    name: PaperName::HybridF2fs,
    spelled: "hybridf2fs",
    documents: "000, 3",
    rows: ROWS,
};

//! A log-structured file system with dirty pages in persistent memory (003).

use super::table::{
    Load, Metric, Paper, PaperName, Part, Row, Syncs, System, elsewhere, here, part, system,
};

const SYSTEMS: &[System] = &[
    system("LFS", ""),
    system("NVRAM-LFS", "preset=nvram-lfs"),
    system("dure", "page_cache=nvram"),
];

const fn trace(syncs: Syncs, metrics: &'static [Metric]) -> Part {
    part(Load::Trace(syncs, metrics), SYSTEMS, "")
}

const TIMES: &[Metric] = &[Metric::Shortest, Metric::Longest, Metric::Deviation];
const MEANS: &[Metric] = &[Metric::Total, Metric::Mean];
const DIFFERS: &str = "a generated trace, a modelled disk, ten times as fast, with a sync each 3 s; 64 MiB of cache, \
    half of it NVRAM in the other lines; the document does not say whether its trace syncs";

const ROWS: &[Row] = &[
    elsewhere(&["003-1", "003-2", "003-3", "003-4"]),
    here(
        &["003-5a", "003-5b"],
        &[trace(Syncs::Periodic, TIMES), trace(Syncs::Each, TIMES)],
        DIFFERS,
    ),
    here(
        &["003-6a", "003-6b"],
        &[trace(Syncs::Periodic, MEANS), trace(Syncs::Each, MEANS)],
        DIFFERS,
    ),
];

pub(super) const PAPER: Paper = Paper {
    name: PaperName::NvramLfs,
    spelled: "nvram-lfs",
    documents: "003",
    rows: ROWS,
};

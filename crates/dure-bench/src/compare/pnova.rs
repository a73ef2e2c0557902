//! pNOVA: range locks and NUMA nodes in persistent memory (000, 4; 004).

use super::table::{Load, Paper, PaperName, Part, Row, System, elsewhere, here, part, system};
use crate::fxmark::Workload;

const EMULATED: &str = "nvm=emulated";

const WHOLE: &[System] = &[
    system("NOVA", "preset=nova-locks"),
    system("pNOVA", "preset=pnova-locks"),
    system("dure", "page_cache=none"),
];
/// As document 004 describes it: the range lock.
const LOCK: &[System] = &[
    system("NOVA", "preset=nova-locks"),
    system(
        "pNOVA",
        "page_cache=none,durability=strict,range_lock=segment,segment_size=4K,range_lock_wait=queue,numa=first",
    ),
    system("dure", "page_cache=none"),
];
/// The same where the modules are interleaved (I) and not (NI).
const OPTANE: &[System] = &[
    system("NOVA", "nvm=optane-interleaved,preset=nova-locks"),
    system(
        "pNOVA-I",
        "nvm=optane-interleaved,page_cache=none,durability=strict,range_lock=segment,segment_size=4K,range_lock_wait=queue,numa=first",
    ),
    system(
        "pNOVA-NI",
        "nvm=optane-separate,page_cache=none,durability=strict,range_lock=segment,segment_size=4K,range_lock_wait=queue,numa=first",
    ),
    system("dure", "nvm=optane-interleaved,page_cache=none"),
];

const fn emulated(workload: Workload, systems: &'static [System]) -> Part {
    part(Load::FxMark(workload), systems, EMULATED)
}

const fn optane(workload: Workload) -> Part {
    part(Load::FxMark(workload), OPTANE, "")
}

const ONE_NODE: &str = "one NUMA node; each write is durable when it returns, in all lines";
const MIXED: &str = "one NUMA node; each of two threads writes and reads in turn";
const PACED: &str = "the pace of six modules of Optane is a model";

const ROWS: &[Row] = &[
    elsewhere(&["000-9", "000-10", "000-11", "000-12"]),
    here(&["000-13a"], &[emulated(Workload::Dwol, WHOLE)], ONE_NODE),
    here(&["000-13b"], &[emulated(Workload::Dwom, WHOLE)], ONE_NODE),
    here(&["000-13c"], &[emulated(Workload::Dwom75, WHOLE)], MIXED),
    here(&["000-13d"], &[emulated(Workload::Dwom25, WHOLE)], MIXED),
    here(&["004-2a"], &[optane(Workload::Dwom)], PACED),
    here(&["004-2b"], &[emulated(Workload::Dwom, LOCK)], ONE_NODE),
    here(&["004-3a"], &[optane(Workload::Drbm)], PACED),
    here(
        &["004-3b"],
        &[emulated(Workload::Drbm, LOCK)],
        "one NUMA node",
    ),
];

pub(super) const PAPER: Paper = Paper {
    name: PaperName::Pnova,
    spelled: "pnova",
    documents: "000, 4; 004",
    rows: ROWS,
};

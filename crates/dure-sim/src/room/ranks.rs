//! Names of lock ranks, for reports.

/// Ranks of the locks that calls take, and their names in docs/design/locking.md.
const NAMES: &[(u8, &str)] = &[
    (30, "POSITION"),
    (39, "MISS"),
    (40, "RENAME"),
    (45, "RANGE"),
    (47, "READ_AHEAD"),
    (50, "WRITEBACK"),
    (51, "OVERWRITES"),
    (53, "TRIM"),
    (55, "CHECKPOINT"),
    (57, "HANDLE"),
    (60, "INODE"),
    (61, "OVERWRITE_TIMES"),
    (62, "ATTRIBUTES"),
    (64, "GROWTH"),
    (65, "BUCKET"),
    (70, "DIRTY_LIST"),
    (71, "CACHED_LIST"),
    (74, "ORPHANS"),
    (76, "INODE_POOL"),
    (80, "INODE_SHARD"),
    (90, "NODE_SHARD"),
    (95, "CAPTURE"),
    (100, "GRANULE"),
    (105, "DIRTY_NODES"),
    (110, "NAT_PAIR"),
    (112, "SNAPSHOTS"),
    (120, "PARTITION"),
    (125, "NID_POOL"),
    (130, "SEGMENT"),
    (134, "MISS_LIST"),
    (135, "LOGGED"),
    (136, "LAST_LISTED"),
    (137, "READ_AHEAD_LIST"),
    (138, "SYNC_ROUNDS"),
    (139, "DIRTY_METER"),
    (140, "FRAMES or SCRATCH"),
    (146, "DAMAGED"),
    (147, "SUBMITTING"),
    (148, "CREW"),
    (149, "WORKER"),
    (150, "HEADERS"),
    (160, "WRITER"),
    (170, "JOINED"),
    (175, "HOLD"),
    (180, "STOP"),
    (184, "TRACE_READERS"),
    (185, "TRACE_RING"),
    (200, "FLUSH"),
    (210, "REAPING"),
    (212, "SUBMITTING"),
    (223, "LANE"),
    (224, "CHANNELS"),
    (225, "HELD"),
    (228, "FAULT"),
    (229, "TAG"),
    (230, "TRACE"),
    (231, "BOUNCE"),
    (232, "LOG"),
    (234, "SLOT"),
    (236, "OVERLAY"),
    (239, "POOL"),
    (240, "LOG"),
    (246, "INTERVALS"),
    (248, "DIRECTORY"),
    (250, "QUEUE"),
    (255, "SLOT"),
];

/// The name of a rank.
#[cfg_attr(
    not(any(test, dure_backend = "sim")),
    expect(dead_code, reason = "only reports of simulated runs have ranks")
)]
pub(super) fn name(rank: u8) -> String {
    match NAMES.iter().find(|(number, _)| *number == rank) {
        Some((_, name)) => format!("{name} (rank {rank})"),
        None => format!("rank {rank}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_page() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/design/locking.md");
        let page = std::fs::read_to_string(page).unwrap();
        for (rank, names) in NAMES {
            for name in names.split(" or ") {
                let start = format!("| {rank} | `dure");
                let is_it = |line: &&str| line.starts_with(&start) && line.contains(name);
                assert!(page.lines().any(|line| is_it(&line)), "{rank} {name}");
            }
        }
        assert_eq!(name(60), "INODE (rank 60)");
        assert_eq!(name(3), "rank 3");
    }
}

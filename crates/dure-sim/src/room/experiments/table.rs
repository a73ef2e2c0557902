//! All figures and tables, in the order of the documents.
//!
//! docs/design/policies.md says which document has which number.

use super::{Check, Experiment, How, Line, Simulated};
use crate::room::{Kind, Workload};

const fn line(name: &'static str, machine: &'static str, policy: &'static str) -> Line {
    Line {
        name,
        machine,
        policy,
    }
}

const fn times(line: &'static str, over: &'static str, at: usize, factor: f64) -> Check {
    Check::Times {
        line,
        over,
        at,
        factor,
    }
}

const fn at_least(line: &'static str, over: &'static str, at: usize, factor: f64) -> Check {
    Check::AtLeast {
        line,
        over,
        at,
        factor,
    }
}

const fn rises(line: &'static str, from: usize, to: usize, factor: f64) -> Check {
    Check::Rises {
        line,
        from,
        to,
        factor,
    }
}

const fn flat(line: &'static str, from: usize, to: usize) -> Check {
    Check::Flat { line, from, to }
}

const fn falls(line: &'static str, from: usize, to: usize) -> Check {
    Check::Falls { line, from, to }
}

const fn shown(
    figures: &'static [&'static str],
    title: &'static str,
    shows: &'static str,
    command: &'static str,
) -> Experiment {
    Experiment {
        figures,
        title,
        shows,
        how: How::ShownBy(command),
    }
}

const fn measured(
    figures: &'static [&'static str],
    title: &'static str,
    shows: &'static str,
    command: &'static str,
) -> Experiment {
    Experiment {
        figures,
        title,
        shows,
        how: How::MeasuredBy(command),
    }
}

const GOLD: &str = "4x20-6138";
const TESTBED_I: &str = "8x15-8870v2";
const EMULATED: &str = "8x15-8870v2-nvm";
const OPTANE: &str = "2x28-8280m";
const NULL: &str = "null-block-host";
const OPTANE_SINGLE: &str = "2x28-8280m-single";

const NOVA: &str = "nvm=emulated,preset=nova-locks";
const PNOVA: &str = "nvm=emulated,preset=pnova-locks";
/// As document 004 describes it: the range lock, on persistent memory of one socket.
const PNOVA_LOCK: &str = "nvm=emulated,page_cache=none,durability=strict,range_lock=segment,\
    segment_size=4K,range_lock_wait=queue,numa=first";
const DIRECT: &str = "nvm=emulated,page_cache=none";

/// NOVA, pNOVA and dure where persistent memory is emulated.
const NOVA_LINES: &[Line] = &[
    line("NOVA", EMULATED, NOVA),
    line("pNOVA", EMULATED, PNOVA),
    line("dure", EMULATED, DIRECT),
];
/// The same with the range lock only.
const NOVA_LOCK_LINES: &[Line] = &[
    line("NOVA", EMULATED, NOVA),
    line("pNOVA", EMULATED, PNOVA_LOCK),
    line("dure", EMULATED, DIRECT),
];
/// The same on Optane, whose modules are interleaved (I) or not (NI).
const OPTANE_LINES: &[Line] = &[
    line("NOVA", OPTANE, NOVA),
    line("pNOVA-I", OPTANE, PNOVA_LOCK),
    line("pNOVA-NI", OPTANE_SINGLE, PNOVA_LOCK),
    line("dure", OPTANE, DIRECT),
];
/// F2FS, what hybridF2FS adds to it, and dure.
const HYBRID_LINES: &[Line] = &[
    line("F2FS", TESTBED_I, "preset=f2fs-locks"),
    line(
        "range lock",
        TESTBED_I,
        "range_lock=bitmap,range_lock_wait=queue,node_lock=mutex",
    ),
    line("range lock + nCache", TESTBED_I, "preset=hybridf2fs-locks"),
    line("dure", TESTBED_I, "default"),
];
const SOCKETS: &[usize] = &[1, 15, 30, 60, 120];

/// All experiments.
pub const EXPERIMENTS: &[Experiment] = &[
    shown(
        &["000-1"],
        "Chains of transactions that keep their order",
        "a transaction of one core is valid when those of other cores are that it depends on",
        "dure sim explain zjournal",
    ),
    Experiment {
        figures: &["000-2a", "002-4"],
        title: "FxMark DWOL with data=journal: overwrites of private files",
        shows: "Z-Journal is near no journal and grows to 80 cores, where it is 41 (002: 40) times JBD2, which falls",
        how: How::Simulated(Simulated {
            kind: Kind::Calls(Workload::Dwol),
            lines: &[
                line("JBD2", GOLD, "preset=jbd2"),
                line("Z-Journal", GOLD, "preset=zjournal"),
                line("no journal", GOLD, "journal=none,no-crash-guarantee"),
                line("dure", GOLD, "default"),
            ],
            cores: &[1, 10, 20, 40, 80],
            shape: &[
                times("Z-Journal", "JBD2", 80, 41.0),
                at_least("Z-Journal", "no journal", 80, 0.5),
                rises("Z-Journal", 1, 80, 40.0),
                falls("JBD2", 20, 80),
            ],
            quick: &[
                at_least("Z-Journal", "JBD2", 10, 2.0),
                at_least("Z-Journal", "no journal", 10, 0.5),
                rises("Z-Journal", 1, 10, 7.0),
                flat("JBD2", 1, 10),
            ],
            why: "the factor differs, and JBD2 has fallen before 20 cores: an overwrite takes 0.29 us here and 1.6 us in ext4, and tasks that wait for the one journal sleep, so 80 cores on it do less than one",
        }),
    },
    Experiment {
        figures: &["000-2b", "002-5"],
        title: "FxMark DWOM with data=journal: overwrites of one file",
        shows: "neither journal scales, since the lock of the file bounds both; Z-Journal is 30 % (002: 26 %) above JBD2 at 80 cores",
        how: How::Simulated(Simulated {
            kind: Kind::Calls(Workload::Dwom),
            lines: &[
                line("JBD2", GOLD, "preset=jbd2,range_lock=rwsem"),
                line("Z-Journal", GOLD, "preset=zjournal,range_lock=rwsem"),
                line("dure", GOLD, "default"),
            ],
            cores: &[1, 10, 20, 40, 80],
            shape: &[
                times("Z-Journal", "JBD2", 80, 1.3),
                flat("Z-Journal", 1, 80),
                flat("JBD2", 1, 80),
            ],
            quick: &[
                flat("Z-Journal", 1, 10),
                flat("JBD2", 1, 10),
                at_least("dure", "Z-Journal", 10, 3.0),
            ],
            why: "",
        }),
    },
    measured(
        &["000-2c"],
        "Filebench fileserver, few folders",
        "JBD2 is highest at 10 cores and falls; Z-Journal is above it everywhere, by less the more blocks are shared",
        "dure bench compare --paper zjournal --figure 000-2c",
    ),
    measured(
        &["000-2c-low"],
        "Filebench fileserver, each core allocates for itself",
        "JBD2 is as before; Z-Journal is higher and falls less",
        "dure bench compare --paper zjournal --figure 000-2c-low",
    ),
    measured(
        &["000-3", "000-8"],
        "AIM7 to 192 cores",
        "F2FS is flat or falls; hybridF2FS grows to 192 cores",
        "dure bench compare --paper hybridf2fs --figure 000-3",
    ),
    shown(
        &["000-4"],
        "Steps of an fsync",
        "F2FS writes data, nodes and a checkpoint in turn; with a node log in NVM it writes data, and a record in memory",
        "cargo test -p dure-sim --test it hybrid_costs",
    ),
    shown(
        &["000-5", "000-6"],
        "Three tasks in one file",
        "the lock of the file makes them take turns; a range lock lets them begin together; with nCache they find their blocks together, too",
        "dure sim scale --machine 8x15-8870v2 --workload DWOM --cores 3 --policy range_lock=rwsem --policy range_lock=bitmap",
    ),
    Experiment {
        figures: &["000-7a"],
        title: "FxMark DWSL: overwrites of private files with fsync",
        shows: "the rate of F2FS rises with its node log in NVM",
        how: How::Simulated(Simulated {
            kind: Kind::Calls(Workload::Dwsl),
            lines: &[
                line("F2FS", TESTBED_I, "preset=f2fs-locks"),
                line(
                    "node log in NVM",
                    TESTBED_I,
                    "preset=f2fs-locks,node_log=nvm",
                ),
                line("dure", TESTBED_I, "default"),
            ],
            cores: SOCKETS,
            shape: &[
                at_least("node log in NVM", "F2FS", 1, 1.1),
                at_least("node log in NVM", "F2FS", 120, 1.1),
            ],
            quick: &[at_least("node log in NVM", "F2FS", 1, 1.1)],
            why: "",
        }),
    },
    Experiment {
        figures: &["000-7b"],
        title: "FxMark DRBM: reads of one file",
        shows: "F2FS is flat; the range lock lets it rise; with nCache it rises to the bandwidth of the device",
        how: How::Simulated(Simulated {
            kind: Kind::Calls(Workload::Drbm),
            lines: HYBRID_LINES,
            cores: SOCKETS,
            shape: &[
                flat("F2FS", 1, 120),
                rises("range lock", 1, 120, 2.0),
                at_least("range lock + nCache", "range lock", 120, 1.1),
            ],
            quick: &[rises("dure", 1, 15, 8.0)],
            why: "pages and nodes are in memory here, so no call looks for a node or waits for the device: the range lock is enough",
        }),
    },
    Experiment {
        figures: &["000-7c"],
        title: "FxMark DWOM: overwrites of one file",
        shows: "F2FS is flat; the range lock lets it rise; with nCache it rises to the bandwidth of the device",
        how: How::Simulated(Simulated {
            kind: Kind::Calls(Workload::Dwom),
            lines: HYBRID_LINES,
            cores: SOCKETS,
            shape: &[
                flat("F2FS", 1, 120),
                rises("range lock", 1, 120, 2.0),
                at_least("range lock + nCache", "range lock", 120, 1.1),
            ],
            quick: &[
                flat("F2FS", 1, 15),
                rises("range lock", 1, 15, 2.0),
                rises("dure", 1, 15, 8.0),
            ],
            why: "pages and nodes are in memory here, so no call looks for a node or waits for the device: the range lock is enough",
        }),
    },
    shown(
        &["000-9", "000-10", "000-11", "000-12"],
        "The lock of NOVA, and what pNOVA has instead",
        "one lock and one node for a file; a lock for each segment, a device over all nodes, a log for each core",
        "dure sim scale --machine 8x15-8870v2-nvm --workload DWOM --cores 15 --policy nvm=emulated,preset=nova-locks --policy nvm=emulated,preset=pnova-locks",
    ),
    Experiment {
        figures: &["000-13a"],
        title: "FxMark DWOL in persistent memory: writes to private files",
        shows: "NOVA is highest at 15 cores, one node, with 17.15 GB/s, and falls; pNOVA is linear to 120 cores",
        how: How::Simulated(Simulated {
            kind: Kind::Calls(Workload::Dwol),
            lines: NOVA_LINES,
            cores: SOCKETS,
            shape: &[
                Check::Peaks {
                    line: "NOVA",
                    at: 15,
                },
                falls("NOVA", 15, 120),
                rises("pNOVA", 1, 120, 60.0),
            ],
            quick: &[rises("pNOVA", 1, 15, 8.0), rises("dure", 1, 15, 8.0)],
            why: "bandwidth between sockets is not modelled: the document's NOVA writes the memory of one socket from all others",
        }),
    },
    Experiment {
        figures: &["000-13b"],
        title: "FxMark DWOM in persistent memory: writes to one file",
        shows: "NOVA has 1.29 GB/s with one core and falls a little; pNOVA is linear to 120 cores",
        how: How::Simulated(Simulated {
            kind: Kind::Calls(Workload::Dwom),
            lines: NOVA_LINES,
            cores: SOCKETS,
            shape: &[
                Check::Peaks {
                    line: "NOVA",
                    at: 1,
                },
                flat("NOVA", 1, 120),
                rises("pNOVA", 1, 120, 60.0),
            ],
            quick: &[
                flat("NOVA", 1, 15),
                rises("pNOVA", 1, 15, 3.0),
                rises("dure", 1, 15, 8.0),
            ],
            why: "",
        }),
    },
    Experiment {
        figures: &["000-13c"],
        title: "One file in persistent memory: 75 % of the tasks write, 25 % read",
        shows: "NOVA does not scale; pNOVA is linear, flatter than with writes only",
        how: How::Simulated(Simulated {
            kind: Kind::Calls(Workload::Dwom75),
            lines: NOVA_LINES,
            cores: SOCKETS,
            shape: &[flat("NOVA", 1, 120), rises("pNOVA", 1, 120, 30.0)],
            quick: &[flat("NOVA", 1, 15), rises("pNOVA", 1, 15, 3.0)],
            why: "",
        }),
    },
    Experiment {
        figures: &["000-13d"],
        title: "One file in persistent memory: 25 % of the tasks write, 75 % read",
        shows: "pNOVA rises to 15 cores and falls behind them, where readers are on other nodes",
        how: How::Simulated(Simulated {
            kind: Kind::Calls(Workload::Dwom25),
            lines: NOVA_LINES,
            cores: SOCKETS,
            shape: &[
                flat("NOVA", 1, 120),
                rises("pNOVA", 1, 15, 5.0),
                falls("pNOVA", 15, 120),
            ],
            quick: &[rises("pNOVA", 1, 15, 3.0)],
            why: "the same: the document's readers on other sockets wait for the one that has the file",
        }),
    },
    measured(
        &["000-16", "000-t4"],
        "Random reads of a 960 Pro by jobs, through file systems",
        "ext4 is at the maximum of the drive from 8 jobs on; F2FS falls from 287.6 k at 8 to 150.6 k at 15, where its lock takes 72 % of the CPU; without that lock for reads it is as ext4",
        "dure bench compare --paper blk-mq --figure 000-16",
    ),
    measured(
        &["000-17", "000-t5"],
        "Random reads of a 983 ZET by jobs and interfaces",
        "polled from user space one job reaches the maximum of the drive, with io_uring two, with libaio and pvsync2 no number of jobs",
        "dure bench compare --paper interfaces --figure 000-17",
    ),
    shown(
        &["001-2"],
        "The way of a request",
        "a request is queued, gets a tag, is inserted, issued and completed",
        "dure blk trace run --device null",
    ),
    Experiment {
        figures: &["001-3"],
        title: "Requests to a null device by hardware queues, 64 tags each",
        shows: "with 30 queues and more it scales to 120 cores; with 20 it does not, and falls",
        how: How::Simulated(Simulated {
            kind: Kind::Requests,
            lines: &[
                line("8 queues", NULL, "hw_queues=8,nr_requests=64"),
                line("20 queues", NULL, "hw_queues=20,nr_requests=64"),
                line("30 queues", NULL, "hw_queues=30,nr_requests=64"),
                line("dure, 120 queues", NULL, "hw_queues=120,nr_requests=256"),
            ],
            cores: &[1, 20, 40, 60, 80, 120],
            shape: &[
                rises("30 queues", 1, 120, 60.0),
                falls("20 queues", 60, 120),
            ],
            quick: &[rises("30 queues", 1, 20, 8.0)],
            why: "30 queues of 64 tags are fewer than 120 cores want at once (32 each), and who waits for one sleeps here",
        }),
    },
    measured(
        &["001-4"],
        "Phases of requests where tags run out",
        "the wait for a tag (Q2G) is 70 times all that comes behind it",
        "dure bench compare --paper blk-mq --figure 001-4",
    ),
    Experiment {
        figures: &["001-5", "000-14"],
        title: "Requests to a null device by hardware queues, 1024 tags each",
        shows: "with 15 queues and more it scales to 120 cores; with 8 it slows down at 40 cores and falls behind 60",
        how: How::Simulated(Simulated {
            kind: Kind::Requests,
            lines: &[
                line("8 queues", NULL, "hw_queues=8,nr_requests=1024"),
                line("15 queues", NULL, "hw_queues=15,nr_requests=1024"),
                line("30 queues", NULL, "hw_queues=30,nr_requests=1024"),
                line("dure, 120 queues", NULL, "hw_queues=120,nr_requests=256"),
            ],
            cores: &[1, 20, 40, 60, 80, 120],
            shape: &[
                rises("15 queues", 1, 120, 60.0),
                rises("30 queues", 1, 120, 60.0),
                falls("8 queues", 60, 120),
            ],
            quick: &[rises("15 queues", 1, 20, 8.0)],
            why: "not known: tags suffice here, and nothing else of a queue is shared",
        }),
    },
    Experiment {
        figures: &["001-6", "000-15"],
        title: "Requests to a null device with 8 queues, by tags",
        shows: "with 4096 tags and more it scales to about 80 cores, farther than with 1024, and no further",
        how: How::Simulated(Simulated {
            kind: Kind::Requests,
            lines: &[
                line("1024 tags", NULL, "hw_queues=8,nr_requests=1024"),
                line("2048 tags", NULL, "hw_queues=8,nr_requests=2048"),
                line("4096 tags", NULL, "hw_queues=8,nr_requests=4096"),
                line("10240 tags", NULL, "hw_queues=8,nr_requests=10240"),
                line("dure, 120 queues", NULL, "hw_queues=120,nr_requests=256"),
            ],
            cores: &[1, 20, 40, 60, 80, 120],
            shape: &[
                rises("4096 tags", 1, 80, 40.0),
                flat("4096 tags", 80, 120),
                at_least("4096 tags", "1024 tags", 80, 1.1),
            ],
            quick: &[rises("4096 tags", 1, 20, 8.0)],
            why: "not known: 1024 tags suffice here, and nothing in the model is full at 80 cores; bandwidth of memory is not modelled",
        }),
    },
    shown(
        &["002-1", "002-2", "002-3"],
        "A journal for each core, and marks",
        "two cores that change one block depend on each other, which marks in their transactions say",
        "dure sim explain zjournal",
    ),
    shown(
        &["003-1", "003-2", "003-3", "003-4"],
        "Persistent memory below a log-structured file system",
        "the page cache is in DRAM and NVRAM, a written page moves to NVRAM, and its region lies in front of the disk",
        "dure info v.img",
    ),
    measured(
        &["003-5a", "003-5b"],
        "Response times of a trace of TPC-C",
        "with half of the cache in NVRAM they are from 1 us to 0.31 s, without from 1 us to 11.0 s",
        "dure bench compare --paper nvram-lfs --figure 003-5a",
    ),
    measured(
        &["003-6a", "003-6b"],
        "Time and mean response of a trace of TPC-C",
        "with half of the cache in NVRAM the time is 33 % less, the mean 5,273 us, not 8,195",
        "dure bench compare --paper nvram-lfs --figure 003-6a",
    ),
    Experiment {
        figures: &["004-2a"],
        title: "FxMark DWOM on Optane, interleaved (I) and not (NI)",
        shows: "pNOVA is at best 2.3 times NOVA at 8 threads (I) and 1.5 times at 4 (NI), rises no further and falls behind 28",
        how: How::Simulated(Simulated {
            kind: Kind::Calls(Workload::Dwom),
            lines: OPTANE_LINES,
            cores: &[1, 4, 8, 16, 28, 56],
            shape: &[
                times("pNOVA-I", "NOVA", 8, 2.3),
                times("pNOVA-NI", "NOVA", 4, 1.5),
                flat("pNOVA-I", 8, 28),
                flat("pNOVA-NI", 4, 28),
                falls("pNOVA-I", 28, 56),
                falls("pNOVA-NI", 28, 56),
            ],
            quick: &[
                at_least("pNOVA-I", "NOVA", 8, 1.1),
                at_least("pNOVA-I", "pNOVA-NI", 8, 1.1),
            ],
            why: "tasks that wait for the lock of NOVA sleep here, so it is lower; a write computes 3.3 us (17,740 instructions), so the modules are full with 16 threads, not with 8 or 4; queues of the memory controller are not modelled",
        }),
    },
    Experiment {
        figures: &["004-2b"],
        title: "FxMark DWOM in DRAM that stands for persistent memory",
        shows: "pNOVA is 3.5 times NOVA at 15 threads, and falls behind them",
        how: How::Simulated(Simulated {
            kind: Kind::Calls(Workload::Dwom),
            lines: NOVA_LOCK_LINES,
            cores: SOCKETS,
            shape: &[times("pNOVA", "NOVA", 15, 3.5), falls("pNOVA", 15, 120)],
            quick: &[at_least("pNOVA", "NOVA", 15, 1.75)],
            why: "tasks that wait for the lock of NOVA sleep here, so it is lower; bandwidth between sockets is not modelled",
        }),
    },
    Experiment {
        figures: &["004-3a"],
        title: "FxMark DRBM on Optane, interleaved (I) and not (NI)",
        shows: "both pNOVA are linear to 28 threads; NOVA is flat, since its readers share one count",
        how: How::Simulated(Simulated {
            kind: Kind::Calls(Workload::Drbm),
            lines: OPTANE_LINES,
            cores: &[1, 4, 8, 16, 28, 56],
            shape: &[
                flat("NOVA", 1, 28),
                rises("pNOVA-I", 1, 28, 20.0),
                rises("pNOVA-NI", 1, 28, 20.0),
            ],
            quick: &[flat("NOVA", 4, 8), rises("pNOVA-I", 1, 8, 5.0)],
            why: "the modules of the socket are full with 16 threads: reads come from them here, and from the cache of the processor in the document",
        }),
    },
    Experiment {
        figures: &["004-3b"],
        title: "FxMark DRBM in DRAM that stands for persistent memory",
        shows: "pNOVA is linear to 120 threads; NOVA is flat",
        how: How::Simulated(Simulated {
            kind: Kind::Calls(Workload::Drbm),
            lines: NOVA_LOCK_LINES,
            cores: SOCKETS,
            shape: &[flat("NOVA", 1, 120), rises("pNOVA", 1, 120, 84.0)],
            quick: &[rises("pNOVA", 1, 15, 8.0)],
            why: "",
        }),
    },
    shown(
        &["000-t1", "000-t2", "000-t3", "001-t1", "004-t1", "004-t2"],
        "The machines",
        "processors, memory and drives of the measurements",
        "dure sim scale --workload DRBL --machine 4x20-6138",
    ),
];

//! Chipmunk's bugs as workloads (LeBlanc et al., EuroSys 2023).
//!
//! **Problem.** Chipmunk found 23 bugs in five file systems for persistent memory. Most are found by
//! one operation, so by [`ace`](super::ace); some need two descriptors of one file, truncates mixed
//! with allocations, or writes that are not aligned to words, which ACE does not make.
//! **Structure.** A [`Class`] is a kind of bug with the workloads that show it, here in the words of
//! a replay; each runs three times: as it is, with a sync behind it, and with background work and a
//! checkpoint behind it.
//! **Invariants.** The list is the same in every run. **Crash.** The power fails at every step.

use super::ace::Made;
use super::call::Workload;

/// Bugs of one kind.
#[derive(Debug)]
pub struct Class {
    /// What goes wrong.
    pub name: &'static str,
    texts: &'static [&'static str],
}

/// What may follow a workload: nothing, what makes it durable, or what merely writes.
const ENDS: [&str; 3] = ["", "; sync", "; writeback; checkpoint"];

impl Class {
    /// Its workloads.
    ///
    /// # Panics
    /// If one of the texts here is no workload.
    #[must_use]
    pub fn workloads(&self) -> Vec<Workload> {
        let texts = self.texts.iter();
        let all = texts.flat_map(|text| ENDS.map(|end| format!("{text}{end}")));
        all.map(|text| match text.parse() {
            Ok(workload) => workload,
            Err(what) => panic!("{text}: {what}"),
        })
        .collect()
    }

    /// As a group of a campaign.
    pub(super) fn group(&self) -> Vec<Made> {
        let made = |workload| Made { workload, from: 0 };
        self.workloads().into_iter().map(made).collect()
    }
}

/// A line of the new inode is not written back, or its log is made in two steps of which recovery
/// sees one: the inode cannot be read (NOVA 2, 3; NOVA-Fortis 2).
pub const NEW_INODE: Class = Class {
    name: "a new inode cannot be read",
    texts: &[
        "setup 0; create /A/new",
        "setup 0; mkdir /A/new; create /A/new/a; create /A/new/b",
        "setup 0; symlink A/C /B/new; fifo /B/fifo",
        "setup 0; create /new; setxattr /new user.new 300 of 7; write /new 0+9 of 8",
        "setup 0; tmpfile #0 in /A; write #0 0+5000 of 7; link #0 /A/new",
    ],
};

/// The old name is deleted in place, or the record does not say that a directory has another parent
/// (NOVA 4, 5).
pub const RENAME: Class = Class {
    name: "a rename loses the file, or leaves it under both names",
    texts: &[
        "setup 1; rename /A/foo /A/new Replace",
        "setup 1; rename /A/foo /B/foo Replace",
        "setup 1; rename /A/foo /A/bar Exchange",
        "setup 1; rename /A/C /B/new Replace; create /B/new/a; rename /B/new /A/C Replace",
        "setup 1; rename /A/C /B/C Replace; unlink /A/foo; unlink /A/bar; rmdir /A",
        "setup 1; core 0; rename /foo /A/new Replace; core 1; rename /A/new /B/foo Replace",
    ],
};

/// A count is changed in place before, or without, the change of the name (NOVA 6, `WineFS` 1).
pub const LINK_COUNT: Class = Class {
    name: "a link count is wrong",
    texts: &[
        "setup 1; link /foo /A/new; unlink /foo",
        "setup 1; link /foo /A/new; link /foo /B/new; unlink /A/new; unlink /foo; unlink /B/new",
        "setup 1; mkdir /A/C/new; rename /A/C/new /B/new Replace; rmdir /B/new",
        "setup 1; core 0; link /A/foo /new; core 1; link /A/foo /B/new; core 0; unlink /A/foo",
    ],
};

/// Two copies of a directory are written in the wrong order, or files that were being removed are
/// looked at before recovery knows the volume (NOVA-Fortis 1, PMFS 1).
pub const REMOVAL: Class = Class {
    name: "a removal leaves something that cannot be used",
    texts: &[
        "setup 1; unlink /A/bar; create /A/bar",
        "setup 1; rmdir /A/C; mkdir /A/C; create /A/C/new",
        "setup 1; unlink /B/foo; rmdir /B; create /B",
        "setup 1; truncate /A/bar 1; truncate /A/bar 50000",
        "setup 1; open #0 /A/bar; unlink /A/bar; truncate #0 5000; write #0 9000+7 of 7; close #0",
    ],
};

/// Records of one file come in the wrong order when it is changed through several descriptors
/// (NOVA 7, PMFS 4, `WineFS` 3).
pub const TWO_DESCRIPTORS: Class = Class {
    name: "size or data are lost that were written through two descriptors",
    texts: &[
        "setup 1; open #0 /foo; open #1 /foo; write #0 0+5000 of 7; write #1 4999+3 of 8; write #0 100+1 of 9",
        "setup 1; open #0 /foo; open #1 /foo; core 0; write #0 9000+11 of 7; core 1; truncate #1 9005; \
         core 0; write #0 9003+4 of 8",
        "setup 1; open #0 /A/foo; open #1 /A/foo; core 0; write #0 0+4096 of 7; core 1; write #1 2048+4096 of 8",
        "setup 1; open #0 /foo; unlink /foo; create /foo; open #1 /foo; write #0 0+5000 of 7; write #1 0+3 of 8",
    ],
};

/// The number of a block is computed wrongly after a truncate and an allocation (NOVA 8).
pub const CUT_AND_ALLOCATE: Class = Class {
    name: "data are lost after truncates mixed with allocations",
    texts: &[
        "setup 1; truncate /A/foo 5000; allocate /A/foo KeepSize 0+20000; write /A/foo 6000+1 of 8",
        "setup 1; open #0 /foo; open #1 /foo; allocate #0 Extend 50+9000; truncate #1 4097; \
         allocate #0 KeepSize 4096+8192; write #1 4090+20 of 7; truncate #0 8191",
        "setup 1; allocate /A/foo Punch 100+9000; write /A/foo 4096+4096 of 8; truncate /A/foo 4099",
        "setup 1; allocate /A/bar Zero 88000+30000; truncate /A/bar 100000; allocate /A/bar Extend 99000+3000",
        "setup 1; allocate /foo ZeroKeepSize 3+8000; truncate /foo 6000; write /foo 1+5998 of 7",
    ],
};

/// What is copied past the cache ends within a word, and the rest of it is not written back (the
/// bugs for which Chipmunk's fuzzer needed lengths that are no multiple of 8).
pub const UNALIGNED: Class = Class {
    name: "a write that is not aligned to words is not durable",
    texts: &[
        "setup 1; write /foo 1+1 of 7; write /foo 4095+2 of 8; write /foo 4090+9000 of 9",
        "setup 1; write /foo 100+20001 of 7; truncate /foo 5003; write /foo 6001+1 of 8",
        "setup 1; allocate /foo KeepSize 0+20000; write /foo 4097+4095 of 7; write /foo 4001+203 of 8",
        "setup 1; create /new; write /new 9001+13 of 7; rename /new /foo Replace; write /foo 3+9000 of 8",
        "setup 1; setxattr /foo user.new 13 of 7; symlink A/foo /odd",
    ],
};

/// A write changes pages in place, so that a crash leaves some of it (`WineFS` 4).
pub const ATOMIC: Class = Class {
    name: "a write is there in part",
    texts: &[
        "setup 1; write /A/foo 0+16884 of 7",
        "setup 1; write /A/foo 4000+200 of 7; write /A/foo 4000+200 of 8",
        "setup 1; write /A/bar 4095+90000 of 8",
        "setup 1; write /A/bar 94208+20480 of 8",
        "setup 1; write /B/foo 20000+9000 of 8",
    ],
};

/// All of them.
pub const CLASSES: [&Class; 8] = [
    &NEW_INODE,
    &RENAME,
    &LINK_COUNT,
    &REMOVAL,
    &TWO_DESCRIPTORS,
    &CUT_AND_ALLOCATE,
    &UNALIGNED,
    &ATOMIC,
];

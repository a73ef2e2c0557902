//! Workloads: all of one operation, after ACE (Mohan et al., OSDI 2018).
//!
//! **Structure.** [`SETUPS`] are trees; [`operations`] is every operation with every argument on
//! them; `sequences` puts persistence points behind operations and something unsynced behind those.
//! **Invariants.** The list is the same in every run, so a workload's number names it.

use dure_fs::{AllocateMode, RenameMode};

use super::call::{At, Call, Path, Step, Workload};

pub(super) const fn file(path: Path) -> At {
    At::Path(path)
}

pub(super) const fn write(path: Path, offset: u64, len: u64, fill: u8) -> Call {
    Call::Write {
        at: file(path),
        offset,
        len,
        fill,
    }
}

/// The trees. 0: ACE's directories, empty. 1: with files of a few pages and attributes. 2: nearly
/// full.
pub const SETUPS: &[&[Call]] = &[
    &[
        Call::Mkdir { path: "A" },
        Call::Mkdir { path: "B" },
        Call::Mkdir { path: "A/C" },
    ],
    &[
        Call::Mkdir { path: "A" },
        Call::Mkdir { path: "B" },
        Call::Mkdir { path: "A/C" },
        Call::Create { path: "foo" },
        Call::Create { path: "A/foo" },
        Call::Create { path: "A/bar" },
        Call::Create { path: "B/foo" },
        write("foo", 0, 100, 11),
        write("A/foo", 0, 4 * 4096 + 500, 22),
        write("A/bar", 0, 27 * 4096, 33),
        Call::SetXattr {
            at: file("A/foo"),
            name: "user.small",
            len: 20,
            fill: 1,
        },
        Call::SetXattr {
            at: file("A/bar"),
            name: "user.large",
            len: 10 << 10,
            fill: 2,
        },
    ],
    // Nearly full: what is freed is soon used again.
    &[
        Call::Mkdir { path: "A" },
        Call::Create { path: "big" },
        Call::Create { path: "A/foo" },
        write("big", 0, BIG_PAGES * P, 44),
        write("A/foo", 0, FOO_PAGES * P, 55),
    ],
];

/// Pages that leave few free blocks on the volume.
const BIG_PAGES: u64 = 480;
/// Pages of the file that is removed to free space for another of the same size.
const FOO_PAGES: u64 = 150;

/// Bytes of a page.
pub(super) const P: u64 = 4096;

/// An operation: what comes before it and is not tested itself, the call, and the inodes to fsync.
#[derive(Debug, Clone)]
pub struct Operation {
    /// Steps.
    pub steps: Vec<Step>,
    /// Files or other inodes concerned.
    pub files: Vec<At>,
    /// Directories concerned.
    pub directories: Vec<Path>,
}

fn one(call: Call, files: &[At], directories: &[Path]) -> Operation {
    Operation {
        steps: vec![Step::Call(call)],
        files: files.to_vec(),
        directories: directories.to_vec(),
    }
}

fn parent(path: Path) -> Path {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

fn on_names(all: &mut Vec<Operation>) {
    for path in ["new", "A/new", "A/C/new"] {
        let dirs = [parent(path)];
        all.push(one(Call::Create { path }, &[file(path)], &dirs));
        all.push(one(Call::Mkdir { path }, &[file(path)], &dirs));
        all.push(one(Call::Fifo { path }, &[file(path)], &dirs));
        let target = "A/foo";
        all.push(one(Call::Symlink { target, path }, &[file(path)], &dirs));
    }
    let links = [
        ("foo", "new"),
        ("foo", "A/new"),
        ("A/foo", "A/new"),
        ("A/foo", "B/new"),
        ("A/bar", "A/C/new"),
    ];
    for (from, to) in links {
        let dirs = [parent(from), parent(to)];
        all.push(one(Call::Link { from, to }, &[file(from)], &dirs));
    }
    for path in ["foo", "A/foo", "A/bar", "B/foo"] {
        all.push(one(Call::Unlink { path }, &[], &[parent(path)]));
        all.push(Operation {
            steps: vec![Step::Open(0, path), Step::Call(Call::Unlink { path })],
            files: vec![At::Slot(0)],
            directories: vec![parent(path)],
        });
    }
    all.push(one(Call::Rmdir { path: "A/C" }, &[], &["A"]));
    all.push(Operation {
        steps: vec![
            Step::Call(Call::Unlink { path: "B/foo" }),
            Step::Call(Call::Rmdir { path: "B" }),
        ],
        files: vec![],
        directories: vec![""],
    });
}

fn on_two_names(all: &mut Vec<Operation>) {
    let moves = [
        ("foo", "new"),
        ("A/foo", "A/new"),
        ("A/foo", "B/new"),
        ("A/bar", "A/C/new"),
        ("A/C", "A/new"),
        ("A/C", "B/new"),
        ("A", "B/new"),
        ("B", "A/C/new"),
    ];
    for (from, to) in moves {
        for mode in [RenameMode::Replace, RenameMode::NoReplace] {
            let dirs = [parent(from), parent(to)];
            all.push(one(Call::Rename { from, to, mode }, &[file(to)], &dirs));
        }
    }
    let replacements = [
        ("A/foo", "A/bar"),
        ("A/foo", "foo"),
        ("foo", "A/foo"),
        ("A/bar", "B/foo"),
        ("B/foo", "A/bar"),
    ];
    for (from, to) in replacements {
        for mode in [RenameMode::Replace, RenameMode::Exchange] {
            let dirs = [parent(from), parent(to)];
            all.push(one(Call::Rename { from, to, mode }, &[file(to)], &dirs));
        }
    }
    let mode = RenameMode::Replace;
    let (from, to) = ("B", "A/C");
    all.push(one(
        Call::Rename { from, to, mode },
        &[file(to)],
        &["", "A"],
    ));
    let mode = RenameMode::Exchange;
    for (from, to) in [("A/C", "B"), ("A/C", "B/foo"), ("A/bar", "A/C")] {
        let dirs = [parent(from), parent(to)];
        all.push(one(Call::Rename { from, to, mode }, &[file(to)], &dirs));
    }
}

fn on_data(all: &mut Vec<Operation>) {
    let writes = [
        // Within a page, all of one, over a border, the whole file.
        ("foo", 10, 50),
        ("foo", 0, 100),
        ("A/foo", 100, 50),
        ("A/foo", P, P),
        ("A/foo", P - 10, 20),
        ("A/foo", P / 2, 2 * P),
        ("A/foo", 0, 4 * P + 500),
        // Appends: within the last page, over its end, several pages.
        ("foo", 100, 50),
        ("A/foo", 4 * P + 500, 100),
        ("A/foo", 4 * P + 500, P),
        ("A/foo", 4 * P + 500, 3 * P),
        ("B/foo", 0, 10),
        ("B/foo", 0, 2 * P + 1),
        // Behind the end: holes.
        ("foo", P + 5, 100),
        ("A/foo", 7 * P, P),
        ("B/foo", 5 * P, 1),
        // The last direct slot, the first leaf.
        ("A/foo", 23 * P, P),
        ("A/foo", 24 * P, P),
        ("A/foo", 22 * P + 100, 4 * P),
        ("A/bar", 23 * P + 1, 2 * P),
        ("A/bar", 25 * P, P),
        ("A/bar", 27 * P, P / 2),
        ("B/foo", 24 * P, 10),
    ];
    for (number, (path, offset, len)) in (101..).zip(writes) {
        let call = write(path, offset, len, number);
        all.push(one(call, &[file(path)], &[parent(path)]));
    }
    let sizes = [
        ("foo", 0),
        ("foo", 50),
        ("foo", 99),
        ("foo", P),
        ("foo", 3 * P + 7),
        ("A/foo", 0),
        ("A/foo", P),
        ("A/foo", 2 * P + 100),
        ("A/foo", 4 * P + 499),
        ("A/foo", 4 * P + 501),
        ("A/foo", 25 * P),
        ("A/bar", 0),
        ("A/bar", 24 * P),
        ("A/bar", 24 * P + 1),
        ("A/bar", 26 * P - 1),
        ("A/bar", 400 * P),
        ("B/foo", 5),
    ];
    for (path, size) in sizes {
        let at = file(path);
        all.push(one(Call::Truncate { at, size }, &[at], &[parent(path)]));
    }
}

fn on_ranges(all: &mut Vec<Operation>) {
    let modes = [
        AllocateMode::Extend,
        AllocateMode::KeepSize,
        AllocateMode::Punch,
        AllocateMode::Zero,
        AllocateMode::ZeroKeepSize,
    ];
    let ranges = [
        ("foo", 10, 50),
        ("foo", 0, 4 * P),
        ("A/foo", P, P),
        ("A/foo", P + 100, 2 * P),
        ("A/foo", 4 * P, 2 * P),
        ("A/bar", 22 * P, 4 * P),
        ("B/foo", 0, P),
    ];
    for mode in modes {
        for (path, offset, len) in ranges {
            let at = file(path);
            let call = Call::Allocate {
                at,
                mode,
                offset,
                len,
            };
            all.push(one(call, &[at], &[parent(path)]));
        }
    }
}

fn on_clones(all: &mut Vec<Operation>) {
    let clones = [
        // Over bytes, over an end, into a hole behind a leaf, across a leaf, within a file, to the end.
        ("A/foo", 0, 2 * P, "foo", 0),
        ("A/foo", 0, 4 * P + 500, "B/foo", 0),
        ("A/foo", P, P, "B/foo", 30 * P),
        ("A/bar", 22 * P, 4 * P, "A/foo", 0),
        ("A/bar", 22 * P, 4 * P, "A/foo", 22 * P),
        ("A/foo", 0, 2 * P, "A/foo", 2 * P),
        ("A/bar", 0, 27 * P, "foo", 0),
    ];
    for (from, start, len, path, offset) in clones {
        let (from, at) = (file(from), file(path));
        let call = Call::Clone {
            from,
            start,
            len,
            at,
            offset,
        };
        all.push(one(call, &[at, from], &[parent(path)]));
    }
}

fn on_attributes(all: &mut Vec<Operation>) {
    for path in ["foo", "A/foo", "A/bar", "A"] {
        let at = file(path);
        let dirs = [parent(path)];
        for (name, len) in [
            ("user.small", 5),
            ("user.large", 10 << 10),
            ("user.new", 300),
        ] {
            let fill = 9;
            let call = Call::SetXattr {
                at,
                name,
                len,
                fill,
            };
            all.push(one(call, &[at], &dirs));
        }
        all.push(one(Call::Chmod { at, mode: 0o600 }, &[at], &dirs));
        all.push(one(Call::Chown { at, uid: 42 }, &[at], &dirs));
        all.push(one(Call::SetTime { at, secs: 1_000 }, &[at], &dirs));
    }
    for (path, name) in [("A/foo", "user.small"), ("A/bar", "user.large")] {
        let at = file(path);
        all.push(one(Call::RemoveXattr { at, name }, &[at], &["A"]));
    }
    for path in ["new", "A/C/new"] {
        let (slot, dir) = (0, parent(path));
        let at = At::Slot(slot);
        let temporary = Step::Call(Call::Temporary { slot, dir });
        let link = Step::Call(Call::LinkSlot { slot, path });
        let content = Step::Call(Call::Write {
            at,
            offset: 0,
            len: 5000,
            fill: 77,
        });
        for steps in [vec![temporary, link], vec![temporary, content, link]] {
            all.push(Operation {
                steps,
                files: vec![at],
                directories: vec![dir],
            });
        }
        all.push(Operation {
            steps: vec![temporary, content],
            files: vec![at],
            directories: vec![dir],
        });
    }
}

/// Every operation on the tree of setup 1.
#[must_use]
pub fn operations() -> Vec<Operation> {
    let mut all = Vec::new();
    on_names(&mut all);
    on_two_names(&mut all);
    on_data(&mut all);
    on_ranges(&mut all);
    on_clones(&mut all);
    on_attributes(&mut all);
    all
}

/// The number of a snapshot that is taken behind the last operation.
const LAST_SNAPSHOT: u8 = 9;

/// Every way to make an operation durable, and none.
#[must_use]
pub fn persistence(operation: &Operation) -> Vec<Vec<Step>> {
    let snapshot = Step::Snapshot(LAST_SNAPSHOT);
    let mut all = vec![vec![], vec![Step::Sync], vec![snapshot]];
    for at in &operation.files {
        all.push(vec![Step::Fsync(*at)]);
        all.push(vec![Step::Fdatasync(*at)]);
    }
    for path in &operation.directories {
        let step = vec![Step::Fsync(file(path))];
        if !all.contains(&step) {
            all.push(step);
        }
    }
    all
}

/// Operations after a persistence point that are not synced, so that something is in flight.
fn unsynced(number: usize) -> Vec<Step> {
    let path = "unsynced";
    let create = Step::Call(Call::Create { path });
    let write = Step::Call(write("unsynced", 0, 6000, 200));
    match number % 4 {
        0 => vec![create, Step::WriteBack],
        1 => vec![create, write, Step::WriteBack],
        2 => vec![create, Step::Checkpoint],
        _ => vec![create, write, Step::WriteBack, Step::Checkpoint],
    }
}

/// All workloads of one operation: each operation, each persistence point, by itself, followed by
/// unsynced work, by a checkpoint and by an unmount.
#[must_use]
pub fn one_operation() -> Vec<Workload> {
    let mut all = Vec::new();
    for operation in operations() {
        for persistence in persistence(&operation) {
            let mut steps = operation.steps.clone();
            if persistence.is_empty() {
                for end in [
                    vec![Step::WriteBack],
                    vec![Step::Checkpoint],
                    vec![Step::WriteBack, Step::Checkpoint, Step::Unmount],
                ] {
                    let steps = [steps.clone(), end].concat();
                    all.push(Workload { setup: 1, steps });
                }
                continue;
            }
            steps.extend(persistence);
            steps.extend(unsynced(all.len()));
            all.push(Workload { setup: 1, steps });
        }
    }
    all.extend(super::pairs::pairs());
    all
}

/// A file is cut or removed on a nearly full volume, and another needs its blocks.
#[must_use]
pub fn full_volume() -> Vec<Workload> {
    let at = file("A/foo");
    let cut = Step::Call(Call::Truncate { at, size: 0 });
    let unlink = Step::Call(Call::Unlink { path: "A/foo" });
    let create = Step::Call(Call::Create { path: "new" });
    let fill = Step::Call(write("new", 0, FOO_PAGES * P, 66));
    let steps = [
        vec![cut, create, fill, Step::WriteBack],
        vec![unlink, create, fill, Step::WriteBack],
        vec![unlink, create, fill, Step::Fsync(file("new"))],
    ];
    let workload = |steps| Workload { setup: 2, steps };
    steps.into_iter().map(workload).collect()
}

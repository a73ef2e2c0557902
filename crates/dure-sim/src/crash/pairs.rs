//! Sequences of operations that programs rely on.

use dure_fs::RenameMode;

use super::call::{At, Call, Path, Step, Workload};
use super::workload::{P, file, write};

const TMP: At = file("A/tmp");
const FOO: At = file("A/foo");

fn create(path: Path) -> Step {
    Step::Call(Call::Create { path })
}

fn unlink(path: Path) -> Step {
    Step::Call(Call::Unlink { path })
}

fn rename(from: Path, to: Path) -> Step {
    let mode = RenameMode::Replace;
    Step::Call(Call::Rename { from, to, mode })
}

fn truncate(at: At, size: u64) -> Step {
    Step::Call(Call::Truncate { at, size })
}

fn content() -> Step {
    Step::Call(write("A/tmp", 0, 3 * P + 10, 120))
}

fn over() -> Step {
    Step::Call(write("A/foo", 0, 2 * P, 121))
}

fn again() -> Step {
    Step::Call(write("A/foo", P, 2 * P, 122))
}

/// Replacing a file by rename, with and without fsync.
fn replacing() -> Vec<Vec<Step>> {
    let (make, fill) = (create("A/tmp"), content());
    let over_foo = rename("A/tmp", "A/foo");
    vec![
        vec![make, fill, over_foo, Step::WriteBack],
        vec![
            make,
            fill,
            over_foo,
            Step::Fsync(file("A")),
            Step::Checkpoint,
        ],
        vec![make, fill, Step::Fsync(TMP), over_foo, Step::WriteBack],
        vec![
            make,
            fill,
            Step::Fsync(TMP),
            rename("A/tmp", "B/foo"),
            Step::Fsync(file("B")),
        ],
    ]
}

/// Overwrites around fsync; shorter and longer again: old bytes must not come back.
fn overwriting() -> Vec<Vec<Step>> {
    let (write_back, checkpoint, fsync) = (Step::WriteBack, Step::Checkpoint, Step::Fsync(FOO));
    let data = Step::Fdatasync(FOO);
    let (short, long) = (truncate(FOO, P + 100), truncate(FOO, 3 * P));
    vec![
        vec![over(), fsync, again(), write_back],
        vec![over(), write_back, again(), data, over(), write_back],
        vec![over(), fsync, checkpoint, again(), write_back],
        vec![short, long, fsync, again(), write_back],
        vec![short, write_back, long, again(), checkpoint, write_back],
        vec![over(), short, write_back, long, fsync, again(), write_back],
        vec![truncate(FOO, 0), over(), fsync, write_back, checkpoint],
        vec![
            again(),
            truncate(FOO, 0),
            write_back,
            over(),
            checkpoint,
            write_back,
        ],
    ]
}

/// Names and inodes used again, files without names.
fn using_again() -> Vec<Vec<Step>> {
    let (write_back, checkpoint, fsync) = (Step::WriteBack, Step::Checkpoint, Step::Fsync(FOO));
    let slot = At::Slot(0);
    let into_slot = Step::Call(Call::Write {
        at: slot,
        offset: 0,
        len: 2 * P,
        fill: 123,
    });
    let (open, unlink_bar) = (Step::Open(0, "A/bar"), unlink("A/bar"));
    let (make_foo, unlink_foo) = (create("A/foo"), unlink("A/foo"));
    let rmdir = Step::Call(Call::Rmdir { path: "A/D" });
    let mkdir = Step::Call(Call::Mkdir { path: "A/D" });
    let (inside, outside) = (create("A/D/new"), unlink("A/D/new"));
    vec![
        vec![unlink_foo, make_foo, fsync, over(), write_back],
        vec![
            unlink_foo,
            write_back,
            make_foo,
            over(),
            checkpoint,
            write_back,
        ],
        vec![unlink_foo, checkpoint, make_foo, over(), fsync, checkpoint],
        vec![rename("A/foo", "B/new"), make_foo, fsync, checkpoint],
        vec![
            mkdir,
            inside,
            Step::Fsync(file("A/D/new")),
            outside,
            rmdir,
            write_back,
        ],
        vec![
            mkdir, inside, outside, rmdir, checkpoint, mkdir, inside, write_back,
        ],
        vec![
            open,
            unlink_bar,
            into_slot,
            Step::Fsync(slot),
            Step::Close(0),
            write_back,
            Step::Unmount,
        ],
        vec![
            open,
            unlink_bar,
            checkpoint,
            into_slot,
            write_back,
            Step::Close(0),
            checkpoint,
        ],
        vec![checkpoint, checkpoint, Step::Unmount],
        vec![Step::Unmount],
    ]
}

/// All of them.
pub(super) fn pairs() -> Vec<Workload> {
    let all = [replacing(), overwriting(), using_again()].concat();
    let workload = |steps| Workload { setup: 1, steps };
    all.into_iter().map(workload).collect()
}

//! A workload as data: calls, promises asked for, and what the machine does on its own.

use std::fmt;

use dure_fs::{AllocateMode, RenameMode};

/// A path from the root, without a leading slash; empty for the root.
pub type Path = &'static str;

/// Which inode a call is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The one at this path.
    Path(Path),
    /// The one a descriptor holds.
    Slot(u8),
}

/// A call that changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the fields are the arguments of the system calls"
)]
pub enum Call {
    /// A new regular file.
    Create { path: Path },
    /// A new directory.
    Mkdir { path: Path },
    /// A new symbolic link.
    Symlink { target: Path, path: Path },
    /// A new named pipe.
    Fifo { path: Path },
    /// Another name.
    Link { from: Path, to: Path },
    /// Removal of a name.
    Unlink { path: Path },
    /// Removal of an empty directory.
    Rmdir { path: Path },
    /// A name moves.
    Rename {
        from: Path,
        to: Path,
        mode: RenameMode,
    },
    /// A buffered write.
    Write {
        at: At,
        offset: u64,
        len: u64,
        fill: u8,
    },
    /// Another size.
    Truncate { at: At, size: u64 },
    /// `fallocate`.
    Allocate {
        at: At,
        mode: AllocateMode,
        offset: u64,
        len: u64,
    },
    /// `copy_file_range`: blocks are shared, and what cannot be is copied.
    Clone {
        from: At,
        start: u64,
        len: u64,
        at: At,
        offset: u64,
    },
    /// An extended attribute gets a value of `len` bytes.
    SetXattr {
        at: At,
        name: &'static str,
        len: usize,
        fill: u8,
    },
    /// Removal of an extended attribute.
    RemoveXattr { at: At, name: &'static str },
    /// Other permissions.
    Chmod { at: At, mode: u32 },
    /// Another owner.
    Chown { at: At, uid: u32 },
    /// Another modification time.
    SetTime { at: At, secs: i64 },
    /// `open(O_TMPFILE)` into a descriptor.
    Temporary { slot: u8, dir: Path },
    /// A name for what a descriptor holds.
    LinkSlot { slot: u8, path: Path },
}

/// One step of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A call.
    Call(Call),
    /// A descriptor is opened.
    Open(u8, Path),
    /// A descriptor is closed.
    Close(u8),
    /// `fsync`.
    Fsync(At),
    /// `fdatasync`.
    Fdatasync(At),
    /// `sync`.
    Sync,
    /// Background work: write-back and commit. No promise.
    WriteBack,
    /// A checkpoint, as a full log causes it. No promise.
    Checkpoint,
    /// A snapshot with this number is taken, durably.
    Snapshot(u8),
    /// It is deleted, durably.
    DropSnapshot(u8),
    /// Unmount, as the last step.
    Unmount,
    /// What follows runs on this core, so in its journal and partition.
    Core(usize),
    /// A thread begins an `fsync`, which has written when this step ends, but waits for its flush.
    FsyncBegin(At),
    /// Lets the flushes of all begun fsyncs pass; they return.
    FsyncEnd,
}

/// What a crash test runs: a tree made and unmounted first, then steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Which tree there is at the start; see `workload::SETUPS`.
    pub setup: usize,
    /// What happens.
    pub steps: Vec<Step>,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Path(path) => write!(f, "/{path}"),
            At::Slot(slot) => write!(f, "#{slot}"),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Call::Create { path } => write!(f, "create /{path}"),
            Call::Mkdir { path } => write!(f, "mkdir /{path}"),
            Call::Symlink { target, path } => write!(f, "symlink {target} /{path}"),
            Call::Fifo { path } => write!(f, "fifo /{path}"),
            Call::Link { from, to } => write!(f, "link /{from} /{to}"),
            Call::Unlink { path } => write!(f, "unlink /{path}"),
            Call::Rmdir { path } => write!(f, "rmdir /{path}"),
            Call::Rename { from, to, mode } => write!(f, "rename /{from} /{to} {mode:?}"),
            Call::Write {
                at,
                offset,
                len,
                fill,
            } => write!(f, "write {at} {offset}+{len} of {fill}"),
            Call::Truncate { at, size } => write!(f, "truncate {at} {size}"),
            Call::Allocate {
                at,
                mode,
                offset,
                len,
            } => write!(f, "allocate {at} {mode:?} {offset}+{len}"),
            Call::Clone {
                from,
                start,
                len,
                at,
                offset,
            } => write!(f, "clone {from} {start}+{len} {at} {offset}"),
            Call::SetXattr {
                at,
                name,
                len,
                fill,
            } => write!(f, "setxattr {at} {name} {len} of {fill}"),
            Call::RemoveXattr { at, name } => write!(f, "removexattr {at} {name}"),
            Call::Chmod { at, mode } => write!(f, "chmod {at} {mode:o}"),
            Call::Chown { at, uid } => write!(f, "chown {at} {uid}"),
            Call::SetTime { at, secs } => write!(f, "settime {at} {secs}"),
            Call::Temporary { slot, dir } => write!(f, "tmpfile #{slot} in /{dir}"),
            Call::LinkSlot { slot, path } => write!(f, "link #{slot} /{path}"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Call(call) => write!(f, "{call}"),
            Step::Open(slot, path) => write!(f, "open #{slot} /{path}"),
            Step::Close(slot) => write!(f, "close #{slot}"),
            Step::Fsync(at) => write!(f, "fsync {at}"),
            Step::Fdatasync(at) => write!(f, "fdatasync {at}"),
            Step::Sync => f.write_str("sync"),
            Step::WriteBack => f.write_str("writeback"),
            Step::Checkpoint => f.write_str("checkpoint"),
            Step::Snapshot(number) => write!(f, "snapshot {number}"),
            Step::DropSnapshot(number) => write!(f, "drop {number}"),
            Step::Unmount => f.write_str("unmount"),
            Step::Core(core) => write!(f, "core {core}"),
            Step::FsyncBegin(at) => write!(f, "fsync {at} begins"),
            Step::FsyncEnd => f.write_str("fsync ends"),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "setup {}", self.setup)?;
        for step in &self.steps {
            write!(f, "; {step}")?;
        }
        Ok(())
    }
}

/// The name of a snapshot.
pub(super) fn snapshot_name(number: u8) -> String {
    format!("s{number}")
}

/// The bytes that a write of `len` bytes with `fill` stores, or an attribute of that length holds.
#[must_use]
pub fn pattern(fill: u8, len: usize) -> Vec<u8> {
    let mut value = fill;
    let mut bytes = Vec::with_capacity(len);
    for index in 0..len {
        bytes.push(value);
        value = value
            .wrapping_mul(5)
            .wrapping_add(if index % 4093 == 0 { 3 } else { 1 });
    }
    bytes
}

//! A call with its arguments, in a form that can be made again and again on things of its kind.
//!
//! An [`Act`] is a template. In its paths `#` stands for the round, `*` for the last round: an act
//! that consumes its argument (`unlink /a/f#`) takes another one each round, and in the last round
//! the one that all other acts use in every round (`stat /a/f*`).

use std::fmt;

use super::scene::PAGE;
use crate::model::{Flags, Operation, Whence};

/// Rounds: all but the last are rehearsals.
pub(super) const ROUNDS: u64 = 5;
/// The round that counts.
pub(super) const LAST: u64 = ROUNDS - 1;

/// The calls of the report, in the order of their list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "they are the calls of these names")]
pub enum Call {
    Open,
    Creat,
    Link,
    Unlink,
    Rename,
    Mkdir,
    Rmdir,
    Symlink,
    Readlink,
    Stat,
    Fstat,
    Chmod,
    Read,
    Write,
    Pread,
    Pwrite,
    Append,
    Truncate,
    Fallocate,
    Lseek,
    Fsync,
    Readdir,
    Getxattr,
    Setxattr,
}

impl Call {
    /// All of them.
    pub const ALL: [Call; 24] = [
        Call::Open,
        Call::Creat,
        Call::Link,
        Call::Unlink,
        Call::Rename,
        Call::Mkdir,
        Call::Rmdir,
        Call::Symlink,
        Call::Readlink,
        Call::Stat,
        Call::Fstat,
        Call::Chmod,
        Call::Read,
        Call::Write,
        Call::Pread,
        Call::Pwrite,
        Call::Append,
        Call::Truncate,
        Call::Fallocate,
        Call::Lseek,
        Call::Fsync,
        Call::Readdir,
        Call::Getxattr,
        Call::Setxattr,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// Which of the two cores makes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Core 0; its calls are about directory `/a`.
    First,
    /// Core 1; its arguments are in each relation to those of the first core.
    Second,
}

impl Side {
    /// 0 or 1: the number of the core, and of its own descriptor.
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Side::First => 0,
            Side::Second => 1,
        }
    }

    /// Like [`Side::index`], for arithmetic.
    #[must_use]
    pub fn number(self) -> u64 {
        u64::try_from(self.index()).expect("64 bits")
    }
}

/// The descriptor number that in a template stands for the one that the act uses.
pub(super) const SLOT: usize = 0;
/// The descriptor that both cores have.
pub(super) const JOINT: usize = 2;

/// Which cores use a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// One core only.
    Own,
    /// Both: it was opened once.
    Joint,
}

/// The descriptor of an act, opened before the first round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) path: &'static str,
    pub(super) owner: Owner,
    pub(super) append: bool,
}

/// What is done before each round, and does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    Nothing,
    /// The position is set to a page that belongs to the core and the round.
    Seek,
    /// A page is written.
    Dirty,
}

/// A call and what it needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Act {
    /// Which call.
    pub call: Call,
    /// The call and its arguments, for people.
    pub text: String,
    pub(super) operation: Operation,
    pub(super) descriptor: Option<Descriptor>,
    pub(super) before: Before,
    /// By how much the number in the operation (an offset, a size, a mode) changes each round.
    pub(super) stride: i64,
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn path_at(template: &str, round: u64) -> String {
    template
        .replace('#', &round.to_string())
        .replace('*', &LAST.to_string())
}

/// The pages of a file that belong to a core and a round, among those that hold data.
pub(super) fn own_page(side: Side, round: u64) -> u64 {
    side.number() * ROUNDS + round
}

impl Act {
    /// The number of the descriptor in the tables of both model and volume.
    pub(super) fn slot(&self, side: Side) -> usize {
        match self.descriptor {
            Some(descriptor) if descriptor.owner == Owner::Joint => JOINT,
            _ => side.index(),
        }
    }

    /// What opens the descriptor.
    pub(super) fn opening(&self, side: Side) -> Option<Operation> {
        let descriptor = self.descriptor?;
        let flags = Flags {
            read: true,
            write: !descriptor.append,
            append: descriptor.append,
            ..Flags::default()
        };
        Some(Operation::Open {
            slot: self.slot(side),
            path: path_at(descriptor.path, LAST),
            flags,
            mode: 0,
        })
    }

    /// What comes before the call in a round.
    pub(super) fn preparation(&self, side: Side, round: u64) -> Option<Operation> {
        let slot = self.slot(side);
        let offset = own_page(side, round) * PAGE;
        match self.before {
            Before::Nothing => None,
            Before::Seek => Some(Operation::Seek {
                slot,
                whence: Whence::Set,
                offset: i64::try_from(offset).expect("a small file"),
            }),
            Before::Dirty => Some(Operation::Write {
                slot,
                offset,
                len: PAGE,
                fill: 77,
            }),
        }
    }

    /// Closes what the call has opened.
    pub(super) fn clearing(&self, side: Side) -> Option<Operation> {
        let opens = matches!(self.operation, Operation::Open { .. });
        opens.then(|| Operation::Close { slot: side.index() })
    }

    /// The call in a round.
    pub(super) fn at(&self, side: Side, round: u64) -> Operation {
        let mut operation = self.operation.clone();
        for path in paths_mut(&mut operation) {
            *path = path_at(path, round);
        }
        if let Some(slot) = slot_mut(&mut operation) {
            *slot = self.slot(side);
        }
        let moved = self.stride * i64::try_from(round).expect("few rounds");
        let by = |number: &mut u64| {
            *number = number.checked_add_signed(moved).expect("a small number");
        };
        match &mut operation {
            Operation::Write { offset, fill, .. } => {
                by(offset);
                *fill += u8::try_from(side.index()).expect("0 or 1");
            }
            Operation::WriteNext { fill, .. } => {
                *fill += u8::try_from(side.index()).expect("0 or 1");
            }
            Operation::Allocate { offset, .. } => by(offset),
            Operation::Truncate { size, .. } => by(size),
            Operation::Chmod { mode, .. } => {
                let step = i32::try_from(moved).expect("a small step");
                *mode = mode.checked_add_signed(step).expect("a mode");
            }
            _ => {}
        }
        operation
    }

    /// Whether it is the same call in every round.
    pub(super) fn uses_nothing_up(&self, side: Side) -> bool {
        (0..LAST).all(|round| self.at(side, round) == self.at(side, LAST))
    }

    /// The paths the call names in a round.
    pub(super) fn paths(&self, round: u64) -> Vec<String> {
        let mut operation = self.operation.clone();
        let own = paths_mut(&mut operation);
        let mut paths: Vec<String> = own.into_iter().map(|path| path_at(path, round)).collect();
        if matches!(
            self.operation,
            Operation::SetXattr { .. } | Operation::GetXattr { .. }
        ) {
            // The second one is the name of the attribute.
            paths.truncate(1);
        }
        paths
    }
}

fn paths_mut(operation: &mut Operation) -> Vec<&mut String> {
    match operation {
        Operation::Open { path, .. }
        | Operation::Mkdir { path, .. }
        | Operation::Symlink { path, .. }
        | Operation::Unlink { path }
        | Operation::Rmdir { path }
        | Operation::ReadLink { path }
        | Operation::Stat { path, .. }
        | Operation::ReadDirectory { path }
        | Operation::Chmod { path, .. } => vec![path],
        Operation::Link { from, to } | Operation::Rename { from, to, .. } => vec![from, to],
        Operation::SetXattr { path, name, .. } | Operation::GetXattr { path, name } => {
            vec![path, name]
        }
        _ => Vec::new(),
    }
}

fn slot_mut(operation: &mut Operation) -> Option<&mut usize> {
    match operation {
        Operation::Open { slot, .. }
        | Operation::Read { slot, .. }
        | Operation::Write { slot, .. }
        | Operation::ReadNext { slot, .. }
        | Operation::WriteNext { slot, .. }
        | Operation::Seek { slot, .. }
        | Operation::Truncate { slot, .. }
        | Operation::Allocate { slot, .. }
        | Operation::StatSlot { slot }
        | Operation::Fsync { slot, .. } => Some(slot),
        _ => None,
    }
}

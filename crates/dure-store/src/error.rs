//! What can go wrong in the file system, and the one table that turns it into an errno.
//!
//! *Bugs* panic. *Corruption* is [`Error::Corrupt`]. *Operating* errors have their own variant,
//! raised at one place. Expected outcomes (a name that is not there) are `Option`s.

use dure_journal::recovery::{COUNT_MAX, Hole};
use thiserror::Error;

/// Result of a file system call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// What is too large for the device in a [`Error::TooSmall`] of a volume that was made on a larger
    /// one.
    pub const VOLUME_ON_DEVICE: &str = "the volume on it";
}

/// An error of the file system.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// Not a dure volume.
    #[error("not a dure volume: neither its first nor its last block is a superblock")]
    NotDure,
    /// One of the two superblocks is not there.
    #[error(
        "superblock at block {at} is bad, the other copy counts: there is no superblock; unmount, and `dure \
         check --repair` makes it again"
    )]
    NoSuperblock {
        /// Where it belongs.
        at: u64,
    },
    /// The volume needs a newer dure.
    #[error("this dure does not know this format: {what}")]
    Unsupported {
        /// What it does not know.
        what: String,
    },
    /// Something on the medium is not what it must be.
    #[error("corrupt: {what} at block {at}: expected {want:#x}, found {got:#x}; run `dure check`")]
    Corrupt {
        /// The structure and field.
        what: String,
        /// Block number.
        at: u64,
        /// What it should be.
        want: u64,
        /// What it is.
        got: u64,
    },
    /// The device is smaller than the volume says, or too small for a volume.
    #[error("the device has {}, {what} needs {}", size_of(*have), size_of(*need))]
    TooSmall {
        /// What needs the room.
        what: &'static str,
        /// Blocks there are.
        have: u64,
        /// Blocks needed.
        need: u64,
    },
    /// A medium of the volume is not there, or another one is, or it is too small.
    #[error("{name}: {why}")]
    Medium {
        /// Where it is, or what the volume is called.
        name: String,
        /// What is wrong, and what to do.
        why: String,
    },
    /// mkfs, mount or check was given an option out of range.
    #[error("{option}: {why}")]
    BadOption {
        /// The option.
        option: &'static str,
        /// What is wrong and what is allowed.
        why: String,
    },
    /// Input or output failed.
    #[error(transparent)]
    Block(#[from] dure_block::Error),
    /// The journal refused.
    #[error(transparent)]
    Journal(#[from] dure_journal::Error),
    /// A log lacks changes that were durable.
    #[error(
        "{0}; synced changes are lost. `dure check --recover=tolerate` says what is left, and a \
         mount with `-o recover=tolerate` shows it, read-only: copy it to a new volume"
    )]
    LogHole(Hole),
    /// The volume was mounted without a log, and not unmounted.
    #[error(
        "the volume was mounted with journal=none and was not unmounted: no log says what it held, and what was \
         written since the last checkpoint is lost; `dure check --repair` finds what is left"
    )]
    Unlogged,
    /// A page that is in the logs only finds no block that takes it.
    #[error(
        "recovery cannot write a page of the logs to block {block}, nor to another block ({error}); the logs \
         still have it, and a read-only mount shows everything"
    )]
    Unplaced {
        /// The block that its slot names.
        block: u64,
        /// The error of the first write.
        error: dure_block::Error,
    },
    /// A log write or flush failed earlier: nothing can be made durable any more.
    #[error("the volume is read-only since an earlier failure: {reason}")]
    Stopped {
        /// The first failure.
        reason: String,
    },
    /// Another process mounted the volume meanwhile.
    #[error(
        "another process has mounted the volume meanwhile, by another name or device; this mount writes nothing \
         more (unmount both, then run `dure check`)"
    )]
    TakenOver,
    /// The volume was mounted read-only.
    #[error("the volume is mounted read-only")]
    ReadOnly,
    /// No free block, node id or log space.
    #[error("no space left on the volume ({what})")]
    NoSpace {
        /// What ran out.
        what: &'static str,
    },
    /// A user, group or project has as much as its quota allows.
    #[error("the quota of {kind} {id} is used up ({what})")]
    Quota {
        /// User, group or project.
        kind: &'static str,
        /// Its number.
        id: u32,
        /// Blocks or inodes.
        what: &'static str,
    },
    /// A directory of another project.
    #[error("a name cannot be moved or linked into another project")]
    OtherProject,
    /// A directory becomes a project already; or names move faster than that goes.
    #[error("another directory becomes a project, or too many names move meanwhile: do it again")]
    ProjectBusy,
    /// The name exists.
    #[error("the name exists already")]
    Exists,
    /// No such name or inode.
    #[error("no such file or directory")]
    NotFound,
    /// The inode number is stale.
    #[error("stale inode number {0}")]
    Stale(u64),
    /// A directory is needed.
    #[error("not a directory")]
    NotDirectory,
    /// A directory is not allowed.
    #[error("is a directory")]
    IsDirectory,
    /// The directory has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// A name longer than 255 bytes, or a path component that cannot be.
    #[error("file name too long")]
    NameTooLong,
    /// The call makes no sense on this object or with these arguments.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// A directory would become its own ancestor.
    #[error("a directory cannot be moved below itself")]
    Loop,
    /// More than 2^31 links.
    #[error("too many links")]
    TooManyLinks,
    /// Offset or length beyond what a file can have.
    #[error("file too large")]
    TooLarge,
    /// No such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// The attribute, or all attributes together, do not fit.
    #[error("attribute too large")]
    AttributeTooLarge,
    /// The object does not allow it, whatever the caller's rights.
    #[error("operation not permitted: {0}")]
    NotPermitted(&'static str),
    /// The volume has no such snapshot.
    #[error("the volume has no snapshot called {name}; `dure snapshot list` shows what it has")]
    NoSnapshot {
        /// The name.
        name: String,
    },
    /// A snapshot has this name already.
    #[error("the volume has a snapshot called {name} already")]
    SnapshotExists {
        /// The name.
        name: String,
    },
    /// The snapshot cannot be deleted now, or none can be taken.
    #[error("snapshot {name}: {why}")]
    SnapshotBusy {
        /// Its name.
        name: String,
        /// What keeps it, and what to do.
        why: &'static str,
    },
    /// The operation is not offered.
    #[error("operation not supported: {0}")]
    NotSupported(&'static str),
}

impl Error {
    /// What is wrong with a volume of whose superblocks neither can be used: if the first is damaged,
    /// the last may still say that it needs a later dure.
    #[must_use]
    pub fn of_superblocks(first: Error, last: Error) -> Error {
        match last {
            Error::Unsupported { .. } => last,
            _ => first,
        }
    }

    /// `Ok` when `got` is what it must be, else `Corrupt`.
    pub fn expect_eq(what: &str, at: u64, want: u64, got: u64) -> Result<()> {
        if want == got {
            return Ok(());
        }
        Err(Error::Corrupt {
            what: what.to_owned(),
            at,
            want,
            got,
        })
    }

    /// `Ok` when a counter leaves room to count on, else `Corrupt`.
    pub(crate) fn expect_count(what: impl FnOnce() -> String, at: u64, got: u64) -> Result<()> {
        if got <= COUNT_MAX {
            return Ok(());
        }
        Err(Error::Corrupt {
            what: what(),
            at,
            want: COUNT_MAX,
            got,
        })
    }

    /// The errno a POSIX caller sees.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Error::NotDure | Error::Invalid(_) | Error::BadOption { .. } => libc::EINVAL,
            Error::Medium { .. } => libc::ENXIO,
            Error::Loop => libc::EINVAL,
            Error::Unsupported { .. } | Error::NotSupported(_) => libc::EOPNOTSUPP,
            Error::NoSuperblock { .. } => libc::EIO,
            Error::Corrupt { .. } | Error::Block(_) | Error::Journal(_) => libc::EIO,
            Error::LogHole(_) | Error::Unlogged | Error::Unplaced { .. } => libc::EIO,
            Error::TooSmall { .. } | Error::NoSpace { .. } => libc::ENOSPC,
            Error::Stopped { .. } | Error::ReadOnly | Error::TakenOver => libc::EROFS,
            Error::Quota { .. } => libc::EDQUOT,
            Error::OtherProject => libc::EXDEV,
            Error::NotPermitted(_) => libc::EPERM,
            Error::Exists | Error::SnapshotExists { .. } => libc::EEXIST,
            Error::NotFound | Error::NoSnapshot { .. } => libc::ENOENT,
            Error::SnapshotBusy { .. } | Error::ProjectBusy => libc::EBUSY,
            Error::Stale(_) => libc::ESTALE,
            Error::NotDirectory => libc::ENOTDIR,
            Error::IsDirectory => libc::EISDIR,
            Error::NotEmpty => libc::ENOTEMPTY,
            Error::NameTooLong => libc::ENAMETOOLONG,
            Error::TooManyLinks => libc::EMLINK,
            Error::TooLarge => libc::EFBIG,
            Error::NoAttribute => libc::ENODATA,
            Error::AttributeTooLarge => libc::E2BIG,
        }
    }
}

/// So many blocks, as people write sizes: the largest binary unit of which there is one, exact or
/// with one decimal place, rounded down.
pub fn size_of(blocks: u64) -> String {
    if blocks == 0 {
        // What a file has behind its last whole block is not told.
        return "less than 4 KiB".to_owned();
    }
    let (mut unit, mut name) = (1, "KiB");
    let kib = u128::from(blocks) * 4;
    for larger in ["MiB", "GiB", "TiB", "PiB"] {
        if kib / unit >= 1024 {
            (unit, name) = (unit * 1024, larger);
        }
    }
    match kib * 10 / unit % 10 {
        0 => format!("{} {name}", kib / unit),
        tenths => format!("{}.{tenths} {name}", kib / unit),
    }
}

/// Refuses what a table at block `at` cannot say.
pub(crate) fn expect(what: &str, at: u64, fine: bool) -> Result<()> {
    if fine { Ok(()) } else { Err(wrong(what, at)) }
}

/// A table at block `at` says what it cannot say.
pub(crate) fn wrong(what: &str, at: u64) -> Error {
    Error::Corrupt {
        what: what.to_owned(),
        at,
        want: 1,
        got: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::size_of;

    #[test]
    fn sizes_are_told_in_the_largest_unit() {
        for (blocks, text) in [
            (0, "less than 4 KiB"),
            (3, "12 KiB"),
            (256, "1 MiB"),
            (640, "2.5 MiB"),
            (1 << 30, "4 TiB"),
            (u64::MAX, "67108863.9 PiB"),
        ] {
            assert_eq!(size_of(blocks), text);
        }
    }
}

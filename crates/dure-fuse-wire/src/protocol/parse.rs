//! From the bytes of a request to an [`Operation`], without copying any.

use thiserror::Error;
use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::opcode as op;
use super::operation::{CopyForm, ListForm, Operation, Request};
use super::request::{
    BatchForgetIn, CopyIn, CreateIn, FallocateIn, ForgetIn, ForgetOne, FsyncIn, GetAttrIn,
    GetXattrIn, InHeader, IoctlIn, LinkIn, LseekIn, MkdirIn, MknodIn, OpenIn, ReadIn, Rename2In,
    RenameIn, SetAttrIn, SetXattrIn, WriteIn,
};

/// A request that does not hold what its operation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("request {unique:?} (operation {opcode}, {len} bytes): {what}")]
pub struct Malformed {
    /// Its number, for the reply; `None` if there is not even a header.
    pub unique: Option<u64>,
    /// Its operation, or 0.
    pub opcode: u32,
    /// Its length.
    pub len: usize,
    /// What is wrong.
    pub what: &'static str,
}

/// `O_APPEND` among the flags of open(2).
const APPEND: u32 = 0o2000;
const _: () = assert!(APPEND.cast_signed() == libc::O_APPEND);

/// What is left of a request's bytes.
struct Rest<'a>(&'a [u8]);

type Parsed<T> = Result<T, &'static str>;

impl<'a> Rest<'a> {
    /// The next record.
    fn record<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Parsed<&'a T> {
        let (record, rest) = T::ref_from_prefix(self.0).map_err(|_| "too short for its record")?;
        self.0 = rest;
        Ok(record)
    }

    /// The next string: it ends with a zero byte.
    fn string(&mut self) -> Parsed<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0);
        let (string, rest) = self.0.split_at(end.ok_or("a name without end")?);
        self.0 = &rest[1..];
        Ok(string)
    }

    /// The next name: a string that is not empty.
    fn name(&mut self) -> Parsed<&'a [u8]> {
        match self.string()? {
            [] => Err("an empty name"),
            name => Ok(name),
        }
    }

    /// The next `len` bytes.
    fn bytes(&mut self, len: u32) -> Parsed<&'a [u8]> {
        let len = usize::try_from(len).map_err(|_| "too long")?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or("fewer data than said")?;
        self.0 = rest;
        Ok(bytes)
    }

    fn forgets(&mut self, count: u32) -> Parsed<&'a [ForgetOne]> {
        let count = usize::try_from(count).map_err(|_| "too many")?;
        let (all, rest) = <[ForgetOne]>::ref_from_prefix_with_elems(self.0, count)
            .map_err(|_| "fewer nodes than said")?;
        self.0 = rest;
        Ok(all)
    }
}

/// Reads one request. `bytes` must begin at a multiple of 8.
///
/// # Errors
/// [`Malformed`]; also for bytes at another address.
pub fn parse(bytes: &[u8]) -> Result<Request<'_>, Malformed> {
    let malformed = |header: Option<&InHeader>, what| Malformed {
        unique: header.map(|header| header.unique),
        opcode: header.map_or(0, |header| header.opcode),
        len: bytes.len(),
        what,
    };
    let mut rest = Rest(bytes);
    let header: &InHeader = rest.record().map_err(|what| malformed(None, what))?;
    if usize::try_from(header.len) != Ok(bytes.len()) {
        return Err(malformed(Some(header), "not as long as it says"));
    }
    let extensions = usize::from(header.extensions) * 8;
    let Some(len) = rest.0.len().checked_sub(extensions) else {
        return Err(malformed(Some(header), "extensions longer than itself"));
    };
    rest.0 = &rest.0[..len];
    let operation = names(header.opcode, &mut rest);
    let operation = operation.map_err(|what| malformed(Some(header), what))?;
    Ok(Request {
        unique: header.unique,
        node: header.node,
        uid: header.uid,
        gid: header.gid,
        pid: header.pid,
        operation,
    })
}

/// Requests about names; others are passed on.
fn names<'a>(opcode: u32, rest: &mut Rest<'a>) -> Parsed<Operation<'a>> {
    Ok(match opcode {
        op::LOOKUP => Operation::Lookup(rest.name()?),
        op::SYMLINK => Operation::Symlink {
            name: rest.name()?,
            target: rest.string()?,
        },
        op::MKNOD => {
            let made: &MknodIn = rest.record()?;
            Operation::Create {
                name: rest.name()?,
                mode: made.mode,
                umask: made.umask,
                rdev: made.rdev,
            }
        }
        op::MKDIR => {
            let made: &MkdirIn = rest.record()?;
            Operation::MakeDirectory {
                name: rest.name()?,
                mode: made.mode,
                umask: made.umask,
            }
        }
        op::TMPFILE => {
            // The kernel sends some name too; it means nothing.
            let made: &CreateIn = rest.record()?;
            Operation::CreateUnnamed {
                mode: made.mode,
                umask: made.umask,
            }
        }
        op::UNLINK => Operation::Unlink(rest.name()?),
        op::RMDIR => Operation::RemoveDirectory(rest.name()?),
        op::RENAME => {
            let to: &RenameIn = rest.record()?;
            rename(to.to, 0, rest)?
        }
        op::RENAME2 => {
            let to: &Rename2In = rest.record()?;
            rename(to.to, to.flags, rest)?
        }
        op::LINK => {
            let link: &LinkIn = rest.record()?;
            Operation::Link {
                node: link.node,
                name: rest.name()?,
            }
        }
        other => return content(other, rest),
    })
}

fn rename<'a>(to: u64, flags: u32, rest: &mut Rest<'a>) -> Parsed<Operation<'a>> {
    Ok(Operation::Rename {
        name: rest.name()?,
        to,
        to_name: rest.name()?,
        flags,
    })
}

fn ioctl<'a>(rest: &mut Rest<'a>) -> Parsed<Operation<'a>> {
    let asked: &IoctlIn = rest.record()?;
    Ok(Operation::Ioctl {
        command: asked.command,
        data: rest.bytes(asked.in_size)?,
        size: asked.out_size,
    })
}

/// Requests about content, of files and of directories; others are passed on.
fn content<'a>(opcode: u32, rest: &mut Rest<'a>) -> Parsed<Operation<'a>> {
    Ok(match opcode {
        op::READ => {
            let read: &ReadIn = rest.record()?;
            Operation::Read {
                offset: read.offset,
                size: read.size,
                cached: read.read_flags & op::READ_LOCK_OWNER == 0,
            }
        }
        op::WRITE => {
            let write: &WriteIn = rest.record()?;
            Operation::Write {
                offset: write.offset,
                data: rest.bytes(write.size)?,
                cached: write.write_flags & op::WRITE_CACHE != 0,
                drops_set_id: write.write_flags & op::WRITE_KILL_SUIDGID != 0,
                appends: write.flags & APPEND != 0,
            }
        }
        op::READDIR | op::READDIRPLUS => {
            let read: &ReadIn = rest.record()?;
            Operation::ReadDirectory {
                position: read.offset,
                size: read.size,
                form: if opcode == op::READDIR {
                    ListForm::Names
                } else {
                    ListForm::Attributes
                },
            }
        }
        op::FSYNC => {
            let fsync: &FsyncIn = rest.record()?;
            Operation::Fsync {
                data_only: fsync.flags & op::FSYNC_FDATASYNC != 0,
            }
        }
        op::FSYNCDIR => Operation::FsyncDirectory,
        op::FALLOCATE => {
            let range: &FallocateIn = rest.record()?;
            Operation::Allocate {
                offset: range.offset,
                len: range.length,
                mode: range.mode,
            }
        }
        op::IOCTL => ioctl(rest)?,
        op::LSEEK => {
            let seek: &LseekIn = rest.record()?;
            Operation::Seek {
                offset: seek.offset,
                whence: seek.whence,
            }
        }
        op::COPY_FILE_RANGE | op::COPY_FILE_RANGE_64 => {
            let range: &CopyIn = rest.record()?;
            Operation::Copy {
                range,
                form: if opcode == op::COPY_FILE_RANGE {
                    CopyForm::Short
                } else {
                    CopyForm::Long
                },
            }
        }
        other => return attributes(other, rest),
    })
}

/// Requests about attributes, lookup counts and open files, and about the connection.
fn attributes<'a>(opcode: u32, rest: &mut Rest<'a>) -> Parsed<Operation<'a>> {
    Ok(match opcode {
        op::INIT => Operation::Init(rest.record()?, *rest.record().unwrap_or(&0)),
        op::DESTROY => Operation::Destroy,
        op::INTERRUPT => Operation::Interrupt,
        op::FORGET => {
            let forget: &ForgetIn = rest.record()?;
            Operation::Forget {
                lookups: forget.lookups,
            }
        }
        op::BATCH_FORGET => {
            let batch: &BatchForgetIn = rest.record()?;
            Operation::BatchForget(rest.forgets(batch.count)?)
        }
        op::GETATTR => Operation::GetAttr {
            has_handle: rest
                .record::<GetAttrIn>()
                .is_ok_and(|asked| asked.flags & op::GETATTR_FH != 0),
        },
        op::STATX => Operation::Statx,
        op::SETATTR => Operation::SetAttr(rest.record::<SetAttrIn>()?),
        op::READLINK => Operation::ReadLink,
        op::STATFS => Operation::Statistics,
        op::SYNCFS => Operation::SyncAll,
        op::SETXATTR => {
            let set: &SetXattrIn = rest.record()?;
            Operation::SetXattr {
                name: rest.name()?,
                value: rest.bytes(set.size)?,
                flags: set.flags,
                drops_set_gid: set.set_flags & op::SETXATTR_ACL_KILL_SGID != 0,
            }
        }
        op::GETXATTR => {
            let get: &GetXattrIn = rest.record()?;
            Operation::GetXattr {
                name: rest.name()?,
                size: get.size,
            }
        }
        op::LISTXATTR => {
            let list: &GetXattrIn = rest.record()?;
            Operation::ListXattr { size: list.size }
        }
        op::REMOVEXATTR => Operation::RemoveXattr(rest.name()?),
        op::OPEN => Operation::Open {
            flags: rest.record::<OpenIn>()?.flags,
        },
        op::OPENDIR => Operation::OpenDirectory,
        op::RELEASE => Operation::Release(rest.record()?),
        op::RELEASEDIR => Operation::ReleaseDirectory,
        other => Operation::Unserved(other),
    })
}

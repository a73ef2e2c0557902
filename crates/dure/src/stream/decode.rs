//! What the bytes of a record say.
//!
//! **Invariants.** What [`decode`] returns is checked: paths have names that can be, offsets and sizes
//! are those that a file can have, nothing is left over. It allocates nothing but names of snapshots and
//! the list of extended attributes. **Crash.** Nothing.

use dure_fs::format::name::{FileKind, check_name};
use dure_fs::units::BLOCK_BYTES_U64;
use dure_sync::clock::Timestamp;

use super::fault::Fault;
use super::format::{
    Attributes, Begin, DATA_MAX, Identity, Make, PATH_BYTES_MAX, Record, SNAPSHOT_NAME_MAX,
    XATTRS_MAX,
};

/// What is left of a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a>(pub(super) &'a [u8]);

const SHORT: Fault = Fault::Malformed("it is too short");

impl<'a> Cursor<'a> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(SHORT)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let taken = self.take(N)?;
        Ok(taken.try_into().expect("as many as were asked for"))
    }

    pub(super) fn byte(&mut self) -> Result<u8, Fault> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn half(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn word(&mut self) -> Result<u64, Fault> {
        self.array().map(u64::from_le_bytes)
    }

    fn string(&mut self) -> Result<&'a [u8], Fault> {
        let len = usize::try_from(self.half()?).map_err(|_| SHORT)?;
        self.take(len)
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub(super) fn identity(&mut self) -> Result<Identity, Fault> {
        Ok(Identity {
            volume: self.array()?,
            id: self.word()?,
            created: self.array().map(i64::from_le_bytes)?,
            checkpoint: self.word()?,
        })
    }

    pub(super) fn snapshot_name(&mut self) -> Result<String, Fault> {
        let name = std::str::from_utf8(self.string()?).ok();
        let name = name.filter(|name| (1..=SNAPSHOT_NAME_MAX).contains(&name.len()));
        let name = name.ok_or(Fault::Malformed("the name of a snapshot cannot be"))?;
        Ok(name.to_owned())
    }

    fn time(&mut self) -> Result<Timestamp, Fault> {
        let secs = self.array().map(i64::from_le_bytes)?;
        let nanos = self.half()?;
        if nanos >= 1_000_000_000 {
            return Err(Fault::Malformed("nanoseconds beyond a second"));
        }
        Ok(Timestamp { secs, nanos })
    }
}

/// A path of one name or more.
fn path(bytes: &[u8]) -> Result<&[u8], Fault> {
    if bytes.len() > PATH_BYTES_MAX {
        return Err(Fault::Malformed("a path is too long"));
    }
    let mut names = bytes.split(|byte| *byte == b'/');
    match names.all(|name| check_name(name).is_ok()) {
        true => Ok(bytes),
        false => Err(Fault::Malformed("a path has a name that cannot be")),
    }
}

/// A range that a file can have.
fn range(offset: u64, len: u64) -> Result<(u64, u64), Fault> {
    let end = offset.checked_add(len);
    match end.is_some_and(|end| len > 0 && end <= dure_fs::FILE_BYTES_MAX) {
        true => Ok((offset, len)),
        false => Err(Fault::Malformed("a range that no file has")),
    }
}

/// What the record of this kind says.
pub(super) fn decode(kind: u16, payload: &[u8]) -> Result<Record<'_>, Fault> {
    let mut from = Cursor(payload);
    let record = match kind {
        1 => Record::Begin(begin(&mut from)?),
        2 => Record::Away {
            path: path(from.rest())?,
        },
        4 => Record::Place {
            of: path(from.string()?)?,
            path: path(from.rest())?,
        },
        3 => Record::Remove {
            path: path(from.rest())?,
        },
        5 => Record::Make(make(&mut from)?),
        6 => Record::Link {
            of: path(from.string()?)?,
            path: path(from.rest())?,
        },
        7 => Record::Select {
            path: match from.rest() {
                [] => &[],
                whole => path(whole)?,
            },
        },
        8 => {
            let (offset, bytes) = (from.word()?, from.rest());
            if bytes.len() > DATA_MAX {
                return Err(Fault::Malformed("too much data"));
            }
            range(offset, bytes.len() as u64)?;
            Record::Data { offset, bytes }
        }
        9 => {
            let (offset, len) = range(from.word()?, from.word()?)?;
            if (offset | len) % BLOCK_BYTES_U64 != 0 {
                return Err(Fault::Malformed("a hole of other than whole pages"));
            }
            Record::Hole { offset, len }
        }
        10 if payload.len() > XATTRS_MAX => {
            return Err(Fault::Malformed("more attributes than an inode has"));
        }
        10 => {
            let mut all = Vec::new();
            while !from.0.is_empty() {
                all.push((from.string()?, from.string()?));
            }
            Record::Xattrs(all)
        }
        11 => Record::Attributes(attributes(&mut from)?),
        12 => Record::End {
            records: from.word()?,
        },
        13 => Record::Failed {
            message: from.rest(),
        },
        14 => Record::Project { id: from.half()? },
        _ => return Err(Fault::Malformed("this dure does not know such records")),
    };
    match from.0 {
        [] => Ok(record),
        _ => Err(Fault::Malformed("it is too long")),
    }
}

fn begin(from: &mut Cursor<'_>) -> Result<Begin, Fault> {
    let (snapshot, name) = (from.identity()?, from.snapshot_name()?);
    let base = match from.byte()? {
        0 => None,
        1 => Some((from.identity()?, from.snapshot_name()?)),
        _ => return Err(Fault::Malformed("neither with nor without a base")),
    };
    Ok(Begin {
        snapshot,
        name,
        base,
    })
}

fn make<'a>(from: &mut Cursor<'a>) -> Result<Make<'a>, Fault> {
    let rdev = from.word()?;
    let (mode, uid, gid) = (from.half()?, from.half()?, from.half()?);
    let kind = FileKind::from_code(from.byte()?);
    let kind = kind.ok_or(Fault::Malformed("a type of inode that is none"))?;
    let (path, target) = (path(from.string()?)?, from.rest());
    if (kind == FileKind::Symlink) == target.is_empty() {
        return Err(Fault::Malformed("symbolic links have a target"));
    }
    Ok(Make {
        kind,
        mode,
        uid,
        gid,
        rdev,
        path,
        target,
    })
}

fn attributes(from: &mut Cursor<'_>) -> Result<Attributes, Fault> {
    let size = from.word()?;
    if size > dure_fs::FILE_BYTES_MAX {
        return Err(Fault::Malformed("a size that no file has"));
    }
    let (accessed, modified) = (from.time()?, from.time()?);
    Ok(Attributes {
        size,
        accessed,
        modified,
        mode: from.half()?,
        uid: from.half()?,
        gid: from.half()?,
    })
}

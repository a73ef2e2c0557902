//! The calls on a mounted dure volume.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;

use dure::{
    Access, AllocateMode, Credentials, Error, File, FileKind, FileTimes, Metadata, OpenOptions,
    RenameMode, Seek, Session, Special, TimeChange, Timestamp, Volume, XattrMode,
};
use rustix::io::Errno;

use crate::model::node::{AllocateKind, Kind, RenameKind, XattrKind};
use crate::model::operation::{
    Answer, Flags, Operation, Outcome, SLOTS, Stat, Step, Whence, pattern,
};
use crate::model::permission::Who;

/// A mounted volume as the three users see it.
#[derive(Debug)]
pub struct Mounted {
    pub(super) volume: Volume,
    sessions: [Session; 3],
    slots: [Option<File>; SLOTS],
}

fn errno(error: &Error) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

fn done(result: dure::Result<()>) -> Outcome {
    result.map(|()| Answer::Done).map_err(|error| errno(&error))
}

/// The kind in the model's words.
#[must_use]
pub fn kind_of(kind: FileKind) -> Kind {
    match kind {
        FileKind::File => Kind::File,
        FileKind::Directory => Kind::Directory,
        FileKind::Symlink => Kind::Symlink,
        FileKind::Fifo => Kind::Fifo,
        FileKind::Socket => Kind::Socket,
        FileKind::CharacterDevice => Kind::Character,
        FileKind::BlockDevice => Kind::Block,
    }
}

/// What `stat` says in the model's words.
#[must_use]
pub fn stat_of(metadata: &Metadata) -> Stat {
    let kind = kind_of(metadata.kind());
    let sized = matches!(kind, Kind::File | Kind::Symlink);
    let time = metadata.modified();
    Stat {
        kind,
        mode: metadata.mode(),
        nlink: metadata.nlink(),
        uid: metadata.uid(),
        gid: metadata.gid(),
        size: if sized { metadata.len() } else { 0 },
        rdev: metadata.rdev(),
        mtime: Some((time.secs, time.nanos)),
    }
}

fn options(flags: Flags, mode: u32) -> OpenOptions {
    OpenOptions::new()
        .read(flags.read)
        .write(flags.write)
        .append(flags.append)
        .create(flags.create)
        .create_new(flags.create && flags.exclusive)
        .truncate(flags.truncate)
        .directory(flags.directory)
        .no_follow(flags.no_follow)
        .mode(mode)
}

impl Mounted {
    /// The three users with the root (and start) of `session`.
    #[must_use]
    pub fn new(session: &Session) -> Mounted {
        let of = |who: Who| {
            let caller = match who {
                Who::Root => Credentials::root(),
                _ => Credentials::user(who.uid(), who.groups()[0], &who.groups()[1..]),
            };
            session.with_credentials(caller.with_umask(0))
        };
        Mounted {
            volume: session.volume().clone(),
            sessions: [of(Who::Root), of(Who::Alice), of(Who::Bob)],
            slots: Default::default(),
        }
    }

    /// The super user's session.
    #[must_use]
    pub fn root(&self) -> &Session {
        &self.sessions[0]
    }

    fn session(&self, who: Who) -> &Session {
        match who {
            Who::Root => &self.sessions[0],
            Who::Alice => &self.sessions[1],
            Who::Bob => &self.sessions[2],
        }
    }

    fn slot(&self, slot: usize) -> Result<&File, Errno> {
        self.slots[slot].as_ref().ok_or(Errno::BADF)
    }

    /// Another descriptor of the open file in `slot`.
    #[must_use]
    pub fn share(&self, slot: usize) -> Option<File> {
        self.slots[slot].as_ref().map(File::try_clone)
    }

    /// Puts an open file into `slot`.
    pub fn adopt(&mut self, slot: usize, file: File) {
        self.slots[slot] = Some(file);
    }

    fn open(&mut self, slot: usize, opened: dure::Result<File>) -> Outcome {
        self.slots[slot] = Some(opened.map_err(|error| errno(&error))?);
        Ok(Answer::Done)
    }

    /// Does one call other than `Remount` and `Crash`.
    ///
    /// # Errors
    /// What the call gives its caller.
    ///
    /// # Panics
    /// On `Remount` and `Crash`.
    pub fn apply(&mut self, step: &Step) -> Outcome {
        let who = step.who;
        match &step.operation {
            Operation::Open {
                slot,
                path,
                flags,
                mode,
            } => {
                self.slots[*slot] = None;
                let opened = options(*flags, *mode).open(self.session(who), path);
                self.open(*slot, opened)
            }
            Operation::Temporary { slot, path, mode } => {
                self.slots[*slot] = None;
                let opened = self.session(who).temporary(path, *mode);
                self.open(*slot, opened)
            }
            Operation::Close { slot } => {
                self.slot(*slot)?;
                self.slots[*slot] = None;
                Ok(Answer::Done)
            }
            Operation::LinkSlot { slot, path } => {
                done(self.session(who).link_file(self.slot(*slot)?, path))
            }
            Operation::Sync => done(self.volume.sync()),
            Operation::Read { .. }
            | Operation::Write { .. }
            | Operation::ReadNext { .. }
            | Operation::WriteNext { .. }
            | Operation::Seek { .. }
            | Operation::Truncate { .. }
            | Operation::Allocate { .. }
            | Operation::StatSlot { .. }
            | Operation::Fsync { .. } => self.apply_file(&step.operation),
            _ => self.apply_path(who, &step.operation),
        }
    }

    fn apply_file(&self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Read { slot, offset, len } => read(*len, |bytes| {
                self.slot(*slot)?
                    .read_at(bytes, *offset)
                    .map_err(|error| errno(&error))
            }),
            Operation::ReadNext { slot, len } => read(*len, |bytes| {
                self.slot(*slot)?
                    .read_next(bytes)
                    .map_err(|error| errno(&error))
            }),
            Operation::Write {
                slot,
                offset,
                len,
                fill,
            } => count(self.slot(*slot)?.write_at(&pattern(*fill, *len), *offset)),
            Operation::WriteNext { slot, len, fill } => {
                count(self.slot(*slot)?.write_next(&pattern(*fill, *len)))
            }
            Operation::Seek {
                slot,
                whence,
                offset,
            } => seek(self.slot(*slot)?, *whence, *offset),
            Operation::Truncate { slot, size } => done(self.slot(*slot)?.set_len(*size)),
            Operation::Allocate {
                slot,
                kind,
                offset,
                len,
            } => {
                let mode = match kind {
                    AllocateKind::Extend => AllocateMode::Extend,
                    AllocateKind::KeepSize => AllocateMode::KeepSize,
                    AllocateKind::Punch => AllocateMode::Punch,
                    AllocateKind::Zero => AllocateMode::Zero,
                };
                done(self.slot(*slot)?.allocate(mode, *offset, *len))
            }
            Operation::StatSlot { slot } => {
                let metadata = self
                    .slot(*slot)?
                    .metadata()
                    .map_err(|error| errno(&error))?;
                Ok(Answer::Stat(stat_of(&metadata)))
            }
            Operation::Fsync {
                slot,
                data_only: true,
            } => done(self.slot(*slot)?.sync_data()),
            Operation::Fsync {
                slot,
                data_only: false,
            } => done(self.slot(*slot)?.sync_all()),
            other => unreachable!("{other:?} is not about an open file"),
        }
    }

    fn apply_path(&self, who: Who, operation: &Operation) -> Outcome {
        let session = self.session(who);
        match operation {
            Operation::Mkdir { path, mode } => done(session.create_dir_with_mode(path, *mode)),
            Operation::Mknod { path, kind, mode } => {
                let special = match kind {
                    Kind::Fifo => Special::Fifo,
                    Kind::Socket => Special::Socket,
                    Kind::Character => Special::CharacterDevice(0x0103),
                    Kind::Block => Special::BlockDevice(0x0103),
                    _ => Special::File,
                };
                done(session.mknod(path, special, *mode))
            }
            Operation::Symlink { target, path } => done(session.symlink(target, path)),
            Operation::Link { from, to } => done(session.hard_link(from, to)),
            Operation::Unlink { path } => done(session.remove_file(path)),
            Operation::Rmdir { path } => done(session.remove_dir(path)),
            Operation::Rename { from, to, kind } => {
                let mode = match kind {
                    RenameKind::Replace => RenameMode::Replace,
                    RenameKind::NoReplace => RenameMode::NoReplace,
                    RenameKind::Exchange => RenameMode::Exchange,
                };
                done(session.rename_with(from, to, mode))
            }
            Operation::TruncatePath { path, size } => done(session.truncate(path, *size)),
            Operation::Chmod { path, mode } => done(session.set_permissions(path, *mode)),
            Operation::Chown {
                path,
                uid,
                gid,
                follow: true,
            } => done(session.chown(path, *uid, *gid)),
            Operation::Chown {
                path,
                uid,
                gid,
                follow: false,
            } => done(session.lchown(path, *uid, *gid)),
            Operation::SetTime { path, secs, nanos } => {
                let time = Timestamp {
                    secs: *secs,
                    nanos: *nanos,
                };
                let modified = TimeChange::Set(time);
                done(session.set_times(
                    path,
                    FileTimes {
                        modified,
                        ..FileTimes::default()
                    },
                ))
            }
            Operation::Access { path, want } => {
                done(session.access(path, Access::from_bits(*want)))
            }
            Operation::GetXattr { path, name } => {
                let value = session.get_xattr(path, name.as_bytes());
                value
                    .map_err(|error| errno(&error))?
                    .map(Answer::Bytes)
                    .ok_or(Errno::NODATA)
            }
            _ => ask_path(session, operation).map_err(|error| errno(&error)),
        }
    }
}

/// Calls on a path that return more than success.
fn ask_path(session: &Session, operation: &Operation) -> dure::Result<Answer> {
    Ok(match operation {
        Operation::ReadLink { path } => {
            Answer::Bytes(session.read_link(path)?.as_os_str().as_bytes().to_vec())
        }
        Operation::Stat { path, follow: true } => Answer::Stat(stat_of(&session.metadata(path)?)),
        Operation::Stat {
            path,
            follow: false,
        } => Answer::Stat(stat_of(&session.symlink_metadata(path)?)),
        Operation::ReadDirectory { path } => {
            let entries = session.read_dir(path)?.map(|entry| {
                let entry = entry?;
                Ok((entry.file_name().as_bytes().to_vec(), kind_of(entry.kind())))
            });
            Answer::Names(entries.collect::<dure::Result<_>>()?)
        }
        Operation::SetXattr {
            path,
            name,
            len,
            fill,
            kind,
        } => {
            let mode = match kind {
                XattrKind::Any => XattrMode::Any,
                XattrKind::Create => XattrMode::Create,
                XattrKind::Replace => XattrMode::Replace,
            };
            let value = pattern(*fill, u64::try_from(*len).expect("64 bits"));
            session.set_xattr(path, name.as_bytes(), &value, mode)?;
            Answer::Done
        }
        Operation::RemoveXattr { path, name } => {
            session.remove_xattr(path, name.as_bytes())?;
            Answer::Done
        }
        Operation::ListXattr { path } => Answer::List(
            session
                .list_xattr(path)?
                .into_iter()
                .collect::<BTreeSet<_>>(),
        ),
        other => unreachable!("{other:?} was matched before"),
    })
}

fn read(len: u64, read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) -> Outcome {
    let mut bytes = vec![0xee; usize::try_from(len).expect("a test reads little")];
    let count = read(&mut bytes)?;
    bytes.truncate(count);
    Ok(Answer::Bytes(bytes))
}

fn count(result: dure::Result<usize>) -> Outcome {
    let count = result.map_err(|error| errno(&error))?;
    Ok(Answer::Number(u64::try_from(count).expect("64 bits")))
}

fn seek(file: &File, whence: Whence, offset: i64) -> Outcome {
    let seek = match (whence, u64::try_from(offset)) {
        (Whence::Current, _) => Seek::Current(offset),
        (Whence::End, _) => Seek::End(offset),
        (Whence::Set, Ok(offset)) => Seek::Set(offset),
        (Whence::Data, Ok(offset)) => Seek::Data(offset),
        (Whence::Hole, Ok(offset)) => Seek::Hole(offset),
        (Whence::Set, Err(_)) => return Err(Errno::INVAL),
        (Whence::Data | Whence::Hole, Err(_)) => return Err(Errno::NXIO),
    };
    file.seek_to(seek)
        .map(Answer::Number)
        .map_err(|error| errno(&error))
}

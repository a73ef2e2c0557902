//! The `fuser` crate as transport: its callbacks, types and replies on one side, [`Server`] on the
//! other.
//!
//! Not carried by fuser 0.18: `O_TMPFILE` (the kernel answers EOPNOTSUPP; the library offers it), statx
//! birth times, syncfs.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dure_fs::format::inode::Time;
use dure_fs::{FileKind, NewInode, SetTime, Stamp, SyncScope};
use fuser::{
    CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use crate::server::{Attr, Entry, Server, SetAttr};

/// How long the kernel may believe a name: everything that changes one goes through the kernel.
const ENTRY_TTL: Duration = Duration::from_secs(60);
/// How long it may believe attributes: block counts change behind its back at write-back.
const ATTR_TTL: Duration = Duration::from_secs(1);
/// Largest READ and WRITE.
const IO_BYTES: u32 = 1 << 20;

/// Adapts a [`Server`] to fuser.
#[derive(Debug)]
pub struct Transport {
    server: Server,
}

impl Transport {
    /// Carries requests to `server`.
    #[must_use]
    pub fn new(server: Server) -> Transport {
        Transport { server }
    }
}

fn system_time(at: Time) -> SystemTime {
    let nanos = Duration::from_nanos(u64::from(at.nanos.get()));
    let secs = Duration::from_secs(at.secs.get().unsigned_abs());
    if at.secs.get() >= 0 {
        UNIX_EPOCH + secs + nanos
    } else {
        UNIX_EPOCH - secs + nanos
    }
}

fn time_of(at: SystemTime) -> Time {
    let time = |secs: i64, nanos: u32| Time {
        secs: secs.into(),
        nanos: nanos.into(),
    };
    match at.duration_since(UNIX_EPOCH) {
        Ok(since) => time(
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            since.subsec_nanos(),
        ),
        Err(before) => {
            let before = before.duration();
            let secs = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            match before.subsec_nanos() {
                0 => time(-secs, 0),
                nanos => time(-secs - 1, 1_000_000_000 - nanos),
            }
        }
    }
}

fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Directory => FileType::Directory,
        FileKind::File => FileType::RegularFile,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::CharacterDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Socket => FileType::Socket,
    }
}

fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: system_time(attr.btime),
        kind: file_type(attr.kind),
        perm: attr.permissions,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: 4096,
        flags: 0,
    }
}

fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(at) => SetTime::At(time_of(at)),
    }
}

fn reply_entry(reply: ReplyEntry, answer: Result<Entry, i32>) {
    match answer {
        Ok(entry) => {
            let attr = file_attr(&entry.attr);
            let generation = Generation(entry.attr.generation.into());
            reply.entry_with_ttls(&ATTR_TTL, &ENTRY_TTL, &attr, generation);
        }
        Err(errno) => reply.error(Errno::from_i32(errno)),
    }
}

fn reply_empty(reply: ReplyEmpty, answer: Result<(), i32>) {
    match answer {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(Errno::from_i32(errno)),
    }
}

fn reply_attr(reply: ReplyAttr, answer: Result<Attr, i32>) {
    match answer {
        Ok(attr) => reply.attr(&ATTR_TTL, &file_attr(&attr)),
        Err(errno) => reply.error(Errno::from_i32(errno)),
    }
}

fn reply_sized(reply: ReplyXattr, size: u32, value: &[u8]) {
    let len = u32::try_from(value.len()).expect("attributes are at most 128 KiB");
    if size == 0 {
        reply.size(len);
    } else if len > size {
        reply.error(Errno::ERANGE);
    } else {
        reply.data(value);
    }
}

impl Filesystem for Transport {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_WRITEBACK_CACHE
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_POSIX_ACL
            | InitFlags::FUSE_DONT_MASK
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_NO_OPEN_SUPPORT
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_MAX_PAGES;
        let offered = config.capabilities();
        config
            .add_capabilities(wanted & offered)
            .map_err(|missing| {
                io::Error::other(format!(
                    "the kernel refused {missing:?} although it offered them"
                ))
            })?;
        // An older kernel may allow less; what it allows is taken.
        if let Err(most) = config.set_max_write(IO_BYTES) {
            config
                .set_max_write(most)
                .map_err(|_| io::Error::other("no size for writes"))?;
        }
        Ok(())
    }

    fn destroy(&mut self) {
        self.server.forget_all();
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.server.lookup(parent.0, name.as_bytes()) {
            Ok(Some(entry)) => reply_entry(reply, Ok(entry)),
            Ok(None) => reply.error(Errno::ENOENT),
            Err(errno) => reply.error(Errno::from_i32(errno)),
        }
    }

    fn forget(&self, _request: &Request, ino: INodeNo, count: u64) {
        self.server.forget(ino.0, count);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply_attr(reply, self.server.attributes(ino.0));
    }

    fn setattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = SetAttr {
            mode,
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
            ctime: ctime.map(time_of),
        };
        reply_attr(reply, self.server.set_attributes(ino.0, &set));
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        match self.server.read_link(ino.0) {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(Errno::from_i32(errno)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let created = NewInode {
            mode,
            umask,
            uid: request.uid(),
            gid: request.gid(),
            rdev: rdev.into(),
        };
        reply_entry(
            reply,
            self.server.create(parent.0, name.as_bytes(), &created),
        );
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let created = NewInode {
            mode,
            umask,
            uid: request.uid(),
            gid: request.gid(),
            rdev: 0,
        };
        reply_entry(
            reply,
            self.server.mkdir(parent.0, name.as_bytes(), &created),
        );
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: fuser::ReplyCreate,
    ) {
        let created = NewInode {
            mode,
            umask,
            uid: request.uid(),
            gid: request.gid(),
            rdev: 0,
        };
        match self.server.create(parent.0, name.as_bytes(), &created) {
            Ok(entry) => {
                let generation = Generation(entry.attr.generation.into());
                let flags = FopenFlags::FOPEN_KEEP_CACHE;
                let attr = file_attr(&entry.attr);
                reply.created(&ATTR_TTL, &attr, generation, FileHandle(0), flags);
            }
            Err(errno) => reply.error(Errno::from_i32(errno)),
        }
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.server.unlink(parent.0, name.as_bytes()));
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.server.rmdir(parent.0, name.as_bytes()));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (uid, gid) = (request.uid(), request.gid());
        let created = NewInode {
            mode: 0o120_777,
            umask: 0,
            uid,
            gid,
            rdev: 0,
        };
        let target = target.as_os_str().as_bytes();
        reply_entry(
            reply,
            self.server
                .symlink(parent.0, name.as_bytes(), target, &created),
        );
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let from = (parent.0, name.as_bytes());
        let to = (newparent.0, newname.as_bytes());
        reply_empty(reply, self.server.rename(from, to, flags.bits()));
    }

    fn link(
        &self,
        _request: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        reply_entry(
            reply,
            self.server.link(ino.0, newparent.0, newname.as_bytes()),
        );
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // Nothing to do at open and release: ENOSYS makes the kernel stop asking, and keep its cache.
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut data = vec![0; usize::try_from(size).expect("u32 fits usize")];
        match self.server.read(ino.0, offset, &mut data) {
            Ok(got) => reply.data(&data[..got]),
            Err(errno) => reply.error(Errno::from_i32(errno)),
        }
    }

    fn write(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        _open_flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let cached = flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let stamp = if cached { Stamp::Keep } else { Stamp::Set };
        match self.server.write(ino.0, offset, data, stamp) {
            Ok(put) => reply.written(u32::try_from(put).expect("at most what was asked")),
            Err(errno) => reply.error(Errno::from_i32(errno)),
        }
    }

    fn flush(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // close(2) promises nothing; ENOSYS makes the kernel stop asking.
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, data: bool, reply: ReplyEmpty) {
        let scope = if data {
            SyncScope::Data
        } else {
            SyncScope::All
        };
        reply_empty(reply, self.server.fsync(ino.0, scope));
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _data: bool, reply: ReplyEmpty) {
        reply_empty(reply, self.server.fsync(ino.0, SyncScope::All));
    }

    fn readdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        match self.server.read_directory(ino.0, offset) {
            Ok(listed) => {
                for entry in listed {
                    let name = OsStr::from_bytes(&entry.name);
                    let kind = file_type(entry.kind);
                    if reply.add(INodeNo(entry.ino), entry.cookie, kind, name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(errno) => reply.error(Errno::from_i32(errno)),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = match self.server.read_directory(ino.0, offset) {
            Ok(listed) => listed,
            Err(errno) => return reply.error(Errno::from_i32(errno)),
        };
        for entry in listed {
            let dot = entry.name == b"." || entry.name == b"..";
            let found = if dot {
                self.server.dot_entry(&entry).map(Some)
            } else {
                self.server.listed_entry(&entry)
            };
            // A name that went away since, or cannot be read: the rest of the directory still can.
            let Ok(Some(node)) = found else { continue };
            let name = OsStr::from_bytes(&entry.name);
            let generation = Generation(node.attr.generation.into());
            let attr = file_attr(&node.attr);
            if reply.add(
                INodeNo(entry.ino),
                entry.cookie,
                name,
                &ENTRY_TTL,
                &attr,
                generation,
            ) {
                if !dot {
                    self.server.forget(entry.ino, 1);
                }
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let room = self.server.statistics();
        let (files, free) = (room.files, room.files_free);
        reply.statfs(
            room.blocks,
            room.free,
            room.available,
            files,
            free,
            4096,
            255,
            4096,
        );
    }

    fn setxattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        reply_empty(
            reply,
            self.server.set_xattr(ino.0, name.as_bytes(), value, flags),
        );
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        match self.server.xattr(ino.0, name.as_bytes()) {
            Ok(Some(value)) => reply_sized(reply, size, &value),
            Ok(None) => reply.error(Errno::ENODATA),
            Err(errno) => reply.error(Errno::from_i32(errno)),
        }
    }

    fn listxattr(&self, _request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        match self.server.xattr_names(ino.0) {
            Ok(names) => reply_sized(reply, size, &names),
            Err(errno) => reply.error(Errno::from_i32(errno)),
        }
    }

    fn removexattr(&self, _request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.server.remove_xattr(ino.0, name.as_bytes()));
    }

    fn fallocate(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        reply_empty(reply, self.server.allocate(ino.0, offset, length, mode));
    }

    fn lseek(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let answer = u64::try_from(offset).map_err(|_| libc::ENXIO);
        let answer = answer.and_then(|offset| self.server.seek(ino.0, offset, whence));
        match answer {
            Ok(at) => reply.offset(i64::try_from(at).expect("files are below 2^63 bytes")),
            Err(errno) => reply.error(Errno::from_i32(errno)),
        }
    }

    fn copy_file_range(
        &self,
        _request: &Request,
        ino_in: INodeNo,
        _handle_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        _handle_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The reply counts in 32 bits.
        let len = len.min(u64::from(u32::MAX) & !4095);
        match self
            .server
            .copy((ino_in.0, offset_in), (ino_out.0, offset_out), len)
        {
            Ok(done) => reply.written(u32::try_from(done).expect("bounded above")),
            Err(errno) => reply.error(Errno::from_i32(errno)),
        }
    }
}

//! Attributes, plain and extended, and the free space of the volume.

use dure_fs::format::inode::Time;
use dure_fs::{SetGid, SetTime};

use super::{BLOCK, Call, Outcome, Sent, done, mode, nanos, secs, wire_attr};
use crate::server::{Attr, Caller, Server, SetAttr};
use dure_fuse_wire::protocol::Request;
use dure_fuse_wire::protocol::opcode::setattr;
use dure_fuse_wire::protocol::reply::{AttrOut, GetXattrOut, StatfsOut, StatxOut, StatxTime};
use dure_fuse_wire::protocol::request::SetAttrIn;
use dure_fuse_wire::transport::buffer::Reply;

/// Longest name.
const NAME_BYTES: u32 = 255;

impl Call<'_> {
    pub(super) fn attributes(self, has_handle: bool) -> Outcome {
        if has_handle && self.server.refuses_writes(self.request.node) {
            return Err(libc::ENOSPC);
        }
        let attr = self.server.attributes(self.request.node)?;
        let valid = self.server.attr_seconds(&attr);
        self.put_attr(&attr, valid)
    }

    pub(super) fn statx(self) -> Outcome {
        let attr = self.server.attributes(self.request.node)?;
        self.reply.put(&statx(self.server, &attr));
        Ok(Sent::Reply)
    }

    pub(super) fn set_attributes(self, set: &SetAttrIn) -> Outcome {
        let (server, node) = (self.server, self.request.node);
        if set.valid & setattr::KILL_SUIDGID != 0 {
            server.drop_set_id(node, Caller::from(self.request))?;
        } else if set.valid & setattr::CHANGES == 0 {
            server.drop_set_id_of_own(node, Caller::from(self.request))?;
        }
        let changed = server.set_attributes(node, &changes(set))?;
        let valid = server.attr_seconds_of_entry(&changed);
        self.put_attr(&changed, valid)
    }

    fn put_attr(self, attr: &Attr, valid: u64) -> Outcome {
        self.reply.put(&AttrOut {
            valid,
            attr: wire_attr(attr),
            ..AttrOut::default()
        });
        Ok(Sent::Reply)
    }

    pub(super) fn set_xattr(
        self,
        (name, value): (&[u8], &[u8]),
        flags: u32,
        drops_set_gid: bool,
    ) -> Outcome {
        let flags = i32::try_from(flags).map_err(|_| libc::EINVAL)?;
        let set_gid = match drops_set_gid {
            true => SetGid::Drop,
            false => SetGid::Keep,
        };
        let node = self.request.node;
        done(self.server.set_xattr(node, (name, value), flags, set_gid))
    }

    pub(super) fn xattr(self, name: &[u8], size: u32) -> Outcome {
        let value = self.server.xattr(self.request.node, name)?;
        put_sized(self.reply, &value.ok_or(libc::ENODATA)?, size)
    }

    pub(super) fn xattr_names(self, size: u32) -> Outcome {
        let Request { node, uid, .. } = *self.request;
        put_sized(self.reply, &self.server.xattr_names(node, uid)?, size)
    }

    pub(super) fn statistics(self) -> Outcome {
        let room = self.server.statistics(self.request.node);
        self.reply.put(&StatfsOut {
            blocks: room.blocks,
            free: room.free,
            available: room.available,
            files: room.files,
            files_free: room.files_free,
            block_size: BLOCK,
            name_len: NAME_BYTES,
            fragment_size: BLOCK,
            ..StatfsOut::default()
        });
        Ok(Sent::Reply)
    }
}

/// A value, its length if `size` is 0, or ERANGE.
fn put_sized(reply: &mut Reply, value: &[u8], size: u32) -> Outcome {
    let len = u32::try_from(value.len()).map_err(|_| libc::E2BIG)?;
    if size == 0 {
        reply.put(&GetXattrOut {
            size: len,
            reserved: 0,
        });
    } else if len > size {
        return Err(libc::ERANGE);
    } else {
        reply.fill(value.len(), |room| {
            room.copy_from_slice(value);
            Ok(value.len())
        })?;
    }
    Ok(Sent::Reply)
}

fn changes(set: &SetAttrIn) -> SetAttr {
    let has = |flag| set.valid & flag != 0;
    let at = |secs: i64, nanos: u32| Time {
        secs: secs.into(),
        nanos: nanos.into(),
    };
    let stamp = |flag, now, time| match (has(flag), has(now)) {
        (_, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::At(time)),
        (false, false) => None,
    };
    SetAttr {
        mode: has(setattr::MODE).then_some(set.mode),
        uid: has(setattr::UID).then_some(set.uid),
        gid: has(setattr::GID).then_some(set.gid),
        size: has(setattr::SIZE).then_some(set.size),
        atime: stamp(
            setattr::ATIME,
            setattr::ATIME_NOW,
            at(set.atime, set.atime_nanos),
        ),
        mtime: stamp(
            setattr::MTIME,
            setattr::MTIME_NOW,
            at(set.mtime, set.mtime_nanos),
        ),
        ctime: has(setattr::CTIME).then(|| at(set.ctime, set.ctime_nanos)),
    }
}

fn statx(server: &Server, attr: &Attr) -> StatxOut {
    let time = |at: Time| StatxTime {
        secs: secs(at),
        nanos: nanos(at),
        reserved: 0,
    };
    StatxOut {
        valid: server.attr_seconds(attr),
        mask: libc::STATX_BASIC_STATS | libc::STATX_BTIME,
        block_size: BLOCK,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        mode: u16::try_from(mode(attr)).expect("a mode has sixteen bits"),
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.atime),
        btime: time(attr.btime),
        ctime: time(attr.ctime),
        mtime: time(attr.mtime),
        rdev_major: major(attr.rdev),
        rdev_minor: minor(attr.rdev),
        ..StatxOut::default()
    }
}

/// Device numbers travel as the kernel packs them: 12 bits of major between 8 and 12 bits of minor.
fn major(rdev: u32) -> u32 {
    rdev >> 8 & 0xfff
}

fn minor(rdev: u32) -> u32 {
    rdev & 0xff | rdev >> 12 & 0xf_ff00
}

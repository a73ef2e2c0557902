//! Attributes, plain and extended, and the room of the volume.

use dure_fs::format::inode::Time;
use dure_fs::{SetGid, SetTime};

use super::{BLOCK, Outcome, Sent, attr_seconds, content, mode, nanos, secs, wire_attr};
use crate::protocol::opcode::setattr;
use crate::protocol::reply::{AttrOut, GetXattrOut, StatfsOut, StatxOut, StatxTime};
use crate::protocol::request::SetAttrIn;
use crate::protocol::{Operation, Request};
use crate::server::{Attr, Caller, Server, SetAttr};
use crate::transport::buffer::Reply;

/// Longest name.
const NAME_BYTES: u32 = 255;

pub(super) fn serve(server: &Server, request: &Request<'_>, reply: &mut Reply) -> Outcome {
    let node = request.node;
    match request.operation {
        Operation::GetAttr => put_attr(reply, &server.attributes(node)?),
        Operation::Statx => {
            reply.put(&statx(&server.attributes(node)?));
            Ok(Sent::Reply)
        }
        Operation::SetAttr(set) => {
            if set.valid & setattr::KILL_SUIDGID != 0 {
                server.drop_set_id(node, Caller::from(request))?;
            } else if set.valid & setattr::CHANGES == 0 {
                server.drop_set_id_of_own(node, Caller::from(request))?;
            }
            let changed = server.set_attributes(node, &changes(set))?;
            put_attr(reply, &changed)
        }
        Operation::SetXattr {
            name,
            value,
            flags,
            drops_set_gid,
        } => {
            let flags = i32::try_from(flags).map_err(|_| libc::EINVAL)?;
            let set_gid = match drops_set_gid {
                true => SetGid::Drop,
                false => SetGid::Keep,
            };
            server.set_xattr(node, (name, value), flags, set_gid)?;
            Ok(Sent::Reply)
        }
        Operation::GetXattr { name, size } => {
            let value = server.xattr(node, name)?.ok_or(libc::ENODATA)?;
            put_sized(reply, &value, size)
        }
        Operation::ListXattr { size } => {
            put_sized(reply, &server.xattr_names(node, request.uid)?, size)
        }
        Operation::RemoveXattr(name) => server.remove_xattr(node, name).map(|()| Sent::Reply),
        Operation::Statistics => {
            let room = server.statistics();
            reply.put(&StatfsOut {
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
        _ => content::serve(server, request, reply),
    }
}

fn put_attr(reply: &mut Reply, attr: &Attr) -> Outcome {
    reply.put(&AttrOut {
        valid: attr_seconds(attr),
        attr: wire_attr(attr),
        ..AttrOut::default()
    });
    Ok(Sent::Reply)
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

fn statx(attr: &Attr) -> StatxOut {
    let time = |at: Time| StatxTime {
        secs: secs(at),
        nanos: nanos(at),
        reserved: 0,
    };
    StatxOut {
        valid: attr_seconds(attr),
        mask: libc::STATX_BASIC_STATS | libc::STATX_BTIME,
        block_size: BLOCK,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        mode: u16::try_from(mode(attr)).expect("a type of four bits, and twelve bits"),
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

//! Content of files, and durability.

use dure_fs::SyncScope;

use super::{Outcome, Sent, directory};
use crate::protocol::operation::CopyForm;
use crate::protocol::reply::{CopyOut, LseekOut, WriteOut};
use crate::protocol::request::CopyIn;
use crate::protocol::{Operation, Request};
use crate::server::{Answer, Caller, Server};
use crate::transport::buffer::Reply;

/// What a copy does at most, when the reply counts in 32 bits.
const COPY_BYTES: u64 = 1 << 30;

pub(super) fn serve(server: &Server, request: &Request<'_>, reply: &mut Reply) -> Outcome {
    let node = request.node;
    match request.operation {
        Operation::Read { offset, size } => {
            let want = usize::try_from(size).map_err(|_| libc::EIO)?;
            reply.fill(want, |room| server.read(node, offset, room))?;
            Ok(Sent::Reply)
        }
        Operation::Write {
            offset,
            data,
            cached,
            drops_set_id,
        } => {
            if drops_set_id {
                server.drop_set_id(node, Caller::from(request))?;
            }
            let taken = if cached {
                server.write_pages(node, offset, data)?;
                data.len()
            } else {
                server.write(node, offset, data)?
            };
            reply.put(&WriteOut {
                size: u32::try_from(taken).expect("at most what was sent"),
                reserved: 0,
            });
            Ok(Sent::Reply)
        }
        Operation::Fsync { data_only } => {
            let scope = if data_only {
                SyncScope::Data
            } else {
                SyncScope::All
            };
            server.fsync(node, scope).map(|()| Sent::Reply)
        }
        Operation::FsyncDirectory => server.fsync(node, SyncScope::All).map(|()| Sent::Reply),
        Operation::SyncAll => server.sync().map(|()| Sent::Reply),
        Operation::Allocate { offset, len, mode } => {
            let mode = i32::try_from(mode).map_err(|_| libc::EOPNOTSUPP)?;
            changes_content(server, request, node)?;
            server.allocate(node, offset, len, mode)?;
            Ok(Sent::Reply)
        }
        Operation::Seek { offset, whence } => {
            // The offset is one of lseek(2), which has a sign.
            i64::try_from(offset).map_err(|_| libc::ENXIO)?;
            let whence = i32::try_from(whence).map_err(|_| libc::EINVAL)?;
            let offset = server.seek(node, offset, whence)?;
            reply.put(&LseekOut { offset });
            Ok(Sent::Reply)
        }
        Operation::Copy { range, form } => {
            changes_content(server, request, range.node_out)?;
            copy(server, node, range, form, reply)
        }
        _ => directory::serve(server, request, reply),
    }
}

/// Set-id bits go, where the request does not say whether the caller may keep them.
fn changes_content(server: &Server, request: &Request<'_>, node: u64) -> Answer<()> {
    let caller = Caller::from(request);
    match caller.is_root() {
        true => Ok(()),
        false => server.drop_set_id(node, caller),
    }
}

fn copy(
    server: &Server,
    source: u64,
    range: &CopyIn,
    form: CopyForm,
    reply: &mut Reply,
) -> Outcome {
    let to = (range.node_out, range.offset_out);
    // A longer copy is continued by the caller.
    let len = range.len.min(COPY_BYTES);
    let bytes = server.copy((source, range.offset_in), to, len)?;
    match form {
        CopyForm::Short => reply.put(&WriteOut {
            size: u32::try_from(bytes).expect("at most a gigabyte"),
            reserved: 0,
        }),
        CopyForm::Long => reply.put(&CopyOut { bytes }),
    }
    Ok(Sent::Reply)
}

//! Which requests may have to wait, for the device, for another task or for the kernel.
//!
//! **Problem.** A thread that other requests depend on must not wait for one. **Structure.** What a
//! request asks, and what is in memory, tell before it is served. **Invariants.** Guesses: what is
//! in memory may leave it before the request is served. **Crash.** Nothing is kept.

use super::content::FITRIM;
use crate::nodes;
use crate::server::Server;
use dure_fuse_wire::protocol::opcode::setattr;
use dure_fuse_wire::protocol::{Operation, Request};

/// Whether the answer means to ask the kernel about an inode.
pub(super) fn asks_the_kernel(server: &Server, operation: &Operation<'_>) -> bool {
    match operation {
        Operation::Statistics
        | Operation::Copy { .. }
        | Operation::Destroy
        | Operation::Forget { .. }
        | Operation::BatchForget(_) => true,
        Operation::Seek { .. } => server.kernel_collects(),
        _ => false,
    }
}

/// Whether the answer means to read and check so much that another core had better do it, while
/// this one hands the part before to its reader; or to go through the whole volume.
pub(super) fn takes_long(operation: &Operation<'_>) -> bool {
    const READ_BYTES: u32 = 64 << 10;
    match operation {
        Operation::Read { size, .. } => *size >= READ_BYTES,
        Operation::Ioctl { command, .. } => *command == FITRIM,
        _ => false,
    }
}

/// Whether the answer may have to wait for the device or for another task.
pub(super) fn may_wait(server: &Server, request: &Request<'_>) -> bool {
    let (operation, node) = (&request.operation, request.node);
    if nodes::is_hidden(node) {
        return true;
    }
    if server.settles(operation.changes()) {
        return true;
    }
    match operation {
        Operation::SyncAll => return true,
        Operation::Fsync { .. } | Operation::FsyncDirectory => return server.fsync_waits(node),
        _ => {}
    }
    if let Operation::Write { offset, data, .. } = *operation {
        return server.write_waits(node, offset, data.len());
    }
    if !server.reads_wait() {
        return false;
    }
    match *operation {
        Operation::Read { offset, size, .. } => {
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            server.read_waits(node, offset, size)
        }
        Operation::Lookup(name)
        | Operation::Create { name, .. }
        | Operation::MakeDirectory { name, .. }
        | Operation::Symlink { name, .. }
        | Operation::Link { name, .. }
        | Operation::Unlink(name)
        | Operation::RemoveDirectory(name) => server.name_waits(node, name),
        Operation::Rename {
            name, to, to_name, ..
        } => server.name_waits(node, name) || server.name_waits(to, to_name),
        // A listing reads the inodes of many names, an allocation a part of the map.
        Operation::ReadDirectory { .. } | Operation::Allocate { .. } | Operation::Seek { .. } => {
            true
        }
        Operation::SetAttr(set) => set.valid & setattr::SIZE != 0 || server.inode_waits(node),
        _ => server.inode_waits(node),
    }
}

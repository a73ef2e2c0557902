//! LOOKUP, creation, removal, rename, links.

use dure_fs::NewInode;

use super::{ENTRY_SECONDS, Outcome, Sent, attributes, wire_entry};
use crate::protocol::operation::CreateForm;
use crate::protocol::reply::{EntryOut, OpenOut};
use crate::protocol::{Operation, Request, opcode};
use crate::server::{Answer, Entry, Server};
use crate::transport::buffer::Reply;

/// Type and permissions of a symlink.
const SYMLINK_MODE: u32 = libc::S_IFLNK | 0o777;

pub(super) fn serve(server: &Server, request: &Request<'_>, reply: &mut Reply) -> Outcome {
    let node = request.node;
    match request.operation {
        Operation::Lookup(name) => match server.lookup(node, name)? {
            Some(entry) => put_entry(reply, Ok(entry)),
            None => {
                reply.put(&EntryOut {
                    entry_valid: ENTRY_SECONDS,
                    ..EntryOut::default()
                });
                Ok(Sent::Reply)
            }
        },
        Operation::Create {
            name,
            mode,
            umask,
            rdev,
            form,
        } => {
            let created = new_inode(request, mode, umask, rdev);
            let entry = match form {
                CreateForm::Node | CreateForm::Open => server.create(node, name, &created),
                CreateForm::Unnamed => server.temporary(node, &created),
            };
            put_entry(reply, entry)?;
            if form != CreateForm::Node {
                reply.put(&OpenOut {
                    flags: opcode::OPEN_KEEP_CACHE,
                    ..OpenOut::default()
                });
            }
            Ok(Sent::Reply)
        }
        Operation::MakeDirectory { name, mode, umask } => {
            let created = new_inode(request, mode, umask, 0);
            put_entry(reply, server.mkdir(node, name, &created))
        }
        Operation::Symlink { name, target } => {
            let created = new_inode(request, SYMLINK_MODE, 0, 0);
            put_entry(reply, server.symlink(node, name, target, &created))
        }
        Operation::Link { node: linked, name } => put_entry(reply, server.link(linked, node, name)),
        Operation::Unlink(name) => server.unlink(node, name).map(|()| Sent::Reply),
        Operation::RemoveDirectory(name) => server.rmdir(node, name).map(|()| Sent::Reply),
        Operation::Rename {
            name,
            to,
            to_name,
            flags,
        } => server
            .rename((node, name), (to, to_name), flags)
            .map(|()| Sent::Reply),
        _ => attributes::serve(server, request, reply),
    }
}

fn new_inode(request: &Request<'_>, mode: u32, umask: u32, rdev: u32) -> NewInode {
    NewInode {
        mode,
        umask,
        uid: request.uid,
        gid: request.gid,
        rdev: rdev.into(),
    }
}

fn put_entry(reply: &mut Reply, answer: Answer<Entry>) -> Outcome {
    reply.put(&wire_entry(&answer?));
    Ok(Sent::Reply)
}

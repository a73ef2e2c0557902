//! Symlinks and directories: what lies behind a name, and which names there are.

use super::{Outcome, Sent, wire_entry};
use crate::protocol::operation::ListForm;
use crate::protocol::reply::{Dirent, EntryOut, OpenOut};
use crate::protocol::{Operation, Request};
use crate::server::{Listed, Server};
use crate::transport::buffer::{IO_BYTES, Reply, name_bytes};

pub(super) fn serve(server: &Server, request: &Request<'_>, reply: &mut Reply) -> Outcome {
    let node = request.node;
    match request.operation {
        Operation::ReadLink => {
            reply.put_bytes(&server.read_link(node)?);
            Ok(Sent::Reply)
        }
        Operation::ReadDirectory {
            position,
            size,
            form,
        } => {
            let limit = usize::try_from(size).unwrap_or(IO_BYTES).min(IO_BYTES);
            let listed = server.read_directory(node, position)?;
            match form {
                ListForm::Names => put_names(reply, limit, &listed),
                ListForm::Attributes => put_entries(server, reply, limit, &listed),
            }
            Ok(Sent::Reply)
        }
        Operation::OpenDirectory => {
            reply.put(&OpenOut::default());
            Ok(Sent::Reply)
        }
        Operation::Release => Ok(Sent::Reply),
        // All others were served.
        _ => Err(libc::ENOSYS),
    }
}

fn dirent(entry: &Listed) -> Dirent {
    Dirent {
        ino: entry.ino,
        next: entry.cookie,
        name_len: u32::try_from(entry.name.len()).expect("names are short"),
        kind: entry.kind.code().into(),
    }
}

fn put_names(reply: &mut Reply, limit: usize, listed: &[Listed]) {
    for entry in listed {
        if !reply.put_name(limit, &(), dirent(entry), &entry.name) {
            return;
        }
    }
}

fn put_entries(server: &Server, reply: &mut Reply, limit: usize, listed: &[Listed]) {
    for entry in listed {
        // The kernel counts a lookup of every node it is told of: only of what fits.
        if reply.len() + name_bytes::<EntryOut>(&entry.name) > limit {
            return;
        }
        let node = if matches!(entry.name.as_slice(), b"." | b"..") {
            None
        } else {
            match server.listed_entry(entry) {
                Ok(Some(node)) => Some(node),
                // The name went away since.
                Ok(None) => continue,
                // The name is there all the same; who looks behind it gets the error.
                Err(_) => None,
            }
        };
        // Without a node, an entry is a name and nothing else.
        let before = node.map_or_else(EntryOut::default, |node| wire_entry(&node));
        let put = reply.put_name(limit, &before, dirent(entry), &entry.name);
        assert!(put, "there was room for it");
    }
}

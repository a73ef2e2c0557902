//! Symlinks and directories: entries and their attributes.

use super::{Call, Outcome, Sent, wire_entry};
use crate::server::{Listed, Server};
use dure_fuse_wire::protocol::operation::ListForm;
use dure_fuse_wire::protocol::reply::{Dirent, EntryOut};
use dure_fuse_wire::transport::buffer::{IO_BYTES, Reply, name_bytes};

impl Call<'_> {
    pub(super) fn read_link(self) -> Outcome {
        let target = self.server.read_link(self.request.node)?;
        self.reply.put_bytes(&target);
        Ok(Sent::Reply)
    }

    pub(super) fn read_directory(self, position: u64, size: u32, form: ListForm) -> Outcome {
        let limit = usize::try_from(size).unwrap_or(IO_BYTES).min(IO_BYTES);
        let listed = self.server.read_directory(self.request.node, position)?;
        match form {
            ListForm::Names => put_names(self.reply, limit, &listed),
            ListForm::Attributes => put_entries(self.server, self.reply, limit, &listed),
        }
        Ok(Sent::Reply)
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
        // The kernel counts a lookup of every node in the reply: resolve only what fits.
        if reply.len() + name_bytes::<EntryOut>(&entry.name) > limit {
            return;
        }
        let node = if matches!(entry.name.as_slice(), b"." | b"..") {
            None
        } else {
            match server.listed_entry(entry) {
                Ok(Some(node)) => Some(node),
                // The name was removed since.
                Ok(None) => continue,
                // The name exists all the same; a caller that looks it up gets the error.
                Err(_) => None,
            }
        };
        // Without a node, an entry is a name and nothing else.
        let before = node.map_or_else(EntryOut::default, |node| wire_entry(server, &node));
        let put = reply.put_name(limit, &before, dirent(entry), &entry.name);
        assert!(put, "the reply has room for the entry");
    }
}

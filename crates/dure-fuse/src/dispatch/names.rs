//! LOOKUP, creation, removal, rename, links.

use dure_fs::NewInode;
use dure_fs::units::Ino;

use super::content::OPENED;
use super::{Call, ENTRY_SECONDS, Outcome, Sent, done, wire_entry};
use crate::coherence::Mode;
use crate::nodes::node_of;
use crate::server::{Answer, Entry};
use dure_fuse_wire::protocol::opcode;
use dure_fuse_wire::protocol::reply::{EntryOut, OpenOut};

/// Type and permissions of a symlink.
const SYMLINK_MODE: u32 = libc::S_IFLNK | 0o777;

/// Type and permissions of a whiteout: a device of number 0, by which overlayfs knows it.
const WHITEOUT_MODE: u32 = libc::S_IFCHR;

impl Call<'_> {
    pub(super) fn lookup(self, name: &[u8]) -> Outcome {
        match self.server.lookup(self.request.node, name)? {
            Some(entry) => self.put_entry(Ok(entry)),
            None => {
                // Snapshots come and go without the kernel.
                let comes = self.server.is_of_snapshots(self.request.node, name);
                self.reply.put(&EntryOut {
                    entry_valid: if comes { 0 } else { ENTRY_SECONDS },
                    ..EntryOut::default()
                });
                Ok(Sent::Reply)
            }
        }
    }

    pub(super) fn create(self, name: &[u8], mode: u32, umask: u32, rdev: u32) -> Outcome {
        let created = self.new_inode(mode, umask, rdev);
        let made = self.server.create(self.request.node, name, &created);
        self.put_entry(made)
    }

    pub(super) fn temporary(self, mode: u32, umask: u32) -> Outcome {
        let created = self.new_inode(mode, umask, 0);
        let made = self.server.temporary(self.request.node, &created);
        let made = made?;
        // It is open, without an OPEN.
        let node = node_of(Ino(made.attr.ino), made.attr.generation);
        let flags = match self.server.open(node, Mode::Writes)? {
            Some(()) => OPENED,
            None => opcode::OPEN_KEEP_CACHE,
        };
        self.reply.put(&wire_entry(self.server, &made));
        self.reply.put(&OpenOut {
            flags,
            ..OpenOut::default()
        });
        Ok(Sent::Reply)
    }

    pub(super) fn mkdir(self, name: &[u8], mode: u32, umask: u32) -> Outcome {
        let created = self.new_inode(mode, umask, 0);
        let made = self.server.mkdir(self.request.node, name, &created);
        self.put_entry(made)
    }

    pub(super) fn symlink(self, name: &[u8], target: &[u8]) -> Outcome {
        let created = self.new_inode(SYMLINK_MODE, 0, 0);
        let made = self
            .server
            .symlink(self.request.node, name, target, &created);
        self.put_entry(made)
    }

    pub(super) fn link(self, linked: u64, name: &[u8]) -> Outcome {
        let entry = self.server.link(linked, self.request.node, name);
        self.put_entry(entry)
    }

    pub(super) fn rename(self, name: &[u8], to: (u64, &[u8]), flags: u32) -> Outcome {
        let from = (self.request.node, name);
        let whiteout = self.new_inode(WHITEOUT_MODE, 0, 0);
        done(self.server.rename(from, to, flags, &whiteout))
    }

    /// An inode that the caller makes.
    pub(super) fn new_inode(&self, mode: u32, umask: u32, rdev: u32) -> NewInode {
        NewInode {
            mode,
            umask,
            uid: self.request.uid,
            gid: self.request.gid,
            rdev: rdev.into(),
        }
    }

    fn put_entry(self, answer: Answer<Entry>) -> Outcome {
        let entry = wire_entry(self.server, &answer?);
        self.reply.put(&entry);
        Ok(Sent::Reply)
    }
}

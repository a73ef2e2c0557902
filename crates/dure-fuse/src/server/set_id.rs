//! Clears set-id bits when a caller without the right to keep them changes a file.
//!
//! **Problem.** `HANDLE_KILLPRIV_V2` leaves this to the server: without it the kernel would ask for
//! `security.capability` before each write(2), and keep set-group-id of files that their group may
//! not execute. The kernel does not send the caller's supplementary groups. **Structure.** One
//! function clears the bits before the change that ends them. **Invariants.** The rules are those
//! of the kernel's `setattr_should_drop_suidgid`. The groups come from `/proc`, which cannot change
//! them under us: the caller waits for the reply. A caller without an entry there has no
//! supplementary groups. **On a crash** the bits may be cleared and the change not made.

use dure_fs::{FileKind, Permissions, SetAttributes};

use super::{Answer, Server, errno};
use dure_fuse_wire::protocol::Request;

/// Set-user-id and set-group-id.
const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;

/// The user, group and process that make a request.
#[derive(Debug, Clone, Copy)]
pub struct Caller {
    uid: u32,
    gid: u32,
    pid: u32,
}

impl From<&Request<'_>> for Caller {
    fn from(request: &Request<'_>) -> Caller {
        Caller {
            uid: request.uid,
            gid: request.gid,
            pid: request.pid,
        }
    }
}

impl Caller {
    /// Whether its writes keep set-id bits, where the kernel does not say so itself.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    fn in_group(&self, gid: u32) -> bool {
        let status = || std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok();
        self.gid == gid || (self.pid != 0 && status().is_some_and(|status| lists(&status, gid)))
    }
}

/// Whether a process with this status has `gid` among its groups.
fn lists(status: &str, gid: u32) -> bool {
    let groups = status
        .lines()
        .find_map(|line| line.strip_prefix("Groups:"))
        .unwrap_or_default();
    groups
        .split_ascii_whitespace()
        .any(|group| group.parse() == Ok(gid))
}

impl Server {
    /// Clears the set-id bits that `caller` may not keep when it changes the file.
    ///
    /// # Errors
    /// An errno.
    pub fn drop_set_id(&self, node: u64, caller: Caller) -> Answer<()> {
        let inode = self.inode(node)?;
        let found = self.volume.permissions(&inode).map_err(errno)?;
        if found.mode & SET_ID == 0 {
            return Ok(());
        }
        let shown = self.shown(found);
        let member = || caller.is_root() || caller.in_group(shown.gid);
        let mode = shown.without_set_id(member);
        if mode == found.mode {
            return Ok(());
        }
        let changes = SetAttributes {
            mode: Some(mode),
            ..SetAttributes::default()
        };
        self.volume
            .change_attributes(&inode, &changes)
            .map_err(errno)
    }

    /// Like [`Server::drop_set_id`], for a SETATTR that changes nothing. The kernel sends it for a
    /// chown(2) that changes neither owner nor group, which clears the set-id bits of a file, and
    /// before a write(2) by a caller that may not keep them. Only the owner and root may chown, and
    /// a WRITE clears the bits itself, so a request of any other caller does nothing.
    ///
    /// # Errors
    /// An errno.
    pub fn drop_set_id_of_own(&self, node: u64, caller: Caller) -> Answer<()> {
        let found = self.volume.permissions(&self.inode(node)?).map_err(errno)?;
        let owns = caller.is_root() || caller.uid == self.shown(found).uid;
        if owns && found.kind != FileKind::Directory {
            self.drop_set_id(node, caller)?;
        }
        Ok(())
    }

    /// With the owner and the group that all files show, if the mount has them.
    fn shown(&self, found: Permissions) -> Permissions {
        Permissions {
            uid: self.uid.unwrap_or(found.uid),
            gid: self.gid.unwrap_or(found.gid),
            ..found
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_of_the_status() {
        let status = "Name:\tx\nUid:\t7\t7\t7\t7\nGroups:\t4 24 1000 \nNStgid:\t5\n";
        assert!(lists(status, 24) && lists(status, 1000));
        assert!(!lists(status, 100) && !lists(status, 7) && !lists(status, 5));
        assert!(!lists("Groups:\t\n", 0) && !lists("", 0));
    }
}

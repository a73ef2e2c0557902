//! Permission rules of the model: the mode bits, and how changes of owner or content affect set-id
//! bits.

use rustix::io::Errno;

use super::node::{Kind, Node};
use super::store::Result;

/// Read permission.
pub(super) const READ: u32 = 4;
/// Write permission.
pub(super) const WRITE: u32 = 2;
/// Execute or search permission.
pub(super) const EXECUTE: u32 = 1;

const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const STICKY: u32 = 0o1000;

/// Whose call it is. The tests know three users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Who {
    /// uid 0, may everything.
    Root,
    /// uid 1000, gid 100.
    Alice,
    /// uid 1001, gid 101, also in group 100.
    Bob,
}

impl Who {
    /// User number.
    #[must_use]
    pub fn uid(self) -> u32 {
        match self {
            Who::Root => 0,
            Who::Alice => 1000,
            Who::Bob => 1001,
        }
    }

    /// Groups, the first of which new files get.
    #[must_use]
    pub fn groups(self) -> &'static [u32] {
        match self {
            Who::Root => &[0],
            Who::Alice => &[100],
            Who::Bob => &[101, 100],
        }
    }

    /// Whether this is the all-powerful user.
    #[must_use]
    pub fn is_root(self) -> bool {
        self == Who::Root
    }

    /// Whether the user owns `node`, or is root.
    #[must_use]
    pub fn owns(self, node: &Node) -> bool {
        self.is_root() || self.uid() == node.uid
    }

    fn in_group(self, gid: u32) -> bool {
        self.is_root() || self.groups().contains(&gid)
    }

    /// Checks that the user has all permissions of `want` on `node`.
    ///
    /// # Errors
    /// `ACCESS`.
    pub fn check(self, node: &Node, want: u32) -> Result<()> {
        let granted = if self.is_root() {
            let execute = node.kind() == Kind::Directory || node.mode & 0o111 != 0;
            READ | WRITE | if execute { EXECUTE } else { 0 }
        } else if node.uid == self.uid() {
            node.mode >> 6 & 7
        } else if self.in_group(node.gid) {
            node.mode >> 3 & 7
        } else {
            node.mode & 7
        };
        if granted & want == want {
            Ok(())
        } else {
            Err(Errno::ACCESS)
        }
    }

    /// Checks that the user may take a name of `victim` out of `dir`.
    ///
    /// # Errors
    /// `ACCESS`, or `PERM` in a sticky directory.
    pub fn check_delete(self, dir: &Node, victim: &Node) -> Result<()> {
        self.check(dir, WRITE | EXECUTE)?;
        if dir.mode & STICKY != 0 && !self.owns(victim) && !self.owns(dir) {
            return Err(Errno::PERM);
        }
        Ok(())
    }

    /// Group and mode of what the user makes in `dir`.
    #[must_use]
    pub fn new_group_and_mode(self, dir: &Node, is_directory: bool, mode: u32) -> (u32, u32) {
        if dir.mode & SET_GID == 0 {
            return (self.groups()[0], mode);
        }
        if is_directory {
            return (dir.gid, mode | SET_GID);
        }
        let runs_as_group = mode & (SET_GID | 0o010) == SET_GID | 0o010;
        let keep = !runs_as_group || self.in_group(dir.gid);
        (dir.gid, if keep { mode } else { mode & !SET_GID })
    }

    /// Mode after the content was changed by this user.
    #[must_use]
    pub fn mode_after_write(self, node: &Node) -> u32 {
        if self.is_root() {
            node.mode
        } else {
            self.without_set_id(node)
        }
    }

    /// Mode after owner or group were changed by this user.
    #[must_use]
    pub fn mode_after_chown(self, node: &Node) -> u32 {
        if node.kind() == Kind::Directory {
            node.mode
        } else {
            self.without_set_id(node)
        }
    }

    fn without_set_id(self, node: &Node) -> u32 {
        let mut mode = node.mode & !SET_UID;
        if mode & 0o010 != 0 || !self.in_group(node.gid) {
            mode &= !SET_GID;
        }
        mode
    }

    /// Mode that `chmod` gives.
    ///
    /// # Errors
    /// `PERM` unless owner.
    pub fn chmod(self, node: &Node, mode: u32) -> Result<u32> {
        if !self.owns(node) {
            return Err(Errno::PERM);
        }
        Ok(if self.in_group(node.gid) {
            mode
        } else {
            mode & !SET_GID
        })
    }

    /// Checks `chown`.
    ///
    /// # Errors
    /// `PERM`.
    pub fn check_chown(self, node: &Node, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        if self.is_root() {
            return Ok(());
        }
        let owner = node.uid == self.uid();
        let uid_fine = uid.is_none_or(|uid| owner && uid == node.uid);
        let gid_fine = gid.is_none_or(|gid| owner && (gid == node.gid || self.in_group(gid)));
        if uid_fine && gid_fine {
            Ok(())
        } else {
            Err(Errno::PERM)
        }
    }

    /// Checks access to the extended attribute `name`.
    ///
    /// # Errors
    /// `PERM`, `NODATA`, `ACCESS`.
    pub fn check_xattr(self, node: &Node, name: &str, want: u32) -> Result<()> {
        let refused = if want == WRITE {
            Errno::PERM
        } else {
            Errno::NODATA
        };
        if name.starts_with("trusted.") {
            return if self.is_root() { Ok(()) } else { Err(refused) };
        }
        if !matches!(node.kind(), Kind::File | Kind::Directory) {
            return Err(refused);
        }
        let sticky = node.kind() == Kind::Directory && node.mode & STICKY != 0;
        if sticky && want == WRITE && !self.owns(node) {
            return Err(Errno::PERM);
        }
        self.check(node, want)
    }
}

//! Permission rules as functions of owner, mode and caller, without any access to a volume.
//!
//! They follow Linux: where it differs from the letter of POSIX (set-group-id on write, for
//! example), a comment names the function of the kernel.

use dure_fs::{FileKind, Permissions};
use rustix::io::Errno;

use crate::acl::AccessList;
use crate::credentials::Credentials;

pub(crate) const SET_UID: u32 = 0o4000;
pub(crate) const SET_GID: u32 = 0o2000;
const STICKY: u32 = 0o1000;
const GROUP_EXECUTE: u32 = 0o010;
const GROUP_BITS: u32 = 0o070;

/// Permission bits, 0..=0o7777.
pub(crate) fn mode_of(node: &Permissions) -> u32 {
    node.mode & 0o7777
}

fn is_directory(node: &Permissions) -> bool {
    node.kind == FileKind::Directory
}

/// A set of permissions: read, write, execute (search).
///
/// ```
/// # let session = dure::Volume::in_memory(32 << 20)?.root();
/// use dure::{Access, Credentials};
/// session.write("/file", b"sown")?;
/// let somebody = session.with_credentials(Credentials::user(1000, 1000, &[]));
/// assert!(somebody.access("/file", Access::READ).is_ok());
/// assert!(somebody.access("/file", Access::READ.and(Access::WRITE)).is_err());
/// # Ok::<(), dure::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access(u32);

impl Access {
    /// None: only that the file is there.
    pub const EXISTS: Access = Access(0);
    /// Execute a file, search a directory.
    pub const EXECUTE: Access = Access(1);
    /// Write.
    pub const WRITE: Access = Access(2);
    /// Read.
    pub const READ: Access = Access(4);

    /// From `rwx` bits; others are ignored.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Access {
        Access(bits & 7)
    }

    /// Whether all of `other` is in it.
    #[must_use]
    pub const fn contains(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both together.
    #[must_use]
    pub const fn and(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

/// What the mode bits say by themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Granted,
    Denied,
    /// An access list, if there is one, decides; without one it is `Granted` or `Denied`.
    Unless(bool),
}

pub(crate) fn verdict(caller: &Credentials, node: &Permissions, want: Access) -> Verdict {
    let say = |granted| {
        if granted {
            Verdict::Granted
        } else {
            Verdict::Denied
        }
    };
    let mode = mode_of(node);
    if caller.is_root() {
        let runs = is_directory(node) || mode & 0o111 != 0;
        return say(runs || !want.contains(Access::EXECUTE));
    }
    if caller.uid == node.uid {
        return say(Access::from_bits(mode >> 6).contains(want));
    }
    let class = if caller.in_group(node.gid) {
        mode >> 3
    } else {
        mode
    };
    let granted = Access::from_bits(class).contains(want);
    // With a list, the group bits are its mask: if empty, the list grants nothing to named users
    // and groups.
    if mode & GROUP_BITS == 0 {
        say(granted)
    } else {
        Verdict::Unless(granted)
    }
}

/// What an access list grants to a caller that the mode bits did not decide about.
pub(crate) fn list_grants(
    caller: &Credentials,
    node: &Permissions,
    list: &AccessList,
    want: Access,
) -> bool {
    list.grants(caller.uid, node.gid, |gid| caller.in_group(gid), want)
}

/// In a sticky directory only the owner of the file or of the directory may remove a name.
pub(crate) fn check_sticky(
    caller: &Credentials,
    dir: &Permissions,
    victim: &Permissions,
) -> Result<(), Errno> {
    if mode_of(dir) & STICKY != 0 && !caller.owns(victim.uid) && !caller.owns(dir.uid) {
        return Err(Errno::PERM);
    }
    Ok(())
}

/// Whether a user attribute of this directory may be changed by its owner only.
pub(crate) fn is_sticky_directory(node: &Permissions) -> bool {
    is_directory(node) && mode_of(node) & STICKY != 0
}

/// Whether a program with this mode runs as its group.
pub(crate) fn runs_as_group(mode: u32) -> bool {
    mode & (SET_GID | GROUP_EXECUTE) == SET_GID | GROUP_EXECUTE
}

/// The mode of a new file in `dir`. mode_strip_sgid: a caller outside the directory's group cannot
/// create a program that runs as the group it inherits from the directory.
pub(crate) fn mode_of_new(caller: &Credentials, dir: &Permissions, mode: u32) -> u32 {
    let inherits = mode_of(dir) & SET_GID != 0;
    let strip = inherits && !caller.is_root() && !caller.in_group(dir.gid);
    if strip { mode & !SET_GID } else { mode }
}

/// The mode after `chmod`.
pub(crate) fn mode_after_chmod(
    caller: &Credentials,
    node: &Permissions,
    mode: u32,
) -> Result<u32, Errno> {
    if !caller.owns(node.uid) {
        return Err(Errno::PERM);
    }
    let keeps = caller.is_root() || caller.in_group(node.gid);
    Ok(if keeps {
        mode & 0o7777
    } else {
        mode & 0o7777 & !SET_GID
    })
}

/// Whether `chown` to this user and group is allowed.
pub(crate) fn check_chown(
    caller: &Credentials,
    node: &Permissions,
    uid: Option<u32>,
    gid: Option<u32>,
) -> Result<(), Errno> {
    if caller.is_root() {
        return Ok(());
    }
    let owner = caller.uid == node.uid;
    let uid_fine = uid.is_none_or(|uid| owner && uid == node.uid);
    let gid_fine = gid.is_none_or(|gid| owner && (gid == node.gid || caller.in_group(gid)));
    if uid_fine && gid_fine {
        Ok(())
    } else {
        Err(Errno::PERM)
    }
}

/// The mode after owner or group of `node` were changed: not even root keeps the set-id bits of a
/// file.
pub(crate) fn mode_after_chown(caller: &Credentials, node: &Permissions) -> u32 {
    if is_directory(node) {
        mode_of(node)
    } else {
        without_set_id(caller, node)
    }
}

/// The mode after the content was changed.
pub(crate) fn mode_after_write(caller: &Credentials, node: &Permissions) -> u32 {
    if caller.is_root() {
        mode_of(node)
    } else {
        without_set_id(caller, node)
    }
}

fn without_set_id(caller: &Credentials, node: &Permissions) -> u32 {
    let member = || caller.is_root() || caller.in_group(node.gid);
    node.without_set_id(member) & 0o7777
}

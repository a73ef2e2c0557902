//! The caller: user, groups, umask, and whether permission checks bind it.

/// Whether permission checks bind the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Capabilities {
    /// Like the super user: may read, write and search everything, change any owner, make devices.
    Root,
    /// Bound by owner, mode and access control lists.
    User,
}

/// An identity, as a process has it.
///
/// ```
/// use dure::Credentials;
/// let volume = dure::Volume::in_memory(32 << 20)?;
/// volume.root().write("/secret", b"sown")?;
/// volume.root().set_permissions("/secret", 0o600)?;
/// let somebody = volume.session(Credentials::user(1000, 1000, &[]));
/// let refused = somebody.read("/secret").unwrap_err();
/// assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
/// # Ok::<(), dure::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// User; owner of new inodes.
    pub uid: u32,
    /// Group of new inodes.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// Permission bits that new files do not get.
    pub umask: u32,
    /// What the caller may do beyond that.
    pub capabilities: Capabilities,
}

impl Credentials {
    /// User and group 0 with all capabilities, umask 022.
    #[must_use]
    pub fn root() -> Credentials {
        Credentials {
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            umask: 0o022,
            capabilities: Capabilities::Root,
        }
    }

    /// An ordinary user with umask 022.
    #[must_use]
    pub fn user(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
        Credentials {
            uid,
            gid,
            groups: groups.to_vec(),
            umask: 0o022,
            capabilities: Capabilities::User,
        }
    }

    /// These credentials with another umask.
    #[must_use]
    pub fn with_umask(self, umask: u32) -> Credentials {
        Credentials {
            umask: umask & 0o777,
            ..self
        }
    }

    /// The identity of the calling process; root has all capabilities. The umask is 022.
    #[must_use]
    pub fn of_process() -> Credentials {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let groups = rustix::process::getgroups().unwrap_or_default();
        let groups: Vec<u32> = groups.iter().map(|group| group.as_raw()).collect();
        let capabilities = if uid == 0 {
            Capabilities::Root
        } else {
            Capabilities::User
        };
        Credentials {
            uid,
            gid,
            groups,
            umask: 0o022,
            capabilities,
        }
    }

    /// Whether permission checks do not bind the caller.
    #[inline]
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.capabilities == Capabilities::Root
    }

    /// Whether the caller is in `group`.
    #[must_use]
    pub fn in_group(&self, group: u32) -> bool {
        self.gid == group || self.groups.contains(&group)
    }

    /// Whether the caller owns what belongs to `uid`, or may act as its owner.
    #[must_use]
    pub fn owns(&self, uid: u32) -> bool {
        self.is_root() || self.uid == uid
    }
}

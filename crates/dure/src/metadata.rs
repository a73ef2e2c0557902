//! Attributes of a file, as `stat` returns them.

use std::fmt;

use dure_fs::format::inode::Time;
use dure_fs::{Attributes, FileKind};

pub use dure_sync::clock::Timestamp;

pub(crate) fn to_time(time: Timestamp) -> Time {
    Time {
        secs: time.secs.into(),
        nanos: time.nanos.into(),
    }
}

pub(crate) fn from_time(time: Time) -> Timestamp {
    Timestamp {
        secs: time.secs.get(),
        nanos: time.nanos.get(),
    }
}

/// Attributes of a file.
///
/// ```
/// # let session = dure::Volume::in_memory(32 << 20)?.root();
/// session.write("/file", b"sown")?;
/// let found = session.metadata("/file")?;
/// assert!(found.is_file() && found.len() == 4 && found.nlink() == 1);
/// let age = std::time::SystemTime::from(found.modified()).elapsed();
/// assert!(age.is_ok_and(|age| age.as_secs() < 60));
/// # Ok::<(), dure::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Metadata(Attributes);

impl Metadata {
    pub(crate) fn new(attributes: Attributes) -> Metadata {
        Metadata(attributes)
    }

    /// Inode number.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.0.ino.0
    }

    /// Type.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        self.0.kind
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.0.kind == FileKind::Directory
    }

    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.0.kind == FileKind::File
    }

    /// Whether it is a symbolic link.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.0.kind == FileKind::Symlink
    }

    /// Bytes of a file or of a symbolic link's target.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "named as in std::fs::Metadata")]
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// Permission bits, 0..=0o7777.
    #[must_use]
    pub fn mode(&self) -> u32 {
        self.0.mode & 0o7777
    }

    /// Permission bits as a type.
    #[must_use]
    pub fn permissions(&self) -> Permissions {
        Permissions::from_mode(self.0.mode)
    }

    /// Number of names; for a directory 2 and its subdirectories.
    #[must_use]
    pub fn nlink(&self) -> u32 {
        self.0.nlink
    }

    /// Owner.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// Group.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// Device number of a device file, as in `st_rdev`.
    #[must_use]
    pub fn rdev(&self) -> u64 {
        self.0.rdev
    }

    /// Space it takes, in units of 512 bytes as in `st_blocks`.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.0.blocks
    }

    /// Preferred size of reads and writes.
    #[must_use]
    pub fn blksize(&self) -> u64 {
        4096
    }

    /// Last read.
    #[must_use]
    pub fn accessed(&self) -> Timestamp {
        from_time(self.0.atime)
    }

    /// Last change of the content.
    #[must_use]
    pub fn modified(&self) -> Timestamp {
        from_time(self.0.mtime)
    }

    /// Last change of content or attributes.
    #[must_use]
    pub fn changed(&self) -> Timestamp {
        from_time(self.0.ctime)
    }

    /// Birth.
    #[must_use]
    pub fn created(&self) -> Timestamp {
        from_time(self.0.btime)
    }
}

/// The metadata of an inode that was read by other means.
impl From<Attributes> for Metadata {
    fn from(attributes: Attributes) -> Metadata {
        Metadata(attributes)
    }
}

/// Permission bits: read, write and execute of owner, group and others, set-user-id, set-group-id
/// and sticky. Calls that take them take a plain number too.
///
/// ```
/// # let session = dure::Volume::in_memory(16 << 20)?.root();
/// session.write("key", b"secret")?;
/// session.set_permissions("key", 0o600)?;
/// let mut permissions = session.metadata("key")?.permissions();
/// permissions.set_readonly(true);
/// session.set_permissions("key", permissions)?;
/// assert_eq!(session.metadata("key")?.mode(), 0o400);
/// # Ok::<(), dure::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Permissions(u32);

impl Permissions {
    /// The permissions in the lower twelve bits of `mode`.
    #[must_use]
    pub fn from_mode(mode: u32) -> Permissions {
        Permissions(mode & 0o7777)
    }

    /// The bits, 0..=0o7777.
    #[must_use]
    pub fn mode(self) -> u32 {
        self.0
    }

    /// Whether no user may write, by these bits.
    #[must_use]
    pub fn readonly(self) -> bool {
        self.0 & 0o222 == 0
    }

    /// Takes the right to write from all, or gives it to the owner (`std` gives it to all).
    pub fn set_readonly(&mut self, readonly: bool) {
        if readonly {
            self.0 &= !0o222;
        } else {
            self.0 |= 0o200;
        }
    }
}

impl From<u32> for Permissions {
    fn from(mode: u32) -> Permissions {
        Permissions::from_mode(mode)
    }
}

impl fmt::Debug for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permissions({:#06o})", self.0)
    }
}

/// What to do with one of a file's times.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TimeChange {
    /// Leave it.
    #[default]
    Keep,
    /// Now.
    Now,
    /// This time.
    Set(Timestamp),
}

/// New times of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileTimes {
    /// Last read.
    pub accessed: TimeChange,
    /// Last change of the content.
    pub modified: TimeChange,
}

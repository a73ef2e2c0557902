//! Names, and the types of inodes.

use super::bucket::NAME_MAX;
use crate::error::{Error, Result};

/// Checks a name of a directory entry: 1..=255 bytes, no '/', no NUL, not "." or "..".
///
/// # Errors
/// `NameTooLong`, `Invalid`.
#[inline]
pub fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() || name == b"." || name == b".." {
        return Err(Error::Invalid("the name is empty, \".\" or \"..\""));
    }
    // Without a way out of the loop it takes many bytes at once.
    let is_wrong = |byte: u8| byte == b'/' || byte == 0;
    if name.iter().fold(false, |any, &byte| any | is_wrong(byte)) {
        return Err(Error::Invalid("a name holds '/' or NUL"));
    }
    Ok(())
}

/// Type of an inode, with the numbers of `st_mode >> 12`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// A named pipe.
    Fifo,
    /// A character device.
    CharacterDevice,
    /// A directory.
    Directory,
    /// A block device.
    BlockDevice,
    /// A regular file.
    File,
    /// A symbolic link.
    Symlink,
    /// A socket.
    Socket,
}

impl FileKind {
    /// All kinds.
    pub const ALL: [FileKind; 7] = [
        FileKind::Fifo,
        FileKind::CharacterDevice,
        FileKind::Directory,
        FileKind::BlockDevice,
        FileKind::File,
        FileKind::Symlink,
        FileKind::Socket,
    ];

    /// `st_mode >> 12`.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            FileKind::Fifo => 1,
            FileKind::CharacterDevice => 2,
            FileKind::Directory => 4,
            FileKind::BlockDevice => 6,
            FileKind::File => 8,
            FileKind::Symlink => 10,
            FileKind::Socket => 12,
        }
    }

    /// The type bits of `st_mode`.
    #[must_use]
    pub const fn mode(self) -> u32 {
        // Widening; `u32::from` is not const.
        (self.code() as u32) << 12
    }

    /// From `st_mode >> 12`.
    #[must_use]
    pub fn from_code(code: u8) -> Option<FileKind> {
        FileKind::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// From `st_mode`.
    #[must_use]
    pub fn from_mode(mode: u32) -> Option<FileKind> {
        FileKind::from_code(u8::try_from(mode >> 12).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::bucket::KIND_DIRECTORY;

    #[test]
    fn names_are_any_bytes_but_a_few() {
        for good in [
            &b"a"[..],
            b"...",
            b".a",
            &[0xff, 0xfe],
            &[b'x'; 255],
            b" ",
            b"\n",
        ] {
            check_name(good).unwrap();
        }
        for bad in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0"] {
            assert!(matches!(check_name(bad), Err(Error::Invalid(_))), "{bad:?}");
        }
        assert!(matches!(check_name(&[b'x'; 256]), Err(Error::NameTooLong)));
    }

    #[test]
    fn kinds_and_modes_agree() {
        for kind in FileKind::ALL {
            assert_eq!(FileKind::from_mode(kind.mode() | 0o7777), Some(kind));
        }
        assert_eq!(FileKind::from_mode(0o644), None);
        assert_eq!(FileKind::Directory.code(), KIND_DIRECTORY);
    }
}

//! What a damaged volume has lost, by inode and by name.

use std::fmt;

use dure_store::units::Ino;

/// Something that a damaged volume has lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// The inode it belonged to; of a lost name, the directory.
    pub ino: Ino,
    /// Its path, or the lost name, as far as they are known.
    pub path: Option<Vec<u8>>,
    /// What is lost.
    pub what: String,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{} ", path.escape_ascii())?;
        }
        write!(f, "(inode {}): {}", self.ino, self.what)
    }
}

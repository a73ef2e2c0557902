//! How a file is opened, in the manner of `std::fs::OpenOptions`.

use std::path::Path;

use rustix::io::Errno;

use crate::error::{Context, Result};
use crate::file::File;
use crate::session::Session;

/// What a write waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Durability {
    /// Nothing.
    #[default]
    Later,
    /// The data and the size (`O_DSYNC`).
    Data,
    /// All attributes too (`O_SYNC`).
    All,
}

/// How a file is opened.
///
/// ```
/// # let volume = dure::Volume::in_memory(16 << 20)?;
/// # let session = volume.root();
/// let log = dure::OpenOptions::new().append(true).create(true).open(&session, "log")?;
/// # Ok::<(), dure::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct OpenOptions {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
    pub(crate) truncate: bool,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) directory: bool,
    pub(crate) no_follow: bool,
    pub(crate) durability: Durability,
    pub(crate) mode: u32,
    rules: Rules,
}

/// Which combinations of options make sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Rules {
    /// Those of `std::fs::OpenOptions`.
    #[default]
    Std,
    /// Those of `open(2)`.
    Posix,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            directory: false,
            no_follow: false,
            durability: Durability::Later,
            mode: 0o666,
            rules: Rules::Std,
        }
    }
}

impl OpenOptions {
    /// Nothing chosen: not even reading.
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// For reading.
    pub fn read(mut self, yes: bool) -> Self {
        self.read = yes;
        self
    }

    /// For writing.
    pub fn write(mut self, yes: bool) -> Self {
        self.write = yes;
        self
    }

    /// For writing at the end, wherever that is when a write comes (`O_APPEND`).
    pub fn append(mut self, yes: bool) -> Self {
        self.append = yes;
        self
    }

    /// Empties the file (`O_TRUNC`).
    pub fn truncate(mut self, yes: bool) -> Self {
        self.truncate = yes;
        self
    }

    /// Makes the file if it is not there (`O_CREAT`).
    pub fn create(mut self, yes: bool) -> Self {
        self.create = yes;
        self
    }

    /// Makes the file, which must not be there (`O_CREAT | O_EXCL`).
    pub fn create_new(mut self, yes: bool) -> Self {
        self.create_new = yes;
        self
    }

    /// Only a directory (`O_DIRECTORY`).
    pub fn directory(mut self, yes: bool) -> Self {
        self.directory = yes;
        self
    }

    /// Not through a symbolic link as the last component (`O_NOFOLLOW`).
    pub fn no_follow(mut self, yes: bool) -> Self {
        self.no_follow = yes;
        self
    }

    /// Every write is durable, with all attributes, when it returns (`O_SYNC`).
    pub fn sync(mut self, yes: bool) -> Self {
        self.durability = if yes {
            Durability::All
        } else {
            Durability::Later
        };
        self
    }

    /// Every write is durable, with what is needed to read it, when it returns (`O_DSYNC`).
    pub fn data_sync(mut self, yes: bool) -> Self {
        self.durability = if yes {
            Durability::Data
        } else {
            Durability::Later
        };
        self
    }

    /// Permission bits of a new file before the umask; 0o666 unless set.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode & 0o7777;
        self
    }

    /// The combinations of `open(2)`, where `std` refuses some: who only reads may make the file,
    /// and what is emptied may be open for appending.
    ///
    /// ```
    /// # let session = dure::Volume::in_memory(16 << 20)?.root();
    /// let options = dure::OpenOptions::new().read(true).create(true);
    /// assert!(options.open(&session, "log").is_err());
    /// assert_eq!(options.posix().open(&session, "log")?.metadata()?.len(), 0);
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn posix(mut self) -> Self {
        self.rules = Rules::Posix;
        self
    }

    /// Opens `path` in `session`.
    ///
    /// # Errors
    /// `EINVAL` for a combination that makes no sense, and those of `open(2)`.
    pub fn open(&self, session: &Session, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        session.open_path(path, self).at("open", path)
    }

    pub(crate) fn writes(&self) -> bool {
        self.write || self.append
    }

    pub(crate) fn creates(&self) -> bool {
        self.create || self.create_new
    }

    /// The rules of std: something is opened for, and only a writer makes or empties a file. By both
    /// rules only a writer empties it.
    pub(crate) fn check(&self) -> std::result::Result<(), Errno> {
        let std = self.rules == Rules::Std;
        let nothing = !self.read && !self.writes();
        let read_only = !self.writes() && (self.truncate || std && self.creates());
        let both_ends = std && self.append && self.truncate && !self.create_new;
        let made_directory = self.creates() && self.directory;
        if nothing || read_only || both_ends || made_directory {
            return Err(Errno::INVAL);
        }
        Ok(())
    }
}

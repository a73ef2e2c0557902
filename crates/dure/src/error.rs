//! Errors: what was tried, on which path, and why it failed.
//!
//! Inside the crate a failure is a [`Cause`] (small, no allocation); at the public boundary it gets
//! the operation and the path. `open a/b: permission denied` is what a user reads.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::stream::Fault;

/// Result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Cause {
    /// A rule of POSIX.
    Posix(Errno),
    /// The file system.
    FileSystem(dure_fs::Error),
    /// The device below it.
    Device(dure_block::Error),
    /// The volume is mounted by this process.
    Mounted {
        /// Where.
        path: PathBuf,
    },
    /// It cannot be mounted or unmounted.
    Mount(dure_fuse::MountError),
    /// A file of the host, in a copy from or to the host.
    Host(io::Error),
    /// The caller stopped a copy.
    Interrupted,
    /// What is wrong with a stream of a snapshot.
    Stream(Fault),
    /// What a record of such a stream led to.
    Record {
        /// Records before it.
        number: u64,
        /// Bytes before it.
        offset: u64,
        /// What kind of record it is; empty if it could not be read.
        kind: &'static str,
        /// What that is.
        cause: Box<Cause>,
    },
}

impl Cause {
    /// The errno a POSIX caller sees.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Cause::Posix(errno) => errno.raw_os_error(),
            Cause::FileSystem(error) => error.errno(),
            Cause::Device(dure_block::Error::Busy { .. } | dure_block::Error::Locked { .. }) => {
                Errno::BUSY.raw_os_error()
            }
            Cause::Device(error) => error.os().map_or(Errno::IO.raw_os_error(), |os| os.errno()),
            Cause::Mounted { .. } => Errno::BUSY.raw_os_error(),
            Cause::Mount(error) => error.errno(),
            Cause::Host(error) => error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
            Cause::Interrupted => Errno::INTR.raw_os_error(),
            Cause::Stream(fault) => fault.errno().raw_os_error(),
            Cause::Record { cause, .. } => cause.errno(),
        }
    }

    #[cold]
    pub(crate) fn during(self, operation: &'static str) -> Error {
        Error(Box::new(Details {
            operation,
            path: None,
            cause: self,
        }))
    }

    #[cold]
    pub(crate) fn at(self, operation: &'static str, path: &Path) -> Error {
        let path = Some(path.to_owned());
        Error(Box::new(Details {
            operation,
            path,
            cause: self,
        }))
    }
}

impl From<Errno> for Cause {
    fn from(errno: Errno) -> Self {
        Cause::Posix(errno)
    }
}

impl From<dure_fs::Error> for Cause {
    fn from(error: dure_fs::Error) -> Self {
        Cause::FileSystem(error)
    }
}

impl From<dure_block::Error> for Cause {
    fn from(error: dure_block::Error) -> Self {
        Cause::Device(error)
    }
}

impl From<dure_fuse::MountError> for Cause {
    fn from(error: dure_fuse::MountError) -> Self {
        Cause::Mount(error)
    }
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        Cause::Host(error)
    }
}

/// Adds operation and path to a failure.
pub(crate) trait Context<T> {
    fn during(self, operation: &'static str) -> Result<T>;
    fn at(self, operation: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<Cause>> Context<T> for std::result::Result<T, E> {
    fn during(self, operation: &'static str) -> Result<T> {
        self.map_err(|error| error.into().during(operation))
    }

    fn at(self, operation: &'static str, path: &Path) -> Result<T> {
        self.map_err(|error| error.into().at(operation, path))
    }
}

/// A failed call. One word wide: errors do not make good results slower.
///
/// ```
/// # let session = dure::Volume::in_memory(32 << 20)?.root();
/// let error = session.open("/missing").unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
/// assert_eq!((error.operation(), error.errno()), ("open", 2));
/// assert_eq!(error.path(), Some(std::path::Path::new("/missing")));
/// # Ok::<(), dure::Error>(())
/// ```
pub struct Error(Box<Details>);

struct Details {
    operation: &'static str,
    path: Option<PathBuf>,
    cause: Cause,
}

impl Error {
    /// A failure of `operation` at `path`: for a [`Source`](crate::tree::Source).
    #[must_use]
    pub fn new(operation: &'static str, path: &Path, cause: Cause) -> Error {
        cause.at(operation, path)
    }

    /// The errno a POSIX caller sees.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.0.cause.errno()
    }

    /// The kind as std knows it.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        io::Error::from_raw_os_error(self.errno()).kind()
    }

    /// What was tried: "open", "rename".
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// The path it was tried on, if the call had one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// Why.
    #[must_use]
    pub fn cause(&self) -> &Cause {
        &self.0.cause
    }
}

impl Error {
    /// This failure, told of `path`.
    pub(crate) fn on(mut self, path: &Path) -> Error {
        self.0.path = Some(path.to_owned());
        self
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("operation", &self.0.operation)
            .field("path", &self.0.path)
            .field("cause", &self.0.cause)
            .finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.operation)?;
        if let Some(path) = &self.0.path {
            write!(f, " {}", path.display())?;
        }
        write!(f, ": {}", self.0.cause)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Posix(errno) => f.write_str(&text(*errno)),
            Cause::FileSystem(error) => fmt::Display::fmt(error, f),
            Cause::Device(error) => fmt::Display::fmt(error, f),
            Cause::Mounted { path } => write!(
                f,
                "it is mounted on {} by this process; unmount that first",
                path.display()
            ),
            Cause::Mount(error) => fmt::Display::fmt(error, f),
            Cause::Host(error) => fmt::Display::fmt(error, f),
            Cause::Interrupted => f.write_str("stopped by the caller"),
            Cause::Stream(fault) => fmt::Display::fmt(fault, f),
            Cause::Record {
                number,
                offset,
                kind,
                cause,
            } => {
                let space = if kind.is_empty() { "" } else { " " };
                write!(
                    f,
                    "{cause} (record {number}{space}{kind}, at byte {offset} of the stream)"
                )
            }
        }
    }
}

/// What an errno means, in the words of the system without its number.
fn text(errno: Errno) -> String {
    let text = io::Error::from(errno).to_string();
    let words = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = words.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => String::new(),
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.cause {
            Cause::FileSystem(error) => Some(error),
            Cause::Device(error) => Some(error),
            Cause::Host(error) => Some(error),
            Cause::Mount(error) => Some(error),
            Cause::Posix(_)
            | Cause::Mounted { .. }
            | Cause::Interrupted
            | Cause::Stream(_)
            | Cause::Record { .. } => None,
        }
    }
}

impl From<Error> for io::Error {
    /// Keeps the whole message. The errno is in [`Error::errno`] of the inner error, and the kind
    /// is that of the errno.
    fn from(error: Error) -> Self {
        io::Error::new(error.kind(), error)
    }
}

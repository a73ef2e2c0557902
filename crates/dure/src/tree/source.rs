//! What a copy to the host reads: a mounted volume, or what is left of one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::CHUNK;
use crate::error::{Error, Result};
use crate::metadata::Metadata;
use crate::session::Session;

/// What could not be copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failed<'n> {
    /// A file, a directory with what is in it, or anything else with a name.
    Entry,
    /// The extended attribute of this name.
    Attribute(&'n [u8]),
}

/// Takes the bytes of a file that begin at an offset.
pub type Content<'c> = &'c mut dyn FnMut(u64, &[u8]) -> Result<()>;

/// Where a copy reads from, by paths.
pub trait Source {
    /// What is at `path`; of a symbolic link, its own.
    ///
    /// # Errors
    /// It cannot be read. So with the others.
    fn metadata(&mut self, path: &Path) -> Result<Metadata>;

    /// The names in a directory.
    #[expect(clippy::missing_errors_doc, reason = "as of metadata")]
    fn names(&mut self, directory: &Path) -> Result<Vec<OsString>>;

    /// The target of a symbolic link.
    #[expect(clippy::missing_errors_doc, reason = "as of metadata")]
    fn target(&mut self, path: &Path) -> Result<PathBuf>;

    /// Names and values of extended attributes.
    #[expect(clippy::missing_errors_doc, reason = "as of metadata")]
    fn attributes(&mut self, path: &Path) -> Result<Vec<(Vec<u8>, Vec<u8>)>>;

    /// Brings all data of a file of `len` bytes to `each`; the rest are holes. Returns how many
    /// bytes the file has.
    #[expect(clippy::missing_errors_doc, reason = "as of metadata")]
    fn content(&mut self, path: &Path, len: u64, each: Content<'_>) -> Result<u64>;

    /// Decides about something that could not be copied: `Ok` goes on without it.
    ///
    /// # Errors
    /// The one that it was given, which ends the copy.
    fn failed(&mut self, path: &Path, what: Failed<'_>, error: Error) -> Result<()> {
        let _ = (path, what);
        Err(error)
    }
}

/// A volume that is open, as this caller may read it.
#[derive(Debug)]
pub struct OfVolume<'s>(pub &'s Session);

impl Source for OfVolume<'_> {
    fn metadata(&mut self, path: &Path) -> Result<Metadata> {
        self.0.symlink_metadata(path)
    }

    fn names(&mut self, directory: &Path) -> Result<Vec<OsString>> {
        let entries = self.0.read_dir(directory)?;
        entries
            .map(|entry| Ok(entry?.file_name().to_owned()))
            .collect()
    }

    fn target(&mut self, path: &Path) -> Result<PathBuf> {
        self.0.read_link(path)
    }

    fn attributes(&mut self, path: &Path) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut found = Vec::new();
        for name in self.0.list_xattr(path)? {
            if let Some(value) = self.0.get_xattr(path, &name)? {
                found.push((name, value));
            }
        }
        Ok(found)
    }

    fn content(&mut self, path: &Path, len: u64, each: Content<'_>) -> Result<u64> {
        let source = self.0.open(path)?;
        let mut buffer = vec![0; CHUNK];
        let mut offset = 0;
        while let Some((start, end)) = source.next_data(offset, len)? {
            offset = start;
            while offset < end {
                let room = usize::try_from(end - offset).unwrap_or(CHUNK).min(CHUNK);
                let count = source.read_at(&mut buffer[..room], offset)?;
                if count == 0 {
                    return Ok(offset);
                }
                each(offset, &buffer[..count])?;
                offset += u64::try_from(count).expect("a usize fits in 64 bits");
            }
        }
        Ok(len)
    }
}

//! Copying a file within a volume.

use std::path::Path;

use rustix::io::Errno;

use crate::error::{Context, Result};
use crate::file::{File, Seek};
use crate::options::OpenOptions;
use crate::session::Session;

/// Bytes that are copied at once.
const CHUNK: usize = 1 << 20;

impl Session {
    /// Makes the content and the permission bits of the file `to` those of `from`; the file is made
    /// if it is not there. Holes stay holes; blocks are
    /// shared if they can be ([`File::clone_range`]). Returns the size.
    ///
    /// # Errors
    /// `EINVAL` if `from` is no regular file, or both are the same file, which stays as it is; those
    /// of opening, reading and writing, after which `to` may have a part of the content.
    ///
    /// ```
    /// # let session = dure::Volume::in_memory(16 << 20)?.root();
    /// session.write("seed", b"rice")?;
    /// assert_eq!(session.copy("seed", "field")?, 4);
    /// assert_eq!(session.read("field")?, b"rice");
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let source = self.open(from)?;
        let metadata = source.metadata()?;
        if !metadata.is_file() {
            return Err(Errno::INVAL).at("copy", from);
        }
        let made = OpenOptions::new().write(true).create(true);
        let target = made.mode(metadata.mode()).open(self, to)?;
        if target.ino() == source.ino() {
            return Err(Errno::INVAL).at("copy a file to itself", to);
        }
        target.set_len(0)?;
        let size = copy_content(&source, &target, metadata.len())?;
        target.set_permissions(metadata.permissions())?;
        Ok(size)
    }
}

/// Copies the data below `size`; returns how much there was of it, holes counted.
pub(crate) fn copy_content(source: &File, target: &File, size: u64) -> Result<u64> {
    let cloned = target.copy_from_start(source, size)?;
    if cloned == size {
        return Ok(size);
    }
    let mut buffer = vec![0; CHUNK.min(usize::try_from(size).unwrap_or(CHUNK))];
    let mut offset = cloned;
    while let Some((start, end)) = source.next_data(offset, size)? {
        offset = start;
        while offset < end {
            let room =
                usize::try_from(end - offset).map_or(buffer.len(), |left| left.min(buffer.len()));
            let count = source.read_at(&mut buffer[..room], offset)?;
            if count == 0 {
                // The file became shorter meanwhile.
                target.set_len(offset)?;
                return Ok(offset);
            }
            target.write_all_at(&buffer[..count], offset)?;
            offset += u64::try_from(count).expect("a usize fits in 64 bits");
        }
    }
    target.set_len(size)?;
    Ok(size)
}

impl File {
    /// The next range of data at or after `offset`, before `end`. Moves the position.
    pub(crate) fn next_data(&self, offset: u64, end: u64) -> Result<Option<(u64, u64)>> {
        if offset >= end {
            return Ok(None);
        }
        let none = |error: &crate::Error| error.errno() == Errno::NXIO.raw_os_error();
        let start = match self.seek_to(Seek::Data(offset)) {
            Err(error) if none(&error) => return Ok(None),
            start => start?,
        };
        if start >= end {
            return Ok(None);
        }
        match self.seek_to(Seek::Hole(start)) {
            // The file became shorter meanwhile.
            Err(error) if none(&error) => Ok(None),
            hole => Ok(Some((start, hole?.min(end)))),
        }
    }
}

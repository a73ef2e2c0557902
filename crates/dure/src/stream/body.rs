//! What an inode holds: content and extended attributes, as records.

use std::ops::Range;

use dure_fs::units::BLOCK_BYTES_U64;
use dure_fs::{FileSystem, InodeRef, Named, ReadMode, SeekTarget};

use super::format::{DATA_MAX, Record};
use super::send::Output;
use super::shown;
use super::state::STATE;
use crate::error::{Cause, Context, Result};

/// Memory to read content into.
#[derive(Debug, Default)]
pub(super) struct Reader(Vec<u8>);

/// Whether holes are told: of a new file they are what is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holes {
    /// They are records.
    Told,
    /// They are what is between the data.
    LeftOut,
}

/// An inode of the snapshot that is sent.
#[derive(Clone, Copy)]
pub(super) struct Source<'s> {
    pub(super) fs: &'s FileSystem,
    pub(super) inode: &'s InodeRef,
    pub(super) named: &'s Named,
}

impl Source<'_> {
    fn path(&self) -> &[u8] {
        &self.named.path
    }

    /// The content in `range`.
    pub(super) fn content(
        &self,
        range: Range<u64>,
        holes: Holes,
        output: &mut Output<'_>,
    ) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let seek = |from, target| {
                let found = self.fs.seek(self.inode, from, target);
                let found = found.at("send", shown(self.path()))?;
                Ok(found.unwrap_or(range.end).min(range.end))
            };
            let data = seek(at, SeekTarget::Data)?;
            if holes == Holes::Told && data > at {
                let (offset, end) = (at, data.next_multiple_of(BLOCK_BYTES_U64));
                let len = end - offset;
                output.record(self.path(), &Record::Hole { offset, len })?;
            }
            at = data;
            let end = match data < range.end {
                true => seek(data, SeekTarget::Hole)?,
                false => data,
            };
            while at < end {
                at += self.part(at..end, output)?;
            }
        }
        Ok(())
    }

    /// As much of a range of data as goes into a record; returns how much that is.
    fn part(&self, range: Range<u64>, output: &mut Output<'_>) -> Result<u64> {
        let mut buffer = std::mem::take(&mut output.reader.0);
        buffer.resize(DATA_MAX, 0);
        let left = usize::try_from(range.end - range.start).unwrap_or(DATA_MAX);
        let want = left.min(DATA_MAX);
        let (offset, mut got) = (range.start, 0);
        while got < want {
            let at = offset + got as u64;
            let part = &mut buffer[got..want];
            let read = self.fs.read(self.inode, at, part, ReadMode::Cached);
            match read.at("send", shown(self.path()))? {
                0 => break,
                count => got += count,
            }
        }
        if got == 0 {
            // The size says that there is data.
            let end = rustix::io::Errno::IO;
            return Err(Cause::Posix(end).at("send", shown(self.path())));
        }
        let bytes = &buffer[..got];
        output.record(self.path(), &Record::Data { offset, bytes })?;
        output.reader.0 = buffer;
        Ok(got as u64)
    }

    /// Names and values of its extended attributes.
    pub(super) fn xattrs(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let list = || -> dure_fs::Result<Vec<(Vec<u8>, Vec<u8>)>> {
            let mut found = Vec::new();
            if !self.named.attributes.extended {
                return Ok(found);
            }
            for name in self.fs.list_xattr(self.inode)? {
                if self.path().is_empty() && name == STATE {
                    continue;
                }
                if let Some(value) = self.fs.get_xattr(self.inode, &name)? {
                    found.push((name, value));
                }
            }
            found.sort();
            Ok(found)
        };
        list().at("send", shown(self.path()))
    }

    /// Its extended attributes as a record.
    pub(super) fn send_xattrs(
        &self,
        all: &[(Vec<u8>, Vec<u8>)],
        output: &mut Output<'_>,
    ) -> Result<()> {
        let all = all.iter().map(|(name, value)| (&name[..], &value[..]));
        output.record(self.path(), &Record::Xattrs(all.collect()))
    }

    /// Everything that a new inode holds, and its attributes.
    pub(super) fn whole(&self, output: &mut Output<'_>) -> Result<()> {
        if self.inode.kind() == dure_fs::FileKind::File {
            self.content(0..self.named.attributes.size, Holes::LeftOut, output)?;
        }
        let xattrs = self.xattrs()?;
        if !xattrs.is_empty() {
            self.send_xattrs(&xattrs, output)?;
        }
        output.attributes(self)
    }

    /// The directory, when all in it was sent.
    pub(super) fn directory(&self, output: &mut Output<'_>) -> Result<()> {
        let path = self.path();
        output.record(path, &Record::Select { path })?;
        self.send_xattrs(&self.xattrs()?, output)?;
        output.attributes(self)
    }
}

/// The inode of a name.
pub(super) fn inode_of(fs: &FileSystem, named: &Named) -> Result<InodeRef> {
    fs.inode(named.attributes.ino)
        .at("send", shown(&named.path))
}

//! An open file as a stream of std.

use std::io::{self, SeekFrom};

use super::{File, Seek};

impl io::Read for &File {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        Ok(self.read_next(bytes)?)
    }
}

impl io::Write for &File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.write_next(bytes)?)
    }

    /// Does nothing, as for a `std::fs::File`: [`File::sync_all`] is what makes data durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl io::Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let seek = match to {
            SeekFrom::Start(offset) => Seek::Set(offset),
            SeekFrom::Current(delta) => Seek::Current(delta),
            SeekFrom::End(delta) => Seek::End(delta),
        };
        Ok(self.seek_to(seek)?)
    }
}

impl io::Read for File {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        io::Read::read(&mut &*self, bytes)
    }
}

impl io::Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::Write::write(&mut &*self, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl io::Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        io::Seek::seek(&mut &*self, to)
    }
}

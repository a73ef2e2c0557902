//! What a read says and returns; [`super::body`] has the ways to read.

use super::Readings;

/// Whether a read goes through the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// Pages read stay in memory.
    Cached,
    /// What is in memory is used, the rest comes from the device and is not kept: there is a cache
    /// above.
    Bypass,
}

/// What became of a read that was begun.
#[derive(Debug)]
pub enum Begun<R = UnderWay> {
    /// It is over, and has read so many bytes.
    Read(usize),
    /// So many bytes were read, and the device is reading what comes next.
    UnderWay(usize, R),
}

/// What of a read is under way. It ends by [`end_read`](crate::volume::FileSystem::end_read) or
/// [`cancel_read`](crate::volume::FileSystem::cancel_read), else it holds memory of the page cache as long as the volume is
/// mounted.
#[derive(Debug)]
#[must_use = "a read that was begun has to end"]
pub struct UnderWay(pub(crate) Readings);

impl UnderWay {
    /// Whether the device is done with it, so that ending it does not wait for the device.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.0.are_done()
    }
}

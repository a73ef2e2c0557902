//! The content of one page in memory, and which tasks may access it while others write.

use dure_store::frames::Frame;
use dure_store::units::BLOCK_BYTES;
use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{AtomicBytes, SequenceCount};

/// A page of a file. Its bytes may be copied from and into by several tasks at once:
/// [`super::PageStore`] says under which locks.
#[derive(Debug)]
pub(crate) struct Page {
    bytes: AtomicBytes<BLOCK_BYTES>,
    /// Counts writes that run concurrently with readers.
    version: SequenceCount,
    /// CLOCK's bit. Set by tasks that read or write the page, taken by eviction; Relaxed: a hint.
    used: AtomicBool,
    /// As the bit of its chunk, for tasks that overwrite it: they read no word that tasks in other
    /// pages write. Release and Acquire: a thread that sees it sees that it is counted.
    pub(super) dirty: AtomicBool,
}

impl Page {
    /// Copies its bytes from `at` on. The caller excludes writers or tolerates a torn copy.
    #[inline]
    pub(crate) fn load(&self, at: usize, out: &mut [u8]) {
        self.bytes.load(at, out);
    }

    /// Copies its bytes from `at` on, untorn by a concurrent [`Page::store_versioned`]. False if
    /// every attempt was torn: writers never paused.
    #[inline]
    pub(crate) fn load_versioned(&self, at: usize, out: &mut [u8]) -> bool {
        self.version.read(|| self.bytes.load(at, out)).is_some()
    }

    /// Changes its bytes from `at` on. The caller excludes readers and writers.
    #[inline]
    pub(crate) fn store(&self, at: usize, bytes: &[u8]) {
        self.bytes.store(at, bytes);
    }

    /// Changes its bytes from `at` on. The caller excludes writers; concurrent readers use
    /// [`Page::load_versioned`].
    #[inline]
    pub(crate) fn store_versioned(&self, at: usize, bytes: &[u8]) {
        self.version.change(|| self.bytes.store(at, bytes));
    }

    /// Notes a use.
    #[inline]
    pub(super) fn touch(&self) {
        // Load first: a hot page's line stays shared among readers.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it was used since it came or this was asked last. The caller holds the file
    /// exclusively.
    pub(super) fn take_used(&mut self) -> bool {
        std::mem::take(self.used.get_mut())
    }

    /// Its bytes, for a caller that holds the file exclusively.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8; BLOCK_BYTES] {
        self.bytes.bytes_mut()
    }

    /// Its memory.
    pub(super) fn into_frame(self) -> Frame {
        Frame::from(self.bytes.into_page())
    }
}

impl From<Frame> for Page {
    fn from(frame: Frame) -> Page {
        Page {
            bytes: AtomicBytes::from(frame.into_memory()),
            version: SequenceCount::new(),
            used: AtomicBool::new(false),
            dirty: AtomicBool::new(false),
        }
    }
}

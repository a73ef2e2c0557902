//! The content of one page in memory, and which tasks may access it while others write.

use dure_store::frames::Frame;
use dure_store::units::BLOCK_BYTES;
use dure_sync::{AtomicBytes, CachePadded, OnceLock, SequenceCount};

/// A page of a file. Its bytes may be copied from and into by several tasks at once:
/// [`super::PageStore`] says under which locks.
#[derive(Debug)]
pub(crate) struct Page {
    bytes: AtomicBytes<BLOCK_BYTES>,
    /// Sequence count of writes that run concurrently with readers. Allocated by the first such
    /// write, on a cache line of its own: pages of files that one task uses have none.
    version: OnceLock<Box<CachePadded<SequenceCount>>>,
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
        let version = || self.version.get().map(|version| &***version);
        if version().is_none() {
            self.bytes.load(at, out);
            if SequenceCount::has_not_begun(version) {
                return true;
            }
        }
        let made = version().expect("a write that has begun has allocated it");
        made.read(|| self.bytes.load(at, out)).is_some()
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
        let version = self.version.get_or_init(Box::default);
        version.change(|| self.bytes.store(at, bytes));
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
            version: OnceLock::new(),
        }
    }
}

//! The content of one page in memory, and who may look at it while others write.

use dure_store::frames::Frame;
use dure_store::units::BLOCK_BYTES;
use dure_sync::{CachePadded, OnceLock, SharedBytes, Version};

/// A page of a file. Its bytes may be copied from and into by several tasks at once: who may do so
/// when is said by [`super::PageStore`].
#[derive(Debug)]
pub(crate) struct Page {
    bytes: SharedBytes<BLOCK_BYTES>,
    /// Says to readers that somebody writes beside them. Made by the first who does, on a line of
    /// its own: pages of files that one task uses have none.
    version: OnceLock<Box<CachePadded<Version>>>,
}

impl Page {
    /// Copies its bytes from `at` on. Nobody writes beside the caller, or it does not matter.
    #[inline]
    pub(crate) fn load(&self, at: usize, out: &mut [u8]) {
        self.bytes.load(at, out);
    }

    /// Copies its bytes from `at` on, as they are at one moment, beside [`Page::store_beside`].
    /// False: others wrote there all the time.
    #[inline]
    pub(crate) fn load_beside(&self, at: usize, out: &mut [u8]) -> bool {
        let version = || self.version.get().map(|version| &***version);
        if version().is_none() {
            self.bytes.load(at, out);
            if Version::has_not_begun(version) {
                return true;
            }
        }
        let made = version().expect("who began to write has made it");
        made.read(|| self.bytes.load(at, out)).is_some()
    }

    /// Changes its bytes from `at` on. Nobody reads or writes beside the caller.
    #[inline]
    pub(crate) fn store(&self, at: usize, bytes: &[u8]) {
        self.bytes.store(at, bytes);
    }

    /// The same beside readers that look at the version. Nobody else writes.
    #[inline]
    pub(crate) fn store_beside(&self, at: usize, bytes: &[u8]) {
        let version = self.version.get_or_init(Box::default);
        version.change(|| self.bytes.store(at, bytes));
    }

    /// Its bytes, for whoever has the file alone.
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
            bytes: SharedBytes::from(frame.into_memory()),
            version: OnceLock::new(),
        }
    }
}

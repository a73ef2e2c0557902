//! The memory of one page, and the per-core stacks it is recycled through.
//!
//! **Problem.** A write of a new page must not go to the allocator, which takes shared locks and hands
//! out memory the kernel has yet to clear. **Structure.** A [`Frame`] is a boxed, 4 KiB-aligned page,
//! and becomes a [`Page`] when it is put in a file's cache; a freed frame goes on the current core's stack and the next page of that core takes it off.
//! **Invariants.** A stack holds at most `stack_frames_max` frames; these count as page memory only
//! when they hold a page. **On a crash** nothing of this matters.

use std::fmt;

use dure_sync::{AlignedBytes, CoreId, Mutex, PerCore, SharedBytes};

use crate::ranks::FRAMES;
use crate::units::BLOCK_BYTES;

type PageBytes = AlignedBytes<BLOCK_BYTES>;
const _: () = assert!(size_of::<PageBytes>() == BLOCK_BYTES);

/// The memory of one page, which has one owner.
pub(crate) struct Frame(Box<PageBytes>);

impl Frame {
    /// A frame of zeroes.
    pub(crate) fn zeroed() -> Frame {
        Frame(Box::new(AlignedBytes([0; BLOCK_BYTES])))
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8; BLOCK_BYTES] {
        &self.0.0
    }

    /// Its bytes, to be changed.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8; BLOCK_BYTES] {
        &mut self.0.0
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({:p})", self.0.0.as_ptr())
    }
}

/// A page of a file. Its bytes may be copied from and into by several tasks at once: who may do so when
/// is said by [`super::PageStore`].
#[derive(Debug)]
pub(crate) struct Page(SharedBytes<BLOCK_BYTES>);

impl Page {
    /// Copies its bytes from `at` on.
    #[inline]
    pub(crate) fn load(&self, at: usize, out: &mut [u8]) {
        self.0.load(at, out);
    }

    /// Changes its bytes from `at` on.
    #[inline]
    pub(crate) fn store(&self, at: usize, bytes: &[u8]) {
        self.0.store(at, bytes);
    }

    /// Its bytes, for whoever has the file alone.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8; BLOCK_BYTES] {
        self.0.bytes_mut()
    }

    /// Its memory.
    pub(super) fn into_frame(self) -> Frame {
        Frame(self.0.into_box())
    }
}

impl From<Frame> for Page {
    fn from(frame: Frame) -> Page {
        Page(SharedBytes::from(frame.0))
    }
}

/// What is in a frame that was just taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// All zero.
    Zero,
    /// Whatever its last page left: the caller overwrites all of it.
    Any,
}

/// Stacks of unused frames, one per core.
#[derive(Debug)]
pub(crate) struct FramePool {
    /// [FRAMES]
    stacks: PerCore<Mutex<FRAMES, Vec<Frame>>>,
    stack_frames_max: usize,
}

impl FramePool {
    /// A pool for `cores` cores that keeps at most `stack_frames_max` unused frames each.
    pub(crate) fn new(cores: usize, stack_frames_max: usize) -> FramePool {
        let stack = |_| Mutex::new(Vec::with_capacity(stack_frames_max));
        FramePool {
            stacks: PerCore::new(cores, stack),
            stack_frames_max,
        }
    }

    /// Takes a frame, from the core's stack if there is one.
    pub(crate) fn take(&self, core: CoreId, fill: Fill) -> Frame {
        let recycled = self.stacks.get(core).lock().pop();
        match (recycled, fill) {
            (Some(mut frame), Fill::Zero) => {
                frame.bytes_mut().fill(0);
                frame
            }
            (Some(frame), Fill::Any) => frame,
            (None, _) => Frame::zeroed(),
        }
    }

    /// Puts a frame back.
    pub(crate) fn give(&self, core: CoreId, frame: Frame) {
        let mut stack = self.stacks.get(core).lock();
        if stack.len() < self.stack_frames_max {
            stack.push(frame);
        }
    }
}

//! The memory of one page, and the per-core stacks it is recycled through.
//!
//! **Problem.** A write of a new page must not go to the allocator, which takes shared locks and
//! hands out memory the kernel has yet to clear.
//!
//! **Structure.** A [`Frame`] is a 4 KiB-aligned page cut from a slab of the core that took it, and
//! becomes a page when it is put in a file's cache; a freed frame goes on the current core's stack
//! and the next page of that core takes it off.
//!
//! # Invariants
//! A stack holds at most `stack_frames_max` frames, others go back to their slabs; frames count as
//! page memory only when they hold a page. Once the slabs together have a frame for each page there
//! may be, and some to spare, a core uses free frames of the others.
//!
//! **On a crash** nothing of this matters.

use std::fmt;

use dure_sync::atomic::{AtomicUsize, Ordering};
use dure_sync::{CachePadded, CoreId, Mutex, PageBox, PageSlabs, PerCore};

use crate::ranks::FRAMES;
use crate::units::{BLOCK_BYTES, nth_core};

/// The memory of one page, which has one owner.
pub struct Frame(PageBox<BLOCK_BYTES>);

impl Frame {
    /// A frame of zeroes that belongs to no pool.
    pub fn zeroed() -> Frame {
        Frame(PageBox::zeroed())
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8; BLOCK_BYTES] {
        &self.0
    }

    /// Its bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8; BLOCK_BYTES] {
        &mut self.0
    }

    /// What it is made of.
    pub fn into_memory(self) -> PageBox<BLOCK_BYTES> {
        self.0
    }
}

impl From<PageBox<BLOCK_BYTES>> for Frame {
    fn from(memory: PageBox<BLOCK_BYTES>) -> Frame {
        Frame(memory)
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({:p})", self.0.as_ptr())
    }
}

/// What is in a frame that was just taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// All zero.
    Zero,
    /// Whatever its last page left: the caller overwrites all of it.
    Any,
}

/// The unused frames of one core.
#[derive(Debug)]
struct CoreFrames {
    stack: Vec<Frame>,
    slabs: PageSlabs<BLOCK_BYTES>,
}

/// Unused frames, by core.
#[derive(Debug)]
pub struct FramePool {
    /// [FRAMES]
    cores: PerCore<Mutex<FRAMES, CoreFrames>>,
    stack_frames_max: usize,
    /// Bytes of all slabs. Written by tasks that make slabs or return some to the system.
    slab_bytes: CachePadded<AtomicUsize>,
    /// From this size on a core looks for frames in the slabs of others before it makes a slab.
    slab_bytes_max: usize,
}

impl FramePool {
    /// A pool for `cores` cores that keeps at most `stack_frames_max` unused frames each, and whose
    /// slabs have `slab_frames` frames together if they are all in use.
    pub fn new(cores: usize, stack_frames_max: usize, slab_frames: usize) -> FramePool {
        let frames = |_| {
            Mutex::new(CoreFrames {
                stack: Vec::with_capacity(stack_frames_max),
                slabs: PageSlabs::default(),
            })
        };
        FramePool {
            cores: PerCore::new(cores, frames),
            stack_frames_max,
            slab_bytes: CachePadded::new(AtomicUsize::new(0)),
            slab_bytes_max: slab_frames * BLOCK_BYTES,
        }
    }

    /// Takes a frame, from the core's stack if there is one.
    pub fn take(&self, core: CoreId, fill: Fill) -> Frame {
        let at_hand = {
            let mut frames = self.cores.get(core).lock();
            let free = frames.stack.pop();
            free.or_else(|| frames.slabs.take_at_hand().map(Frame))
        };
        let mut frame = at_hand.unwrap_or_else(|| self.take_elsewhere(core));
        if fill == Fill::Zero {
            frame.bytes_mut().fill(0);
        }
        frame
    }

    /// Takes a frame where the core has none at hand: of a new slab, or, once there are enough of
    /// them, any core's.
    #[cold]
    fn take_elsewhere(&self, core: CoreId) -> Frame {
        // Relaxed: a bound on memory, which publishes nothing.
        if self.slab_bytes.load(Ordering::Relaxed) >= self.slab_bytes_max {
            for n in 0..self.cores.len() {
                let other = nth_core(core.index() + n, self.cores.len());
                let mut frames = self.cores.get(other).lock();
                if let Some(page) = frames.slabs.take_free() {
                    return Frame(page);
                }
            }
            for frames in self.cores.iter() {
                if let Some(frame) = frames.lock().stack.pop() {
                    return frame;
                }
            }
        }
        let mut frames = self.cores.get(core).lock();
        let before = frames.slabs.bytes();
        let page = frames.slabs.take();
        let made = frames.slabs.bytes() - before;
        self.slab_bytes.fetch_add(made, Ordering::Relaxed);
        Frame(page)
    }

    /// Returns slabs to the system of which no frame has been in use since the last call.
    pub fn trim(&self) {
        for frames in self.cores.iter() {
            let mut frames = frames.lock();
            let before = frames.slabs.bytes();
            frames.slabs.trim();
            let gone = before - frames.slabs.bytes();
            self.slab_bytes.fetch_sub(gone, Ordering::Relaxed);
        }
    }

    /// Puts a frame back.
    pub fn give(&self, core: CoreId, frame: Frame) {
        let mut frames = self.cores.get(core).lock();
        if frames.stack.len() < self.stack_frames_max {
            frames.stack.push(frame);
        }
    }
}

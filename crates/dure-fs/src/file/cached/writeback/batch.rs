//! The pages of a batch, copied, and where they go.

use std::ops::Range;

use dure_block::BlockBuf;
use dure_store::error::Result;
use dure_store::format::slot::DIRECT_SLOTS;
use dure_store::frames::{Fill, Frame};
use dure_store::units::{BLOCK_BYTES, BLOCK_BYTES_U64, to_usize};
use dure_sync::RwLockWriteGuard;

use crate::file::Files;
use crate::file::map::path::{HEIGHT_MAX, node_start};
use crate::file::placing::Plan;
use crate::file::state::FileState;
use crate::inode::Inode;
use crate::volume::DataMode;

/// Pages of one batch: 1 MiB of private copies.
pub(in crate::file::cached) const BATCH_PAGES: usize = 256;
/// Leaves one batch touches at most; bounds the nodes its operation makes dirty.
const BATCH_LEAVES: usize = 16;
/// Nodes that a batch within one leaf touches at most: the inode's, the leaf, new roots, a new
/// branch.
const ONE_LEAF_NODES: u32 = 2 + 2 * HEIGHT_MAX;

/// Private copies of pages, in page order.
#[derive(Debug)]
pub(super) enum Copies {
    One(Frame),
    Many(BlockBuf),
    /// They were given away, or are elsewhere.
    Gone,
}

impl Copies {
    pub(super) fn bytes(&self, pages: usize) -> &[u8] {
        match self {
            Copies::One(frame) => frame.bytes(),
            Copies::Many(buf) => &buf.as_slice()[..pages * BLOCK_BYTES],
            Copies::Gone => {
                unreachable!("the copy was given to the data log, and is asked for again")
            }
        }
    }
}

/// How long a batch may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pages: usize,
    leaves: usize,
}

/// Pages on their way to the device.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) pages: Vec<u64>,
    pub(super) copies: Copies,
    /// The file's size when they were copied.
    pub(super) size: u64,
    /// The first dirty page behind them.
    pub(super) next: Option<u64>,
}

impl Batch {
    /// Gives the copies away, of which there are several.
    pub(super) fn take_many(&mut self) -> BlockBuf {
        match std::mem::replace(&mut self.copies, Copies::Gone) {
            Copies::Many(buf) => buf,
            Copies::One(_) | Copies::Gone => unreachable!("the batch has several pages"),
        }
    }
}

/// What there is to write.
#[derive(Debug)]
pub(super) enum Taken {
    /// Pages, and where they go, or why their slots cannot be read.
    Batch(Batch, Result<Plan>),
    Nothing,
    /// A truncate that is half done, to be finished before.
    Cut,
}

/// Like [`Files::copy`], into `space`.
fn copy_to(file: &FileState, pages: &[u64], space: &mut [u8]) {
    for (&page, copy) in pages.iter().zip(space.chunks_exact_mut(BLOCK_BYTES)) {
        file.pages.taken(page).load(0, copy);
    }
}

impl Limits {
    /// These limits, with at most `pages` pages.
    pub(super) fn within(self, pages: usize) -> Limits {
        let pages = pages.min(self.pages);
        Limits { pages, ..self }
    }
}

impl Files {
    /// How long a batch may be.
    pub(super) fn batch_limits(&self) -> Limits {
        match self.options.data {
            DataMode::Ordered | DataMode::Writeback => Limits {
                pages: BATCH_PAGES,
                leaves: BATCH_LEAVES,
            },
            // All of it must fit one handle.
            DataMode::Journal => {
                let pages = self.store.data_pages_max(ONE_LEAF_NODES).min(BATCH_PAGES);
                let pages = pages.min(to_usize(self.store.data_log.pages_max()));
                assert!(pages > 0, "a log that takes no page");
                Limits { pages, leaves: 1 }
            }
        }
    }

    /// Copies the next dirty pages of the range, into `space` if there is any, finds their slots,
    /// and takes them in write-back.
    pub(super) fn copy_dirty(
        &self,
        inode: &Inode,
        range: Range<u64>,
        limits: Limits,
        space: Option<&mut [u8]>,
    ) -> Taken {
        let mut held = inode.state().write_keep_cached();
        let state = &mut *held;
        let file = state.file_mut();
        if file.cut.is_some() {
            return Taken::Cut;
        }
        // No slot may be filled beyond the logged size while a page below it is missing: a crash
        // would leave data behind the end, and a later extension would bring it to light. Batches
        // under way are logged first, with a size up to this range; their pages are taken already.
        let start = match file.pages.any_writing() {
            true => range.start,
            false => range.start.min(file.logged_size() / BLOCK_BYTES_U64),
        };
        let range = start..range.end;
        let mut pages = Vec::new();
        let mut leaves = 0;
        let mut leaf = 0;
        let mut next = file.pages.next_dirty(range.clone());
        while let Some(page) = next.filter(|&page| page < range.end && pages.len() < limits.pages) {
            let at = if page < DIRECT_SLOTS {
                0
            } else {
                node_start(page, 1)
            };
            if pages.is_empty() || at != leaf {
                leaves += 1;
                leaf = at;
                if leaves > limits.leaves {
                    break;
                }
            }
            pages.push(page);
            next = file.pages.next_dirty(page + 1..u64::MAX);
        }
        if pages.is_empty() {
            return Taken::Nothing;
        }
        for &page in &pages {
            file.pages.begin_writing(page);
        }
        // From here on only tasks that need the inode exclusively are kept out. Holders of the
        // shared lock do not write to pages that are in write-back. Pages may come, and clean ones
        // become dirty: what the medium has of them counts until they are written back, too.
        let state = RwLockWriteGuard::downgrade(held);
        let file = state.file();
        let (copies, bytes);
        let bytes = match space {
            Some(space) => {
                copy_to(file, &pages, space);
                copies = Copies::Gone;
                &space[..pages.len() * BLOCK_BYTES]
            }
            None => {
                copies = self.copy(file, &pages);
                bytes = copies.bytes(pages.len());
                bytes
            }
        };
        let mut bytes = bytes.chunks_exact(BLOCK_BYTES);
        let plan = self.plan(inode, pages.iter().copied(), |_, _| {
            let bytes = bytes.next().expect("a copy of each page");
            Ok(dure_block::crc32c::crc32c(bytes))
        });
        let batch = Batch {
            pages,
            copies,
            size: file.size(),
            next,
        };
        Taken::Batch(batch, plan)
    }

    /// Copies pages that the caller has taken in write-back, and whose inode it holds shared.
    fn copy(&self, file: &FileState, pages: &[u64]) -> Copies {
        let core = self.store.partition();
        if let [page] = *pages {
            let mut frame = self.pages.frame(core, Fill::Any);
            file.pages.taken(page).load(0, frame.bytes_mut());
            return Copies::One(frame);
        }
        let mut buf = self.pages.take_scratch(core, pages.len());
        copy_to(file, pages, buf.as_mut_slice());
        Copies::Many(buf)
    }

    pub(super) fn give_copies(&self, copies: Copies) {
        let core = self.store.partition();
        match copies {
            Copies::One(frame) => self.pages.frames.give(core, frame),
            Copies::Many(buf) => self.pages.give_scratch(core, buf),
            Copies::Gone => {}
        }
    }

    /// Makes the pages of a failed batch dirty again.
    pub(super) fn give_up(&self, inode: &Inode, batch: &Batch) {
        let mut state = inode.state().write_keep_cached();
        let shown = inode.data_part(&state);
        let mut surplus = 0;
        for &page in &batch.pages {
            // A page that was changed meanwhile has reserved another block.
            surplus += u32::from(!state.file_mut().pages.fail_writing(page));
        }
        self.pages
            .dirty_pages
            .release(self.store.partition(), state.file(), surplus);
        inode.hide_unless(&state, &shown);
        drop(state);
        self.unreserve(self.store.partition(), surplus);
    }
}

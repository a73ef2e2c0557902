//! 64 neighbouring pages of a file.

use dure_store::frames::Frame;
use dure_sync::OnceLock;
use dure_sync::atomic::{AtomicU64, Ordering};

use super::super::Page;

/// Pages of a chunk.
pub(super) const CHUNK_PAGES: u64 = 64;
const ROWS: usize = 16;
const ROW_PAGES: usize = 4;
const ROW_BITS: u64 = (1 << ROW_PAGES) - 1;

/// A page, if it is there. On a line of its own: the first use of a page writes it, and a write that
/// runs concurrently with readers.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Place(OnceLock<Page>);
const _: () =
    assert!(cfg!(any(dure_backend = "sim", dure_backend = "loom")) || size_of::<Place>() == 64);

/// Neighbouring pages.
type Row = [Place; ROW_PAGES];

/// 64 neighbouring pages, bit i for page `64 * n + i`. In this order: tasks that find a page read no
/// word of bits, which those write that put pages in or make them dirty.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Chunk {
    /// Rows without pages take no memory.
    rows: [OnceLock<Box<Row>>; ROWS],
    /// Set when the page is in its row, by holders of the inode; cleared under the exclusive inode
    /// lock.
    present: AtomicU64,
    /// Set by holders of the exclusive inode lock, and of the shared one with the page's range;
    /// cleared under the exclusive one.
    pub(super) dirty: AtomicU64,
    pub(super) writing: u64,
    /// Pages that can be had again from where a read costs little. A hint: a page that has moved
    /// since keeps its bit. Relaxed.
    cheap: AtomicU64,
    /// Unclean pages that a writer has put in. Changed as `dirty`; Relaxed: holders of the inode, or
    /// of the growth, read only how many there are.
    pub(super) new: AtomicU64,
}

impl Default for Chunk {
    fn default() -> Chunk {
        Chunk::new()
    }
}

/// Row and place in it of a page.
fn place(bit: u64) -> (usize, usize) {
    let number = bit.trailing_zeros() as usize;
    (number / ROW_PAGES, number % ROW_PAGES)
}

impl Chunk {
    pub(super) const fn new() -> Chunk {
        Chunk {
            rows: [const { OnceLock::new() }; ROWS],
            present: AtomicU64::new(0),
            dirty: AtomicU64::new(0),
            writing: 0,
            cheap: AtomicU64::new(0),
            new: AtomicU64::new(0),
        }
    }

    pub(super) fn present(&self) -> u64 {
        // Acquire: pairs with the task that has put a page in.
        self.present.load(Ordering::Acquire)
    }

    pub(super) fn get(&self, bit: u64) -> Option<&Page> {
        let (row, column) = place(bit);
        self.rows[row].get()?[column].0.get()
    }

    /// The page, for the holder of the exclusive inode lock.
    pub(super) fn get_mut(&mut self, bit: u64) -> Option<&mut Page> {
        let (row, column) = place(bit);
        self.rows[row].get_mut()?[column].0.get_mut()
    }

    /// Puts a page in, unless another task has done so: then its frame comes back.
    pub(super) fn insert(&self, bit: u64, frame: Frame) -> Result<(), Frame> {
        let (row, column) = place(bit);
        let row = self.rows[row].get_or_init(Box::default);
        let set = row[column].0.set(frame.into());
        // A task that finds the place taken says so too: it goes on with a page that is present.
        // AcqRel: publishes the page, also that of another task.
        self.present.fetch_or(bit, Ordering::AcqRel);
        set.map_err(Page::into_frame)
    }

    pub(super) fn remove(&mut self, bit: u64) -> Frame {
        let (number, column) = place(bit);
        let row = &mut self.rows[number];
        let page = row.get_mut().and_then(|row| {
            let slot = std::mem::take(&mut row[column]);
            slot.0.into_inner()
        });
        let present = self.present.get_mut();
        *present &= !bit;
        if *present >> (number * ROW_PAGES) & ROW_BITS == 0 {
            *row = OnceLock::new();
        }
        *self.dirty.get_mut() &= !bit;
        self.writing &= !bit;
        *self.cheap.get_mut() &= !bit;
        *self.new.get_mut() &= !bit;
        page.expect("a page is removed that is in memory")
            .into_frame()
    }

    /// Says whether a page can be had again from where a read costs little. Returns what was said
    /// before.
    pub(super) fn set_cheap(&self, bit: u64, cheap: bool) -> bool {
        let was = self.cheap.load(Ordering::Relaxed) & bit != 0;
        if was != cheap {
            match cheap {
                true => self.cheap.fetch_or(bit, Ordering::Relaxed),
                false => self.cheap.fetch_and(!bit, Ordering::Relaxed),
            };
        }
        was
    }

    pub(super) fn cheap(&self) -> u64 {
        self.cheap.load(Ordering::Relaxed)
    }

    pub(super) fn dirty(&self) -> u64 {
        // Acquire: pairs with the task that sets a bit under the shared inode lock.
        self.dirty.load(Ordering::Acquire)
    }

    pub(super) fn unclean(&self) -> u64 {
        self.dirty() | self.writing
    }

    pub(super) fn clean(&self) -> u64 {
        self.present() & !self.unclean()
    }

    pub(super) fn clean_and_cheap(&self) -> u64 {
        self.cheap() & self.clean()
    }
}

/// The bit of a page within its chunk.
pub(super) fn bit(page: u64) -> u64 {
    1 << (page % CHUNK_PAGES)
}

/// Bits of pages `from..to` in the chunk that starts at `base`.
pub(super) fn mask(base: u64, from: u64, to: u64) -> u64 {
    let low = from.saturating_sub(base).min(CHUNK_PAGES);
    let high = to.saturating_sub(base).min(CHUNK_PAGES);
    if low >= high {
        return 0;
    }
    let ones = u64::MAX >> (CHUNK_PAGES - (high - low));
    ones << low
}

/// The lowest `count` of the bits, or all if there are fewer.
pub(super) fn lowest(bits: u64, count: usize) -> u64 {
    let mut rest = bits;
    for _ in 0..count {
        if rest == 0 {
            break;
        }
        rest &= rest - 1;
    }
    bits & !rest
}

//! Where a page's slot lies: pure arithmetic, no node is touched here.
//!
//! Pages `0..DIRECT_SLOTS` have their slots in the inode. The others are numbered from 0 again and
//! lie in a radix tree whose root has height 1 (a leaf) to [`HEIGHT_MAX`].

use std::ops::Range;

use dure_store::format::slot::{DIRECT_SLOTS, INDEX_CHILDREN, INDEX_GRANULE_CHILDREN};
use dure_store::format::slot::{LEAF_GRANULE_SLOTS, LEAF_SLOTS, SLOT_BYTES};
use dure_store::units::{BLOCK_BYTES_U64, to_usize};

/// The highest tree there is.
pub(crate) const HEIGHT_MAX: u32 = 4;

/// Pages a file can have.
pub(crate) const FILE_PAGES_MAX: u64 = DIRECT_SLOTS + subtree_pages(HEIGHT_MAX);

/// Bytes a file can have.
pub const FILE_BYTES_MAX: u64 = FILE_PAGES_MAX * BLOCK_BYTES_U64;
const _: () = assert!(FILE_BYTES_MAX >= 100 << 40, "files reach 100 TiB");
const _: () = assert!(
    FILE_BYTES_MAX < 1 << 62,
    "offsets stay far from the end of 64 bits"
);

/// Pages below a node of `height`.
pub(crate) const fn subtree_pages(height: u32) -> u64 {
    assert!(height >= 1 && height <= HEIGHT_MAX);
    let mut pages = LEAF_SLOTS;
    let mut level = 1;
    while level < height {
        pages *= INDEX_CHILDREN;
        level += 1;
    }
    pages
}

/// The height a tree needs to reach `page`; 0: the inode itself does.
pub(crate) fn height_for(page: u64) -> u32 {
    assert!(
        page < FILE_PAGES_MAX,
        "page {page} is beyond the largest file"
    );
    if page < DIRECT_SLOTS {
        return 0;
    }
    let within = page - DIRECT_SLOTS;
    (1..=HEIGHT_MAX)
        .find(|&height| within < subtree_pages(height))
        .expect("the page is within the largest file")
}

/// A slot's place within the node that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotPlace {
    /// Granule of the leaf; 0 for a direct slot (the inode's own granule is the caller's to name).
    pub(crate) granule: u8,
    /// Slot within the granule.
    pub(crate) slot: u8,
}

impl SlotPlace {
    /// The place of `page` (not a direct one) in its leaf.
    pub(crate) fn in_leaf(page: u64) -> SlotPlace {
        let slot = (page - DIRECT_SLOTS) % LEAF_SLOTS;
        SlotPlace {
            granule: small(slot / LEAF_GRANULE_SLOTS),
            slot: small(slot % LEAF_GRANULE_SLOTS),
        }
    }

    /// The bytes of the slot in the granule's payload, or in the inode's body.
    pub(crate) fn bytes(self) -> Range<usize> {
        let start = usize::from(self.slot) * SLOT_BYTES;
        start..start + SLOT_BYTES
    }
}

/// A child's place within its index node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChildPlace {
    /// Granule of the index.
    pub(crate) granule: u8,
    /// Child within the granule.
    pub(crate) child: u8,
}

impl ChildPlace {
    /// The child of a node of `height` (>= 2) on the way to `page`.
    pub(crate) fn toward(page: u64, height: u32) -> ChildPlace {
        assert!(height >= 2, "a leaf has no children");
        ChildPlace::nth((page - DIRECT_SLOTS) / subtree_pages(height - 1) % INDEX_CHILDREN)
    }

    /// Child `n` of a node.
    pub(crate) fn nth(n: u64) -> ChildPlace {
        assert!(n < INDEX_CHILDREN);
        ChildPlace {
            granule: small(n / INDEX_GRANULE_CHILDREN),
            child: small(n % INDEX_GRANULE_CHILDREN),
        }
    }

    /// The bytes of the child's nid in the granule's payload.
    pub(crate) fn bytes(self) -> Range<usize> {
        let start = usize::from(self.child) * 8;
        start..start + 8
    }
}

/// First page of the node of `height` that covers `page` (not a direct one).
pub(crate) fn node_start(page: u64, height: u32) -> u64 {
    let within = page - DIRECT_SLOTS;
    DIRECT_SLOTS + within - within % subtree_pages(height)
}

/// The pages from `page` on whose slots share its granule.
pub(crate) fn granule_rest(page: u64) -> u64 {
    if page < DIRECT_SLOTS {
        return DIRECT_SLOTS - page;
    }
    LEAF_GRANULE_SLOTS - (page - DIRECT_SLOTS) % LEAF_SLOTS % LEAF_GRANULE_SLOTS
}

/// A number that is known to be small.
fn small(value: u64) -> u8 {
    u8::try_from(value).expect("slots, children and granules are counted below 64")
}

/// The bytes of direct slot `page` in the inode's body.
pub(crate) fn direct_bytes(page: u64) -> Range<usize> {
    assert!(page < DIRECT_SLOTS);
    let start = to_usize(page) * SLOT_BYTES;
    start..start + SLOT_BYTES
}

/// The number of direct slot `page` within the inode.
pub(crate) fn direct_slot(page: u64) -> u8 {
    assert!(page < DIRECT_SLOTS);
    small(page)
}

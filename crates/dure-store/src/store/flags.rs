//! Superblocks that change: new feature flags, a new size.
//!
//! # Order
//! The heads of other media and the copy in the last block, flush, then block 0, flush. Block 0 says
//! what counts: copies that have more flags than it are no damage, a crash came between. Crash
//! scenario without the flushes: what the caller does next is durable, the flag is not.
//!
//! **Crash.** If the write of block 0 is torn, the copy in the last block counts, and is new. If
//! block 0 is damaged already, it is written first: the only good copy is not at risk.

use dure_block::{BlockBuf, Device};
use dure_sync::Arc;

use crate::error::{Error, Result};
use crate::format::feature::{Comes, Feature};
use crate::format::superblock::SuperBlock;
use crate::format::volume::STATE_CLEAN;
use crate::headers::{first_superblock_is_damaged, read_header, read_layout};
use crate::media::Region;
use crate::units::{BLOCK_BYTES, BlockNo};

/// Writes all copies; what is durable before block 0 is written is durable with it.
pub(super) fn write_superblocks(
    region: &Region,
    superblock: &SuperBlock,
    is_ordered: bool,
) -> Result<()> {
    let write = |address: u64| -> Result<()> {
        let block = BlockBuf::from_slice(&superblock.seal(address));
        region.write(BlockNo(address), block.as_slice())?;
        if is_ordered {
            region.flush()?;
        }
        Ok(())
    };
    for member in others(region, superblock) {
        let number = u32::try_from(member).expect("few media");
        let head = BlockBuf::from_slice(&superblock.seal_head(number));
        region.write_head(member, BlockNo(0), head.as_slice())?;
    }
    let last = superblock.total_blocks.get() - 1;
    let order = if first_superblock_is_damaged(region) {
        region.flush()?;
        [0, last]
    } else {
        [last, 0]
    };
    order.into_iter().try_for_each(write)
}

/// After a crash: writes all copies anew if one is not what block 0 says, or is torn. Crash scenario
/// without: the crash has torn one copy, and a bad block under the other, years later, takes the
/// volume. What cannot be written stays as it is: a volume must not be lost to one bad block, and the
/// check says so.
pub(super) fn mend_superblocks(region: &Region, superblock: &SuperBlock) {
    if !are_whole(region, superblock) {
        let _ = write_superblocks(region, superblock, true);
    }
}

/// Whether all copies are this superblock.
fn are_whole(region: &Region, superblock: &SuperBlock) -> bool {
    let last = superblock.total_blocks.get() - 1;
    let mut block = [0; BLOCK_BYTES];
    let mut is = |address: u64| {
        let read = region.read(BlockNo(address), &mut block);
        read.is_ok() && block == superblock.seal(address)
    };
    is(0)
        && is(last)
        && others(region, superblock).all(|member| {
            let number = u32::try_from(member).expect("few media");
            let mut head = [0; BLOCK_BYTES];
            let read = region.read_head(member, BlockNo(0), &mut head);
            read.is_ok() && head == superblock.seal_head(number)
        })
}

/// The media that have a head.
fn others(region: &Region, superblock: &SuperBlock) -> std::ops::Range<usize> {
    let count = superblock.media().len();
    1..if region.heads() == count { count } else { 1 }
}

/// Gives a mounted volume a feature, durably. The superblock is read, since one that came earlier in
/// this mount is not in its layout. The caller holds the lock of the checkpoint.
pub(super) fn announce(region: &Region, feature: Feature, is_ordered: bool) -> Result<()> {
    let superblock = read_layout(region)?.superblock;
    write_superblocks(region, &superblock.with(feature), is_ordered)
}

/// Gives the volume on `device`, which is not mounted, those of `wanted` that it lacks; which.
///
/// # Errors
/// `BadOption` for a volume that was not unmounted, and for a feature that it cannot get so;
/// `Unsupported`, `Corrupt`, or a failed read or write: then it has all that it lacked, or nothing.
pub fn turn_on(device: Arc<dyn Device>, wanted: &[Feature]) -> Result<Vec<Feature>> {
    let refused = |why: String| Error::BadOption {
        option: "upgrade",
        why,
    };
    let region = Region::open(device);
    let layout = read_layout(&region)?;
    layout.superblock.expect_writable()?;
    let (header, _) = read_header(&region, &layout)?;
    let lacking = wanted.iter().filter(|one| !layout.superblock.has(**one));
    let lacking: Vec<Feature> = lacking.copied().collect();
    for Feature { name, comes, .. } in &lacking {
        match comes {
            Comes::Use => {}
            Comes::Mkfs => {
                return Err(refused(format!(
                    "only mkfs gives a volume the feature {name}"
                )));
            }
            Comes::Later => {
                return Err(refused(format!("the feature {name} needs a later dure")));
            }
        }
    }
    if lacking.is_empty() {
        return Ok(lacking);
    }
    if header.state.get() != STATE_CLEAN {
        let why = "the volume was not unmounted: mount and unmount it first";
        return Err(refused(why.to_owned()));
    }
    let superblock = lacking
        .iter()
        .fold(layout.superblock, |superblock, one| superblock.with(*one));
    write_superblocks(&region, &superblock, true)?;
    Ok(lacking)
}

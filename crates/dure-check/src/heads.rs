//! Heads and stamps of the media, if there are several.
//!
//! **Structure.** All media have the same table, so a head that is destroyed is written again from
//! it; a stamp from the volume header. Which medium has lost its head is known by its stamp, and the
//! other way round: `dure_store::members` refuses one that has neither. **Invariants.** A head holds
//! nothing that the volume does not say, so an undo file has no need of it. **Crash.** Each head and
//! each stamp is written by itself, and durable before the next.

use dure_store::error::Result;
use dure_store::format::stamp::Turn;
use dure_store::format::superblock::SuperBlock;
use dure_store::format::volume::VolumeHeader;
use dure_store::layout::Layout;
use dure_store::media::Region;
use dure_store::members::stamps;
use dure_store::units::{BLOCK_BYTES, BlockNo};

use crate::context::Context;
use crate::issue::IssueKind;

/// The media but the first, whose head is the superblock.
fn others(region: &Region, layout: &Layout) -> std::ops::Range<usize> {
    let count = layout.superblock.media().len();
    // A decorator may hide the media.
    1..if region.heads() == count { count } else { 1 }
}

fn head(layout: &Layout, member: usize) -> [u8; BLOCK_BYTES] {
    let member = u32::try_from(member).expect("few media");
    layout.superblock.seal_head(member)
}

fn has_head(region: &Region, layout: &Layout, member: usize) -> bool {
    let mut block = [0; BLOCK_BYTES];
    if region.read_head(member, BlockNo(0), &mut block).is_err() {
        return false;
    }
    let Ok(copy) = SuperBlock::open_head(&block) else {
        return false;
    };
    let number = u32::try_from(member).expect("few media");
    block == layout.superblock.with_flags_of(&copy).seal_head(number)
}

fn has_stamp(region: &Region, layout: &Layout, member: usize) -> bool {
    if !layout.superblock.is_stamped() {
        return true;
    }
    let own = |stamp: u32| usize::try_from(stamp) == Ok(member);
    let found = stamps::read(region, layout, member);
    matches!(found, Ok(Some((stamp, _))) if own(stamp.member.get()))
}

/// Finds heads and stamps that are destroyed.
pub(super) fn check(context: &mut Context<'_>) {
    for member in others(&context.region, &context.layout) {
        let (region, layout) = (&context.region, &context.layout);
        let medium = member + 1;
        let path = layout.superblock.media()[member].path.clone();
        let (has_head, has_stamp) = (
            has_head(region, layout, member),
            has_stamp(region, layout, member),
        );
        if !has_head {
            let path = path.clone();
            context.issue(IssueKind::MediumHead { medium, path });
        }
        if !has_stamp {
            context.issue(IssueKind::MediumStamp { medium, path });
        }
    }
}

/// Writes those anew.
///
/// # Errors
/// A failed write.
pub(super) fn mend(region: &Region, layout: &Layout, header: &VolumeHeader) -> Result<()> {
    for member in others(region, layout) {
        if !has_head(region, layout, member) {
            region.write_head(member, BlockNo(0), &head(layout, member))?;
        }
        if !has_stamp(region, layout, member) {
            stamps::write(region, layout, member, [Turn::of(header), Turn::NONE])?;
        }
    }
    Ok(())
}

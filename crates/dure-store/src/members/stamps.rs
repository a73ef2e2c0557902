//! Stamps: a medium that missed a mount of the volume is noticed.
//!
//! **Problem.** A copy of one medium that was made before later mounts, and is copied back, has the
//! right head: tables of one time over data of another. **Structure.** The volume header, on the
//! first medium, has a random number for each *turn*: a mount for writing, or an unmount. Every
//! other medium has a stamp with the number of its turn ([`crate::format::stamp`]).
//!
//! # A turn
//! 1. Stamps: now the old turn, next the new one. Flushed.
//! 2. The volume header, of the new turn. Flushed.
//! 3. Stamps: now the new turn, next none. Flushed; only then is the volume mounted, or unmounted.
//!
//! **Invariants.** Each stamp names the turn of the header; outside of a turn it names no other one.
//! Header number 0, of a rebuilt header whose turn is unknown, is not compared.
//!
//! # On a crash
//! | after step | header | each stamp | |
//! |---|---|---|---|
//! | 0, in 1 | old | now old; next none or new | knows it |
//! | 1, in 2 | old or new | now old, next new | knows both |
//! | 2, in 3 | new | now old, next new; or now new | knows it |
//!
//! Without step 1, a crash between header and stamps leaves a whole volume that is refused; without
//! step 3, the first medium of the turn before is taken for the present one.

use dure_block::{BlockBuf, Lba};
use dure_journal::format::slotted::{self, MIRRORED_BLOCKS, SlotKind};
use zerocopy::{FromBytes, IntoBytes};

use super::Member;
use crate::error::{Error, Result};
use crate::format::pair_kind;
use crate::format::stamp::{STAMP_BLOCK, Stamp, Turn};
use crate::layout::Layout;
use crate::media::Region;
use crate::rules::StoreRules;
use crate::units::{BLOCK_BYTES, BlockNo};

const KIND: SlotKind = SlotKind(pair_kind::STAMP);
const PAIR: Lba = Lba::new(STAMP_BLOCK);

/// The stamp in the blocks of its pair, and its generation.
fn open(blocks: &[u8], seed: u32) -> Option<(Stamp, u64)> {
    let newest = slotted::open_mirrored(blocks, KIND, PAIR, seed)?;
    let stamp = Stamp::read_from_bytes(newest.body).expect("a pair's payload has this size");
    Some((stamp, newest.generation))
}

/// The stamp on medium `member` of an open volume; `None` if it is destroyed.
///
/// # Errors
/// A failed read.
pub fn read(region: &Region, layout: &Layout, member: usize) -> Result<Option<(Stamp, u64)>> {
    let mut blocks = vec![0; MIRRORED_BLOCKS * BLOCK_BYTES];
    region.read_head(member, BlockNo(STAMP_BLOCK), &mut blocks)?;
    Ok(open(&blocks, layout.crc_seed))
}

/// Writes the stamp of medium `member`. Durable on return.
///
/// # Errors
/// A failed read or write.
pub fn write(region: &Region, layout: &Layout, member: usize, turns: [Turn; 2]) -> Result<()> {
    let before = read(region, layout, member)?;
    let generation = before.map_or(0, |(_, generation)| generation) + 1;
    let number = u32::try_from(member).expect("few media");
    let stamp = Stamp::new(number, turns[0], turns[1]);
    for pair in slotted::mirrors(PAIR) {
        let mut block = BlockBuf::zeroed(1);
        block.as_mut_slice()[slotted::SLOT_HEADER_BYTES..].copy_from_slice(stamp.as_bytes());
        let seed = layout.crc_seed;
        let at = slotted::seal(block.as_mut_slice(), KIND, pair, generation, seed);
        region.write_head(member, BlockNo(at.number()), block.as_slice())?;
    }
    Ok(())
}

/// Whether the media of `layout` are stamped.
///
/// # Errors
/// `Medium` if they are, and cannot be reached.
pub(crate) fn are_stamped(region: &Region, layout: &Layout) -> Result<bool> {
    let count = layout.superblock.media().len();
    if !layout.superblock.is_stamped() {
        return Ok(false);
    }
    // A decorator that hides the media must not let a mount leave them behind.
    if region.heads() != count {
        return Err(Error::Medium {
            name: format!("volume {}", uuid::Uuid::from_bytes(layout.superblock.uuid)),
            why: "its media are hidden behind another device, so a mount could not stamp them"
                .into(),
        });
    }
    Ok(true)
}

/// Writes the same stamp to all media.
///
/// # Errors
/// Those of [`write`].
pub(crate) fn write_all(region: &Region, layout: &Layout, turns: [Turn; 2]) -> Result<()> {
    let count = layout.superblock.media().len();
    (1..count).try_for_each(|member| write(region, layout, member, turns))
}

/// Makes a turn of the volume: `write_header` writes the volume header of turn `new`, and flushes.
///
/// # Errors
/// Those of [`write`], and of `write_header`.
pub(crate) fn turn(
    region: &Region,
    layout: &Layout,
    (old, new): (Turn, Turn),
    rules: &StoreRules,
    write_header: impl FnOnce() -> Result<()>,
) -> Result<()> {
    if !are_stamped(region, layout)? {
        return write_header();
    }
    assert_ne!(new.mount, Turn::NONE.mount, "a turn has a number");
    // Crash scenario without this: the header is of the new turn, the stamps know the old one only,
    // and all media are refused for having missed a mount.
    if rules.stamps_before_header.holds() {
        write_all(region, layout, [old, new])?;
    }
    write_header()?;
    // Without this the header of the old turn is still known: an old copy of the first medium would
    // be taken for the present one.
    if rules.stamps_after_header.holds() {
        write_all(region, layout, [new, Turn::NONE])?;
    }
    Ok(())
}

/// Whether the medium of `member` has the stamp of medium `place` of the volume of `layout`: what
/// says which it is if its head is destroyed.
pub(super) fn identifies(member: &Member, layout: &Layout, place: usize) -> bool {
    let mut blocks = vec![0; MIRRORED_BLOCKS * BLOCK_BYTES];
    let of_header = place == 0;
    let at = if of_header {
        layout.volume_header
    } else {
        STAMP_BLOCK
    };
    let (lba, out) = (Lba::new(at), &mut blocks[..]);
    if member
        .device
        .execute(dure_block::Io::Read { lba, out })
        .is_err()
    {
        return false;
    }
    if of_header {
        let kind = SlotKind(pair_kind::VOLUME);
        return slotted::open_mirrored(&blocks, kind, lba, layout.crc_seed).is_some();
    }
    let stamp = open(&blocks, layout.crc_seed);
    stamp.is_some_and(|(stamp, _)| usize::try_from(stamp.member.get()) == Ok(place))
}

/// Refuses media of which one missed a turn; `header` is that of the volume, if it can be read.
pub(super) fn compare(
    region: &Region,
    layout: &Layout,
    header: Turn,
    names: &[&str],
) -> Result<()> {
    if !layout.superblock.is_stamped() || header.mount == Turn::NONE.mount {
        return Ok(());
    }
    for member in 1..layout.superblock.media().len() {
        // A stamp that is destroyed is found by the check.
        let Some((stamp, _)) = read(region, layout, member)? else {
            continue;
        };
        if stamp.knows(&header) {
            continue;
        }
        let (own, first) = (stamp.now.epoch.get(), header.epoch.get());
        let (name, other, old, new) = if own <= first {
            (names[member], names[0], own, first)
        } else {
            (names[0], names[member], first, own)
        };
        let why = if old == new {
            format!(
                "is of another time of mount {new} of the volume than {other}: restore copies of all \
                 media that were made together, while the volume was not mounted"
            )
        } else {
            format!(
                "is an old copy: it was last used in mount {old} of the volume, and {other} in mount \
                 {new}; restore copies of all media that were made together"
            )
        };
        let name = name.to_owned();
        return Err(Error::Medium { name, why });
    }
    Ok(())
}

#[cfg(test)]
mod tests;

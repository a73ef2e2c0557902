//! Growing a volume that is not mounted. The server of a mount ends it, grows it, and mounts it again
//! while requests wait (`dure_fuse::gate`).
//!
//! **Problem.** The tables lie in front of the main area and are as large as the volume needs; a
//! larger one needs larger tables, and there is no room behind them. **Structure.** The main area
//! grows over the old end of the volume. Volume header, packs, NAT, SIT and summaries are written
//! anew behind it, in space that the old volume does not have; journal headers and logs stay. The
//! place of the old tables in front of the main area is not used again; that of tables which an
//! earlier growth put behind it becomes segments.
//!
//! ```text
//! before  0 | header, packs | journal headers | NAT, SIT, summaries | main .................... | last
//! after   0 | ............. | journal headers | ................... | main .................................. | header, packs, NAT, SIT, summaries | last
//! ```
//!
//! # Invariants
//! Nothing that the old superblock names is changed. Only the write of block 0 makes the new volume
//! count.
//!
//! **Crash.** Before block 0: the old volume, with its own last block, on a larger medium. After it:
//! the new one. If the write of block 0 is torn, the copy in the last block counts, which is the new
//! one and durable.

use dure_block::Device;
use dure_sync::Arc;
use zerocopy::FromBytes;
use zerocopy::little_endian::{U32, U64};

use super::flags::write_superblocks;
use crate::checkpoint::CheckpointState;
use crate::error::{Error, Result};
use crate::format::sit::SitBlock;
use crate::format::volume::{PACK_PAIRS, STATE_CLEAN, SlotCode, VolumeHeader};
use crate::format::{nat, pair_kind, sit};
use crate::headers::{read_header, read_layout};
use crate::layout::Layout;
use crate::media::Region;
use crate::packs::{Packs, PairIndex, Table};
use crate::pair;
use crate::space::summaries_from;
use crate::units::SegNo;

/// Blocks of a mirrored pair.
const MIRRORED: u64 = dure_journal::format::slotted::MIRRORED_BLOCKS as u64;

/// Lets the volume on `device` use all of it; the layouts before and after.
///
/// # Errors
/// `BadOption` for a volume that was not unmounted, or a device that is smaller than the volume or
/// not enough larger; `Corrupt`, or a failed read or write.
pub fn grow_volume(device: Arc<dyn Device>) -> Result<(Layout, Layout)> {
    let region = Region::open(device.clone());
    let before = read_layout(&region)?;
    let (header, generation) = read_header(&region, &before)?;
    if header.state.get() != STATE_CLEAN {
        return Err(refused(
            "the volume was not unmounted: mount and unmount it first",
        ));
    }
    let after = grown(&before, region.blocks())?;
    assert!(
        after.volume_header >= before.total_blocks,
        "new tables lie behind the old volume"
    );
    let packs = Packs::read(&region, &before, &header)?;
    // What has two copies lies elsewhere in the new volume. All is written through one region, whose
    // flush makes it durable.
    let target = Region::open(device);
    target.write_twice(after.copied());
    let written = copy_tables((&region, &target), (&before, &after), &packs, &header)?;
    let mut state = CheckpointState::new(header, generation);
    state.header.packs = [0; 3952];
    let checkpoint = state.header.checkpoint.get();
    Packs::new(&after).write(&target, &mut state.header, checkpoint, &written)?;
    state.write(&target, &after)?;
    // Crash scenario if block 0 were written before the flush in this: it names tables that are not on
    // the medium.
    write_superblocks(&target, &after.superblock, true)?;
    Ok((before, after))
}

/// The layout after a growth to `blocks` blocks; reads and writes nothing.
///
/// # Errors
/// `BadOption` for a volume that cannot grow, `TooSmall` for too few blocks.
pub fn grown(before: &Layout, blocks: u64) -> Result<Layout> {
    if before.superblock.device_count.get() != 1 {
        return Err(refused("the volume is on several media"));
    }
    before.superblock.expect_writable()?;
    plan(before, blocks)
}

fn refused(why: &str) -> Error {
    Error::BadOption {
        option: "resize",
        why: why.into(),
    }
}

/// Where everything lies when the volume has `blocks` blocks.
fn plan(before: &Layout, blocks: u64) -> Result<Layout> {
    let segment = u64::from(before.segment_blocks);
    let nat_pairs = blocks.div_ceil(4).div_ceil(nat::ENTRIES);
    let nat_pairs = nat_pairs.max(u64::from(before.nat_pairs));
    let room = blocks.saturating_sub(before.main) / segment;
    let sit_pairs = room.div_ceil(u64::from(sit::ENTRIES));
    let packs = nat_pairs.div_ceil(PACK_PAIRS) + sit_pairs.div_ceil(PACK_PAIRS);
    let copies = if before.has_copies() { 2 } else { 1 };
    let fixed = MIRRORED * (1 + packs) + copies * 2 * (nat_pairs + sit_pairs) + 1;
    let of_segment = segment + 2 * u64::from(before.summary_pairs);
    let segments = blocks.saturating_sub(before.main + fixed) / of_segment;
    // The new tables must not lie where the old volume has something.
    let least = (before.total_blocks - before.main).div_ceil(segment);
    if segments < least.max(u64::from(before.segments) + 1) {
        let need = before.main + least * of_segment + fixed;
        return Err(Error::TooSmall {
            what: "a larger volume, whose tables lie behind the present one,",
            have: blocks,
            need,
        });
    }
    let volume_header = before.main + segments * segment;
    let pack = volume_header + MIRRORED;
    let nat = pack + MIRRORED * packs;
    let sit = nat + 2 * nat_pairs;
    let small = |value: u64| {
        let value = u32::try_from(value).map_err(|_| refused("larger than a volume can be"))?;
        Ok::<U32, Error>(U32::new(value))
    };
    let mut superblock = before.superblock;
    superblock.total_blocks = U64::new(blocks);
    superblock.volume_header = U64::new(volume_header);
    superblock.pack = U64::new(pack);
    superblock.nat = U64::new(nat);
    superblock.sit = U64::new(sit);
    let summary = sit + 2 * sit_pairs;
    superblock.summary = U64::new(summary);
    if before.has_copies() {
        let summaries = 2 * u64::from(before.summary_pairs) * segments;
        superblock.copies = U64::new(summary + summaries);
    }
    superblock.pack_pairs = small(packs)?;
    superblock.nat_pairs = small(nat_pairs)?;
    superblock.sit_pairs = small(sit_pairs)?;
    superblock.segments = small(segments)?;
    superblock.devices[0].blocks = U64::new(blocks);
    Layout::from_superblock(superblock)
}

/// Writes what counts of the tables to its new place; which slots these are.
fn copy_tables(
    (region, target): (&Region, &Region),
    (before, after): (&Layout, &Layout),
    packs: &Packs,
    header: &VolumeHeader,
) -> Result<Vec<(PairIndex, u64)>> {
    let (seed, checkpoint) = (before.crc_seed, header.checkpoint.get());
    let copy = |from: u64, to: u64, slot: u64, kind: u32| {
        let payload = pair::read_slot(region, from, slot, kind, seed)?;
        pair::write_slot(target, to, slot, kind, (checkpoint, &payload[..]), seed)?;
        Ok::<_, Error>(payload)
    };
    let counts = |table: Table, index: u64| match packs.code(PairIndex { table, index }) {
        SlotCode::Slot(slot) => slot,
        SlotCode::Unwritten => unreachable!("only pairs that were written are listed"),
    };
    let mut written = Vec::new();
    for index in packs.written(Table::Nat) {
        let slot = counts(Table::Nat, index);
        copy(
            before.nat_pair(index),
            after.nat_pair(index),
            slot,
            pair_kind::NAT,
        )?;
        written.push((
            PairIndex {
                table: Table::Nat,
                index,
            },
            slot,
        ));
    }
    for index in packs.written(Table::Sit) {
        let slot = counts(Table::Sit, index);
        let number = u32::try_from(index).expect("SIT pairs are u32");
        let (from, to) = (before.sit_pair(number), after.sit_pair(number));
        let payload = copy(from, to, slot, pair_kind::SIT)?;
        written.push((
            PairIndex {
                table: Table::Sit,
                index,
            },
            slot,
        ));
        let block = SitBlock::ref_from_bytes(&payload).expect("a pair's payload has this size");
        for (segment, entry) in (number * sit::ENTRIES..).zip(&block.entries) {
            let codes = summaries_from(entry.summaries).unwrap_or_default();
            if segment >= before.segments {
                break;
            }
            for (n, code) in (0..before.summary_pairs).zip(codes) {
                let SlotCode::Slot(slot) = code else { continue };
                let place = |layout: &Layout| layout.summary_pair(SegNo(segment), n);
                let copied = copy(place(before), place(after), slot, pair_kind::SUMMARY);
                // A summary is a hint: one that does not verify stays unreadable, as it was.
                match copied {
                    Ok(_) | Err(Error::Corrupt { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Ok(written)
}

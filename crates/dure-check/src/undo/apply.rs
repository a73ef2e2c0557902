//! Puts back what an undo file has saved.

use dure_block::crc32c::crc32c;
use dure_block::{Device, Lba};
use dure_journal::format::slotted;
use dure_store::format::pair_kind;
use dure_store::layout::Layout;
use dure_store::media::Region;
use dure_store::units::{BLOCK_BYTES, BlockNo, to_u64};
use dure_sync::Arc;

use super::format::{Record, kind};
use super::read::{Block, Contents, contents};
use super::{UndoError, UndoFile};
use crate::report::Report;
use crate::superblock;

/// What an undo did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Undone {
    /// Blocks that are as they were.
    pub blocks: u64,
    /// The repair had been complete.
    pub finished: bool,
}

/// Brings the volume on `device` back to what it was before the repair that wrote `file`.
///
/// # Errors
/// The file is none, or of another volume, or the volume was changed since: then nothing is
/// written. A failed read or write: the undo can be done again.
pub fn undo(device: Arc<dyn Device>, file: &dyn UndoFile) -> Result<Undone, UndoError> {
    let contents = contents(file)?;
    let region = Region::open(device);
    let layout = superblock::find(&region, &mut Report::default())?;
    layout.superblock.expect_writable().map_err(volume)?;
    let (of_file, of_volume) = (contents.header.uuid, layout.superblock.uuid);
    let blocks = contents.header.total_blocks.get();
    if of_file != of_volume || blocks != layout.total_blocks {
        return Err(UndoError::OtherVolume {
            file: uuid::Uuid::from_bytes(of_file),
            volume: uuid::Uuid::from_bytes(of_volume),
        });
    }
    require_unchanged(&region, &layout, &contents)?;
    begin(file, &contents)?;
    for (block, saved) in &contents.blocks {
        let mut old = [0; BLOCK_BYTES];
        file.read_at(saved.at, &mut old)?;
        region.write(BlockNo(*block), &old).map_err(volume)?;
    }
    region.flush().map_err(volume)?;
    Ok(Undone {
        blocks: to_u64(contents.blocks.len()),
        finished: contents.finished,
    })
}

fn volume(error: impl Into<dure_store::error::Error>) -> UndoError {
    UndoError::Volume(error.into())
}

/// Notes that blocks are about to change: torn ones are no surprise from now on.
fn begin(file: &dyn UndoFile, contents: &Contents) -> Result<(), UndoError> {
    let mut end = contents.end;
    let mut bytes = Vec::new();
    end.push(&mut bytes, Record::new(kind::BEGUN, 0, 0), &[]);
    file.write_at(contents.end.at, &bytes)?;
    // Crash before this: the volume is as the repair left it.
    file.sync()?;
    Ok(())
}

/// Requires that the volume was not written since. After a complete repair every block it wrote
/// tells; else one of them may be torn, but the volume header, which every mount and every repair
/// writes, is one that the file knows, or none at all.
fn require_unchanged(
    region: &Region,
    layout: &Layout,
    contents: &Contents,
) -> Result<(), UndoError> {
    let header = layout.volume_header..layout.volume_header + 4;
    for (block, crc) in header.clone().zip(&contents.header.header_crcs) {
        let known = contents.blocks.contains_key(&block);
        if !known && checksum(region, block)? != Some(crc.get()) {
            return Err(UndoError::Changed { block });
        }
    }
    for (block, saved) in &contents.blocks {
        let now = checksum(region, *block)?;
        let exact = contents.finished;
        let known = now.is_none_or(|crc| is_known(saved, crc, exact));
        let counts = header.contains(block) && is_header(region, layout, *block);
        let torn = !exact && !counts;
        if !known && !torn {
            return Err(UndoError::Changed { block: *block });
        }
    }
    Ok(())
}

/// Whether the block holds what it held before the repair, or after it; or, if not `exact`, at any
/// time between.
fn is_known(saved: &Block, crc: u32, exact: bool) -> bool {
    let mut new = saved.new.iter().rev();
    let last = new.next();
    saved.old == crc || last == Some(&crc) || (!exact && new.any(|new| *new == crc))
}

/// Checksum of a block; none where it cannot be read.
fn checksum(region: &Region, block: u64) -> Result<Option<u32>, UndoError> {
    let mut bytes = [0; BLOCK_BYTES];
    let read = region.read(BlockNo(block), &mut bytes);
    Ok(read.ok().map(|()| crc32c(&bytes)))
}

/// Whether the block is a slot of the volume header that counts.
fn is_header(region: &Region, layout: &Layout, block: u64) -> bool {
    let mut bytes = [0; BLOCK_BYTES];
    if region.read(BlockNo(block), &mut bytes).is_err() {
        return false;
    }
    let within = block - layout.volume_header;
    let pair = Lba::new(layout.volume_header + within / 2 * 2);
    let kind = slotted::SlotKind(pair_kind::VOLUME);
    slotted::open_slot(&bytes, kind, pair, within % 2, layout.crc_seed).is_some()
}

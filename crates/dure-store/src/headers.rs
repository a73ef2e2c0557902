//! Superblock and volume header as mount, check and dump read them.

use dure_block::Lba;
use dure_journal::Rules;
use dure_journal::recovery::{COUNT_MAX, LogLayout, NUMBER_START_MAX, Scan};
use zerocopy::FromBytes;

use crate::error::{Error, Result};
use crate::format::pair_kind;
use crate::format::superblock::SuperBlock;
use crate::format::volume::{STATE_DIRTY, STATES, VolumeHeader};
use crate::layout::Layout;
use crate::media::Region;
use crate::pair;
use crate::units::{BLOCK_BYTES, BlockNo};

/// The superblock: the first copy, or the last when the first is damaged or cannot be read.
///
/// # Errors
/// What is wrong with the first copy, if the last is not sound either; `TooSmall` for a medium that
/// is shorter than the volume.
pub fn read_layout(region: &Region) -> Result<Layout> {
    let blocks = region.blocks();
    if blocks < 2 {
        return Err(Error::NotDure);
    }
    let copy = |address| superblock(region, address);
    let superblock = match copy(0) {
        Ok(superblock) => superblock,
        Err(error @ (Error::Unsupported { .. } | Error::Medium { .. })) => return Err(error),
        Err(first) => copy(blocks - 1).map_err(|last| Error::of_superblocks(first, last))?,
    };
    let layout = Layout::from_superblock(superblock)?;
    if layout.total_blocks > blocks && layout.superblock.media().len() > 1 {
        return Err(layout.superblock.alone());
    }
    if layout.total_blocks > blocks {
        let need = layout.total_blocks;
        return Err(Error::TooSmall {
            what: Error::VOLUME_ON_DEVICE,
            have: blocks,
            need,
        });
    }
    region.write_twice(layout.copied());
    Ok(layout)
}

/// The copy of the superblock in this block.
pub(crate) fn superblock(region: &Region, address: u64) -> Result<SuperBlock> {
    let mut block = [0; BLOCK_BYTES];
    region.read(BlockNo(address), &mut block)?;
    SuperBlock::open(&block, address)
}

/// Whether the first copy of the superblock is damaged, or cannot be read: a volume that is open was
/// found by the last.
#[must_use]
pub(crate) fn first_superblock_is_damaged(region: &Region) -> bool {
    superblock(region, 0).is_err()
}

/// The volume header and its generation.
pub fn read_header(region: &Region, layout: &Layout) -> Result<(VolumeHeader, u64)> {
    let first = layout.volume_header;
    let newest = pair::read_newest(region, first, pair_kind::VOLUME, layout.crc_seed)?;
    let Some(newest) = newest else {
        let what = "volume header: never written".into();
        return Err(Error::Corrupt {
            what,
            at: first,
            want: 1,
            got: 0,
        });
    };
    let header =
        VolumeHeader::read_from_bytes(&newest.payload).expect("a pair's payload has this size");
    if let Some((field, got, _)) = impossible_count(&header) {
        return Err(Error::Corrupt {
            what: format!("volume header: {field}"),
            at: first,
            want: COUNT_MAX,
            got,
        });
    }
    let state = header.state.get();
    if !STATES.contains(&state) {
        let what = "volume header: state".into();
        return Err(Error::Corrupt {
            what,
            at: first,
            want: 1,
            got: u64::from(state),
        });
    }
    Ok((header, newest.generation))
}

/// The first counter of the header that nothing may count on from: its name, value, and what it
/// must be.
pub fn impossible_count(header: &VolumeHeader) -> Option<(&'static str, u64, &'static str)> {
    let epoch = header.epoch.get();
    let (number, checkpoint) = (header.first_number.get(), header.checkpoint.get());
    [
        ("epoch", epoch, 1..=COUNT_MAX, "from 1 to 2^62"),
        (
            "first number",
            number,
            1..=NUMBER_START_MAX,
            "from 1 to 2^53",
        ),
        ("checkpoint", checkpoint, 0..=COUNT_MAX, "at most 2^62"),
    ]
    .into_iter()
    .find(|(_, got, range, _)| !range.contains(got))
    .map(|(field, got, _, must)| (field, got, must))
}

/// Refuses logs whose numbers leave none for the next epoch.
pub fn check_numbers(logs: &Scan, layout: &Layout) -> Result<()> {
    let got = logs.max_number();
    if got < NUMBER_START_MAX {
        return Ok(());
    }
    Err(Error::Corrupt {
        what: "greatest handle number in the logs".into(),
        at: layout.journal_headers,
        want: NUMBER_START_MAX,
        got,
    })
}

/// What the journal's scan needs to know.
pub fn log_layout(layout: &Layout, header: &VolumeHeader, rules: Rules) -> LogLayout {
    LogLayout {
        seed: layout.crc_seed,
        segment_blocks: layout.segment_blocks,
        first_number: header.first_number.get(),
        device_blocks: layout.total_blocks,
        headers: (0..layout.journals)
            .map(|n| Lba::new(layout.journal_header(n)))
            .collect(),
        clean: header.state.get() != STATE_DIRTY,
        rules,
    }
}

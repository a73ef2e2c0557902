//! Pass 1: both copies of the superblock, and whether the device is as long as the volume.

use dure_store::error::{Error, Result};
use dure_store::format::superblock::SuperBlock;
use dure_store::layout::Layout;
use dure_store::media::Region;
use dure_store::units::{BLOCK_BYTES, BlockNo, is_zero};
use zerocopy::IntoBytes;

use crate::issue::IssueKind;
use crate::report::Report;

/// A copy, or why it is none.
fn read_copy(region: &Region, at: u64) -> Result<SuperBlock> {
    let mut block = [0; BLOCK_BYTES];
    region.read(BlockNo(at), &mut block)?;
    SuperBlock::open(&block, at)
}

/// Finds the layout. A bad copy is an error that a safe repair corrects, as long as the other one is
/// good.
///
/// # Errors
/// The first copy's error when there is no good copy, or `Unsupported` when it needs a newer dure;
/// `Corrupt` when its numbers do not fit together.
pub(super) fn find(region: &Region, report: &mut Report) -> Result<Layout> {
    let blocks = region.blocks();
    if blocks < 2 {
        return Err(Error::NotDure);
    }
    let first = read_copy(region, 0);
    let last = match &first {
        Ok(superblock) => superblock.total_blocks.get().saturating_sub(1),
        Err(_) => blocks.saturating_sub(1),
    };
    let second = if last == 0 {
        Err(Error::NotDure)
    } else {
        read_copy(region, last)
    };
    let layout = match (first, second) {
        (Ok(first), second) => {
            let layout = Layout::from_superblock(first)?;
            if layout.total_blocks > blocks && layout.superblock.media().len() > 1 {
                return Err(layout.superblock.alone());
            }
            if layout.total_blocks > blocks {
                let need = layout.total_blocks;
                report.add(IssueKind::DeviceTooSmall { have: blocks, need });
                return Ok(layout);
            }
            match second {
                Ok(second) => compare(&first, (&second, last), report),
                Err(error) => {
                    let why = of_one_copy(&error);
                    report.add(IssueKind::SuperblockCopy { at: last, why });
                }
            }
            layout
        }
        // A valid copy that needs a newer dure is no damage: the other copy must not be believed
        // instead.
        (Err(error @ (Error::Unsupported { .. } | Error::Medium { .. })), _) => return Err(error),
        (Err(error), Ok(second)) => {
            report.add(IssueKind::SuperblockCopy {
                at: 0,
                why: of_one_copy(&error),
            });
            Layout::from_superblock(second)?
        }
        (Err(first), Err(last)) => return Err(Error::of_superblocks(first, last)),
    };
    check_devices(&layout, report);
    Ok(layout)
}

/// What is wrong with one copy, when the other one is good.
fn of_one_copy(error: &Error) -> String {
    match error {
        Error::NotDure => "there is no superblock".to_owned(),
        other => other.to_string(),
    }
}

/// Byte by byte, but for the copy's own address and checksum. A flag that has come to the second copy
/// only does not count; one that is missing there would not, if the first copy were lost.
fn compare(first: &SuperBlock, (second, at): (&SuperBlock, u64), report: &mut Report) {
    let (a, b) = (first.with_flags_of(second), second.with_flags_of(first));
    let (a, b) = (a.seal(0), b.seal(0));
    if let Some(offset) = (0..BLOCK_BYTES).find(|&offset| a[offset] != b[offset] && offset >= 12) {
        report.add(IssueKind::SuperblockCopiesDiffer { offset });
    } else if b != second.seal(0) {
        let why = "it lacks a feature flag".to_owned();
        report.add(IssueKind::SuperblockCopy { at, why });
    }
}

fn check_devices(layout: &Layout, report: &mut Report) {
    let count = layout.superblock.media().len();
    let (used, unused) = layout.superblock.devices.split_at(count);
    let used = used.iter().all(|device| is_zero(&device.reserved));
    let unused = unused.iter().all(|device| is_zero(device.as_bytes()));
    let paths = &layout.superblock.paths[if count > 1 { count } else { 0 }..];
    if !used || !unused || !paths.iter().all(|path| is_zero(path)) {
        report.add(IssueKind::ReservedNotZero {
            what: "device table".into(),
            at: 0,
        });
    }
}

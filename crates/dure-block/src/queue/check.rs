//! What a queue refuses.
//!
//! **Problem.** A device must not be asked for what it does not have. **Structure.** Checks of
//! length and range against [`DeviceInfo`]. **Invariants.** All requests pass them once, before
//! they take a tag. **Crash.** Nothing is kept.

use crate::{BLOCK_BYTES, Bio, DeviceInfo, Error, Lba, Op, Result, blocks_of};

pub(super) fn whole(info: &DeviceInfo, op: Op, lba: Lba, bytes: usize) -> Result<()> {
    if bytes.is_multiple_of(BLOCK_BYTES) {
        return Ok(());
    }
    Err(Error::Unaligned {
        device: info.name.clone(),
        op,
        lba,
        bytes,
    })
}

pub(super) fn bytes(info: &DeviceInfo, op: Op, lba: Lba, bytes: usize) -> Result<()> {
    whole(info, op, lba, bytes)?;
    range(info, op, lba, blocks_of(bytes))
}

pub(super) fn bio(info: &DeviceInfo, bio: &Bio) -> Result<()> {
    if bio.op() == Op::Flush {
        return Ok(());
    }
    range(info, bio.op(), bio.lba(), bio.blocks())?;
    let blocks_max = info.max_blocks_per_request;
    let (op, lba, blocks) = (bio.op(), bio.lba(), bio.blocks());
    if blocks <= blocks_max || op == Op::Discard {
        return Ok(());
    }
    Err(Error::TooLong {
        device: info.name.clone(),
        op,
        lba,
        blocks,
        blocks_max,
    })
}

pub(super) fn range(info: &DeviceInfo, op: Op, lba: Lba, blocks: u64) -> Result<()> {
    if info.read_only && op != Op::Read {
        return Err(Error::ReadOnly {
            device: info.name.clone(),
            op,
            lba,
        });
    }
    let end = lba.number().checked_add(blocks);
    if end.is_some_and(|end| end <= info.blocks) {
        return Ok(());
    }
    Err(Error::OutOfRange {
        device: info.name.clone(),
        op,
        lba,
        blocks,
        device_blocks: info.blocks,
    })
}

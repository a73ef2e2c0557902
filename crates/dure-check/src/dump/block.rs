//! One block: which part of the volume it lies in, its owner, and its bytes.

use dure_store::error::{Error, Result};
use dure_store::units::BlockNo;

use super::source::Source;
use super::{Out, line, tables};

const ROW_BYTES: usize = 16;

/// A block.
pub(super) fn block(source: &Source, out: &mut Out<'_>, block: BlockNo) -> Result<()> {
    let blocks = source.region.blocks();
    if block.0 >= blocks {
        let why = format!("{} is not below {blocks}, the size of the device", block.0);
        return Err(Error::BadOption {
            option: "block",
            why,
        });
    }
    line!(out, "block {}: {}", block.0, part(source, block)?)?;
    let bytes = source.block(block.0)?;
    let mut skipped = false;
    for (row, bytes) in bytes.chunks_exact(ROW_BYTES).enumerate() {
        if bytes.iter().all(|byte| *byte == 0) {
            skipped = true;
            continue;
        }
        if std::mem::take(&mut skipped) {
            line!(out, "  *")?;
        }
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let printable = |byte: &u8| {
            if byte.is_ascii_graphic() {
                char::from(*byte)
            } else {
                '.'
            }
        };
        let text: String = bytes.iter().map(printable).collect();
        line!(out, "  {:03x}: {}  {text}", row * ROW_BYTES, hex.join(" "))?;
    }
    if skipped {
        line!(out, "  *")?;
    }
    Ok(())
}

fn part(source: &Source, block: BlockNo) -> Result<String> {
    let layout = &source.layout;
    let pairs = |first: u64, count: u64, blocks: u64| -> Option<(u64, u64)> {
        let offset = block.0.checked_sub(first)?;
        (offset < blocks * count).then_some((offset / blocks, offset % blocks))
    };
    let segments = u64::from(layout.segments) * u64::from(layout.summary_pairs);
    let copied = |pairs: u32| {
        if layout.has_copies() {
            u64::from(pairs)
        } else {
            0
        }
    };
    let copied_sit = layout.copies + 2 * u64::from(layout.nat_pairs);
    for (name, first, count, blocks) in [
        ("volume header", layout.volume_header, 1, 4),
        ("pack", layout.pack, u64::from(layout.pack_pairs), 4),
        (
            "journal header",
            layout.journal_headers,
            u64::from(layout.journals),
            4,
        ),
        ("NAT", layout.nat, u64::from(layout.nat_pairs), 2),
        ("SIT", layout.sit, u64::from(layout.sit_pairs), 2),
        ("summary", layout.summary, segments, 2),
        ("copied NAT", layout.copies, copied(layout.nat_pairs), 2),
        ("copied SIT", copied_sit, copied(layout.sit_pairs), 2),
    ] {
        if let Some((pair, n)) = pairs(first, count, blocks) {
            let slot = n % 2;
            let copy = if n < 2 { "" } else { ", second copy" };
            return Ok(format!("slot {slot} of {name} pair {pair}{copy}"));
        }
    }
    if block.0 == 0 || block.0 == layout.total_blocks - 1 {
        return Ok("superblock".to_owned());
    }
    let Some((segment, index)) = layout.locate(block) else {
        return Ok("unused".to_owned());
    };
    for journal in 0..layout.journals {
        let Ok(header) = tables::journal_header(source, journal) else {
            continue;
        };
        let start = layout.segment_start(segment).0;
        if header
            .segments
            .iter()
            .any(|segment| segment.number() == start)
        {
            return Ok(format!(
                "block {index} of segment {}, log of journal {journal}",
                segment.0
            ));
        }
    }
    let entry = tables::sit_entry(source, segment)?;
    let live = if tables::is_live(&entry, index) {
        "live"
    } else {
        "free"
    };
    let owners = tables::summary_of(source, segment)?;
    let owner = tables::owner(&owners[dure_store::units::to_usize(u64::from(index))]);
    Ok(format!(
        "block {index} of segment {}, {live}, summary: {owner}",
        segment.0
    ))
}

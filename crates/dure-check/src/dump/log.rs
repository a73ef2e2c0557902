//! The logs: complete transactions and their records in readable form.

use dure_journal::recovery::{Record, scan};
use dure_store::error::Result;
use dure_store::format::node::NodeKind;
use dure_store::format::note::{BLOCKS, Blocks, DATA, Data, FREE_NODE, Life, NEW_NODE};
use dure_store::units::JournalId;
use zerocopy::FromBytes;

use super::source::Source;
use super::{Out, line};

/// Bytes of a delta that are printed.
const BYTES_SHOWN: usize = 64;

/// The complete transactions of the running epoch.
pub(super) fn transactions(
    source: &Source,
    out: &mut Out<'_>,
    journal: Option<JournalId>,
) -> Result<()> {
    let layout = &source.layout;
    let header = source.header()?;
    let log = dure_store::log_layout(layout, &header, dure_journal::Rules::default());
    let epoch = header.epoch.get();
    let scan = scan(&source.region.log_medium(), &log, epoch, 1)?;
    let survivors = scan.survivors();
    line!(
        out,
        "epoch {epoch}: {} complete transactions",
        scan.transactions().len()
    )?;
    for (transaction, survives) in scan.transactions().iter().zip(survivors) {
        if journal.is_some_and(|journal| journal != transaction.journal) {
            continue;
        }
        let marks: Vec<String> = transaction.marks.iter().map(ToString::to_string).collect();
        line!(
            out,
            "journal {}, transaction {}: handles {}..={}, durable up to {}{}",
            transaction.journal,
            transaction.sequence,
            transaction.first,
            transaction.last,
            transaction.durable_upto,
            if survives {
                ""
            } else {
                ", lacks what it depends on"
            }
        )?;
        if !marks.is_empty() {
            line!(out, "  depends on: {}", marks.join(" "))?;
        }
        for record in transaction.records.iter() {
            line!(out, "  {}", describe(record))?;
        }
    }
    Ok(())
}

fn describe(record: Record<'_>) -> String {
    match record {
        Record::Delta {
            granule,
            version,
            offset,
            bytes,
        } => {
            let shown: String = bytes
                .iter()
                .take(BYTES_SHOWN)
                .map(|byte| format!("{byte:02x}"))
                .collect();
            let more = if bytes.len() > BYTES_SHOWN { "..." } else { "" };
            let end = usize::from(offset) + bytes.len();
            format!("delta {granule} version {version} bytes {offset}..{end}: {shown}{more}")
        }
        Record::Image { nid, bytes } => format!("image of node {nid}, {} bytes", bytes.len()),
        Record::Note { kind, bytes } => note(kind, bytes),
    }
}

fn note(kind: u8, bytes: &[u8]) -> String {
    let unknown = || format!("note of kind {kind}, {} bytes", bytes.len());
    match kind {
        NEW_NODE | FREE_NODE => {
            let Ok(life) = Life::read_from_bytes(bytes) else {
                return unknown();
            };
            let (nid, version, owner) = (life.nid.get(), life.version.get(), life.owner.get());
            if kind == FREE_NODE {
                return format!("free node {nid} version {version}");
            }
            let code = life.kind;
            let kind = NodeKind::from_code(code);
            let kind = kind.map_or_else(|| code.to_string(), |kind| format!("{kind:?}"));
            format!("new node {nid} version {version}: {kind} of inode {owner}")
        }
        BLOCKS => {
            let Ok(blocks) = Blocks::read_from_bytes(bytes) else {
                return unknown();
            };
            format!(
                "blocks {} + {} of slots {}.{} from {}",
                blocks.first.get(),
                blocks.count.get(),
                blocks.nid.get(),
                blocks.granule,
                blocks.slot
            )
        }
        DATA => {
            let Ok((data, content)) = Data::ref_from_prefix(bytes) else {
                return unknown();
            };
            format!(
                "content of block {}, slot {}.{}.{}: {} bytes, crc {:08x}",
                data.block.get(),
                data.nid.get(),
                data.granule,
                data.slot,
                content.len(),
                dure_block::crc32c::crc32c(content)
            )
        }
        _ => unknown(),
    }
}

//! Pass 3: journal headers. The rings must be disjoint sets of segments of the main area.

use dure_block::Lba;
use dure_journal::format::JournalHeader;
use dure_journal::format::slotted::MIRRORED_BLOCKS;
use dure_journal::recovery::check_counts;
use dure_store::units::{BlockNo, JournalId};

use crate::context::Context;
use crate::issue::IssueKind;
use crate::owner::{BlockUse, PairKind};
use crate::pairs;

/// Checks all headers and claims the segments of the rings.
pub(super) fn check(context: &mut Context<'_>) {
    for journal in 0..context.layout.journals {
        let at = context.layout.journal_header(journal);
        let Some(bytes) = context.read(at, MIRRORED_BLOCKS) else {
            continue;
        };
        let seed = context.layout.crc_seed;
        let id = u16::try_from(journal)
            .ok()
            .and_then(JournalId::new)
            .expect("a volume has at most 1000 journals");
        match JournalHeader::open(&bytes, Lba::new(at), seed, id) {
            Ok(header) => {
                let name = pairs::name(PairKind::JournalHeader, journal);
                let kind = pairs::slot_kind(PairKind::JournalHeader);
                for at in pairs::bad_slots(&bytes, kind, at, seed) {
                    context.issue(IssueKind::PairSlotBad { pair: name, at });
                }
                if let Err(error) = check_counts(&header, Lba::new(at)) {
                    let why = error.to_string();
                    context.issue(IssueKind::JournalHeaderBad { journal, at, why });
                }
                check_header(context, journal, &header);
            }
            Err(error) => {
                let why = error.to_string();
                context.issue(IssueKind::JournalHeaderBad { journal, at, why });
            }
        }
    }
}

fn check_header(context: &mut Context<'_>, journal: u32, header: &JournalHeader) {
    let volume = context.epoch;
    if header.epoch > volume {
        context.issue(IssueKind::JournalEpoch {
            journal,
            got: header.epoch,
            volume,
        });
    }
    let want = context.layout.segment_blocks;
    if header.segment_blocks != want {
        let got = header.segment_blocks;
        context.issue(IssueKind::JournalSegmentBlocks { journal, got, want });
    }
    for segment in &header.segments {
        let block = segment.number();
        let place = context.layout.locate(BlockNo(block));
        let Some((segment, 0)) = place else {
            context.issue(IssueKind::LogSegmentOutside { journal, block });
            continue;
        };
        context.log_segments.insert(segment);
        for n in 0..u64::from(want) {
            if !context.own(BlockNo(block + n), BlockUse::Log(journal)) {
                // The whole segment is in two rings: once is enough.
                break;
            }
            context.report.counts.blocks_log += 1;
        }
    }
}

//! Writes what a committer has taken, a transaction for each piece of it.
//!
//! **Problem.** A transaction is one contiguous write, and must name all that its handles depend on
//! and may lack after a crash. **Structure.** Per piece: choose the marks, enter a new segment if
//! it does not fit, seal, write. **Invariants.** The caller holds `writer`, so that one transaction
//! is written when the next one begins. A failed write stops the journal. **Crash.** A transaction
//! of which a part is on the medium does not verify, and ends its log.

use dure_block::BLOCK_BYTES;
use dure_sync::clock;

use super::Result;
use crate::error::StopCause;
use crate::format::{Seal, TailPosition};
use crate::ids::{JournalId, Mark};
use crate::journal::{Journal, Settle};
use crate::log::{CoreLog, Placed, Writer};
use crate::space::Piece;
use crate::trace::TraceEvent;
use crate::units::{to_u32, to_u64};

impl<S: Settle> Journal<S> {
    /// Writes all of `writer.pieces`; `ns` is the time now. Returns the time when the write ended.
    pub(super) fn write_pieces(
        &self,
        log: &CoreLog<S::Effect>,
        writer: &mut Writer,
        mut ns: u64,
    ) -> Result<u64> {
        for index in 0..writer.pieces.len() {
            let piece = writer.pieces[index].clone();
            ns = self.write_piece(log, writer, &piece)?;
        }
        Ok(ns)
    }

    /// Writes one transaction. Returns the time when the write ended.
    fn write_piece(
        &self,
        log: &CoreLog<S::Effect>,
        writer: &mut Writer,
        piece: &Piece,
    ) -> Result<u64> {
        let first = writer.taken.first + to_u64(piece.handles.start);
        let last = writer.taken.first + to_u64(piece.handles.end) - 1;
        self.choose_marks(log.id, writer, piece, first..=last);
        if piece.new_segment {
            let gap = u64::from(writer.ring.blocks_left());
            log.tallies.write.gap_blocks.add(gap);
            writer.ring.enter_next();
        }
        let at = writer.ring.head_lba();
        let records = writer
            .taken
            .bytes_between(piece.handles.start, piece.handles.end);
        let what = Seal {
            address: at,
            epoch: self.epoch,
            journal: log.id,
            sequence: writer.sequence,
            first,
            last,
            // Valid, not only durable: recovery concludes from it that what the marks of these
            // handles name was durable, too (`recovery::durable`).
            durable_upto: log.reached.valid(),
            seed: self.seed,
        };
        let (transaction, used) = writer.buffer.seal(&what, &writer.marks, records);
        let blocks = to_u32(transaction.len() / BLOCK_BYTES);
        let sequence = writer.sequence;
        self.trace.record(Some(log.id), || TraceEvent::Write {
            sequence,
            first,
            last,
            blocks,
        });
        if let Err(error) = self.medium.append(at, transaction, used) {
            let place = Some((log.id, at));
            return Err(self.stop_for(StopCause::LogWrite, place, &error));
        }
        let ns = clock::monotonic_ns();
        let (segment, offset) = writer.ring.head();
        writer.placed.push_back(Placed {
            last,
            at: TailPosition {
                segment,
                offset,
                sequence,
                number: first,
            },
        });
        writer.ring.advance(blocks);
        writer.sequence += 1;
        let record_bytes = to_u64(records.len());
        log.tallies.write.wrote(writer, blocks, record_bytes, ns);
        // Only now: a flush that starts after this covers the write.
        log.reached.set_written(last);
        self.trace
            .record(Some(log.id), || TraceEvent::Written { sequence });
        Ok(ns)
    }

    /// Puts the marks the transaction must carry into `writer.marks`: no duplicates, none into the
    /// transaction itself, none to what is valid.
    fn choose_marks(
        &self,
        journal: JournalId,
        writer: &mut Writer,
        piece: &Piece,
        numbers: std::ops::RangeInclusive<u64>,
    ) {
        let all = writer
            .taken
            .marks_between(piece.handles.start, piece.handles.end);
        let needed = |mark: &Mark| {
            let own = mark.journal() == journal;
            // Crash scenario if a mark were dropped as soon as its handle is written or even
            // durable: the handle may still be rejected for what *it* depends on, and this one must
            // be rejected with it.
            let open = if self.rules.marks_until_valid.holds() {
                !self.is_valid(*mark)
            } else {
                mark.number() > self.log(mark.journal()).reached.written()
            };
            open && !(own && numbers.contains(&mark.number()))
                && (!own || self.rules.self_marks.holds())
                && self.rules.marks.holds()
        };
        writer.marks.clear();
        writer.marks.extend(all.iter().copied().filter(needed));
        writer.marks.sort_unstable();
        writer.marks.dedup();
        let dropped = to_u64(all.len() - writer.marks.len());
        self.log(journal).tallies.write.marks_dropped.add(dropped);
        // Crash scenario without this mark: of a compound transaction in two segments one piece is
        // on the medium, and half of a handle is replayed.
        if let Some(partner) = piece.partner.filter(|_| self.rules.whole.holds()) {
            let number = writer.taken.first + to_u64(partner);
            writer.marks.push(Mark::new(journal, number));
        }
    }
}

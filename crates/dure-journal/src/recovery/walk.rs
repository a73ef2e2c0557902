//! The walk through one log, from its tail to its end.
//!
//! **Problem.** No pointer leads from a transaction to the next one. **Structure.** From the tail on,
//! the transaction with the expected sequence lies directly after the last one or at the start of
//! another segment of the ring; if it is at neither place, the log ends. **Invariants.** Sequences
//! and handle numbers follow each other without a gap, and a place holds one sequence, so the walk
//! visits each block at most once and ends. Every length is checked before it is used. **Crash.**
//! Nothing is written.

use std::collections::BTreeMap;

use dure_block::Lba;

use super::reader::Reader;
use super::scan::LoggedTransaction;
use crate::error::Result;
use crate::format::{Expected, JournalHeader, ParsedTransaction, TailPosition, open, peek};
use crate::medium::LogMedium;
use crate::units::{BLOCK_BYTES_U32, to_usize};

/// Where a log ends.
#[derive(Debug)]
pub(super) struct End {
    /// Index of the segment, and block in it.
    pub(super) segment: usize,
    pub(super) offset: u32,
    /// The sequence of the missing transaction, and its first handle.
    pub(super) sequence: u64,
    pub(super) number: u64,
    /// Blocks of the complete transactions before it.
    pub(super) blocks: u64,
}

/// The walk through one log.
pub(super) struct Walk<'a> {
    reader: Reader<'a>,
    pub(super) segments: &'a [Lba],
    pub(super) segment_blocks: u32,
    expected: &'a Expected,
    /// The segments by the sequence of the transaction that seems to be at their start; read when
    /// first needed.
    starts: Option<BTreeMap<u64, usize>>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        medium: &'a LogMedium,
        header: &'a JournalHeader,
        expected: &'a Expected,
    ) -> Self {
        Self {
            reader: Reader::new(medium),
            segments: &header.segments,
            segment_blocks: header.segment_blocks,
            expected,
            starts: None,
        }
    }

    /// The complete transactions, and where the log ends.
    pub(super) fn run(&mut self, tail: TailPosition) -> Result<(Vec<LoggedTransaction>, End)> {
        let mut found: Vec<LoggedTransaction> = Vec::new();
        let mut end = End {
            segment: to_usize(tail.segment),
            offset: tail.offset,
            sequence: tail.sequence,
            number: tail.number,
            blocks: 0,
        };
        loop {
            let mut here = self.expected_at(&end)?;
            if here.is_none()
                && let Some(start) = self.starts()?.get(&end.sequence).copied()
            {
                (end.segment, end.offset) = (start, 0);
                here = self.expected_at(&end)?;
            }
            let Some((transaction, blocks)) = here else {
                return Ok((found, end));
            };
            end.offset += blocks;
            end.blocks += u64::from(blocks);
            end.sequence += 1;
            end.number = transaction.last + 1;
            found.push(transaction);
        }
    }

    /// The expected transaction at `end`, if it is complete.
    fn expected_at(&mut self, end: &End) -> Result<Option<(LoggedTransaction, u32)>> {
        let (sequence, number) = (end.sequence, end.number);
        let Some(blocks) = self.peek_at(end.segment, end.offset, |found| found == sequence)? else {
            return Ok(None);
        };
        let transaction = self.open_at(end.segment, end.offset, blocks)?;
        let transaction = transaction.filter(|transaction| transaction.first == number);
        Ok(transaction.map(|transaction| (transaction, blocks)))
    }

    /// The length of the transaction that seems to be there, if its sequence is wanted.
    pub(super) fn peek_at(
        &mut self,
        segment: usize,
        offset: u32,
        wanted: impl FnOnce(u64) -> bool,
    ) -> Result<Option<u32>> {
        let left = self.segment_blocks - offset;
        if left == 0 {
            return Ok(None);
        }
        let at = self.segments[segment].offset(offset.into());
        let head = peek(self.reader.blocks(at, 1, left)?, at, self.expected);
        let head = head.filter(|(found, blocks)| *blocks <= left && wanted(*found));
        Ok(head.map(|(_, blocks)| blocks))
    }

    /// The transaction of `blocks` blocks that [`Walk::peek_at`] has seen there, if it is complete.
    pub(super) fn open_at(
        &mut self,
        segment: usize,
        offset: u32,
        blocks: u32,
    ) -> Result<Option<LoggedTransaction>> {
        assert!(
            blocks <= u32::MAX / BLOCK_BYTES_U32,
            "a segment is far smaller"
        );
        let left = self.segment_blocks - offset;
        let at = self.segments[segment].offset(offset.into());
        let parsed = open(self.reader.blocks(at, blocks, left)?, self.expected);
        Ok(parsed.map(|parsed| self.logged(parsed)))
    }

    fn logged(&self, parsed: ParsedTransaction) -> LoggedTransaction {
        LoggedTransaction {
            journal: self.expected.journal,
            sequence: parsed.sequence,
            first: parsed.first,
            last: parsed.last,
            marks: parsed.marks,
            durable_upto: parsed.durable_upto,
            records: parsed.records,
        }
    }

    /// The segments by the sequence of the transaction that seems to be at their start.
    pub(super) fn starts(&mut self) -> Result<&BTreeMap<u64, usize>> {
        if self.starts.is_none() {
            let mut starts = BTreeMap::new();
            for (index, segment) in self.segments.iter().enumerate() {
                let block = self.reader.blocks(*segment, 1, 1)?;
                if let Some((found, _)) = peek(block, *segment, self.expected) {
                    starts.insert(found, index);
                }
            }
            self.starts = Some(starts);
        }
        Ok(self.starts.as_ref().expect("the starts were read above"))
    }
}

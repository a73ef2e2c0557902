//! What the logs say about each node.
//!
//! **Problem.** Full logs hold millions of records, and those about one node stand anywhere in
//! them. **Structure.** Each thread walks a share of the surviving transactions and files, under
//! the node, where its records stand. The nodes are dealt out to as many parts: afterwards each
//! thread has the nodes of one part to itself, with what all shares filed about them. Records stay
//! where the scan put them.
//!
//! **Invariants.** The records about a node are in the order of the logs, and neither they nor an
//! error depend on the number of threads. **On a crash** nothing was written.

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::ops::Range;

use dure_journal::recovery::{Record, Scan};
use dure_sync::thread;

use super::notes::{bad_record, parse_blocks, parse_data, parse_life};
use crate::error::Result;
use crate::format::node::NodeImage;
use crate::format::note::{BLOCKS, DATA};
use crate::units::SlotRef;
use crate::units::{BLOCK_BYTES, BlockNo, Nid, Run, to_u64};

#[expect(
    clippy::disallowed_types,
    reason = "fixed hasher, and only looked up: a lookup for each record is most of the work"
)]
type Index = std::collections::HashMap<Nid, usize, BuildHasherDefault<DefaultHasher>>;

/// With fewer records than this for each, another thread costs more than it saves.
const RECORDS_PER_THREAD: u64 = 2048;

/// Where a record about a node stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    /// The node's version after it.
    pub(super) version: u64,
    /// Index of the transaction in the scan.
    pub(super) transaction: u32,
    /// Place in the transaction's records.
    pub(super) place: u32,
}

/// Some of the nodes, with the records about each.
#[derive(Debug, Default)]
pub(super) struct Part {
    nodes: Vec<(Nid, Vec<Event>)>,
    index: Index,
    /// Index of the node that was filed last: the records of a handle are about few nodes.
    last: usize,
}

impl Part {
    /// The records about a node.
    fn of(&mut self, nid: Nid) -> &mut Vec<Event> {
        if self.nodes.get(self.last).is_none_or(|last| last.0 != nid) {
            let free = self.nodes.len();
            self.last = *self.index.entry(nid).or_insert(free);
            if self.last == free {
                self.nodes.push((nid, Vec::new()));
            }
        }
        &mut self.nodes[self.last].1
    }

    /// The nodes, ascending, of the same part of consecutive shares.
    pub(super) fn merge(shares: Vec<Part>) -> Vec<(Nid, Vec<Event>)> {
        let mut shares = shares.into_iter();
        let mut all = shares.next().expect("there is at least one share");
        for (nid, events) in shares.flat_map(|share| share.nodes) {
            all.of(nid).extend(events);
        }
        all.nodes.sort_unstable_by_key(|(nid, _)| *nid);
        all.nodes
    }
}

/// What the surviving records say.
#[derive(Debug)]
pub(super) struct Gathered<'s> {
    /// For each part what the shares have of it.
    pub(super) parts: Vec<Vec<Part>>,
    /// Blocks, with the slots they were allocated for or freed from.
    pub(super) blocks: Vec<(SlotRef, Run)>,
    /// Pages that came with the log.
    pub(super) pages: Vec<(SlotRef, BlockNo, &'s [u8])>,
}

/// What one thread found.
struct Share<'s> {
    parts: Vec<Part>,
    blocks: Vec<(SlotRef, Run)>,
    pages: Vec<(SlotRef, BlockNo, &'s [u8])>,
}

/// Files every surviving record.
///
/// # Errors
/// `Corrupt` for the first record that says what cannot be.
pub(super) fn gather<'s>(scan: &'s Scan, threads: usize) -> Result<Gathered<'s>> {
    let survivors = scan.survivors();
    let shares = shares(scan, threads);
    let parts = shares.len();
    let found = on_threads(shares, |share| walk(scan, &survivors, share, parts));
    let mut all = Gathered {
        parts: (0..parts).map(|_| Vec::with_capacity(parts)).collect(),
        blocks: Vec::new(),
        pages: Vec::new(),
    };
    for share in found {
        let share = share?;
        for (part, of_share) in all.parts.iter_mut().zip(share.parts) {
            part.push(of_share);
        }
        all.blocks.extend(share.blocks);
        all.pages.extend(share.pages);
    }
    Ok(all)
}

/// Cuts the transactions into runs with about as many records each: at most one run for each
/// thread.
fn shares(scan: &Scan, threads: usize) -> Vec<Range<usize>> {
    let counts = || {
        let transactions = scan.transactions().iter();
        transactions.map(|transaction| u64::from(transaction.records.count()))
    };
    let total: u64 = counts().sum();
    let wanted = (total / RECORDS_PER_THREAD).clamp(1, to_u64(threads.max(1)));
    let mut shares = Vec::new();
    let (mut start, mut sum) = (0, 0);
    for (index, count) in counts().enumerate() {
        sum += count;
        let made = to_u64(shares.len()) + 1;
        if made < wanted && sum * wanted >= total * made {
            shares.push(start..index + 1);
            start = index + 1;
        }
    }
    shares.push(start..scan.transactions().len());
    shares
}

/// Files the surviving records of some transactions.
fn walk<'s>(
    scan: &'s Scan,
    survivors: &[bool],
    transactions: Range<usize>,
    parts: usize,
) -> Result<Share<'s>> {
    let mut found = Share {
        parts: (0..parts).map(|_| Part::default()).collect(),
        blocks: Vec::new(),
        pages: Vec::new(),
    };
    for index in transactions.filter(|index| survivors[*index]) {
        let transaction = u32::try_from(index).expect("the logs hold fewer than 2^32 transactions");
        for (place, record) in scan.transactions()[index].records.places() {
            let (nid, version) = match record {
                Record::Delta {
                    granule, version, ..
                } => (granule.nid, version),
                Record::Image { nid, bytes } => (nid, version_of_image(nid, bytes)?),
                Record::Note {
                    kind: BLOCKS,
                    bytes,
                } => {
                    found.blocks.push(parse_blocks(bytes)?);
                    continue;
                }
                Record::Note { kind: DATA, bytes } => {
                    found.pages.push(parse_data(bytes)?);
                    continue;
                }
                Record::Note { kind, bytes } => {
                    let life = parse_life(kind, bytes)?;
                    (life.nid, life.version)
                }
            };
            let part = nid.0 % to_u64(parts);
            let part = usize::try_from(part).expect("the remainder is the index of a part");
            found.parts[part].of(nid).push(Event {
                version,
                transaction,
                place,
            });
        }
    }
    Ok(found)
}

fn version_of_image(nid: Nid, bytes: &[u8]) -> Result<u64> {
    if bytes.len() != BLOCK_BYTES {
        return Err(bad_record("length of a node", nid.0));
    }
    NodeImage::peek_version(bytes).ok_or_else(|| bad_record("copy of no kind of node", nid.0))
}

/// Does each piece of work on a thread of its own; a single one on the caller.
pub(super) fn on_threads<W: Send, T: Send>(work: Vec<W>, run: impl Fn(W) -> T + Sync) -> Vec<T> {
    if work.len() <= 1 {
        return work.into_iter().map(run).collect();
    }
    thread::scope(|scope| {
        let run = &run;
        let started: Vec<_> = work
            .into_iter()
            .map(|piece| scope.spawn(move || run(piece)))
            .collect();
        started
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .expect("replay returns errors, it does not panic")
            })
            .collect()
    })
}

#[cfg(test)]
mod tests;

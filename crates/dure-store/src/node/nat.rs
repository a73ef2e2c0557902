//! The node address table in memory: pairs loaded on first use, and per partition the nids that may
//! be given out.
//!
//! **Invariants.** The entries of a loaded pair are what the slot that counts says, or what the
//! running checkpoint has just written; nothing else changes them, so the slot that a checkpoint
//! makes count never carries an entry whose image is not flushed (model case A5). A nid is in at
//! most one partition's pool and reaches it only from a scan of its pair (once per mount) or when
//! the transaction that freed it is valid (A15, C7).

use std::collections::BTreeSet;

use dure_sync::{Arc, CoreId, Mutex, OnceLock, PerCore};
use zerocopy::FromBytes;
use zerocopy::IntoBytes;

use crate::census::Census;
use crate::error::{Error, Result};
use crate::format::nat::{ENTRIES, NatBlock, NatEntry, place_of};
use crate::format::node::NodeKind;
use crate::format::volume::SlotCode;
use crate::format::{pair_kind, volume};
use crate::layout::Layout;
use crate::media::Region;
use crate::packs::{Packs, PairIndex, Table};
use crate::pair;
use crate::ranks::{NAT_PAIR, NID_POOL};
use crate::snapshot::View;
use crate::sparse::Sparse;
use crate::units::{Nid, to_u64, to_usize};

/// The entries of one NAT pair.
type Entries = Box<[NatEntry]>;
type LoadedPair = Mutex<NAT_PAIR, Entries>;

/// Pairs whose places in memory are made at once.
const PIECE: u64 = 1024;

/// NAT pair `index`.
fn pair_index(index: u64) -> PairIndex {
    PairIndex {
        table: Table::Nat,
        index,
    }
}

/// One write of a NAT pair.
#[derive(Debug)]
pub(crate) struct NatWrite {
    /// Slot to write, the one that does not count.
    pub(crate) slot: u64,
    /// The pair, to be named by the packs.
    pub(crate) named: PairIndex,
    /// Content behind the slot header.
    pub(crate) payload: Vec<u8>,
    /// What the changed entries were.
    pub(crate) before: Vec<NatEntry>,
}

/// Nids a partition may give out.
#[derive(Debug, Default)]
struct Pool {
    /// Free nids with the version of their last tombstone.
    free: Vec<(Nid, u64)>,
    /// Inode nodes with free inodes, from the scan.
    inode_nodes: Vec<Nid>,
    /// Pairs of this partition scanned so far.
    scanned: u64,
    /// Pairs of this partition searched for inode nodes so far; at least the scanned ones.
    searched: u64,
    /// Nids of pairs not scanned yet that were given back in this mount: the scan must not find
    /// their tombstones and give them out a second time.
    early: BTreeSet<Nid>,
}

/// The node address table.
#[derive(Debug)]
pub struct Nat {
    region: Arc<Region>,
    layout: Layout,
    /// Which slot of each pair counts.
    pub(crate) packs: Arc<Packs>,
    pairs: Sparse<OnceLock<LoadedPair>>,
    pools: PerCore<Mutex<NID_POOL, Pool>>,
    /// Nids below this are fixed (root's node, orphan nodes) and never given out.
    reserved: u64,
    /// The snapshot whose table this is; `None`: the volume's.
    view: Option<Arc<View>>,
}

impl Nat {
    /// The table of a volume; nothing is read yet.
    pub fn new(region: Arc<Region>, layout: &Layout, packs: Arc<Packs>) -> Nat {
        let journals = to_usize(u64::from(layout.journals));
        Nat {
            region,
            layout: layout.clone(),
            packs,
            pairs: Sparse::new(u64::from(layout.nat_pairs), PIECE),
            pools: PerCore::new(journals, |_| Mutex::new(Pool::default())),
            reserved: 1 + u64::from(layout.journals),
            view: None,
        }
    }

    /// The table as a snapshot has it.
    pub(crate) fn of_snapshot(self, view: Arc<View>) -> Nat {
        Nat {
            view: Some(view),
            ..self
        }
    }

    /// Whether it is the table of a snapshot.
    pub(crate) fn is_of_snapshot(&self) -> bool {
        self.view.is_some()
    }

    /// Pair `index`, read on first use.
    fn pair(&self, index: u64) -> Result<&LoadedPair> {
        let cell = self.pairs.touch(index, OnceLock::new);
        if let Some(pair) = cell.get() {
            return Ok(pair);
        }
        match self.load(index) {
            // Two threads may read the same pair; both read the same bytes, since a pair is written
            // only after it was loaded, and one of the two is kept.
            Ok(loaded) => Ok(cell.get_or_init(|| Mutex::new(loaded))),
            // A slow reader may read a slot that is being rewritten; another reader has loaded the
            // pair by then.
            Err(error) => cell.get().ok_or(error),
        }
    }

    /// How many pairs are in memory.
    #[doc(hidden)]
    pub fn pairs_in_memory(&self) -> usize {
        let loaded = |(_, cell): &(u64, &OnceLock<LoadedPair>)| cell.get().is_some();
        self.pairs.touched().filter(loaded).count()
    }

    /// Gives a pair its entries, in place of what the medium has; for a repair.
    ///
    /// # Panics
    /// If the pair was read already.
    pub fn preload(&self, index: u64, entries: Box<[NatEntry]>) {
        assert_eq!(to_u64(entries.len()), ENTRIES, "a pair has all its entries");
        let cell = self.pairs.touch(index, OnceLock::new);
        let mut given = Some(entries);
        cell.get_or_init(|| Mutex::new(given.take().expect("initialised once")));
        assert!(
            given.is_none(),
            "NAT pair {index} was read before the repair gave it"
        );
    }

    fn load(&self, index: u64) -> Result<Entries> {
        if let Some(view) = &self.view {
            let tables = (&self.layout, &*self.packs);
            let found = view.read(&self.region, tables, pair_index(index))?;
            return found.map_or_else(no_entries, |(at, payload)| {
                open(at.0, index, &payload).map(|block| block.entries.into())
            });
        }
        let SlotCode::Slot(slot) = self.packs.code(pair_index(index)) else {
            return no_entries();
        };
        read(&self.region, &self.layout, index, slot).map(|block| block.entries.into())
    }

    /// Counts all live nodes and inodes. Reads the whole table and keeps nothing of it.
    pub(crate) fn census(&self) -> Result<Census> {
        let mut census = Census::default();
        for index in self.packs.written(Table::Nat) {
            for (nid, entry) in (index * ENTRIES..).zip(&self.load(index)?) {
                census.change(Census::default(), Census::of_entry(Nid(nid), entry));
            }
        }
        Ok(census)
    }

    /// The inode nodes of pair `index`, as of the last checkpoint. Keeps nothing of the pair.
    pub(crate) fn inode_nodes_at_rest(&self, index: u64) -> Result<Vec<Nid>> {
        let entries = self.load(index)?;
        let nids = (index * ENTRIES..).map(Nid);
        let is_inode = |entry: &NatEntry| {
            !entry.block().is_none() && entry.kind_code() == NodeKind::Inode.code()
        };
        let found = nids.zip(&entries).filter(|(_, entry)| is_inode(entry));
        Ok(found.map(|(nid, _)| nid).collect())
    }

    /// The entry of `nid`.
    pub fn entry(&self, nid: Nid) -> Result<NatEntry> {
        if nid.0 >= self.layout.nids() {
            return Err(Error::Corrupt {
                what: "node id beyond the NAT".into(),
                at: self.layout.nat,
                want: self.layout.nids(),
                got: nid.0,
            });
        }
        let (index, within) = place_of(nid);
        Ok(self.pair(index)?.lock()[within])
    }

    /// The partition whose NAT pairs have `nid`.
    pub(crate) fn partition_of(&self, nid: Nid) -> CoreId {
        let number = place_of(nid).0 % u64::from(self.layout.journals);
        CoreId::new(u16::try_from(number).expect("a volume has at most 1000 journals"))
    }

    fn pair_of_partition(&self, core: CoreId, n: u64) -> Option<u64> {
        let journals = u64::from(self.layout.journals);
        let index = to_u64(core.index()) % journals + n * journals;
        (index < u64::from(self.layout.nat_pairs)).then_some(index)
    }

    /// Scans the partition's next pair into its pool. False when all were scanned.
    fn scan_next(&self, core: CoreId) -> Result<bool> {
        let n = self.pools.get(core).lock().scanned;
        let Some(index) = self.pair_of_partition(core, n) else {
            return Ok(false);
        };
        let pair = self.pair(index)?.lock();
        // Taken under the pair's lock: a nid that is given back is either noted as early before
        // this scan, or its tombstone gets into the pair after it.
        let mut pool = self.pools.get(core).lock();
        if pool.scanned != n {
            return Ok(true);
        }
        pool.scanned += 1;
        for (within, entry) in pair.iter().enumerate().rev() {
            let nid = Nid(index * ENTRIES + to_u64(within));
            if entry.block().is_none() && nid.0 >= self.reserved && !pool.early.remove(&nid) {
                pool.free.push((nid, entry.version.get()));
            }
        }
        pool.early.retain(|nid| place_of(*nid).0 != index);
        if pool.searched == n {
            pool.searched += 1;
            pool.inode_nodes.extend(with_free_inodes(index, &pair));
        }
        Ok(true)
    }

    /// Searches the partition's pairs for inode nodes with free inodes, until some are found, and
    /// keeps nothing else of them. False when all pairs have been searched.
    ///
    /// # Errors
    /// `Corrupt`, `Block`: of a pair that cannot be read.
    pub fn search_inode_nodes(&self, core: CoreId) -> Result<bool> {
        loop {
            let n = {
                let pool = self.pools.get(core).lock();
                if !pool.inode_nodes.is_empty() {
                    return Ok(true);
                }
                pool.searched
            };
            let Some(index) = self.pair_of_partition(core, n) else {
                return Ok(false);
            };
            let found = self.inode_nodes_of(index)?;
            let mut pool = self.pools.get(core).lock();
            // Another task may have searched it meanwhile.
            if pool.searched == n {
                pool.searched += 1;
                pool.inode_nodes.extend(&found);
            }
        }
    }

    /// Inode nodes of a pair that had free inodes at the last checkpoint. A hint: the node itself
    /// says which of its inodes are free now.
    fn inode_nodes_of(&self, index: u64) -> Result<Vec<Nid>> {
        let in_memory = || {
            let pair = self.pairs.get(index)?.get()?;
            Some(with_free_inodes(index, &pair.lock()).collect())
        };
        if let Some(found) = in_memory() {
            return Ok(found);
        }
        match self.load(index) {
            Ok(entries) => Ok(with_free_inodes(index, &entries).collect()),
            // As in `pair`: a slot that is being rewritten is of a pair that is in memory by then.
            Err(error) => in_memory().ok_or(error),
        }
    }

    /// An unused nid, with the version of its last tombstone; first of the partition of `core`,
    /// then of the others.
    pub(crate) fn take(&self, core: CoreId) -> Result<Option<(Nid, u64)>> {
        let journals = self.pools.len();
        for step in 0..journals {
            let number = (core.index() + step) % journals;
            let partition =
                CoreId::new(u16::try_from(number).expect("a volume has at most 1000 journals"));
            loop {
                if let Some(found) = self.pools.get(partition).lock().free.pop() {
                    return Ok(Some(found));
                }
                if !self.scan_next(partition)? {
                    break;
                }
            }
        }
        Ok(None)
    }

    /// Whether the partition of `core` itself has that many unused nids.
    pub fn has_free(&self, core: CoreId, count: usize) -> Result<bool> {
        loop {
            if self.pools.get(core).lock().free.len() >= count {
                return Ok(true);
            }
            if !self.scan_next(core)? {
                return Ok(false);
            }
        }
    }

    /// Gives a nid back: one that was taken and not used, or one whose freeing has become valid.
    pub(crate) fn give(&self, core: CoreId, nid: Nid, version: u64) {
        assert!(nid.0 >= self.reserved, "nid {} is fixed", nid.0);
        let index = place_of(nid).0;
        {
            let mut pool = self.pools.get(self.partition_of(nid)).lock();
            if pool.scanned <= index / u64::from(self.layout.journals) {
                pool.early.insert(nid);
            }
        }
        self.pools.get(core).lock().free.push((nid, version));
    }

    /// An inode node with free inodes, of a pair that the partition has scanned or searched; each
    /// is given out once. Reads nothing itself: with a huge NAT, new nids are at hand long before
    /// all pairs are read.
    pub fn pop_inode_node(&self, core: CoreId) -> Option<Nid> {
        self.pools.get(core).lock().inode_nodes.pop()
    }

    /// The next content of pair `index` with `changes` applied. The caller writes and names it and
    /// is the only one to do so (one checkpoint at a time).
    pub(crate) fn change(
        &self,
        index: u64,
        changes: &[(Nid, NatEntry)],
        checkpoint: u64,
    ) -> Result<NatWrite> {
        let mut pair = self.pair(index)?.lock();
        let mut before = Vec::with_capacity(changes.len());
        for (nid, entry) in changes {
            let (at, within) = place_of(*nid);
            assert_eq!(at, index, "nid {} is not in NAT pair {index}", nid.0);
            before.push(std::mem::replace(&mut pair[within], *entry));
        }
        let mut block = NatBlock::new_zeroed_block(checkpoint, index);
        block.entries.copy_from_slice(&pair);
        let named = pair_index(index);
        Ok(NatWrite {
            slot: self.packs.code(named).next(),
            named,
            payload: block.as_bytes().to_vec(),
            before,
        })
    }
}

/// The inode nodes among a pair's entries that have free inodes.
fn with_free_inodes(index: u64, entries: &[NatEntry]) -> impl Iterator<Item = Nid> {
    let has_some = |entry: &NatEntry| {
        !entry.block().is_none()
            && entry.kind_code() == NodeKind::Inode.code()
            && entry.free_inodes() > 0
    };
    let all = (index * ENTRIES..).map(Nid).zip(entries);
    all.filter_map(move |(nid, entry)| has_some(entry).then_some(nid))
}

impl NatBlock {
    fn new_zeroed_block(checkpoint: u64, index: u64) -> NatBlock {
        let mut block = <NatBlock as zerocopy::FromZeros>::new_zeroed();
        block.checkpoint.set(checkpoint);
        block.index.set(index);
        block
    }
}

/// NAT pair `index` as slot `slot` has it.
///
/// # Errors
/// `Corrupt`, naming pair and block; `Block` when reading fails.
pub(crate) fn read(region: &Region, layout: &Layout, index: u64, slot: u64) -> Result<NatBlock> {
    let first = layout.nat_pair(index);
    let payload = pair::read_slot(region, first, slot, pair_kind::NAT, layout.crc_seed)?;
    open(first + slot, index, &payload)
}

/// What a pair that was never written says.
fn no_entries() -> Result<Entries> {
    Ok(vec![NatEntry::default(); to_usize(ENTRIES)].into())
}

/// NAT pair `index`, read from block `at`.
///
/// # Errors
/// `Corrupt`, naming the field.
pub(crate) fn open(at: u64, index: u64, payload: &[u8]) -> Result<NatBlock> {
    let block = NatBlock::read_from_bytes(&payload[..volume::PAIR_PAYLOAD])
        .expect("a pair's payload has this size");
    Error::expect_eq("NAT pair index", at, index, block.index.get())?;
    for (nid, entry) in (index * ENTRIES..).zip(&block.entries) {
        let what = || format!("version of node {nid} in the NAT");
        Error::expect_count(what, at, entry.version.get())?;
    }
    Ok(block)
}

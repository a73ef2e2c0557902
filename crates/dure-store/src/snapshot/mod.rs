//! Snapshots: the volume as it was at a checkpoint.
//!
//! **Problem.** A snapshot must cost nothing to take, whatever the volume holds, and a volume
//! without snapshots must not pay for them.
//!
//! **Structure.** Nothing live is ever overwritten, but for the pairs of NAT and SIT. So a snapshot
//! is two things: its blocks stay allocated (`Space::pin_live`, from its SIT), and a pair is copied
//! to a block of its own before a checkpoint changes it for the first time since the newest snapshot
//! (`keep`). A pair *as of a snapshot* is what the first snapshot from there on has kept, else what
//! the table says now (`view`): as the DAT of NILFS2, a version counts until the next one. Table of
//! snapshots and lists of kept pairs are blocks of the main area that are never rewritten (`table`);
//! the volume header names the first. No block has a reference count.
//!
//! # Invariants
//! A checkpoint that is a snapshot's has no operation behind its cut: the tables that it writes are
//! consistent without a log. A pair is kept, in memory and on the medium, before a slot of it is
//! written that counts later. Blocks for all pairs that the newest snapshot may still have to keep
//! are reserved (`Keeper::hold`), so that a checkpoint never lacks them.
//!
//! **Crash.** What the volume header names counts: a checkpoint that was cut short has kept pairs in
//! blocks that nothing names, and its slots do not count either.

mod keep;
mod pins;
mod table;
mod verify;
mod view;

use std::collections::BTreeMap;

use dure_sync::Mutex;

use crate::error::{Error, Result};
use crate::format::snapshot::{LIST_ENTRIES, NAME_BYTES, SNAPSHOTS_MAX, TABLE_ENTRIES};
use crate::layout::Layout;
use crate::packs::{Packs, PairIndex, Table};
use crate::ranks::SNAPSHOTS;
use crate::units::{BlockNo, to_u64};

pub(crate) use self::keep::{Change, Keeper};
pub use self::verify::verify;
pub(crate) use self::view::View;

/// What people are told of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its number: greater than that of every older one.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Seconds since 1970 when it was taken.
    pub created: i64,
    /// Inodes in use in it.
    pub inodes: u64,
    /// Blocks that were in use, logs and tables aside.
    pub blocks: u64,
    /// The checkpoint whose tables are the snapshot: no other snapshot of the volume ever is the same.
    pub checkpoint: u64,
    /// Live nodes in its NAT.
    pub(crate) nodes: u64,
}

/// A snapshot and what is kept for it.
#[derive(Debug)]
struct Snapshot {
    info: SnapshotInfo,
    /// Pairs that have changed since, and where they lie as they were; `NONE`: the pair had never
    /// been written.
    kept: BTreeMap<PairIndex, BlockNo>,
    /// The same pairs in the order of the list on the medium.
    order: Vec<PairIndex>,
    /// How many of them the list on the medium has.
    listed: usize,
    /// Blocks of the list, each with the next [`LIST_ENTRIES`] pairs.
    list: Vec<BlockNo>,
    /// Mounts that show it.
    views: usize,
}

impl Snapshot {
    fn new(info: SnapshotInfo) -> Snapshot {
        Snapshot {
            info,
            kept: BTreeMap::new(),
            order: Vec::new(),
            listed: 0,
            list: Vec::new(),
            views: 0,
        }
    }

    /// The pair lies there as it was; nothing if it is kept already.
    fn keep(&mut self, pair: PairIndex, block: BlockNo) {
        if self.kept.insert(pair, block).is_none() {
            self.order.push(pair);
        }
    }

    /// Blocks of the list that are as they will be: full ones whose pairs are all listed.
    fn whole_blocks(&self) -> usize {
        self.listed / LIST_ENTRIES
    }

    /// Blocks that hold what is kept for it and the list.
    fn own(&self) -> impl Iterator<Item = BlockNo> {
        let kept = self.kept.values().copied().filter(|block| !block.is_none());
        kept.chain(self.list.iter().copied())
    }
}

#[derive(Debug, Default)]
struct State {
    /// The oldest first.
    all: Vec<Snapshot>,
    /// Blocks of the table on the medium.
    table: Vec<BlockNo>,
    /// Blocks reserved for what has to be kept.
    held: u64,
    /// Blocks that were the snapshots' own and are free when the running checkpoint is complete.
    freed: Vec<BlockNo>,
}

/// The snapshots of a volume.
#[derive(Debug, Default)]
pub struct Snapshots {
    state: Mutex<SNAPSHOTS, State>,
}

impl Snapshots {
    /// All of them, the oldest first.
    pub fn list(&self) -> Vec<SnapshotInfo> {
        let state = self.state.lock();
        state.all.iter().map(|one| one.info.clone()).collect()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().all.is_empty()
    }

    /// The one with this name.
    ///
    /// # Errors
    /// `NoSnapshot`.
    pub fn find(&self, name: &str) -> Result<SnapshotInfo> {
        let found = self.list().into_iter().find(|one| one.name == name);
        found.ok_or_else(|| Error::NoSnapshot { name: name.into() })
    }

    /// The number of the one with this name, which is not mounted.
    ///
    /// # Errors
    /// `NoSnapshot`, `SnapshotBusy`.
    pub fn find_unused(&self, name: &str) -> Result<u64> {
        let state = self.state.lock();
        let found = state.all.iter().find(|one| one.info.name == name);
        let one = found.ok_or_else(|| Error::NoSnapshot { name: name.into() })?;
        if one.views > 0 {
            return Err(Error::SnapshotBusy {
                name: name.into(),
                why: "it is mounted; unmount it first",
            });
        }
        Ok(one.info.id)
    }

    /// Whether a snapshot may get this name.
    ///
    /// # Errors
    /// `BadOption` for a name that cannot be, `SnapshotExists`.
    pub(crate) fn check_new(&self, name: &str) -> Result<()> {
        let all = self.list();
        check_name(name)?;
        if all.iter().any(|one| one.name == name) {
            return Err(Error::SnapshotExists { name: name.into() });
        }
        Ok(())
    }

    /// Whether there may be one more.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(crate) fn check_room(&self) -> Result<()> {
        if self.state.lock().all.len() < SNAPSHOTS_MAX {
            return Ok(());
        }
        Err(Error::NoSpace {
            what: "snapshots, of which a volume has at most 248",
        })
    }

    /// The blocks of the snapshots' own: tables, lists and kept pairs.
    pub fn own(&self) -> Vec<BlockNo> {
        let state = self.state.lock();
        let of_all = state.all.iter().flat_map(Snapshot::own);
        of_all.chain(state.table.iter().copied()).collect()
    }

    /// Most blocks that checkpoints may take for the newest snapshot, as the packs are now: for each
    /// pair that was written and is not kept, for the rest of its list, and twice for what is
    /// written anew each time. With a snapshot that is about to be taken, if `adds`.
    fn need(&self, packs: &Packs, layout: &Layout, adds: bool) -> u64 {
        let state = self.state.lock();
        let count = state.all.len() + usize::from(adds);
        if count == 0 {
            return 0;
        }
        let written = packs.written(Table::Nat).count() + packs.written(Table::Sit).count();
        let copied = |one: &Snapshot| one.kept.values().filter(|at| !at.is_none()).count();
        let newest = state.all.last();
        // The checkpoint that takes a snapshot still keeps pairs for the one before.
        let missing = newest.map_or(0, |one| written.saturating_sub(copied(one)));
        let copies = if adds { written + missing } else { missing };
        let pairs = u64::from(layout.nat_pairs) + u64::from(layout.sit_pairs);
        let lists = pairs / to_u64(LIST_ENTRIES) + 2;
        let tables = 2 * (count / TABLE_ENTRIES + 1);
        to_u64(copies + tables) + lists
    }
}

/// Whether a snapshot can have this name: it is one of a directory, too.
fn check_name(name: &str) -> Result<()> {
    let why = match name {
        "" => "a snapshot needs a name",
        "." | ".." => "a snapshot cannot be called . or ..",
        _ if name.len() > NAME_BYTES => "the name of a snapshot has at most 64 bytes",
        _ if name.chars().any(|c| c == '/' || c.is_control()) => {
            "the name of a snapshot has no slash and no control character"
        }
        _ => return Ok(()),
    };
    Err(Error::BadOption {
        option: "snapshot",
        why: why.into(),
    })
}

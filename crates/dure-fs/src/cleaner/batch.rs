//! Moving many pages at once: read, verify, write elsewhere in long runs, then change the slots.
//!
//! **Structure.** A batch has pages of many files: what lies in a segment has few neighbours that
//! belong together. Its pages are read, and written to one run of blocks if there is one, without a
//! lock; then each granule is changed by an operation, under its inode's write-back mutex, if its
//! slots still say what they said.
//!
//! **Invariants.** A slot that is unchanged names the content that was read: blocks are not written
//! again while a slot names them, but for those that say "unwritten", whose content does not count
//! and which are filled only under the write-back mutex.

use dure_block::BlockBuf;
use dure_block::crc32c::crc32c;
use dure_store::OpKind;
use dure_store::alloc::Temperature;
use dure_store::error::{Error, Result};
use dure_store::format::slot::Slot;
use dure_store::placement::Target;
use dure_store::space::OpClass;
use dure_store::units::{BLOCK_BYTES, BlockNo, Nid, to_u64};

use super::data::{Granule, Move, Moved, owner_of};
use super::{CleanReport, Owned};
use crate::cleaner::Cleaner;
use crate::inode::InodeRef;

/// Pages of a batch: 4 MiB. Each batch is flushed once.
const BATCH_PAGES: usize = 1024;

/// Pages of one granule's slots, on the move.
struct Moving {
    /// The file that has them.
    inode: InodeRef,
    nid: Nid,
    granule: u8,
    moves: Vec<Move>,
}

impl Cleaner {
    /// Moves blocks that slots own.
    pub(super) fn move_slots(&self, mut owned: Vec<Owned>, report: &mut CleanReport) -> Result<()> {
        let place = |owner: &dure_store::format::summary::SummaryEntry| {
            (owner.nid.get(), owner.granule, owner.slot)
        };
        owned.sort_unstable_by_key(|(_, owner)| place(owner));
        let same = |a: &Owned, b: &Owned| (a.1.nid, a.1.granule) == (b.1.nid, b.1.granule);
        let mut batch = Vec::new();
        let mut pages = 0;
        for group in owned.chunk_by(same) {
            let Some(moving) = self.moving(group, report)? else {
                continue;
            };
            if pages + moving.moves.len() > BATCH_PAGES {
                self.move_batch(std::mem::take(&mut batch), report)?;
                pages = 0;
            }
            pages += moving.moves.len();
            batch.push(moving);
        }
        self.move_batch(batch, report)
    }

    /// Writes the content of a page whose block is damaged elsewhere, and makes its slot name that, if
    /// the slot still names the block and this is what it says; false if not, or the inode is busy.
    ///
    /// # Errors
    /// Those of reading the owner; a failed write or flush.
    pub(crate) fn replace_damaged(&self, owned: Owned, content: &[u8]) -> Result<bool> {
        let Some(moving) = self.moving(&[owned], &mut CleanReport::default())? else {
            return Ok(false);
        };
        let wanted = moving.moves[0].old.crc.get();
        let mut batch = [moving];
        if wanted != crc32c(content) || self.find_homes(&mut batch) == 0 {
            return Ok(false);
        }
        let moved = self
            .write_moved(&mut batch, content)
            .and_then(|()| self.rename_blocks(&batch[0]));
        if !matches!(moved, Ok(Moved::Yes)) {
            self.abandon(&batch[0].moves);
        }
        moved.map(|moved| moved == Moved::Yes)
    }

    /// What is to move of blocks that slots of one granule own, as it is at this moment.
    fn moving(&self, group: &[Owned], report: &mut CleanReport) -> Result<Option<Moving>> {
        let (nid, granule) = (Nid(group[0].1.nid.get()), group[0].1.granule);
        let node = self.node_if_alive(nid)?;
        let found = node.and_then(|node| Some((owner_of(&node, granule)?, node)));
        let found = match found {
            Some((ino, node)) => match self.inodes.inode(ino) {
                Ok(inode) => Some((inode, node)),
                Err(Error::NotFound | Error::Stale(_)) => None,
                Err(error) => return Err(error),
            },
            None => None,
        };
        let moves = match &found {
            Some((inode, node)) => {
                let inode = inode.inode();
                let (node, index) = (node.clone(), granule);
                Granule { inode, node, index }.moves(group)
            }
            None => Vec::new(),
        };
        report.disowned += to_u64(group.len() - moves.len());
        Ok(found
            .filter(|_| !moves.is_empty())
            .map(|(inode, _)| Moving {
                inode,
                nid,
                granule,
                moves,
            }))
    }

    fn move_batch(&self, mut batch: Vec<Moving>, report: &mut CleanReport) -> Result<()> {
        let pages = batch.iter().map(|moving| moving.moves.len()).sum();
        if pages == 0 {
            return Ok(());
        }
        let mut data = BlockBuf::zeroed(pages);
        let read = self.read_good(&mut batch, data.as_mut_slice(), report);
        let homed = self.find_homes(&mut batch);
        report.homeless += to_u64(read - homed);
        if let Err(error) = self.write_moved(&mut batch, &data.as_slice()[..homed * BLOCK_BYTES]) {
            batch.iter().for_each(|moving| self.abandon(&moving.moves));
            return Err(error);
        }
        let mut result = Ok(());
        for moving in batch.iter().filter(|moving| !moving.moves.is_empty()) {
            let moves = &moving.moves;
            let moved = match result {
                Ok(()) => self.rename_blocks(moving),
                Err(_) => Ok(Moved::Changed),
            };
            match moved {
                Ok(Moved::Yes) => report.data += to_u64(moves.len()),
                Ok(Moved::Changed) => report.busy += to_u64(moves.len()),
                Err(_) => {}
            }
            if !matches!(moved, Ok(Moved::Yes)) {
                self.abandon(moves);
            }
            result = result.and(moved.map(drop));
        }
        result
    }

    /// Reads the pages into `data`, one behind the other, and drops those that cannot be read or
    /// are not what their slots say. Returns how many are left.
    fn read_good(&self, batch: &mut [Moving], data: &mut [u8], report: &mut CleanReport) -> usize {
        let moves = batch.iter().flat_map(|moving| &moving.moves);
        let slots: Vec<Slot> = moves.map(|page| page.old).collect();
        let mut good = self.store.placement.read_pages(&slots, data).into_iter();
        let (mut at, mut read) = (0, 0);
        for moving in batch {
            let mut lost = Vec::new();
            moving.moves.retain(|page| {
                let is_good = good.next().expect("each page was read");
                if is_good && at != read {
                    data.copy_within(at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES, read * BLOCK_BYTES);
                }
                if !is_good {
                    lost.push(*page);
                }
                read += usize::from(is_good);
                at += 1;
                is_good
            });
            for page in lost {
                // Damage, unless another task has changed the slot, and the block is in use again.
                match self.still_names(moving, page) {
                    true => report.bad += 1,
                    false => report.busy += 1,
                }
            }
        }
        read
    }

    /// Whether the slot of this page is unchanged.
    fn still_names(&self, moving: &Moving, page: Move) -> bool {
        let node = self.node_if_alive(moving.nid).ok().flatten();
        node.is_some_and(|node| {
            let (inode, index) = (moving.inode.inode(), moving.granule);
            owner_of(&node, index) == Some(inode.ino)
                && Granule { inode, node, index }.still_has(&[page])
        })
    }

    /// Allocates a block for each page, in runs; drops the pages that get none outside of the victims.
    /// Returns how many are left.
    fn find_homes(&self, batch: &mut [Moving]) -> usize {
        let core = self.store.partition();
        let wanted = batch.iter().map(|moving| moving.moves.len()).sum();
        let mut homes: Vec<BlockNo> = Vec::with_capacity(wanted);
        while homes.len() < wanted {
            let want = u32::try_from(wanted - homes.len()).expect("a batch has few pages");
            if !self.store.space.reserve(core, want, OpClass::Delete) {
                break;
            }
            let Ok(run) = self
                .store
                .placement
                .alloc_data(core, Temperature::Cold, want)
            else {
                self.store.space.unreserve(core, want);
                break;
            };
            self.store.space.unreserve(core, want - run.count);
            let gains_nothing =
                self.absorbs_at(run.first) || self.store.space.is_being_cleaned(run.first);
            if gains_nothing {
                // All that is left is in the victims, or where data is to move away from.
                self.store.space.release(run);
                self.store.space.unreserve(core, run.count);
                break;
            }
            homes.extend((run.first.0..run.first.0 + u64::from(run.count)).map(BlockNo));
        }
        let homed = homes.len();
        let mut homes = homes.into_iter();
        for moving in batch {
            moving.moves.retain_mut(|page| match homes.next() {
                Some(home) => {
                    page.new = home;
                    true
                }
                None => false,
            });
        }
        homed
    }

    /// Gives back the blocks that these pages were to move to.
    pub(super) fn abandon(&self, moves: &[Move]) {
        let blocks = u32::try_from(moves.len()).expect("a batch has few pages");
        self.store
            .placement
            .release_blocks(moves.iter().map(|page| page.new));
        self.store.space.unreserve(self.store.partition(), blocks);
    }

    /// Writes the pages to their new blocks, or to others if one of these cannot be written.
    fn write_moved(&self, batch: &mut [Moving], data: &[u8]) -> Result<()> {
        let moves = batch.iter_mut().flat_map(|moving| &mut moving.moves);
        let mut targets: Vec<Target> = Vec::with_capacity(data.len() / BLOCK_BYTES);
        let mut homes: Vec<&mut BlockNo> = Vec::with_capacity(targets.capacity());
        for page in moves {
            targets.push(Target::to(page.new));
            homes.push(&mut page.new);
        }
        let written = self
            .store
            .placement
            .write(self.store.partition(), &mut targets, data);
        for (home, target) in homes.into_iter().zip(&targets) {
            *home = target.block;
        }
        written?;
        self.store.flush_placed()
    }

    /// Makes the slots of one granule name the new blocks, if its inode is not busy and they are
    /// unchanged.
    fn rename_blocks(&self, moving: &Moving) -> Result<Moved> {
        let (inode, index) = (moving.inode.inode(), moving.granule);
        let Some(_held) = inode.try_lock_writeback() else {
            return Ok(Moved::Changed);
        };
        // Looked up again: meanwhile it could have been freed, and even reused elsewhere.
        let node = self.node_if_alive(moving.nid)?;
        let Some(node) = node.filter(|node| owner_of(node, index) == Some(inode.ino)) else {
            return Ok(Moved::Changed);
        };
        // One node, and room for two notes about each block.
        let op = self.store.op(OpKind::Clean, OpClass::Delete, 2)?;
        let granule = Granule { inode, node, index };
        Ok(self.log_moves(op, &granule, &moving.moves))
    }
}

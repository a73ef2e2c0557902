//! What is charged: to a call that has not used it yet, and to a file in memory.

use dure_store::error::Result;
use dure_store::format::inode::AttributesRecord;
use dure_store::format::quota::{QuotaKind, Subject, Usage};
use dure_sync::atomic::{AtomicU64, Ordering};

use super::{Owner, Quotas};

/// What of a file's blocks is counted for its owner. A part of the file's state.
#[derive(Debug)]
pub(crate) struct FileCharge {
    owner: Owner,
    /// Blocks, as its data says.
    placed: u64,
    /// Blocks of dirty pages in holes; at least as many as there are. Added to by holders of the
    /// shared inode lock, reduced by one of the exclusive one, which orders them: Relaxed.
    waiting: AtomicU64,
}

impl FileCharge {
    /// Of a file as logged.
    pub(crate) fn new(attributes: &AttributesRecord, placed: u64) -> FileCharge {
        FileCharge {
            owner: Owner::of(attributes),
            placed,
            waiting: AtomicU64::new(0),
        }
    }

    fn all(&self) -> u64 {
        self.placed + self.waiting.load(Ordering::Relaxed)
    }
}

fn blocks(blocks: u64) -> Usage {
    Usage { blocks, inodes: 0 }
}

/// What a call is charged for and has not used. Goes back when it is dropped. Without quotas, on the
/// way of every write, it is one word.
#[derive(Debug)]
pub(crate) struct Charged<'q>(Option<Box<Charge<'q>>>);

/// Of whom, and how much.
#[derive(Debug)]
struct Charge<'q> {
    quotas: &'q Quotas,
    owner: Owner,
    usage: Usage,
}

impl<'q> Charged<'q> {
    /// Nothing.
    #[inline]
    pub(crate) fn none() -> Charged<'q> {
        Charged(None)
    }

    fn of(quotas: &'q Quotas, owner: Owner, usage: Usage) -> Charged<'q> {
        Charged(Some(Box::new(Charge {
            quotas,
            owner,
            usage,
        })))
    }

    /// Charges the owner of an inode with these attributes.
    ///
    /// # Errors
    /// `Quota`.
    #[inline]
    pub(crate) fn charge(
        quotas: Option<&'q Quotas>,
        attributes: impl FnOnce() -> AttributesRecord,
        usage: Usage,
    ) -> Result<Charged<'q>> {
        match quotas {
            Some(quotas) if usage != Usage::default() => {
                let owner = Owner::of(&attributes());
                quotas.charge(owner, usage)?;
                Ok(Charged::of(quotas, owner, usage))
            }
            _ => Ok(Charged::none()),
        }
    }

    /// Counts for an owner, whatever the limits are.
    pub(crate) fn count(quotas: Option<&'q Quotas>, owner: Owner, usage: Usage) -> Charged<'q> {
        let Some(quotas) = quotas else {
            return Charged::none();
        };
        owner.subjects().for_each(|one| quotas.add(one, usage));
        Charged::of(quotas, owner, usage)
    }

    /// Whether it has so many blocks, for the owner of the file.
    #[inline]
    pub(crate) fn covers(&self, file: Option<&FileCharge>, blocks: u32) -> bool {
        match (file, &self.0) {
            (Some(file), Some(charge)) if blocks > 0 => {
                charge.usage.blocks >= u64::from(blocks) && charge.owner == file.owner
            }
            (Some(_), None) => blocks == 0,
            _ => true,
        }
    }

    /// Pages in so many holes of the file become dirty, or get a block in an operation that is stored
    /// next. What is not charged for the owner that the file has by now is counted there.
    #[inline]
    pub(crate) fn hand_over(&mut self, file: Option<&FileCharge>, blocks: u32) {
        if let Some(charge) = &mut self.0
            && let Some(file) = file
            && charge.owner == file.owner
        {
            let handed = charge.usage.blocks.min(blocks.into());
            charge.usage.blocks -= handed;
            file.waiting.fetch_add(handed, Ordering::Relaxed);
        }
    }

    /// All of it is in use from now on.
    #[inline]
    pub(crate) fn keep(mut self) {
        if let Some(charge) = &mut self.0 {
            charge.usage = Usage::default();
        }
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        if self.usage != Usage::default() {
            self.quotas.release(self.owner, self.usage);
        }
    }
}

/// An inode that is to get another owner. Dropped before [`Transfer::done`], nothing has changed.
#[derive(Debug)]
pub(crate) struct Transfer<'q> {
    quotas: &'q Quotas,
    from: Owner,
    to: Owner,
    usage: Usage,
    is_done: bool,
}

impl<'q> Transfer<'q> {
    /// Charges the new owner. Only root may give an inode to another user or project, and is not
    /// refused.
    ///
    /// # Errors
    /// `Quota` of the new group.
    pub(crate) fn begin(
        quotas: &'q Quotas,
        (before, after): (&AttributesRecord, &AttributesRecord),
        file: Option<&FileCharge>,
    ) -> Result<Transfer<'q>> {
        let (from, to) = (Owner::of(before), Owner::of(after));
        let usage = Usage {
            blocks: file.map_or(0, FileCharge::all),
            inodes: 1,
        };
        let by_root = from.uid != to.uid;
        for (_, new) in pairs(from, to) {
            match new {
                Some(group) if group.kind == QuotaKind::Group && !by_root => {
                    quotas.charge_one(group, usage)?;
                }
                Some(new) => quotas.add(new, usage),
                None => {}
            }
        }
        Ok(Transfer {
            quotas,
            from,
            to,
            usage,
            is_done: false,
        })
    }

    /// The operation has finished.
    pub(crate) fn done(mut self, file: Option<&mut FileCharge>) {
        self.is_done = true;
        if let Some(file) = file {
            file.owner = self.to;
        }
    }
}

impl Drop for Transfer<'_> {
    fn drop(&mut self) {
        for (old, new) in pairs(self.from, self.to) {
            if let Some(gone) = if self.is_done { old } else { new } {
                self.quotas.release_one(gone, self.usage);
            }
        }
    }
}

/// User, group and project where they change, before and after.
fn pairs(from: Owner, to: Owner) -> impl Iterator<Item = (Option<Subject>, Option<Subject>)> {
    let all = from.all().into_iter().zip(to.all());
    all.filter(|(old, new)| old != new)
}

impl Quotas {
    /// The data of a file says by now that it has so many blocks. The caller holds the inode
    /// exclusively.
    pub(crate) fn stored(&self, file: &mut FileCharge, now: u64) {
        let before = std::mem::replace(&mut file.placed, now);
        if now < before {
            self.release(file.owner, blocks(before - now));
            return;
        }
        let placed = now - before;
        let waiting = file.waiting.get_mut();
        let charged = placed.min(*waiting);
        *waiting -= charged;
        if placed > charged {
            for subject in file.owner.subjects() {
                self.add(subject, blocks(placed - charged));
            }
        }
    }

    /// So many pages of a file are dirty or being written: no more of them wait for blocks. The caller
    /// holds the inode exclusively.
    pub(crate) fn waiting_at_most(&self, file: &mut FileCharge, pages: u64) {
        let waiting = file.waiting.get_mut();
        let spare = waiting.saturating_sub(pages);
        *waiting -= spare;
        if spare > 0 {
            self.release(file.owner, blocks(spare));
        }
    }
}

//! Quotas: what users, groups and projects have, and how much they may.
//!
//! **Problem.** Each write that adds a block and each new file counts for a user, a group and a project. Cores
//! that work for one user must not write one line for that, and still no user may ever have more than
//! the hard limit. **Structure.** [`Quotas`] has an [`Account`] for each owner of inodes, with a count
//! of blocks and one of inodes ([`dure_sync::BoundedCount`]). Blocks are charged where they are
//! reserved, before anything is changed: [`Charged`] has them until the file takes them, and
//! [`FileCharge`], one for each file in memory, says how many of its blocks are counted.
//!
//! **Invariants.** The count of an owner is that of the inodes and data blocks of its inodes as logged,
//! plus what [`Charged`] and dirty pages in holes are charged for. A page that has a block is charged
//! nothing when it is overwritten. The owner in a [`FileCharge`] changes under the exclusive inode lock.
//! Blocks count for the owner of the file whether others share them or not. Maps, names and attributes
//! do not count. **On a crash** all of this is gone; the mount counts the inodes.

mod account;
mod amount;
mod charge;

use std::collections::BTreeMap;

use dure_store::error::{Error, Result};
use dure_store::format::inode::AttributesRecord;
use dure_store::format::quota::{Limits, QuotaKind, Subject, Usage};
use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{Arc, CoreId, Mutex, OnceLock, PerCoreRwLock};

use crate::ranks::{QUOTA_ACCOUNTS, QUOTA_TABLE};
use account::Account;
use amount::Spender;
pub(crate) use charge::{Charged, FileCharge, Transfer};

/// The most owners that are counted one by one. Those that come later have no account, unless they
/// have a limit.
const ACCOUNTS_MAX: usize = 1 << 16;

/// The quotas of a mount; nothing while they are off.
pub(crate) type QuotasIfOn = Arc<OnceLock<Quotas>>;

/// What a user, group or project has, and may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Whose.
    pub subject: Subject,
    /// What it has.
    pub usage: Usage,
    /// What it may have.
    pub limits: Limits,
}

/// Who owns an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    uid: u32,
    gid: u32,
    /// 0: none.
    project: u32,
}

impl Owner {
    /// The owner of an inode with these attributes.
    pub(crate) fn of(attributes: &AttributesRecord) -> Owner {
        Owner {
            uid: attributes.uid.get(),
            gid: attributes.gid.get(),
            project: attributes.project.get(),
        }
    }

    /// User, group and project, if there is one.
    fn all(self) -> [Option<Subject>; 3] {
        let of = |kind, id| Some(Subject { kind, id });
        [
            of(QuotaKind::User, self.uid),
            of(QuotaKind::Group, self.gid),
            of(QuotaKind::Project, self.project).filter(|_| self.project != 0),
        ]
    }

    /// For whom it counts.
    pub(crate) fn subjects(self) -> impl Iterator<Item = Subject> {
        self.all().into_iter().flatten()
    }
}

/// What the attribute with the limits is like. Held while that changes.
#[derive(Debug)]
pub(crate) struct Table {
    /// There is one: quotas are on.
    pub(crate) is_on: bool,
    /// Why there are no limits, if they could not be read.
    pub(crate) unreadable: Option<String>,
}

/// The accounts of a volume with quotas.
#[derive(Debug)]
pub(crate) struct Quotas {
    accounts: PerCoreRwLock<QUOTA_ACCOUNTS, BTreeMap<Subject, Box<Account>>>,
    cores: usize,
    /// Projects have as much as they want: a stream says which project each inode has, after it is
    /// made. Relaxed: no other task is to use the volume meanwhile.
    pub(crate) spares_projects: AtomicBool,
    /// What all inodes have was counted; if not, some are damaged.
    pub(crate) has_all: bool,
    pub(crate) table: Mutex<QUOTA_TABLE, Table>,
}

impl Quotas {
    /// Those with these limits; nothing is used.
    pub(crate) fn new(
        cores: usize,
        limits: &[(Subject, Limits)],
        unreadable: Option<String>,
    ) -> Quotas {
        let account = |(subject, limits): &(Subject, Limits)| {
            let account = Account::default();
            account.limit(limits, 0);
            (*subject, Box::new(account))
        };
        Quotas {
            accounts: PerCoreRwLock::new(limits.iter().map(account).collect()),
            cores,
            spares_projects: AtomicBool::new(false),
            has_all: true,
            table: Mutex::new(Table {
                is_on: true,
                unreadable,
            }),
        }
    }

    fn spender(&self) -> Spender {
        let core: CoreId = dure_sync::current_core();
        Spender {
            core,
            cores: self.cores,
        }
    }

    /// Lets `use_it` see an account; makes it if there is room for it.
    fn with<R>(&self, subject: Subject, use_it: impl Fn(&Account) -> R) -> Option<R> {
        if let Some(account) = self.accounts.read().get(&subject) {
            return Some(use_it(account));
        }
        let mut accounts = self.accounts.write();
        if accounts.len() >= ACCOUNTS_MAX && !accounts.contains_key(&subject) {
            return None;
        }
        Some(use_it(accounts.entry(subject).or_default()))
    }

    /// Counts what an owner is about to have.
    ///
    /// # Errors
    /// `Quota`: nothing is counted.
    fn charge(&self, owner: Owner, usage: Usage) -> Result<()> {
        for (n, subject) in owner.subjects().enumerate() {
            self.charge_one(subject, usage).inspect_err(|_| {
                let charged = owner.subjects().take(n);
                charged.for_each(|one| self.release_one(one, usage));
            })?;
        }
        Ok(())
    }

    fn charge_one(&self, subject: Subject, usage: Usage) -> Result<()> {
        let by = self.spender();
        if subject.kind == QuotaKind::Project && self.spares_projects.load(Ordering::Relaxed) {
            self.add(subject, usage);
            return Ok(());
        }
        match self.with(subject, |account| account.take(by, usage)) {
            Some(Err(what)) => Err(Error::Quota {
                kind: subject.kind.name(),
                id: subject.id,
                what,
            }),
            _ => Ok(()),
        }
    }

    /// Counts what is there, whatever the limits are.
    pub(crate) fn add(&self, subject: Subject, usage: Usage) {
        self.with(subject, |account| account.add(usage));
    }

    fn release(&self, owner: Owner, usage: Usage) {
        for subject in owner.subjects() {
            self.release_one(subject, usage);
        }
    }

    fn release_one(&self, subject: Subject, usage: Usage) {
        let by = self.spender();
        self.with(subject, |account| account.give(by, usage));
    }

    /// An inode that had nothing left is gone.
    pub(crate) fn inode_gone(&self, attributes: &AttributesRecord) {
        let one = Usage {
            blocks: 0,
            inodes: 1,
        };
        self.release(Owner::of(attributes), one);
    }

    /// Changes the limits of a subject; the ones before.
    ///
    /// # Errors
    /// `BadOption` for limits that cannot be; `NoSpace` where there are too many owners.
    pub(crate) fn limit(&self, subject: Subject, limits: &Limits) -> Result<Limits> {
        if !limits.blocks.are_possible() || !limits.inodes.are_possible() {
            return Err(Error::BadOption {
                option: "limit",
                why: "a soft limit is at most the hard one, and a limit at most 2^52".to_owned(),
            });
        }
        let now = amount::now();
        let changed = self.with(subject, |account| {
            let (mut limits, present) = (*limits, account.limits());
            limits.blocks.since = present.blocks.since;
            limits.inodes.since = present.inodes.since;
            account.limit(&limits, now)
        });
        changed.ok_or(Error::NoSpace {
            what: "accounts: too many users, groups and projects have something",
        })
    }

    /// What all have is counted: who is above a soft limit is known.
    pub(crate) fn usage_is_known(&self) {
        let now = amount::now();
        for account in self.accounts.read().values() {
            account.limit(&account.limits(), now);
        }
    }

    /// Takes all limits away.
    pub(crate) fn lift_all(&self) {
        for account in self.accounts.read().values() {
            account.limit(&Limits::default(), 0);
        }
    }

    /// What a subject with an account has and may have.
    pub(crate) fn of(&self, subject: Subject) -> Option<(Usage, Limits)> {
        let accounts = self.accounts.read();
        let account = accounts.get(&subject)?;
        Some((account.usage(), account.limits()))
    }

    /// Those that have something or have a limit, ascending.
    pub(crate) fn list(&self) -> Vec<Quota> {
        let accounts = self.accounts.read();
        let all = accounts.iter().map(|(subject, account)| Quota {
            subject: *subject,
            usage: account.usage(),
            limits: account.limits(),
        });
        all.filter(|quota| quota.usage != Usage::default() || quota.is_limited())
            .collect()
    }

    /// All limits, ascending.
    pub(crate) fn limits(&self) -> Vec<(Subject, Limits)> {
        let all = self.list().into_iter();
        let limited = all.filter(Quota::is_limited);
        limited.map(|one| (one.subject, one.limits)).collect()
    }

    /// What is used, ascending; `None` where some owners have no account.
    pub(crate) fn usage(&self) -> Option<Vec<(Subject, Usage)>> {
        if self.accounts.read().len() >= ACCOUNTS_MAX {
            return None;
        }
        let used = |quota: Quota| {
            let is_used = quota.usage != Usage::default();
            is_used.then_some((quota.subject, quota.usage))
        };
        Some(self.list().into_iter().filter_map(used).collect())
    }
}

impl Quota {
    /// Whether there is any limit.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        let Limits { blocks, inodes, .. } = self.limits;
        [blocks.soft, blocks.hard, inodes.soft, inodes.hard] != [0; 4]
    }
}

#[cfg(test)]
mod tests;

//! Quotas of users, groups and projects.

use dure_store::error::{Error, Result};
use dure_store::format::quota::{Limits, Subject};

use crate::quota::Quota;
use crate::volume::{FileSystem, quotas};

impl FileSystem {
    /// What users, groups and projects have and may have, ascending: all that own something or have a limit,
    /// up to 65536. `None`: quotas are off, were switched on after the volume was mounted, or it is
    /// mounted read-only. Exact for what is over when this is called; pages that wait for blocks count.
    #[must_use]
    pub fn quotas(&self) -> Option<Vec<Quota>> {
        let quotas = self.0.inodes.quotas()?;
        let is_on = quotas.table.lock().is_on;
        is_on.then(|| quotas.list())
    }

    /// Whether what they have is counted: also after quotas were switched off, until the
    /// volume is mounted again.
    #[must_use]
    pub fn has_quotas(&self) -> bool {
        self.0.inodes.quotas().is_some()
    }

    /// Why limits that the volume has could not be read: none counts until one is set, which writes
    /// all anew.
    #[must_use]
    pub fn unreadable_limits(&self) -> Option<String> {
        self.0.inodes.quotas()?.table.lock().unreadable.clone()
    }

    /// Switches quotas on, durably: from the next mount for writing on, which counts what all have.
    ///
    /// # Errors
    /// `ReadOnly`, `Stopped`, `NoSpace`, device errors.
    pub fn switch_quotas_on(&self) -> Result<()> {
        self.0.store.check_writable()?;
        quotas::switch_on(&self.0)
    }

    /// Switches quotas off, durably: no limit counts any more, and all are forgotten.
    ///
    /// # Errors
    /// `ReadOnly`, `Stopped`, device errors.
    pub fn switch_quotas_off(&self) -> Result<()> {
        self.0.store.check_writable()?;
        quotas::switch_off(&self.0)
    }

    /// Sets the limits of a user, group or project, durably; all 0 takes them away. In blocks of 4 KiB, and
    /// inodes; a soft limit may be exceeded for `grace` seconds. `since` is left as it is. What is used
    /// may be above a limit that is set: then nothing can be added.
    ///
    /// # Errors
    /// `BadOption` where [`FileSystem::quotas`] returns `None`, for user 0 and project 0, and for limits that cannot
    /// be (a soft limit above the hard one, more than 2^52); `NoSpace` beyond 1023 limits; `ReadOnly`,
    /// `Stopped`, device errors.
    pub fn set_quota(&self, subject: Subject, limits: &Limits) -> Result<()> {
        if subject.is_unlimited() {
            return Err(Error::BadOption {
                option: "quota",
                why: format!("{subject} has no limits"),
            });
        }
        quotas::set(&self.0, subject, limits)
    }
}

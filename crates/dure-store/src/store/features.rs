//! Features that a volume gets while it is in use: the first clone, the first project.
//!
//! **Problem.** A dure that does not know of shared blocks must not touch the volume: it would free
//! what a second slot names; one that does not know projects takes them for damage. **Structure.** The
//! superblock gets a feature flag before the first operation that needs it.
//!
//! **Crash.** The flag is durable before such an operation begins ([`super::flags`]).

use dure_sync::atomic::Ordering;

use super::{Store, flags};
use crate::error::Result;
use crate::format::feature::{CLONES, Feature, PROJECTS};

impl Store {
    /// Lets slots share blocks from now on. The caller holds no inode lock.
    ///
    /// # Errors
    /// `ReadOnly`, `Stopped`; a failed write or flush, after which the volume is stopped.
    pub fn allow_sharing(&self) -> Result<()> {
        self.announce(
            CLONES,
            || self.space.may_share(),
            || self.space.allow_sharing(),
        )
    }

    /// Whether inodes may have a project.
    #[inline]
    pub fn has_projects(&self) -> bool {
        self.projects.load(Ordering::Relaxed)
    }

    /// Lets inodes have projects from now on. The caller holds no inode lock.
    ///
    /// # Errors
    /// Those of [`Store::allow_sharing`].
    pub fn allow_projects(&self) -> Result<()> {
        let turn_on = || self.projects.store(true, Ordering::Relaxed);
        self.announce(PROJECTS, || self.has_projects(), turn_on)
    }

    fn announce(
        &self,
        feature: Feature,
        is_on: impl Fn() -> bool,
        turn_on: impl Fn(),
    ) -> Result<()> {
        self.check_writable()?;
        if is_on() {
            return Ok(());
        }
        let _one_at_a_time = self.lock_checkpoint();
        if is_on() {
            return Ok(());
        }
        let is_ordered = self.options.store_rules.flag_before_use.holds();
        let written = flags::announce(&self.region, feature, is_ordered);
        written.inspect_err(|error| self.stop(error))?;
        turn_on();
        Ok(())
    }
}

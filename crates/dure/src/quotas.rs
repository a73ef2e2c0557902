//! Quotas of users, groups and projects.

use std::ops::ControlFlow;
use std::path::Path;

use dure_fs::{Limits, Quota, Subject};

use crate::error::{Context, Result};
use crate::volume::Volume;
use crate::walk::Links;

impl Volume {
    /// What users, groups and projects have and may have, ascending: all that own something or have a limit, up
    /// to 65536. `None`: quotas are off, were switched on after the volume was opened, or it is open
    /// read-only.
    #[must_use]
    pub fn quotas(&self) -> Option<Vec<Quota>> {
        self.file_system().quotas()
    }

    /// Sets the limits of a user, group or project, durably: blocks of 4 KiB, and inodes; 0 is none. A call that
    /// would exceed a hard one fails with `EDQUOT` and changes nothing. A soft one may be exceeded for
    /// `grace` seconds; `since` is left as it is. Limits count for the owner of a file, whoever writes.
    ///
    /// # Errors
    /// `EINVAL` where [`Volume::quotas`] returns `None`, for user 0 and project 0, and for limits that cannot be (a
    /// soft one above the hard one, more than 2^52); `ENOSPC` beyond 1023 limits; `EROFS`; those of the
    /// device.
    ///
    /// ```
    /// use dure::{Bounds, Limits, QuotaKind, Subject};
    /// # use dure::{FormatOptions, MountOptions, Volume};
    /// # let disk = dure_sync::Arc::new(dure_block::ram::RamDevice::new("disk", 8192));
    /// # let device = || dure_block::share(dure_sync::Arc::clone(&disk));
    /// # Volume::create_on(device(), &FormatOptions::default(), MountOptions::default())?.close()?;
    /// # let open = || Volume::open_on(device(), MountOptions::default());
    /// let volume = open()?;
    /// volume.switch_quotas_on()?;
    /// volume.close()?;
    /// let volume = open()?;
    /// let alice = Subject { kind: QuotaKind::User, id: 1000 };
    /// let bounds = Bounds { soft: 2000, hard: 2500, since: 0 };
    /// let limits = Limits { blocks: bounds, grace: 7 * 24 * 3600, ..Limits::default() };
    /// volume.set_quota(alice, &limits)?;
    /// # volume.close()?;
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn set_quota(&self, subject: Subject, limits: &Limits) -> Result<()> {
        self.file_system()
            .set_quota(subject, limits)
            .during("set quota")
    }

    /// Makes a directory, and all below it, count for a project, durably; 0: for none. What is made there
    /// later inherits it, and no name goes from one project into another (`EXDEV`). `progress` is told how
    /// many inodes got it so far; if it breaks, or the power fails, a second call does the rest. No limit
    /// refuses it. How many inodes got it.
    ///
    /// # Errors
    /// `ENOENT` and the like, of the path; `ENOTDIR`; `EBUSY` while it is done to another directory;
    /// `EROFS`; those of the device.
    ///
    /// ```
    /// # use dure::{FormatOptions, MountOptions, Volume};
    /// # use std::ops::ControlFlow;
    /// # let disk = dure_sync::Arc::new(dure_block::ram::RamDevice::new("disk", 8192));
    /// # let device = || dure_block::share(dure_sync::Arc::clone(&disk));
    /// # let volume = Volume::create_on(device(), &FormatOptions::default(), MountOptions::default())?;
    /// let session = volume.root();
    /// session.create_dir_all("home/alice")?;
    /// let all = &mut |_| ControlFlow::Continue(());
    /// assert_eq!(volume.set_project("home", 7, all)?, 2);
    /// session.create_dir("home/bob")?;
    /// assert_eq!(volume.project("home/bob")?, 7);
    /// # volume.close()?;
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn set_project(
        &self,
        directory: impl AsRef<Path>,
        project: u32,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        let path = directory.as_ref();
        let found = self.root().find(path, Links::Follow);
        let found = found.at("set project", path)?;
        let set = self.file_system().set_project(&found, project, progress);
        set.at("set project", path)
    }

    /// The project for which what is at a path counts; 0: none.
    ///
    /// # Errors
    /// `ENOENT` and the like, of the path.
    pub fn project(&self, path: impl AsRef<Path>) -> Result<u32> {
        let path = path.as_ref();
        let found = self.root().find(path, Links::Keep);
        Ok(self.file_system().project(&found.at("project", path)?))
    }

    /// Switches quotas on, durably: what users and groups have is counted from the next time on that
    /// the volume is opened for writing.
    ///
    /// # Errors
    /// `EROFS`, `ENOSPC`, those of the device.
    pub fn switch_quotas_on(&self) -> Result<()> {
        self.file_system().switch_quotas_on().during("quotas on")
    }

    /// Switches quotas off, durably: no limit counts any more, and all are forgotten.
    ///
    /// # Errors
    /// `EROFS`, those of the device.
    pub fn switch_quotas_off(&self) -> Result<()> {
        self.file_system().switch_quotas_off().during("quotas off")
    }
}

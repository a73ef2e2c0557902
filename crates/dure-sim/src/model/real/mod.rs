//! A dure volume on a RAM disk: what the model is compared with.

mod mounted;

use dure::{MountOptions, Volume};
use dure_block::ram::RamDevice;
use dure_block::{Device, share};
use dure_sync::Arc;

use super::operation::{Answer, Operation, Outcome, Step};

pub use mounted::{Mounted, kind_of, stat_of};

/// A dure volume in memory and its open files.
#[derive(Debug)]
pub struct Real {
    disk: Arc<RamDevice>,
    mount: MountOptions,
    mounted: Option<Mounted>,
    found: Option<String>,
}

impl Real {
    /// An empty volume on a RAM disk of `bytes`.
    ///
    /// # Errors
    /// Those of making a volume.
    pub fn new(bytes: u64, mount: MountOptions) -> dure::Result<Real> {
        let disk = Arc::new(RamDevice::new("model", bytes / 4096));
        let format = dure::FormatOptions {
            uuid: Some([7; 16]),
            ..Default::default()
        };
        let volume = Volume::create_on(share(Arc::clone(&disk)), &format, mount.clone())?;
        let mounted = Some(Mounted::new(&volume.root()));
        Ok(Real {
            disk,
            mount,
            mounted,
            found: None,
        })
    }

    /// The device, to look at the volume after [`Real::close`].
    #[must_use]
    pub fn device(&self) -> Arc<dyn Device> {
        share(Arc::clone(&self.disk))
    }

    /// The mounted volume.
    ///
    /// # Panics
    /// After [`Real::close`].
    #[must_use]
    pub fn mounted(&self) -> &Mounted {
        self.mounted.as_ref().expect("the volume is mounted")
    }

    /// Does one call.
    ///
    /// # Errors
    /// What the call gives its caller.
    ///
    /// # Panics
    /// If the volume cannot be mounted again.
    pub fn apply(&mut self, step: &Step) -> Outcome {
        let checked = match step.operation {
            Operation::Remount => self.close(),
            Operation::Crash => self.crash(),
            _ => {
                return self
                    .mounted
                    .as_mut()
                    .expect("the volume is mounted")
                    .apply(step);
            }
        };
        self.found = self.found.take().or(checked.err());
        let device = share(Arc::clone(&self.disk));
        let volume = Volume::open_on(device, self.mount.clone()).expect("the volume mounts again");
        self.mounted = Some(Mounted::new(&volume.root()));
        Ok(Answer::Done)
    }

    /// What the checks at `Remount` and `Crash` have found so far.
    #[must_use]
    pub fn found(&self) -> Option<&str> {
        self.found.as_deref()
    }

    /// Closes the volume and checks it, data included.
    ///
    /// # Errors
    /// What closing or the check says.
    pub fn close(&mut self) -> Result<(), String> {
        let Some(mounted) = self.mounted.take() else {
            return Ok(());
        };
        let volume = mounted.volume.clone();
        drop(mounted);
        volume.close().map_err(|error| error.to_string())?;
        self.check("after close")
    }

    /// Sync, then the power fails: what was written after the sync is lost. The check reads the
    /// volume as the crash left it, logs included.
    fn crash(&mut self) -> Result<(), String> {
        let Some(mounted) = self.mounted.take() else {
            return Ok(());
        };
        let synced = mounted.volume.sync().map_err(|error| error.to_string());
        let image = self.disk.snapshot();
        drop(mounted);
        self.disk = Arc::new(RamDevice::from_image("model", &image));
        synced.and_then(|()| self.check("after a crash"))
    }

    fn check(&self, when: &str) -> Result<(), String> {
        let options = dure_check::CheckOptions {
            data: dure_check::Data::Verify,
            ..Default::default()
        };
        let report =
            dure_check::check(self.device(), &options).map_err(|error| error.to_string())?;
        // That a crashed volume was not unmounted is no news.
        let news = |issue: &&dure_check::Issue| {
            !matches!(issue.kind, dure_check::IssueKind::NotClean { .. })
        };
        let issues: Vec<String> = report
            .issues()
            .iter()
            .filter(news)
            .map(ToString::to_string)
            .collect();
        if issues.is_empty() {
            Ok(())
        } else {
            Err(format!("{when}: {}", issues.join("; ")))
        }
    }
}

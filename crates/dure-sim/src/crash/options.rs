//! How a workload runs, and how much of what a crash can leave is tried.
//!
//! **Invariants.** Nothing here depends on the machine: with the same [`Options`], a workload
//! writes the same each time.

use dure_block::crash::{Selection, Tear};
use dure_block::record::{Cache, LostFlushes, LostStores};
use dure_fs::{Background, Durability, MountOptions, NvramAbsorb, PageCaching};
use dure_sync::Arc;
use dure_sync::clock::Timestamp;
use xxhash_rust::xxh3::xxh3_64;

use super::call::Workload;
use super::perform::Stage;
use crate::media::{On, Recorder};

/// How much is tried, and on what device.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which subsets of unflushed writes, and how they are torn.
    pub selection: Selection,
    /// Which steps of the record the power fails after.
    pub steps: CrashSteps,
    /// What the volumes of a campaign lie on.
    pub media: On,
    /// When a write to the device is durable: [`Cache::None`] as in persistent memory.
    pub cache: Cache,
    /// Flushes the device loses: a canary.
    pub lost_flushes: LostFlushes,
    /// Instructions that persistent memory of a volume with a disk loses: a canary.
    pub lost_stores: LostStores,
    /// The region that loses them, counted from 0; `None`: each.
    pub lost_region: Option<u32>,
    /// How the volume is mounted, in the run and in recovery.
    pub mount: MountOptions,
    /// Violations after which a workload is given up.
    pub violations_max: usize,
    /// Whether the power fails during the mount, too.
    pub from: CrashFrom,
    /// What the clock says; `None`: one or the other, as the workload's text decides.
    pub times: Option<Times>,
}

/// What the clock says while a workload runs. Never the real time: a workload writes the same each
/// time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// The whole run falls into one tick of the clock.
    Still,
    /// Each step is a second later than the one before.
    PerStep,
}

impl Times {
    /// One or the other, as the workload's text decides.
    pub(super) fn of(workload: &Workload) -> Times {
        if xxh3_64(workload.to_string().as_bytes()).is_multiple_of(2) {
            Times::Still
        } else {
            Times::PerStep
        }
    }

    /// The time of step `number`.
    pub(super) fn at(self, number: usize) -> Timestamp {
        let number = match self {
            Times::Still => 0,
            Times::PerStep => u32::try_from(number).expect("few steps"),
        };
        Timestamp {
            secs: START.secs + 3600 + i64::from(number),
            nanos: 1_000_000 * number,
        }
    }
}

/// From when on the power may fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashFrom {
    /// The beginning of the mount: of a crashed volume, that is its recovery.
    Mount,
    /// The first step of the workload.
    FirstStep,
    /// This step of the workload; shorter workloads test those before it.
    Step(usize),
}

/// Steps of the record log the power fails after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashSteps {
    /// Every one.
    Every,
    /// Those with the most unflushed writes, and the end.
    Frontiers,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            selection: Selection::default(),
            steps: CrashSteps::Every,
            media: On::Disk,
            cache: Cache::Volatile,
            lost_flushes: LostFlushes::None,
            lost_stores: LostStores::None,
            lost_region: None,
            mount: mount_options(),
            violations_max: 1,
            from: CrashFrom::FirstStep,
            times: None,
        }
    }
}

impl Options {
    /// On persistent memory: each write is durable when it returns, and torn between words while it
    /// is under way.
    #[must_use]
    pub fn on_nvm() -> Options {
        Options {
            cache: Cache::None,
            selection: Selection {
                tear: Tear::Words,
                ..Selection::default()
            },
            ..Options::default()
        }
    }
}

impl Options {
    /// In persistent memory, used where it lies: no page cache, and each call is durable when it
    /// returns.
    #[must_use]
    pub fn direct() -> Options {
        let mut options = Options {
            media: On::Nvm,
            ..Options::default()
        };
        options.mount.page_cache = Some(PageCaching::None);
        options
    }

    /// Whether a call is durable when it returns, and there wholly or not at all before.
    pub(super) fn is_strict(&self) -> bool {
        self.mount.page_cache == Some(PageCaching::None)
            && self.mount.durability != Some(Durability::Posix)
    }
}

impl Options {
    /// How the media of the run are recorded.
    pub(super) fn recorder(&self) -> Recorder {
        Recorder {
            cache: self.cache,
            lost_flushes: self.lost_flushes,
            lost_stores: self.lost_stores,
            lost_region: self.lost_region,
        }
    }

    /// Whether data is durable when the call that wrote it returns.
    pub(super) fn absorbs_all(&self) -> bool {
        self.mount.page_cache == Some(PageCaching::Nvram)
            && self.mount.nvram.absorb != Some(NvramAbsorb::Sync)
    }
}

/// A small cache, no threads.
#[must_use]
pub fn mount_options() -> MountOptions {
    MountOptions {
        background: Background::None,
        cache_bytes: 1 << 20,
        recovery_threads: Some(1),
        ..MountOptions::default()
    }
}

pub(super) fn on_stage(mount: &MountOptions, stage: &Stage) -> MountOptions {
    let mut mount = mount.clone();
    mount.core = Some(Arc::clone(&stage.core));
    mount
}

/// When volumes are made.
pub(super) const START: Timestamp = Timestamp {
    secs: 1_700_000_000,
    nanos: 0,
};

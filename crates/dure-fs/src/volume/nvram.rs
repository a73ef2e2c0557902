//! `page_cache=nvram`: dirty pages in persistent memory that a volume has besides a block device.
//!
//! **Problem.** Dirty pages in DRAM are lost in a crash, so they are written to the device soon:
//! every fsync waits for it, and every `commit=` interval brings a burst of writes that others wait
//! behind. **Structure.** A page that would go to the device goes to a block of persistent memory
//! instead ([`Tier::Memory`]), and an ordinary operation makes its slot name that block. So it needs
//! no header of its own, and recovery finds it as it finds any other; truncates, renames and deletions
//! concern it as any other. Pages that live long are moved to the device by the workers
//! ([`crate::cleaner`]), in long runs, when less than `nvram_low=` of the share is free.
//!
//! | `nvram_absorb=` | what goes to persistent memory | when | origin |
//! |---|---|---|---|
//! | `all` | all data | before the call that wrote it returns | NVRAM-aware page cache |
//! | `move` | all data, which leaves DRAM | before the call that wrote it returns | NVRAM-aware page cache, as published |
//! | `sync` | what is synced | in its fsync | NVLog (FAST 2025), SPFS (FAST 2023) |
//!
//! With `move` no page is in both memories at the end of a call: one that was in DRAM moves, one that
//! is in persistent memory stays there, and reads pass DRAM by. A rewritten page gets another block
//! of persistent memory, whose slot counts once all of it is there: the published page is written in
//! place, and may be torn.
//!
//! **Invariants.** What goes to the device is flushed before an operation names it, so a commit need
//! not flush the device. **On a crash** each page is where its slot says.

use dure_store::error::{Error, Result, size_of};
use dure_store::layout::Layout;
use dure_store::placement::Tier;
use dure_store::units::BLOCK_BYTES_U64;
use dure_store::{Absorb, FlushRule, RecordPolicy, VolumeMedia};

use super::options::{bytes_of, choose, number_of};
use super::{DataMode, MountOptions, PageCaching};

/// Which data goes to persistent memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NvramAbsorb {
    /// All of it, before the call that wrote it returns.
    #[default]
    All,
    /// All of it, likewise, and it is not in DRAM any more.
    Move,
    /// What an fsync waits for; the rest stays in DRAM until it is written back to the device.
    Sync,
}

/// When data moves from persistent memory to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NvramLow {
    /// When less than this percentage of what it may take is free: 1 to 90.
    Percent(u32),
    /// When less is free than holds data, looked at in each call that writes: the published rule.
    Cached,
}

/// Options of `page_cache=nvram`; `None`: the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NvramOptions {
    /// Which data.
    pub absorb: Option<NvramAbsorb>,
    /// Bytes of persistent memory that data may take; the default is half of it.
    pub bytes: Option<u64>,
    /// When data moves to the device; a quarter by default.
    pub low: Option<NvramLow>,
}

const LOW_PERCENT: u32 = 25;
const LOW_PERCENT_MAX: u32 = 90;

impl NvramOptions {
    /// Sets `key` to `value`; false if no option has that name.
    ///
    /// # Errors
    /// A sentence that lists the allowed values.
    pub(super) fn set_policy(
        &mut self,
        key: &str,
        value: &str,
    ) -> std::result::Result<bool, String> {
        match key {
            "nvram" => {
                let bytes = bytes_of(value).filter(|bytes| *bytes > 0);
                let wrong = || format!("{key}={value}: it is a size, for example 512M");
                self.bytes = Some(bytes.ok_or_else(wrong)?);
            }
            "nvram_low" if value == "cached" => self.low = Some(NvramLow::Cached),
            "nvram_low" => {
                let percent = number_of(key, value, 1..=LOW_PERCENT_MAX);
                let percent = percent.map_err(|why| format!("{why}, or cached"))?;
                self.low = Some(NvramLow::Percent(percent));
            }
            "nvram_absorb" => {
                let words = [
                    ("all", NvramAbsorb::All),
                    ("move", NvramAbsorb::Move),
                    ("sync", NvramAbsorb::Sync),
                ];
                self.absorb = Some(choose(key, value, &words)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether one is given.
    fn is_given(&self) -> bool {
        *self != NvramOptions::default()
    }
}

impl MountOptions {
    /// Refuses what cannot be together with, or without, `page_cache=nvram`.
    pub(super) fn check_nvram(&self, media: VolumeMedia) -> Result<()> {
        let refused = |option, why: &str| {
            let why = why.into();
            Err(Error::BadOption { option, why })
        };
        let is_nvram = self.page_cache == Some(PageCaching::Nvram);
        match (media, self.data, self.records, self.flush) {
            _ if !is_nvram && self.nvram.is_given() => refused(
                "nvram, nvram_low, nvram_absorb",
                "only page_cache=nvram keeps dirty pages in persistent memory",
            ),
            _ if !is_nvram => Ok(()),
            (VolumeMedia::Device, ..) => refused(
                "page_cache=nvram",
                "the background's logs are not in mapped persistent memory beside a block device (mkfs DISK --nvm FILE makes \
                 one where they are)",
            ),
            (VolumeMedia::Nvm, ..) => refused(
                "page_cache=nvram",
                "all of the background is in persistent memory: page_cache=none uses its files where they lie",
            ),
            (_, DataMode::Writeback | DataMode::Journal, ..) => refused(
                "page_cache=nvram",
                "data that goes to persistent memory can only be written as with data=ordered",
            ),
            (_, _, RecordPolicy::None, _) => refused(
                "page_cache=nvram",
                "with journal=none nothing in persistent memory would be found again after a crash",
            ),
            (.., Some(FlushRule::One)) => refused(
                "flush=one",
                "with page_cache=nvram a commit does not flush the device, so data is flushed before (flush=two)",
            ),
            (VolumeMedia::NvmBesideDevice, DataMode::Ordered, ..) => Ok(()),
        }
    }

    /// What may be absorbed on a volume like this, by `page_cache=nvram`.
    ///
    /// # Errors
    /// `BadOption` when the share is too small, or larger than what there is.
    pub(super) fn absorb(&self, layout: &Layout) -> Result<Option<Absorb>> {
        if self.page_cache != Some(PageCaching::Nvram) {
            return Ok(None);
        }
        let segment = u64::from(layout.segment_blocks);
        let all = u64::from(layout.nvm_segments);
        let segments = self
            .nvram
            .bytes
            .map_or(all / 2, |bytes| bytes / BLOCK_BYTES_U64 / segment);
        // Each partition has one open.
        let least = 2 * u64::from(layout.journals);
        if (least..=all).contains(&segments) {
            let segments_max = u32::try_from(segments).expect("at most all segments");
            return Ok(Some(Absorb { segments_max }));
        }
        Err(Error::BadOption {
            option: "nvram",
            why: format!(
                "{}: it is a size from {} (two segments for each journal) to {} (all of the persistent memory \
                 behind the tables)",
                size_of(segments * segment),
                size_of(least * segment),
                size_of(all * segment),
            ),
        })
    }

    /// Where pages go that are written back for an fsync, or not.
    pub(crate) fn tier(&self, for_sync: bool) -> Tier {
        let absorbs = self.absorbs_all() || for_sync;
        match self.page_cache {
            Some(PageCaching::Nvram) if absorbs => Tier::Memory,
            _ => Tier::Home,
        }
    }

    /// Whether data is in persistent memory when the call that wrote it returns.
    #[inline]
    pub(crate) fn absorbs_all(&self) -> bool {
        let all = self.nvram.absorb.unwrap_or_default() != NvramAbsorb::Sync;
        self.page_cache == Some(PageCaching::Nvram) && all
    }

    /// Whether data in persistent memory is not in DRAM.
    pub(crate) fn absorbed_leaves_dram(&self) -> bool {
        self.absorbs_all() && self.nvram.absorb == Some(NvramAbsorb::Move)
    }

    /// Whether each call that writes looks whether data is to be moved.
    pub(crate) fn each_write_looks(&self) -> bool {
        self.nvram.low == Some(NvramLow::Cached)
    }

    /// Segments of absorbed data above which some are moved to the device, of `segments_max`.
    pub(crate) fn nvram_high(&self, segments_max: u32) -> u32 {
        let free = match self.nvram.low.unwrap_or(NvramLow::Percent(LOW_PERCENT)) {
            NvramLow::Percent(percent) => segments_max * percent / 100,
            NvramLow::Cached => segments_max.div_ceil(2),
        };
        segments_max - free.max(1)
    }
}

//! Every state a device may be in after a power cut.
//!
//! **Problem.** A volatile cache may write back what it holds in any order, wholly, partly or not
//! at all; a file system must recover from every resulting state. **Structure.** A recorded log
//! ([`crate::record`]) is cut at a step ([`CrashImages::at`]): what was flushed by then is durable,
//! what was submitted since is *open*. [`Choices`] enumerates fates of the open writes, and
//! [`CrashPoint::image`] builds the device that a choice leaves, as a cheap overlay.
//!
//! **Invariants.** A write is durable at a step iff by then it completed with FUA, or a flush
//! completed that had been submitted after the write's completion; a store to persistent memory, iff
//! by then it was fenced, and until then it is torn between words, whatever tears writes. A failed write stays open for
//! ever. Open writes are applied in the order of submission, and never over a later durable one.
//!
//! **Crash.** This module is the model of one:
//!
//! ```
//! use dure_block::crash::{CrashImages, Selection};
//! use dure_block::ram::RamDevice;
//! use dure_block::record::RecordDevice;
//! use dure_block::{BLOCK_BYTES, Lba, Queue, QueueConfig, WriteFlags, share};
//! use dure_sync::Arc;
//!
//! let ram = Arc::new(RamDevice::new("ram0", 16));
//! let base = ram.snapshot();
//! let record = RecordDevice::new(share(ram));
//! let log = record.log();
//! let queue = Queue::new(share(record), QueueConfig::default());
//! queue.write(Lba::new(1), &[1; BLOCK_BYTES], WriteFlags::NONE)?;
//! queue.flush()?;
//! queue.write(Lba::new(2), &[2; BLOCK_BYTES], WriteFlags::NONE)?;
//! queue.write(Lba::new(3), &[3; BLOCK_BYTES], WriteFlags::NONE)?;
//!
//! let images = CrashImages::new(base, &log);
//! let point = images.at(images.last_step());
//! let states: Vec<_> =
//!     point.choices(Selection::default()).map(|choice| point.image(&choice).snapshot()).collect();
//! assert_eq!(states.len(), 4); // any subset of two unflushed writes
//! assert!(states.iter().all(|state| state.get(Lba::new(1)).is_some()));
//! # Ok::<(), dure_block::Error>(())
//! ```

mod choice;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use dure_sync::Arc;

pub use choice::{Choice, Choices, Fate, Selection, Tear};

use crate::BLOCK_BYTES;
use crate::Lba;
use crate::buf::Block;
use crate::overlay::OverlayRam;
use crate::ram::{Image, SharedBlock};
use crate::record::{Effect, Entry, Outcome, RecordLog};
use choice::{Extent, WORD_BYTES};

/// Blocks that differ from a base image, with their content; none = zeroes.
pub type Changes = BTreeMap<Lba, Option<SharedBlock>>;

/// A recorded run, which can be cut at any step.
#[derive(Debug)]
pub struct CrashImages {
    base: Arc<Image>,
    entries: Vec<Entry>,
    last_step: u64,
}

impl CrashImages {
    /// The run in `log` so far, which started on a device with the content `base`.
    #[must_use]
    pub fn new(base: impl Into<Arc<Image>>, log: &RecordLog) -> Self {
        let last_step = log.step();
        Self {
            base: base.into(),
            entries: log.entries(),
            last_step,
        }
    }

    /// The last step of the run; steps are 0 (before anything) to this.
    #[must_use]
    pub fn last_step(&self) -> u64 {
        self.last_step
    }

    /// The entries of the run.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The steps with the most open writes: just before each flush completes, and the last.
    /// Their subsets include those of the steps between; test the others as well if what the
    /// callers were promised changes between flushes.
    #[must_use]
    pub fn frontiers(&self) -> Vec<u64> {
        let flushes =
            self.entries
                .iter()
                .filter_map(|entry| match (&entry.effect, entry.outcome) {
                    (Effect::Flush, Outcome::Completed(at)) => Some(at - 1),
                    _ => None,
                });
        let mut steps: Vec<_> = flushes.chain([self.last_step]).collect();
        steps.sort_unstable();
        steps.dedup();
        steps
    }

    /// The power fails right after `step`.
    ///
    /// # Panics
    /// If the run has no such step.
    #[must_use]
    pub fn at(&self, step: u64) -> CrashPoint<'_> {
        assert!(
            step <= self.last_step,
            "step {step} is behind the last, {}",
            self.last_step
        );
        let covered = self
            .entries
            .iter()
            .filter(|entry| entry.effect == Effect::Flush && entry.completed_by(step))
            .map(|entry| entry.submitted)
            .max()
            .unwrap_or(0);
        let mut durable = Changes::new();
        // The last durable entry of each block.
        let mut owner: BTreeMap<Lba, usize> = BTreeMap::new();
        let mut open = Vec::new();
        for (index, entry) in self.entries.iter().enumerate() {
            if entry.effect == Effect::Flush || entry.submitted > step {
                continue;
            }
            let fua = matches!(
                entry.effect,
                Effect::Write { fua: true, .. } | Effect::Store { .. }
            );
            let flushed = covered > 0 && entry.completed_by(covered - 1);
            if !(flushed || (fua && entry.completed_by(step))) {
                open.push(index);
                continue;
            }
            for (lba, block) in blocks_of_effect(&entry.effect) {
                // Only a durable write after an open one can hide it.
                if !open.is_empty() {
                    owner.insert(lba, index);
                }
                durable.insert(lba, block.cloned());
            }
        }
        let is_covered = |index: usize, lba: Lba| owner.get(&lba).is_some_and(|own| *own > index);
        let open = open
            .into_iter()
            .map(|index| {
                let entry = &self.entries[index];
                let hidden = blocks_of_effect(&entry.effect)
                    .map(|(lba, _)| is_covered(index, lba))
                    .collect();
                OpenWrite { entry, hidden }
            })
            .filter(|write: &OpenWrite<'_>| write.hidden.iter().any(|hidden| !hidden))
            .collect();
        CrashPoint {
            step,
            base: &self.base,
            durable,
            open,
        }
    }
}

/// The blocks an effect changes, with their new content (none = zeroes).
fn blocks_of_effect(effect: &Effect) -> Box<dyn Iterator<Item = (Lba, Option<&SharedBlock>)> + '_> {
    match effect {
        Effect::Write { lba, data, .. } | Effect::Store { lba, data, .. } => Box::new(
            (0..)
                .zip(data)
                .map(|(offset, block)| (lba.offset(offset), Some(block))),
        ),
        Effect::Discard { lba, blocks } => {
            Box::new((0..*blocks).map(|offset| (lba.offset(offset), None)))
        }
        Effect::Flush => Box::new(std::iter::empty()),
    }
}

/// A write or discard that may or may not have reached the medium.
#[derive(Debug)]
struct OpenWrite<'a> {
    entry: &'a Entry,
    /// For each block, whether a later durable write hides it.
    hidden: Vec<bool>,
}

impl OpenWrite<'_> {
    fn extent(&self) -> Extent {
        match &self.entry.effect {
            Effect::Store { bytes, .. } => {
                Extent::Words(bytes.start / WORD_BYTES..bytes.end.div_ceil(WORD_BYTES))
            }
            _ => Extent::Blocks(self.hidden.len()),
        }
    }

    /// The fate, of all words of its blocks where it is one of some of them: the others hold what
    /// they held.
    fn whole(&self, fate: &Fate) -> Fate {
        let (Fate::Torn { kept, .. }, Extent::Words(words)) = (fate, self.extent()) else {
            return fate.clone();
        };
        let mut all = vec![true; self.hidden.len() * BLOCK_BYTES / WORD_BYTES];
        all[words].copy_from_slice(kept);
        Fate::Torn {
            unit_bytes: WORD_BYTES,
            kept: all,
        }
    }
}

/// A power cut at one step.
#[derive(Debug)]
pub struct CrashPoint<'a> {
    step: u64,
    base: &'a Arc<Image>,
    /// The durable changes on top of the base.
    durable: Changes,
    open: Vec<OpenWrite<'a>>,
}

impl CrashPoint<'_> {
    /// The step it happens after.
    #[must_use]
    pub fn step(&self) -> u64 {
        self.step
    }

    /// What every state has on top of the base image.
    #[must_use]
    pub fn durable(&self) -> &Changes {
        &self.durable
    }

    /// The open writes and discards, in order of submission.
    pub fn open(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.open.iter().map(|write| write.entry)
    }

    /// Enumerates fates of the open writes.
    #[must_use]
    pub fn choices(&self, selection: Selection) -> Choices {
        Choices::new(self.open.iter().map(OpenWrite::extent).collect(), selection)
    }

    /// What `choice` leaves of the open writes, on top of what is durable.
    ///
    /// # Panics
    /// If the choice was made for another point.
    #[must_use]
    pub fn changes(&self, choice: &Choice) -> Changes {
        assert_eq!(
            choice.fates().len(),
            self.open.len(),
            "the choice was made for this crash point"
        );
        let mut changes = Changes::new();
        for (write, fate) in self.open.iter().zip(choice.fates()) {
            let fate = write.whole(fate);
            let blocks = blocks_of_effect(&write.entry.effect)
                .zip(&write.hidden)
                .enumerate();
            for (index, ((lba, new), hidden)) in blocks {
                if !hidden {
                    self.apply(&mut changes, lba, new, &fate, index);
                }
            }
        }
        changes
    }

    /// The device that `choice` leaves.
    ///
    /// # Panics
    /// If the choice was made for another point.
    #[must_use]
    pub fn image(&self, choice: &Choice) -> OverlayRam {
        let name = format!("crash at step {}", self.step);
        let device = OverlayRam::new(&name, Arc::clone(self.base));
        for (lba, block) in self.durable.iter().chain(&self.changes(choice)) {
            device.set(*lba, block.clone());
        }
        device
    }

    /// Stores what `fate` leaves of block `index` of a write.
    fn apply(
        &self,
        changes: &mut Changes,
        lba: Lba,
        new: Option<&SharedBlock>,
        fate: &Fate,
        index: usize,
    ) {
        let (unit_bytes, kept) = match fate {
            Fate::Lost => return,
            Fate::Kept => {
                changes.insert(lba, new.cloned());
                return;
            }
            Fate::Torn { unit_bytes, kept } => (*unit_bytes, kept),
        };
        let units = BLOCK_BYTES / unit_bytes;
        let kept = &kept[index * units..(index + 1) * units];
        if kept.iter().all(|kept| *kept) {
            changes.insert(lba, new.cloned());
            return;
        }
        if kept.iter().all(|kept| !*kept) {
            return;
        }
        let changed = changes.get(&lba).or_else(|| self.durable.get(&lba));
        let old = changed.map_or_else(|| self.base.get(lba), Option::as_ref);
        let mut block = Block::boxed_zeroed();
        for (unit, kept) in kept.iter().enumerate() {
            let range = unit * unit_bytes..(unit + 1) * unit_bytes;
            if let Some(source) = if *kept { new } else { old } {
                block.0[range.clone()].copy_from_slice(&source.bytes()[range]);
            }
        }
        changes.insert(lba, Some(SharedBlock::new(&block.0)));
    }
}

//! Traces: when requests passed each stage, and the phases between.
//!
//! **Problem.** Where the time of requests goes tells what bounds a device: tags, queue, device.
//! **Structure.** A bounded ring of records per core, and what `btt` computes of them.
//! **Invariants.** Memory is bounded by the setting. A merged bio has a record of its own, whose G
//! and I are 0: it took no tag. **Crash.** Nothing is kept.

use crate::{Lba, Op, Stamps};

/// Whether a queue stamps its requests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Trace {
    /// No stamps, no clock is read.
    #[default]
    Off,
    /// The last `records_per_core` requests of each core are kept.
    Ring {
        /// How many to keep.
        records_per_core: usize,
    },
}

/// One request, or a bio that was merged into one, as it was traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceRecord {
    /// What it did.
    pub op: Op,
    /// First block.
    pub lba: Lba,
    /// Number of blocks.
    pub blocks: u64,
    /// Its tag.
    pub tag: u32,
    /// The core that queued it.
    pub core: u16,
    /// Its hardware queue.
    pub hw_queue: u16,
    /// When it passed each stage.
    pub stamps: Stamps,
}

/// Shortest, mean and longest time of a phase, and of how many.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Phase {
    /// Times.
    pub n: u64,
    /// The shortest.
    pub min_ns: u64,
    /// The mean.
    pub mean_ns: f64,
    /// The longest.
    pub max_ns: u64,
}

impl Phase {
    fn of(times: impl Iterator<Item = u64>) -> Self {
        let (mut n, mut sum, mut min_ns, mut max_ns) = (0_u64, 0_u64, u64::MAX, 0);
        for ns in times {
            n += 1;
            sum = sum.saturating_add(ns);
            min_ns = min_ns.min(ns);
            max_ns = max_ns.max(ns);
        }
        #[expect(clippy::cast_precision_loss, reason = "a mean for people to read")]
        let mean_ns = sum as f64 / n.max(1) as f64;
        let min_ns = if n == 0 { 0 } else { min_ns };
        Self {
            n,
            min_ns,
            mean_ns,
            max_ns,
        }
    }

    /// The sum of its times.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a sum for shares of it")]
    pub fn total_ns(&self) -> f64 {
        self.mean_ns * self.n as f64
    }
}

/// Times between the stages, as `btt` reports them.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Phases {
    /// From one arrival at the queue to the next.
    pub q2q: Phase,
    /// Until it has a tag: `plug` and `tag`.
    pub q2g: Phase,
    /// In the plug of its call: until its turn comes.
    pub plug: Phase,
    /// Held up by a lack of tags.
    pub tag: Phase,
    /// From the tag to the hardware queue.
    pub g2i: Phase,
    /// From the arrival of a bio to its merge into another's request.
    pub q2m: Phase,
    /// In the hardware queue.
    pub i2d: Phase,
    /// In the device.
    pub d2c: Phase,
    /// All of it.
    pub q2c: Phase,
}

impl Phases {
    /// The phases of `records`, which are in the order of their arrival.
    #[must_use]
    pub fn of(records: &[TraceRecord]) -> Self {
        let stamps: Vec<_> = records.iter().map(|record| record.stamps).collect();
        Self::of_stamps(&stamps)
    }

    /// The phases between stamps of bios, which are in the order of their arrival. A phase has as
    /// many times as bios have both of its stamps.
    #[must_use]
    pub fn of_stamps(stamps: &[Stamps]) -> Self {
        let phase = |from: fn(&Stamps) -> u64, to: fn(&Stamps) -> u64| {
            let ends = stamps.iter().map(|s| (from(s), to(s)));
            let stamped = ends.filter(|(from, to)| *from > 0 && *to > 0);
            Phase::of(stamped.map(|(from, to)| to.saturating_sub(from)))
        };
        let before_tag = |part: fn(&Stamps) -> u64| {
            let tagged = stamps.iter();
            let tagged = tagged.filter(|s| s.queued_ns > 0 && s.tagged_ns > 0);
            Phase::of(tagged.map(part))
        };
        let gap = |pair: &[Stamps]| pair[1].queued_ns.saturating_sub(pair[0].queued_ns);
        Self {
            q2q: Phase::of(stamps.windows(2).map(gap)),
            q2g: phase(|s| s.queued_ns, |s| s.tagged_ns),
            plug: before_tag(|s| s.tagged_ns.saturating_sub(s.queued_ns + s.tag_wait_ns)),
            tag: before_tag(|s| s.tag_wait_ns),
            g2i: phase(|s| s.tagged_ns, |s| s.inserted_ns),
            q2m: phase(|s| s.queued_ns, |s| s.merged_ns),
            i2d: phase(|s| s.inserted_ns, |s| s.dispatched_ns),
            d2c: phase(|s| s.dispatched_ns, |s| s.completed_ns),
            q2c: phase(|s| s.queued_ns, |s| s.completed_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_those_of_the_stamps() {
        let record = |stamps| TraceRecord {
            op: Op::Read,
            lba: Lba::new(0),
            blocks: 1,
            tag: 0,
            core: 0,
            hw_queue: 0,
            stamps,
        };
        let request = |queued_ns, step| Stamps {
            queued_ns,
            merged_ns: 0,
            tagged_ns: queued_ns + step,
            inserted_ns: queued_ns + 3 * step,
            dispatched_ns: queued_ns + 6 * step,
            completed_ns: queued_ns + 10 * step,
            tag_wait_ns: step - 2,
        };
        let merged = Stamps {
            queued_ns: 150,
            merged_ns: 157,
            completed_ns: 300,
            ..Stamps::default()
        };
        let stamps = [request(100, 10), merged, request(200, 20)];
        let phases = Phases::of(&stamps.map(record));
        let phase = |n, min_ns, mean_ns, max_ns| Phase {
            n,
            min_ns,
            mean_ns,
            max_ns,
        };
        assert_eq!(phases.q2q, phase(2, 50, 50.0, 50));
        assert_eq!(phases.q2g, phase(2, 10, 15.0, 20));
        assert_eq!(phases.plug, phase(2, 2, 2.0, 2));
        assert_eq!(phases.tag, phase(2, 8, 13.0, 18));
        assert_eq!(phases.g2i, phase(2, 20, 30.0, 40));
        assert_eq!(phases.q2m, phase(1, 7, 7.0, 7));
        assert_eq!(phases.i2d, phase(2, 30, 45.0, 60));
        assert_eq!(phases.d2c, phase(2, 40, 60.0, 80));
        assert_eq!(phases.q2c, phase(3, 100, 150.0, 200));
        assert_eq!(Phases::of(&[]), Phases::default());
    }
}

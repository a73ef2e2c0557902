//! Choosing segments: where to allocate next, and what to clean.
//!
//! **Structure.** Plain functions over the lists of [`Segments`]; what they find is a suggestion
//! that is checked under the segment's lock. **Policies** for victims: greedy takes those with
//! fewest blocks to move; cost-benefit weighs what is gained against what is moved and prefers
//! segments that have not changed for long, since young ones lose blocks by themselves.

use std::ops::Range;

use super::segment::{Role, SegmentState};
use super::segments::Segments;
use crate::format::sit::SegmentUse;
use crate::units::SegNo;

/// How the cleaner chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VictimPolicy {
    /// Fewest blocks to move: frees most at once.
    Greedy,
    /// Free blocks times age over blocks to move: frees most in the long run.
    CostBenefit,
}

/// 0 .. `count`, `from` first, then from near to far on both sides, cyclic.
pub(crate) fn near_to_far(from: u32, count: u32) -> impl Iterator<Item = u32> {
    assert!(from < count, "partition {from} of {count}");
    (0..count).map(move |step| {
        let away = step.div_ceil(2);
        let away = if step % 2 == 1 { away } else { count - away };
        (from + away) % count
    })
}

/// The closed segment with most free blocks: of `own` if that one has a fair number, else of the
/// area, if it has `least`.
pub(crate) fn slackest(
    segments: &Segments,
    own: impl Iterator<Item = Range<u32>>,
    area: &Range<u32>,
    least: u32,
) -> Option<SegNo> {
    let fair = segments.segment_blocks / 8;
    let slack = |segment: &SegNo| segments.slack(*segment);
    best(segments, own.flatten())
        .filter(|segment| slack(segment) >= fair)
        .or_else(|| best(segments, area.clone()).filter(|segment| slack(segment) >= least))
}

/// The one of these with most free blocks, if it has any; a wholly free one ends the search.
fn best(segments: &Segments, among: impl Iterator<Item = u32>) -> Option<SegNo> {
    let mut best = None;
    let mut most = 0;
    for segment in among.map(SegNo) {
        let slack = segments.slack(segment);
        if slack > most {
            (best, most) = (Some(segment), slack);
        }
        if most == segments.segment_blocks {
            break;
        }
    }
    best
}

/// Up to `count` segments worth cleaning, best first. `now` in seconds since 1970.
pub(crate) fn victims(
    segments: &Segments,
    count: usize,
    policy: VictimPolicy,
    now: u64,
) -> Vec<SegNo> {
    let blocks = segments.segment_blocks;
    // Less than a sixteenth to gain is not worth a segment of writes.
    let least = (blocks / 16).max(1);
    let mut scored: Vec<(u64, SegNo)> = Vec::new();
    for segment in segments.touched() {
        let free = segments.slack(segment);
        if free < least || free == blocks {
            continue;
        }
        // What snapshots need, and what clones share, stays where it is, and the segment would not
        // become free.
        if segments.peek(segment, SegmentState::is_fixed) == Some(true) {
            continue;
        }
        let score = match policy {
            VictimPolicy::Greedy => u64::from(free),
            VictimPolicy::CostBenefit => {
                let Some(changed) = segments.with(segment, |state| {
                    (state.role == Role::Closed).then_some(state.changed)
                }) else {
                    continue;
                };
                benefit(blocks, free, now.saturating_sub(changed))
            }
        };
        scored.push((score, segment));
    }
    scored.sort_unstable_by_key(|&(score, segment)| (std::cmp::Reverse(score), segment));
    scored
        .into_iter()
        .take(count)
        .map(|(_, segment)| segment)
        .collect()
}

/// Up to `count` closed segments of data among `ranges`, best first by cost-benefit, full ones too:
/// what lives there is to move to another medium. `now` in seconds since 1970.
pub(crate) fn data_victims(
    segments: &Segments,
    ranges: impl Iterator<Item = Range<u32>>,
    count: usize,
    now: u64,
) -> Vec<SegNo> {
    let blocks = segments.segment_blocks;
    let mut scored: Vec<(u64, SegNo)> = Vec::new();
    for segment in ranges.flatten().map(SegNo) {
        let changed = segments.peek(segment, |state| {
            let data = state.role == Role::Closed && state.usage == SegmentUse::Data;
            // Blocks that clones share stay, so the segment would be chosen again and again.
            let data = data
                && state
                    .shared
                    .as_deref()
                    .is_none_or(|shared| shared.shared() == 0);
            data.then_some(state.changed)
        });
        if let Some(changed) = changed.flatten() {
            let free = segments.slack(segment).max(1);
            scored.push((benefit(blocks, free, now.saturating_sub(changed)), segment));
        }
    }
    scored.sort_unstable_by_key(|&(score, segment)| (std::cmp::Reverse(score), segment));
    let best = scored.into_iter().take(count);
    best.map(|(_, segment)| segment).collect()
}

/// Free blocks times age, over the reads and writes needed: the read of the segment and the write
/// of its live blocks.
fn benefit(blocks: u32, free: u32, age: u64) -> u64 {
    let used = u64::from(blocks - free);
    // The scale keeps three digits of the quotient; ages are bounded to ten thousand years.
    let age = age.min(1 << 38) + 1;
    u64::from(free) * 1024 * age / (u64::from(blocks) + used)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_to_far_visits_everyone_once() {
        assert_eq!(near_to_far(0, 1).collect::<Vec<_>>(), [0]);
        assert_eq!(near_to_far(1, 4).collect::<Vec<_>>(), [1, 2, 0, 3]);
        assert_eq!(near_to_far(4, 5).collect::<Vec<_>>(), [4, 0, 3, 1, 2]);
    }

    #[test]
    fn old_and_empty_segments_benefit_most() {
        assert!(benefit(64, 32, 100) > benefit(64, 32, 10));
        assert!(benefit(64, 48, 100) > benefit(64, 32, 100));
        assert!(benefit(64, 32, 1000) > benefit(64, 60, 10));
        assert!(benefit(512, 511, u64::MAX) > 0);
    }
}

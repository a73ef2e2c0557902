//! Numbers drawn from a seed: which policies a volume is mounted with, and when a kill comes.
//!
//! **Problem.** A failure that cannot be run again is half a finding. **Structure.** [`Draw`] is
//! SplitMix64; [`Draw::policies`] is the options of one mount. **Invariants.** The same seed draws
//! the same; later draws do not depend on the outcome of a round. **Crash.** None.

use dure_sync::clock::monotonic_ns;

use super::profile::Profile;

/// A stream of numbers that its seed decides.
#[derive(Debug, Clone)]
pub(crate) struct Draw(u64);

/// Mount option -> its values; the empty one leaves the option out.
const POLICIES: &[&[&str]] = &[
    &["", "journal=single", "journal=zjournal", "journal=jbd2"],
    &["", "data=journal", "data=writeback"],
    &["", "flush=two"],
    &["", "fsync=all"],
    &["", "log-data=0", "log-data=32"],
    &["", "alloc=global"],
    &["", "active_logs=2"],
    &["", "cache=8M"],
    &["", "commit=0.05", "commit=60"],
    &["", "writethrough"],
];

impl Draw {
    /// The stream of `seed` and `part`, so that parts do not depend on each other.
    pub(crate) fn new(seed: u64, part: u64) -> Draw {
        Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of `least..=most`.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.number() % (most - least + 1)
    }

    /// One of `all`.
    pub(crate) fn choose<'t, T: ?Sized>(&mut self, all: &[&'t T]) -> &'t T {
        let count = u64::try_from(all.len()).expect("the length of a list fits in 64 bits");
        all[usize::try_from(self.between(0, count - 1)).expect("below the length")]
    }

    /// Options of a mount that `profile` takes.
    pub(crate) fn policies(&mut self, profile: Profile) -> Vec<&'static str> {
        let drawn = POLICIES.iter().map(|values| self.choose(values));
        drawn
            .filter(|option| !option.is_empty() && profile.takes(option))
            .collect()
    }
}

/// A seed taken from the clock.
pub(crate) fn seed_of_clock() -> u64 {
    Draw::new(monotonic_ns(), u64::from(std::process::id())).between(1, 999_999)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_again_and_every_policy_comes() {
        let options = |seed| Draw::new(seed, 3).policies(Profile::Disk);
        assert_eq!(options(7), options(7));
        let all: Vec<_> = (0..200).flat_map(options).collect();
        for policy in POLICIES.iter().flat_map(|values| values.iter()) {
            assert!(policy.is_empty() || all.contains(policy), "{policy}");
        }
        let mut draw = Draw::new(1, 1);
        assert!((0..100).all(|_| (3..=5).contains(&draw.between(3, 5))));
    }
}

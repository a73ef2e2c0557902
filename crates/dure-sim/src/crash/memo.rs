//! A cache of recovery outcomes, also for media that differ only where recovery does not read.
//!
//! **Problem.** Most media that crashes leave differ only in blocks that recovery never reads:
//! images that no NAT names yet, data that no slot names. **Structure.** A run of `recover` is
//! watched by [`Watched`], which notes the blocks it reads in the order of their first read. A
//! [`Memo`] keeps these *looks*, with the digests found, as a tree.
//!
//! **Invariants.** Recovery and check depend on nothing but what they read: the next look follows
//! from those before, which [`Looks::add`] checks for every run. Reads of blocks that a run wrote
//! itself are not looks. **Crash.** Nothing is kept.
//!
//! # Looking a medium up
//! A run begins at the root of the tree, and at each look follows the branch of the digest it finds
//! there. So the digests of a medium lead through the tree to what recovery would make of it. The
//! check after recovery looks at less (not at the logs), and has a tree of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use dure_block::{BLOCK_BYTES, Device, DeviceInfo, Io, Lba, Result as BlockResult, share};
use dure_fs::MountOptions;
use dure_fs::units::to_usize;
use dure_sync::{Arc, Mutex};

use super::content::Digests;
use super::recover::{check_recovered, recover};
use super::tree::Tree;
use crate::media::Raw;

/// What recovery made of a medium: a tree and its digest, or what was wrong.
pub(super) type Outcome = Result<(u64, Arc<Tree>), String>;

/// What recovery made of media, over workloads that are recovered in the same way. Threads share
/// one.
#[derive(Debug, Default)]
pub struct Memo {
    known: Mutex<MEMO_RANK, Known>,
}

/// No lock is taken while it is held, and it is not held over a run.
const MEMO_RANK: u8 = 1;

#[derive(Debug, Default)]
struct Known {
    /// By digest of the medium: position in `outcomes`.
    contents: BTreeMap<u64, usize>,
    looks: Looks,
    outcomes: Vec<Outcome>,
    /// What the check behind recovery looked at.
    looks_after: Looks,
    outcomes_after: Vec<Result<(), String>>,
    /// Equal trees are kept once.
    trees: BTreeMap<u64, Arc<Tree>>,
    tree_bytes: usize,
}

/// Bytes of trees that a memo keeps.
const TREE_BYTES_MAX: usize = 256 << 20;
/// Contents that a memo knows.
const CONTENTS_MAX: usize = 1 << 20;
/// Looks that a memo keeps.
const LOOKS_MAX: usize = 1 << 23;

/// Whether a medium had been seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// Equal to one before.
    Equal,
    /// It differs from all before only in blocks that recovery does not read.
    LooksEqual,
    /// Recovered just now.
    Recovered,
}

impl Memo {
    /// Empties the memo once it is large.
    pub fn trim(&self) {
        let mut known = self.known.lock();
        let looks = known.looks.count + known.looks_after.count;
        let contents = known.contents.len();
        if known.tree_bytes > TREE_BYTES_MAX || contents > CONTENTS_MAX || looks > LOOKS_MAX {
            *known = Known::default();
        }
    }

    /// What recovery makes of the medium with these digests; `device` opens the medium.
    pub(super) fn outcome(
        &self,
        digests: &Digests,
        (media, mount): (Raw, &MountOptions),
        device: impl FnOnce() -> Arc<dyn Device>,
    ) -> (News, Outcome) {
        let known = self.known.lock().find(digests);
        known.unwrap_or_else(|| {
            let made = self.recover(digests, (media, mount), &device());
            (News::Recovered, self.known.lock().add(digests, made))
        })
    }

    fn recover(
        &self,
        digests: &Digests,
        (media, mount): (Raw, &MountOptions),
        device: &Arc<dyn Device>,
    ) -> Made {
        let watched = Arc::new(Watched::new(Arc::clone(device)));
        let made = recover(&share(Arc::clone(&watched)), media, mount);
        let Noted { written, looks, .. } = watched.noted();
        let outcome = made.and_then(|tree| {
            let mut after = digests.clone();
            after.read(written, device);
            self.check_after(&after, (media, mount), device)?;
            Ok((tree.digest(), Arc::new(tree)))
        });
        Made { outcome, looks }
    }

    fn check_after(
        &self,
        digests: &Digests,
        (media, mount): (Raw, &MountOptions),
        device: &Arc<dyn Device>,
    ) -> Result<(), String> {
        let blocks = digests.blocks();
        let find = |known: &Known| {
            let found = known.looks_after.follow(blocks);
            found.map(|found| known.outcomes_after[found].clone())
        };
        if let Some(outcome) = find(&self.known.lock()) {
            return outcome;
        }
        let watched = Arc::new(Watched::new(Arc::clone(device)));
        let outcome = check_recovered(&share(Arc::clone(&watched)), media, mount);
        let mut known = self.known.lock();
        if find(&known).is_none() {
            known.outcomes_after.push(outcome.clone());
            let found = known.outcomes_after.len() - 1;
            known.looks_after.add(&watched.noted().looks, blocks, found);
        }
        outcome
    }
}

impl Known {
    fn find(&mut self, digests: &Digests) -> Option<(News, Outcome)> {
        let key = digests.whole();
        if let Some(known) = self.contents.get(&key) {
            return Some((News::Equal, self.outcomes[*known].clone()));
        }
        let found = self.looks.follow(digests.blocks())?;
        self.contents.insert(key, found);
        Some((News::LooksEqual, self.outcomes[found].clone()))
    }

    /// Adds a run, unless another thread has made it meanwhile.
    fn add(&mut self, digests: &Digests, made: Made) -> Outcome {
        if let Some((_, outcome)) = self.find(digests) {
            return outcome;
        }
        let Made { mut outcome, looks } = made;
        if let Ok((digest, tree)) = &mut outcome {
            let shared = self.trees.entry(*digest).or_insert_with(|| {
                self.tree_bytes += tree.bytes();
                Arc::clone(tree)
            });
            *tree = Arc::clone(shared);
        }
        self.outcomes.push(outcome.clone());
        let found = self.outcomes.len() - 1;
        self.looks.add(&looks, digests.blocks(), found);
        self.contents.insert(digests.whole(), found);
        outcome
    }
}

/// One run.
struct Made {
    outcome: Outcome,
    looks: Vec<u32>,
}

/// Looks that are the same in every run so far, and what follows them.
#[derive(Debug)]
struct Stretch {
    /// Block and digest.
    looks: Vec<(u32, u64)>,
    then: Then,
}

#[derive(Debug)]
enum Then {
    /// The run ends.
    Outcome(usize),
    /// A look that found different contents: the stretch of each.
    Look {
        lba: u32,
        ways: BTreeMap<u64, usize>,
    },
}

/// The tree of all runs; the first stretch is its root.
#[derive(Debug, Default)]
struct Looks {
    stretches: Vec<Stretch>,
    count: usize,
}

fn at(digests: &[u64], lba: u32) -> u64 {
    digests[to_usize(lba.into())]
}

impl Looks {
    /// The outcome for a medium, if its looks and digests are those of an earlier run; else `None`.
    fn follow(&self, digests: &[u64]) -> Option<usize> {
        let mut stretch = self.stretches.first()?;
        loop {
            let same = |(lba, found): &(u32, u64)| at(digests, *lba) == *found;
            if !stretch.looks.iter().all(same) {
                return None;
            }
            match &stretch.then {
                Then::Outcome(outcome) => return Some(*outcome),
                Then::Look { lba, ways } => {
                    stretch = &self.stretches[*ways.get(&at(digests, *lba))?];
                }
            }
        }
    }

    /// Adds a run over a medium for which [`Looks::follow`] has no outcome.
    ///
    /// # Panics
    /// If another run that had found the same looked elsewhere next.
    fn add(&mut self, run: &[u32], digests: &[u64], outcome: usize) {
        let mut rest = run;
        let mut stretch = 0;
        while stretch < self.stretches.len() {
            let here = &mut self.stretches[stretch];
            let known = here.looks.iter().zip(rest);
            let same = |((lba, found), own): &(&(u32, u64), &u32)| {
                assert_eq!(lba, *own, "what recovery reads depends on what it has read");
                at(digests, *lba) == *found
            };
            let common = known.take_while(same).count();
            if common < here.looks.len() {
                self.split(stretch, common);
            }
            rest = &rest[common..];
            let next = self.stretches.len();
            let Then::Look { lba, ways } = &mut self.stretches[stretch].then else {
                panic!("a run ends where one that found the same does, and is known");
            };
            let (own, behind) = rest.split_first().expect("the other run went on");
            assert_eq!(lba, own, "what recovery reads depends on what it has read");
            rest = behind;
            stretch = *ways.entry(at(digests, *own)).or_insert(next);
        }
        self.count += rest.len();
        self.stretches.push(Stretch {
            looks: rest.iter().map(|lba| (*lba, at(digests, *lba))).collect(),
            then: Then::Outcome(outcome),
        });
    }

    /// Ends a stretch before its look number `common`, at which runs now differ.
    fn split(&mut self, stretch: usize, common: usize) {
        let next = self.stretches.len();
        let here = &mut self.stretches[stretch];
        let behind = here.looks.split_off(common + 1);
        let (lba, found) = here.looks.pop().expect("a look to differ at");
        let ways = BTreeMap::from([(found, next)]);
        let then = std::mem::replace(&mut here.then, Then::Look { lba, ways });
        let looks = behind;
        self.stretches.push(Stretch { looks, then });
    }
}

/// A device that notes which blocks were read before they were written.
struct Watched {
    inner: Arc<dyn Device>,
    noted: Mutex<WATCHED_RANK, Noted>,
}

/// Above every lock that is held over I/O.
const WATCHED_RANK: u8 = 227;

#[derive(Default)]
struct Noted {
    /// By block: read or written.
    touched: Vec<bool>,
    written: BTreeSet<u64>,
    /// The blocks whose first access was a read, in order.
    looks: Vec<u32>,
}

impl Watched {
    fn new(inner: Arc<dyn Device>) -> Watched {
        let noted = Noted {
            touched: vec![false; to_usize(inner.info().blocks)],
            ..Noted::default()
        };
        Watched {
            inner,
            noted: Mutex::new(noted),
        }
    }

    fn noted(&self) -> Noted {
        std::mem::take(&mut self.noted.lock())
    }

    fn touch(&self, lba: Lba, blocks: usize, reads: bool) {
        let mut noted = self.noted.lock();
        for lba in lba.number()..lba.number() + u64::try_from(blocks).expect("64 bits") {
            let touched = std::mem::replace(&mut noted.touched[to_usize(lba)], true);
            if !reads {
                noted.written.insert(lba);
            } else if !touched {
                noted
                    .looks
                    .push(u32::try_from(lba).expect("a small volume"));
            }
        }
    }
}

impl Device for Watched {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn execute(&self, io: Io<'_>) -> BlockResult<()> {
        match &io {
            Io::Read { lba, out } => self.touch(*lba, out.len() / BLOCK_BYTES, true),
            Io::Write { lba, parts, .. } => {
                let bytes: usize = parts.iter().map(|part| part.len()).sum();
                self.touch(*lba, bytes / BLOCK_BYTES, false);
            }
            Io::Discard { lba, blocks } => self.touch(*lba, to_usize(*blocks), false),
            Io::Flush => {}
        }
        self.inner.execute(io)
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run that looks at block 0, then at the block that is named there, then ends.
    fn run(medium: &[u64]) -> Vec<u32> {
        vec![3, 0, u32::try_from(medium[0]).unwrap()]
    }

    #[test]
    fn media_that_look_the_same_have_the_outcome_of_the_first() {
        let mut looks = Looks::default();
        let media = [
            [1, 5, 6, 9],
            [2, 5, 6, 9],
            [1, 7, 6, 9],
            [2, 5, 7, 9],
            [2, 5, 7, 8],
        ];
        for (outcome, medium) in media.iter().enumerate() {
            assert_eq!(looks.follow(medium), None, "{medium:?}");
            looks.add(&run(medium), medium, outcome);
            for (known, medium) in media[..=outcome].iter().enumerate() {
                assert_eq!(looks.follow(medium), Some(known), "{medium:?}");
            }
        }
        // What is not looked at does not count.
        assert_eq!(looks.follow(&[1, 5, 66, 9]), Some(0));
        assert_eq!(looks.follow(&[2, 55, 7, 9]), Some(3));
        assert_eq!(looks.follow(&[2, 5, 8, 9]), None);
    }

    #[test]
    #[should_panic(expected = "depends on what it has read")]
    fn canary_a_run_that_depends_on_something_else_is_noticed() {
        let mut looks = Looks::default();
        looks.add(&[0, 1], &[1, 5, 6], 0);
        looks.add(&[0, 2], &[1, 5, 7], 1);
    }
}

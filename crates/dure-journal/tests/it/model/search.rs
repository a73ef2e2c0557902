//! The search: breadth first, so that a counter-example is a shortest one.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hash, Hasher};

use super::crash::{Medium, every_medium};
use super::image::judge_promises;
use super::recovery::{Recovered, base, recover};
use super::rules::{Records, RecoveryCrash, Rules};
use super::state::{BUFFERS, CORES, Nat, State, TIDS, TxSet};
use super::steps::{Step, successors};

/// What a search found.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) states: usize,
    pub(crate) crashes: u64,
    /// The violation and the steps that lead to it.
    pub(crate) violation: Option<(String, Vec<Step>)>,
}

/// Two independent 64-bit mixes: states are told apart by 128 bits. A state is many small fields, of
/// which eight bytes are mixed at a time.
#[derive(Debug, Default)]
struct Mix {
    a: u64,
    b: u64,
    /// Bytes that are not mixed yet, and how many.
    pending: u64,
    pending_bytes: u32,
}

impl Mix {
    #[inline]
    fn mix(&mut self, word: u64) {
        self.a = (self.a.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
        self.b = (self.b ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.b ^= self.b >> 29;
    }
}

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u8(*byte));
    }

    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.pending = self.pending << 8 | u64::from(value);
        self.pending_bytes += 1;
        if self.pending_bytes == u64::BITS / 8 {
            self.mix(self.pending);
            (self.pending, self.pending_bytes) = (0, 0);
        }
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    /// Lengths, and the numbers of variants: a byte is enough, and there are many.
    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.write_u8(u8::try_from(value).expect("states are small"));
    }

    fn finish(&self) -> u64 {
        self.a
    }
}

fn digest(state: &State) -> u128 {
    let mut mix = Mix::default();
    state.hash(&mut mix);
    mix.mix(mix.pending);
    let fold = |value: u64| value.wrapping_mul(0xff51_afd7_ed55_8ccd) ^ (value >> 32);
    u128::from(fold(mix.a)) << 64 | u128::from(fold(mix.b))
}

/// For keys that are digests already.
#[derive(Debug, Default)]
struct Same(u64);

impl Hasher for Same {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes
            .iter()
            .take(8)
            .fold(0, |word, byte| word << 8 | u64::from(*byte));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Searches every state that `rules` allow.
pub(crate) fn search(rules: &Rules) -> Outcome {
    let mut seen: HashSet<u128, BuildHasherDefault<Same>> = HashSet::default();
    // For each state found: the one it came from and the step, to tell the story.
    let mut origins: Vec<(usize, Step)> = vec![(0, Step::Flush)];
    let mut queue = VecDeque::from([(State::start(), 0)]);
    let mut crashes = 0;
    seen.insert(digest(&State::start()));
    while let Some((state, index)) = queue.pop_front() {
        if let Err(violation) = judge_all(&state, rules, &mut crashes) {
            let mut story = Vec::new();
            let mut at = index;
            while at != 0 {
                story.push(origins[at].1);
                at = origins[at].0;
            }
            story.reverse();
            return Outcome {
                states: seen.len(),
                crashes,
                violation: Some((violation, story)),
            };
        }
        for (step, next) in successors(&state, rules) {
            if seen.insert(digest(&next)) {
                origins.push((index, step));
                queue.push_back((next, origins.len() - 1));
            }
        }
    }
    Outcome {
        states: seen.len(),
        crashes,
        violation: None,
    }
}

fn judge_all(state: &State, rules: &Rules, crashes: &mut u64) -> Result<(), String> {
    let valid = state.valid();
    if state.is_all_durable() && state.search_valid(rules) != valid {
        return Err("(d) all is durable, and some of it never becomes valid".into());
    }
    if rules.records == Records::Image {
        judge_promises(state, valid)?;
    }
    every_medium(state, &mut |medium| {
        *crashes += 1;
        let recovered = recover(state, medium, rules)?;
        judge(state, valid, &recovered)?;
        match rules.recovery_crash {
            RecoveryCrash::None => Ok(()),
            RecoveryCrash::BeforeHeader => cut_before_header(state, medium, rules, &recovered),
            RecoveryCrash::TailsOneAtATime => cut_between_tails(state, medium, rules, &recovered),
        }
    })
}

/// (a) What was valid is there. (b) An operation is there wholly or not at all.
fn judge(state: &State, valid: TxSet, recovered: &Recovered) -> Result<(), String> {
    for (index, operation) in state.operations.iter().enumerate() {
        let all = operation.buffers().count();
        let there = operation
            .buffers()
            .filter(|buffer| recovered.version[*buffer] >= operation.version[*buffer])
            .count();
        if valid.has(operation.tx) && there != all {
            return Err(format!(
                "(a) operation {index} was valid, {there} of {all} buffers have it: {recovered:?}"
            ));
        }
        if there != 0 && there != all {
            return Err(format!(
                "(b) operation {index} is torn, {there} of {all}: {recovered:?}"
            ));
        }
    }
    Ok(())
}

fn repeat(state: &State, medium: &Medium, rules: &Rules, first: &Recovered) -> Result<(), String> {
    let again =
        recover(state, medium, rules).map_err(|what| format!("(c) second recovery: {what}"))?;
    if again.version == first.version {
        return Ok(());
    }
    Err(format!(
        "(c) recovered {first:?}, then, cut off and repeated, {again:?}"
    ))
}

/// Some of the recovered images and their NAT entries are on the medium, the header is not.
fn cut_before_header(
    state: &State,
    medium: &Medium,
    rules: &Rules,
    first: &Recovered,
) -> Result<(), String> {
    let base = base(medium, rules)?;
    for images in 0..1_u32 << BUFFERS {
        let mut half = medium.clone();
        let mut version = base;
        for buffer in (0..BUFFERS).filter(|buffer| images >> buffer & 1 == 1) {
            half.image[buffer][usize::from(first.version[buffer])] = true;
            version[buffer] = first.version[buffer];
        }
        half.nat = [
            Some(Nat {
                generation: 99,
                version,
            }),
            None,
        ];
        repeat(state, &half, rules, first)?;
    }
    Ok(())
}

/// All recovered images are on the medium, and the tails of some journals have passed their logs.
fn cut_between_tails(
    state: &State,
    medium: &Medium,
    rules: &Rules,
    first: &Recovered,
) -> Result<(), String> {
    for cores in 1..(1_u32 << CORES) - 1 {
        let mut half = medium.clone();
        for core in (0..CORES).filter(|core| cores >> core & 1 == 1) {
            let used = |tid: &u8| state.transactions[core][usize::from(*tid)].used;
            let last = u8::try_from(TIDS).unwrap();
            half.tail[core] = (half.tail[core]..last)
                .find(|tid| !used(tid))
                .unwrap_or(last);
        }
        for buffer in 0..BUFFERS {
            half.image[buffer][usize::from(first.version[buffer])] = true;
        }
        half.nat = [
            Some(Nat {
                generation: 99,
                version: first.version,
            }),
            None,
        ];
        repeat(state, &half, rules, first)?;
    }
    Ok(())
}

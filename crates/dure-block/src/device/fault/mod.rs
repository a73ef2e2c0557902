//! A decorator that fails, tears, loses and misdirects requests on purpose.
//!
//! **Problem.** Error paths and checksums are trusted only once each has been seen to work.
//! **Structure.** Rules {which requests, which of them by count, what happens}; the first rule that
//! fires decides. **Invariants.** Without a firing rule the device below sees the request
//! unchanged. A request is carried out at submission, so put [`crate::record`] outside this, not
//! inside. **Crash.** A failed write leaves its blocks as the fault describes.

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;

use dure_sync::random::Seeded;
use dure_sync::{Arc, Mutex};

use crate::rank::FAULT_RANK;
use crate::{
    BLOCK_BYTES, BlockBuf, Device, DeviceInfo, Error, Io, Lba, Op, OsError, Result, WriteFlags,
    blocks_of,
};

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Any request: nothing is done, and this error is returned.
    Error(OsError),
    /// Reads and writes: only the first blocks are done, then `EIO`.
    Short {
        /// The number of blocks done.
        blocks: u64,
    },
    /// Writes: some 512-byte sectors, chosen by the seed, are written, then `EIO`.
    Torn {
        /// What the choice depends on.
        seed: u64,
    },
    /// Writes: as [`Fault::Torn`], but success is returned.
    TornSilently {
        /// What the choice depends on.
        seed: u64,
    },
    /// Writes, flushes and discards: nothing is done, and success is returned.
    Lost,
    /// Writes: the data goes to another address (as much of it as fits), and success is returned.
    Misdirected {
        /// That address.
        to: Lba,
    },
    /// Reads: one bit of the data is wrong, and success is returned.
    BitFlip {
        /// Which one, modulo the length.
        bit: usize,
    },
}

impl Fault {
    fn concerns(self, op: Op) -> bool {
        match self {
            Self::Error(_) => true,
            Self::Short { .. } => matches!(op, Op::Read | Op::Write),
            Self::Torn { .. } | Self::TornSilently { .. } | Self::Misdirected { .. } => {
                op == Op::Write
            }
            Self::Lost => op != Op::Read,
            Self::BitFlip { .. } => op == Op::Read,
        }
    }
}

/// Which of the matching requests a rule hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// The n-th, counted from 1 since the rule was added.
    Nth(u64),
    /// The n-th and all after it.
    From(u64),
}

/// A predicate on the blocks of a request.
type Predicate = Arc<dyn Fn(Lba) -> bool + Send + Sync>;

/// One rule.
#[derive(Clone)]
pub struct Rule {
    fault: Fault,
    when: When,
    op: Option<Op>,
    range: Option<Range<Lba>>,
    predicate: Option<Predicate>,
}

impl Rule {
    /// `fault` happens to requests that it can happen to.
    #[must_use]
    pub fn new(when: When, fault: Fault) -> Self {
        Self {
            fault,
            when,
            op: None,
            range: None,
            predicate: None,
        }
    }

    /// Only to requests of this kind.
    #[must_use]
    pub fn on(self, op: Op) -> Self {
        Self {
            op: Some(op),
            ..self
        }
    }

    /// Only to requests that touch a block of `range`.
    #[must_use]
    pub fn within(self, range: Range<Lba>) -> Self {
        Self {
            range: Some(range),
            ..self
        }
    }

    /// Only to requests that touch a block for which `predicate` holds.
    #[must_use]
    pub fn where_block(self, predicate: impl Fn(Lba) -> bool + Send + Sync + 'static) -> Self {
        let boxed: Box<dyn Fn(Lba) -> bool + Send + Sync> = Box::new(predicate);
        Self {
            predicate: Some(Arc::from(boxed)),
            ..self
        }
    }

    fn matches(&self, io: &Io<'_>) -> bool {
        let (first, end) = (io.lba(), io.lba().offset(io.blocks()));
        self.fault.concerns(io.op())
            && self.op.is_none_or(|op| op == io.op())
            && self
                .range
                .as_ref()
                .is_none_or(|range| first < range.end && range.start < end)
            && self.predicate.as_ref().is_none_or(|predicate| {
                (0..io.blocks()).any(|offset| predicate(first.offset(offset)))
            })
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("fault", &self.fault)
            .field("when", &self.when)
            .field("op", &self.op)
            .field("range", &self.range)
            .field("predicate", &self.predicate.is_some())
            .finish()
    }
}

/// How many requests of each kind the device got.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Requests that a rule hit.
    pub hits: u64,
}

impl Seen {
    /// Requests of any kind: a test that fails the n-th runs n from 1 to this.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.reads + self.writes + self.flushes + self.discards
    }
}

#[derive(Debug, Default)]
struct State {
    /// Rules with the number of requests that matched.
    rules: Vec<(Rule, u64)>,
    seen: Seen,
}

impl State {
    fn decide(&mut self, io: &Io<'_>) -> Option<Fault> {
        match io.op() {
            Op::Read => self.seen.reads += 1,
            Op::Write => self.seen.writes += 1,
            Op::Flush => self.seen.flushes += 1,
            Op::Discard => self.seen.discards += 1,
        }
        let mut fired = None;
        for (rule, matched) in &mut self.rules {
            if !rule.matches(io) {
                continue;
            }
            *matched += 1;
            let fires = match rule.when {
                When::Nth(n) => *matched == n,
                When::From(n) => *matched >= n,
            };
            if fires && fired.is_none() {
                fired = Some(rule.fault);
            }
        }
        self.seen.hits += u64::from(fired.is_some());
        fired
    }
}

/// The decorator.
#[derive(Debug)]
pub struct FaultDevice {
    inner: Arc<dyn Device>,
    info: DeviceInfo,
    state: Mutex<FAULT_RANK, State>,
}

impl FaultDevice {
    /// A device like `inner`, with no rules yet.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>) -> Self {
        let mut info = inner.info().clone();
        // With a cache, flushes reach this device, so that they can be made to fail.
        info.volatile_cache = true;
        // Nor is it as quick as memory to a caller that asks: what waits for a device is tested
        // with it.
        info.in_memory = false;
        Self {
            inner,
            info,
            state: Mutex::default(),
        }
    }

    /// Adds a rule; rules added before take precedence.
    pub fn add(&self, rule: Rule) {
        self.state.lock().rules.push((rule, 0));
    }

    /// Removes all rules: the device works again.
    pub fn clear(&self) {
        self.state.lock().rules.clear();
    }

    /// The counts so far.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.state.lock().seen
    }

    fn error(&self, io: &Io<'_>, os: OsError) -> Error {
        Error::Io {
            device: self.info.name.clone(),
            op: io.op(),
            lba: io.lba(),
            blocks: io.blocks(),
            os,
        }
    }

    /// Does only the first `blocks` blocks.
    fn shorten(&self, io: Io<'_>, blocks: u64) -> Result<()> {
        let failure = self.error(&io, OsError::EIO);
        let bytes = usize::try_from(blocks)
            .unwrap_or(usize::MAX)
            .saturating_mul(BLOCK_BYTES);
        match io {
            Io::Read { lba, out } => {
                let bytes = bytes.min(out.len());
                self.inner.execute(Io::Read {
                    lba,
                    out: &mut out[..bytes],
                })?;
            }
            Io::Write { lba, parts, flags } => {
                let data = parts.concat();
                let bytes = bytes.min(data.len());
                self.inner.execute(Io::Write {
                    lba,
                    parts: &[&data[..bytes]],
                    flags,
                })?;
            }
            Io::Flush | Io::Discard { .. } => {}
        }
        Err(failure)
    }

    /// Writes some sectors of a write.
    fn tear(&self, lba: Lba, parts: &[&[u8]], flags: WriteFlags, seed: u64) -> Result<()> {
        let data = parts.concat();
        let mut old = BlockBuf::from_slice(&data);
        self.inner.execute(Io::Read {
            lba,
            out: old.as_mut_slice(),
        })?;
        let mut bits = Seeded::new(seed);
        let sectors = old
            .as_mut_slice()
            .chunks_exact_mut(512)
            .zip(data.chunks_exact(512));
        for (old, new) in sectors {
            if bits.coin() {
                old.copy_from_slice(new);
            }
        }
        self.inner.execute(Io::Write {
            lba,
            parts: &[old.as_slice()],
            flags,
        })
    }

    fn misdirect(&self, to: Lba, parts: &[&[u8]], flags: WriteFlags) -> Result<()> {
        let data = parts.concat();
        let room = self
            .info
            .blocks
            .saturating_sub(to.number())
            .min(blocks_of(data.len()));
        let bytes = usize::try_from(room)
            .expect("the blocks that are left are no more than the data has")
            * BLOCK_BYTES;
        self.inner.execute(Io::Write {
            lba: to,
            parts: &[&data[..bytes]],
            flags,
        })
    }

    fn flip(&self, lba: Lba, out: &mut [u8], bit: usize) -> Result<()> {
        self.inner.execute(Io::Read {
            lba,
            out: &mut *out,
        })?;
        let bit = bit % (out.len() * 8);
        out[bit / 8] ^= 1 << (bit % 8);
        Ok(())
    }
}

impl Device for FaultDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn execute(&self, io: Io<'_>) -> Result<()> {
        let Some(fault) = self.state.lock().decide(&io) else {
            return self.inner.execute(io);
        };
        match (fault, io) {
            (Fault::Error(os), io) => Err(self.error(&io, os)),
            (Fault::Short { blocks }, io) => self.shorten(io, blocks),
            (Fault::Torn { seed }, Io::Write { lba, parts, flags }) => {
                self.tear(lba, parts, flags, seed)?;
                Err(self.error(&Io::Write { lba, parts, flags }, OsError::EIO))
            }
            (Fault::TornSilently { seed }, Io::Write { lba, parts, flags }) => {
                self.tear(lba, parts, flags, seed)
            }
            (Fault::Misdirected { to }, Io::Write { parts, flags, .. }) => {
                self.misdirect(to, parts, flags)
            }
            (Fault::BitFlip { bit }, Io::Read { lba, out }) => self.flip(lba, out, bit),
            (Fault::Lost, _) => Ok(()),
            (fault, io) => unreachable!("{fault:?} does not concern a {}", io.op()),
        }
    }
}

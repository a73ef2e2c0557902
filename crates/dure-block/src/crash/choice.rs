//! Selects which fates of the open writes are tried.
//!
//! **Problem.** n open writes have 2^n subsets, and more if they may be torn. **Structure.** For
//! few writes: every subset. For many: none, all, all but one, exactly one, each prefix, and seeded
//! random subsets; then torn writes among kept and among lost ones. Choices are numbered and made
//! one at a time. **Invariants.** A choice depends on its number, the shape of the open writes and
//! only the selection, so a failure is replayed by them. **Crash.** See [`crate::crash`].

use std::fmt;
use std::ops::Range;

use dure_sync::random::Seeded;

use crate::BLOCK_BYTES;

/// Whether a write may be torn by the power cut.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Tear {
    /// Writes are atomic.
    #[default]
    None,
    /// Between blocks of 4 KiB.
    Blocks,
    /// Between sectors of 512 bytes.
    Sectors,
    /// Between words of 8 bytes, as in persistent memory.
    Words,
}

impl Tear {
    fn unit_bytes(self) -> usize {
        match self {
            Self::None | Self::Blocks => BLOCK_BYTES,
            Self::Sectors => 512,
            Self::Words => 8,
        }
    }
}

/// The unit in which persistent memory is torn.
pub(super) const WORD_BYTES: usize = 8;

/// What an open write changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Extent {
    /// So many blocks.
    Blocks(usize),
    /// These words of its blocks, in persistent memory: each is there or not, for itself.
    Words(Range<usize>),
}

/// How many choices to generate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection {
    /// Up to this many open writes (or units, if they may be torn) every subset is generated; at
    /// most 20.
    pub exhaustive_max: usize,
    /// Random choices beyond that.
    pub random: usize,
    /// What the random choices depend on.
    pub seed: u64,
    /// Whether writes are torn.
    pub tear: Tear,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            exhaustive_max: 12,
            random: 16,
            seed: 0,
            tear: Tear::None,
        }
    }
}

/// What became of an open write.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It did not reach the medium.
    Lost,
    /// It reached the medium.
    Kept,
    /// Parts of it reached the medium.
    Torn {
        /// Size of the parts.
        unit_bytes: usize,
        /// Which parts reached the medium.
        kept: Vec<bool>,
    },
}

/// One fate for each open write.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Choice {
    fates: Vec<Fate>,
}

impl Choice {
    /// A choice made by hand, one fate for each open write of a point.
    #[must_use]
    pub fn new(fates: Vec<Fate>) -> Self {
        Self { fates }
    }

    /// The fates, in order of submission.
    #[must_use]
    pub fn fates(&self) -> &[Fate] {
        &self.fates
    }
}

/// `+` kept, `-` lost, `[+--+]` torn.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = |kept: &bool| if *kept { '+' } else { '-' };
        for fate in &self.fates {
            match fate {
                Fate::Lost => f.write_str("-")?,
                Fate::Kept => f.write_str("+")?,
                Fate::Torn { kept, .. } => {
                    write!(f, "[{}]", kept.iter().map(sign).collect::<String>())?;
                }
            }
        }
        Ok(())
    }
}

/// The ways to tear one write that are tried with all others kept, and with all others lost.
const TEAR_PATTERNS: usize = 6;

/// Whether unit `unit` of `units` survives in tear pattern `pattern`.
fn survives(pattern: usize, unit: usize, units: usize) -> bool {
    match pattern {
        0 => unit == 0,
        1 => unit == units - 1,
        2 => unit != 0,
        3 => unit != units - 1,
        4 => unit < units / 2,
        _ => unit >= units / 2,
    }
}

/// Iterator over the choices of a point.
#[derive(Debug, Clone)]
pub struct Choices {
    /// Units of each open write, and their size.
    units: Vec<usize>,
    unit_bytes: Vec<usize>,
    /// Writes of at least two units, which can be torn.
    tearable: Vec<usize>,
    selection: Selection,
    next: usize,
    count: usize,
}

impl Choices {
    pub(super) fn new(extents: Vec<Extent>, selection: Selection) -> Self {
        assert!(
            selection.exhaustive_max <= 20,
            "at most 2^20 subsets of the writes are enumerated"
        );
        let unit_bytes = |extent: &Extent| match extent {
            Extent::Blocks(_) => selection.tear.unit_bytes(),
            Extent::Words(_) => WORD_BYTES,
        };
        let units_of = |extent: &Extent| match (extent, selection.tear) {
            (Extent::Words(words), _) => words.len(),
            (Extent::Blocks(_), Tear::None) => 1,
            (Extent::Blocks(blocks), tear) => blocks * (BLOCK_BYTES / tear.unit_bytes()),
        };
        let units: Vec<_> = extents.iter().map(units_of).collect();
        let unit_bytes = extents.iter().map(unit_bytes).collect();
        let tearable = (0..units.len()).filter(|write| units[*write] > 1).collect();
        let mut choices = Self {
            units,
            unit_bytes,
            tearable,
            selection,
            next: 0,
            count: 0,
        };
        choices.count = if choices.is_exhaustive() {
            1 << choices.elements()
        } else {
            let (subsets, random) = (choices.chosen_subsets(), selection.random);
            let torn = choices.tearable.len() * TEAR_PATTERNS * 2;
            subsets + random + torn + if torn > 0 { random } else { 0 }
        };
        choices
    }

    fn elements(&self) -> usize {
        self.units.iter().sum()
    }

    /// Whether every subset is generated.
    #[must_use]
    pub fn is_exhaustive(&self) -> bool {
        self.elements() <= self.selection.exhaustive_max
    }

    /// Whether every subset of whole writes is generated; for three writes that are no more choices
    /// than otherwise.
    fn has_every_subset(&self) -> bool {
        self.units.len() <= self.selection.exhaustive_max.max(3)
    }

    /// Number of subsets of whole writes that are not random: all of them, or none, all, each
    /// missing, each as the only one, and each prefix that is none of these.
    fn chosen_subsets(&self) -> usize {
        let writes = self.units.len();
        if self.has_every_subset() {
            1 << writes
        } else {
            2 + 2 * writes + (writes - 3)
        }
    }

    /// Choice number `number`.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    pub fn get(&self, number: usize) -> Choice {
        assert!(number < self.count, "choice {number} of {}", self.count);
        if self.is_exhaustive() {
            return self.by_units(number);
        }
        let Some(random) = number.checked_sub(self.chosen_subsets()) else {
            return self.subset(|write| self.is_chosen(number, write));
        };
        let mut bits = Seeded::new(self.selection.seed ^ (u64::try_from(number).unwrap_or(0)));
        let Some(torn) = random.checked_sub(self.selection.random) else {
            return self.subset(|_| bits.coin());
        };
        let patterns = self.tearable.len() * TEAR_PATTERNS * 2;
        if torn >= patterns {
            return self.random_torn(&mut bits);
        }
        let (victim, rest) = (
            self.tearable[torn / (TEAR_PATTERNS * 2)],
            torn % (TEAR_PATTERNS * 2),
        );
        let (pattern, others_kept) = (rest / 2, rest % 2 == 1);
        let mut choice = self.subset(|_| others_kept);
        let units = self.units[victim];
        choice.fates[victim] = self.torn(
            victim,
            (0..units)
                .map(|unit| survives(pattern, unit, units))
                .collect(),
        );
        choice
    }

    fn subset(&self, mut kept: impl FnMut(usize) -> bool) -> Choice {
        let fate = |write| if kept(write) { Fate::Kept } else { Fate::Lost };
        Choice {
            fates: (0..self.units.len()).map(fate).collect(),
        }
    }

    fn torn(&self, write: usize, kept: Vec<bool>) -> Fate {
        if kept.iter().all(|kept| *kept) {
            Fate::Kept
        } else if kept.iter().all(|kept| !*kept) {
            Fate::Lost
        } else {
            Fate::Torn {
                unit_bytes: self.unit_bytes[write],
                kept,
            }
        }
    }

    /// Bit n of `number` is the fate of unit n.
    fn by_units(&self, number: usize) -> Choice {
        let mut bits = number;
        let mut fates = Vec::with_capacity(self.units.len());
        for (write, units) in self.units.iter().enumerate() {
            let kept = (0..*units).map(|unit| bits >> unit & 1 == 1).collect();
            fates.push(self.torn(write, kept));
            bits >>= units;
        }
        Choice { fates }
    }

    fn is_chosen(&self, number: usize, write: usize) -> bool {
        let writes = self.units.len();
        if self.has_every_subset() {
            return number >> write & 1 == 1;
        }
        match number {
            0 => false,
            1 => true,
            n if n < 2 + writes => write != n - 2,
            n if n < 2 + 2 * writes => write == n - 2 - writes,
            // Prefixes of 2 to writes - 2; the shorter and longer ones came before.
            n => write < n - (2 + 2 * writes) + 2,
        }
    }

    fn random_torn(&self, bits: &mut Seeded) -> Choice {
        let mut fates = Vec::with_capacity(self.units.len());
        for (write, units) in self.units.iter().enumerate() {
            fates.push(match bits.next_u64() % 4 {
                0 => Fate::Lost,
                1 => Fate::Kept,
                2 => self.torn(write, (0..*units).map(|_| bits.coin()).collect()),
                // What only a checksum can notice.
                _ => {
                    let missing = bits.index(*units);
                    self.torn(write, (0..*units).map(|unit| unit != missing).collect())
                }
            });
        }
        Choice { fates }
    }
}

impl Iterator for Choices {
    type Item = Choice;

    fn next(&mut self) -> Option<Choice> {
        let number = self.next;
        (number < self.count).then(|| {
            self.next += 1;
            self.get(number)
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count - self.next, Some(self.count - self.next))
    }
}

impl ExactSizeIterator for Choices {}

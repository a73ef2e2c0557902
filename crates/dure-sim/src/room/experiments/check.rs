//! What a figure shows, as checks of rates.

use std::fmt::{self, Display, Formatter};

/// A factor is about what a document says if it is within so many times of it, on the same side of 1:
/// the model knows factors no better (docs/simulation/validation.md).
pub const NEAR: f64 = 2.0;
/// A line that rises by no more than this is flat; one that falls is, too.
pub const FLAT_MOST: f64 = 1.25;
/// A line that falls has at most so much left.
pub const FALLS_MOST: f64 = 0.95;

/// One statement about the lines of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Check {
    /// One line is about so many times another.
    Times {
        /// The line.
        line: &'static str,
        /// The other.
        over: &'static str,
        /// On so many cores.
        at: usize,
        /// As the document says.
        factor: f64,
    },
    /// One line is at least so many times another.
    AtLeast {
        /// The line.
        line: &'static str,
        /// The other.
        over: &'static str,
        /// On so many cores.
        at: usize,
        /// The least.
        factor: f64,
    },
    /// A line rises, at least so many times.
    Rises {
        /// The line.
        line: &'static str,
        /// From so many cores.
        from: usize,
        /// To so many.
        to: usize,
        /// The least.
        factor: f64,
    },
    /// More cores do not make a line higher.
    Flat {
        /// The line.
        line: &'static str,
        /// From so many cores.
        from: usize,
        /// To so many.
        to: usize,
    },
    /// A line falls.
    Falls {
        /// The line.
        line: &'static str,
        /// From so many cores.
        from: usize,
        /// To so many.
        to: usize,
    },
    /// No other number of cores makes a line higher than this.
    Peaks {
        /// The line.
        line: &'static str,
        /// So many cores.
        at: usize,
    },
}

/// A rate of a line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Its name.
    pub line: &'static str,
    /// On so many cores.
    pub cores: usize,
    /// Operations a second.
    pub ops_per_second: f64,
}

/// A check and what came out.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// What was checked.
    pub check: Check,
    /// The ratio, or of [`Check::Peaks`] the cores of the highest rate.
    pub found: f64,
    /// Whether it is as it should be.
    pub holds: bool,
}

impl Check {
    /// Lines and cores that it needs, of a figure with these numbers of cores.
    #[must_use]
    pub fn uses(&self, cores: &[usize]) -> Vec<(&'static str, usize)> {
        match *self {
            Check::Times { line, over, at, .. } | Check::AtLeast { line, over, at, .. } => {
                vec![(line, at), (over, at)]
            }
            Check::Rises { line, from, to, .. }
            | Check::Flat { line, from, to }
            | Check::Falls { line, from, to } => vec![(line, from), (line, to)],
            Check::Peaks { line, at } => {
                let others = cores.iter().map(|cores| (line, *cores));
                others.chain([(line, at)]).collect()
            }
        }
    }

    /// Whether rates are so; `None` if one is missing.
    #[must_use]
    pub fn of(&self, rates: &[Rate]) -> Option<Checked> {
        let rate = |line: &str, cores: usize| {
            let found = rates
                .iter()
                .find(|rate| rate.line == line && rate.cores == cores)?;
            Some(found.ops_per_second)
        };
        let (found, holds) = match *self {
            Check::Times {
                line,
                over,
                at,
                factor,
            } => {
                let found = rate(line, at)? / rate(over, at)?;
                let is_near = (factor / NEAR..=factor * NEAR).contains(&found);
                (found, is_near && (found > 1.0) == (factor > 1.0))
            }
            Check::AtLeast {
                line,
                over,
                at,
                factor,
            } => {
                let found = rate(line, at)? / rate(over, at)?;
                (found, found >= factor)
            }
            Check::Rises {
                line,
                from,
                to,
                factor,
            } => {
                let found = rate(line, to)? / rate(line, from)?;
                (found, found >= factor)
            }
            Check::Flat { line, from, to } => {
                let found = rate(line, to)? / rate(line, from)?;
                (found, found <= FLAT_MOST)
            }
            Check::Falls { line, from, to } => {
                let found = rate(line, to)? / rate(line, from)?;
                (found, found <= FALLS_MOST)
            }
            Check::Peaks { line, at } => {
                rate(line, at)?;
                let own = rates.iter().filter(|rate| rate.line == line);
                let most = own.max_by(|a, b| a.ops_per_second.total_cmp(&b.ops_per_second))?;
                #[expect(clippy::cast_precision_loss, reason = "hundreds")]
                let found = most.cores as f64;
                (found, most.cores == at)
            }
        };
        Some(Checked {
            check: *self,
            found,
            holds,
        })
    }
}

/// What is to be seen.
impl Display for Check {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Check::Times {
                line,
                over,
                at,
                factor,
            } => {
                write!(f, "{line} is about {} times {over} at {at}", short(*factor))
            }
            Check::AtLeast {
                line,
                over,
                at,
                factor,
            } => {
                write!(
                    f,
                    "{line} is at least {} times {over} at {at}",
                    short(*factor)
                )
            }
            Check::Rises {
                line,
                from,
                to,
                factor,
            } => {
                let factor = short(*factor);
                write!(
                    f,
                    "{line} rises from {from} to {to} at least {factor} times"
                )
            }
            Check::Flat { line, from, to } => write!(f, "{line} does not rise from {from} to {to}"),
            Check::Falls { line, from, to } => write!(f, "{line} falls from {from} to {to}"),
            Check::Peaks { line, at } => write!(f, "{line} is highest at {at}"),
        }
    }
}

/// What came out.
impl Display for Checked {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let found = short(self.found);
        match self.check {
            Check::Peaks { .. } => write!(f, "{}: at {found}", self.check),
            _ => write!(f, "{}: {found}", self.check),
        }
    }
}

/// Three digits.
fn short(number: f64) -> String {
    match number {
        _ if number >= 99.95 => format!("{number:.0}"),
        _ if number >= 9.995 => format!("{number:.1}").trim_end_matches(".0").to_owned(),
        _ => {
            let text = format!("{number:.2}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: [Rate; 5] = [
        rate("one", 1, 100.0),
        rate("one", 20, 150.0),
        rate("one", 80, 110.0),
        rate("own", 1, 100.0),
        rate("own", 80, 4_400.0),
    ];

    const fn rate(line: &'static str, cores: usize, ops_per_second: f64) -> Rate {
        Rate {
            line,
            cores,
            ops_per_second,
        }
    }

    fn holds(check: Check) -> bool {
        check.of(&RATES).unwrap().holds
    }

    #[test]
    fn checks_hold_and_fail() {
        let times = |factor| Check::Times {
            line: "own",
            over: "one",
            at: 80,
            factor,
        };
        assert!(holds(times(40.0)) && holds(times(79.0)) && holds(times(21.0)));
        assert!(!holds(times(81.0)) && !holds(times(19.0)));
        // 1.0 times is no gain, although it is within a factor of two of 1.3.
        let same = Check::Times {
            line: "own",
            over: "one",
            at: 1,
            factor: 1.3,
        };
        assert!(!holds(same));
        let least = |factor| Check::AtLeast {
            line: "own",
            over: "one",
            at: 80,
            factor,
        };
        assert!(holds(least(40.0)) && !holds(least(41.0)));
        let rises = |factor| Check::Rises {
            line: "own",
            from: 1,
            to: 80,
            factor,
        };
        assert!(holds(rises(44.0)) && !holds(rises(45.0)));
        let flat = |line, to| Check::Flat { line, from: 1, to };
        assert!(holds(flat("one", 80)) && !holds(flat("one", 20)) && !holds(flat("own", 80)));
        let falls = |from, to| Check::Falls {
            line: "one",
            from,
            to,
        };
        assert!(holds(falls(20, 80)) && !holds(falls(1, 80)));
        let peaks = |at| Check::Peaks { line: "one", at };
        assert!(holds(peaks(20)) && !holds(peaks(80)));
    }

    #[test]
    fn a_check_without_its_rates_has_no_answer() {
        let check = Check::Falls {
            line: "one",
            from: 20,
            to: 40,
        };
        assert_eq!(check.of(&RATES), None);
        assert_eq!(check.uses(&[1, 20]), [("one", 20), ("one", 40)]);
        let peaks = Check::Peaks {
            line: "one",
            at: 20,
        };
        assert_eq!(peaks.uses(&[1, 20]), [("one", 1), ("one", 20), ("one", 20)]);
        assert_eq!(Check::Peaks { line: "no", at: 1 }.of(&RATES), None);
    }

    #[test]
    fn what_came_out_is_told() {
        let check = Check::Rises {
            line: "own",
            from: 1,
            to: 80,
            factor: 60.0,
        };
        let told = check.of(&RATES).unwrap().to_string();
        assert_eq!(told, "own rises from 1 to 80 at least 60 times: 44");
        let told = Check::Peaks {
            line: "one",
            at: 80,
        }
        .of(&RATES)
        .unwrap()
        .to_string();
        assert_eq!(told, "one is highest at 80: at 20");
        assert_eq!(
            [0.123, 1.5, 12.34, 284.4].map(short),
            ["0.12", "1.5", "12.3", "284"]
        );
    }
}

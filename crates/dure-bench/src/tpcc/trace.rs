//! What a database asks of its files: a trace of reads, writes, appends and syncs.
//!
//! **Structure.** [`Trace::generate`] makes the five transactions of TPC-C in their shares, each as the
//! pages that it touches: the skewed ones by the specification's NURand, the newest orders near the
//! end. A warehouse is a file, and all append to one log. [`Trace::parse`] reads a recorded one.
//!
//! **Invariants.** The same seed makes the same trace.

use anyhow::{Context, Result, bail, ensure};
use dure_sync::random::Seeded;

/// A call on a file. Pages have 4 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// Pages are read.
    Read { file: u16, page: u32, count: u16 },
    /// Pages are written.
    Write { file: u16, page: u32, count: u16 },
    /// Pages are appended.
    Append { file: u16, count: u16 },
    /// The file is made durable.
    Sync { file: u16 },
}

impl Call {
    fn file(self) -> u16 {
        match self {
            Call::Read { file, .. }
            | Call::Write { file, .. }
            | Call::Append { file, .. }
            | Call::Sync { file } => file,
        }
    }
}

/// Calls, and how large the files are before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trace {
    /// Pages of each file.
    pub(super) files: Vec<u32>,
    pub(super) calls: Vec<Call>,
}

/// What is generated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) warehouses: u16,
    /// Pages of each.
    pub(super) pages: u32,
    pub(super) transactions: u32,
    /// Whether each transaction that changes something syncs the log.
    pub(super) syncs_log: bool,
    pub(super) seed: u64,
}

/// Makes a trace.
struct Maker {
    shape: Shape,
    random: Seeded,
    calls: Vec<Call>,
}

impl Trace {
    pub(super) fn generate(shape: Shape) -> Trace {
        let mut maker = Maker {
            shape,
            random: Seeded::new(shape.seed),
            calls: Vec::new(),
        };
        for _ in 0..shape.transactions {
            maker.transaction();
        }
        let mut files = vec![shape.pages; usize::from(shape.warehouses)];
        // The log.
        files.push(0);
        Trace {
            files,
            calls: maker.calls,
        }
    }

    /// Reads the lines of a recorded trace: `r FILE PAGE COUNT`, `w FILE PAGE COUNT`, `a FILE COUNT`,
    /// `s FILE`; numbers from 0 on, pages of 4 KiB, `#` begins a comment. Files are as long as they
    /// are read or written.
    pub(super) fn parse(text: &str) -> Result<Trace> {
        let mut trace = Trace {
            files: Vec::new(),
            calls: Vec::new(),
        };
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.is_empty() {
                continue;
            }
            let call = call_of(&words).with_context(|| format!("line {}: {line}", number + 1))?;
            trace.add(call);
        }
        ensure!(!trace.calls.is_empty(), "a trace without calls");
        Ok(trace)
    }

    fn add(&mut self, call: Call) {
        let file = usize::from(call.file());
        if self.files.len() <= file {
            self.files.resize(file + 1, 0);
        }
        if let Call::Read { page, count, .. } | Call::Write { page, count, .. } = call {
            let end = page.saturating_add(u32::from(count));
            self.files[file] = self.files[file].max(end);
        }
        self.calls.push(call);
    }
}

fn call_of(words: &[&str]) -> Result<Call> {
    let number = |text: &str| {
        text.parse::<u32>()
            .with_context(|| format!("'{text}' is no number"))
    };
    let short = |text: &str| {
        let number = u16::try_from(number(text)?).ok();
        number.with_context(|| format!("'{text}' is more than 65535"))
    };
    let count = |text: &str| {
        let count = short(text)?;
        ensure!(
            (1..=1024).contains(&count),
            "{count} pages: 1 to 1024 in a call"
        );
        Ok(count)
    };
    Ok(match *words {
        ["r", file, page, pages] => Call::Read {
            file: short(file)?,
            page: number(page)?,
            count: count(pages)?,
        },
        ["w", file, page, pages] => Call::Write {
            file: short(file)?,
            page: number(page)?,
            count: count(pages)?,
        },
        ["a", file, pages] => Call::Append {
            file: short(file)?,
            count: count(pages)?,
        },
        ["s", file] => Call::Sync { file: short(file)? },
        _ => bail!("it is r FILE PAGE COUNT, w FILE PAGE COUNT, a FILE COUNT or s FILE"),
    })
}

impl Maker {
    /// One of the five, in the shares of the specification.
    fn transaction(&mut self) {
        let warehouses = u64::from(self.shape.warehouses);
        let home = u16::try_from(self.random.below(warehouses)).unwrap_or(0);
        match self.random.below(100) {
            0..45 => self.new_order(home),
            45..88 => self.payment(home),
            88..92 => (0..4).for_each(|_| self.read(home, Self::skewed)),
            92..96 => self.delivery(home),
            _ => (0..20).for_each(|_| self.read(home, Self::recent)),
        }
    }

    /// Reads customer and district, updates the stock of ten items, adds an order.
    fn new_order(&mut self, home: u16) {
        self.read(home, Self::skewed);
        for _ in 0..10 {
            // Of a hundred items one comes from elsewhere.
            let warehouses = u64::from(self.shape.warehouses);
            let other = u16::try_from(self.random.below(warehouses)).unwrap_or(0);
            let from = if self.random.below(100) == 0 {
                other
            } else {
                home
            };
            self.update(from, Self::skewed);
        }
        self.update(home, Self::recent);
        self.commit(2);
    }

    /// Updates warehouse, district and customer.
    fn payment(&mut self, home: u16) {
        self.update(home, |_| 0);
        self.update(home, |maker| 1 + maker.below(9));
        self.update(home, Self::skewed);
        self.commit(1);
    }

    /// Updates an order of each of ten districts.
    fn delivery(&mut self, home: u16) {
        for _ in 0..10 {
            self.update(home, Self::recent);
        }
        self.commit(2);
    }

    fn read(&mut self, file: u16, page: impl FnOnce(&mut Maker) -> u32) {
        let page = page(self);
        let count = 1;
        self.calls.push(Call::Read { file, page, count });
    }

    /// Reads a page and writes it.
    fn update(&mut self, file: u16, page: impl FnOnce(&mut Maker) -> u32) {
        let page = page(self);
        let count = 1;
        self.calls.push(Call::Read { file, page, count });
        self.calls.push(Call::Write { file, page, count });
    }

    fn commit(&mut self, count: u16) {
        let file = self.shape.warehouses;
        self.calls.push(Call::Append { file, count });
        if self.shape.syncs_log {
            self.calls.push(Call::Sync { file });
        }
    }

    fn below(&mut self, limit: u32) -> u32 {
        u32::try_from(self.random.below(u64::from(limit.max(1)))).unwrap_or(0)
    }

    /// NURand of the specification (2.1.6), with a constant that fits so many pages.
    fn skewed(&mut self) -> u32 {
        let pages = self.shape.pages;
        let mask = (pages / 8).next_power_of_two() - 1;
        (self.below(mask + 1) | self.below(pages)) % pages
    }

    /// A page of the last sixteenth: the newest orders.
    fn recent(&mut self) -> u32 {
        let few = (self.shape.pages / 16).max(1);
        self.shape.pages - 1 - self.below(few)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> Shape {
        Shape {
            warehouses: 3,
            pages: 500,
            transactions: 2000,
            syncs_log: true,
            seed: 7,
        }
    }

    #[test]
    fn a_trace_has_the_shares_of_the_specification() {
        let trace = Trace::generate(shape());
        assert_eq!(trace, Trace::generate(shape()));
        assert_eq!(trace.files, [500, 500, 500, 0]);
        let count = |is: fn(&Call) -> bool| trace.calls.iter().filter(|call| is(call)).count();
        // 92 of 100 transactions change something.
        let commits = count(|call| matches!(call, Call::Sync { file: 3 }));
        assert!((1780..=1900).contains(&commits), "{commits}");
        let writes = count(|call| matches!(call, Call::Write { .. }));
        let reads = count(|call| matches!(call, Call::Read { .. }));
        assert!(writes > 10_000 && reads > writes, "{reads} {writes}");
        let inside = |call: &Call| match *call {
            Call::Read { page, .. } | Call::Write { page, .. } => page < 500,
            _ => true,
        };
        assert!(trace.calls.iter().all(inside));
    }

    #[test]
    fn a_recorded_trace_is_read() {
        let trace = Trace::parse("# a trace\nr 0 5 2\nw 1 0 1 # one page\n\na 2 3\ns 2\n").unwrap();
        assert_eq!(trace.files, [7, 1, 0]);
        assert_eq!(trace.calls.len(), 4);
        for wrong in ["r 0 1", "x 1", "r 0 0 0", "w 70000 0 1", "a 0 many", ""] {
            assert!(Trace::parse(wrong).is_err(), "{wrong}");
        }
    }
}

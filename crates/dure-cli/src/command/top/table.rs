//! The table of `dure top`: what happened between two snapshots.

use std::fmt::Write;

use dure_block::count::Count;

use crate::live::wire::{JournalCounts, Logged, Snapshot, WorkerCounts};
use crate::size::Size;

/// Lines of the log of the server below the numbers.
const LOG_LINES: usize = 3;

/// The averages since the mount.
pub(super) fn since_mount(now: &Snapshot, wide: bool) -> String {
    let mut nothing = now.clone();
    nothing.clock_ns = now.clock_ns.saturating_sub(now.up_ns);
    nothing.journals.clear();
    nothing.workers.clear();
    nothing.pauses = 0;
    nothing.checkpoints = 0;
    nothing.device = Default::default();
    between(&nothing, now, wide)
}

/// Everything between `before` and `now`, per second.
pub(super) fn between(before: &Snapshot, now: &Snapshot, wide: bool) -> String {
    let table = Table {
        before,
        now,
        seconds: seconds(now.clock_ns.saturating_sub(before.clock_ns)),
        wide,
    };
    table.print()
}

struct Table<'s> {
    before: &'s Snapshot,
    now: &'s Snapshot,
    seconds: f64,
    /// The states of transactions too.
    wide: bool,
}

impl Table<'_> {
    fn print(&self) -> String {
        let changes: Vec<JournalCounts> = self
            .now
            .journals
            .iter()
            .enumerate()
            .map(|(index, now)| match self.before.journals.get(index) {
                Some(before) => now.since(before),
                None => now.clone(),
            })
            .collect();
        let mut sum = JournalCounts::default();
        changes.iter().for_each(|change| sum.add(change));
        let used = |change: &&JournalCounts| {
            let now = &self.now.journals[usize::from(change.journal)];
            now.handles_begun > 0 || now.writes > 0
        };
        let used: Vec<&JournalCounts> = changes.iter().filter(used).collect();
        let mut out = String::new();
        self.head(&mut out, &sum, used.len()).expect("strings grow");
        self.rows(&mut out, &used).expect("strings grow");
        self.workers(&mut out, &changes).expect("strings grow");
        for line in self.now.log.iter().rev().take(LOG_LINES).rev() {
            writeln!(out, "{line}").expect("strings grow");
        }
        out
    }

    fn rate(&self, count: u64) -> f64 {
        float(count) / self.seconds
    }

    fn head(&self, out: &mut String, sum: &JournalCounts, used: usize) -> std::fmt::Result {
        let now = self.now;
        let up = now.up_ns / 1_000_000_000;
        writeln!(
            out,
            "{} on {}, up {}:{:02}:{:02}, {used} of {} used; {}",
            now.mounted.volume,
            now.mounted.directory,
            up / 3600,
            up / 60 % 60,
            up % 60,
            Count::of(now.journals.len(), "journal"),
            now.mounted.options,
        )?;
        if let Some(why) = &now.stopped {
            writeln!(out, "STOPPED, read-only: {why}")?;
        }
        let device = &now.device;
        let flushes = device
            .device_flushes
            .saturating_sub(self.before.device.device_flushes);
        writeln!(
            out,
            "commits  {:.1}/s over {} journals each; flushes {:.1}/s asked, {:.1}/s done, {} commits each",
            self.rate(sum.commits),
            ratio(sum.commit_journals, sum.commits),
            self.rate(sum.flushes),
            self.rate(flushes),
            ratio(sum.commits, flushes),
        )?;
        writeln!(
            out,
            "log      {:.1} KiB/s in {:.1} writes/s; checkpoints {:.2}/s ({} in all); free {} of {}",
            self.rate(sum.blocks_written * 4),
            self.rate(sum.writes),
            self.rate(now.checkpoints.saturating_sub(self.before.checkpoints)),
            now.checkpoints,
            Size(now.blocks_free * 4096),
            Size(now.blocks * 4096),
        )?;
        writeln!(
            out,
            "handles  {:.1}/s joined, {:.1}/s dropped; marks per handle: {} given, {} joined, {} written",
            self.rate(sum.handles_joined),
            self.rate(sum.handles_dropped),
            ratio(sum.marks_given, sum.handles_joined),
            ratio(sum.marks_joined, sum.handles_joined),
            ratio(sum.marks_written, sum.handles_joined),
        )?;
        self.stalls(out, sum)?;
        self.operations(out, sum)?;
        writeln!(out)
    }

    /// A line per worker; `log` is of the journals of its partitions, whichever task commits them.
    fn workers(&self, out: &mut String, journals: &[JournalCounts]) -> std::fmt::Result {
        if self.now.workers.is_empty() {
            return Ok(());
        }
        let pauses = self.now.pauses.saturating_sub(self.before.pauses);
        writeln!(
            out,
            "\n{:>7} {:>12} {:>13} {:>9} {:>9} {:>9} {:>11}   writers slept {:.1}/s",
            "WORKER",
            "PARTITIONS",
            "BACKLOG pages",
            "PAGES/s",
            "IMAGES/s",
            "ROUNDS/s",
            "LOG blocks/s",
            self.rate(pauses),
        )?;
        for (number, now) in self.now.workers.iter().enumerate() {
            let none = WorkerCounts::default();
            let before = self.before.workers.get(number).unwrap_or(&none);
            let since = |now: u64, before: u64| self.rate(now.saturating_sub(before));
            let own = |change: &&JournalCounts| now.partitions.contains(&change.journal);
            let log = journals.iter().filter(own);
            writeln!(
                out,
                "{number:>7} {:>12} {:>13} {:>9.1} {:>9.1} {:>9.1} {:>11.1}",
                now.group(),
                now.backlog_pages,
                since(now.pages_written, before.pages_written),
                since(now.images_written, before.images_written),
                since(now.rounds, before.rounds),
                self.rate(log.map(|change| change.blocks_written).sum()),
            )?;
        }
        Ok(())
    }

    fn stalls(&self, out: &mut String, sum: &JournalCounts) -> std::fmt::Result {
        let stalls = sum.stalls.iter().filter(|(_, times)| times.count > 0);
        let shown = stalls.map(|(name, times)| {
            let each = duration(times.mean_ns());
            format!("{name} {:.1}/s x {each};", self.rate(times.count))
        });
        list(out, "stalls  ", shown, "none")
    }

    fn operations(&self, out: &mut String, sum: &JournalCounts) -> std::fmt::Result {
        let mut logged: Vec<(&String, &Logged)> = sum.operations.iter().collect();
        logged.retain(|(_, logged)| logged.handles > 0);
        logged.sort_by_key(|(_, logged)| std::cmp::Reverse(logged.bytes));
        let shown = logged.iter().map(|(name, logged)| {
            let bytes = ratio(logged.bytes, logged.handles);
            format!("{name} {:.1}/s x {bytes} B;", self.rate(logged.handles))
        });
        list(out, "logged  ", shown, "nothing")
    }

    /// A line per journal. States: transactions now; times: the mean of those that left the state.
    fn rows(&self, out: &mut String, journals: &[&JournalCounts]) -> std::fmt::Result {
        write!(
            out,
            "{:>7} {:>5} {:>10} {:>9} {:>9} {:>9} {:>5}",
            "JOURNAL", "OPEN", "HANDLES/s", "COMMITS/s", "WRITES/s", "KiB/s", "RING%"
        )?;
        for time in ["run", "writing", "written", "durable", "valid"] {
            write!(out, " {time:>7}")?;
        }
        if self.wide {
            write!(
                out,
                " {:>5} {:>4} {:>4} {:>4} {:>5}",
                "RUN", "WRT", "FLU", "DUR", "VALID"
            )?;
        }
        writeln!(out)?;
        journals
            .iter()
            .try_for_each(|journal| self.row(out, journal))
    }

    fn row(&self, out: &mut String, journal: &JournalCounts) -> std::fmt::Result {
        write!(
            out,
            "{:>7} {:>5} {:>10.1} {:>9.1} {:>9.1} {:>9.1} {:>5}",
            journal.journal,
            journal.handles_open,
            self.rate(journal.handles_joined),
            self.rate(journal.commits),
            self.rate(journal.writes),
            self.rate(journal.blocks_written * 4),
            ratio(journal.ring_blocks_used * 100, journal.ring_blocks),
        )?;
        let times = &journal.times;
        for time in [
            &times.running,
            &times.writing,
            &times.written,
            &times.durable,
            &times.valid,
        ] {
            write!(out, " {:>7}", duration(time.mean_ns()))?;
        }
        if self.wide {
            let now = &journal.transactions;
            write!(
                out,
                " {:>5} {:>4} {:>4} {:>4} {:>5}",
                now.running_handles, now.writing, now.written, now.durable, now.valid
            )?;
        }
        writeln!(out)
    }
}

/// Columns of a table that is not wide.
const COLUMNS: usize = 100;

/// Items behind a head of eight columns, in as many lines as they need.
fn list(
    out: &mut String,
    head: &str,
    items: impl Iterator<Item = String>,
    none: &str,
) -> std::fmt::Result {
    let mut line = head.to_owned();
    for item in items {
        if line.len() + 1 + item.len() > COLUMNS {
            writeln!(out, "{line}")?;
            line = " ".repeat(head.len());
        }
        write!(line, " {item}")?;
    }
    if line == head {
        write!(line, " {none}")?;
    }
    writeln!(out, "{line}")
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
fn float(count: u64) -> f64 {
    count as f64
}

fn seconds(ns: u64) -> f64 {
    (float(ns) / 1e9).max(1e-9)
}

/// A quotient with one digit, `-` of nothing.
fn ratio(count: u64, of: u64) -> String {
    if of == 0 {
        return "-".into();
    }
    format!("{:.1}", float(count) / float(of))
}

/// Three digits and a unit, `-` of nothing.
fn duration(ns: Option<u64>) -> String {
    let Some(ns) = ns else {
        return "-".into();
    };
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let fits = |(_, scale): &&(&str, f64)| float(ns) < 1000.0 * scale;
    let (unit, scale) = units.iter().find(fits).unwrap_or(&("s", 1e9));
    let value = float(ns) / scale;
    let digits = if *unit == "ns" || value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_go_on_in_the_next_line() {
        let mut text = String::new();
        let items = (0..12).map(|n| format!("operation-{n} 1234.5/s;"));
        list(&mut text, "logged  ", items, "nothing").unwrap();
        let longest = text.lines().map(str::len).max();
        assert!(longest.is_some_and(|len| (80..=COLUMNS).contains(&len)));
        assert_eq!(text.matches("operation").count(), 12);
        text.clear();
        list(&mut text, "stalls  ", std::iter::empty(), "none").unwrap();
        assert_eq!(text, "stalls   none\n");
    }

    #[test]
    fn durations_have_three_digits() {
        let texts =
            [0, 999, 1000, 12_345, 999_000_000, 61_000_000_000].map(|ns| duration(Some(ns)));
        assert_eq!(
            texts,
            ["0ns", "999ns", "1.00us", "12.3us", "999ms", "61.0s"]
        );
        assert_eq!(
            (duration(None), ratio(1, 0), ratio(1, 3)),
            ("-".into(), "-".into(), "0.3".into())
        );
    }
}

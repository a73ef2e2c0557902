//! The table: what each call may cost, what it should, and what it does.
//!
//! **Structure.** [`ROWS`] holds both numbers: the *budget* is what was measured when it was last
//! lowered, rounded up a little, and is what CI compares with; the *goal* is the number to reach.
//! **Invariants.** A budget that is exceeded by more than [`TOLERANCE_PERCENT`] is a failure. A
//! budget may only be raised by a change that says why. **Crash.** Nothing.

use super::callgrind::Count;

/// What a count may exceed its budget by.
const TOLERANCE_PERCENT: f64 = 5.0;
/// Below this share of its budget a count asks for a lower one.
const SLACK: f64 = 0.9;

/// Names in the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    Small,
    Large,
}

impl Size {
    pub(super) fn names(self) -> u32 {
        match self {
            Size::Small => 100,
            Size::Large => 100_000,
        }
    }
}

/// Instructions of a call: the caller's, and what is left to the background (0: nothing).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Budget {
    caller: u32,
    background: u32,
}

/// One kind of call.
#[derive(Debug)]
pub(super) struct Row {
    /// Its name, also for the program.
    pub(super) call: &'static str,
    /// The goal for the caller's instructions, copies included.
    goal: Option<u32>,
    small: Budget,
    large: Budget,
}

const fn budget(caller: u32, background: u32) -> Budget {
    Budget { caller, background }
}

const fn row(call: &'static str, goal: u32, small: Budget, large: Budget) -> Row {
    let goal = if goal == 0 { None } else { Some(goal) };
    Row {
        call,
        goal,
        small,
        large,
    }
}

/// Every call. A goal of 0: none was set.
pub(super) const ROWS: &[Row] = &[
    row(
        "create",
        8000,
        budget(11_100, 4_810),
        budget(11_800, 23_100),
    ),
    row(
        "unlink",
        8000,
        budget(11_700, 4_450),
        budget(13_700, 21_800),
    ),
    row(
        "rename",
        13_000,
        budget(15_500, 5_720),
        budget(17_000, 35_100),
    ),
    row(
        "rename-over",
        16_000,
        budget(20_700, 9_410),
        budget(24_400, 37_800),
    ),
    row("mkdir", 0, budget(12_200, 4_820), budget(13_200, 23_100)),
    row("link", 0, budget(12_300, 1_930), budget(12_700, 41_000)),
    row("stat-first", 2500, budget(2_200, 0), budget(2_200, 0)),
    row("stat-second", 0, budget(2_890, 0), budget(2_950, 0)),
    row("stat-again", 400, budget(1_160, 0), budget(1_230, 0)),
    row("stat-mounted", 0, budget(12_400, 0), budget(29_100, 0)),
    row("open-close", 900, budget(1_790, 0), budget(1_730, 0)),
    row("chmod", 4000, budget(5_870, 855), budget(5_780, 23_800)),
    row("append", 5600, budget(5_900, 13_800), budget(5_840, 13_800)),
    row("overwrite", 0, budget(4_750, 3_520), budget(4_750, 3_570)),
    row(
        "overwrite-direct",
        0,
        budget(17_900, 390),
        budget(17_900, 430),
    ),
    row(
        "overwrite-fsync",
        31_400,
        budget(40_700, 2_880),
        budget(40_800, 2_920),
    ),
    row("read", 0, budget(4_650, 0), budget(4_650, 0)),
    row("read-direct", 0, budget(5_410, 0), budget(5_430, 0)),
    row("readdir", 0, budget(356, 0), budget(360, 0)),
    row("request", 0, budget(2_200, 0), budget(2_200, 0)),
    row("fuse-lookup", 0, budget(2_610, 0), budget(2_660, 0)),
    row(
        "fuse-mknod",
        0,
        budget(11_100, 4_800),
        budget(11_700, 23_100),
    ),
    row(
        "fuse-unlink",
        0,
        budget(19_300, 5_080),
        budget(20_200, 20_900),
    ),
    row(
        "fuse-rename",
        0,
        budget(14_800, 5_720),
        budget(16_300, 35_100),
    ),
    row("fuse-getattr", 0, budget(1_240, 0), budget(1_270, 0)),
    row("fuse-readdirplus", 0, budget(1_500, 0), budget(1_600, 0)),
    row("fuse-read", 0, budget(5_450, 0), budget(5_760, 0)),
    row("fuse-write", 0, budget(5_580, 3_520), budget(5_840, 3_540)),
];

/// One line of the table.
#[derive(Debug, PartialEq)]
pub(super) struct Line {
    name: String,
    names: u32,
    counted: f64,
    budget: u32,
    goal: Option<u32>,
}

impl Line {
    fn ratio(&self) -> f64 {
        self.counted / f64::from(self.budget)
    }

    /// Whether the budget is exceeded.
    pub(super) fn is_exceeded(&self) -> bool {
        is_exceeded(self.counted, self.budget.into())
    }
}

impl Row {
    fn budget(&self, size: Size) -> Budget {
        match size {
            Size::Small => self.small,
            Size::Large => self.large,
        }
    }

    /// The caller's line, and that of the background.
    pub(super) fn lines(&self, size: Size, count: Count) -> Vec<Line> {
        let budget = self.budget(size);
        let line = |name: String, counted, budget, goal| Line {
            name,
            names: size.names(),
            counted,
            budget,
            goal,
        };
        let name = self.call.to_owned();
        let mut lines = vec![line(name, count.caller, budget.caller, self.goal)];
        if count.background.is_some() || budget.background > 0 {
            let name = format!("{}, background", self.call);
            let counted = count.background.unwrap_or_default();
            lines.push(line(name, counted, budget.background, None));
        }
        lines
    }
}

/// Whether what was counted exceeds a budget.
pub(super) fn is_exceeded(counted: f64, budget: f64) -> bool {
    counted * 100.0 > budget * (100.0 + TOLERANCE_PERCENT)
}

/// What is to be done about a count, as it is printed.
pub(super) fn verdict(counted: f64, budget: f64) -> &'static str {
    match counted / budget {
        _ if is_exceeded(counted, budget) => "  EXCEEDED",
        ratio if ratio < SLACK => "  lower it",
        _ => "",
    }
}

/// Its first line.
pub(super) fn heading() -> String {
    format!(
        "{:<29} {:>7} {:>12} {:>8} {:>6} {:>8}",
        "operation", "names", "instructions", "budget", "ratio", "goal"
    )
}

/// A line as it is printed.
pub(super) fn show(line: &Line) -> String {
    let goal = line
        .goal
        .map_or_else(|| "-".to_owned(), |goal| goal.to_string());
    format!(
        "{:<29} {:>7} {:>12.0} {:>8} {:>6.2} {:>8}{}",
        line.name,
        line.names,
        line.counted,
        line.budget,
        line.ratio(),
        goal,
        verdict(line.counted, line.budget.into())
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const ROW: Row = row("call", 400, budget(1_000, 100), budget(2_000, 0));

    fn count(caller: f64, background: Option<f64>) -> Count {
        Count { caller, background }
    }

    fn exceeded(size: Size, count: Count) -> Vec<bool> {
        let lines = ROW.lines(size, count);
        lines.iter().map(Line::is_exceeded).collect()
    }

    #[test]
    fn a_twentieth_more_than_the_budget_is_allowed_and_no_more() {
        assert_eq!(
            exceeded(Size::Small, count(1050.0, Some(105.0))),
            [false, false]
        );
        assert_eq!(
            exceeded(Size::Small, count(1050.5, Some(105.0))),
            [true, false]
        );
        assert_eq!(
            exceeded(Size::Small, count(1.0, Some(105.5))),
            [false, true]
        );
        assert_eq!(exceeded(Size::Large, count(2100.0, None)), [false]);
        assert_eq!(exceeded(Size::Large, count(2101.0, None)), [true]);
    }

    /// A call that leaves work to the background now, and did not before.
    #[test]
    fn work_without_a_budget_exceeds_it() {
        assert_eq!(exceeded(Size::Large, count(1.0, Some(0.5))), [false, true]);
        assert_eq!(exceeded(Size::Small, count(1.0, None)), [false, false]);
    }

    #[test]
    fn a_line_says_what_is_wrong() {
        let said = |caller| show(&ROW.lines(Size::Small, count(caller, None))[0]);
        assert!(said(1100.0).ends_with(" 1.10      400  EXCEEDED"));
        assert!(said(1000.0).ends_with(" 1.00      400"));
        assert!(said(800.0).ends_with(" 0.80      400  lower it"));
        assert_eq!(said(1000.0).len(), heading().len());
    }

    #[test]
    fn rows_have_names_of_their_own_and_budgets() {
        let names: BTreeSet<_> = ROWS.iter().map(|row| row.call).collect();
        assert_eq!(names.len(), ROWS.len());
        for row in ROWS {
            assert!(row.small.caller > 0 && row.large.caller > 0, "{}", row.call);
            let shares = (row.small.background > 0, row.large.background > 0);
            assert!(shares.0 == shares.1, "{}", row.call);
        }
    }
}

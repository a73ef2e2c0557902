//! What the suites found.
//!
//! **Structure.** A [`Report`] per suite: cases that passed, cases that failed with the reason,
//! remarks. **Invariants.** A suite without a single case has failed. **Crash.** Nothing is kept.

use anyhow::{Result, anyhow, ensure};
use serde_json::json;

use super::step::Done;

/// What a program of steps prints at its end.
const STEPS_DONE: &str = "all steps are done";

/// The findings of one suite.
#[derive(Debug)]
pub(crate) struct Report {
    suite: String,
    passed: usize,
    failures: Vec<(String, String)>,
    notes: Vec<String>,
    skipped: Option<String>,
    elapsed_ms: u64,
}

/// How a suite ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Every case passed.
    Passed,
    /// A case failed, or there was none.
    Failed,
    /// It could not run here.
    Skipped,
}

impl Report {
    pub(crate) fn new(suite: String) -> Report {
        Report {
            suite,
            passed: 0,
            failures: Vec::new(),
            notes: Vec::new(),
            skipped: None,
            elapsed_ms: 0,
        }
    }

    /// Enters a case; returns whether it passed.
    pub(crate) fn case(&mut self, name: &str, result: Result<()>) -> bool {
        match result {
            Ok(()) => {
                eprintln!("  ok      {name}");
                self.passed += 1;
                true
            }
            Err(error) => {
                let why = format!("{error:#}");
                eprintln!("  FAILED  {name}: {why}");
                self.failures.push((name.to_owned(), why));
                false
            }
        }
    }

    /// Enters the steps that a shell program printed (`step: NAME`), each after `prefix`. It ended
    /// with the last of them unless it printed [`STEPS_DONE`].
    pub(crate) fn steps(&mut self, prefix: &str, done: &Done) -> Result<()> {
        let steps = done
            .out
            .lines()
            .filter_map(|line| line.strip_prefix("step: "));
        let mut names: Vec<String> = steps.map(|name| format!("{prefix}{name}")).collect();
        let ended = done.status.success() && done.out.contains(STEPS_DONE);
        let last = if ended { None } else { names.pop() };
        for name in &names {
            self.case(name, Ok(()));
        }
        if let Some(name) = last {
            let (tail, err) = (done.tail(), done.err());
            self.case(&name, Err(anyhow!("{}: {err}{tail}", done.status)));
        }
        ensure!(ended, "{prefix}it ended early{}", done.tail());
        Ok(())
    }

    /// Enters cases that passed, without naming them.
    pub(crate) fn passed(&mut self, count: usize) {
        self.passed += count;
    }

    /// Enters a remark.
    pub(crate) fn note(&mut self, text: String) {
        eprintln!("  {text}");
        self.notes.push(text);
    }

    /// The suite cannot run here.
    pub(crate) fn skip(&mut self, reason: String) {
        eprintln!("  skipped: {reason}");
        self.skipped = Some(reason);
    }

    pub(crate) fn end(&mut self, elapsed_ms: u64) {
        self.elapsed_ms = elapsed_ms;
    }

    pub(crate) fn outcome(&self) -> Outcome {
        match (&self.skipped, self.failures.len(), self.passed) {
            (Some(_), _, _) => Outcome::Skipped,
            (None, 0, 1..) => Outcome::Passed,
            _ => Outcome::Failed,
        }
    }

    /// The names of the cases that failed.
    #[cfg(test)]
    pub(crate) fn failed_cases(&self) -> Vec<&str> {
        self.failures
            .iter()
            .map(|(case, _)| case.as_str())
            .collect()
    }

    fn word(&self) -> &'static str {
        match self.outcome() {
            Outcome::Passed => "passed",
            Outcome::Failed => "FAILED",
            Outcome::Skipped => "skipped",
        }
    }

    fn seconds(&self) -> String {
        format!(
            "{}.{}",
            self.elapsed_ms / 1000,
            self.elapsed_ms % 1000 / 100
        )
    }
}

/// The table, or JSON.
pub(crate) fn print(reports: &[Report], json: bool) {
    if json {
        print_json(reports);
    } else {
        print_table(reports);
    }
}

/// An error if a suite failed, or could not run and must.
pub(crate) fn judge(reports: &[Report], allow_skip: bool) -> Result<()> {
    let count = |outcome| reports.iter().filter(|r| r.outcome() == outcome).count();
    let (failed, skipped) = (count(Outcome::Failed), count(Outcome::Skipped));
    ensure!(failed == 0, "{failed} of {} suites failed", reports.len());
    ensure!(
        skipped == 0 || allow_skip,
        "{skipped} of {} suites could not run here (--allow-skip to accept that)",
        reports.len()
    );
    Ok(())
}

/// One line per suite, then each failure again, in full.
fn print_table(reports: &[Report]) {
    println!();
    println!("suite      result   passed  failed  seconds");
    for report in reports {
        println!(
            "{:<10} {:<8} {:>6}  {:>6}  {:>7}  {}",
            report.suite,
            report.word(),
            report.passed,
            report.failures.len(),
            report.seconds(),
            report.skipped.as_deref().unwrap_or_default()
        );
    }
    for report in reports {
        for note in &report.notes {
            println!("\n{}: {note}", report.suite);
        }
        for (case, why) in &report.failures {
            println!("\n{}: {case}: {why}", report.suite);
        }
    }
}

/// The same as one JSON object.
fn print_json(reports: &[Report]) {
    let suites: Vec<_> = reports.iter().map(as_json).collect();
    println!("{:#}", json!({ "suites": suites }));
}

fn as_json(report: &Report) -> serde_json::Value {
    let failures = report.failures.iter();
    let failures: Vec<_> = failures
        .map(|(case, why)| json!({ "case": case, "why": why }))
        .collect();
    json!({
        "suite": report.suite,
        "result": report.word().to_lowercase(),
        "passed": report.passed,
        "failures": failures,
        "notes": report.notes,
        "skipped": report.skipped,
        "elapsed_ms": report.elapsed_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_passes_only_with_cases_and_without_failures() {
        let mut report = Report::new("s".to_owned());
        assert_eq!(report.outcome(), Outcome::Failed);
        assert!(report.case("a", Ok(())));
        assert_eq!(report.outcome(), Outcome::Passed);
        assert!(!report.case("b", Err(anyhow::anyhow!("no"))));
        assert_eq!(report.outcome(), Outcome::Failed);
        report.skip("no root".to_owned());
        assert_eq!(report.outcome(), Outcome::Skipped);
    }
}

//! Damaged images, with checksums made right: `dure_sim::images` in processes of their own.
//!
//! **Problem.** A hang, an abort, or memory without bound takes its process along. **Structure.**
//! `xtask image-cases` judges a batch and prints each case before it begins; its memory is bounded,
//! and its parent bounds its time. **Invariants.** A batch that ends early names its last case, and
//! the rest of it is run again from the next case on. **Crash.** None.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use dure_sim::images::{Case, Outcome};
use rustix::process::{Resource, Rlimit, setrlimit};

use super::Cx;
use super::report::Report;
use super::step::Steps;
use super::tools::Needs;

pub(crate) const NEEDS: Needs = Needs {
    mount: false,
    crates: &[],
    programs: &[],
};

const BATCH: u64 = 50;
/// For a batch, which takes a few seconds on an idle machine.
const LIMIT: Duration = Duration::from_secs(240);
/// Address space of a batch: a volume here has 8 MiB.
const MEMORY: u64 = 4 << 30;
/// Violations that are shown before the suite stops.
const SHOWN: usize = 40;

/// Arguments of `xtask image-cases`.
#[derive(Debug, Args)]
pub(crate) struct ImageCases {
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    first: u64,
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// An empty directory, for what is copied out [default: a temporary one].
    #[arg(long)]
    scratch: Option<PathBuf>,
}

impl ImageCases {
    pub(crate) fn run(self) -> Result<()> {
        let bound = Rlimit {
            current: Some(MEMORY),
            maximum: Some(MEMORY),
        };
        setrlimit(Resource::As, bound)?;
        let temporary = tempfile::tempdir()?;
        let scratch = self.scratch.as_deref().unwrap_or(temporary.path());
        let mut wrong = 0;
        for number in self.first..self.first + self.count {
            println!("case {number}");
            match dure_sim::images::run(
                Case {
                    seed: self.seed,
                    number,
                },
                scratch,
            ) {
                Ok(outcome) => println!("{}", words(outcome)),
                Err(what) => {
                    println!("wrong {}", what.replace('\n', " "));
                    wrong += 1;
                }
            }
        }
        ensure!(wrong == 0, "{wrong} of {} images", self.count);
        Ok(())
    }
}

fn words(outcome: Outcome) -> String {
    let word = |is, word| if is { word } else { "-" };
    format!(
        "held {} {} {}",
        word(outcome.clean, "sound"),
        word(outcome.mounted, "mounted"),
        word(outcome.repaired, "repaired")
    )
}

/// The results of all batches so far.
#[derive(Debug, Default)]
struct Account {
    held: usize,
    sound: usize,
    refused: usize,
    repaired: usize,
}

pub(crate) fn run(cx: &Cx, report: &mut Report) -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let steps = Steps::new(temporary.path().join("log"))?;
    let scratch = temporary.path().join("scratch");
    std::fs::create_dir(&scratch)?;
    let end = if cx.quick { 300 } else { 3000 };
    let (mut next, mut shown) = (0, 0);
    let mut account = Account::default();
    while next < end && shown < SHOWN {
        let count = BATCH.min(end - next);
        // This very program, also if a build has put another in its place.
        let mut batch = Command::new("/proc/self/exe");
        batch.arg("image-cases");
        for (name, value) in [("seed", cx.seed), ("first", next), ("count", count)] {
            batch.arg(format!("--{name}={value}"));
        }
        batch.arg("--scratch").arg(&scratch);
        let (out, ended) = steps.start(batch, None)?.wait_for_output(LIMIT)?;
        let last = account.read(report, &out, &mut shown);
        next = match (ended, last) {
            (Ok(()), Some((last, true))) if last + 1 == next + count => next + count,
            (ended, last) => {
                let last = last.context("a batch has said nothing")?.0;
                let ended = ended
                    .err()
                    .map_or_else(String::new, |error| format!("{error:#}"));
                report.case(&format!("image {last}"), Err(anyhow::anyhow!("{ended}")));
                shown += 1;
                last + 1
            }
        };
    }
    report.passed(account.held);
    let Account {
        held,
        sound,
        refused,
        repaired,
    } = account;
    report.note(format!(
        "{next} images: {held} hold, {sound} sound, {refused} refused, {repaired} repaired; one again: \
         cargo xtask image-cases --seed {} --first N",
        cx.seed
    ));
    report.case("the damage is seen", worth(held, sound, refused, repaired));
    Ok(())
}

/// Damage that is never detected, or always, tests nothing.
fn worth(held: usize, sound: usize, refused: usize, repaired: usize) -> Result<()> {
    if sound * 10 > held * 9 || sound * 50 < held || refused == 0 || repaired == 0 {
        bail!("of {held} images {sound} are sound, {refused} refused, {repaired} repaired");
    }
    Ok(())
}

impl Account {
    /// Enters the output of a batch; returns its last case, and whether that case ended.
    fn read(&mut self, report: &mut Report, out: &str, shown: &mut usize) -> Option<(u64, bool)> {
        let mut last = None;
        for line in out.lines() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match (word, last) {
                ("case", _) => last = rest.parse().ok().map(|number| (number, false)),
                ("held", Some((number, _))) => {
                    self.held += 1;
                    self.sound += usize::from(rest.contains("sound"));
                    self.refused += usize::from(!rest.contains("mounted"));
                    self.repaired += usize::from(rest.contains("repaired"));
                    last = Some((number, true));
                }
                ("wrong", Some((number, _))) => {
                    let name = format!("image {number}");
                    report.case(&name, Err(anyhow::anyhow!("{rest}")));
                    *shown += 1;
                    last = Some((number, true));
                }
                _ => {}
            }
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_ends_early_names_its_last_case() {
        let mut report = Report::new("images".to_owned());
        let (mut account, mut shown) = (Account::default(), 0);
        let out = "case 5\nheld - mounted -\ncase 6\nwrong it is\ncase 7\n";
        let last = account.read(&mut report, out, &mut shown);
        assert_eq!((last, shown, account.held), (Some((7, false)), 1, 1));
        assert_eq!(report.failed_cases(), ["image 6"]);
        assert!(worth(100, 95, 1, 1).is_err() && worth(100, 0, 50, 1).is_err());
        worth(100, 30, 20, 40).unwrap();
    }
}

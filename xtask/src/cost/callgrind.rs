//! Running the program under callgrind, and what callgrind has counted.
//!
//! **Structure.** One process counts one call. Collection is on only within the two functions
//! `counted_*`; callgrind writes its first part before the second of them, so that the caller's
//! instructions are in that part and the background's in the last. **Invariants.** A part without
//! a sum is an error, never a zero. **Crash.** Everything can be run again.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::cargo;

/// Both functions, as callgrind sees their names.
const COUNTED: &str = "dure_cost::counted::counted_*";
const BACKGROUND: &str = "dure_cost::counted::counted_background";

/// The counts of one kind of call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Count {
    /// Instructions of one call.
    pub(super) caller: f64,
    /// Instructions that one call leaves to the background; `None` if it leaves nothing.
    pub(super) background: Option<f64>,
}

/// The program, built as `dure` is.
pub(super) fn build() -> Result<PathBuf> {
    let what = "build --quiet --release -p dure-cost";
    cargo::release(what, "dure-cost")
}

/// Makes an image with a directory of `names` names in `folder`.
pub(super) fn prepare(program: &Path, folder: &Path, names: u32) -> Result<PathBuf> {
    let image = folder.join(format!("{names}.img"));
    let mut prepare = Command::new(program);
    prepare.arg("prepare").arg(&image);
    prepare.arg("--names").arg(names.to_string());
    cargo::run(prepare)?;
    Ok(image)
}

/// Counts `call` on `image`; callgrind's files are left at `out`.
pub(super) fn count(program: &Path, call: &str, image: &Path, out: &Path) -> Result<Count> {
    // There is one part more if there is work in the background.
    let first = PathBuf::from(format!("{}.1", out.display()));
    if first.exists() {
        std::fs::remove_file(&first)?;
    }
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--quiet", "--tool=callgrind", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(format!("--dump-before={BACKGROUND}"))
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .args(["count", call, "--image"])
        .arg(image)
        // Freed memory is never purged: a delayed purge would depend on the clock.
        .env("MIMALLOC_PURGE_DELAY", "-1")
        .stderr(Stdio::inherit());
    let output = valgrind.output().context("cannot start valgrind")?;
    if !output.status.success() {
        bail!("{valgrind:?} ended with {}", output.status);
    }
    let said = String::from_utf8(output.stdout)?;
    let last = read_sum(out)?;
    let parts = if first.exists() {
        (read_sum(&first)?, Some(last))
    } else {
        (last, None)
    };
    per_call(&said, parts)
}

fn read_sum(part: &Path) -> Result<u64> {
    let text = std::fs::read_to_string(part).with_context(|| part.display().to_string())?;
    sum(&text).with_context(|| part.display().to_string())
}

/// The instructions of one part.
fn sum(part: &str) -> Result<u64> {
    let value = |key| part.lines().find_map(|line: &str| line.strip_prefix(key));
    let events = value("events: ").context("callgrind's file names no events")?;
    ensure!(events.trim() == "Ir", "callgrind counted '{events}'");
    let sum = value("totals: ").context("callgrind's file has no sum")?;
    sum.trim().parse().context("callgrind's sum")
}

/// Divides what was counted by the number of calls the program says it has made.
fn per_call(said: &str, (caller, background): (u64, Option<u64>)) -> Result<Count> {
    let number = |key: &str| -> Result<u32> {
        let line = said.lines().find_map(|line| line.strip_prefix(key));
        let number = line.with_context(|| format!("the program does not say '{key}'"))?;
        number.trim().parse().context("a number of calls")
    };
    let calls = number("calls ")?;
    ensure!(calls > 0 && caller > 0, "no call was counted");
    let background = match (background, number("background ")?) {
        (None, 0) => None,
        (Some(sum), shares) if shares > 0 => Some(sum as f64 / f64::from(shares)),
        (sum, shares) => bail!("{shares} calls had work in the background, of {sum:?}"),
    };
    Ok(Count {
        caller: caller as f64 / f64::from(calls),
        background,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: &str = "# callgrind format\nversion: 1\ncreator: callgrind-3.19.0\npart: 1\n\n\
        desc: Trigger: --dump-before=x\n\npositions: line\nevents: Ir\nsummary: 4356675\n\n\
        fn=(1) dure_store::space::summary::read\n38 100\n\ntotals: 4356675\n";

    #[test]
    fn the_sum_of_a_part_is_found() {
        assert_eq!(sum(PART).unwrap(), 4_356_675);
    }

    #[test]
    fn a_part_without_a_sum_or_with_other_events_is_refused() {
        assert!(sum("").is_err());
        assert!(sum(&PART.replace("totals: ", "sums: ")).is_err());
        assert!(sum(&PART.replace("totals: 4", "totals: x")).is_err());
        assert!(sum(&PART.replace("events: Ir", "events: Ir Dr Dw")).is_err());
    }

    #[test]
    fn sums_are_divided_by_calls() {
        let count = per_call("calls 1000\nbackground 500\n", (2_500_000, Some(5000))).unwrap();
        assert_eq!((count.caller, count.background), (2500.0, Some(10.0)));
        let count = per_call("calls 4\nbackground 0\n", (2, None)).unwrap();
        assert_eq!((count.caller, count.background), (0.5, None));
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let refused = |said, parts| per_call(said, parts).is_err();
        assert!(refused("", (1, None)));
        assert!(refused("calls 0\nbackground 0\n", (1, None)));
        // Nothing was counted: the functions have other names now.
        assert!(refused("calls 1\nbackground 0\n", (0, None)));
        assert!(refused("calls 1\nbackground 1\n", (1, None)));
        assert!(refused("calls 1\nbackground 0\n", (1, Some(1))));
    }
}

//! pjdfstest: POSIX calls, case by case, compared with tmpfs.
//!
//! **Problem.** A bare count hides which case is missing, and some cases cannot pass on the kernel
//! at hand. **Structure.** The same run on tmpfs and on dure, compared by name. **Invariants.** A
//! case that passes on tmpfs passes on dure or stands in docs/testing/conformance.md. **Crash.**
//! None.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use super::mount::{Tmpfs, Volume};
use super::report::Report;
use super::tools::Needs;
use super::{Cx, known};

pub(crate) const NEEDS: Needs = Needs {
    mount: true,
    crates: &[CRATE],
    programs: &[],
};

pub(crate) const CRATE: (&str, &str) = ("pjdfstest", "0.2.2");

const LIMIT: Duration = Duration::from_secs(600);

/// The users exist everywhere, so that none has to be made.
pub(crate) const CONFIG: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.02
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// The result of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Ok,
    Skipped(String),
    Failed(String),
}

type Verdicts = BTreeMap<String, Verdict>;

pub(crate) fn run(cx: &Cx, report: &mut Report) -> Result<()> {
    let known = known::differences()?;
    let (reference, second) = (Tmpfs::new()?, Tmpfs::new()?);
    let mut volume = Volume::mounted(cx, "pjdfstest")?;
    let run = |place: &Path| command(cx, &volume, (place, second.path()));
    let (on_tmpfs, on_dure) = (run(reference.path())?, run(&volume.root())?);
    let on_tmpfs = verdicts_of(&volume, on_tmpfs, reference.path())?;
    let on_dure = verdicts_of(&volume, on_dure, &volume.root())?;
    compare(&on_tmpfs, "dure", &on_dure, &known, report);
    report.case("check", volume.close());
    Ok(())
}

/// The same under `dure run`.
pub(crate) fn run_under_run(cx: &Cx, volume: &Volume, report: &mut Report) -> Result<()> {
    let known = known::differences()?;
    let (reference, second) = (Tmpfs::new()?, Tmpfs::new()?);
    let run = |place: &Path| command(cx, volume, (place, second.path()));
    let (on_tmpfs, on_dure) = (run(reference.path())?, run(&volume.root())?);
    let on_tmpfs = verdicts_of(volume, on_tmpfs, reference.path())?;
    let on_dure = verdicts_of(volume, volume.under_run(&on_dure), &volume.root())?;
    compare(&on_tmpfs, "dure run", &on_dure, &known, report);
    Ok(())
}

/// The program on `place`; `second` is another file system.
fn command(cx: &Cx, volume: &Volume, (place, second): (&Path, &Path)) -> Result<Command> {
    let config = volume.scratch().join("pjdfstest.toml");
    std::fs::write(&config, CONFIG)?;
    let mut command = Command::new(cx.tools.program("pjdfstest"));
    command.arg("-c").arg(config).arg("-p").arg(place);
    command.arg("-s").arg(second).env("RUST_BACKTRACE", "0");
    Ok(command)
}

/// What it printed elsewhere, on tmpfs and on `volume`.
pub(crate) fn judge(
    on_tmpfs: &str,
    volume: &str,
    on_volume: &str,
    report: &mut Report,
) -> Result<()> {
    let known = known::differences()?;
    let (on_tmpfs, on_volume) = (complete(on_tmpfs)?, complete(on_volume)?);
    compare(&on_tmpfs, volume, &on_volume, &known, report);
    Ok(())
}

/// One run. Its exit status says no more than its lines do.
fn verdicts_of(volume: &Volume, command: Command, place: &Path) -> Result<Verdicts> {
    let done = volume.steps.finish(command, LIMIT)?;
    complete(&done.out).with_context(|| format!("pjdfstest on {}{}", place.display(), done.tail()))
}

/// The verdicts of a run that came to its end.
fn complete(out: &str) -> Result<Verdicts> {
    let verdicts = parse(out);
    let total = summary_total(out).context("no summary")?;
    ensure!(
        verdicts.len() == total && total > 300,
        "{} verdicts, but the summary says {total} cases",
        verdicts.len()
    );
    Ok(verdicts)
}

/// `Summary: 0 failed, 14 skipped, 384 passed, 0 expected failures, 398 total`.
fn summary_total(out: &str) -> Option<usize> {
    let line = out
        .lines()
        .rev()
        .find(|line| line.starts_with("Summary: "))?;
    line.strip_suffix(" total")?
        .rsplit(' ')
        .next()?
        .parse()
        .ok()
}

fn parse(out: &str) -> Verdicts {
    let mut verdicts = Verdicts::new();
    let mut last = None;
    for line in out.lines() {
        if let Some(detail) = line.strip_prefix('\t') {
            let verdict = last
                .as_ref()
                .and_then(|name: &String| verdicts.get_mut(name));
            if let Some(Verdict::Skipped(why) | Verdict::Failed(why)) = verdict {
                why.push_str(if why.is_empty() { "" } else { "; " });
                why.push_str(detail);
            }
            continue;
        }
        let mut words = line.split_whitespace();
        let (Some(name), Some(word), None) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let verdict = match word {
            "ok" => Verdict::Ok,
            "skipped" => Verdict::Skipped(String::new()),
            "FAILED" => Verdict::Failed(String::new()),
            _ => continue,
        };
        verdicts.insert(name.to_owned(), verdict);
        last = Some(name.to_owned());
    }
    verdicts
}

fn compare(
    on_tmpfs: &Verdicts,
    volume: &str,
    on_dure: &Verdicts,
    known: &BTreeMap<String, String>,
    report: &mut Report,
) {
    let ok = |verdicts: &Verdicts| verdicts.values().filter(|v| **v == Verdict::Ok).count();
    report.note(format!(
        "{} of {} cases pass on {volume}, {} on tmpfs",
        ok(on_dure),
        on_dure.len(),
        ok(on_tmpfs)
    ));
    for (case, verdict) in on_tmpfs {
        if *verdict != Verdict::Ok {
            continue;
        }
        let why = match on_dure.get(case) {
            Some(Verdict::Ok) => {
                report.passed(1);
                if known.contains_key(case) {
                    report.note(format!(
                        "{case} passes; take it out of the known differences"
                    ));
                }
                continue;
            }
            Some(Verdict::Failed(why)) => format!("fails: {why}"),
            Some(Verdict::Skipped(why)) => format!("is skipped: {why}"),
            None => "does not run".to_owned(),
        };
        match known.get(case) {
            Some(reason) => report.note(format!("known difference: {case} {why} ({reason})")),
            None => {
                report.case(case, Err(anyhow!("passes on tmpfs; on {volume} it {why}")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUT: &str = "\nchmod::a      ok\nlink::b     skipped\n\tneeds x\n\tand y\n\
                       open::c    FAILED\n\tEIO\n\nSummary: 1 failed, 1 skipped, 1 passed, \
                       0 expected failures, 3 total\n";

    #[test]
    fn lines_become_verdicts() {
        let verdicts = parse(OUT);
        assert_eq!(verdicts["chmod::a"], Verdict::Ok);
        assert_eq!(
            verdicts["link::b"],
            Verdict::Skipped("needs x; and y".to_owned())
        );
        assert_eq!(verdicts["open::c"], Verdict::Failed("EIO".to_owned()));
        assert_eq!(summary_total(OUT), Some(3));
        assert_eq!(verdicts.len(), 3);
    }

    #[test]
    fn what_passes_on_tmpfs_alone_fails_unless_it_is_known() {
        let tmpfs = parse("a ok\nb ok\nc ok\nd skipped\ne ok\n");
        let dure = parse("a ok\nb FAILED\nc skipped\nd FAILED\n");
        let known = BTreeMap::from([("c".to_owned(), "fuser".to_owned())]);
        let mut report = Report::new("s".to_owned());
        compare(&tmpfs, "dure", &dure, &known, &mut report);
        assert_eq!(report.failed_cases(), ["b", "e"]);
    }
}

//! A table of calls by root, owner, group and others, against ext4.
//!
//! **Problem.** Which user may make which call, and which set-id bits a call clears, are a thousand
//! rules that no person has in mind; a file system with a wrong one has a security hole.
//! **Structure.** `permissions.py` makes the same calls on a volume and on an ext4 in a loop
//! device, as five users, and prints the answer and what each call left behind; the two are
//! compared line by line. **Invariants.** Differences are listed in docs/testing/conformance.md
//! with their reasons. The table is useful only if ext4 refuses much and root may do what others
//! may not; both are checked. **Crash.** Nothing is kept.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::mount::{Volume, detach};
use super::python::{PYTHON, Programs, word};
use super::report::Report;
use super::step::Steps;
use super::tools::{self, Needs};
use super::{Cx, known};

pub(crate) const NEEDS: Needs = Needs {
    mount: true,
    crates: &[],
    programs: &[(PYTHON, "python3"), ("mkfs.ext4", "e2fsprogs")],
};

const LIMIT: Duration = Duration::from_secs(900);
const DOCUMENT: &str = "docs/testing/conformance.md";
const HEADING: &str = "## Differences from ext4";
/// With `--quick`: every so many cases of some 15,000. Not a divisor of the cases of one user, so
/// that different users get different cases.
const EVERY_QUICK: &str = "13";
/// Minimum of a useful table: cases, and how many of them ext4 refuses.
const CASES_MIN: usize = 1100;
const REFUSED_MIN: usize = 150;
/// How many differences are shown in full.
const SHOWN: usize = 20;

type Table = BTreeMap<String, String>;

pub(crate) fn run(cx: &Cx, report: &mut Report) -> Result<()> {
    let kinds = fs::read_to_string("/proc/filesystems")?;
    if !kinds.split_whitespace().any(|kind| kind == "ext4") {
        report.skip("this kernel has no ext4 to compare with".to_owned());
        return Ok(());
    }
    let mut volume = Volume::mounted(cx, "permissions")?;
    let programs = Programs::new(volume.scratch())?;
    let every = if cx.quick { EVERY_QUICK } else { "1" };
    let ext4 = Ext4::new(volume.scratch(), &volume.steps)?;
    let wanted = table(&volume.steps, &programs, ext4.path(), every)?;
    drop(ext4);
    let got = table(&volume.steps, &programs, &volume.root(), every)?;
    report.case("the table refuses and allows", worth(&wanted));
    compare(report, &wanted, &got)?;
    report.case("check", volume.close());
    Ok(())
}

/// Makes all calls on a file system.
fn table(steps: &Steps, programs: &Programs, root: &Path, every: &str) -> Result<Table> {
    let folder = root.join("table");
    fs::create_dir(&folder)?;
    let command = programs.command("permissions.py", &[word(&folder), every]);
    parse(&steps.run(command, LIMIT)?)
}

/// `CASE: WHAT` a line.
fn parse(out: &str) -> Result<Table> {
    let mut table = Table::new();
    for line in out.lines() {
        let (case, what) = line.split_once(": ").context("a line without a case")?;
        let before = table.insert(case.to_owned(), what.to_owned());
        ensure!(before.is_none(), "{case} stands twice");
    }
    Ok(table)
}

/// A table in which everything succeeds, or root has no more rights than others, would test
/// nothing.
fn worth(table: &Table) -> Result<()> {
    let refused = |what: &str| what.starts_with("EACCES") || what.starts_with("EPERM");
    let count = table.values().filter(|what| refused(what)).count();
    ensure!(table.len() >= CASES_MIN, "only {} cases", table.len());
    ensure!(
        count >= REFUSED_MIN,
        "only {count} of {} are refused",
        table.len()
    );
    let root = |(case, what): &(&String, &String)| case.ends_with("by root") && refused(what);
    let of_root = table.iter().filter(root).count();
    ensure!(
        of_root * 20 < count,
        "root is refused {of_root} of {count} times"
    );
    Ok(())
}

/// Every case passes, is a known difference, or fails.
fn compare(report: &mut Report, wanted: &Table, got: &Table) -> Result<()> {
    let known = known::differences_in(DOCUMENT, HEADING)?;
    let expected = |case: &str| known.keys().any(|start| case.starts_with(start.as_str()));
    let differing = differences(wanted, got);
    let (accepted, failed): (Vec<_>, Vec<_>) =
        differing.into_iter().partition(|(case, _)| expected(case));
    report.passed(wanted.len() - accepted.len() - failed.len());
    report.note(format!(
        "{} calls, {} differ as {DOCUMENT} says",
        wanted.len(),
        accepted.len()
    ));
    for (case, why) in failed.iter().take(SHOWN) {
        report.case(case, Err(anyhow::anyhow!("{why}")));
    }
    if failed.len() > SHOWN {
        let mut kinds = BTreeMap::new();
        for (case, _) in &failed {
            *kinds.entry(kind(case)).or_insert(0) += 1;
        }
        let kinds: Vec<_> = kinds
            .iter()
            .map(|(kind, n)| format!("{n} {kind}"))
            .collect();
        let why = anyhow::anyhow!("{} calls differ: {}", failed.len(), kinds.join("; "));
        report.case("all", Err(why));
    }
    Ok(())
}

/// The call of a case and what it is made on, without the mode and the user.
fn kind(case: &str) -> &str {
    let (before, _) = case.rsplit_once(" by ").unwrap_or((case, ""));
    before.rsplit_once(' ').map_or(before, |(kind, _)| kind)
}

/// The cases that are not the same, with both answers.
fn differences(wanted: &Table, got: &Table) -> Vec<(String, String)> {
    let none = String::from("nothing");
    let cases = wanted
        .keys()
        .chain(got.keys().filter(|case| !wanted.contains_key(*case)));
    cases
        .filter_map(|case| {
            let (want, have) = (wanted.get(case), got.get(case));
            let (want, have) = (want.unwrap_or(&none), have.unwrap_or(&none));
            (want != have).then(|| {
                let why = format!("\n      ext4 {want}\n      dure {have}");
                (case.clone(), why)
            })
        })
        .collect()
}

/// An ext4 on a loop device, unmounted when dropped.
#[derive(Debug)]
struct Ext4(PathBuf);

impl Ext4 {
    fn new(scratch: &Path, steps: &Steps) -> Result<Ext4> {
        let (image, point) = (scratch.join("ext4.img"), scratch.join("ext4"));
        fs::File::create(&image)?.set_len(1 << 30)?;
        fs::create_dir(&point)?;
        let mut mkfs = tools::command("mkfs.ext4");
        mkfs.args(["-q", "-b", "4096"]).arg(&image);
        steps.run(mkfs, LIMIT)?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "ext4", "-o", "loop,acl,user_xattr"]);
        steps.run(
            {
                mount.arg(&image).arg(&point);
                mount
            },
            LIMIT,
        )?;
        Ok(Ext4(point))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        if let Err(error) = detach(&self.0) {
            eprintln!("  {error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_a_state_and_a_case_too_many_are_seen() {
        let ext4 = parse("a by root: ok | x\nb by other: EACCES | y\n").unwrap();
        assert!(differences(&ext4, &ext4).is_empty());
        let dure = parse("a by root: ok | z\nb by other: ok | y\nc by other: ok | y\n").unwrap();
        let cases: Vec<_> = differences(&ext4, &dure)
            .into_iter()
            .map(|(case, _)| case)
            .collect();
        assert_eq!(cases, ["a by root", "b by other", "c by other"]);
        assert!(parse("a: ok\na: ok\n").is_err());
        assert!(worth(&ext4).is_err());
    }
}

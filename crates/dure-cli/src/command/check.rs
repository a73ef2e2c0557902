//! `dure check`, with the exit codes of fsck(8).

use anyhow::{Context, Result};
use dure_bench::{note, say};
use dure_block::count::Count;
use dure_block::nvm::Nvm;
use dure_check::{CheckOptions, Data, Issue, IssueKind, Progress, Repair, Report, Severity, check};
use dure_fs::{FileSystem, MountOptions, Recover, VolumeInfo, VolumeState};
use dure_sync::Arc;

use super::damaged::{self, Damaged};
use super::undo::{Ended, Saving};
use crate::advice;
use crate::args::Check;
use crate::exit;
use crate::progress;
use crate::volume::{self, Access};

pub(crate) fn run(args: &Check) -> Result<u8> {
    let access = if args.repair {
        Access::Write
    } else {
        Access::Read
    };
    let mut device = volume::device_as(&args.volume, access, &args.regions, Nvm::Auto)?;
    let mut saving = None;
    if let Some(path) = &args.undo {
        let begun = Saving::begin(device, &args.volume, path)?;
        device = begun.device();
        saving = Some(begun);
    }
    let at = || args.volume.display().to_string();
    if args.repair
        && VolumeInfo::read(device.clone()).is_ok_and(|info| info.state == VolumeState::Dirty)
    {
        // A crashed volume is recovered first: its logs hold what the structures lack.
        let recovered = FileSystem::open(device.clone(), MountOptions::default());
        if let Err(error) = recovered.and_then(|volume| volume.close()) {
            note!("dure: {}: cannot be mounted: {error}", at());
        }
    }
    let bar = progress::bar(1, "checking");
    let step = |now: &Progress| {
        bar.set_message(now.pass);
        bar.set_length(now.total);
        bar.set_position(now.done);
    };
    let options = CheckOptions {
        repair: match (args.repair, args.safe) {
            (false, _) => Repair::No,
            (true, true) => Repair::Safe,
            (true, false) => Repair::Full,
        },
        data: if args.data { Data::Verify } else { Data::Skip },
        progress: Some(&step),
        threads: None,
        recover: if args.tolerates_holes() {
            Recover::Tolerate
        } else {
            Recover::Whole
        },
    };
    let report = check(Arc::clone(&device), &options);
    bar.finish_and_clear();
    let report = report.with_context(at);
    if let (Some(saving), Err(_)) = (&saving, &report) {
        saving.finish(&args.volume, Ended::Failed)?;
    }
    let report = report?;
    let damaged = damaged::files(device, &report);
    if args.json {
        print_json(args, &report, &damaged);
    } else {
        print_text(args, &report, &damaged);
    }
    if let Some(step) = next_step(args, &report) {
        note!("dure: {}: {step}", at());
    }
    if let Some(saving) = &saving {
        saving.finish(&args.volume, Ended::Whole)?;
    }
    Ok(code(&report))
}

/// A warning that is left is no error; one that was repaired has changed the volume.
fn code(report: &Report) -> u8 {
    let is_left = |issue: &Issue| !issue.repaired && issue.kind.severity() > Severity::Warning;
    if report.issues().iter().any(is_left) {
        return exit::CHECK_ERRORS_LEFT;
    }
    match report.issues().iter().any(|issue| issue.repaired) {
        true => exit::CHECK_REPAIRED,
        false => exit::OK,
    }
}

/// What to do about what is left.
fn next_step(args: &Check, report: &Report) -> Option<String> {
    let volume = args.volume.display();
    let left = || report.issues().iter().filter(|issue| !issue.repaired);
    // No repair brings content back.
    let of_content = |issue: &&Issue| matches!(issue.kind, IssueKind::DataChecksum { .. });
    let is = |severity| {
        let mut structures = left().filter(|issue| !of_content(issue));
        structures.any(|issue| issue.kind.severity() == severity)
    };
    if left().any(|issue| matches!(issue.kind, IssueKind::DeviceTooSmall { .. })) {
        return Some(advice::incomplete(&args.volume));
    }
    if args.repair && (is(Severity::Error) || is(Severity::Fatal)) {
        let more = if args.safe {
            "`dure check --repair` without --safe corrects more, or "
        } else {
            ""
        };
        return Some(format!(
            "errors are left: {more}`dure rescue {volume} DIRECTORY` saves what can be read"
        ));
    }
    let costs = if is(Severity::Error) || is(Severity::Fatal) {
        "errors are left"
    } else {
        "nothing is lost"
    };
    // What a crash leaves is recovered by a mount.
    let of_crash = |issue: &&Issue| matches!(issue.kind, IssueKind::NotClean { .. });
    let mut structures = left().filter(|issue| !of_crash(issue) && !of_content(issue));
    let structures = structures.next().map(|_| {
        format!("{costs}: `dure check --repair {volume}` corrects what it can; --undo FILE keeps what it changes")
    });
    let content = left().find(of_content).map(|_| {
        "the content of the damaged pages is lost: write each file anew, or restore it from a backup or an \
         older snapshot"
            .to_owned()
    });
    let steps: Vec<String> = structures.into_iter().chain(content).collect();
    (!steps.is_empty()).then(|| steps.join("; "))
}

fn print_text(args: &Check, report: &Report, damaged: &[Damaged]) {
    for issue in report.issues() {
        say!("{issue}");
    }
    for file in damaged {
        say!("damaged: {file}");
    }
    for lost in report.lost() {
        say!("lost: {lost}");
    }
    for loss in report.losses() {
        say!("lost: {loss}");
    }
    let counts = report.counts();
    let verdict = match report.issues().len() {
        0 => "clean".to_owned(),
        issues => Count::of(issues, "issue").to_string(),
    };
    say!(
        "{}: {verdict}; {}, {}, {}, {}, {} of {} used",
        args.volume.display(),
        Count::of(counts.files, "file"),
        Count::of(counts.directories, "directory"),
        Count::of(counts.symlinks, "symlink"),
        Count::of(counts.others, "other"),
        counts.blocks_used,
        Count::of(counts.blocks_total, "block"),
    );
}

fn print_json(args: &Check, report: &Report, damaged: &[Damaged]) {
    let counts = report.counts();
    let issues: Vec<_> = report
        .issues()
        .iter()
        .map(|issue| {
            serde_json::json!({
                "severity": issue.kind.severity().to_string(),
                "issue": issue.kind.to_string(),
                "repaired": issue.repaired,
            })
        })
        .collect();
    let lost = report.lost().iter().cloned();
    let lost: Vec<String> = lost
        .chain(report.losses().iter().map(ToString::to_string))
        .collect();
    let object = serde_json::json!({
        "volume": args.volume,
        "clean": report.issues().is_empty(),
        "issues": issues,
        "lost": lost,
        "damaged": damaged,
        "files": counts.files,
        "directories": counts.directories,
        "symlinks": counts.symlinks,
        "others": counts.others,
        "nodes": counts.nodes,
        "blocks_used": counts.blocks_used,
        "blocks": counts.blocks_total,
    });
    say!("{object:#}");
}

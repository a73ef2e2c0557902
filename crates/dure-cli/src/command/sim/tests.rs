//! Runs in parts, and what they say.

use clap::Parser;
use dure_fs::NodeLog;
use dure_sim::crash::On;

use super::*;

use crate::args::{Args, Command};
use crate::exit;

fn parsed(arguments: &[&str]) -> SimCrash {
    let fixed = ["dure", "sim", "crash", "--seq", "2", "--cores", "1"];
    let args = Args::try_parse_from(fixed.iter().chain(arguments)).unwrap();
    match args.command {
        Command::Sim(Sim::Crash(args)) => args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_run_in_two_parts_finds_what_one_finds() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("resume");
    let file = file.to_str().unwrap();
    let part = |count: &str| {
        let args = parsed(&["--count", count, "--threads", "1", "--resume", file]);
        enumerate(&args).unwrap()
    };
    let first = part("1");
    // Groups are done whole, so both end where the second one does.
    let count = &(first.workloads + 1).to_string();
    let (second, mut whole) = dure_sync::thread::scope(|scope| {
        let whole = || enumerate(&parsed(&["--count", count, "--threads", "1"])).unwrap();
        let whole = scope.spawn(whole);
        (part(count), whole.join().unwrap())
    });
    assert!(second.workloads > first.workloads && second.groups_done > first.groups_done);
    // One run does not recover an equal state twice; a second run starts without that
    // knowledge.
    whole.milliseconds = second.milliseconds;
    whole.states_different = second.states_different;
    whole.states_recovered = second.states_recovered;
    assert_eq!(whole, second);
    assert_eq!(second.violations, []);
    let other = parsed(&["--seed", "2", "--resume", file]);
    let refused = enumerate(&other).unwrap_err().to_string();
    assert!(refused.contains("--seed 1"), "{refused}");
}

#[test]
fn policies_reach_the_volumes_and_the_report() {
    let workload =
        "setup 1; create /new; write /new 0+6000 of 200; fsync /new; unlink /foo; writeback";
    let states = |mount: &str| {
        let args = parsed(&["--mount", mount]);
        let report = replay(&args, workload).unwrap();
        assert_eq!((report.violations.len(), &*report.mount), (0, mount));
        report.states
    };
    // Data in its block before the log, with a flush between, takes more steps than data in the
    // log.
    let delta = states("journal=single,fsync=all");
    assert_ne!(states("journal=zjournal,flush=two,log-data=0"), delta);
    // Without flushes, and with writes that are torn between words.
    assert_ne!(states("nvm=emulated"), delta);
    // Each call of it durable when it returns.
    assert_ne!(states("nvm=emulated,page_cache=none"), delta);
    let json = serde_json::to_string(&Report::new(&parsed(&["--mount", "alloc=global"]), 1));
    assert!(json.unwrap().contains(r#""mount":"alloc=global""#));
}

#[test]
fn policies_that_cannot_be_compared_are_refused() {
    let refused = |mount| {
        options(&parsed(&["--mount", mount]))
            .unwrap_err()
            .to_string()
    };
    assert!(refused("journal=nodes").contains("jbd2 or zjournal"));
    assert!(refused("data=writeback").contains("zeroes"));
    assert!(refused("noatime").contains("no policy"));
    assert!(refused("nvm=direct").contains("emulated"));
    assert!(refused("page_cache=none").contains("nvm=emulated"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("resume");
    let plan = Report::new(&parsed(&["--mount", "journal=zjournal"]), 10);
    save(&file, &plan).unwrap();
    let other = load(&file, &Report::new(&parsed(&[]), 10)).unwrap_err();
    assert!(
        other.to_string().contains("--mount journal=zjournal"),
        "{other}"
    );
    let hybrid = parsed(&["--media", "hybrid", "--mount", "flush=two"]);
    let words = Report::new(&hybrid, 1).volume_words();
    assert_eq!(words, " --media hybrid --mount flush=two");
    let media = |media| options(&parsed(&["--media", media])).unwrap().media;
    assert_eq!(media("hybrid-regions"), On::HybridRegions);
    assert_eq!(media("hybrid"), On::Hybrid(NodeLog::Nvm));
}

#[test]
fn a_violation_ends_with_1_and_says_how_to_replay_it() {
    let args = parsed(&[]);
    let mut report = Report::new(&args, 10);
    assert_eq!(report.code(), exit::OK);
    let failures = vec!["workload: setup 1; sync\nstep 0 (sync): broken".to_owned()];
    report.add(
        Tally {
            failures,
            ..Tally::default()
        },
        1,
    );
    assert_eq!(report.code(), exit::FAILED);
    assert_eq!(report.violations[0].workload, "setup 1; sync");
}

#[test]
fn chipmunk_is_a_list_of_workloads() {
    let parsed = |more: &[&str]| {
        let fixed = [
            "dure",
            "sim",
            "crash",
            "--suite",
            "chipmunk",
            "--threads",
            "1",
        ];
        match Args::try_parse_from(fixed.iter().chain(more))
            .unwrap()
            .command
        {
            Command::Sim(Sim::Crash(args)) => args,
            other => panic!("{other:?}"),
        }
    };
    let report = enumerate(&parsed(&[])).unwrap();
    assert!(report.is_complete() && report.workloads > 100);
    assert_eq!((report.code(), report.violations.len()), (exit::OK, 0));
    let refused = enumerate(&parsed(&["--seed", "2"])).unwrap_err();
    assert!(refused.to_string().contains("for ace"), "{refused}");
}

#[test]
fn a_replay_runs_the_workload_alone() {
    let text = "setup 1; create /new; fsync /new; unlink /foo; writeback";
    let report = replay(&parsed(&[]), text).unwrap();
    assert_eq!((report.workloads, report.violations.len()), (1, 0));
    assert!(report.states > 10);
    assert!(replay(&parsed(&[]), "create /new").is_err());
}

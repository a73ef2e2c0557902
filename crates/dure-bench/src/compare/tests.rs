//! The smallest figure of each paper, measured for a moment.

use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    compare: Compare,
}

fn args(line: &str) -> Compare {
    let words = ["compare"].into_iter().chain(line.split(' '));
    Line::try_parse_from(words).unwrap().compare
}

/// dure-sim has the true ones.
fn words(figure: &str) -> Option<Shown> {
    Some(Shown {
        title: "a title",
        shows: "a < b",
        many_cores: Some(format!("see {figure}")),
        state: "shown elsewhere".to_owned(),
    })
}

/// Measures a figure with one thread, if it is measured by time, and looks whether each system is there.
fn measured_briefly(line: &str) -> Vec<Outcome> {
    let args = args(line);
    let paper = args.paper.paper();
    let rows = chosen(paper, &args.figures).unwrap();
    check(&args, &rows).unwrap();
    let outcomes = measured(&args, &rows, words).unwrap();
    let machine = machine::Machine::new(machine::load());
    for outcome in &outcomes {
        for part in outcome.row.parts() {
            let name = part.load.name();
            for system in part.systems {
                let is_its =
                    |one: &&Value| one.system == system.name && one.workload.starts_with(&name);
                let mut own = outcome.values.iter().filter(is_its);
                let what = format!("{:?} {name} {}", outcome.row.figures, system.name);
                let first = own.next().unwrap_or_else(|| panic!("{what} is missing"));
                assert_eq!(first.values.len(), 3, "{what}");
            }
        }
        let rates = outcome.values.iter().filter(|one| one.unit == "1/s");
        assert!(
            rates.clone().all(|one| one.min() > 0.0),
            "{:?}",
            outcome.values
        );
        assert!(report::svg(outcome).unwrap().starts_with("<svg"));
    }
    let json = report::json(paper, &machine, &outcomes).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["figures"][0]["points"][0]["n"], 3);
    assert_eq!(json["figures"][0]["points"][0]["by_baseline"], 1.0);
    let text = report::text(paper, &machine, &outcomes);
    assert!(
        text.contains("a < b") && text.contains("system      dure: "),
        "{text}"
    );
    let html = report::html(paper, &machine, &outcomes).unwrap();
    assert!(
        html.contains("<svg") && html.contains("document: a &lt; b"),
        "{html}"
    );
    outcomes
}

#[test]
fn journals_are_compared() {
    let line = "--paper zjournal --figure 002-5 --threads 1 --seconds 0.01 --repeat 3 --warm-up 1";
    let outcomes = measured_briefly(line);
    assert_eq!(outcomes[0].row.figures, ["000-2b", "002-5"]);
    assert_eq!(outcomes[0].values.len(), 3);
}

#[test]
fn node_logs_are_compared() {
    measured_briefly("--paper hybridf2fs --figure 000-7a --threads 1 --seconds 0.01 --repeat 3");
}

#[test]
fn locks_in_persistent_memory_are_compared() {
    let line =
        "--paper pnova --figure 000-13c --figure 004-2a --threads 2 --seconds 0.01 --repeat 3";
    assert_eq!(measured_briefly(line).len(), 2);
}

/// Two figures of one replay.
#[test]
fn page_caches_are_compared() {
    let line = "--paper nvram-lfs --figure 003-5a --figure 003-6b --transactions 20 --repeat 3";
    let outcomes = measured_briefly(line);
    let total = outcomes[1]
        .values
        .iter()
        .find(|one| one.unit == "s")
        .unwrap();
    assert!(total.min() > 0.0, "{total:?}");
}

#[test]
fn queues_and_tags_are_compared() {
    let line = "--paper blk-mq --figure 001-4 --figure 001-3 --threads 2 --seconds 0.05 --repeat 3";
    let outcomes = measured_briefly(line);
    let waits = &outcomes[1].values;
    assert!(
        waits[0].unit == "times" && waits[0].median() > waits[1].median(),
        "{waits:?}"
    );
}

#[test]
fn the_lock_above_the_queues_is_compared() {
    let line = "--paper blk-mq --figure 000-t4 --threads 4 --seconds 0.1 --repeat 3 --warm-up 0";
    let outcomes = measured_briefly(line);
    let is_lock = |one: &&Value| one.unit == "%";
    let locks: Vec<_> = outcomes[0].values.iter().filter(is_lock).collect();
    assert!(
        locks[0].median() > 0.0 && locks[2].max() == 0.0,
        "{locks:?}"
    );
}

#[test]
fn interfaces_are_compared() {
    let place = tempfile::tempdir().unwrap();
    let shown = place.path().display();
    let line =
        format!("--paper interfaces --directory {shown} --threads 1 --seconds 0.01 --repeat 3");
    measured_briefly(&line);
    assert!(std::fs::read_dir(place.path()).unwrap().next().is_none());
}

#[test]
fn the_table_is_whole() {
    for paper in &PAPERS {
        assert_eq!(paper.name.paper().spelled, paper.spelled);
        let value = clap::ValueEnum::to_possible_value(&paper.name).unwrap();
        assert_eq!(value.get_name(), paper.spelled);
        for part in paper.rows.iter().flat_map(Row::parts) {
            let names: Vec<_> = part.systems.iter().map(|system| system.name).collect();
            let mut once = names.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), names.len(), "{names:?}");
        }
    }
}

#[test]
fn a_figure_that_a_paper_does_not_have_is_refused_with_all_it_has() {
    let names = ["000-7a".to_owned()];
    let why = chosen(PaperName::Zjournal.paper(), &names)
        .unwrap_err()
        .to_string();
    let says = "--figure 000-7a: zjournal has no such figure; it has 000-1, 000-2a, 002-4";
    assert!(why.starts_with(says), "{why}");
}

#[test]
fn options_that_nothing_would_use_are_refused() {
    for (line, says) in [
        ("--paper nvram-lfs --threads 2", "--threads: "),
        ("--paper nvram-lfs --seconds 1", "--seconds: "),
        ("--paper nvram-lfs --directory .", "--directory: "),
        ("--paper zjournal --figure 000-1 --warm-up 1", "--warm-up: "),
        ("--paper zjournal --transactions 10", "--transactions: "),
        ("--paper pnova --device null", "--device: "),
        ("--paper blk-mq --directory .", "--directory: "),
    ] {
        let args = args(line);
        let rows = chosen(args.paper.paper(), &args.figures).unwrap();
        let why = check(&args, &rows).unwrap_err().to_string();
        let says = format!("{says}none of these figures uses it; it is for ");
        assert!(why.starts_with(&says), "{line}: {why}");
    }
    let both = [
        "compare",
        "--paper",
        "interfaces",
        "--device",
        "x",
        "--directory",
        ".",
    ];
    assert!(Line::try_parse_from(both).is_err());
    assert!(Line::try_parse_from(["compare", "--paper", "zjournal", "--repeat", "2"]).is_err());
    let unknown = Line::try_parse_from(["compare", "--paper", "ext4"])
        .unwrap_err()
        .to_string();
    assert!(
        unknown.contains("zjournal, hybridf2fs, pnova, nvram-lfs, blk-mq, interfaces"),
        "{unknown}"
    );
}

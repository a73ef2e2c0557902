//! `dure bench compare` from outside: what it prints and writes, and what it refuses.

use std::fs;

use serde_json::Value;

use crate::program::{errors, program, text};

const BRIEFLY: [&str; 8] = [
    "--threads",
    "1",
    "--seconds",
    "0.01",
    "--repeat",
    "3",
    "--warm-up",
    "1",
];

fn compare(arguments: &[&str]) -> Vec<String> {
    let all = [&["bench", "compare"], arguments, &BRIEFLY];
    all.concat().iter().map(ToString::to_string).collect()
}

#[test]
fn a_paper_is_told_to_programs_to_people_and_as_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let (page, drawings) = (folder.path().join("page.html"), folder.path().join("svg"));
    let line = [
        "--paper",
        "zjournal",
        "--figure",
        "000-1",
        "--figure",
        "002-5",
        "--json",
        "--html",
        text(&page),
        "--svg-dir",
        text(&drawings),
    ];
    let output = program().args(compare(&line)).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&told["bench"], &told["paper"]),
        (&"compare".into(), &"zjournal".into())
    );
    assert!(told["machine"]["cores"].as_u64().unwrap() > 0);
    let figures = told["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 2);
    assert_eq!(figures[0]["state"], "shown by dure sim explain zjournal");
    assert_eq!(figures[0]["points"].as_array().unwrap().len(), 0);
    assert_eq!(
        figures[1]["many_cores"],
        "dure sim experiments --figure 000-2b"
    );
    let points = figures[1]["points"].as_array().unwrap();
    let systems: Vec<_> = points
        .iter()
        .map(|point| point["system"].as_str().unwrap())
        .collect();
    assert_eq!(systems, ["JBD2", "Z-Journal", "dure"]);
    for point in points {
        assert!(
            point["n"] == 3 && point["min"].as_f64().unwrap() > 0.0,
            "{point}"
        );
    }
    let page = fs::read_to_string(page).unwrap();
    for part in [
        "<svg",
        "Z-Journal: preset=zjournal",
        "dure sim explain zjournal",
        "load average",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let drawn: Vec<_> = fs::read_dir(drawings)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(drawn, ["000-2b.svg"]);
}

#[test]
fn an_unknown_paper_or_figure_is_refused_with_those_there_are() {
    let output = program()
        .args(compare(&["--paper", "ext4"]))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let says = errors(&output);
    assert!(
        says.contains("zjournal, hybridf2fs, pnova, nvram-lfs, blk-mq, interfaces"),
        "{says}"
    );
    let line = compare(&["--paper", "pnova", "--figure", "000-2a"]);
    let output = program().args(line).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let says = errors(&output);
    assert!(
        says.contains("--figure 000-2a: pnova has no such figure; it has 000-9, "),
        "{says}"
    );
}

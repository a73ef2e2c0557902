//! kill -9 under transactions: each that was acknowledged is there, and none in part.

use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::path::Path;

use crate::program::{make, opening, said, start};

/// Transactions `first..`, each followed by a line with its number.
fn workload(first: u64, count: u64) -> String {
    let mut script = String::new();
    for n in first..first + count {
        let old = n * 7919 % n;
        writeln!(
            script,
            "BEGIN IMMEDIATE; INSERT INTO entries VALUES({n}, hex(randomblob(100)), NULL);\
             UPDATE entries SET payload = hex(randomblob(60)), grown = zeroblob(3 * {old} % 9000) \
             WHERE n = {old};\
             UPDATE total SET count = count + 1, last = {n}; COMMIT; SELECT {n};"
        )
        .unwrap();
    }
    script
}

const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS entries(n INTEGER PRIMARY KEY, payload, grown);
    CREATE INDEX IF NOT EXISTS by_payload ON entries(payload);
    CREATE TABLE IF NOT EXISTS total(count, last);
    INSERT INTO total SELECT 0, 0 WHERE NOT EXISTS(SELECT 1 FROM total);\n";

/// Kills the shell after it has said `lines` numbers; the last of them.
fn cut_off(image: &Path, pragmas: &str, first: u64, lines: u64) -> Option<u64> {
    let script = format!(
        "{}{pragmas}\n{SCHEMA}{}",
        opening(image, "db"),
        workload(first, 20_000)
    );
    let mut shell = start(&script)?;
    let out = BufReader::new(shell.stdout.take().unwrap());
    let mut last = first - 1;
    let numbers = out.lines().map_while(Result::ok);
    for number in numbers.filter_map(|line| line.parse::<u64>().ok()) {
        last = number;
        if number + 1 == first + lines {
            shell.kill().unwrap();
        }
    }
    shell.wait().unwrap();
    assert!(last >= first, "it has committed nothing");
    Some(last)
}

/// The number of the last transaction that is there.
fn there(image: &Path) -> u64 {
    let script = format!(
        "{}PRAGMA integrity_check; SELECT count(*), max(n), (SELECT count FROM total),
         (SELECT last FROM total) FROM entries;\n",
        opening(image, "db")
    );
    let said = said(&script).unwrap();
    let (whole, numbers) = said.trim_end().split_once('\n').unwrap();
    assert_eq!(whole, "ok");
    let numbers: Vec<u64> = numbers.split('|').map(|n| n.parse().unwrap_or(0)).collect();
    assert!(numbers.iter().all(|n| *n == numbers[0]), "{numbers:?}");
    numbers[0]
}

#[test]
fn what_a_killed_program_has_committed_is_there() {
    let modes = [
        ("wal", "full"),
        // After a journal was deleted only EXTRA syncs the directory.
        ("delete", "extra"),
        ("truncate", "full"),
        ("persist", "full"),
    ];
    for (mode, synchronous) in modes {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("v.img");
        make(&image, 64 << 20);
        let pragmas = format!("PRAGMA journal_mode={mode}; PRAGMA synchronous={synchronous};");
        let mut first = 1;
        for lines in [1, 7, 60, 200] {
            let Some(last) = cut_off(&image, &pragmas, first, lines) else {
                return;
            };
            let there = there(&image);
            assert!(
                (last..=last + 1).contains(&there),
                "{mode}: {last} were acknowledged, {there} are there"
            );
            first = there + 1;
        }
    }
}

#[test]
fn canary_commits_that_do_not_sync_are_lost() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("v.img");
    make(&image, 64 << 20);
    let pragmas = "PRAGMA journal_mode=wal; PRAGMA synchronous=full;";
    let Some(last) = cut_off(&image, pragmas, 1, 5) else {
        return;
    };
    let first = there(&image) + 1;
    assert!(first > last);
    let pragmas = "PRAGMA journal_mode=wal; PRAGMA synchronous=off;";
    let last = cut_off(&image, pragmas, first, 20).unwrap();
    assert!(there(&image) < last, "what was not synced has survived");
}

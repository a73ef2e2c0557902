//! `cargo xtask races`: the regression tests that have a name in the documents.
//!
//! **Problem.** A document that names a missing test makes a promise that nothing checks.
//! **Structure.** The tables of docs/testing/races.md and docs/testing/crashes.md with a column
//! `test` are the list, and the contract of docs/design/durability.md names tests behind each
//! sentence, its arguments behind each paragraph; the sources are searched for all of them.
//! **Invariants.** A name that no test has is an error. **Crash.** Everything can be run again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::cargo;

/// Documents with lists of bugs.
const LISTS: &[&str] = &["docs/testing/races.md", "docs/testing/crashes.md"];

/// The document whose contract names tests.
#[cfg(test)]
const CONTRACT: &str = "docs/design/durability.md";

/// Arguments of `cargo xtask races`.
#[derive(Debug, Args)]
pub(crate) struct Races {
    /// Run the tests, too.
    #[arg(long)]
    run: bool,
}

/// One bug and its tests.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    place: String,
    what: String,
    tests: Vec<String>,
}

/// Where tests are, by name.
type Found = BTreeMap<String, Vec<PathBuf>>;

impl Races {
    pub(crate) fn run(self) -> Result<()> {
        let root = cargo::root();
        let found = tests_below(&root)?;
        let mut named = Vec::new();
        let mut missing = Vec::new();
        for list in LISTS {
            let text = std::fs::read_to_string(root.join(list)).context(*list)?;
            for entry in entries(&text) {
                for test in &entry.tests {
                    let Some(path) = found.get(test).and_then(|paths| paths.first()) else {
                        missing.push(format!("{list} names {test}, which no test is called"));
                        continue;
                    };
                    println!(
                        "{test}\n  what: {}\n  where: {}\n  test: {}\n",
                        entry.what,
                        entry.place,
                        path.display()
                    );
                    named.push((test.clone(), path.clone()));
                }
            }
        }
        println!("{} named regression tests", named.len());
        ensure!(missing.is_empty(), "{}", missing.join("\n"));
        if self.run {
            run_all(&named)?;
        }
        Ok(())
    }
}

/// The names in backticks of a text.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn is_test_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    name.contains('_') && name.chars().all(is_part)
}

/// The cells of a row; nothing if the line is none.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

/// The rows of all tables that have a column `test`.
fn entries(text: &str) -> Vec<Entry> {
    let mut header: Option<Vec<&str>> = None;
    let mut all = Vec::new();
    for line in text.lines() {
        let Some(row) = cells(line) else {
            header = None;
            continue;
        };
        let Some(header) = &header else {
            header = Some(row);
            continue;
        };
        if row.iter().all(|cell| cell.chars().all(|c| c == '-')) {
            continue;
        }
        let cell = |name: &str| {
            let column = header.iter().position(|head| *head == name);
            column
                .and_then(|column| row.get(column))
                .map(|cell| (*cell).to_owned())
        };
        let Some(test) = cell("test") else { continue };
        let names = quoted(&test).into_iter().filter(|name| is_test_name(name));
        all.push(Entry {
            place: cell("where").unwrap_or_default(),
            what: cell("what").unwrap_or_default(),
            tests: names.map(str::to_owned).collect(),
        });
    }
    all
}

/// The tests of one source: functions behind `#[test]`, and cases of a macro that makes them.
fn tests_in(source: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut is_test = false;
    let has_cases = source.contains("fn $name()");
    let word = |text: &str| -> String {
        let is_part = |c: &char| c.is_alphanumeric() || *c == '_';
        text.chars().take_while(is_part).collect()
    };
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[test]") {
            is_test = true;
        } else if let Some((_, rest)) = line.split_once("fn ") {
            if is_test {
                all.insert(word(rest));
            }
            is_test = false;
        } else if has_cases && let Some((name, _)) = line.split_once(": ") {
            let name = name.trim();
            if is_test_name(name) {
                all.insert(name.to_owned());
            }
        }
    }
    all
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let at = || folder.display().to_string();
    for entry in std::fs::read_dir(folder).with_context(at)? {
        let path = entry.with_context(at)?.path();
        if path.is_dir() {
            sources(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

fn tests_below(root: &Path) -> Result<Found> {
    let mut files = Vec::new();
    sources(&root.join("crates"), &mut files)?;
    sources(&root.join("xtask"), &mut files)?;
    let mut found = Found::new();
    files.sort();
    for file in files {
        let source = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let path = file
            .strip_prefix(root)
            .expect("found below the root")
            .to_owned();
        for test in tests_in(&source) {
            found.entry(test).or_default().push(path.clone());
        }
    }
    Ok(found)
}

/// The package of a source file and the test program it is in; none: the library's own.
fn program(path: &Path) -> Result<(String, Option<String>)> {
    let parts: Vec<_> = path
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    match &parts[..] {
        [crates, package, folder, program, ..] if crates == "crates" && folder == "tests" => {
            let program = program.trim_end_matches(".rs").to_owned();
            Ok((package.clone(), Some(program)))
        }
        [crates, package, ..] if crates == "crates" => Ok((package.clone(), None)),
        _ => anyhow::bail!("{}: not a test of a crate", path.display()),
    }
}

fn run_all(named: &[(String, PathBuf)]) -> Result<()> {
    let mut programs: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
    for (test, path) in named {
        let simulated = test.starts_with("sim_");
        let key = (program(path)?, simulated);
        programs.entry(key).or_default().insert(test);
    }
    for (((package, program), simulated), tests) in programs {
        let mut command = if simulated {
            cargo::test_with_backend("sim")
        } else {
            let mut command = cargo::cargo();
            command.arg("test");
            command
        };
        // The library has another name in the registry than here.
        let name = if package == "dure" {
            "durefs"
        } else {
            &package
        };
        command.args(["-p", name]);
        match &program {
            Some(program) => command.args(["--test", program]),
            None => command.arg("--lib"),
        };
        command.arg("--").args(tests);
        cargo::run(command)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_that_a_list_names_exists() {
        let found = tests_below(&cargo::root()).unwrap();
        for list in LISTS {
            let text = std::fs::read_to_string(cargo::root().join(list)).unwrap();
            let all = entries(&text);
            assert!(!all.is_empty(), "{list} has no list");
            for entry in all {
                assert!(
                    !entry.tests.is_empty(),
                    "{list}: no test for: {}",
                    entry.what
                );
                for test in entry.tests {
                    assert!(
                        found.contains_key(&test),
                        "{list} names {test}, which no test is called"
                    );
                }
            }
        }
    }

    /// The sentences of the numbered items of the contract, each up to the tests it names.
    fn sentences(text: &str) -> Vec<String> {
        let start = text.find("## The contract").expect("the contract");
        let body = &text[start + "## The contract".len()..];
        let body = &body[..body.find("\n##").unwrap_or(body.len())];
        let is_item = |line: &&str| line.starts_with(|c: char| c.is_ascii_digit());
        let items = body.lines().filter(is_item);
        items
            .flat_map(|item| {
                let (_, item) = item.split_once(". ").expect("a number");
                // A title in bold is no sentence.
                let item = item
                    .strip_prefix("**")
                    .and_then(|rest| rest.split_once("** "));
                let (_, item) = item.expect("an item begins with its title");
                item.split_inclusive(". ")
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    /// Sections of the document that argue: each of their paragraphs and items names a test.
    const ARGUED: [&str; 7] = [
        "### With other policies",
        "### Through a mount",
        "### Files that were never synced",
        "## Why one flush per fsync is enough",
        "## Rot",
        "## What the medium loses from a log",
        "## Data in the log",
    ];

    /// The paragraphs and items below a heading: each is one line.
    fn paragraphs<'t>(text: &'t str, heading: &str) -> Vec<&'t str> {
        let mut lines = text.lines().skip_while(|line| *line != heading);
        assert!(lines.next().is_some(), "no section {heading}");
        let section = lines.take_while(|line| !line.starts_with('#'));
        section.filter(|line| !line.is_empty()).collect()
    }

    /// What is wrong with the tests that a piece of the document names in brackets.
    fn fault(piece: &str, found: &Found) -> Option<String> {
        let bracketed = piece.split('[').skip(1);
        let bracketed = bracketed.filter_map(|rest| rest.split_once(']'));
        let names: Vec<&str> = bracketed
            .flat_map(|(inner, _)| quoted(inner))
            .filter(|name| is_test_name(name))
            .collect();
        if names.is_empty() {
            return Some(format!("no test behind: {piece}"));
        }
        let missing = names.into_iter().find(|name| !found.contains_key(*name));
        missing.map(|name| format!("{name} is no test: {piece}"))
    }

    /// All that is wrong with the document.
    fn faults(text: &str, found: &Found) -> Vec<String> {
        let mut faults: Vec<String> = sentences(text)
            .iter()
            .filter_map(|sentence| fault(sentence, found))
            .collect();
        for heading in ARGUED {
            let all = paragraphs(text, heading);
            faults.extend(all.iter().filter_map(|one| fault(one, found)));
        }
        for entry in entries(text) {
            let missing = entry.tests.iter().find(|test| !found.contains_key(*test));
            if entry.tests.is_empty() || missing.is_some() {
                faults.push(format!("ordering point, {missing:?}: {entry:?}"));
            }
        }
        faults
    }

    fn durability() -> String {
        std::fs::read_to_string(cargo::root().join(CONTRACT)).unwrap()
    }

    #[test]
    fn every_sentence_of_the_contract_names_tests_that_exist() {
        let found = tests_below(&cargo::root()).unwrap();
        let text = durability();
        assert!(sentences(&text).len() > 10);
        let faults = faults(&text, &found);
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    /// Removes the tests named behind one sentence, paragraph or row at a time.
    #[test]
    fn canary_a_sentence_without_a_test_is_found() {
        let found = tests_below(&cargo::root()).unwrap();
        let text = durability();
        let (mut from, mut taken) = (0, 0);
        while let Some(start) = text[from..].find(" [`").map(|at| from + at) {
            let end = start + text[start..].find(']').expect("a closed bracket") + 1;
            let without = format!("{}{}", &text[..start], &text[end..]);
            // A paragraph may name tests at several places, a sentence of the contract at one.
            let line = text[..start].rfind('\n').map_or(0, |at| at + 1);
            let in_contract = text[line..].starts_with(|c: char| c.is_ascii_digit());
            let line_end = line + text[line..].find('\n').unwrap_or(text.len() - line);
            if in_contract || text[line..line_end].matches(" [`").count() == 1 {
                assert_eq!(faults(&without, &found).len(), 1, "{}", &text[start..end]);
                taken += 1;
            }
            from = end;
        }
        assert!(taken > 25, "{taken}");
        let renamed = text.replace("`commit_without_flush`", "`commit_without_a_flush`");
        assert_eq!(faults(&renamed, &found).len(), 1);
        let renamed = text.replace("`two_fsyncs_at_once`", "`two_fsyncs_at_one`");
        assert_eq!(faults(&renamed, &found).len(), 1);
        let gone = text.replace("| `checksum_off` |", "| |");
        assert_eq!(faults(&gone, &found).len(), 1);
    }

    #[test]
    fn tables_and_tests_are_found() {
        let text = "| a | b |\n|---|---|\n| 1 | 2 |\n\n| where | what | test |\n|---|---|---|\n\
                    | x | y | `one_test`, `Two` (`three_test`) |\n";
        let expected = Entry {
            place: "x".into(),
            what: "y".into(),
            tests: vec!["one_test".into(), "three_test".into()],
        };
        assert_eq!(entries(text), [expected]);
        let source = "#[test]\n#[should_panic]\nfn one_test() {}\nfn no_test() {}\n";
        assert_eq!(
            tests_in(source).into_iter().collect::<Vec<_>>(),
            ["one_test"]
        );
        let source = "fn $name() {}\ncases! {\n    case_a1: must_hold { x: 1 }\n}";
        assert_eq!(
            tests_in(source).into_iter().collect::<Vec<_>>(),
            ["case_a1"]
        );
        let path = Path::new("crates/dure-x/tests/model/cases.rs");
        assert_eq!(
            program(path).unwrap(),
            ("dure-x".into(), Some("model".into()))
        );
    }
}

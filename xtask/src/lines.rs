//! `cargo xtask lines`: how much there is to read, against budgets.
//!
//! **Problem.** Sources and pages grow by a little in each change, and nobody sees it. **Structure.**
//! Lines that are not blank are counted, tests apart, for each crate and each first folder of it, and
//! words of pages for each folder. `lines.txt` has the most that a crate may have without its tests,
//! and a folder of pages. **Invariants.** What has no budget fails, and so does a budget of nothing.
//! **Crash.** Everything can be run again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::cargo;

/// Lines of code and of tests, words of pages.
type Count = [usize; 3];
/// By crate, `crates/NAME/src/FOLDER`, or folder of pages.
type Counts = BTreeMap<String, Count>;
/// The most lines of code, or words.
type Budgets = BTreeMap<String, usize>;

pub(crate) fn run() -> Result<()> {
    let mut counts = Counts::new();
    count(&cargo::root(), Path::new(""), &mut counts)?;
    println!("{:40} {:>7} {:>7} {:>7}", "", "lines", "tests", "words");
    for (place, [code, tests, words]) in &counts {
        println!("{place:40} {code:7} {tests:7} {words:7}");
    }
    let faults = faults(&counts, &budgets());
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

fn of_source(path: &str, text: &str) -> Count {
    let is_test = |part: &str| {
        let name = part.trim_end_matches(".rs");
        name.starts_with("tests") || name.ends_with("_tests") || name == "benches"
    };
    let (mut code, mut tests) = (0, 0);
    let (mut inside, mut before) = (path.split('/').any(is_test), "");
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        // Nothing stands behind such a module, a lint says.
        inside |= line == "mod tests {" && before.starts_with("#[");
        *(if inside { &mut tests } else { &mut code }) += 1;
        before = line;
    }
    [code, tests, 0]
}

/// Adds what is below `folder`, a path from `root`.
fn count(root: &Path, folder: &Path, counts: &mut Counts) -> Result<()> {
    let at = || folder.display().to_string();
    let parts: Vec<_> = folder.iter().filter_map(|part| part.to_str()).collect();
    for entry in std::fs::read_dir(root.join(folder)).with_context(at)? {
        let name = entry.with_context(at)?.file_name();
        let path = folder.join(&name);
        let (word, file) = (path.to_string_lossy(), root.join(&path));
        let is_page = word.ends_with(".md") && matches!(parts.first(), None | Some(&"docs"));
        if file.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
            count(root, &path, counts)?;
        } else if is_page || word.ends_with(".rs") {
            let text = std::fs::read_to_string(&file).with_context(|| word.to_string())?;
            let (depths, more) = match is_page {
                true => ([2, 2], [0, 0, text.split_whitespace().count()]),
                false => (depths(&parts), of_source(&word, &text)),
            };
            for depth in BTreeSet::from(depths.map(|depth| depth.min(parts.len()))) {
                let place = [&["."], &parts[..depth]].concat().join("/");
                let sums = counts.entry(place).or_default().iter_mut().zip(more);
                sums.for_each(|(sum, more)| *sum += more);
            }
        }
    }
    Ok(())
}

/// Parts of a path that name a crate (`crates/NAME`, `xtask` or `fuzz`), and a folder of its sources.
fn depths(parts: &[&str]) -> [usize; 2] {
    let outer = if parts[0] == "crates" { 2 } else { 1 };
    let source = parts.get(outer) == Some(&"src");
    [outer, outer + if source { 2 } else { 1 }]
}

fn budgets() -> Budgets {
    let rows = include_str!("../lines.txt").lines();
    let row = |row: &str| {
        let (place, most) = row.split_once(' ').expect("a place, and its budget");
        (place.to_owned(), most.trim().parse().expect("a number"))
    };
    rows.filter(|row| !row.starts_with('#')).map(row).collect()
}

/// What is above its budget, has none, or is none.
fn faults(counts: &Counts, budgets: &Budgets) -> Vec<String> {
    let mut faults = Vec::new();
    let crate_depth = |place: &str| if place.starts_with("./crates/") { 3 } else { 2 };
    for (place, [code, _, words]) in counts {
        let now = code + words;
        match budgets.get(place) {
            None if *words == 0 && place.split('/').count() > crate_depth(place) => {}
            Some(most) if now <= *most => {}
            budget => faults.push(format!(
                "{place}: {now} lines or words, its budget is {}: remove, or raise the budget in \
                 xtask/lines.txt in the commit that says why",
                budget.unwrap_or(&0)
            )),
        }
    }
    let gone = budgets.keys().filter(|place| !counts.contains_key(*place));
    faults.extend(gone.map(|place| format!("{place}: a budget of nothing in xtask/lines.txt")));
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_and_pages_are_within_their_budgets() {
        run().unwrap();
    }

    #[test]
    fn canary_growth_is_found() {
        let budgets = budgets();
        let full = |most: &usize| [*most, 9, 0];
        let full: Counts = budgets
            .iter()
            .map(|(place, most)| (place.clone(), full(most)))
            .collect();
        assert_eq!(faults(&full, &budgets), [""; 0]);
        let more: Counts = full
            .iter()
            .map(|(place, [code, ..])| (place.clone(), [*code, 0, 1]))
            .collect();
        assert_eq!(faults(&more, &budgets).len(), budgets.len());
        assert_eq!(faults(&Counts::new(), &budgets).len(), budgets.len());
        let new = Counts::from([("./crates/new".to_owned(), [1, 0, 0])]);
        assert_eq!(faults(&new, &Budgets::new()).len(), 1);
    }

    #[test]
    fn tests_are_told_from_code() {
        let text = "use a;\n\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n";
        assert_eq!(of_source("crates/a/src/b.rs", text), [2, 3, 0]);
        for path in [
            "crates/a/tests/it.rs",
            "crates/a/src/tests.rs",
            "crates/a/src/path_tests.rs",
        ] {
            assert_eq!(of_source(path, text), [0, 5, 0], "{path}");
        }
    }
}

//! The links of the documents lead somewhere.
//!
//! **Problem.** Pages move, sections get other names, and nothing says which links that leaves
//! dead. **Structure.** Each relative link of each page is followed, to its section too, and so is
//! each page of docs/ that a source names. A canary has dead ones. **Crash.** Nothing.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::path::{Path, PathBuf};

/// Files below `dir` whose names end in `extension`, without what is hidden or built.
fn files(dir: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
}

/// The name by which links reach a section.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
    text.chars()
        .filter(kept)
        .collect::<String>()
        .replace(' ', "-")
}

fn is_dead(page: &Path, link: &str) -> bool {
    let (path, section) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => page.to_owned(),
        _ => page.parent().unwrap().join(path),
    };
    let is_section = |line: &str| line.starts_with('#') && anchor(line) == section;
    let has_section = || fs::read_to_string(&target).unwrap().lines().any(is_section);
    !target.exists() || !section.is_empty() && !has_section()
}

/// Relative links of a page that lead nowhere.
fn dead_links<'t>(page: &Path, text: &'t str) -> Vec<&'t str> {
    let links = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    links
        .filter(|link| !link.contains("://") && is_dead(page, link))
        .collect()
}

/// Pages that a source names by their path from the root at `readme`, and that are not there.
fn dead_pages<'t>(readme: &Path, text: &'t str) -> Vec<&'t str> {
    let words = text.split(|c: char| !(c.is_alphanumeric() || "/.-_".contains(c)));
    let pages = words.filter(|word| word.starts_with("docs/") && word.contains(".md"));
    pages
        .map(|page| page.trim_end_matches('.'))
        .filter(|page| is_dead(readme, page))
        .collect()
}

#[test]
fn links_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut pages, mut sources) = (Vec::new(), Vec::new());
    files(root, "md", &mut pages);
    files(root, "rs", &mut sources);
    assert!(
        pages.len() >= 20 && sources.len() >= 20,
        "they are not where they were"
    );
    let text = |path: &Path| fs::read_to_string(path).unwrap();
    for page in pages {
        assert_eq!(
            dead_links(&page, &text(&page)),
            [""; 0],
            "{}",
            page.display()
        );
    }
    for source in sources {
        let dead = dead_pages(&root.join("README.md"), &text(&source)).join(" ");
        assert_eq!(dead, "", "{}", source.display());
    }
}

/// Names in backquotes of the second column that are no function of a source.
fn missing_tests<'p>(page: &'p str, sources: &str) -> Vec<&'p str> {
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let tests = rows.filter_map(|row| row.split(" | ").nth(1));
    let names = tests.flat_map(|tests| tests.split('`').skip(1).step_by(2));
    let names = names.filter(|name| name.contains('_'));
    // A function whose name a macro takes has no parenthesis behind it.
    names
        .filter(|name| {
            !sources.contains(&format!("{name}(")) && !sources.contains(&format!("{name},"))
        })
        .collect()
}

#[test]
fn each_claim_about_calls_names_tests_that_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = fs::read_to_string(root.join("docs/user/semantics.md")).unwrap();
    let (_, section) = page.split_once("## Tests\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let mut found = Vec::new();
    files(&root.join("crates"), "rs", &mut found);
    let sources: String = found
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    assert_eq!(missing_tests(section, &sources), [""; 0]);
    let canary = "| a claim | `no_such_test_of_it`, `each_claim` |";
    assert_eq!(
        missing_tests(canary, "fn each_claim()"),
        ["no_such_test_of_it"]
    );
}

#[test]
fn canary_dead_links_are_noticed() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let text = "[a](CHANGELOG.md) [b](no.md) [c](#dure) [d](#no) [e](https://e.org)";
    assert_eq!(dead_links(&page, text), ["no.md", "#no"]);
    let gone = concat!("docs", "/no.md");
    let text = format!("(docs/README.md), {gone}.");
    assert_eq!(dead_pages(&page, &text), [gone]);
}

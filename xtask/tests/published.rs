//! What is called "as published" is in the list that names its document and section.
//!
//! **Problem.** That something is as published is easily said of more than a document says.
//! **Structure.** The list is a table of docs/design/policies.md; sources and pages are searched for
//! the words, over the ends of lines. A canary has a source that is not in it. **Crash.** Nothing.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const LIST: &str = "docs/design/policies.md";

/// The sections of the documents: chapters, and parts of them.
const SECTIONS: [(&str, &[&str]); 5] = [
    (
        "000",
        &[
            "2.1", "2.2", "2.3", "3.1", "3.2.1", "3.2.2", "3.2.3", "3.3", "4.1", "4.2", "4.2.1",
            "4.2.2", "4.2.3", "4.3", "5.1", "5.2", "5.3", "5.4",
        ],
    ),
    ("001", &["2-1", "2-2", "3", "4"]),
    ("002", &[]),
    (
        "003",
        &["2.1", "2.2", "2.3", "2.4", "3.1", "3.2", "3.3", "3.4"],
    ),
    ("004", &["2", "3", "4.1", "4.2", "4.2.1", "4.2.2"]),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Sources and pages below `dir`.
fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let ends = |end: &str| path.extension().is_some_and(|found| found == end);
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            files(&path, found);
        } else if ends("rs") || ends("md") {
            found.push(path);
        }
    }
}

/// Whether the text says that something is as published, with or without marks between the words.
fn says_so(text: &str) -> bool {
    let marks = |c: char| c.is_whitespace() || "[]*`/!|#".contains(c);
    let words: Vec<String> = text
        .split(marks)
        .filter(|word| !word.is_empty())
        .map(|word| {
            word.trim_matches(|c: char| !c.is_alphanumeric())
                .to_lowercase()
        })
        .collect();
    words.windows(2).any(|pair| pair == ["as", "published"])
}

/// The section `heading` of the list, as the cells of its first table.
fn table(page: &str, heading: &str) -> Vec<Vec<String>> {
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    let rows = section.lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
    let cells = |row: &str| {
        let row = row.trim_matches('|').replace("\\|", "or");
        row.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    rows.map(cells).collect()
}

/// Whether that names a document and sections of it, as in `000, 2.1; 002`.
fn names_a_section(cell: &str) -> bool {
    !cell.is_empty()
        && cell.split(';').all(|of_one| {
            let mut parts = of_one.split(',').map(str::trim);
            let document = parts.next().unwrap();
            let known = SECTIONS.iter().find(|(known, _)| *known == document);
            let parts: Vec<_> = parts.collect();
            known.is_some_and(|(_, sections)| {
                parts.is_empty() == sections.is_empty()
                    && parts.iter().all(|part| sections.contains(part))
            })
        })
}

/// The files that say so of something, by their paths from the root.
fn claims() -> BTreeSet<String> {
    let mut found = Vec::new();
    files(root(), &mut found);
    assert!(found.len() > 500, "they are not where they were");
    let own = [LIST, "xtask/tests/published.rs"];
    found
        .iter()
        .filter(|path| says_so(&fs::read_to_string(path).unwrap()))
        .map(|path| path.strip_prefix(root()).unwrap().display().to_string())
        .filter(|path| !own.contains(&path.as_str()))
        .collect()
}

#[test]
fn what_is_called_as_published_names_its_document_and_section() {
    let page = fs::read_to_string(root().join(LIST)).unwrap();
    let rows = table(&page, "As published");
    let listed: BTreeSet<_> = rows
        .iter()
        .map(|row| row[0].trim_matches('`').to_owned())
        .collect();
    assert_eq!(claims(), listed, "{LIST} lists what is called as published");
    assert_eq!(listed.len(), rows.len(), "each once");
    for row in &rows {
        assert!(names_a_section(&row[2]), "{row:?}");
    }
}

#[test]
fn each_preset_names_its_document_and_section() {
    let page = fs::read_to_string(root().join(LIST)).unwrap();
    let rows = table(&page, "Presets");
    assert_eq!(rows.len(), 7);
    for row in rows {
        assert!(names_a_section(&row[2]), "{row:?}");
    }
}

#[test]
fn canary_a_claim_and_a_section_that_is_not_there_are_noticed() {
    for text in [
        "waits as\n//! published here",
        "[as published](x.md)",
        "as [published]",
        "## Waiting, as published",
    ] {
        assert!(says_so(text), "{text}");
    }
    assert!(!says_so("as it is published") && !says_so("was published as"));
    assert!(names_a_section("000, 2.1; 002"));
    for wrong in ["", "000", "000, 9.1", "005, 1", "002, 1", "the survey"] {
        assert!(!names_a_section(wrong), "{wrong}");
    }
}

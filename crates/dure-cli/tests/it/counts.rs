//! One thing is told as one, and the sources count through `dure_block::count::Count`.

#![expect(clippy::unwrap_used, reason = "tests panic")]

use std::fs;
use std::path::{Path, PathBuf};

use crate::program::{dure, printed, text};

#[test]
fn one_file_one_journal_and_one_issue_are_told_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let image = path("v.img");
    let image = text(&image);
    let made = printed(&["mkfs", "--size", "64M", "--journals", "1", image]);
    assert!(made.contains(" 1 journal,"), "{made}");
    fs::write(path("file"), "hello").unwrap();
    fs::write(path("other"), "hello").unwrap();
    let put = |name: &str| printed(&["put", image, text(&path(name)), "/"]);
    assert!(put("file").starts_with("1 file or directory, 5 B"));
    let got = printed(&["get", image, "/file", text(&path("got"))]);
    assert!(got.starts_with("1 file or directory, 5 B"), "{got}");
    let clean = printed(&["check", image]);
    assert!(
        clean.contains("; 1 file, 1 directory, 0 symlinks,"),
        "{clean}"
    );
    put("other");
    let rescued = printed(&["rescue", image, text(&path("rescued"))]);
    assert!(rescued.contains("3 files and directories"), "{rescued}");
    let mut bytes = fs::read(path("v.img")).unwrap();
    bytes[..4096].fill(0);
    fs::write(path("v.img"), bytes).unwrap();
    let checked = dure(&["check", image]);
    let checked = String::from_utf8(checked.stdout).unwrap();
    assert!(
        checked.contains(": 1 issue; 2 files, 1 directory,"),
        "{checked}"
    );
    let journals = printed(&["info", "--journal", image]);
    assert!(journals.contains(", 1 journal, segments of "), "{journals}");
}

/// Nouns that messages count.
const NOUNS: [&str; 16] = [
    "files",
    "directories",
    "journals",
    "issues",
    "events",
    "transactions",
    "pages",
    "images",
    "symlinks",
    "groups",
    "threads",
    "workers",
    "jobs",
    "requests",
    "queues",
    "tags",
];

/// Lines of the folder's sources, without those of tests, that put a number before a plural.
fn plurals_below(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            plurals_below(&path, found);
        }
        if !name.ends_with(".rs") || name == "tests.rs" {
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for line in source.lines() {
            let told = NOUNS.iter().any(|noun| {
                let counted = format!("}} {noun}");
                let mut after = line.split(&counted).skip(1);
                after.any(|rest| !rest.starts_with(|next: char| next.is_alphanumeric()))
            });
            // An average is no count.
            let told = told && !line.contains(" journals each");
            if told && !line.trim_start().starts_with("//") {
                found.push(format!("{}: {}", path.display(), line.trim()));
            }
        }
    }
}

#[test]
fn messages_count_through_the_one_helper() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    plurals_below(&crates.join("dure-cli/src"), &mut found);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

//! The pages for users name nothing that is not there, also where their commands are not run.
//!
//! `documents` runs the blocks `sh` and `sh mount`. Each other block says by its first line why it
//! is not run; of all blocks, and of commands within sentences, the subcommands and options exist.

#![expect(clippy::unwrap_used, reason = "tests panic")]

use std::fs;
use std::path::{Path, PathBuf};

/// What follows the three backquotes, and what becomes of the block.
const HEADS: &[(&str, &str)] = &[
    ("sh", "run by `documents`"),
    (
        "sh mount",
        "run by `documents` where a mount can be made; the README's by `xtask conformance tree` too",
    ),
    (
        "sh build",
        "builds, tests or installs: CI does, on a clean checkout",
    ),
    (
        "python",
        "the first of a page is run by `python/tests`, which need libdure; others go on with it",
    ),
    ("sh disk", "needs a disk of the reader, or writes to one"),
    (
        "sh pmem",
        "needs persistent memory: `xtask guest nvm` has some",
    ),
    (
        "sh ublk",
        "needs the kernel's ublk: `xtask guest ublk` has it",
    ),
    (
        "fstab",
        "lines of a file: `xtask conformance package` mounts by them",
    ),
    ("fio", "run by `xtask conformance fio`"),
    ("sh rocksdb", "run by `xtask conformance rocksdb`"),
    ("cpp", "compiled and run by `xtask conformance rocksdb`"),
    ("rust", "compiled and run by the tests of `dure`"),
    ("c", "compiled and run by the tests of dure-capi"),
    ("sql", "run by the tests of dure-sqlite"),
    ("py", "run by the tests of dure-sqlite"),
];

/// The README and the pages for users, with their names.
pub(crate) fn pages() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = fs::read_dir(root.join("docs/user")).unwrap();
    let mut paths: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|is| is == "md"));
    paths.push(root.join("README.md"));
    let text = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        (path, text)
    };
    paths.into_iter().map(text).collect()
}

/// A page as text and blocks in turn: first text, then a block, and so on.
fn parts(page: &str) -> Vec<&str> {
    page.split("```").collect()
}

/// Calls of `dure` in a piece of code.
fn calls(code: &str) -> Vec<String> {
    let lines = code.lines().map(|line| line.split(" #").next().unwrap());
    let commands = lines.flat_map(|line| line.split(['|', ';', '&', '(']));
    let commands = commands.map(|command| command.trim().trim_start_matches("sudo "));
    let calls = commands.filter(|command| command.starts_with("dure "));
    calls.map(str::to_owned).collect()
}

/// What a call names that the program does not have.
fn unknown(call: &str) -> Option<String> {
    let mut command = dure_cli::manual::command();
    command.build();
    let mut command = &command;
    let mut words = call.split_whitespace().skip(1).peekable();
    while let Some(below) = words.peek().and_then(|word| command.find_subcommand(word)) {
        command = below;
        words.next();
    }
    if command.has_subcommands() && words.peek().is_some_and(|word| !word.starts_with('-')) {
        return words.next().map(str::to_owned);
    }
    // What follows is another program's.
    let words = words.take_while(|word| *word != "--");
    let options = words.filter_map(|word| word.strip_prefix("--"));
    let mut names = options.map(|word| word.split('=').next().unwrap());
    let has = |name: &str| {
        let mut arguments = command.get_arguments();
        arguments.any(|argument| {
            argument.get_long() == Some(name)
                || argument
                    .get_all_aliases()
                    .is_some_and(|all| all.contains(&name))
        })
    };
    names
        .find(|name| !has(name))
        .map(|name| format!("--{name}"))
}

#[test]
fn every_block_of_a_page_is_run_or_says_why_not() {
    for (path, page) in pages() {
        let parts = parts(&page);
        assert!(
            parts.len() % 2 == 1,
            "{}: a block without end",
            path.display()
        );
        for block in parts.iter().skip(1).step_by(2) {
            let head = block.lines().next().unwrap();
            let known = HEADS.iter().any(|(name, _)| *name == head);
            assert!(known, "{}: ```{head}: is it run?", path.display());
        }
    }
}

#[test]
fn pages_name_commands_and_options_that_exist() {
    let mut found = 0;
    for (path, page) in pages() {
        for (number, part) in parts(&page).into_iter().enumerate() {
            let code: Vec<&str> = match number % 2 {
                0 => part.split('`').skip(1).step_by(2).collect(),
                _ => vec![part],
            };
            for call in code.into_iter().flat_map(calls) {
                found += 1;
                let missing = unknown(&call);
                assert_eq!(missing, None, "{}: {call}", path.display());
            }
        }
    }
    assert!(found > 100, "only {found} calls were found");
    assert_eq!(unknown("dure mkfs --sizes 1G v"), Some("--sizes".into()));
    assert_eq!(unknown("dure make v"), Some("make".into()));
}

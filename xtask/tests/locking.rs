//! Every lock rank of every crate stands in the table of docs/design/locking.md, and nothing else
//! does.
//!
//! **Problem.** A new lock that is not in the table makes the order of locks unknowable.
//! **Structure.** The sources are searched for locks (`Mutex<NAME, ..`, `RwLock<NAME, ..`) and for
//! the constants they name; the result is compared with the table. **Invariants.** A rank is a
//! named constant of its crate. **Crash.** Nothing.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Rank and the constant's path.
type Ranks = BTreeSet<(u8, String)>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .into()
}

/// The sources below `dir`, without tests.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if name != "tests" {
                sources(&path, found);
            }
        } else if Path::new(name).extension().is_some_and(|e| e == "rs") && !name.contains("tests")
        {
            found.push(path);
        }
    }
}

/// Module path of a source of crate `name` whose sources are below `src`.
fn module(name: &str, src: &Path, file: &Path) -> String {
    let mut parts = vec![name.replace('-', "_")];
    let inner = file.strip_prefix(src).unwrap().with_extension("");
    let inner = inner
        .iter()
        .map(|part| part.to_str().unwrap().to_owned())
        .filter(|part| !["mod", "lib", "main"].contains(&part.as_str()));
    parts.extend(inner);
    parts.join("::")
}

fn is_rank_name(text: &str) -> bool {
    text.len() > 1 && text.bytes().all(|b| b.is_ascii_uppercase() || b == b'_') && text != "RANK"
}

/// Names of ranks that locks in `text` have.
fn used(text: &str) -> impl Iterator<Item = &str> {
    let after = |lock| text.split(lock).skip(1);
    after("Mutex<")
        .chain(after("RwLock<"))
        .chain(after("PerCoreRwLock<"))
        .chain(after("RangeLock<"))
        .chain(after("HeldRank<"))
        .filter_map(|rest| rest.split_once([',', '>']))
        .map(|(name, _)| name.trim())
        .filter(|name| is_rank_name(name))
}

/// `const NAME: u8 = N;` of `text`.
fn constants(text: &str) -> impl Iterator<Item = (&str, u8)> {
    text.split("const ").skip(1).filter_map(|rest| {
        let (name, rest) = rest.split_once(": u8 = ")?;
        let (value, _) = rest.split_once(';')?;
        Some((name, value.parse().ok()?))
    })
}

/// The ranks that locks of the workspace have.
fn ranks() -> Ranks {
    let mut all = Ranks::new();
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let dir = entry.unwrap().path();
        let name = dir.file_name().unwrap().to_str().unwrap().to_owned();
        let src = dir.join("src");
        let mut files = Vec::new();
        sources(&src, &mut files);
        let mut defined: BTreeMap<String, Vec<(u8, String)>> = BTreeMap::new();
        let mut wanted = BTreeSet::new();
        for file in &files {
            let text = std::fs::read_to_string(file).unwrap();
            for (constant, rank) in constants(&text) {
                let path = format!("{}::{constant}", module(&name, &src, file));
                defined
                    .entry(constant.to_owned())
                    .or_default()
                    .push((rank, path));
            }
            wanted.extend(used(&text).map(str::to_owned));
        }
        for rank in wanted {
            let found = defined.get(&rank);
            let found = found.unwrap_or_else(|| panic!("{name}: no constant {rank}"));
            all.extend(found.iter().cloned());
        }
    }
    all
}

/// The ranks that the table of docs/design/locking.md names.
fn documented(text: &str) -> Ranks {
    text.lines()
        .filter_map(|line| {
            let mut cells = line.split('|').map(str::trim).skip(1);
            let rank = cells.next()?.parse().ok()?;
            let path = cells.next()?.trim_matches('`').to_owned();
            assert_eq!(cells.count(), 4, "a row has five cells: {line}");
            Some((rank, path))
        })
        .collect()
}

#[test]
fn the_table_names_every_rank() {
    let text = std::fs::read_to_string(root().join("docs/design/locking.md")).unwrap();
    let (table, code) = (documented(&text), ranks());
    let missing: Vec<_> = code.difference(&table).collect();
    let stale: Vec<_> = table.difference(&code).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "docs/design/locking.md lacks {missing:?} and has {stale:?}, which no lock has"
    );
    assert!(code.len() > 40, "{} ranks found", code.len());
}

#[test]
fn canary_a_lock_and_its_constant_are_found() {
    let text = "const SOME_RANK: u8 = 7;\nstruct A { lock: Mutex<SOME_RANK, u8>, b: RwLock<RANK, T>, c: RangeLock<WIDE> }";
    assert_eq!(used(text).collect::<Vec<_>>(), ["SOME_RANK", "WIDE"]);
    assert_eq!(constants(text).collect::<Vec<_>>(), [("SOME_RANK", 7)]);
    let row = "| 7 | `a::SOME_RANK` | what | never two | no |";
    assert_eq!(documented(row), Ranks::from([(7, "a::SOME_RANK".into())]));
}

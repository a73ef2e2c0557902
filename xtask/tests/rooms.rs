//! Which module may name which, and which may name a device.
//!
//! **Problem.** Within a crate nothing keeps modules from naming each other in a circle, and then
//! none of them can be read, tested or moved alone. **Structure.** The modules as rows, compared
//! with the paths that the sources begin with `crate::`; the words of requests to a device, looked for in
//! all sources; tests may name anything. Each check has a canary.
//! **Invariants.** A module that is in no row fails, and so does a name that is not a module.
//! **Crash.** Nothing.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Modules of dure-store: each may name those of earlier rows, and itself.
const STORE: &[&[&str]] = &[
    &["diff", "error", "ranks", "rules", "units"],
    &["alloc", "backlog", "format", "frames", "media", "sparse"],
    &["layout", "pair"],
    &["census", "headers", "packs"],
    &["space"],
    &["data_log", "node"],
    &["options", "settle"],
    &["placement"],
    &["checkpoint", "recovery"],
    &["store"],
    &["op"],
];

/// Modules of dure-check, likewise: what passes share, then the passes.
const CHECK: &[&[&str]] = &[
    &["bits", "inodes", "options", "owner", "repairs", "summaries"],
    &["issue"],
    &["report"],
    &["context"],
    &["blob", "counts", "data", "directory", "inode", "names"],
    &["orphans", "pairs", "repair", "replay", "superblock"],
    &["header", "journals", "nat", "sit"],
    &["summary"],
    &["file", "nodes"],
    &["dump", "trees"],
];

/// The crates whose modules are in rows, and how many sources they have at least.
const ROWS: &[(&str, &[&[&str]], usize)] = &[("dure-store", STORE, 50), ("dure-check", CHECK, 25)];

/// Words of requests to a device, and the sources of dure-journal, dure-store and dure-fs that may
/// have them: all others use a `Region` or a `LogMedium`.
const REQUESTS: &[(&str, &[&str])] = &[
    (
        "Queue",
        &["dure-journal/src/medium.rs", "dure-store/src/media.rs"],
    ),
    ("QueueConfig", &["dure-store/src/media.rs"]),
    (
        "WriteFlags",
        &["dure-journal/src/medium.rs", "dure-store/src/media.rs"],
    ),
    // What hands the journal its medium.
    (
        "log_medium",
        &[
            "dure-store/src/media.rs",
            "dure-store/src/recovery/mod.rs",
            "dure-store/src/store/info.rs",
            "dure-store/src/store/journals.rs",
            "dure-store/src/store/mkfs.rs",
            "dure-store/src/store/mount.rs",
        ],
    ),
];

/// A source without comments and without what follows the start of its tests.
fn code(source: &str) -> String {
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let code = code.split("#[cfg(all(test, ").next().unwrap();
    let lines = code.lines().map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

/// The words of `REQUESTS` in a source.
fn request_words(source: &str) -> Vec<&'static str> {
    let code = code(source);
    let inner = |c: char| c.is_alphanumeric() || c == '_';
    let words: BTreeSet<&str> = code.split(|c| !inner(c)).collect();
    let all = REQUESTS.iter().map(|(word, _)| *word);
    all.filter(|word| words.contains(word)).collect()
}

/// The modules that a source names by `crate::`.
fn named(source: &str) -> BTreeSet<String> {
    let code = code(source);
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        // Not the end of a longer word.
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(group) => found.extend(group_heads(group)),
            None => found.extend(head(rest)),
        }
    }
    found
}

/// The identifier that a text begins with.
fn head(text: &str) -> Option<String> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    let word = &text[..end.unwrap_or(text.len())];
    (!word.is_empty()).then(|| word.to_owned())
}

/// The first identifiers of the paths of a group, up to its closing brace.
fn group_heads(group: &str) -> Vec<String> {
    let mut depth = 0_usize;
    let mut start = 0;
    let mut heads = Vec::new();
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' | ',' if depth == 0 => {
                heads.extend(head(&group[start..at]));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    heads
}

fn row(rows: &[&[&str]], module: &str) -> Option<usize> {
    rows.iter().position(|row| row.contains(&module))
}

/// What is wrong with a source of `module`.
fn errors(rows: &[&[&str]], module: &str, source: &str) -> Vec<String> {
    let Some(own) = row(rows, module) else {
        return vec![format!("{module} is in no row")];
    };
    let allowed =
        |name: &str| name == module || row(rows, name).is_some_and(|position| position < own);
    named(source)
        .into_iter()
        .filter(|name| !allowed(name))
        .map(|name| format!("{module} must not name {name}"))
        .collect()
}

/// The sources below `folder`, by the module they belong to; tests aside.
fn sources(folder: &Path, module: Option<&str>, found: &mut BTreeMap<PathBuf, String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if name == "tests" || (module.is_none() && name == "lib") {
            continue;
        }
        let module = module.unwrap_or(&name);
        if path.is_dir() {
            sources(&path, Some(module), found);
        } else {
            found.insert(path, module.to_owned());
        }
    }
}

/// Whether a source leads to the root of its crate by `super`, which would hide what it names.
/// `file` is its path below `src`.
fn climbs_to_root(file: &Path, source: &str) -> bool {
    let is_mod = file.ends_with("mod.rs");
    let depth = file.components().count() - usize::from(is_mod);
    code(source).contains(&"super::".repeat(depth))
}

#[test]
fn modules_name_only_those_below_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for (of, rows, least) in ROWS {
        let src = root.join("crates").join(of).join("src");
        let mut found = BTreeMap::new();
        sources(&src, None, &mut found);
        assert!(found.len() > *least, "the sources are not where they were");
        let mut wrong = Vec::new();
        for (path, module) in &found {
            let source = std::fs::read_to_string(path).unwrap();
            let mut errors = errors(rows, module, &source);
            if climbs_to_root(path.strip_prefix(&src).unwrap(), &source) {
                errors.push(format!("{module} must say crate, not super"));
            }
            let place = path.display();
            wrong.extend(errors.iter().map(|error| format!("{place}: {error}")));
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        let modules: BTreeSet<&str> = found.values().map(String::as_str).collect();
        let named = rows.iter().copied().flatten();
        let gone: Vec<_> = named.filter(|name| !modules.contains(*name)).collect();
        assert_eq!(gone, Vec::<&&str>::new(), "rows of nothing in {of}");
    }
}

#[test]
fn canary_a_module_that_names_one_above_it_is_found() {
    let source = "//! [`crate::op`]\nuse crate::{format::{node, nat}, store::Store, units::Ino};\n\
                  use crate::error::Result; fn f() -> crate::op::Op { other_crate::op() }\n\
                  #[cfg(test)]\nmod tests {\n    use crate::recovery;\n}\n";
    let names: Vec<String> = named(source).into_iter().collect();
    assert_eq!(names, ["error", "format", "op", "store", "units"]);
    let expected = ["node must not name op", "node must not name store"];
    assert_eq!(errors(STORE, "node", source), expected);
    assert_eq!(errors(STORE, "nowhere", ""), ["nowhere is in no row"]);
    let beside = errors(STORE, "data_log", "use crate::node::Node;");
    assert_eq!(beside, ["data_log must not name node"]);
    let root = errors(STORE, "op", "use crate::Store;");
    assert_eq!(root, ["op must not name Store"]);
    let up = "use super::super::op;";
    assert!(climbs_to_root(Path::new("node/cache.rs"), up));
    assert!(climbs_to_root(Path::new("node/mod.rs"), "use super::op;"));
    assert!(!climbs_to_root(Path::new("node/lock/mutex.rs"), up));
    assert!(!climbs_to_root(
        Path::new("node/cache.rs"),
        "use super::nat;"
    ));
}

#[test]
fn only_the_media_make_requests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let crates = root.join("crates");
    let mut found = BTreeMap::new();
    for name in ["dure-journal", "dure-store", "dure-fs"] {
        sources(&crates.join(name).join("src"), None, &mut found);
    }
    let mut having = BTreeSet::new();
    for path in found.keys() {
        let source = std::fs::read_to_string(path).unwrap();
        let name = path.strip_prefix(&crates).unwrap().to_str().unwrap();
        let words = request_words(&source).into_iter();
        having.extend(words.map(|word| (word, name.to_owned())));
    }
    let listed = REQUESTS.iter().flat_map(|(word, names)| {
        let named = |name: &&str| (*word, (*name).to_owned());
        names.iter().map(named)
    });
    let listed: BTreeSet<_> = listed.collect();
    let wrong: Vec<_> = having.symmetric_difference(&listed).collect();
    assert!(wrong.is_empty(), "not as listed: {wrong:?}");
}

#[test]
fn canary_a_source_that_makes_requests_is_found() {
    let source = "//! Queue\nuse dure_block::{BlockBuf, Queue};\nfn f(queue: &MyQueue) {}\n\
                  fn g(region: &Region) { region.log_medium() } // WriteFlags\n\
                  #[cfg(test)]\nmod tests {\n    use dure_block::WriteFlags;\n}\n";
    assert_eq!(request_words(source), ["Queue", "log_medium"]);
}

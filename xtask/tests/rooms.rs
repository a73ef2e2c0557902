//! Which module may name which, and which may name a device.
//!
//! **Problem.** Within a crate nothing keeps modules from naming each other in a circle, and then
//! none of them can be read, tested or moved alone. **Structure.** The modules as rows, compared
//! with the paths that the sources begin with `crate::`; in dure-fs, whose folders name each other
//! in both directions, the sources as a graph of their paths, in which no circle may span folders;
//! the words of requests to a device, looked for in all sources. Tests may name anything, and calls
//! of methods are not seen. Each check has a canary.
//! **Invariants.** A module that is in no row fails, and so does a name that is not a module, or
//! that is left out of the graph without need.
//! **Crash.** Nothing.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Modules of dure-store: each may name those of earlier rows, and itself.
const STORE: &[&[&str]] = &[
    &["diff", "error", "partition", "ranks", "rules", "units"],
    &["alloc", "backlog", "format", "frames", "media", "sparse"],
    &["offer", "pair"],
    &["layout"],
    &["census", "headers", "packs"],
    &["members", "space"],
    &["snapshot"],
    &["data_log", "node"],
    &["options", "settle"],
    &["placement"],
    &["checkpoint", "recovery"],
    &["store"],
    &["op"],
];

/// Modules of dure-check, likewise: what passes share, then the passes.
const CHECK: &[&[&str]] = &[
    &[
        "bits",
        "inodes",
        "loss",
        "options",
        "owner",
        "quota_facts",
        "repairs",
    ],
    &["shared", "summaries"],
    &["issue"],
    &["report"],
    &["context"],
    &["quota"],
    &["blob", "counts", "data", "directory", "inode", "names"],
    &[
        "clones",
        "heads",
        "orphans",
        "pairs",
        "replay",
        "snapshots",
        "space",
        "superblock",
    ],
    &["repair"],
    &["header", "journals", "nat", "sit"],
    &["summary"],
    &["file", "nodes"],
    &["dump", "trees", "undo"],
    &["passes"],
    &["rebuild"],
];

/// The crates whose modules are in rows, and how many sources they have at least.
const ROWS: &[(&str, &[&[&str]], usize)] = &[("dure-store", STORE, 50), ("dure-check", CHECK, 25)];

/// The sources of dure-fs that may have methods of these types: the volume composes, and its calls
/// are apart from what does them.
const METHODS: &[(&str, &[&str])] = &[
    ("impl Volume ", &["volume/mount.rs"]),
    ("impl FileSystem ", &["calls/", "volume/"]),
];

/// Words of requests to a device, and the sources of dure-journal, dure-store and dure-fs that may
/// have them: all others use a `Region` or a `LogMedium`.
const REQUESTS: &[(&str, &[&str])] = &[
    (
        "Media",
        &["dure-journal/src/medium.rs", "dure-store/src/media.rs"],
    ),
    ("Queue", &[]),
    ("QueueConfig", &["dure-store/src/media.rs"]),
    ("WriteFlags", &[]),
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
    let words: BTreeSet<&str> = code.split(|c| !is_word(c)).collect();
    let all = REQUESTS.iter().map(|(word, _)| *word);
    all.filter(|word| words.contains(word)).collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Adds the paths that `text` begins with, each of a group, behind `prefix`. Returns what follows.
fn paths<'t>(prefix: &[&'t str], text: &'t str, found: &mut Vec<Vec<&'t str>>) -> &'t str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        while !rest.trim_start().is_empty() {
            if let Some(behind) = rest.trim_start().strip_prefix('}') {
                return behind;
            }
            rest = paths(prefix, rest, found);
            rest = &rest[rest.find([',', '}']).unwrap_or(rest.len())..];
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        return rest;
    }
    let (word, rest) = text.split_at(text.find(|c| !is_word(c) && c != '*').unwrap_or(text.len()));
    let mut path = prefix.to_vec();
    // Of a group, `self` is what the group is of.
    if !word.is_empty() && (word != "self" || prefix.is_empty()) {
        path.push(word);
    }
    match rest.strip_prefix("::") {
        Some(rest) if !word.is_empty() => paths(&path, rest, found),
        _ => {
            found.push(path);
            rest
        }
    }
}

/// All paths of a source, of `use` and of expressions.
fn all_paths(code: &str) -> Vec<Vec<&str>> {
    let (mut found, mut rest) = (Vec::new(), code);
    while let Some(start) = rest.find(is_word) {
        rest = paths(&[], &rest[start..], &mut found);
    }
    found
}

/// The modules that a source names by `crate::`.
fn named(source: &str) -> BTreeSet<String> {
    let code = code(source);
    let paths = all_paths(&code).into_iter();
    let own = paths.filter(|path| path.len() > 1 && path[0] == "crate");
    own.map(|path| path[1].to_owned()).collect()
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

/// The modules of a crate, by their paths, and the paths that their code names.
type Modules<'t> = BTreeMap<String, Vec<Vec<&'t str>>>;

/// The absolute path of one that `module` has; none if it leads out of the crate.
fn absolute<'p>(modules: &Modules<'_>, module: &'p str, path: &[&'p str]) -> Option<Vec<&'p str>> {
    let mut base: Vec<&str> = module.split("::").collect();
    let mut rest = path;
    match path {
        [_] => return None,
        ["crate", after @ ..] => (base, rest) = (Vec::new(), after),
        ["self", after @ ..] => rest = after,
        ["super", ..] => {
            while let ["super", after @ ..] = rest {
                base.pop();
                rest = after;
            }
        }
        [first, ..] if modules.contains_key(&format!("{module}::{first}")) => {}
        _ => return None,
    }
    Some([&base, rest].concat())
}

/// Modules through which a name is followed at most: two that take it from each other end this.
const PASSES_MAX: usize = 8;

/// The module that has what an absolute path names. What a module names by a path itself, perhaps
/// to pass it on, is where that path leads.
fn owner<'m>(modules: &'m Modules<'_>, path: &[&str]) -> Option<&'m str> {
    let mut path: Vec<String> = path.iter().map(|&word| word.to_owned()).collect();
    let mut last = None;
    for _ in 0..PASSES_MAX {
        let is_module = |n: &usize| modules.contains_key(&path[..*n].join("::"));
        let at = (1..=path.len()).rev().find(is_module)?;
        let (module, named) = modules.get_key_value(&path[..at].join("::"))?;
        last = Some(module.as_str());
        let Some(name) = path.get(at) else { break };
        let mut passed = named
            .iter()
            .filter(|passed| passed.last() == Some(&name.as_str()));
        let Some(passed) = passed.find_map(|passed| absolute(modules, module, passed)) else {
            break;
        };
        let passed = passed.into_iter().map(str::to_owned);
        path = passed.chain(path[at + 1..].iter().cloned()).collect();
    }
    last
}

/// Uses that cross folders and from which uses lead back.
fn circles(modules: &Modules<'_>) -> Vec<String> {
    let uses = |module: &'_ str, named: &'_ [Vec<&str>]| {
        let all = named.iter().filter_map(|path| {
            let path = absolute(modules, module, path)?;
            owner(modules, &path)
        });
        all.collect::<BTreeSet<&str>>()
    };
    let uses: BTreeMap<&str, BTreeSet<&str>> = modules
        .iter()
        .map(|(module, named)| (module.as_str(), uses(module, named)))
        .collect();
    let leads_to = |from, to| {
        let (mut seen, mut next) = (BTreeSet::from([from]), vec![from]);
        while let Some(module) = next.pop() {
            next.extend(uses[module].iter().filter(|used| seen.insert(**used)));
        }
        seen.contains(to)
    };
    let folder = |module: &str| module.split("::").next().map(str::to_owned);
    let all = uses
        .iter()
        .flat_map(|(from, used)| used.iter().map(move |to| (*from, *to)));
    all.filter(|&(from, to)| folder(from) != folder(to) && leads_to(to, from))
        .map(|(from, to)| format!("{from} names {to}, which leads back"))
        .collect()
}

#[test]
fn no_circle_of_modules_spans_folders() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let src = root.join("crates/dure-fs/src");
    let mut found = BTreeMap::new();
    sources(&src, None, &mut found);
    let module = |path: &Path| {
        let path = path.strip_prefix(&src).unwrap().with_extension("");
        let path = path.to_str().unwrap().replace('/', "::");
        path.strip_suffix("::mod").unwrap_or(&path).to_owned()
    };
    let read = |path: &PathBuf| code(&std::fs::read_to_string(path).unwrap());
    let sources: Vec<_> = found.keys().map(|path| (path, read(path))).collect();
    let modules: Modules<'_> = sources
        .iter()
        .map(|(path, code)| (module(path), all_paths(code)))
        .collect();
    assert!(modules.len() > 70, "the sources are not where they were");
    let mut wrong = circles(&modules);
    for (path, code) in &sources {
        // What the root passes on would hide where it is from.
        let passed = named(code)
            .into_iter()
            .any(|name| !modules.contains_key(&name));
        if passed || climbs_to_root(path.strip_prefix(&src).unwrap(), code) {
            wrong.push(format!("{} must say from which module", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn canary_a_circle_that_spans_folders_is_found() {
    let circles = |sources: &[(&str, &str)]| {
        let sources: Vec<_> = sources
            .iter()
            .map(|(name, text)| (*name, code(text)))
            .collect();
        let modules = sources
            .iter()
            .map(|(module, code)| ((*module).to_owned(), all_paths(code)));
        circles(&modules.collect())
    };
    // `b` passes on what is in `b::low`; only `b::high` leads to `a`.
    let b = (
        "b",
        "pub use high::High;\npub(crate) use self::low::{self, Low};",
    );
    let high = ("b::high", "use crate::a::{A, x::X}; use super::low;");
    let low = ("b::low", "//! [`crate::a`]\nfn low() {}");
    let v = ("v", "use crate::b::high;");
    let down = [
        ("a", "use crate::b::{Low};"),
        ("a::x", "use super::A;"),
        b,
        high,
        low,
        v,
    ];
    assert_eq!(circles(&down), Vec::<String>::new());
    let up = [
        ("a", "fn f() { crate::b::High::g() }"),
        ("a::x", ""),
        b,
        high,
        low,
        v,
    ];
    let expected = [
        "a names b::high, which leads back",
        "b::high names a, which leads back",
    ];
    assert_eq!(circles(&up), expected);
}

/// Sources that have methods of a type of `METHODS` and are in no place that may have them.
fn strangers<'p>(sources: impl Iterator<Item = (&'p str, &'p str)>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (place, source) in sources {
        for (of, places) in METHODS {
            let may = places.iter().any(|allowed| place.starts_with(allowed));
            if code(source).contains(of) && !may {
                wrong.push(format!("{place} has no room for `{of}`"));
            }
        }
    }
    wrong
}

#[test]
fn state_has_owners() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let src = root.join("crates/dure-fs/src");
    let mut found = BTreeMap::new();
    sources(&src, None, &mut found);
    let texts: Vec<_> = found
        .keys()
        .map(|path| (path, std::fs::read_to_string(path).unwrap()))
        .collect();
    let place = |path: &PathBuf| path.strip_prefix(&src).unwrap().display().to_string();
    let texts: Vec<_> = texts
        .iter()
        .map(|(path, text)| (place(path), text))
        .collect();
    let all = texts
        .iter()
        .map(|(place, text)| (place.as_str(), text.as_str()));
    assert_eq!(strangers(all), Vec::<String>::new());
}

#[test]
fn canary_a_method_of_the_volume_elsewhere_is_found() {
    let sources = [
        ("file/read.rs", "impl Volume {}"),
        ("calls/read.rs", "impl FileSystem {}"),
        ("inode/pin.rs", "// impl FileSystem {"),
    ];
    let expected = ["file/read.rs has no room for `impl Volume `"];
    assert_eq!(strangers(sources.into_iter()), expected);
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

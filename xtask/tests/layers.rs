//! Who may use whom, and who may use the standard library's concurrency.
//!
//! **Problem.** The compiler refuses cycles, not a dependency in the wrong direction, and nothing
//! refuses a clock or a thread that the simulation does not own. **Structure.** The layers of the
//! design as a constant, compared with the manifests, and so is the picture of the crates in
//! docs/design; the sources searched for four names. Each check has a canary. **Invariants.** A
//! crate that is in no layer fails. **Crash.** Nothing.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A crate may use what stands in earlier rows.
const LAYERS: &[&[&str]] = &[
    &["dure-vcpu"],
    &["dure-sync"],
    // The wire knows nothing of dure, but locks and threads come from the facade.
    &["dure-pmem", "dure-fuse-wire"],
    &["dure-block"],
    &["dure-journal"],
    &["dure-store"],
    // Beside each other: what checks shares only formats and replay with what it checks.
    &["dure-check", "dure-fs"],
    &["dure-fuse"],
    &["dure"],
    &["dure-capi", "dure-preload", "dure-sqlite", "dure-cli"],
];

/// These may use everything, and nothing may use them.
const OUTSIDE: &[&str] = &["dure-sim", "dure-bench", "dure-cost"];

/// Except for these: `dure bench` and `dure sim` are subcommands of the one binary.
const MAY_USE_OUTSIDE: &[(&str, &str)] = &[("dure-cli", "dure-bench"), ("dure-cli", "dure-sim")];

/// Names that only the facade and what lies below it may use.
const FACADE_ONLY: &[&str] = &["std::sync", "std::thread", "Instant", "SystemTime"];

/// Crates that may use them.
const BELOW_FACADE: &[&str] = &["dure-vcpu", "dure-sync"];

/// A crate, a name it may use nevertheless, and why.
const EXCEPTIONS: &[(&str, &str, &str)] = &[(
    "dure-sim",
    "std::thread",
    "the test harness names its thread after the test, which the replay line of a failed seed tells",
)];

fn crates() -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut crates: Vec<_> = std::fs::read_dir(root.join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().join("Cargo.toml").is_file())
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .collect();
    crates.sort();
    assert!(crates.len() >= 2, "the crates are not where they were");
    crates
}

/// The crates of ours that a manifest depends on, tests aside.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut in_dependencies = false;
    let mut found = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            in_dependencies = is_dependencies(section);
            // The form `[dependencies.name]`.
            if let Some((table, name)) = section.rsplit_once('.')
                && is_dependencies(table)
            {
                found.push(name.to_owned());
            }
        } else if in_dependencies {
            let end = line.find(['.', ' ', '=']).unwrap_or(line.len());
            found.push(line[..end].to_owned());
        }
    }
    found.retain(|name| name == "dure" || name.starts_with("dure-"));
    found
}

fn is_dependencies(section: &str) -> bool {
    let table = section.rsplit('.').next().unwrap_or(section);
    table == "dependencies" || table == "build-dependencies"
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|row| row.contains(&name))
}

/// What is wrong with a crate that depends on `uses`.
fn layer_errors(name: &str, uses: &[String]) -> Vec<String> {
    if OUTSIDE.contains(&name) {
        return Vec::new();
    }
    let Some(own) = layer(name) else {
        return vec![format!("{name} is in no layer: enter it in LAYERS")];
    };
    let allowed = |used: &str| {
        MAY_USE_OUTSIDE.contains(&(name, used)) || layer(used).is_some_and(|layer| layer < own)
    };
    uses.iter()
        .filter(|used| !allowed(used))
        .map(|used| format!("{name} must not depend on {used}"))
        .collect()
}

#[test]
fn crates_use_only_lower_layers() {
    let errors: Vec<_> = crates()
        .iter()
        .flat_map(|(name, path)| {
            let manifest = std::fs::read_to_string(path.join("Cargo.toml")).unwrap();
            layer_errors(name, &dependencies(&manifest))
        })
        .collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

#[test]
fn canary_wrong_edges_are_found() {
    let manifest = "[package]\nname = \"dure-fs\"\n[dependencies]\ndure-fuse.workspace = true\n\
                    libc = \"1\"\n[target.'cfg(unix)'.dependencies]\ndure-sync = { path = \"x\" }\n\
                    [dependencies.dure-sim]\nworkspace = true\n[dev-dependencies]\ndure = \"1\"\n";
    let uses = dependencies(manifest);
    assert_eq!(uses, ["dure-fuse", "dure-sync", "dure-sim"]);
    let errors = layer_errors("dure-fs", &uses);
    let expected = ["dure-fuse", "dure-sim"].map(|to| format!("dure-fs must not depend on {to}"));
    assert_eq!(errors, expected);
    assert_eq!(layer_errors("dure-utils", &[]).len(), 1);
    assert!(layer_errors("dure-cli", &["dure-bench".to_owned()]).is_empty());
}

/// The arrows of a picture in the language of graphviz.
fn arrows(dot: &str) -> BTreeSet<(String, String)> {
    let lines = dot.lines().filter_map(|line| line.split_once(" -> "));
    let name = |text: &str| text.split('"').nth(1).unwrap().to_owned();
    lines.map(|(from, to)| (name(from), name(to))).collect()
}

/// All that these arrows lead to, from each of their ends.
fn closure(arrows: &BTreeSet<(String, String)>) -> BTreeSet<(String, String)> {
    let mut all = arrows.clone();
    loop {
        let pairs = all.iter().flat_map(|(from, over)| {
            let on = all.iter().filter(move |(again, _)| again == over);
            on.map(move |(_, to)| (from.clone(), to.clone()))
        });
        let more: BTreeSet<_> = pairs.chain(all.iter().cloned()).collect();
        if more.len() == all.len() {
            return all;
        }
        all = more;
    }
}

/// What a picture shows of the manifests wrongly, or not at all.
fn picture_errors(dot: &str, uses: &BTreeSet<(String, String)>) -> Vec<(String, String)> {
    let (shown, real) = (closure(&arrows(dot)), closure(uses));
    shown.symmetric_difference(&real).cloned().collect()
}

/// Crates outside of the layers may use all; only who may use them is in the picture.
#[test]
fn the_picture_shows_what_the_manifests_say() {
    let mut uses = BTreeSet::new();
    for (name, path) in crates() {
        if !OUTSIDE.contains(&name.as_str()) {
            let manifest = std::fs::read_to_string(path.join("Cargo.toml")).unwrap();
            let used = dependencies(&manifest).into_iter();
            uses.extend(used.map(|used| (name.clone(), used)));
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let read = |name| std::fs::read_to_string(root.join("docs/design").join(name)).unwrap();
    let (dot, svg) = (read("architecture.dot"), read("architecture.svg"));
    assert_eq!(picture_errors(&dot, &uses), []);
    let drawn = svg.split("id=\"").filter_map(|rest| rest.split_once('"'));
    let drawn = drawn.filter_map(|(id, _)| id.split_once(".."));
    let drawn: BTreeSet<_> = drawn.map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
    assert_eq!(
        drawn,
        arrows(&dot),
        "architecture.svg is not architecture.dot"
    );
}

#[test]
fn canary_an_arrow_that_is_wrong_or_missing_is_found() {
    let edge = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    let uses = BTreeSet::from([edge("a", "b"), edge("b", "c"), edge("a", "c")]);
    let dot = "digraph x {\n  \"a\" -> \"b\";\n  \"b\" -> \"c\" [style = dashed];\n}";
    assert_eq!(picture_errors(dot, &uses), []);
    let wrong = picture_errors("\"a\" -> \"c\";\n\"b\" -> \"c\";", &uses);
    assert_eq!(wrong, [edge("a", "b")]);
    let wrong = picture_errors(&format!("{dot}\n\"c\" -> \"d\";"), &uses);
    assert_eq!(wrong, [edge("a", "d"), edge("b", "d"), edge("c", "d")]);
}

/// The source without comments, one entry per line.
fn code_lines(source: &str) -> Vec<&str> {
    source
        .lines()
        .map(|line| line.split("//").next().unwrap_or(""))
        .collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether `text` contains `name` as a whole path or identifier.
fn names(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(start, _)| {
        let before = text[..start].chars().next_back();
        let after = text[start + name.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// The forbidden names in a source, with the number of the line.
fn facade_errors(source: &str) -> Vec<(usize, &'static str)> {
    let lines = code_lines(source);
    let mut errors = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let found = FACADE_ONLY.iter().filter(|name| names(line, name));
        errors.extend(found.map(|name| (index + 1, *name)));
        // The grouped form `use std::{.., sync::..}`, up to the end of the statement.
        if let Some(start) = line.find("std::{") {
            let rest: String = std::iter::once(&line[start..])
                .chain(lines[index + 1..].iter().copied())
                .flat_map(|part| part.chars().chain(['\n']))
                .take_while(|c| *c != ';')
                .collect();
            let groups = [("sync", "std::sync"), ("thread", "std::thread")];
            let grouped = groups
                .into_iter()
                .filter(|(module, _)| names(&rest, module));
            errors.extend(grouped.map(|(_, name)| (index + 1, name)));
        }
    }
    errors
}

fn sources(folder: &Path, found: &mut BTreeMap<PathBuf, String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = std::fs::read_to_string(&path).unwrap();
            found.insert(path, source);
        }
    }
}

#[test]
fn only_the_facade_uses_threads_locks_and_clocks_of_std() {
    let mut errors = Vec::new();
    for (name, path) in crates() {
        if BELOW_FACADE.contains(&name.as_str()) {
            continue;
        }
        let mut files = BTreeMap::new();
        sources(&path, &mut files);
        for (file, source) in files {
            for (line, what) in facade_errors(&source) {
                let excepted = |(of, word, _): &(&str, &str, &str)| *of == name && *word == what;
                if !EXCEPTIONS.iter().any(excepted) {
                    errors.push(format!("{}:{line} names {what}", file.display()));
                }
            }
        }
    }
    assert!(
        errors.is_empty(),
        "use dure_sync instead:\n{}",
        errors.join("\n")
    );
}

/// The statics of a source that simulated machines of one test program would share.
fn shared_statics(source: &str) -> Vec<usize> {
    let shared = |line: &str| {
        let rest = line.split_once("static ").map(|(_, rest)| rest);
        let Some((name, kind)) = rest.and_then(|rest| rest.split_once(": ")) else {
            return false;
        };
        let kind = kind
            .trim_start_matches("dure_sync::")
            .trim_start_matches("crate::");
        let locks = ["OnceLock<", "LazyLock<", "Once ", "Mutex<", "RwLock<"];
        name.chars().all(is_word) && locks.iter().any(|lock| kind.starts_with(lock))
    };
    let lines = code_lines(source).into_iter().enumerate();
    lines
        .filter(|(_, line)| shared(line))
        .map(|(index, _)| index + 1)
        .collect()
}

#[test]
fn no_static_is_a_lock_that_simulated_machines_would_share() {
    let mut errors = Vec::new();
    for (_, path) in crates() {
        let mut files = BTreeMap::new();
        sources(&path.join("src"), &mut files);
        for (file, source) in files {
            let lines = shared_statics(&source).into_iter();
            errors.extend(lines.map(|line| format!("{}:{line}", file.display())));
        }
    }
    assert!(
        errors.is_empty(),
        "use dure_sync::ProcessOnce:\n{}",
        errors.join("\n")
    );
}

#[test]
fn canary_locks_in_statics_are_found() {
    let source = "static A: OnceLock<u8> = OnceLock::new();\n\
                  pub static B: dure_sync::Mutex<u8> = Mutex::new(1);\n\
                  static C: ProcessOnce<OnceLock<u8>> = ProcessOnce::new();\n\
                  fn d(e: &'static str, f: OnceLock<u8>) {}\n";
    assert_eq!(shared_statics(source), [1, 2]);
}

#[test]
fn canary_names_of_std_are_found() {
    let source = "use std::sync::Arc; // std::thread\n\
                  /// An Instant of no time.\n\
                  let now = std::time::Instant::now();\n\
                  use std::{\n    fmt,\n    thread,\n};\n\
                  let instants = dure_sync::thread::spawn(); let InstantOf = my_std::syncs();\n";
    assert_eq!(
        facade_errors(source),
        [(1, "std::sync"), (3, "Instant"), (4, "std::thread")]
    );
}

/// Features that only tests ask for, and their crates.
const FOR_TESTS: &[(&str, &str)] = &[("dure-sync", "canaries"), ("dure-fs", "store")];

/// Of the features for tests, those in what these edges lead to.
fn features_for_tests(edges: &str) -> Vec<(&'static str, &'static str)> {
    let tree = std::process::Command::new(env!("CARGO"))
        .args(["tree", "--workspace", "--offline", "--locked"])
        .args(["--prefix", "none", "--edges", edges, "--format", "{f};{p}"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&tree.stderr);
    assert!(tree.status.success(), "{errors}");
    let tree = String::from_utf8(tree.stdout).unwrap();
    let lines = || tree.lines().filter_map(|line| line.split_once(';'));
    let is_asked_for = |(name, feature): &(&str, &str)| {
        let of_crate = lines().filter(|(_, package)| package.split(' ').next() == Some(name));
        let mut features = of_crate.flat_map(|(features, _)| features.split(','));
        features.any(|asked| asked == *feature)
    };
    FOR_TESTS.iter().copied().filter(is_asked_for).collect()
}

/// Only test builds can leave rules out: no program that is built to be used, and no
/// program of somebody else's with a crate of these, can weaken what keeps its data.
#[test]
fn what_is_built_to_be_used_cannot_leave_a_rule_out() {
    assert_eq!(features_for_tests("normal,build"), []);
    assert_eq!(features_for_tests("normal,build,dev"), FOR_TESTS);
}

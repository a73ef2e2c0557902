//! `dure.h` says what the sources say: each function with its arguments, each struct with its
//! offsets.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::mem::offset_of;

use dure_c::{dure_dirent, dure_done, dure_snapshot, dure_stat, dure_statfs, dure_time};

use crate::tools::{compile, source};

/// What a function returns, and its arguments: types and names.
type Signature = (String, Vec<(String, String)>);

/// Type and name of `const char *path`.
fn in_c(argument: &str) -> (String, String) {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let kind = argument.trim_end_matches(is_name);
    let name = &argument[kind.len()..];
    (kind.trim().to_owned(), name.to_owned())
}

fn functions_of_header(text: &str) -> BTreeMap<String, Signature> {
    let pieces = text.split("/*").map(|piece| match piece.split_once("*/") {
        Some((_, code)) => code,
        None => piece,
    });
    let code: Vec<&str> = pieces.flat_map(str::split_whitespace).collect();
    let code = code.join(" ");
    let declarations = code.split([';', '{', '}']).filter_map(|declaration| {
        let (head, arguments) = declaration.split_once('(')?;
        let (returned, name) = in_c(head.trim());
        let arguments = arguments.strip_suffix(')')?;
        let arguments = arguments.split(", ").filter(|argument| *argument != "void");
        let known = name.starts_with("dure_");
        known.then(|| (name, (returned, arguments.map(in_c).collect())))
    });
    declarations.collect()
}

fn functions_of_source(text: &str) -> BTreeMap<String, Signature> {
    let functions = text.split("pub extern \"C\" fn ").skip(1);
    let functions = functions.map(|rest| {
        let (name, rest) = rest.split_once('(').unwrap();
        let (arguments, rest) = rest.split_once(") -> ").unwrap();
        let (returned, _) = rest.split_once(" {").unwrap();
        // No comma within the types but behind a lifetime.
        let arguments = arguments.replace("'_, ", "").replace("<'_>", "");
        let arguments = arguments.split(',').map(str::trim);
        let arguments = arguments.filter_map(|argument| argument.split_once(": "));
        let arguments = arguments.map(|(name, kind)| (kind.to_owned(), name.to_owned()));
        (name.to_owned(), (returned.to_owned(), arguments.collect()))
    });
    functions.collect()
}

/// What the type of a source may be in the header.
fn types_in_c(kind: &str) -> Vec<String> {
    let inner = |prefix: &str, suffix: &str| kind.strip_prefix(prefix)?.strip_suffix(suffix);
    if let Some(handle) = inner("Option<&dure_", ">") {
        return vec![format!("const dure_{handle} *")];
    }
    if let Some(handle) = inner("Option<Box<", ">>") {
        return vec![format!("{handle} *")];
    }
    if let Some(handle) = inner("NewHandle<", ">") {
        return vec![format!("{handle} **")];
    }
    if kind == "Place<c_int>" {
        return vec!["int *".to_owned()];
    }
    if let Some(place) = inner("Place<", ">") {
        return vec![format!("struct {place} *")];
    }
    let types: &[&str] = match kind {
        "Text" | "*const c_char" => &["const char *"],
        "Source" => &["const void *", "const gid_t *", "const struct timespec *"],
        "Target" => &["void *"],
        "Vectors" => &["const struct iovec *"],
        "Option<&mut i64>" => &["int64_t *"],
        "c_int" => &["int"],
        "u32" => &["uid_t", "gid_t", "mode_t", "uint32_t", "unsigned int"],
        "u64" => &["uint64_t"],
        "i64" => &["int64_t"],
        "usize" => &["size_t"],
        "isize" => &["ssize_t"],
        _ => &[],
    };
    types.iter().map(|kind| (*kind).to_owned()).collect()
}

/// What differs between a header and sources.
fn differences(header: &str, source: &str) -> Vec<String> {
    let (header, source) = (functions_of_header(header), functions_of_source(source));
    let mut wrong = Vec::new();
    let named = header.keys().chain(source.keys());
    for name in named.collect::<std::collections::BTreeSet<_>>() {
        let (Some(in_c), Some(in_rust)) = (header.get(name), source.get(name)) else {
            wrong.push(format!("{name} is in one of them only"));
            continue;
        };
        let fits = |in_c: &str, kind: &str| types_in_c(kind).iter().any(|kind| kind == in_c);
        let same = in_c.1.len() == in_rust.1.len() && fits(&in_c.0, &in_rust.0);
        let pairs = in_c.1.iter().zip(&in_rust.1);
        let mut pairs = pairs.map(|(a, b)| a.1 == b.1 && fits(&a.0, &b.0));
        if !same || !pairs.all(|good| good) {
            wrong.push(format!("{name}: {in_c:?} is not {in_rust:?}"));
        }
    }
    wrong
}

#[test]
fn each_function_is_declared_as_it_is() {
    let header = fs::read_to_string(source("include/dure.h")).unwrap();
    let files = fs::read_dir(source("src")).unwrap();
    let sources = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
    let sources: String = sources.collect();
    assert!(functions_of_source(&sources).len() >= 60);
    assert_eq!(differences(&header, &sources), [""; 0]);
}

#[test]
fn canary_a_declaration_that_differs_is_found() {
    let source =
        "pub extern \"C\" fn dure_a(\n    path: Text<'_>,\n    len: usize,\n) -> isize {\n}";
    let header = |text: &str| differences(text, source).len();
    assert_eq!(
        header("ssize_t dure_a(const char *path, /* x */\n size_t len);"),
        0
    );
    assert_eq!(header("int dure_a(const char *path, size_t len);"), 1);
    assert_eq!(header("ssize_t dure_a(char *path, size_t len);"), 1);
    assert_eq!(header("ssize_t dure_a(const char *path, int len);"), 1);
    assert_eq!(header("ssize_t dure_a(const char *name, size_t len);"), 1);
    assert_eq!(header("ssize_t dure_b(const char *path, size_t len);"), 2);
}

macro_rules! offsets {
    ($($of:ident { $($field:ident),* })*) => {{
        let mut text = String::new();
        $(
            $(writeln!(
                text,
                "_Static_assert(offsetof(struct {0}, {1}) == {2}, \"{0}.{1}\");",
                stringify!($of), stringify!($field), offset_of!($of, $field)
            ).unwrap();)*
            writeln!(
                text,
                "_Static_assert(sizeof(struct {0}) == {1}, \"{0}\");",
                stringify!($of), size_of::<$of>()
            ).unwrap();
        )*
        text
    }};
}

#[test]
fn each_struct_lies_as_it_is_declared() {
    let asserts = offsets! {
        dure_time { sec, nsec, reserved }
        dure_stat { ino, size, blocks, rdev, mode, nlink, uid, gid, blksize, reserved, atime, mtime,
            ctime, btime, spare }
        dure_statfs { block_bytes, blocks, blocks_free, blocks_available, inodes, inodes_free,
            name_max, spare }
        dure_dirent { ino, kind, name_len, name }
        dure_done { token, result }
        dure_snapshot { id, created, inodes, bytes, name, spare }
    };
    // The types that the sources have as numbers.
    let numbers = "_Static_assert(sizeof(uid_t) == 4 && sizeof(gid_t) == 4 && sizeof(mode_t) == 4, \
                   \"ids\");\n_Static_assert(sizeof(size_t) == 8 && sizeof(int) == 4, \"sizes\");\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("offsets.c");
    let main = "int main(void) { return 0; }\n";
    fs::write(
        &file,
        format!("#include <dure.h>\n{numbers}{asserts}{main}"),
    )
    .unwrap();
    compile(file.to_str().unwrap(), folder.path(), &[]);
}

//! The C compiler, and the archive to link with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Where sources of this crate are.
pub(crate) fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The archive that cargo made with this test: the newest one next to it.
pub(crate) fn archive() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let entries = fs::read_dir(test.parent().unwrap()).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let archives = paths.filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("libdure_c") && name.ends_with(".a")
    });
    let made = |path: &PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    archives.max_by_key(made).expect("cargo makes the archive")
}

/// The words of a compiler's call; none if there is no such compiler.
pub(crate) fn compiler(name: &str) -> Option<Command> {
    let there = Command::new(name).arg("--version").output();
    let works = there.is_ok_and(|there| there.status.success());
    if !works {
        eprintln!("skipped: there is no {name}");
    }
    works.then(|| Command::new(name))
}

/// Runs a command that must end well; what it said.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{error}",
        output.status
    );
    output
}

/// Compiles `path` of this crate as strictly as users might, with more words for the compiler; none
/// without a compiler.
pub(crate) fn compile(path: &str, folder: &Path, more: &[&str]) -> Option<PathBuf> {
    let (name, standard) = match path.ends_with(".cc") {
        true => ("c++", "-std=c++17"),
        false => ("cc", "-std=c11"),
    };
    let mut compile = compiler(name)?;
    let program = folder.join(Path::new(path).file_stem().unwrap());
    compile
        .args([
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pedantic",
            "-g",
            standard,
            "-I",
        ])
        .arg(source("include"))
        .args(more)
        .arg(source(path))
        .arg("-o")
        .arg(&program)
        .arg(archive())
        .args(["-lgcc_s", "-lpthread", "-lm", "-ldl"]);
    run(&mut compile);
    Some(program)
}

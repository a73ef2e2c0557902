//! Programs in C and C++: the examples, and what goes wrong.

use std::path::Path;
use std::process::Command;

use dure::{MountOptions, Volume};

use crate::tools::{archive, compile, compiler, run, source};

/// Compiles a program and runs it on an image; what it said, and what is left of the volume.
fn play(path: &str, more: &[&str]) -> Option<(String, Volume)> {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(path, folder.path(), more)?;
    let image = folder.path().join("v.img");
    let said = run(Command::new(program).arg(&image)).stdout;
    let volume = Volume::open(&image, MountOptions::default()).unwrap();
    Some((String::from_utf8(said).unwrap(), volume))
}

#[test]
fn the_first_example_makes_a_durable_file() {
    if let Some((said, volume)) = play("examples/c/first.c", &[]) {
        assert!(said.ends_with("has 14 bytes\ntoday\n"), "{said}");
        let text = volume.root().read_to_string("/notes/today").unwrap();
        assert_eq!(text, "sown together\n");
    }
}

/// The lines of the page, in a function.
#[test]
fn the_first_lines_of_the_page_work() {
    let page = std::fs::read_to_string(source("../../docs/user/c.md")).unwrap();
    let (_, code) = page.split_once("```c\n").unwrap();
    let (code, _) = code.split_once("```").unwrap();
    let (includes, lines) = code.split_once("\n\n").unwrap();
    let head = "#include <stdio.h>\n#include <stdlib.h>\nint main(int argc, char **argv)\n{\n";
    let lines = lines.replace("\"v.img\"", "argv[argc - 1]");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lines.c");
    let text = format!("{includes}\n{head}{lines}\nreturn bad;\n}}\n");
    std::fs::write(&file, text).unwrap();
    if let Some((_, volume)) = play(file.to_str().unwrap(), &[]) {
        assert_eq!(volume.root().read("/note").unwrap(), b"sown");
    }
}

#[test]
fn the_example_of_many_reads_reaps_them_all() {
    if let Some((said, volume)) = play("examples/c/async.c", &[]) {
        assert_eq!(said, "256 pages\n");
        let read = volume.root().read("/file").unwrap();
        assert!(read.len() == 256 << 12 && read[255 << 12..].iter().all(|byte| *byte == 255));
    }
}

#[test]
fn the_example_in_c_plus_plus_works() {
    if let Some((said, _)) = play("examples/c/first.cc", &[]) {
        assert_eq!(said, "sown together\n");
    }
}

#[test]
fn wrong_arguments_are_refused_and_do_not_crash() {
    play("tests/c/bad.c", &[]);
}

#[test]
fn eight_threads_of_c_share_a_volume() {
    if let Some((_, volume)) = play("tests/c/threads.c", &[]) {
        assert_eq!(volume.root().read_dir("/dir").unwrap().count(), 800);
    }
}

#[test]
fn a_volume_of_c_is_mounted_too() {
    if let Some((said, volume)) = play("tests/c/mounted.c", &[])
        && !said.starts_with("not run")
    {
        assert_eq!(volume.root().read("/mounted").unwrap(), b"sown there");
    }
}

#[test]
fn signals_are_for_threads_of_the_program() {
    play("tests/c/signals.c", &[]);
}

#[test]
fn a_child_may_close_and_exit_only() {
    if let Some((_, volume)) = play("tests/c/fork.c", &[]) {
        assert_eq!(volume.root().read("/file").unwrap(), b"p");
        assert_eq!(volume.root().read("/named").unwrap(), b"t");
    }
}

/// Whether programs with the address sanitizer can be made and run here.
fn has_sanitizer(folder: &Path) -> bool {
    let source = folder.join("empty.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let program = folder.join("empty");
    let Some(mut compile) = compiler("cc") else {
        return false;
    };
    compile
        .arg("-fsanitize=address")
        .arg(source)
        .arg("-o")
        .arg(&program);
    let made = compile.output().unwrap().status.success();
    let works = made
        && Command::new(program)
            .status()
            .is_ok_and(|ended| ended.success());
    if !works {
        eprintln!("skipped: the compiler has no address sanitizer");
    }
    works
}

#[test]
fn the_address_sanitizer_has_nothing_to_say() {
    let folder = tempfile::tempdir().unwrap();
    if !has_sanitizer(folder.path()) {
        return;
    }
    for path in ["examples/c/first.c", "tests/c/bad.c", "tests/c/threads.c"] {
        play(path, &["-fsanitize=address"]);
    }
}

/// The library itself is not instrumented: what is seen of it are leaks, and memory freed twice.
#[test]
fn canary_the_address_sanitizer_sees_a_handle_that_is_left_open() {
    let folder = tempfile::tempdir().unwrap();
    if !has_sanitizer(folder.path()) {
        return;
    }
    let program = compile("tests/c/left.c", folder.path(), &["-fsanitize=address"]).unwrap();
    let mut left = Command::new(program);
    let ended = left.arg(folder.path().join("v.img")).output().unwrap();
    let error = String::from_utf8_lossy(&ended.stderr);
    assert!(
        !ended.status.success() && error.contains("LeakSanitizer"),
        "{error}"
    );
}

#[test]
fn programs_run_with_the_shared_library() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut compile) = compiler("cc") else {
        return;
    };
    run(Command::new("sh")
        .arg(source("link.sh"))
        .arg(archive())
        .arg(folder.path()));
    let (program, image) = (folder.path().join("first"), folder.path().join("v.img"));
    compile
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(source("include"))
        .arg(source("examples/c/first.c"))
        .arg("-L")
        .arg(folder.path())
        .args(["-ldure", "-o"])
        .arg(&program);
    run(&mut compile);
    let library = folder.path().join("libdure.so.0");
    let mut first = Command::new(&program);
    run(first.arg(&image).env("LD_LIBRARY_PATH", folder.path()));
    let Some(mut symbols) = compiler("nm") else {
        return;
    };
    let symbols = run(symbols.args(["-D", "--defined-only"]).arg(library)).stdout;
    let symbols = String::from_utf8(symbols).unwrap();
    let names = symbols
        .lines()
        .filter_map(|line| line.split(' ').next_back());
    let names: Vec<&str> = names.filter(|name| *name != "DURE_0").collect();
    assert!(names.len() >= 60, "{symbols}");
    for name in names {
        assert!(
            name.starts_with("dure_") && name.ends_with("@@DURE_0"),
            "{name}"
        );
    }
}

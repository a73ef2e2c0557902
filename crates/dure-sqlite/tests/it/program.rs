//! The shell `sqlite3`, with the extension that cargo made with this test.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use dure::{CreateOptions, MountOptions, Volume};

/// The library.
pub(crate) fn extension() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.with_file_name("libdure_sqlite.so");
    assert!(library.is_file(), "cargo makes {}", library.display());
    library
}

/// Makes a volume of `bytes`.
pub(crate) fn make(image: &Path, bytes: u64) {
    let options = CreateOptions {
        image_bytes: Some(bytes),
        ..CreateOptions::default()
    };
    Volume::create(image, &options).unwrap().close().unwrap();
}

/// Opens a volume that nobody else has open.
pub(crate) fn volume(image: &Path) -> Volume {
    Volume::open(image, MountOptions::default()).unwrap()
}

/// A program that is installed and starts.
pub(crate) fn installed(name: &str) -> Option<Command> {
    let there = Command::new(name).arg("--version").output();
    let works = there.is_ok_and(|there| there.status.success());
    if !works {
        eprintln!("skipped: there is no {name}");
    }
    works.then(|| Command::new(name))
}

/// Starts the shell with lines of input after those that load the extension.
pub(crate) fn start(lines: &str) -> Option<Child> {
    let mut shell = installed("sqlite3")?;
    shell.args(["-batch", "-bail", ":memory:"]);
    shell
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = shell.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let text = format!(".load {}\n{lines}", extension().display());
    // The shell may end before it has read everything.
    let feed = move || {
        let _ = input.write_all(text.as_bytes());
    };
    drop(dure_sync::thread::spawn("input", feed));
    Some(child)
}

/// Runs the shell to its end.
pub(crate) fn run(lines: &str) -> Option<Output> {
    Some(start(lines)?.wait_with_output().unwrap())
}

/// Runs the shell, which must succeed; what it said.
pub(crate) fn said(lines: &str) -> Option<String> {
    let output = run(lines)?;
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && error.is_empty(),
        "{lines}: {error}"
    );
    Some(String::from_utf8(output.stdout).unwrap())
}

/// The line that opens the database `name` of a volume.
pub(crate) fn opening(image: &Path, name: &str) -> String {
    format!(".open file:{}/{name}?vfs=dure\n", image.display())
}

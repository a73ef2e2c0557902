//! The commands on the pages for users, and the examples of the manual, do what they say.

#![expect(clippy::unwrap_used, reason = "tests panic")]

use std::fs;
use std::path::Path;
use std::process::Command;

use dure_cli::manual::{pages as manual_pages, pages_to_run};

use crate::pages::pages;
use crate::program::{can_mount, printed, text, volume};

/// Shell commands of a page: the blocks that begin with "```sh", or, if something can be mounted,
/// with "```sh mount".
fn commands(page: &str, mounts: bool) -> Vec<String> {
    let blocks = page.split("\n```").skip(1).step_by(2);
    let blocks = blocks.map(|block| block.split_once('\n').unwrap_or((block, "")));
    let runs = |head: &str| head == "sh" || (mounts && head == "sh mount");
    let chosen = blocks.filter(|(head, _)| runs(head));
    chosen.map(|(_, body)| body.to_owned()).collect()
}

/// Runs a line of the shell where `dure` and the names of system tools are this program.
fn run(line: &str, folder: &Path) {
    let names = folder.join("names");
    fs::create_dir_all(&names).unwrap();
    for name in ["dure", "mkfs.dure", "fsck.dure"] {
        let program = env!("CARGO_BIN_EXE_dure");
        // It may be there from an earlier line.
        let _ = std::os::unix::fs::symlink(program, names.join(name));
    }
    let path = format!("{}:{}", names.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", line]).env("PATH", &path);
    // Not where servers of this machine have theirs.
    shell.env("STATE_DIRECTORY", folder.join("state"));
    let output = shell.current_dir(folder).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}\n{errors}");
}

#[test]
fn the_commands_of_every_page_work() {
    let mounts = can_mount();
    let mut pages_run = 0;
    for (path, page) in pages() {
        let folder = tempfile::tempdir().unwrap();
        // The README copies a tree of the reader.
        fs::create_dir(folder.path().join("src")).unwrap();
        let blocks = commands(&page, mounts);
        pages_run += u32::from(!blocks.is_empty());
        for block in blocks {
            run(&block, folder.path());
        }
        if path.ends_with("quick-start.md") {
            let copied = fs::read(folder.path().join("copied")).unwrap();
            assert_eq!(copied, b"hello\n");
        }
    }
    assert!(pages_run >= 2, "only {pages_run} pages have commands");
}

/// Of pages whose examples take long, or need what is not here.
const NOT_RUN: [&str; 9] = [
    "demo",
    "sim",
    "sim crash",
    "sim conflicts",
    "sim scale",
    "sim experiments",
    "sim calibrate",
    "sim validate",
    "top",
];

/// Without the feature `wrap_help` of clap the options of `dure mount` are one line of 4,500 columns.
#[test]
fn every_help_has_lines_that_can_be_read() {
    for page in manual_pages() {
        for help in ["-h", "--help"] {
            let arguments: Vec<&str> = page.command.split(' ').chain([help]).collect();
            let text = printed(&arguments);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest.is_some_and(|widest| widest <= 100), "{text}");
        }
    }
}

#[test]
fn the_examples_of_the_manual_work() {
    let mounts = can_mount();
    for page in pages_to_run() {
        let needs_mount = ["mount", "umount", "run"].contains(&page.command);
        if NOT_RUN.contains(&page.command) || (needs_mount && !mounts) {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let image = volume(folder.path());
        let note = folder.path().join("note");
        fs::write(&note, "hello").unwrap();
        fs::create_dir(folder.path().join("dir")).unwrap();
        printed(&["put", "-q", text(&image), text(&note), "/"]);
        printed(&["mkdir", text(&image), "/tree"]);
        for (_, line) in page.examples {
            // A line of a file, a device of the reader, a repair that there is none of.
            let foreign = ["/srv/", "/dev/sd", "dure undo"];
            if foreign.iter().any(|start| line.contains(start)) {
                continue;
            }
            let line = line.replace("/run/", &format!("{}/", folder.path().display()));
            match page.command {
                "mount" => run(&format!("{line}\ndure umount dir"), folder.path()),
                "umount" => run(&format!("dure mount v.img dir\n{line}"), folder.path()),
                _ => run(&line, folder.path()),
            }
        }
    }
}

//! The commands on the pages for users do what the pages say.

#![expect(clippy::unwrap_used, reason = "tests panic")]

use std::path::Path;
use std::process::Command;

use crate::program::can_mount;

/// Shell commands of a page: the blocks that begin with "```sh", or, if something can be mounted,
/// with "```sh mount".
fn commands(page: &str, mounts: bool) -> Vec<String> {
    let mut blocks = page.split("```");
    let (mut found, mut inside) = (Vec::new(), false);
    for block in blocks.by_ref() {
        if inside {
            let (head, body) = block.split_once('\n').unwrap_or((block, ""));
            let runs = head == "sh" || (mounts && head == "sh mount");
            if runs {
                found.push(body.to_owned());
            }
        }
        inside = !inside;
    }
    found
}

#[test]
fn the_quick_start_works() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/user/quick-start.md")).unwrap();
    let blocks = commands(&page, can_mount());
    assert!(!blocks.is_empty(), "the page has commands");
    let folder = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_dure")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    for block in blocks {
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", &block]).env("PATH", &path);
        let output = shell.current_dir(folder.path()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{block}\n{errors}");
    }
    let copied = std::fs::read(folder.path().join("copied")).unwrap();
    assert_eq!(copied, b"hello\n");
}

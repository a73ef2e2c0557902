//! Running cargo, also with another backend.
//!
//! **Problem.** A backend is a build of the whole stack. **Structure.** RUSTFLAGS carries the cfg,
//! and each backend has a target directory of its own, so that builds do not evict each other.
//! **Invariants.** The exit status of cargo decides. **Crash.** Everything can be run again.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The root of the repository: of that which cargo says to a program it runs, so that `dist --twice`
/// can name a copy.
pub(crate) fn root() -> PathBuf {
    let said = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    said.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")))
        .parent()
        .expect("xtask lies in the repository")
        .to_owned()
}

/// Where cargo builds.
pub(crate) fn target() -> PathBuf {
    let chosen = std::env::var_os("CARGO_TARGET_DIR");
    root().join(chosen.map_or_else(|| PathBuf::from("target"), PathBuf::from))
}

/// `cargo`, in the root of the repository.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// `cargo` with a backend.
fn with_backend(backend: &str) -> Command {
    let mut flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    flags.push_str(&format!(" --cfg dure_backend=\"{backend}\""));
    let mut command = cargo();
    command
        .env("RUSTFLAGS", flags.trim_start())
        .env("CARGO_TARGET_DIR", root().join("target").join(backend));
    command
}

/// The machine that dure is for.
const HOST: &str = "x86_64-unknown-linux-gnu";

/// Where [`release`] builds: apart from other builds, whose flags differ.
fn released() -> PathBuf {
    target().join("released")
}

/// Runs cargo with the words of `line`, a build in the release profile. No path of this machine is left
/// in what it makes: the same sources make the same bytes in every folder. The path of `file`.
pub(crate) fn release(line: &str, file: &str) -> Result<PathBuf> {
    let mut fetch = cargo();
    // Crates for other machines are not needed, and a machine without a network may lack them.
    fetch.args(["fetch", "--quiet", "--target", HOST]);
    run(fetch)?;
    let mut paths = vec![(root(), "/dure"), (released(), "/dure/target")];
    // There is none where all crates are vendored.
    for registry in std::fs::read_dir(home()?.join("registry/src"))
        .into_iter()
        .flatten()
    {
        paths.push((registry?.path(), "/registry"));
    }
    let words = |variable| std::env::var(variable).unwrap_or_default();
    let mut rust: Vec<String> = words("RUSTFLAGS")
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    // mimalloc tells when it was compiled.
    let times = "-Wno-builtin-macro-redefined '-D__DATE__=\"\"' '-D__TIME__=\"\"'";
    let mut c = format!("{} {times}", words("CFLAGS"));
    for (from, to) in &paths {
        rust.push(format!("--remap-path-prefix={}={to}", from.display()));
        c.push_str(&format!(" '-ffile-prefix-map={}={to}'", from.display()));
    }
    let mut build = cargo();
    build
        .env("CARGO_ENCODED_RUSTFLAGS", rust.join("\x1f"))
        .env("CFLAGS", c)
        .env("CC_SHELL_ESCAPED_FLAGS", "1")
        .env("CARGO_TARGET_DIR", released())
        .args(line.split(' '));
    run(build)?;
    Ok(released().join("release").join(file))
}

/// Where cargo keeps the sources of other crates.
fn home() -> Result<PathBuf> {
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        return Ok(home.into());
    }
    let home = std::env::var_os("HOME").context("HOME says where cargo keeps its sources")?;
    Ok(Path::new(&home).join(".cargo"))
}

/// `cargo test` with a backend, in the profile `explore`.
pub(crate) fn test_with_backend(backend: &str) -> Command {
    let mut command = with_backend(backend);
    command.args(["test", "--profile", "explore"]);
    command
}

/// Builds the `dure` program for simulated cores; its path.
pub(crate) fn build_simulated_dure() -> Result<PathBuf> {
    let mut build = with_backend("sim");
    build.args(["build", "--profile", "explore", "-p", "dure-cli"]);
    run(build)?;
    Ok(root().join("target/sim/explore/dure"))
}

/// Builds the `dure` program in the release profile; its path.
pub(crate) fn build_dure() -> Result<PathBuf> {
    release("build --release -p dure-cli", "dure")
}

/// Builds the extension for SQLite in the release profile; its path.
pub(crate) fn build_extension() -> Result<PathBuf> {
    // Without the crate for Rust, as which it would have the crates below built once more.
    let what = "rustc --release -p dure-sqlite --lib --crate-type cdylib";
    release(what, "libdure_sqlite.so")
}

/// Builds what `dure run` loads into a program in the release profile; its path.
pub(crate) fn build_preload() -> Result<PathBuf> {
    let what = "rustc --release -p dure-preload --lib --crate-type cdylib";
    release(what, "libdure_preload.so")
}

/// Runs a command to its end.
pub(crate) fn run(mut command: Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}

//! Running cargo, also with another backend.
//!
//! **Problem.** A backend is a build of the whole stack. **Structure.** RUSTFLAGS carries the cfg,
//! and each backend has a target directory of its own, so that builds do not evict each other.
//! **Invariants.** The exit status of cargo decides. **Crash.** Everything can be run again.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask
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
    let mut build = cargo();
    build.args(["build", "--release", "-p", "dure-cli"]);
    run(build)?;
    Ok(target().join("release/dure"))
}

/// Builds the extension for SQLite in the release profile; its path.
pub(crate) fn build_extension() -> Result<PathBuf> {
    let mut build = cargo();
    build.args(["build", "--release", "-p", "dure-sqlite"]);
    run(build)?;
    Ok(target().join("release/libdure_sqlite.so"))
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

//! The process of a server: how it starts, leaves its terminal, and is told to end.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use dure_fuse::mount::Lazy;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::Mount;
use crate::exit;
use crate::log::{self, Level};

/// Set for the server process that `dure mount` starts: it reports on standard output when it
/// serves.
pub(super) const SERVER: &str = "DURE_MOUNT_SERVER";
const READY: &str = "ready";

/// Starts this program again as the server and waits until it serves or fails.
pub(super) fn start_server(args: &Mount) -> Result<u8> {
    let program = std::env::current_exe().context("finding the dure program")?;
    let mut command = Command::new(program);
    command
        .arg("mount")
        .arg(&args.volume)
        .arg(&args.directory)
        .arg("--foreground");
    if !args.options.is_empty() {
        command.arg("-o").arg(args.options.join(","));
    }
    if args.sloppy {
        command.arg("--sloppy");
    }
    for region in &args.regions.files {
        command.arg("--nvm").arg(region);
    }
    if let Some(file) = &args.log {
        command.arg("--log").arg(file);
    }
    if let Some(level) = args.log_level {
        command.arg("--log-level").arg(level.name());
    }
    if let Some(place) = &args.metrics {
        command.arg("--metrics").arg(place);
    }
    command
        .env(SERVER, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut server = command.spawn().context("starting the server process")?;
    let mut line = String::new();
    let out = server.stdout.take().expect("the standard output was piped");
    BufReader::new(out)
        .read_line(&mut line)
        .context("waiting for the server process")?;
    if line.trim_end() == READY {
        return Ok(exit::OK);
    }
    // It has said why on standard error.
    let status = server.wait().context("waiting for the server process")?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(exit::FAILED))
}

/// SIGINT and SIGTERM unmount; a directory in use is detached, so that the volume can be closed all
/// the same.
pub(super) fn end_on_signals(directory: std::path::PathBuf) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("waiting for signals")?;
    let _ = dure_sync::thread::spawn("dure-signals", move || {
        for signal in signals.forever() {
            log::said(Level::Info, &format!("signal {signal}: unmounting"));
            if dure_fuse::unmount(&directory, Lazy::No).is_err() {
                let _ = dure_fuse::unmount(&directory, Lazy::Yes);
            }
        }
    });
    Ok(())
}

/// Tells the waiting command that the mount is there, and leaves its terminal.
pub(super) fn detach() -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{READY}")
        .and_then(|()| out.flush())
        .context("reporting that the mount is there")?;
    // Already leading a session is as good.
    let _ = rustix::process::setsid();
    let null = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    std::env::set_current_dir("/").context("leaving the working directory")
}

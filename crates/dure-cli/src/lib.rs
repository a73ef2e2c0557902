//! The command line of dure: arguments in, text and exit codes out.
//!
//! **Structure.** [`args`] declares every command and option; `command/` has one file per command;
//! [`name`] turns `mkfs.dure`, `mount.dure` and `fsck.dure` into their subcommands; [`exit`] holds
//! the exit codes; `size`, `progress`, `mounts` and `volume` are shared by the commands; `advice` says what a user can
//! do about an error; `live` is
//! how `dure top` asks the server of a mount; `log` is what that server has to say.
//!
//! **Invariants.** Results go to standard output, everything else to standard error. An error is
//! one line: what, where, what to do. Nothing is left half made.

mod advice;
pub mod args;
mod blank;
mod command;
pub mod exit;
mod live;
mod log;
pub mod manual;
mod metrics;
mod mounts;
pub mod name;
mod numa;
mod progress;
use dure_bench::size;
mod volume;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::FromArgMatches;
use dure_bench::{note, print};

use args::{Args, Command};

/// Runs the command in `argv` (its own name first). `return_memory_soon` makes the allocator give freed
/// memory back to the system at once: a mount with a small cache asks for it.
#[must_use]
pub fn main(argv: Vec<OsString>, return_memory_soon: fn()) -> ExitCode {
    let helps_mount = name::is_mount_helper(&argv);
    let argv = name::expand(argv);
    let checking = argv
        .get(1)
        .is_some_and(|command| command == "check" || command == "scrub");
    let matches = manual::command().try_get_matches_from(argv);
    let args = match matches.and_then(|matches| Args::from_arg_matches(&matches)) {
        Ok(args) => args,
        Err(error) => {
            // clap prints help and version to standard output, errors to standard error.
            let code = match (error.use_stderr(), checking) {
                (false, _) => exit::OK,
                (true, false) if helps_mount => exit::FAILED,
                (true, false) => exit::USAGE,
                (true, true) => exit::CHECK_USAGE,
            };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let volume = args.command.volume().map(Path::to_owned);
    let status = print::until_closed(|| match run(args.command, return_memory_soon) {
        Ok(code) => code,
        Err(error) => {
            let mut text = message(&error);
            if let Some(step) = volume.and_then(|volume| advice::of_volume(&error, &volume)) {
                text.push_str("; ");
                text.push_str(&step);
            }
            note!("dure: {text}");
            match (checking, helps_mount) {
                (true, _) => exit::CHECK_FAILED,
                (_, true) => exit::FAILED,
                _ => exit::of(&error),
            }
        }
    });
    ExitCode::from(status)
}

/// The error and its causes on one line; a cause that the text in front of it already tells is left
/// out.
pub(crate) fn message(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    if let Some(advice) = advice::of(error) {
        text.push_str("; ");
        text.push_str(&advice);
    }
    text
}

fn run(command: Command, return_memory_soon: fn()) -> anyhow::Result<u8> {
    match command {
        Command::Mkfs(args) => command::mkfs::run(&args),
        Command::Mount(args) => command::mount::run(&args, return_memory_soon),
        Command::Umount(args) => command::umount::run(&args),
        Command::Run(args) => command::run::run(&args),
        Command::Check(args) => command::check::run(&args),
        Command::Undo(args) => command::undo::run(&args),
        Command::Rescue(args) => command::rescue::run(&args),
        Command::Resize(args) => command::resize::run(&args),
        Command::Upgrade(args) => command::upgrade::run(&args),
        Command::Snapshot(args) => command::snapshot::run(&args),
        Command::Quota(args) => command::quota::run(&args),
        Command::Send(args) => command::stream::send(&args),
        Command::Receive(args) => command::stream::receive(&args),
        Command::Scrub(args) => command::scrub::run(&args),
        Command::Trim(args) => command::trim::run(&args),
        Command::Info(args) => command::info::run(&args),
        Command::Top(args) => command::top::run(&args),
        Command::Ls(args) => command::ls::run(&args),
        Command::Cat(args) => command::cat::run(&args),
        Command::Put(args) => command::copy::put(&args),
        Command::Clone(args) => command::copy::clone(&args),
        Command::Get(args) => command::copy::get(&args),
        Command::Rm(args) => command::rm::run(&args),
        Command::Mkdir(args) => command::mkdir::run(&args),
        Command::Dump(args) => command::dump::run(&args),
        Command::Demo(args) => command::demo::run(&args),
        Command::Bench(args) => command::bench::run(args),
        Command::Blk(args) => dure_bench::blk::command(&args).map(|()| exit::OK),
        Command::Sim(args) => command::sim::run(&args),
    }
}

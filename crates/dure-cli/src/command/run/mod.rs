//! `dure run`: a program with a volume mounted, whose calls on files of the volume do not leave it.
//!
//! **Problem.** A program that nobody changes is to have the library's calls. **Structure.**
//! [`dure::run::kind`] says whether a library can be loaded into it. If so, `libdure_preload.so` does
//! the work (`preloaded`); otherwise the volume is served here while the program runs (`mounted`).
//! **Invariants.** The status is the program's. A directory that was made for the mount is removed. **On a crash** of this process
//! the program goes on.

mod mounted;
mod preloaded;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result};
use dure::run::{Calls, Program};
use dure_bench::note;

use crate::args::Run;
use crate::exit;

/// Names the directory of the mount to the program.
const DIRECTORY: &str = "DURE_DIR";

/// What is run where.
struct Plan<'a> {
    /// An absolute path.
    volume: PathBuf,
    /// Likewise.
    at: PathBuf,
    begins_inside: bool,
    args: &'a Run,
    program: PathBuf,
}

/// How it has ended.
struct Outcome {
    status: ExitStatus,
    /// How its calls went; none if none could be done in it.
    calls: Option<Calls>,
}

/// A directory that was made for the mount. Not one that removes what is in it: that may be the volume.
struct Made(PathBuf);

impl Made {
    fn new() -> Result<Made> {
        let made = tempfile::Builder::new().prefix("dure-run-").tempdir()?;
        Ok(Made(made.keep()))
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // While others use the mount it stays.
        let _ = std::fs::remove_dir(&self.0);
    }
}

pub(crate) fn run(args: &Run) -> Result<u8> {
    dure::run::options(&args.options).map_err(exit::WrongArguments)?;
    let (volume, directory) = split(&args.place);
    let volume = volume
        .canonicalize()
        .with_context(|| volume.display().to_string())?;
    let made = match directory {
        Some(_) => None,
        None => Some(Made::new()?),
    };
    let at = directory.unwrap_or_else(|| made.as_ref().map_or(Path::new(""), |made| &made.0));
    let at = at
        .canonicalize()
        .with_context(|| at.display().to_string())?;
    let named = &args.program[0];
    let Some(program) = dure::run::find(named) else {
        anyhow::bail!("{}: no such program", named.display());
    };
    let kind = dure::run::kind(&program);
    let plan = Plan {
        volume,
        at,
        begins_inside: made.is_some(),
        args,
        program,
    };
    let outcome = match kind {
        Program::Loads => preloaded::run(&plan)?,
        Program::LoadsNothing(why) => {
            if args.report {
                note!(
                    "dure: {}: {why}: all its calls go through the mount",
                    plan.program.display()
                );
            }
            mounted::run(&plan)?
        }
    };
    drop(made);
    if let (true, Some(calls)) = (args.report, outcome.calls) {
        report(calls);
    }
    Ok(status(outcome.status))
}

fn report(calls: Calls) {
    note!(
        "dure: {} calls were done in the program, {} on its open files by the kernel",
        calls.short,
        calls.long
    );
}

/// The volume, and the directory behind a colon.
fn split(place: &Path) -> (&Path, Option<&Path>) {
    let bytes = place.as_os_str().as_bytes();
    let colon = bytes.iter().rposition(|byte| *byte == b':');
    match colon.filter(|_| !place.exists()) {
        Some(colon) => {
            let part = |bytes| Path::new(OsStr::from_bytes(bytes));
            (part(&bytes[..colon]), Some(part(&bytes[colon + 1..])))
        }
        None => (place, None),
    }
}

impl Plan<'_> {
    /// The program with its arguments.
    fn command(&self) -> Command {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(&self.program);
        command.arg0(&self.args.program[0]);
        command.args(&self.args.program[1..]);
        command.env(DIRECTORY, &self.at);
        command
    }
}

/// As a shell tells it.
fn status(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(exit::FAILED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_stands_behind_the_last_colon() {
        let parts = |place| split(Path::new(place));
        assert_eq!(parts("v.img"), (Path::new("v.img"), None));
        assert_eq!(
            parts("a:b/v.img:/mnt"),
            (Path::new("a:b/v.img"), Some(Path::new("/mnt")))
        );
        let folder = tempfile::tempdir().unwrap();
        let odd = folder.path().join("v:img");
        std::fs::write(&odd, "").unwrap();
        assert_eq!(split(&odd), (odd.as_path(), None));
    }
}

//! Exit codes. `check` follows fsck(8), and `rescue` tells a loss as it does; every other command
//! ends with 0, 1 or 2.

use dure_bench::note;

/// Done.
pub const OK: u8 = 0;
/// The command failed; standard error says why.
pub const FAILED: u8 = 1;
/// The arguments were wrong.
pub const USAGE: u8 = 2;
/// `check`: errors were found and repaired.
pub const CHECK_REPAIRED: u8 = 1;
/// `check`: errors were found and left.
pub const CHECK_ERRORS_LEFT: u8 = 4;
/// `check`: the check itself failed.
pub const CHECK_FAILED: u8 = 8;
/// `check`: the arguments were wrong; 2 would ask init to reboot.
pub const CHECK_USAGE: u8 = 16;
/// `rescue`: something is lost.
pub const RESCUE_LOST: u8 = 4;

/// What was wrong about the arguments, where the command itself found it.
#[derive(Debug)]
pub(crate) struct WrongArguments(pub(crate) String);

impl std::fmt::Display for WrongArguments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongArguments {}

/// The status of a command that failed.
pub(crate) fn of(error: &anyhow::Error) -> u8 {
    match error.is::<WrongArguments>() {
        true => USAGE,
        false => FAILED,
    }
}

/// `OK` if nothing has failed; else every failure is told, the last one by the caller.
pub(crate) fn unless(mut failed: Vec<anyhow::Error>) -> anyhow::Result<u8> {
    let Some(last) = failed.pop() else {
        return Ok(OK);
    };
    for error in &failed {
        note!("dure: {}", crate::message(error));
    }
    Err(last)
}

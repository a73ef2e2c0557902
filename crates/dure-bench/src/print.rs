//! Standard output and standard error of a program whose reader may go away (`| head -1`).
//!
//! **Problem.** `println!` panics when its reader has gone, in the middle of anything.
//! **Structure.** [`line()`] and [`text`] unwind without a message, so that volumes are closed and
//! temporary files removed on the way; [`until_closed`], around the whole program, ends it as
//! SIGPIPE would have. **Invariants.** Clippy refuses `println!` and `eprintln!` in the crates that
//! use this. A failed write to standard error never ends the program. **Crash.** Nothing is kept.

use std::any::Any;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The status of a program that SIGPIPE ended, as shells show it.
pub const CLOSED: u8 = 128 + 13;
const FAILED: u8 = 1;

/// Why printing ended the program.
struct Ended(io::Error);

/// Prints to standard output.
pub fn text(text: Arguments<'_>) {
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_fmt(text).and_then(|()| out.flush()) {
        resume_unwind(Box::new(Ended(error)));
    }
}

/// Prints bytes to standard output.
pub fn bytes(bytes: &[u8]) {
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_all(bytes).and_then(|()| out.flush()) {
        resume_unwind(Box::new(Ended(error)));
    }
}

/// Prints a line to standard output.
pub fn line(line: Arguments<'_>) {
    text(format_args!("{line}\n"));
}

/// Prints a line to standard error, and ignores an error.
pub fn note(line: Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(format_args!("{line}\n"));
}

/// Runs a program, and returns its status: [`CLOSED`] if the reader of its output went away.
pub fn until_closed(program: impl FnOnce() -> u8) -> u8 {
    catch_unwind(AssertUnwindSafe(program)).unwrap_or_else(status)
}

fn status(ended: Box<dyn Any + Send>) -> u8 {
    match ended.downcast::<Ended>() {
        Ok(ended) if ended.0.kind() == ErrorKind::BrokenPipe => CLOSED,
        Ok(ended) => {
            note(format_args!("dure: standard output: {}", ended.0));
            FAILED
        }
        Err(bug) => resume_unwind(bug),
    }
}

/// Prints a line to standard output, as `println!`, and ends quietly when the reader has gone.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::print::line(format_args!($($text)*)) };
}

/// Prints a line to standard error, as `eprintln!`, and ignores an error.
#[macro_export]
macro_rules! note {
    ($($text:tt)*) => { $crate::print::note(format_args!($($text)*)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_whose_reader_is_gone_ends_as_by_sigpipe_and_others_say_why() {
        assert_eq!(until_closed(|| 3), 3);
        let ended = |kind: ErrorKind| until_closed(|| resume_unwind(Box::new(Ended(kind.into()))));
        assert_eq!(ended(ErrorKind::BrokenPipe), 141);
        assert_eq!(ended(ErrorKind::StorageFull), FAILED);
        let bug = catch_unwind(|| until_closed(|| resume_unwind(Box::new("a bug"))));
        assert!(bug.is_err());
    }
}

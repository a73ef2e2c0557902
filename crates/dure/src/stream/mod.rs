//! Snapshots as streams of bytes: what `dure send` and `dure receive` do.
//!
//! **Problem.** A snapshot lies on the device of its volume. A copy elsewhere must have everything that
//! belongs to the files, cost as much as was changed, and survive a cut anywhere.
//! **Structure.** A stream ([`format`], in `frames`) says in files what a volume needs to become like
//! the snapshot: it fits volumes of any size, options and later formats. A [`Sender`] writes one, of
//! everything (`full`) or of what differs from an older snapshot (`increment`), with content by `body`.
//! [`receive`] applies one to a volume and takes the snapshot there. [`check`] reads one and applies
//! nothing; [`relay`] passes one on. [`restore`] applies the stream from what a volume has to one of its own
//! snapshots.
//!
//! # Invariants
//! A record says what is to be, in terms of the base: applied twice, or to a volume that has any part of
//! what follows already, it leads to the same. The base is the receiver's own snapshot, which does not
//! change; so `receive` finds inodes of the base by what that has, wherever they have got to.
//!
//! **On a crash** of the receiver the same stream, received again from its start, ends with the same
//! tree: what was durable is skipped, what came after is applied once more ([`receive`]).
//!
//! ```
//! use std::ops::ControlFlow::Continue;
//! let volume = dure::Volume::in_memory(32 << 20)?;
//! volume.root().write("file", b"sown")?;
//! volume.create_snapshot("monday")?;
//! let mut stream = Vec::new();
//! dure::stream::send(&volume, "monday", None, &mut stream, &mut |_| Continue(()))?;
//!
//! let copy = dure::Volume::in_memory(64 << 20)?;
//! dure::stream::receive(&copy, None, &mut &stream[..], &mut |_| Continue(()))?;
//! assert_eq!(copy.root().read("file")?, b"sown");
//! assert_eq!(copy.snapshots()[0].name, "monday");
//! # Ok::<(), dure::Error>(())
//! ```

mod apply;
mod body;
mod decode;
mod fault;
mod format;
mod frames;
mod full;
mod half;
mod increment;
mod names;
mod receive;
mod receiver;
mod restore;
mod send;
mod state;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::io::{BufRead, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub use fault::Fault;
pub use format::{Begin, Identity};
pub use half::{Half, check_delete, half_done};
pub use receive::{Received, receive};
pub use restore::{Restored, restore};
pub use send::{Sender, send};

use self::format::Record;
use self::frames::{FrameReader, FrameWriter, Position};
use crate::error::{Cause, Context, Result};

/// What is done to a record; the caller adds which one it is.
type Done<T = ()> = std::result::Result<T, Cause>;

/// How far a stream is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Records.
    pub records: u64,
    /// Bytes of the stream.
    pub bytes: u64,
}

/// Called after every record; `Break` stops.
pub type Callback<'c> = &'c mut dyn FnMut(&Progress) -> ControlFlow<()>;

impl From<Position> for Progress {
    fn from(at: Position) -> Progress {
        Progress {
            records: at.record,
            bytes: at.offset,
        }
    }
}

fn tell(at: Position, callback: Callback<'_>) -> Done {
    match callback(&at.into()) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Cause::Interrupted),
    }
}

/// A path as it is shown.
fn shown(path: &[u8]) -> &Path {
    match path {
        [] => Path::new("/"),
        path => Path::new(OsStr::from_bytes(path)),
    }
}

/// Bytes of a message or path that may come from anywhere, without control characters.
fn plain(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let plain = |char: char| if char.is_control() { '?' } else { char };
    text.chars().map(plain).collect()
}

/// Reads a stream to its end, and returns what it is of: it is whole, and says what it can say.
///
/// # Errors
/// Why it is not, with record and offset; those of `input`.
pub fn check(input: &mut dyn BufRead, callback: Callback<'_>) -> Result<(Begin, Progress)> {
    let mut frames = FrameReader::begin(input).during("check")?;
    let mut read = || -> Done<Begin> {
        let begin = beginning(&mut frames)?;
        loop {
            frames.advance()?;
            let is_end = is_end(&frames)?;
            tell(frames.at, callback)?;
            if is_end {
                return Ok(begin);
            }
        }
    };
    let read = read();
    let begin = read.map_err(|cause| frames.failure(cause).during("check"))?;
    Ok((begin, frames.at.into()))
}

/// Passes a stream on, to its end: what comes behind that is left in `input`.
///
/// # Errors
/// It is not whole; those of `input` and `out`.
pub fn relay(
    input: &mut dyn BufRead,
    out: &mut dyn Write,
    callback: Callback<'_>,
) -> Result<Progress> {
    let mut frames = FrameReader::begin(input).during("send")?;
    let mut pass = || -> Done {
        let mut out = FrameWriter::begin(out)?;
        beginning(&mut frames)?;
        out.pass(frames.bytes())?;
        loop {
            frames.advance()?;
            out.pass(frames.bytes())?;
            let is_end = is_end(&frames);
            tell(frames.at, callback)?;
            if is_end? {
                return Ok(out.flush()?);
            }
        }
    };
    let passed = pass();
    passed.during("send")?;
    Ok(frames.at.into())
}

/// The first record.
fn beginning(frames: &mut FrameReader<'_>) -> Done<Begin> {
    frames.advance()?;
    match frames.record()? {
        Record::Begin(begin) => Ok(begin),
        _ => Err(Cause::Stream(Fault::Malformed("it does not begin"))),
    }
}

/// Whether the record that was read is the last.
///
/// # Errors
/// What is wrong with it; what a sender says that could not go on.
fn is_end(frames: &FrameReader<'_>) -> Done<bool> {
    match frames.record()? {
        Record::Begin(_) => Err(Cause::Stream(Fault::Malformed("it begins twice"))),
        Record::End { records } if records == frames.start.record => Ok(true),
        Record::End { .. } => Err(Cause::Stream(Fault::Malformed("records are missing"))),
        Record::Failed { message } => Err(Cause::Stream(Fault::Sender(plain(message)))),
        _ => Ok(false),
    }
}

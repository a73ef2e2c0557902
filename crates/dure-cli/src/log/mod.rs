//! What the server of a mount has to say once its terminal is gone.
//!
//! **Problem.** A server runs for months while no one looks; why a volume stopped must be found
//! afterwards. **Structure.** One log a process: lines with a level go to a [`sink`] (standard
//! error, a file, or the system's log), and the last ones stay in memory for `dure info` and
//! `dure top`. **Invariants.** A line is one line: what is not printable is escaped. Nothing waits
//! for a slow reader but a file's own write; of errors that requests meet, at most [`BURST`] in ten
//! seconds are written, and the others are counted. **Crash.** A file has what was written by then;
//! lines are not synced.

pub(crate) mod sink;
#[cfg(test)]
mod tests;
pub(crate) mod watch;

use std::collections::VecDeque;
use std::fmt;

use clap::ValueEnum;
use dure_sync::{Mutex, ProcessOnce, clock};
use serde::{Deserialize, Serialize};

use sink::Sink;

/// Rank of the lock of the log; no other lock is taken while it is held.
const LOG: u8 = 38;
/// Lines that stay in memory.
const KEPT: usize = 100;
/// Bytes of a line at most.
const LINE_BYTES_MAX: usize = 2000;
/// Errors of requests that are written in a period.
const BURST: u32 = 20;
const PERIOD_NS: u64 = 10_000_000_000;

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Something is lost, or does not work any more.
    Error,
    /// Something that should be looked at.
    Warning,
    /// What was done.
    Info,
    /// What is of interest only to find a fault.
    Debug,
}

impl Level {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }
}

/// A line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    /// Seconds since 1970.
    pub(crate) secs: i64,
    pub(crate) level: Level,
    pub(crate) text: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}: {}",
            date(self.secs),
            self.level.name(),
            self.text
        )
    }
}

/// Whether the user at the terminal already knows what a line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Nobody,
    /// The reader of standard error.
    Terminal,
}

/// The log of the process.
#[derive(Debug)]
struct Log {
    level: Level,
    /// In front of every line.
    volume: String,
    state: Mutex<LOG, State>,
}

#[derive(Debug)]
struct State {
    sink: Sink,
    last: VecDeque<Line>,
    period: u64,
    /// Errors of requests in this period.
    errors: u32,
}

static THE_LOG: ProcessOnce<Log> = ProcessOnce::new();

/// From now on, lines about `volume` that matter at least as much as `level` go to `sink`.
pub(crate) fn begin(sink: Sink, level: Level, volume: String) {
    let state = State {
        sink,
        last: VecDeque::new(),
        period: 0,
        errors: 0,
    };
    let log = Log {
        level,
        volume,
        state: Mutex::new(state),
    };
    assert!(THE_LOG.set(log).is_ok(), "a process has one log");
}

/// Writes a line; before [`begin`], nothing.
pub(crate) fn write(level: Level, text: &str) {
    let log = THE_LOG.get().filter(|log| level <= log.level);
    if let Some(log) = log {
        log.state.lock().add(log, level, text, Told::Nobody);
    }
}

/// Like [`write`], for something that the terminal was told.
pub(crate) fn said(level: Level, text: &str) {
    let log = THE_LOG.get().filter(|log| level <= log.level);
    if let Some(log) = log {
        log.state.lock().add(log, level, text, Told::Terminal);
    }
}

/// Writes a line from a panic, which may hold any lock: not if the log itself is held.
fn write_in_panic(level: Level, text: &str) {
    if let Some(log) = THE_LOG.get()
        && let Some(mut state) = log.state.try_lock()
    {
        state.add(log, level, text, Told::Terminal);
    }
}

/// An error that a request has met: one of many, perhaps.
pub(crate) fn request_error(error: &dyn fmt::Display) {
    let Some(log) = THE_LOG.get() else {
        return;
    };
    let now = clock::monotonic_ns() / PERIOD_NS;
    let mut state = log.state.lock();
    if let Some(more) = state.admit(now) {
        if more > 0 {
            let text = format!("{more} more errors of requests were not written");
            state.add(log, Level::Error, &text, Told::Nobody);
        }
        state.add(log, Level::Error, &error.to_string(), Told::Nobody);
    }
}

/// The last `count` lines.
pub(crate) fn last(count: usize) -> Vec<Line> {
    let Some(log) = THE_LOG.get() else {
        return Vec::new();
    };
    let state = log.state.lock();
    let skip = state.last.len().saturating_sub(count);
    state.last.iter().skip(skip).cloned().collect()
}

impl State {
    fn add(&mut self, log: &Log, level: Level, text: &str, told: Told) {
        let mut text = printable(text);
        if text.len() > LINE_BYTES_MAX {
            text.truncate(text.floor_char_boundary(LINE_BYTES_MAX));
        }
        let secs = clock::wall().secs;
        let line = Line { secs, level, text };
        if told == Told::Nobody || !matches!(self.sink, Sink::Terminal) {
            self.sink.write(&log.volume, &line);
        }
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }

    /// Whether an error is written in this period; how many were not, in the one before.
    fn admit(&mut self, period: u64) -> Option<u32> {
        let mut more = 0;
        if self.period != period {
            more = self.errors.saturating_sub(BURST);
            (self.period, self.errors) = (period, 0);
        }
        self.errors = self.errors.saturating_add(1);
        (self.errors <= BURST).then_some(more)
    }
}

/// The text in one line, with nothing that a terminal obeys.
fn printable(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// Date and time in UTC, as in RFC 3339.
pub(crate) fn date(secs: i64) -> String {
    let (days, secs) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
    // Days since 0000-03-01, in eras of 400 years: leap days come last in a year that begins in
    // March.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + i64::from(month <= 2);
    let (hour, minute, second) = (secs / 3600, secs / 60 % 60, secs % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

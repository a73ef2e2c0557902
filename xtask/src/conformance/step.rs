//! One program run by a suite.
//!
//! **Problem.** A program on a file system under test may hang, and must not take the suite with
//! it. **Structure.** Output goes to files, so that nothing blocks on a pipe and a failed suite
//! leaves its logs; every program has a process group of its own and a limit of time.
//! **Invariants.** No program outlives its [`Running`]. **Crash.** The logs stay.

use std::cell::Cell;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dure_sync::clock::monotonic_ns;
use dure_sync::thread;
use rustix::process::{Pid, Signal, kill_process_group};

/// How long a program that was killed may take to disappear.
const KILLED: Duration = Duration::from_secs(10);
/// How much of a log goes into an error.
const TAIL_BYTES: u64 = 1500;

/// The folder of the logs, and the number of the next program.
#[derive(Debug)]
pub(crate) struct Steps {
    logs: PathBuf,
    next: Cell<u32>,
}

/// A running program.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    line: String,
    out: PathBuf,
    err: PathBuf,
}

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Done {
    /// Its exit status.
    pub(crate) status: ExitStatus,
    /// Its standard output.
    pub(crate) out: String,
    line: String,
    err: PathBuf,
}

impl Steps {
    pub(crate) fn new(logs: PathBuf) -> Result<Steps> {
        std::fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
        Ok(Steps {
            logs,
            next: Cell::new(1),
        })
    }

    /// Starts `command`, with `input` (a file) or nothing as its standard input.
    pub(crate) fn start(&self, mut command: Command, input: Option<&Path>) -> Result<Running> {
        let number = self.next.replace(self.next.get() + 1);
        let program = Path::new(command.get_program()).file_name();
        let program = program.unwrap_or_default().to_string_lossy().into_owned();
        let log = |kind: &str| self.logs.join(format!("{number:03}-{program}.{kind}"));
        let (out, err) = (log("out"), log("err"));
        let line = command_line(&command);
        let stdin = match input {
            Some(path) => Stdio::from(File::open(path)?),
            None => Stdio::null(),
        };
        command
            .stdin(stdin)
            .stdout(File::create(&out)?)
            .stderr(File::create(&err)?)
            .process_group(0);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {line}"))?;
        Ok(Running {
            child,
            line,
            out,
            err,
        })
    }

    /// Runs `command` to its end; any exit status is fine.
    pub(crate) fn finish(&self, command: Command, limit: Duration) -> Result<Done> {
        self.start(command, None)?.wait(limit)
    }

    /// Runs `command` to its end, which must be a success; its standard output.
    pub(crate) fn run(&self, command: Command, limit: Duration) -> Result<String> {
        self.finish(command, limit)?.success()
    }
}

impl Running {
    /// Waits for the end. After `limit` the program is killed, and that is an error.
    pub(crate) fn wait(mut self, limit: Duration) -> Result<Done> {
        let Some(status) = wait_for(&mut self.child, limit)? else {
            self.signal(Signal::KILL);
            let gone = match wait_for(&mut self.child, KILLED)? {
                Some(_) => "was killed",
                None => "cannot be killed (it hangs in the kernel)",
            };
            let (line, tail) = (&self.line, tail(&self.err));
            bail!(
                "{line}: no end after {} s, {gone}{tail}",
                limit.as_secs_f32()
            );
        };
        let mut out = Vec::new();
        File::open(&self.out)?.read_to_end(&mut out)?;
        Ok(Done {
            status,
            out: String::from_utf8_lossy(&out).into_owned(),
            line: self.line.clone(),
            err: self.err.clone(),
        })
    }

    /// Its output until it ended, and how it ended: an error if not within `limit`, or by a signal.
    /// A failing exit status is no error here.
    pub(crate) fn wait_for_output(self, limit: Duration) -> Result<(String, Result<()>)> {
        let (out, err, line) = (self.out.clone(), self.err.clone(), self.line.clone());
        let ended = self.wait(limit).and_then(|done| {
            let code = done.status.code();
            ensure!(code.is_some(), "{line}: {}{}", done.status, tail(&err));
            Ok(())
        });
        let out = std::fs::read(&out)?;
        Ok((String::from_utf8_lossy(&out).into_owned(), ended))
    }

    /// Waits for the end, however it comes; after `limit` with a signal.
    pub(crate) fn end(mut self, limit: Duration, signal: Signal) -> Result<()> {
        if wait_for(&mut self.child, limit)?.is_none() {
            self.signal(signal);
            let ended = wait_for(&mut self.child, KILLED)?;
            ensure!(ended.is_some(), "{}: hangs in the kernel", self.line);
        }
        Ok(())
    }

    /// If it has ended: an error with its output.
    pub(crate) fn expect_running(&mut self, what: &str) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{what} ended before the kill, {status}{}", tail(&self.err));
        }
        Ok(())
    }

    /// Whether it has not ended yet.
    pub(crate) fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Sends a signal to the program and its children.
    pub(crate) fn signal(&self, signal: Signal) {
        // The group may be gone already: that error does not matter.
        let _ = kill_process_group(pid(&self.child), signal);
    }

    /// Kills its child of this name.
    pub(crate) fn kill_child(&self, name: &str) -> Result<()> {
        let me = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{me}/task/{me}/children"))?;
        let is_named = |child: &&str| {
            let comm = std::fs::read_to_string(format!("/proc/{child}/comm"));
            comm.is_ok_and(|comm| comm.trim_end() == name)
        };
        let child = children.split_ascii_whitespace().find(is_named);
        let child = child.and_then(|child| Pid::from_raw(child.parse().ok()?));
        let child = child.with_context(|| format!("{}: no child {name}", self.line))?;
        Ok(rustix::process::kill_process(child, Signal::KILL)?)
    }

    /// Sends a signal to only the program.
    pub(crate) fn signal_leader(&self, signal: Signal) {
        let _ = rustix::process::kill_process(pid(&self.child), signal);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.signal(Signal::KILL);
            let _ = wait_for(&mut self.child, KILLED);
        }
    }
}

impl Done {
    /// The standard output of a program that must have succeeded.
    pub(crate) fn success(self) -> Result<String> {
        if !self.status.success() {
            bail!("{}: {}{}", self.line, self.status, self.tail());
        }
        Ok(self.out)
    }

    /// The end of its output, for an error.
    pub(crate) fn tail(&self) -> String {
        let text = tail(&self.err);
        if !text.is_empty() {
            return text;
        }
        let start = self.out.len().saturating_sub(1500);
        let start = (start..self.out.len()).find(|at| self.out.is_char_boundary(*at));
        indented(start.map_or("", |at| &self.out[at..]))
    }

    /// All it said on standard error.
    pub(crate) fn err(&self) -> String {
        let bytes = std::fs::read(&self.err).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// The process id of a child.
pub(crate) fn pid(child: &Child) -> Pid {
    let raw = i32::try_from(child.id()).expect("process ids are positive and small");
    Pid::from_raw(raw).expect("a child's id is not 0")
}

/// Waits at most `limit`; `None` if it still runs.
pub(crate) fn wait_for(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let limit_ns = u64::try_from(limit.as_nanos()).expect("limits are short");
    let end = monotonic_ns().saturating_add(limit_ns);
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if monotonic_ns() >= end {
            return Ok(None);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// The end of a log, indented, or nothing.
pub(crate) fn tail(path: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(len.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    indented(&String::from_utf8_lossy(&read().unwrap_or_default()))
}

fn indented(text: &str) -> String {
    text.lines().fold(String::new(), |mut all, line| {
        all.push_str("\n    ");
        all.push_str(line);
        all
    })
}

fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let line = words.join(" ");
    match line.char_indices().nth(300) {
        Some((end, _)) => format!("{} ...", &line[..end]),
        None => line,
    }
}

//! Workers that are processes, as FxMark's and AIM7's are: threads share a table of descriptors, so
//! the kernel counts references that it need not count for processes.
//!
//! **Structure.** The parent starts this program again as `dure bench worker ASSIGNMENT CORE` and
//! talks to it over its standard input and output, a line a message: `made`, then `prepare` and
//! `ready`, `run START STOP` and the share as JSON, as often as wanted; the end of the input is the
//! order to check and end. A child has one thread, which is bound to its core. **On a crash** of
//! the parent a child's input ends, and so does the child.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use dure_sync::{CoreId, thread};
use serde::{Deserialize, Serialize};

use super::cpu::Cpu;
use super::work::{Share, Window, Worker, histogram, work};
use crate::Assignment;

/// A worker in another process.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// A share as the child sends it.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
    works: u64,
    ns: u64,
    works_in_all: u64,
    cpu: Cpu,
    /// Latencies and how often.
    latencies: Vec<(u64, u64)>,
}

impl Process {
    /// Starts the worker that `assignment` describes and waits until its files are made.
    pub(crate) fn start(assignment: &Assignment, core: CoreId) -> Result<Process> {
        let (assignment, core) = (
            serde_json::to_string(assignment)?,
            core.number().to_string(),
        );
        let mut child = Command::new("/proc/self/exe")
            .args(["bench", "worker", &assignment, &core])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting a worker process")?;
        let orders = child.stdin.take();
        let answers = child.stdout.take().context("its output is a pipe")?;
        let mut process = Process {
            child,
            orders,
            answers: BufReader::new(answers),
        };
        process.expect("made")?;
        Ok(process)
    }

    fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        let count = self.answers.read_line(&mut line)?;
        ensure!(
            count > 0,
            "a worker process ended early, see its message above"
        );
        Ok(line.trim_end().to_owned())
    }

    fn expect(&mut self, word: &str) -> Result<()> {
        let answer = self.answer()?;
        ensure!(
            answer == word,
            "a worker process said '{answer}', not '{word}'"
        );
        Ok(())
    }

    fn order(&mut self, text: &str) -> Result<()> {
        let orders = self.orders.as_mut().context("the worker was told to end")?;
        writeln!(orders, "{text}").context("telling a worker process")
    }

    pub(crate) fn order_prepare(&mut self) -> Result<()> {
        self.order("prepare")
    }

    pub(crate) fn wait_ready(&mut self) -> Result<()> {
        self.expect("ready")
    }

    pub(crate) fn order_run(&mut self, window: Window) -> Result<()> {
        self.order(&format!("run {} {}", window.start_ns, window.stop_ns))
    }

    pub(crate) fn share(&mut self) -> Result<Share> {
        let told: Told = serde_json::from_str(&self.answer()?).context("a worker's share")?;
        let mut latencies = histogram()?;
        for (value, count) in told.latencies {
            latencies.saturating_record_n(value, count);
        }
        Ok(Share {
            works: told.works,
            ns: told.ns,
            works_in_all: told.works_in_all,
            cpu: told.cpu,
            latencies,
        })
    }

    /// Ends the child; a failed check is an error.
    pub(crate) fn end(mut self) -> Result<()> {
        self.orders = None;
        let status = self.child.wait()?;
        ensure!(
            status.success(),
            "a worker process failed, see its message above"
        );
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Ends the child if it has not ended, and leaves no zombie.
        self.orders = None;
        drop(self.child.wait());
    }
}

/// The other side: obeys the orders on standard input.
///
/// # Errors
/// Those of the worker; an order that is none.
pub(crate) fn obey(core: CoreId, make: impl FnOnce() -> Result<Box<dyn Worker>>) -> Result<()> {
    thread::pin_to(core);
    let mut worker = make()?;
    crate::say!("made");
    for line in std::io::stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            ["prepare"] => {
                worker.prepare()?;
                crate::say!("ready");
            }
            ["run", start, stop] => {
                let window = Window {
                    start_ns: start.parse()?,
                    stop_ns: stop.parse()?,
                };
                let share = work(worker.as_mut(), window)?;
                crate::say!("{}", told(&share)?);
            }
            _ => bail!("an order to a worker process: '{line}'"),
        }
    }
    worker.check()
}

fn told(share: &Share) -> Result<String> {
    let counted = share.latencies.iter_recorded();
    let told = Told {
        works: share.works,
        ns: share.ns,
        works_in_all: share.works_in_all,
        cpu: share.cpu,
        latencies: counted
            .map(|step| (step.value_iterated_to(), step.count_at_value()))
            .collect(),
    };
    serde_json::to_string(&told).context("a share")
}

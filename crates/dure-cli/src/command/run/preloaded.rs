//! A program that `libdure_preload.so` is loaded into: what it and its server say.

use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Child;

use anyhow::{Context, Result, anyhow, bail};
use dure::run::{Calls, Order, Word};
use dure_bench::note;
use dure_fuse::mount::{Lazy, unmount};
use rustix::io::FdFlags;
use rustix::process::WaitOptions;

use super::{Outcome, Plan};

/// The library.
const LIBRARY: &str = "libdure_preload.so";
/// Where it is, seen from the folder of this program: installed, or made by cargo.
const FOLDERS: [&str; 3] = ["../lib/dure", "deps", "."];

fn library() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let folder = program.parent().context("a program is in a folder")?;
    let places = FOLDERS.map(|place| folder.join(place).join(LIBRARY));
    let found = places.iter().find_map(|place| place.canonicalize().ok());
    found.with_context(|| {
        format!(
            "{LIBRARY} is not there, in {} or in ../lib/dure of it; `cargo build --release -p \
             dure-preload` makes it",
            folder.display()
        )
    })
}

pub(super) fn run(plan: &Plan) -> Result<Outcome> {
    let (mine, theirs) = UnixStream::pair()?;
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty())?;
    let mut child = start(plan, theirs.into())?;
    let signals = Signals::pass_on(&child)?;
    let mut words = Words {
        lines: BufReader::new(mine),
        is_left: false,
    };
    match words.next() {
        Some(Word::Ready) => {}
        Some(Word::Failed(why)) => {
            child.wait()?;
            return Err(anyhow!("{why}"));
        }
        // It was killed before, or could not load the library.
        _ => bail!(
            "{} did not begin: {}",
            plan.program.display(),
            child.wait()?
        ),
    }
    let status = child.wait()?;
    drop(signals);
    let calls = end(plan, &mut words)?;
    words.await_end();
    Ok(Outcome { status, calls })
}

fn start(plan: &Plan, socket: OwnedFd) -> Result<Child> {
    let order = Order {
        volume: plan.volume.clone(),
        at: plan.at.clone(),
        begins_inside: plan.begins_inside,
        options: plan.args.options.clone(),
        socket: socket.as_raw_fd(),
        before: None,
    };
    let others = std::env::var_os(dure::run::PRELOAD);
    let libraries = dure::run::preload_first(library()?.as_os_str(), others.as_deref());
    let mut command = plan.command();
    command.envs(order.variables());
    command.env(dure::run::PRELOAD, libraries);
    command
        .spawn()
        .with_context(|| plan.program.display().to_string())
}

/// What the servers say when the program has ended: that of each program that it was, the last one at
/// the end.
fn end(plan: &Plan, words: &mut Words) -> Result<Option<Calls>> {
    let (mut before, mut is_closed) = (Calls::default(), false);
    let last = loop {
        match words.next() {
            Some(Word::GivenAway(calls)) => (before, is_closed) = (before + calls, true),
            Some(Word::Ready) => is_closed = false,
            // It was killed before it opened the volume.
            None if is_closed => return Ok(Some(before)),
            last => break last,
        }
    };
    match last {
        Some(Word::Ended(calls)) => Ok(Some(before + calls)),
        Some(Word::InUse) => {
            note!(
                "dure: {} is still used by other processes, and mounted until they end",
                plan.at.display()
            );
            words.is_left = true;
            Ok(None)
        }
        Some(Word::Failed(why)) => bail!("{why}"),
        word => {
            // The mount has no server any more.
            let _ = unmount(&plan.at, Lazy::Yes);
            let volume = plan.volume.display();
            let loss = "what was synced is on the volume, what was not may be lost";
            match word {
                Some(Word::Killed) => {
                    note!("dure: {volume}: the program was killed within a call; {loss}");
                    Ok(None)
                }
                _ => bail!("{volume}: the server of the volume has ended; {loss}"),
            }
        }
    }
}

/// The lines of the library and its server, which is a child of this process.
struct Words {
    lines: BufReader<UnixStream>,
    /// The server goes on.
    is_left: bool,
}

impl Words {
    fn next(&mut self) -> Option<Word> {
        let mut line = String::new();
        self.lines.read_line(&mut line).ok()?;
        Word::of(&line)
    }

    /// Waits until the server has ended, and with it the kernel's hold on the volume.
    fn await_end(&self) {
        while !self.is_left && rustix::process::wait(WaitOptions::empty()).is_ok() {}
    }
}

/// Signals that are for the program: those of the terminal reach it by themselves, and this process
/// takes no notice of them.
struct Signals(signal_hook::iterator::Handle);

impl Signals {
    fn pass_on(child: &Child) -> Result<Signals> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
        use signal_hook::iterator::Signals as Iterator;
        let mut signals = Iterator::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP])?;
        let handle = signals.handle();
        let child = rustix::process::Pid::from_child(child);
        drop(dure_sync::thread::spawn("signals", move || {
            for signal in signals.forever() {
                let passed_on = match signal {
                    SIGTERM => rustix::process::Signal::TERM,
                    SIGHUP => rustix::process::Signal::HUP,
                    _ => continue,
                };
                let _ = rustix::process::kill_process(child, passed_on);
            }
        }));
        Ok(Signals(handle))
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.0.close();
    }
}

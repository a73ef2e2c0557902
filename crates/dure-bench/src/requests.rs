//! How many requests the kernel sends to a FUSE server, and of which kinds, by its trace events.
//!
//! **Structure.** An instance of tracefs of our own, which gets the events `fuse:fuse_request_send`
//! of one connection. Its statistics say how many, also of those it had no room for; its text says
//! which. FORGET has no such event. **Invariants.** Dropping it undoes everything. **Crash.** The
//! instance stays behind in tracefs: rmdir(1).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::medium;

const EVENT: &str = "events/fuse/fuse_request_send";
/// Room for events of each CPU: some 80,000.
const ROOM_KIB: &str = "4096";

/// Counts requests.
#[derive(Debug)]
pub struct Requests {
    instance: PathBuf,
    /// Where tracefs is mounted.
    tracefs: TempDir,
}

/// What was counted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// All requests.
    pub total: u64,
    /// By the name of the operation; the first ones are missing if there was no room for them.
    pub by_name: BTreeMap<String, u64>,
}

impl Requests {
    /// Mounts tracefs and makes an instance.
    ///
    /// # Errors
    /// Only root may; or the kernel has no such events.
    pub fn new() -> Result<Requests> {
        let tracefs = TempDir::with_prefix("dure-bench-")?;
        let at = tracefs.path().to_str().context("a path in UTF-8")?;
        medium::run("mount", &["-t", "tracefs", "tracefs", at])?;
        let instance = tracefs
            .path()
            .join("instances")
            .join(format!("dure-bench-{}", std::process::id()));
        let requests = Requests { instance, tracefs };
        fs::create_dir(&requests.instance).context("an instance of tracefs")?;
        fs::write(requests.instance.join("buffer_size_kb"), ROOM_KIB)?;
        let event = requests.instance.join(EVENT);
        fs::metadata(&event).context("the kernel has no trace event fuse:fuse_request_send")?;
        Ok(requests)
    }

    /// Runs `work` and returns the requests of the mount on `directory` meanwhile.
    ///
    /// # Errors
    /// Those of the work, and of tracefs.
    pub fn during(&self, directory: &Path, work: impl FnOnce() -> Result<()>) -> Result<Counted> {
        let connection = fs::metadata(directory)?.dev();
        let event = self.instance.join(EVENT);
        fs::write(event.join("filter"), format!("connection == {connection}"))
            .context("choosing events of fuse_request_send")?;
        // Empties it, and its statistics.
        fs::write(self.instance.join("trace"), "")?;
        fs::write(event.join("enable"), "1")?;
        let done = work();
        fs::write(event.join("enable"), "0")?;
        done?;
        let mut counted = Counted::default();
        for cpu in fs::read_dir(self.instance.join("per_cpu"))? {
            counted.total += events(&fs::read_to_string(cpu?.path().join("stats"))?);
        }
        counted.by_name = names(&fs::read_to_string(self.instance.join("trace"))?);
        Ok(counted)
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.instance);
        if let Some(at) = self.tracefs.path().to_str() {
            let _ = medium::run("umount", &[at]);
        }
    }
}

/// The events of a CPU, kept or overwritten since, by its statistics.
fn events(statistics: &str) -> u64 {
    let numbers = statistics.lines().filter_map(|line| {
        let (name, number) = line.split_once(':')?;
        let counts = ["entries", "overrun"].contains(&name);
        number.trim().parse::<u64>().ok().filter(|_| counts)
    });
    numbers.sum()
}

/// How many events there are of each operation, by the text of the trace.
fn names(trace: &str) -> BTreeMap<String, u64> {
    let mut names = BTreeMap::new();
    for line in trace.lines() {
        let name = line
            .split_once("opcode ")
            .and_then(|(_, rest)| rest.split_once("(FUSE_"))
            .and_then(|(_, rest)| rest.split_once(')'));
        if let Some((name, _)) = name {
            *names.entry(name.to_owned()).or_insert(0) += 1;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::{events, names};

    #[test]
    fn events_are_counted_also_if_they_were_overwritten() {
        let text = "entries: 12\noverrun: 1000\ncommit overrun: 5\nbytes: 336\n\
                    now ts:    86.1\ndropped events: 0\nread events: 0\n";
        assert_eq!(events(text), 1012);
    }

    #[test]
    fn events_are_told_apart_by_their_operation() {
        let text = "# tracer: nop\n#\n\
            rm-7 [001] ..... 9.1: fuse_request_send: connection 57 req 8 opcode 10 (FUSE_UNLINK) len 50 \n\
            rm-7 [000] ..... 9.2: fuse_request_send: connection 57 req 9 opcode 3 (FUSE_GETATTR) len 56 \n\
            rm-7 [001] ..... 9.3: fuse_request_send: connection 57 req 12 opcode 10 (FUSE_UNLINK) len 50 \n";
        let names: Vec<_> = names(text).into_iter().collect();
        assert_eq!(names, [("GETATTR".into(), 1), ("UNLINK".into(), 2)]);
    }
}

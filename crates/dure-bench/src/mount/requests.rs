//! How many requests the kernel sends to a FUSE server, by its trace events.
//!
//! **Structure.** An instance of tracefs of our own, of which the statistics say how many events
//! `fuse:fuse_request_send` of a connection it got. **Invariants.** Dropping it undoes everything.
//! **Crash.** The instance stays behind in tracefs: rmdir(1).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::medium;

const EVENT: &str = "events/fuse/fuse_request_send";

/// Counts requests.
#[derive(Debug)]
pub(super) struct Requests {
    instance: PathBuf,
    /// Where tracefs is mounted.
    tracefs: TempDir,
}

impl Requests {
    /// # Errors
    /// Only root may; or the kernel has no such events.
    pub(super) fn new() -> Result<Requests> {
        let tracefs = TempDir::with_prefix("dure-bench-")?;
        let at = tracefs.path().to_str().context("a path in UTF-8")?;
        medium::run("mount", &["-t", "tracefs", "tracefs", at])?;
        let instance = tracefs
            .path()
            .join("instances")
            .join(format!("dure-bench-{}", std::process::id()));
        let requests = Requests { instance, tracefs };
        fs::create_dir(&requests.instance).context("an instance of tracefs")?;
        Ok(requests)
    }

    /// Runs `work` and returns the requests of the mount on `directory` meanwhile.
    pub(super) fn during(
        &self,
        directory: &Path,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<u64> {
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
        let mut count = 0;
        for cpu in fs::read_dir(self.instance.join("per_cpu"))? {
            count += events(&fs::read_to_string(cpu?.path().join("stats"))?);
        }
        Ok(count)
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

#[cfg(test)]
mod tests {
    use super::events;

    #[test]
    fn events_are_counted_also_if_they_were_overwritten() {
        let text = "entries: 12\noverrun: 1000\ncommit overrun: 5\nbytes: 336\n\
                    now ts:    86.1\ndropped events: 0\nread events: 0\n";
        assert_eq!(events(text), 1012);
    }
}

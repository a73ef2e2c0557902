//! What a run of `dure sim crash` has found, on the terminal, as JSON, and in the file of `--resume`.
//!
//! **Invariants.** A file goes on only with the plan it was written for. **Crash.** The file is
//! replaced as a whole, so a run that is killed repeats its last batch.

use std::path::Path;

use anyhow::{Context, Result, bail};
use dure_bench::say;
use dure_block::count::Count;
use dure_sim::crash::campaign::Tally;
use serde::{Deserialize, Serialize};

use super::of_ace;
use crate::args::{Media, SimCrash, Suite};
use crate::exit;

/// What was run and found, in the file of `--resume` and with `--json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Report {
    pub(super) suite: Suite,
    /// The operations of ace's workloads; 0 for another suite, which has no choice of them.
    pub(super) seq: u32,
    /// The cores of ace.
    pub(super) cores: u32,
    /// The seed of ace.
    pub(super) seed: u64,
    /// Policies of the mounts, as given; empty: the defaults.
    #[serde(default)]
    pub(super) mount: String,
    /// What the volumes lay on.
    #[serde(default)]
    pub(super) media: Media,
    /// Groups of workloads that share their operations.
    pub(super) groups: u64,
    pub(super) groups_done: u64,
    pub(super) workloads: u64,
    /// Workloads that wrote and promised the same as another.
    pub(super) workloads_equal: u64,
    pub(super) states: u64,
    pub(super) states_different: u64,
    /// How many different states were recovered; each other one differs from one of them only in
    /// blocks at which recovery and the checks do not look.
    #[serde(default)]
    pub(super) states_recovered: u64,
    pub(super) violations: Vec<Finding>,
    pub(super) milliseconds: u64,
}

/// A violation, or a workload that failed without a crash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Finding {
    pub(super) workload: String,
    pub(super) report: String,
}

impl Report {
    pub(super) fn new(args: &SimCrash, groups: u64) -> Report {
        let (seq, cores, seed) = match args.suite {
            Suite::Ace => of_ace(args),
            Suite::Chipmunk => (0, 0, 0),
        };
        Report {
            suite: args.suite,
            seq,
            cores,
            seed,
            mount: args.mount.join(","),
            media: args.media,
            groups,
            groups_done: 0,
            workloads: 0,
            workloads_equal: 0,
            states: 0,
            states_different: 0,
            states_recovered: 0,
            violations: Vec::new(),
            milliseconds: 0,
        }
    }

    fn is_of(&self, other: &Report) -> bool {
        let plan = |of: &Report| (of.seq, of.cores, of.seed, of.groups, of.media);
        plan(self) == plan(other) && self.suite == other.suite && self.mount == other.mount
    }

    pub(super) fn add(&mut self, tally: Tally, milliseconds: u64) {
        self.groups_done = tally.place;
        self.workloads += tally.counts.workloads;
        self.workloads_equal += tally.equal;
        self.states += tally.counts.states;
        self.states_different += tally.counts.images;
        self.states_recovered += tally.counts.recovered;
        self.milliseconds += milliseconds;
        let violations = tally.violations.iter();
        self.violations.extend(violations.map(|violation| Finding {
            workload: violation.workload.to_string(),
            report: violation.to_string(),
        }));
        self.violations.extend(tally.failures.iter().map(|failure| {
            let first = failure.lines().next().unwrap_or_default();
            Finding {
                workload: first.trim_start_matches("workload: ").to_owned(),
                report: failure.clone(),
            }
        }));
    }

    pub(super) fn is_complete(&self) -> bool {
        self.groups_done == self.groups
    }

    pub(super) fn code(&self) -> u8 {
        if self.violations.is_empty() {
            exit::OK
        } else {
            exit::FAILED
        }
    }

    fn plan_words(&self) -> String {
        match self.suite {
            Suite::Ace => format!(
                "--suite ace --seq {} --cores {} --seed {}",
                self.seq, self.cores, self.seed
            ),
            Suite::Chipmunk => "--suite chipmunk".to_owned(),
        }
    }

    /// Media and policies, as the words of a command.
    pub(super) fn volume_words(&self) -> String {
        let media = match self.media {
            Media::Disk => "",
            Media::Copies => " --media copies",
            Media::Hybrid => " --media hybrid",
            Media::HybridLogsOnDisk => " --media hybrid-logs-on-disk",
            Media::HybridRegions => " --media hybrid-regions",
        };
        match self.mount.as_str() {
            "" => media.to_owned(),
            policies => format!("{media} --mount {policies}"),
        }
    }

    pub(super) fn print(&self) {
        let volume = self.volume_words();
        for finding in &self.violations {
            say!(
                "{}\nreplay: dure sim crash{volume} --replay '{}'\n",
                finding.report,
                finding.workload
            );
        }
        let seconds = self.milliseconds / 1000;
        let rate = self.states * 1000 / self.milliseconds.max(1);
        let share = if self.is_complete() { "all" } else { "a share" };
        say!(
            "{}{volume}: {share}, {} of {}\n\
             workloads {} ({} more equal to another), states {} ({} different, {} recovered), violations {}\n\
             {seconds} s, {rate} states/s",
            self.plan_words(),
            self.groups_done,
            Count::of(self.groups, "group"),
            self.workloads,
            self.workloads_equal,
            self.states,
            self.states_different,
            self.states_recovered,
            self.violations.len(),
        );
    }
}

/// Reads what an earlier run left; nothing if there is no file yet.
pub(super) fn load(path: &Path, plan: &Report) -> Result<Option<Report>> {
    let at = || path.display().to_string();
    if !path.try_exists().with_context(at)? {
        return Ok(None);
    }
    let text = std::fs::read_to_string(path).with_context(at)?;
    let report: Report = serde_json::from_str(&text)
        .with_context(|| format!("{}: not a file of --resume", path.display()))?;
    if !report.is_of(plan) {
        bail!(
            "{}: it was written for {}{} of {}; give these options, or another file",
            path.display(),
            report.plan_words(),
            report.volume_words(),
            Count::of(report.groups, "group")
        );
    }
    Ok(Some(report))
}

/// Replaces the file as a whole.
pub(super) fn save(path: &Path, report: &Report) -> Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let at = || path.display().to_string();
    std::fs::write(&name, serde_json::to_string_pretty(report)?).with_context(at)?;
    std::fs::rename(&name, path).with_context(at)
}

//! `dure sim`: crash enumeration, in shares that can be continued.
//!
//! **Structure.** The campaign of dure-sim runs batches; after each, the file of `--resume` is
//! replaced by one that says where to go on and what was found. **Invariants.** A file goes on only
//! with the plan it was written for. **Crash.** A run that is killed repeats its last batch.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use dure_bench::say;
use dure_block::record::Cache;
use dure_fs::{DataMode, MountOptions, NodeLog, NumaPolicy, PageCaching};
use dure_sim::crash::campaign::{Campaign, Plan, Tally};
use dure_sim::crash::{On, Options, Workload, chipmunk};
use serde::{Deserialize, Serialize};

use crate::args::{Media, Sim, SimCrash, Suite};
use crate::{exit, progress};

pub(crate) fn run(args: &Sim) -> Result<u8> {
    match args {
        Sim::Crash(args) => crash(args),
        Sim::Conflicts(args) => super::conflicts::run(args),
    }
}

/// What was run and found, in the file of `--resume` and with `--json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Report {
    suite: Suite,
    /// Of ace; of another suite, which has no choice of them, 0.
    seq: u32,
    /// Of ace.
    cores: u32,
    /// Of ace.
    seed: u64,
    /// Policies of the mounts, as given; empty: the defaults.
    #[serde(default)]
    mount: String,
    /// What the volumes lay on.
    #[serde(default)]
    media: Media,
    /// Groups of workloads that share their operations.
    groups: u64,
    groups_done: u64,
    workloads: u64,
    /// Workloads that wrote and promised the same as another.
    workloads_equal: u64,
    states: u64,
    states_different: u64,
    /// Of these, those that were recovered; each other one differs from one of them only in blocks
    /// at which recovery and the checks do not look.
    #[serde(default)]
    states_recovered: u64,
    violations: Vec<Finding>,
    milliseconds: u64,
}

/// A violation, or a workload that failed without a crash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Finding {
    workload: String,
    report: String,
}

impl Report {
    fn new(args: &SimCrash, groups: u64) -> Report {
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

    fn add(&mut self, tally: Tally, milliseconds: u64) {
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

    fn is_complete(&self) -> bool {
        self.groups_done == self.groups
    }

    fn code(&self) -> u8 {
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
    fn volume_words(&self) -> String {
        let media = match self.media {
            Media::Disk => "",
            Media::Hybrid => " --media hybrid",
            Media::HybridLogsOnDisk => " --media hybrid-logs-on-disk",
            Media::HybridRegions => " --media hybrid-regions",
        };
        match self.mount.as_str() {
            "" => media.to_owned(),
            policies => format!("{media} --mount {policies}"),
        }
    }

    fn print(&self) {
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
            "{}{volume}: {share}, {} of {} groups\n\
             workloads {} ({} more equal to another), states {} ({} different, {} recovered), violations {}\n\
             {seconds} s, {rate} states/s",
            self.plan_words(),
            self.groups_done,
            self.groups,
            self.workloads,
            self.workloads_equal,
            self.states,
            self.states_different,
            self.states_recovered,
            self.violations.len(),
        );
    }
}

/// Operations, cores and seed of ACE's workloads.
fn of_ace(args: &SimCrash) -> (u32, u32, u64) {
    let (seq, cores) = (args.seq.unwrap_or(1), args.cores.unwrap_or(3));
    (seq, cores, args.seed.unwrap_or(1))
}

/// Reads what an earlier run left; nothing if there is no file yet.
fn load(path: &Path, plan: &Report) -> Result<Option<Report>> {
    let at = || path.display().to_string();
    if !path.try_exists().with_context(at)? {
        return Ok(None);
    }
    let text = std::fs::read_to_string(path).with_context(at)?;
    let report: Report = serde_json::from_str(&text)
        .with_context(|| format!("{}: not a file of --resume", path.display()))?;
    if !report.is_of(plan) {
        bail!(
            "{}: it was written for {}{} of {} groups; give these options, or another file",
            path.display(),
            report.plan_words(),
            report.volume_words(),
            report.groups
        );
    }
    Ok(Some(report))
}

/// Replaces the file as a whole.
fn save(path: &Path, report: &Report) -> Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let at = || path.display().to_string();
    std::fs::write(&name, serde_json::to_string_pretty(report)?).with_context(at)?;
    std::fs::rename(&name, path).with_context(at)
}

fn milliseconds(since: u64) -> u64 {
    (dure_sync::clock::monotonic_ns() - since) / 1_000_000
}

fn crash(args: &SimCrash) -> Result<u8> {
    let report = match &args.replay {
        Some(text) => replay(args, text)?,
        None => enumerate(args)?,
    };
    if args.json {
        say!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        report.print();
    }
    Ok(report.code())
}

/// `mount` with the policies of `--mount`.
pub(super) fn with_policies(mut mount: MountOptions, policies: &[String]) -> Result<MountOptions> {
    for policy in policies.iter().filter(|policy| !policy.is_empty()) {
        let (key, value) = policy.split_once('=').unwrap_or((policy, ""));
        let set = mount.set_policy(key, value);
        if !set.map_err(|what| anyhow!("--mount {what}"))? {
            bail!("--mount {policy}: no policy has that name; `dure sim crash --help` lists them");
        }
    }
    Ok(mount)
}

/// How the volumes of all workloads are mounted.
fn options(args: &SimCrash) -> Result<Options> {
    let is_nvm = |policy: &&String| policy.starts_with("nvm=");
    let mut options = match args.mount.iter().find(is_nvm).map(String::as_str) {
        None => Options::default(),
        Some("nvm=emulated") => Options::on_nvm(),
        Some(other) => bail!("--mount {other}: nvm=emulated is the one that can be simulated"),
    };
    let policies: Vec<String> = args
        .mount
        .iter()
        .filter(|policy| !is_nvm(policy))
        .cloned()
        .collect();
    options.media = match (args.media, options.cache) {
        (Media::Disk, _) => On::Disk,
        (_, Cache::None) => bail!("--media: nvm=emulated is one device in persistent memory"),
        (Media::Hybrid, _) => On::Hybrid(NodeLog::Nvm),
        (Media::HybridLogsOnDisk, _) => On::Hybrid(NodeLog::Block),
        (Media::HybridRegions, _) => On::HybridRegions,
    };
    if options.media == On::HybridRegions {
        options.mount.numa.policy = NumaPolicy::Interleave;
    }
    options.mount = with_policies(options.mount, &policies)?;
    if options.mount.page_cache == Some(PageCaching::None) {
        match (options.media, options.cache) {
            (On::Disk, Cache::None) => options.media = On::Nvm,
            _ => bail!("--mount page_cache=none: it needs nvm=emulated, and nothing on a disk"),
        }
    }
    if options.mount.data == DataMode::Writeback {
        bail!(
            "--mount data=writeback: after a crash a page that was not synced may read as zeroes then, \
             which the comparison takes for a violation"
        );
    }
    Ok(options)
}

fn replay(args: &SimCrash, text: &str) -> Result<Report> {
    let workload: Workload = text
        .parse()
        .map_err(|what: String| anyhow!("--replay: {what}"))?;
    let begin = dure_sync::clock::monotonic_ns();
    let tally = Campaign::replay(&workload, &options(args)?);
    let mut report = Report::new(args, 1);
    report.add(Tally { place: 1, ..tally }, milliseconds(begin));
    Ok(report)
}

fn campaign(args: &SimCrash, threads: usize) -> Result<Campaign> {
    let options = options(args)?;
    if args.suite == Suite::Chipmunk {
        if args.seq.is_some() || args.cores.is_some() || args.seed.is_some() {
            bail!(
                "--suite chipmunk: its workloads are a list; --seq, --cores and --seed are for ace"
            );
        }
        return Ok(Campaign::chipmunk(&chipmunk::CLASSES, threads, options));
    }
    let (operations, cores, seed) = of_ace(args);
    let cores = dure_fs::units::to_usize(cores.into());
    let plan = Plan {
        operations,
        cores,
        seed,
    };
    Ok(Campaign::new(plan, threads, options))
}

fn enumerate(args: &SimCrash) -> Result<Report> {
    let threads = match args.threads {
        Some(threads) => dure_fs::units::to_usize(threads.into()),
        None => dure_sync::core_count(),
    };
    let campaign = campaign(args, threads)?;
    let mut report = Report::new(args, campaign.groups());
    if let Some(path) = &args.resume
        && let Some(earlier) = load(path, &report)?
    {
        report = earlier;
    }
    let count = args.count.unwrap_or(u64::MAX);
    let bar = match args.count {
        Some(count) => progress::bar(count, "workloads"),
        None => progress::bar(report.groups, "groups of workloads"),
    };
    while report.workloads < count {
        let place = report.groups_done;
        let mut tally = Tally {
            place,
            ..Tally::default()
        };
        let begin = dure_sync::clock::monotonic_ns();
        if !campaign.batch(&mut tally) {
            break;
        }
        report.add(tally, milliseconds(begin));
        if let Some(path) = &args.resume {
            save(path, &report)?;
        }
        bar.set_position(if args.count.is_some() {
            report.workloads
        } else {
            report.groups_done
        });
    }
    bar.finish_and_clear();
    Ok(report)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    fn parsed(arguments: &[&str]) -> SimCrash {
        let fixed = ["dure", "sim", "crash", "--seq", "2", "--cores", "1"];
        let args = Args::try_parse_from(fixed.iter().chain(arguments)).unwrap();
        match args.command {
            Command::Sim(Sim::Crash(args)) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_run_in_two_parts_finds_what_one_finds() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("resume");
        let file = file.to_str().unwrap();
        let part = |count: &str| {
            let args = parsed(&["--count", count, "--threads", "1", "--resume", file]);
            enumerate(&args).unwrap()
        };
        let first = part("1");
        // Groups are done whole, so both end where the second one does.
        let count = &(first.workloads + 1).to_string();
        let (second, mut whole) = dure_sync::thread::scope(|scope| {
            let whole = || enumerate(&parsed(&["--count", count, "--threads", "1"])).unwrap();
            let whole = scope.spawn(whole);
            (part(count), whole.join().unwrap())
        });
        assert!(second.workloads > first.workloads && second.groups_done > first.groups_done);
        // One run does not recover an equal state twice; a second run starts without that
        // knowledge.
        whole.milliseconds = second.milliseconds;
        whole.states_different = second.states_different;
        whole.states_recovered = second.states_recovered;
        assert_eq!(whole, second);
        assert_eq!(second.violations, []);
        let other = parsed(&["--seed", "2", "--resume", file]);
        let refused = enumerate(&other).unwrap_err().to_string();
        assert!(refused.contains("--seed 1"), "{refused}");
    }

    #[test]
    fn policies_reach_the_volumes_and_the_report() {
        let workload =
            "setup 1; create /new; write /new 0+6000 of 200; fsync /new; unlink /foo; writeback";
        let states = |mount: &str| {
            let args = parsed(&["--mount", mount]);
            let report = replay(&args, workload).unwrap();
            assert_eq!((report.violations.len(), &*report.mount), (0, mount));
            report.states
        };
        // Data in its block before the log, with a flush between, takes more steps than data in the
        // log.
        let delta = states("journal=single,fsync=all");
        assert_ne!(states("journal=zjournal,flush=two,log-data=0"), delta);
        // Without flushes, and with writes that are torn between words.
        assert_ne!(states("nvm=emulated"), delta);
        // Each call of it durable when it returns.
        assert_ne!(states("nvm=emulated,page_cache=none"), delta);
        let json = serde_json::to_string(&Report::new(&parsed(&["--mount", "alloc=global"]), 1));
        assert!(json.unwrap().contains(r#""mount":"alloc=global""#));
    }

    #[test]
    fn policies_that_cannot_be_compared_are_refused() {
        let refused = |mount| {
            options(&parsed(&["--mount", mount]))
                .unwrap_err()
                .to_string()
        };
        assert!(refused("journal=nodes").contains("jbd2 or zjournal"));
        assert!(refused("data=writeback").contains("zeroes"));
        assert!(refused("noatime").contains("no policy"));
        assert!(refused("nvm=direct").contains("emulated"));
        assert!(refused("page_cache=none").contains("nvm=emulated"));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("resume");
        let plan = Report::new(&parsed(&["--mount", "journal=zjournal"]), 10);
        save(&file, &plan).unwrap();
        let other = load(&file, &Report::new(&parsed(&[]), 10)).unwrap_err();
        assert!(
            other.to_string().contains("--mount journal=zjournal"),
            "{other}"
        );
        let hybrid = parsed(&["--media", "hybrid", "--mount", "flush=two"]);
        let words = Report::new(&hybrid, 1).volume_words();
        assert_eq!(words, " --media hybrid --mount flush=two");
        let media = |media| options(&parsed(&["--media", media])).unwrap().media;
        assert_eq!(media("hybrid-regions"), On::HybridRegions);
        assert_eq!(media("hybrid"), On::Hybrid(NodeLog::Nvm));
    }

    #[test]
    fn a_violation_ends_with_1_and_says_how_to_replay_it() {
        let args = parsed(&[]);
        let mut report = Report::new(&args, 10);
        assert_eq!(report.code(), exit::OK);
        let failures = vec!["workload: setup 1; sync\nstep 0 (sync): broken".to_owned()];
        report.add(
            Tally {
                failures,
                ..Tally::default()
            },
            1,
        );
        assert_eq!(report.code(), exit::FAILED);
        assert_eq!(report.violations[0].workload, "setup 1; sync");
    }

    #[test]
    fn chipmunk_is_a_list_of_workloads() {
        let parsed = |more: &[&str]| {
            let fixed = [
                "dure",
                "sim",
                "crash",
                "--suite",
                "chipmunk",
                "--threads",
                "1",
            ];
            match Args::try_parse_from(fixed.iter().chain(more))
                .unwrap()
                .command
            {
                Command::Sim(Sim::Crash(args)) => args,
                other => panic!("{other:?}"),
            }
        };
        let report = enumerate(&parsed(&[])).unwrap();
        assert!(report.is_complete() && report.workloads > 100);
        assert_eq!((report.code(), report.violations.len()), (exit::OK, 0));
        let refused = enumerate(&parsed(&["--seed", "2"])).unwrap_err();
        assert!(refused.to_string().contains("for ace"), "{refused}");
    }

    #[test]
    fn a_replay_runs_the_workload_alone() {
        let text = "setup 1; create /new; fsync /new; unlink /foo; writeback";
        let report = replay(&parsed(&[]), text).unwrap();
        assert_eq!((report.workloads, report.violations.len()), (1, 0));
        assert!(report.states > 10);
        assert!(replay(&parsed(&[]), "create /new").is_err());
    }
}

//! Requests of the kernel while programs work on a mount, against their budgets.
//!
//! **Problem.** A request costs ten times what the server does for it, and which ones the kernel
//! sends depends on what replies say about validity. **Structure.** [`SEQUENCES`] are programs on
//! one volume, one after the other, with budgets; [`Ground`] is the volume and what is unpacked
//! there. Trace events count ([`dure_bench::requests`]). **Invariants.** The tree is always the
//! same, and what the kernel knows of directories for a second only is forgotten before each
//! sequence, so a count does not depend on the machine's speed. **Crash.** The instance of tracefs
//! stays behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use dure_bench::requests::{Counted, Requests};
use dure_sync::thread;

use super::table::{is_exceeded, verdict};
use crate::conformance::Cx;
use crate::conformance::git::git;
use crate::conformance::mount::Volume;
use crate::conformance::profile::Profile;
use crate::conformance::tools::{Needs, Tools};

const NEEDS: Needs = Needs {
    mount: true,
    crates: &[],
    programs: &[
        ("tar", "tar"),
        ("find", "findutils"),
        ("grep", "grep"),
        ("git", "git"),
    ],
};

const DIRECTORIES: u32 = 40;
const FILES_IN_EACH: u32 = 12;
const FILE_BYTES: usize = 12 << 10;
const LIMIT: Duration = Duration::from_secs(300);
/// Attributes of directories are valid for a second.
const FORGOTTEN: Duration = Duration::from_millis(1200);

/// Which cache takes the data of a write(2): the kernel's, or the server's.
const MODES: [&str; 2] = ["writeback", "writethrough"];

/// What a count is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Per {
    /// A file or directory of the tree.
    Entry,
    Directory,
    /// A file that is exchanged.
    File,
}

/// One program, or several, and their budget.
#[derive(Debug)]
struct Sequence {
    name: &'static str,
    per: Per,
    /// By mode of [`MODES`].
    budgets: [f64; MODES.len()],
    goal: Option<f64>,
    work: fn(&Ground) -> Result<()>,
    before: Before,
}

/// What happens before a sequence, and is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    /// The volume is mounted again: the kernel knows nothing of it.
    Mount,
    /// A repository is made.
    Commits,
}

const fn sequence(
    name: &'static str,
    (per, budgets, goal): (Per, [f64; MODES.len()], Option<f64>),
    work: fn(&Ground) -> Result<()>,
    before: Before,
) -> Sequence {
    Sequence {
        name,
        per,
        budgets,
        goal,
        work,
        before,
    }
}

/// In this order: later ones need what earlier ones have made.
const SEQUENCES: &[Sequence] = &[
    sequence(
        "tar x",
        (Per::Entry, [8.71, 10.4], Some(6.0)),
        extract,
        Before::Nothing,
    ),
    sequence(
        "find, cold",
        (Per::Directory, [2.07, 2.07], Some(1.1)),
        find,
        Before::Mount,
    ),
    sequence(
        "find, again",
        (Per::Entry, [0.1, 0.1], None),
        find,
        Before::Nothing,
    ),
    sequence(
        "grep -r, cold",
        (Per::Entry, [1.09, 1.09], None),
        grep,
        Before::Mount,
    ),
    sequence(
        "grep -r, second",
        (Per::Entry, [1.0, 1.0], None),
        grep,
        Before::Nothing,
    ),
    sequence(
        "grep -r, third",
        (Per::Entry, [1.0, 0.1], None),
        grep,
        Before::Nothing,
    ),
    sequence(
        "git checkout",
        (Per::File, [12.8, 10.7], None),
        checkout,
        Before::Commits,
    ),
    sequence(
        "rm -rf",
        (Per::Entry, [2.92, 2.0], Some(1.2)),
        remove,
        Before::Nothing,
    ),
];

impl Sequence {
    fn count(&self, ground: &mut Ground, requests: &Requests) -> Result<Counted> {
        match self.before {
            Before::Nothing => {}
            Before::Mount => ground.mount_again()?,
            Before::Commits => ground.commit()?,
        }
        thread::sleep(FORGOTTEN);
        let root = ground.volume.root();
        requests.during(&root, || (self.work)(ground))
    }

    fn units(&self) -> u32 {
        match self.per {
            Per::Entry => 1 + DIRECTORIES + DIRECTORIES * FILES_IN_EACH,
            Per::Directory => 1 + DIRECTORIES,
            Per::File => DIRECTORIES * FILES_IN_EACH,
        }
    }

    fn show(&self, counted: &Counted, budget: f64) -> (String, bool) {
        let each = |count: u64| count as f64 / f64::from(self.units());
        let total = each(counted.total);
        let per = match self.per {
            Per::Entry => "entry",
            Per::Directory => "directory",
            Per::File => "file",
        };
        let goal = self
            .goal
            .map_or_else(|| "-".to_owned(), |goal| format!("{goal:.1}"));
        let mut names: Vec<_> = counted.by_name.iter().collect();
        names.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let names: Vec<String> = names
            .into_iter()
            .filter(|(_, count)| each(**count) >= 0.05)
            .map(|(name, count)| format!("{name} {:.2}", each(*count)))
            .collect();
        let line = format!(
            "{:<16} {per:<9} {total:>8.2} {:>7.2} {goal:>5}{}  {}",
            self.name,
            budget,
            verdict(total, budget),
            names.join(", ")
        );
        (line, is_exceeded(total, budget))
    }
}

/// Whether there is a mount, and tracefs.
pub(super) fn can_count() -> Result<()> {
    Tools::new().ensure(&NEEDS)?;
    let requests = Requests::new().context("requests cannot be counted");
    requests.map(drop)
}

/// Counts all of them and prints the table; how many exceed their budgets.
pub(super) fn run(dure: PathBuf) -> Result<usize> {
    let cx = Cx {
        profile: Profile::Disk,
        dure,
        tools: Tools::new(),
        quick: false,
        keep: false,
        seed: 1,
        transport: None,
    };
    let requests = Requests::new()?;
    let mut exceeded = 0;
    for (number, mode) in MODES.iter().enumerate() {
        let mut ground = Ground::new(&cx, mode)?;
        println!("{mode:<16} per       requests  budget  goal");
        for sequence in SEQUENCES {
            let counted = sequence.count(&mut ground, &requests);
            let counted = counted.context(sequence.name)?;
            let (line, is_exceeded) = sequence.show(&counted, sequence.budgets[number]);
            println!("{line}");
            exceeded += usize::from(is_exceeded);
        }
        ground.volume.close()?;
    }
    Ok(exceeded)
}

/// A volume, and an archive outside it.
struct Ground {
    volume: Volume,
    mode: &'static str,
    archive: PathBuf,
}

impl Ground {
    fn new(cx: &Cx, mode: &'static str) -> Result<Ground> {
        let mut volume = Volume::unmounted(cx, "cost")?;
        volume.mount_with(&[mode])?;
        let archive = volume.scratch().join("tree.tar");
        make_tree(&volume.scratch().join("tree"), b'a')?;
        let mut tar = Command::new("tar");
        tar.arg("-cf").arg(&archive).arg("-C").arg(volume.scratch());
        volume.steps.run(with(tar, &["tree"]), LIMIT)?;
        Ok(Ground {
            volume,
            mode,
            archive,
        })
    }

    fn mount_again(&mut self) -> Result<()> {
        self.volume.unmount()?;
        self.volume.mount_with(&[self.mode])
    }

    fn run(&self, command: Command) -> Result<()> {
        self.volume.steps.run(command, LIMIT).map(drop)
    }

    /// Two commits that differ in every file; the first is checked out.
    fn commit(&self) -> Result<()> {
        let repository = self.volume.root().join("repository");
        fs::create_dir(&repository)?;
        let run = |arguments: &[&str]| self.run(with(git(&repository), arguments));
        run(&["init", "-q"])?;
        for (byte, name) in [(b'a', "one"), (b'b', "two")] {
            make_tree(&repository, byte)?;
            run(&["add", "-A"])?;
            run(&["commit", "-q", "-m", name])?;
            run(&["tag", name])?;
        }
        run(&["checkout", "-q", "one"])
    }
}

/// The same files each time, all of `byte`.
fn make_tree(at: &Path, byte: u8) -> Result<()> {
    for directory in 0..DIRECTORIES {
        let folder = at.join(format!("d{directory}"));
        fs::create_dir_all(&folder)?;
        for file in 0..FILES_IN_EACH {
            let mut bytes = vec![byte; FILE_BYTES];
            // git would store equal files once.
            bytes[..8].copy_from_slice(&u64::from(directory * FILES_IN_EACH + file).to_le_bytes());
            fs::write(folder.join(format!("file{file}")), bytes)?;
        }
    }
    Ok(())
}

fn with(mut command: Command, arguments: &[&str]) -> Command {
    command.args(arguments);
    command
}

fn extract(ground: &Ground) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(&ground.archive);
    tar.arg("-C").arg(ground.volume.root());
    ground.run(tar)
}

fn find(ground: &Ground) -> Result<()> {
    let mut find = Command::new("find");
    find.arg(ground.volume.root().join("tree"));
    ground.run(with(find, &["-type", "f", "-size", "+0"]))
}

/// For a word that all files have: the programs fails if it finds none.
fn grep(ground: &Ground) -> Result<()> {
    let mut grep = with(Command::new("grep"), &["-r", "-c", "aaaa"]);
    grep.arg(ground.volume.root().join("tree"));
    ground.run(grep)
}

fn checkout(ground: &Ground) -> Result<()> {
    let repository = ground.volume.root().join("repository");
    ground.run(with(git(&repository), &["checkout", "-q", "two"]))
}

fn remove(ground: &Ground) -> Result<()> {
    let mut rm = with(Command::new("rm"), &["-rf"]);
    rm.arg(ground.volume.root().join("tree"));
    ground.run(rm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_over_its_budget_is_said() {
        let of = |total| Counted {
            total,
            by_name: [("UNLINK".to_owned(), total)].into(),
        };
        let per_entry = (Per::Entry, [2.0, 9.0], None);
        let rm = sequence("rm", per_entry, remove, Before::Nothing);
        // A twentieth more than 2.0 for each of 521 entries.
        let (line, is_exceeded) = rm.show(&of(1094), rm.budgets[0]);
        assert!(!is_exceeded && !line.contains("EXCEEDED"), "{line}");
        let (line, is_exceeded) = rm.show(&of(1095), rm.budgets[0]);
        assert!(is_exceeded && line.contains("EXCEEDED"), "{line}");
        assert!(line.contains("UNLINK"), "{line}");
    }
}

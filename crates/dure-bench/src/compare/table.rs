//! What a paper's table is made of, and all papers.

use clap::ValueEnum;

use super::{blk_mq, hybridf2fs, interfaces, nvram_lfs, pnova, zjournal};
use crate::aim7::Mix;
use crate::filebench::Personality;
use crate::fxmark::Workload;

/// The papers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PaperName {
    /// Z-Journal: a journal for each core.
    Zjournal,
    /// hybridF2FS: range locks, nCache, the node log in persistent memory.
    #[value(name = "hybridf2fs")]
    HybridF2fs,
    /// pNOVA: range locks and NUMA nodes in persistent memory.
    Pnova,
    /// A log-structured file system with dirty pages in persistent memory.
    NvramLfs,
    /// The queues and tags of the block layer.
    BlkMq,
    /// The interfaces to a fast drive.
    Interfaces,
}

impl PaperName {
    /// As it is given.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.paper().spelled
    }

    /// Its table.
    #[must_use]
    pub fn paper(self) -> &'static Paper {
        let mut papers = PAPERS.iter();
        papers
            .find(|paper| paper.name == self)
            .expect("a test compares")
    }
}

/// All papers.
pub const PAPERS: [Paper; 6] = [
    zjournal::PAPER,
    hybridf2fs::PAPER,
    pnova::PAPER,
    nvram_lfs::PAPER,
    blk_mq::PAPER,
    interfaces::PAPER,
];

/// Figures and tables that no paper's table has, and why.
pub const LEFT_OUT: &[(&[&str], &str)] = &[(
    &["000-t1", "000-t2", "000-t3", "001-t1", "004-t1", "004-t2"],
    "they are the machines of the documents; a report begins with this one",
)];

/// A paper.
#[derive(Debug)]
pub struct Paper {
    /// Its name.
    pub name: PaperName,
    /// As it is given.
    pub spelled: &'static str,
    /// Numbers of documents and their sections: docs/design/policies.md has their titles.
    pub documents: &'static str,
    /// Its figures, in their order.
    pub rows: &'static [Row],
}

/// Figures that show the same.
#[derive(Debug)]
pub struct Row {
    /// Their names: number of the document, and of the figure in it.
    pub figures: &'static [&'static str],
    /// How they are repeated.
    pub how: How,
}

/// How a figure is repeated.
#[derive(Debug)]
pub enum How {
    /// It is measured here.
    Here {
        /// What is measured.
        parts: &'static [Part],
        /// How that differs from the document.
        differs: &'static str,
    },
    /// It is a mechanism, which another command shows.
    Elsewhere,
}

/// A load on some systems.
#[derive(Debug)]
pub struct Part {
    /// The load.
    pub load: Load,
    /// What it is put on: the baseline, the published system, dure.
    pub systems: &'static [System],
    /// Policies of all of them: the medium.
    pub medium: &'static str,
    /// Threads, if the document is about certain numbers; else none.
    pub threads: &'static [usize],
}

/// One of the systems that are compared.
#[derive(Debug)]
pub struct System {
    /// Its name in the document.
    pub name: &'static str,
    /// Policies of a mount; options of `dure bench blk` for requests.
    pub policy: &'static str,
}

/// A load, by the bench that has it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    /// `dure bench fxmark`.
    FxMark(Workload),
    /// `dure bench filebench`, with files in so many folders; a worker for each core.
    Filebench(Personality, Option<usize>),
    /// `dure bench aim7`.
    Aim7(Mix),
    /// `dure bench device --workload random-read`, of one file that is larger than the cache.
    Misses,
    /// `dure bench tpcc`.
    Trace(Syncs, &'static [Metric]),
    /// `dure bench blk`, with options of all systems.
    Requests(&'static str, &'static [Metric]),
}

/// Whether transactions of a trace sync their log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syncs {
    /// Each does.
    Each,
    /// Only the periodic sync makes anything durable.
    Periodic,
}

/// What is told of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Operations, jobs or requests a second.
    Rate,
    /// The wait of a request for a tag, by the time of all that comes behind it.
    WaitByRest,
    /// The share of CPU time that is spent waiting for the lock of submission.
    LockCpu,
    /// Time of all calls.
    Total,
    /// Mean time of a call.
    Mean,
    /// Standard deviation of the times of calls.
    Deviation,
    /// The shortest call.
    Shortest,
    /// The longest call.
    Longest,
}

impl Metric {
    /// The metric in words, and its unit.
    pub(super) fn words(self) -> (&'static str, &'static str) {
        match self {
            Metric::Rate => ("", "1/s"),
            Metric::WaitByRest => ("wait for a tag by the rest", "times"),
            Metric::LockCpu => ("CPU of the lock", "%"),
            Metric::Total => ("all calls", "s"),
            Metric::Mean => ("mean call", "us"),
            Metric::Deviation => ("deviation of calls", "us"),
            Metric::Shortest => ("shortest call", "us"),
            Metric::Longest => ("longest call", "us"),
        }
    }
}

/// Stands in options of `dure bench blk` for a file or device.
pub(super) const FILE: &str = "FILE";

impl Load {
    /// In reports.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Load::FxMark(workload) => workload.name().to_owned(),
            Load::Filebench(what, None) => what.name().to_owned(),
            Load::Filebench(what, Some(folders)) => format!("{}, {folders} folders", what.name()),
            Load::Aim7(mix) => format!("AIM7 {}", mix.name()),
            Load::Misses => "reads that miss".to_owned(),
            Load::Trace(Syncs::Each, _) => "TPC-C".to_owned(),
            Load::Trace(Syncs::Periodic, _) => "TPC-C without syncs".to_owned(),
            Load::Requests(_, metrics) if metrics.contains(&Metric::LockCpu) => {
                "random reads of files".to_owned()
            }
            Load::Requests(..) if self.is_on_a_file() => "random reads of a file".to_owned(),
            Load::Requests(..) => "random reads".to_owned(),
        }
    }

    pub(super) fn is_trace(&self) -> bool {
        matches!(self, Load::Trace(..))
    }

    pub(super) fn is_on_volumes(&self) -> bool {
        !matches!(self, Load::Trace(..) | Load::Requests(..))
    }

    pub(super) fn is_on_a_file(&self) -> bool {
        matches!(self, Load::Requests(options, _) if options.contains(FILE))
    }

    /// Seconds of a measurement, unless it is told another time.
    pub(super) fn seconds(self) -> f64 {
        match self {
            Load::Filebench(..) => 1.0,
            Load::Aim7(_) => 2.0,
            _ => 0.5,
        }
    }
}

impl Row {
    /// What is measured.
    pub fn parts(&self) -> impl Iterator<Item = &'static Part> {
        match self.how {
            How::Here { parts, .. } => parts.iter(),
            How::Elsewhere => [].iter(),
        }
    }

    pub(super) fn loads(&self) -> impl Iterator<Item = Load> {
        self.parts().map(|part| part.load)
    }
}

impl Part {
    /// All policies of one of its systems.
    #[must_use]
    pub fn policy(&self, system: &System) -> String {
        let space = if matches!(self.load, Load::Requests(..)) {
            " "
        } else {
            ","
        };
        let words = [system.policy, self.medium];
        words
            .into_iter()
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .join(space)
    }
}

pub(super) const fn here(
    figures: &'static [&'static str],
    parts: &'static [Part],
    differs: &'static str,
) -> Row {
    Row {
        figures,
        how: How::Here { parts, differs },
    }
}

pub(super) const fn elsewhere(figures: &'static [&'static str]) -> Row {
    Row {
        figures,
        how: How::Elsewhere,
    }
}

pub(super) const fn system(name: &'static str, policy: &'static str) -> System {
    System { name, policy }
}

/// A load with the usual numbers of threads.
pub(super) const fn part(load: Load, systems: &'static [System], medium: &'static str) -> Part {
    Part {
        load,
        systems,
        medium,
        threads: &[],
    }
}

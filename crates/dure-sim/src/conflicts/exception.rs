//! Report of a shared line: what lies in it, where it was allocated, which code uses it.

use std::collections::BTreeMap;

use dure_sync::sim::{Access, Frame, SharedLine, Sighting, Stack, Symbols};

use super::justified;

/// Crates whose code says what something is for; the others say how locks and machines work.
const TOOLS: [&str; 3] = ["/dure-sync/", "/dure-vcpu/", "/dure-sim/"];

/// A line of the program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Place {
    /// The function.
    pub function: String,
    /// File and line, from the root of the sources on.
    pub at: String,
    /// What stands there, if the sources are at hand.
    pub text: String,
}

/// The first use of a word of a shared line by a core.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    /// Which core.
    pub core: usize,
    /// Load, Store or Update.
    pub access: &'static str,
    /// The word, from the start of the line.
    pub byte: usize,
    /// The type of what it is part of, if known.
    pub what: &'static str,
    /// By which line of the program, outside the locks.
    pub place: Place,
}

/// A line both cores use, one of them for writing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    /// The function that writes the line. Lines with the same one are of one class.
    pub class: String,
    /// Where its memory was allocated.
    pub made: Place,
    /// How far the line is from the start of what was allocated.
    pub offset: usize,
    /// Each first use of a word by a core.
    pub uses: Vec<Use>,
}

impl Line {
    /// The reason why it is shared, if it has one.
    #[must_use]
    pub fn justified(&self) -> Option<&'static str> {
        justified::reason(self)
    }

    /// Whether each word that one core writes is used by only that core.
    #[must_use]
    pub fn is_false_sharing(&self) -> bool {
        let mut words: BTreeMap<usize, (u64, bool)> = BTreeMap::new();
        for one in &self.uses {
            let word = words.entry(one.byte).or_default();
            word.0 |= 1 << one.core;
            word.1 |= one.access != "Load";
        }
        words
            .values()
            .all(|(cores, written)| cores.count_ones() == 1 || !written)
    }
}

/// Finds places of code; keeps the sources it read.
#[derive(Debug, Default)]
pub(crate) struct Finder {
    symbols: Symbols,
    sources: BTreeMap<String, Vec<String>>,
}

impl Finder {
    pub(super) fn line(&mut self, shared: &SharedLine) -> Line {
        let mut uses = Vec::new();
        for sighting in &shared.sightings {
            uses.push(self.one(sighting, shared.address));
        }
        let writer = uses.iter().find(|one| one.access != "Load");
        let class = writer.map_or_else(String::new, |one| one.place.function.clone());
        let (made, offset) = match &shared.block {
            Some((stack, offset)) => (self.place(stack), *offset),
            None => (Place::default(), 0),
        };
        Line {
            class,
            made,
            offset,
            uses,
        }
    }

    fn one(&mut self, sighting: &Sighting, line: usize) -> Use {
        Use {
            core: sighting.core,
            access: match sighting.access {
                Access::Load => "Load",
                Access::Store => "Store",
                Access::Update => "Update",
            },
            byte: sighting.address - line,
            what: sighting.what,
            place: self.place(&sighting.stack),
        }
    }

    /// The innermost place in the file system.
    pub(crate) fn place(&mut self, stack: &Stack) -> Place {
        let frames = self.symbols.frames(stack);
        let ours = |frame: &&Frame| {
            frame.file.contains("crates/dure")
                && !TOOLS.iter().any(|tool| frame.file.contains(tool))
        };
        // A test of this module has no place in the file system.
        let caller = |frame: &&Frame| {
            !frame.file.contains("/dure-sync/") && frame.file.contains("crates/dure-sim/tests")
        };
        let found = frames.iter().find(ours);
        let Some(frame) = found.or_else(|| frames.iter().find(caller)) else {
            return Place::default();
        };
        let from = frame.file.find("crates/").unwrap_or(0);
        Place {
            function: short(&frame.function),
            at: format!("{}:{}", &frame.file[from..], frame.line),
            text: self.text(&frame.file, frame.line),
        }
    }

    fn text(&mut self, file: &str, line: u32) -> String {
        let lines = self.sources.entry(file.to_owned()).or_insert_with(|| {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            text.lines().map(|line| line.trim().to_owned()).collect()
        });
        let index = usize::try_from(line.saturating_sub(1)).expect("32 bits");
        lines.get(index).cloned().unwrap_or_default()
    }
}

/// A function without what is the same for all.
fn short(function: &str) -> String {
    function
        .replace("dure_fs::", "")
        .replace("core::ops::drop::", "")
}

//! Which cache lines several cores use between two moments, and where in the program.
//!
//! **Problem.** That a line moves says that cores share it, not which, nor in which line of code.
//! **Structure.** A [`Watch`] notes, for tasks that asked for it, the first use of each word by
//! each core and kind of access, with the stack if that is wanted. At the end it reports the lines
//! that more than one core used, one of them for writing. **Invariants.** Watching costs no virtual
//! time and makes no switch: a watched run takes the same steps as one that is not. Memory that is
//! freed while watched does not connect its two users. **Crash.** Nothing is kept.

use std::collections::BTreeMap;
use std::ptr::without_provenance_mut;

use crate::lines::Access;

/// log2 of the size of a cache line.
const LINE_SHIFT: u32 = 6;
/// Frames of a stack that are kept.
const FRAMES_MAX: usize = 40;

/// What a watch notes in addition to the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Nothing.
    Lines,
    /// The stack of each use, and where each block of memory was allocated from now on.
    Stacks,
}

/// Where a task was: return addresses, innermost first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Stack(Vec<usize>);

/// A line of code on a stack.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame {
    /// The function, with its path.
    pub function: String,
    /// The source file, as the compiler was given it.
    pub file: String,
    /// The line in it.
    pub line: u32,
}

/// A use of a line.
#[derive(Debug, Clone)]
pub struct Sighting {
    /// By which core.
    pub core: usize,
    /// How.
    pub access: Access,
    /// The word.
    pub address: usize,
    /// The type of what lies there, if it is known; otherwise empty.
    pub what: &'static str,
    /// By which code.
    pub stack: Stack,
}

/// A line that more than one core used, and one of them wrote.
#[derive(Debug, Clone)]
pub struct SharedLine {
    /// The address of its first byte.
    pub address: usize,
    /// The first use of each word by each core, in order.
    pub sightings: Vec<Sighting>,
    /// Where the memory was allocated, and how many bytes of the block lie before the line.
    pub block: Option<(Stack, usize)>,
}

/// What is noted.
#[derive(Debug)]
pub(crate) struct Watch {
    detail: Detail,
    /// Tasks that are watched.
    tasks: Vec<usize>,
    lines: BTreeMap<usize, Vec<Sighting>>,
    /// Shared lines whose memory was freed since.
    gone: Vec<SharedLine>,
    blocks: BTreeMap<usize, (usize, Stack)>,
}

impl Watch {
    pub(crate) fn new(detail: Detail) -> Self {
        Self {
            detail,
            tasks: Vec::new(),
            lines: BTreeMap::new(),
            gone: Vec::new(),
            blocks: BTreeMap::new(),
        }
    }

    /// From now on, or no longer, `task` is watched.
    pub(crate) fn include(&mut self, task: usize, on: bool) {
        self.tasks.retain(|watched| *watched != task);
        if on {
            self.tasks.push(task);
        }
    }

    /// `task` on `core` uses the word at `address`, part of a `what`.
    pub(crate) fn note(
        &mut self,
        (task, core): (usize, usize),
        access: Access,
        address: usize,
        what: &'static str,
    ) {
        if !self.tasks.contains(&task) {
            return;
        }
        let sightings = self.lines.entry(address >> LINE_SHIFT).or_default();
        let seen = |seen: &&mut Sighting| {
            (seen.core, seen.access, seen.address) == (core, access, address)
        };
        if let Some(seen) = sightings.iter_mut().find(seen) {
            if seen.what.is_empty() {
                seen.what = what;
            }
            return;
        }
        let stack = match self.detail {
            Detail::Lines => Stack::default(),
            Detail::Stacks => Stack::here(),
        };
        sightings.push(Sighting {
            core,
            access,
            address,
            what,
            stack,
        });
    }

    /// A block of memory now exists.
    pub(crate) fn allocated(&mut self, address: usize, bytes: usize) {
        if self.detail == Detail::Stacks {
            self.blocks.insert(address, (bytes, Stack::here()));
        }
    }

    /// A block of memory is freed: its next user shares no line with the last.
    pub(crate) fn forget(&mut self, address: usize, bytes: usize) {
        let first = address >> LINE_SHIFT;
        let end = (address + bytes).div_ceil(1 << LINE_SHIFT);
        let freed: Vec<usize> = self
            .lines
            .range(first..end)
            .map(|(line, _)| *line)
            .collect();
        for line in freed {
            let sightings = self.lines.remove(&line).expect("the line was found above");
            let shared = self.shared(line, sightings);
            self.gone.extend(shared);
        }
        self.blocks.remove(&address);
    }

    /// The lines that were shared.
    pub(crate) fn finish(mut self) -> Vec<SharedLine> {
        let lines = std::mem::take(&mut self.lines);
        let mut found = std::mem::take(&mut self.gone);
        for (line, sightings) in lines {
            found.extend(self.shared(line, sightings));
        }
        found
    }

    fn shared(&self, line: usize, sightings: Vec<Sighting>) -> Option<SharedLine> {
        let core = sightings.first()?.core;
        let several = sightings.iter().any(|sighting| sighting.core != core);
        let written = sightings
            .iter()
            .any(|sighting| sighting.access != Access::Load);
        if !several || !written {
            return None;
        }
        let address = line << LINE_SHIFT;
        let block = self.blocks.range(..=address).next_back();
        let block = block
            .filter(|(start, (bytes, _))| address < *start + bytes)
            .map(|(start, (_, stack))| (stack.clone(), address - start));
        Some(SharedLine {
            address,
            sightings,
            block,
        })
    }
}

impl Stack {
    /// The stack of the caller.
    pub(crate) fn here() -> Self {
        let mut frames = Vec::with_capacity(FRAMES_MAX);
        backtrace::trace(|frame| {
            frames.push(frame.ip().addr());
            frames.len() < FRAMES_MAX
        });
        Self(frames)
    }
}

/// Turns addresses of code into functions and lines; keeps what it found, since finding is slow.
#[derive(Debug, Default)]
pub struct Symbols {
    known: BTreeMap<usize, Vec<Frame>>,
}

impl Symbols {
    /// The functions of `stack`, inlined ones too, innermost first. Needs the debug information of
    /// the program; functions without it are left out.
    pub fn frames(&mut self, stack: &Stack) -> Vec<Frame> {
        let mut frames = Vec::new();
        for address in &stack.0 {
            let found = self.known.entry(*address).or_insert_with(|| find(*address));
            frames.extend_from_slice(found);
        }
        frames
    }
}

/// The functions at a return address.
fn find(address: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    if address == 0 {
        // Where a stack ends.
        return frames;
    }
    // The call lies before the address to which it returns.
    backtrace::resolve(without_provenance_mut(address - 1), |symbol| {
        if let (Some(name), Some(file)) = (symbol.name(), symbol.filename()) {
            frames.push(Frame {
                function: format!("{name:#}"),
                file: file.display().to_string(),
                line: symbol.lineno().unwrap_or(0),
            });
        }
    });
    frames
}

//! Which trees a crash may leave.
//!
//! **Structure.** A legal tree is made by a set of atoms that holds everything promised, nothing
//! that had not begun, and with each atom all it needs. The few atoms on names, attributes and
//! sizes are enumerated; the pages of a file, which are many and free of each other, are compared
//! one by one against the versions that fit. **Invariants.** A size may also end between the pages
//! of one write ("what is below it is there"). **Crash.** A tree that fits no set is a violation of
//! the contract.

use std::collections::{BTreeMap, BTreeSet};

use dure_fs::FileKind;

use super::history::{History, PAGE, Version};
use super::state::{Effect, Id, Node, State};
use super::tree::{Item, Tree};

/// Sets of atoms that are tried at most.
const SETS_MAX: usize = 1 << 16;

/// What is known at the instant of a crash.
#[derive(Debug, Clone, Copy)]
pub struct CrashMoment<'h> {
    /// Atoms that were promised.
    pub required: &'h BTreeSet<usize>,
    /// Atoms of steps before this one had begun.
    pub begun: usize,
}

/// What one set of atoms makes.
struct Made {
    state: State,
    paths: BTreeMap<String, Id>,
}

/// The legal trees of a history. What sets of atoms make is kept: many trees are compared with it.
pub(super) struct Legal<'h> {
    history: &'h History,
    made: BTreeMap<BTreeSet<usize>, Made>,
}

/// One choice of atoms.
struct Choice<'h> {
    history: &'h History,
    begun: usize,
    /// Atoms but for pages.
    chosen: BTreeSet<usize>,
    /// All that must be there, pages too.
    needed: BTreeSet<usize>,
}

/// Whether `real` is one of the trees that a crash at `instant` may leave.
///
/// # Errors
/// How it differs from the nearest legal trees.
pub fn check(history: &History, instant: CrashMoment<'_>, real: &Tree) -> Result<(), String> {
    Legal::new(history).check(instant, real)
}

impl<'h> Legal<'h> {
    pub(super) fn new(history: &'h History) -> Legal<'h> {
        Legal {
            history,
            made: BTreeMap::new(),
        }
    }

    fn made(&mut self, chosen: &BTreeSet<usize>) -> &Made {
        if !self.made.contains_key(chosen) {
            let mut state = self.history.base.clone();
            for atom in chosen {
                state.apply(&self.history.atoms[*atom].effect);
            }
            let paths = state.paths();
            self.made.insert(chosen.clone(), Made { state, paths });
        }
        &self.made[chosen]
    }

    /// Like [`check`].
    pub(super) fn check(&mut self, instant: CrashMoment<'_>, real: &Tree) -> Result<(), String> {
        let history = self.history;
        let is_page = |atom: usize| matches!(history.atoms[atom].effect, Effect::Page(..));
        let begun = |atom: &usize| history.atoms[*atom].step < instant.begun;
        let atoms: Vec<usize> = (0..history.atoms.len()).filter(begun).collect();
        let majors: Vec<usize> = atoms.into_iter().filter(|atom| !is_page(*atom)).collect();
        let mut open = vec![(0, BTreeSet::new())];
        let mut differences = Vec::new();
        let mut tried = 0;
        while let Some((at, chosen)) = open.pop() {
            let Some(&atom) = majors.get(at) else {
                let needed = needed(history, &instant, &chosen);
                let choice = Choice {
                    history,
                    begun: instant.begun,
                    chosen,
                    needed,
                };
                match choice.compare(self.made(&choice.chosen), real) {
                    Ok(()) => return Ok(()),
                    Err(difference) => differences.push((choice.chosen, difference)),
                }
                tried += 1;
                assert!(tried < SETS_MAX, "a workload with too many open operations");
                continue;
            };
            let possible = history.atoms[atom]
                .needs
                .iter()
                .all(|need| *need == atom || is_page(*need) || chosen.contains(need));
            let mut with = chosen.clone();
            with.insert(atom);
            if instant.required.contains(&atom) {
                assert!(possible, "what is required is closed");
                open.push((at + 1, with));
            } else {
                open.push((at + 1, chosen));
                if possible {
                    open.push((at + 1, with));
                }
            }
        }
        let last = differences.last().expect("one set at least");
        let show = |(chosen, difference): &(BTreeSet<usize>, String)| {
            format!("with atoms {chosen:?}: {difference}")
        };
        Err(format!(
            "no legal tree ({tried} tried): {}; {}",
            show(&differences[0]),
            show(last)
        ))
    }
}

fn needed(
    history: &History,
    instant: &CrashMoment<'_>,
    chosen: &BTreeSet<usize>,
) -> BTreeSet<usize> {
    let needs = |atom: &usize| history.atoms[*atom].needs.iter().copied();
    let mut all: BTreeSet<usize> = chosen.iter().flat_map(needs).collect();
    all.extend(instant.required);
    all
}

impl Choice<'_> {
    fn has_begun(&self, atom: usize) -> bool {
        self.history.atoms[atom].step < self.begun
    }

    fn compare(&self, made: &Made, real: &Tree) -> Result<(), String> {
        let Made { state, paths } = made;
        for path in paths.keys().chain(real.items.keys()) {
            if !real.items.contains_key(path) {
                return Err(format!("/{path} is missing"));
            }
            if !paths.contains_key(path) {
                return Err(format!("/{path} is there"));
            }
        }
        let mut inos = BTreeMap::new();
        let mut ids = BTreeMap::new();
        let mut links: BTreeMap<Id, u32> = BTreeMap::new();
        for (path, id) in paths {
            let ino = real.items[path].ino;
            if *inos.entry(id).or_insert(ino) != ino || *ids.entry(ino).or_insert(id) != id {
                return Err(format!("/{path} is another inode"));
            }
            *links.entry(*id).or_default() += 1;
        }
        for (path, id) in paths {
            let node = state.node(*id);
            let is_directory = |id: &&Id| state.node(**id).kind == FileKind::Directory;
            let links = match node.kind {
                FileKind::Directory => {
                    let below = node.entries.values().filter(is_directory).count();
                    2 + u32::try_from(below).expect("few directories")
                }
                _ => links[id],
            };
            self.compare_item(*id, node, links, &real.items[path])
                .map_err(|what| format!("/{path}: {what}"))?;
        }
        Ok(())
    }

    fn compare_item(&self, id: Id, node: &Node, links: u32, real: &Item) -> Result<(), String> {
        let expected = (node.kind, node.mode, node.uid, links);
        let found = (real.kind, real.mode, real.uid, real.nlink);
        if expected != found {
            return Err(format!(
                "(type, mode, owner, links) is {found:?}, not {expected:?}"
            ));
        }
        let same = |(name, value): (&&str, &dure_sync::Arc<Vec<u8>>)| {
            real.xattrs.get(name.as_bytes()) == Some(&**value)
        };
        if real.xattrs.len() != node.xattrs.len() || !node.xattrs.iter().all(same) {
            let lens = |name: &Vec<u8>, len: usize| {
                format!("{}: {len} bytes", String::from_utf8_lossy(name))
            };
            let found: Vec<_> = real.xattrs.iter().map(|(n, v)| lens(n, v.len())).collect();
            return Err(format!("attributes are {found:?}"));
        }
        if let Some(secs) = self.known_time(id, node)
            && real.mtime != secs
        {
            return Err(format!("mtime is {}, not {secs}", real.mtime));
        }
        match node.kind {
            FileKind::File => self.compare_content(id, node, real),
            FileKind::Symlink if real.content != node.target.as_bytes() => {
                Err(format!("target is {:?}", real.content))
            }
            _ => Ok(()),
        }
    }

    /// The modification time, if no later change of the content may be there too.
    fn known_time(&self, id: Id, node: &Node) -> Option<i64> {
        let atoms = self.history.atoms.iter().enumerate();
        let mut known = node.mtime;
        for (number, atom) in atoms {
            match atom.effect {
                Effect::Time(of, secs) if of == id => {
                    known = self.chosen.contains(&number).then_some(secs);
                }
                Effect::Page(of, _)
                | Effect::Grow(of, _)
                | Effect::Cut(of, _)
                | Effect::Touch(of)
                    if of == id && self.has_begun(number) =>
                {
                    known = None;
                }
                ref other if self.has_begun(number) && other.is_in(id) => known = None,
                _ => {}
            }
        }
        known
    }

    fn compare_content(&self, id: Id, node: &Node, real: &Item) -> Result<(), String> {
        let len = u64::try_from(real.content.len()).expect("64 bits");
        if len != real.size {
            return Err(format!(
                "{len} bytes can be read, the size is {}",
                real.size
            ));
        }
        let mut more = BTreeSet::new();
        if real.size != node.size {
            let partial = self.partial_growth(id, node.size, real.size);
            more = partial.ok_or(format!("size is {}, not {}", real.size, node.size))?;
        }
        let pages = real.content.chunks(usize::try_from(PAGE).expect("small"));
        for (page, bytes) in (0..).zip(pages) {
            self.compare_page(id, page, bytes, &more)?;
        }
        Ok(())
    }

    /// A size between the old and the new one of a write: the pages below it must be there. Gives
    /// their atoms.
    fn partial_growth(&self, id: Id, old: u64, size: u64) -> Option<BTreeSet<usize>> {
        let mut later = self.history.atoms.iter().enumerate();
        let (number, next, to) = later.find_map(|(number, atom)| match atom.effect {
            Effect::Grow(of, to) | Effect::Cut(of, to)
                if of == id && !self.chosen.contains(&number) =>
            {
                Some((number, atom, to))
            }
            _ => None,
        })?;
        let pages: BTreeSet<usize> = next
            .needs
            .iter()
            .copied()
            .filter(|need| self.history.atoms[*need].step == next.step && *need != number)
            .collect();
        let fits = size > old && size < to && size.is_multiple_of(PAGE);
        if !fits || pages.is_empty() || !self.has_begun(number) {
            return None;
        }
        let below = |atom: &usize| match self.history.atoms[*atom].effect {
            Effect::Page(_, page) => page < size / PAGE,
            _ => true,
        };
        Some(pages.into_iter().filter(below).collect())
    }

    fn compare_page(
        &self,
        id: Id,
        page: u64,
        bytes: &[u8],
        more: &BTreeSet<usize>,
    ) -> Result<(), String> {
        let Some(versions) = self.history.pages.get(&(id, page)) else {
            return match bytes.iter().position(|byte| *byte != 0) {
                Some(at) => Err(format!("page {page} was never written, byte {at} is not 0")),
                None => Ok(()),
            };
        };
        let must = |version: &Version| {
            version.atom.is_none_or(|atom| {
                self.needed.contains(&atom) || more.contains(&atom) || self.chosen.contains(&atom)
            })
        };
        let first = versions.iter().rposition(must).unwrap_or(0);
        let end = versions.iter().position(|version| !self.may_be(version));
        let allowed = &versions[first..end.unwrap_or(versions.len()).max(first)];
        let same = |version: &&Version| version.bytes[..bytes.len()] == *bytes;
        if allowed.iter().any(|version| same(&version)) {
            return Ok(());
        }
        let other = versions.iter().position(|version| same(&version));
        Err(format!(
            "page {page} ({} bytes) is {}, allowed are versions {first}..{}",
            bytes.len(),
            other.map_or("no version".into(), |other| format!("version {other}")),
            end.unwrap_or(versions.len()),
        ))
    }

    /// Whether this change of a page may be there: it began, and all but pages that it needs was
    /// chosen.
    fn may_be(&self, version: &Version) -> bool {
        let Some(atom) = version.atom else {
            return true;
        };
        self.has_begun(atom)
            && self.history.atoms[atom].needs.iter().all(|need| {
                let is_page = matches!(self.history.atoms[*need].effect, Effect::Page(..));
                is_page || self.chosen.contains(need)
            })
    }
}

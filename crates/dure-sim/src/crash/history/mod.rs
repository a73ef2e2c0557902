//! The changes of a workload, split into atomic ones, with the dependencies of each.
//!
//! **Problem.** After a crash many trees are legal: what was synced must be there, everything else
//! may be. **Structure.** Each call becomes [`Atom`]s: one for a call on names or attributes; for a
//! buffered write one per page, and one for the size, which needs those pages. An atom depends on
//! the last change of everything it changed and of everything it decided on
//! (docs/design/durability.md, contract 2 and 3). A page keeps the content after each of its atoms.
//! **Invariants.** Atoms are in the order of the calls, so what an atom depends on comes before it.
//! Dependencies are the fewest the contract promises: dure keeps more. **Crash.** See `legal`.

mod content;
mod names;

use std::collections::{BTreeMap, BTreeSet};

use dure_fs::FileKind;
use dure_fs::units::Ino;
use dure_sync::Arc;

use super::call::{At, Call, Path, Step, pattern};
use super::state::{Effect, Id, Name, Node, ROOT, State, intern};
use super::tree::Tree;

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;

/// One atomic change.
#[derive(Debug, Clone)]
pub struct Atom {
    /// The step of the workload it belongs to.
    pub step: usize,
    /// What it does.
    pub effect: Effect,
    /// Inodes whose fsync makes it durable.
    pub touches: Vec<Id>,
    /// All atoms it depends on, directly or not, in order; itself too.
    pub needs: BTreeSet<usize>,
}

/// A page after one of its changes.
#[derive(Debug, Clone)]
pub struct Version {
    /// The change; none for the state at the start.
    pub atom: Option<usize>,
    /// The bytes then.
    pub bytes: Arc<Vec<u8>>,
}

/// What an atom may depend on: the last change of it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Resource {
    /// Whether the inode is there.
    Exists(Id),
    /// Links and attributes.
    Attributes(Id),
    /// The size of a file.
    Size(Id),
    /// A page of a file.
    Page(Id, u64),
    /// What a name leads to.
    Name(Name),
    /// Where a directory is.
    Parent(Id),
}

/// All that happened since the start.
#[derive(Debug, Clone)]
pub struct History {
    /// The tree at the start, durable.
    pub base: State,
    /// The tree now.
    pub now: State,
    /// The changes.
    pub atoms: Vec<Atom>,
    /// Versions of the pages that were ever written.
    pub pages: BTreeMap<(Id, u64), Vec<Version>>,
    last: BTreeMap<Resource, usize>,
    slots: BTreeMap<u8, Id>,
    /// Numbers of the snapshots that there are.
    pub snapshots: BTreeSet<u8>,
    /// Numbers of all that there were: one name is one snapshot in a history.
    pub taken: BTreeSet<u8>,
    next: Id,
}

fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a workload's files fit in memory")
}

impl Default for History {
    fn default() -> History {
        History {
            base: State::empty(),
            now: State::empty(),
            atoms: Vec::new(),
            pages: BTreeMap::new(),
            last: BTreeMap::new(),
            slots: BTreeMap::new(),
            snapshots: BTreeSet::new(),
            taken: BTreeSet::new(),
            next: ROOT + 1,
        }
    }
}

impl History {
    /// A history that begins with `tree`.
    #[must_use]
    pub fn of_tree(tree: &Tree) -> History {
        let mut history = History::default();
        let mut ids: BTreeMap<Ino, Id> = BTreeMap::new();
        for (path, item) in &tree.items {
            let known = ids.get(&item.ino).copied();
            let id = known.unwrap_or(if path.is_empty() { ROOT } else { history.next });
            if known.is_none() {
                ids.insert(item.ino, id);
                history.next = history.next.max(id + 1);
                history.now.nodes.insert(id, Node::of_item(item));
                history.take_content(id, item);
            }
            if !path.is_empty() {
                let at = history.name(intern(path));
                let dir = history.now.nodes.get_mut(&at.dir);
                dir.expect("parents come first").entries.insert(at.name, id);
            }
        }
        history.base = history.now.clone();
        history
    }

    /// Everything so far is durable: the history begins anew from here.
    pub fn settle(&mut self) {
        self.base = self.now.clone();
        self.atoms.clear();
        self.last.clear();
        self.slots.clear();
        for versions in self.pages.values_mut() {
            let bytes = Arc::clone(&versions.last().expect("a page has versions").bytes);
            *versions = vec![Version { atom: None, bytes }];
        }
    }

    /// The inode a call is about.
    ///
    /// # Panics
    /// If there is none: the workload is wrong.
    #[must_use]
    pub fn id(&self, at: At) -> Id {
        match at {
            At::Path(path) => self.now.find(path),
            At::Slot(slot) => self.slots.get(&slot).copied(),
        }
        .unwrap_or_else(|| panic!("the workload names {at}, which is not there"))
    }

    /// A descriptor now holds what is at `path`.
    pub fn open(&mut self, slot: u8, path: Path) {
        let id = self.id(At::Path(path));
        self.slots.insert(slot, id);
    }

    /// What a descriptor holds.
    #[must_use]
    pub fn slot(&self, slot: u8) -> Option<Id> {
        self.slots.get(&slot).copied()
    }

    fn name(&self, path: Path) -> Name {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let dir = self.now.find(dir).expect("the workload made the directory");
        Name { dir, name }
    }

    fn atom(&mut self, step: usize, effect: Effect, touches: Vec<Id>, uses: &Uses) -> usize {
        let number = self.atoms.len();
        let direct = uses.changes.iter().chain(&uses.reads);
        let mut needs: BTreeSet<usize> = uses.atoms.iter().copied().collect();
        needs.extend(direct.filter_map(|resource| self.last.get(resource).copied()));
        let all: BTreeSet<usize> = needs
            .iter()
            .flat_map(|need| self.atoms[*need].needs.iter().copied())
            .chain([number])
            .collect();
        for resource in &uses.changes {
            self.last.insert(*resource, number);
        }
        self.now.apply(&effect);
        self.atoms.push(Atom {
            step,
            effect,
            touches,
            needs: all,
        });
        number
    }

    /// Notes step number `number`.
    pub fn step(&mut self, number: usize, step: &Step) {
        match step {
            Step::Call(call) => self.call(number, call),
            Step::Open(slot, path) => self.open(*slot, path),
            Step::Snapshot(number) => {
                self.snapshots.insert(*number);
                self.taken.insert(*number);
            }
            Step::DropSnapshot(number) => drop(self.snapshots.remove(number)),
            _ => {}
        }
    }

    /// Notes that step `step` did `call`.
    pub fn call(&mut self, step: usize, call: &Call) {
        match *call {
            Call::Create { path } => self.make(step, path, Node::new(FileKind::File, 0o644)),
            Call::Mkdir { path } => self.make(step, path, Node::new(FileKind::Directory, 0o755)),
            Call::Fifo { path } => self.make(step, path, Node::new(FileKind::Fifo, 0o644)),
            Call::Symlink { target, path } => {
                let node = Node::new(FileKind::Symlink, 0o777);
                self.make(step, path, Node { target, ..node });
            }
            Call::Link { from, to } => self.link(step, At::Path(from), to),
            Call::LinkSlot { slot, path } => self.link(step, At::Slot(slot), path),
            Call::Unlink { path } | Call::Rmdir { path } => self.remove(step, path),
            Call::Rename { from, to, mode } => self.rename(step, from, to, mode),
            Call::Write {
                at,
                offset,
                len,
                fill,
            } => self.write(step, self.id(at), offset, &pattern(fill, index(len))),
            Call::Truncate { at, size } => self.truncate(step, self.id(at), size),
            Call::Allocate {
                at,
                mode,
                offset,
                len,
            } => self.allocate(step, self.id(at), mode, offset..offset + len),
            Call::Clone {
                from,
                start,
                len,
                at,
                offset,
            } => {
                let bytes = self.bytes(self.id(from), start..start + len);
                self.write(step, self.id(at), offset, &bytes);
            }
            Call::SetXattr {
                at,
                name,
                len,
                fill,
            } => {
                let value = Some(Arc::new(pattern(fill, len)));
                self.attribute(step, at, |id| Effect::Xattr(id, name, value));
            }
            Call::RemoveXattr { at, name } => {
                self.attribute(step, at, |id| Effect::Xattr(id, name, None));
            }
            Call::Chmod { at, mode } => self.attribute(step, at, |id| Effect::Mode(id, mode)),
            Call::Chown { at, uid } => self.attribute(step, at, |id| Effect::Owner(id, uid)),
            Call::SetTime { at, secs } => self.attribute(step, at, |id| Effect::Time(id, secs)),
            Call::Temporary { slot, dir } => {
                let (id, dir) = (self.next, self.id(At::Path(dir)));
                self.next += 1;
                let uses = Uses::new()
                    .reads([Resource::Exists(dir)])
                    .changes([Resource::Exists(id)]);
                let node = Node::new(FileKind::File, 0o600);
                self.atom(step, Effect::Make(id, node, None), vec![id], &uses);
                self.slots.insert(slot, id);
            }
        }
    }

    fn attribute(&mut self, step: usize, at: At, effect: impl FnOnce(Id) -> Effect) {
        let id = self.id(at);
        let uses = Uses::new()
            .reads([Resource::Exists(id)])
            .changes([Resource::Attributes(id)]);
        self.atom(step, effect(id), vec![id], &uses);
    }

    /// The atoms of steps before `step` that `keep` says, and all they depend on.
    #[must_use]
    pub fn closure(&self, step: usize, keep: impl Fn(&Atom) -> bool) -> BTreeSet<usize> {
        let kept = self
            .atoms
            .iter()
            .filter(|atom| atom.step < step && keep(atom));
        kept.flat_map(|atom| atom.needs.iter().copied()).collect()
    }
}

/// What an atom depends on, and what it changes.
#[derive(Debug, Default)]
struct Uses {
    reads: Vec<Resource>,
    changes: Vec<Resource>,
    atoms: Vec<usize>,
}

impl Uses {
    fn new() -> Uses {
        Uses::default()
    }

    fn reads(mut self, more: impl IntoIterator<Item = Resource>) -> Uses {
        self.reads.extend(more);
        self
    }

    fn changes(mut self, more: impl IntoIterator<Item = Resource>) -> Uses {
        self.changes.extend(more);
        self
    }
}

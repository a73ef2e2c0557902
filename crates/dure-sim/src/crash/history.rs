//! The changes of a workload, split into atomic ones, with the dependencies of each.
//!
//! **Problem.** After a crash many trees are legal: what was synced must be there, everything else
//! may be. **Structure.** Each call becomes [`Atom`]s: one for a call on names or attributes; for a
//! buffered write one per page, and one for the size, which needs those pages. An atom depends on
//! the last change of everything it changed and of everything it decided on
//! (docs/design/durability.md, contract 2 and 3). A page keeps the content after each of its atoms.
//! **Invariants.** Atoms are in the order of the calls, so what an atom depends on comes before it.
//! Dependencies are the fewest the contract promises: dure keeps more. **Crash.** See `legal`.

use std::collections::{BTreeMap, BTreeSet};

use dure_fs::units::Ino;
use dure_fs::{AllocateMode, FileKind, RenameMode};
use dure_sync::Arc;

use super::call::{At, Call, Path, Step, pattern};
use super::state::{Effect, Id, Name, Node, ROOT, State, intern};
use super::tree::{Item, Tree};

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
    next: Id,
}

fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a workload's files fit in memory")
}

/// The part of `page` that lies in `start..end`.
fn part(page: u64, start: u64, end: u64) -> std::ops::Range<usize> {
    let first = page * PAGE;
    index(start.clamp(first, first + PAGE) - first)..index(end.clamp(first, first + PAGE) - first)
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

    fn take_content(&mut self, id: Id, item: &Item) {
        if item.kind != FileKind::File {
            return;
        }
        for (page, bytes) in (0..).zip(item.content.chunks(index(PAGE))) {
            let mut whole = vec![0; index(PAGE)];
            whole[..bytes.len()].copy_from_slice(bytes);
            let bytes = Arc::new(whole);
            let version = Version { atom: None, bytes };
            self.pages.insert((id, page), vec![version]);
        }
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

    fn make(&mut self, step: usize, path: Path, node: Node) {
        let (id, at) = (self.next, self.name(path));
        self.next += 1;
        let uses = Uses::new().reads([Resource::Exists(at.dir)]).changes([
            Resource::Name(at),
            Resource::Exists(id),
            Resource::Attributes(id),
            Resource::Parent(id),
        ]);
        let effect = Effect::Make(id, node, Some(at));
        self.atom(step, effect, vec![id, at.dir], &uses);
    }

    fn link(&mut self, step: usize, from: At, to: Path) {
        let (id, at) = (self.id(from), self.name(to));
        let uses = Uses::new()
            .reads([Resource::Exists(at.dir), Resource::Exists(id)])
            .changes([Resource::Name(at), Resource::Attributes(id)]);
        self.atom(step, Effect::AddName(at, id), vec![id, at.dir], &uses);
    }

    /// The names in a directory: what a call that needs it empty depends on.
    fn names_in(&self, dir: Id) -> Vec<Resource> {
        let inside = |resource: &&Resource| matches!(resource, Resource::Name(at) if at.dir == dir);
        self.last.keys().filter(inside).copied().collect()
    }

    fn remove(&mut self, step: usize, path: Path) {
        let (id, at) = (self.id(At::Path(path)), self.name(path));
        let uses = Uses::new()
            .reads([Resource::Exists(id), Resource::Parent(id)])
            .reads(self.names_in(id))
            .changes([Resource::Name(at), Resource::Attributes(id)]);
        self.atom(step, Effect::DropName(at, id), vec![id, at.dir], &uses);
    }

    fn rename(&mut self, step: usize, from: Path, to: Path, mode: RenameMode) {
        let (old, new) = (self.name(from), self.name(to));
        let source = self.id(At::Path(from));
        let target = self.now.find(to);
        if target == Some(source) {
            return;
        }
        let mut uses = Uses::new()
            .reads([Resource::Exists(source), Resource::Exists(new.dir)])
            .reads(self.above(new.dir))
            .changes([
                Resource::Name(old),
                Resource::Name(new),
                Resource::Attributes(source),
                Resource::Parent(source),
            ]);
        let mut touches = vec![source, old.dir, new.dir];
        if let Some(target) = target {
            touches.push(target);
            uses = uses
                .reads([Resource::Exists(target)])
                .changes([Resource::Attributes(target)]);
        }
        let effect = if mode == RenameMode::Exchange {
            let target = target.expect("the workload exchanges two names");
            uses = uses
                .reads(self.above(old.dir))
                .changes([Resource::Parent(target)]);
            Effect::Swap(old, new)
        } else {
            if let Some(target) = target {
                // Replacing writes the moved file's data back first: no empty file under the name.
                uses = uses
                    .reads(self.names_in(target))
                    .reads(self.content(source));
            }
            Effect::Move(old, new, source)
        };
        self.atom(step, effect, touches, &uses);
    }

    /// Where a directory and all above it are.
    fn above(&self, dir: Id) -> Vec<Resource> {
        let mut chain = vec![Resource::Parent(dir)];
        let mut at = dir;
        while at != ROOT {
            let mut nodes = self.now.nodes.iter();
            let holds = |node: &Node| node.entries.values().any(|below| *below == at);
            let parent = nodes.find(|(_, node)| holds(node));
            at = *parent.expect("a directory in use has a name").0;
            chain.push(Resource::Parent(at));
        }
        chain
    }

    /// Everything a file's content consists of.
    fn content(&self, file: Id) -> Vec<Resource> {
        let own = |resource: &&Resource| match resource {
            Resource::Size(id) | Resource::Page(id, _) => *id == file,
            _ => false,
        };
        self.last.keys().filter(own).copied().collect()
    }

    fn attribute(&mut self, step: usize, at: At, effect: impl FnOnce(Id) -> Effect) {
        let id = self.id(at);
        let uses = Uses::new()
            .reads([Resource::Exists(id)])
            .changes([Resource::Attributes(id)]);
        self.atom(step, effect(id), vec![id], &uses);
    }

    /// The bytes of a page now.
    fn page(&self, id: Id, page: u64) -> Vec<u8> {
        match self.pages.get(&(id, page)).and_then(|all| all.last()) {
            Some(version) => version.bytes.to_vec(),
            None => vec![0; index(PAGE)],
        }
    }

    fn set_page(&mut self, id: Id, page: u64, atom: usize, bytes: Vec<u8>) {
        let first = || Version {
            atom: None,
            bytes: Arc::new(vec![0; index(PAGE)]),
        };
        let versions = self
            .pages
            .entry((id, page))
            .or_insert_with(|| vec![first()]);
        versions.push(Version {
            atom: Some(atom),
            bytes: Arc::new(bytes),
        });
    }

    fn change_page(&mut self, step: usize, id: Id, page: u64, bytes: Vec<u8>) -> usize {
        let uses = Uses::new()
            .reads([Resource::Exists(id)])
            .changes([Resource::Page(id, page)]);
        let atom = self.atom(step, Effect::Page(id, page), vec![id], &uses);
        self.set_page(id, page, atom, bytes);
        atom
    }

    fn write(&mut self, step: usize, id: Id, offset: u64, bytes: &[u8]) {
        let end = offset + u64::try_from(bytes.len()).expect("64 bits");
        let mut pages = Vec::new();
        for page in offset / PAGE..end.div_ceil(PAGE) {
            let mut content = self.page(id, page);
            let range = part(page, offset, end);
            let from = index((page * PAGE).max(offset) - offset);
            content[range.clone()].copy_from_slice(&bytes[from..from + range.len()]);
            pages.push(self.change_page(step, id, page, content));
        }
        self.grow(step, id, end, pages);
    }

    fn grow(&mut self, step: usize, id: Id, size: u64, pages: Vec<usize>) {
        if size <= self.now.node(id).size {
            return;
        }
        let uses = Uses {
            atoms: pages,
            ..Uses::new()
                .reads([Resource::Exists(id)])
                .changes([Resource::Size(id)])
        };
        self.atom(step, Effect::Grow(id, size), vec![id], &uses);
    }

    /// A call that changes a file's time, whatever else it changes. Noted only if the model knows
    /// the time.
    fn touch(&mut self, step: usize, id: Id) {
        if self.now.node(id).mtime.is_some() {
            let uses = Uses::new().reads([Resource::Exists(id)]);
            self.atom(step, Effect::Touch(id), vec![id], &uses);
        }
    }

    fn truncate(&mut self, step: usize, id: Id, size: u64) {
        self.touch(step, id);
        if size >= self.now.node(id).size {
            return self.grow(step, id, size, Vec::new());
        }
        let behind = (id, size / PAGE)..=(id, u64::MAX);
        let pages: Vec<u64> = self
            .pages
            .range(behind)
            .map(|((_, page), _)| *page)
            .collect();
        let mut uses = Uses::new()
            .reads([Resource::Exists(id)])
            .changes([Resource::Size(id)]);
        uses = uses.changes(pages.iter().map(|page| Resource::Page(id, *page)));
        let atom = self.atom(step, Effect::Cut(id, size), vec![id], &uses);
        for page in pages {
            let mut bytes = self.page(id, page);
            bytes[part(page, size, u64::MAX)].fill(0);
            self.set_page(id, page, atom, bytes);
        }
    }

    fn allocate(&mut self, step: usize, id: Id, mode: AllocateMode, range: std::ops::Range<u64>) {
        self.touch(step, id);
        let mut changed = Vec::new();
        if !matches!(mode, AllocateMode::Extend | AllocateMode::KeepSize) {
            for page in range.start / PAGE..range.end.div_ceil(PAGE) {
                let mut bytes = self.page(id, page);
                bytes[part(page, range.start, range.end)].fill(0);
                if bytes != self.page(id, page) {
                    changed.push(self.change_page(step, id, page, bytes));
                }
            }
        }
        if matches!(mode, AllocateMode::Extend | AllocateMode::Zero) {
            self.grow(step, id, range.end, changed);
        }
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

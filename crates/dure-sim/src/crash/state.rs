//! The tree a workload makes, as a value that one change after the other is applied to.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use dure_fs::FileKind;
use dure_sync::Arc;

use super::tree::Item;

/// An inode of a history; the root is 0.
pub type Id = u32;

/// The root directory.
pub const ROOT: Id = 0;

/// One inode, but for its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Type.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Bytes.
    pub size: u64,
    /// Modification time, where a call has set it.
    pub mtime: Option<i64>,
    /// Extended attributes.
    pub xattrs: BTreeMap<&'static str, Arc<Vec<u8>>>,
    /// Names in a directory.
    pub entries: BTreeMap<&'static str, Id>,
    /// The target of a symbolic link.
    pub target: &'static str,
}

/// A place in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// The directory.
    pub dir: Id,
    /// The name in it.
    pub name: &'static str,
}

/// A change that is there wholly or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// A new inode, with its name if it has one.
    Make(Id, Node, Option<Name>),
    /// Another name.
    AddName(Name, Id),
    /// Removal of a name.
    DropName(Name, Id),
    /// A name moves, perhaps over another.
    Move(Name, Name, Id),
    /// Two names change places.
    Swap(Name, Name),
    /// Permissions.
    Mode(Id, u32),
    /// Owner.
    Owner(Id, u32),
    /// Modification time.
    Time(Id, i64),
    /// An extended attribute, or none.
    Xattr(Id, &'static str, Option<Arc<Vec<u8>>>),
    /// A larger size.
    Grow(Id, u64),
    /// A smaller size; what is behind it is gone.
    Cut(Id, u64),
    /// Nothing but a new modification time.
    Touch(Id),
    /// One page of one write; its content is in the history.
    Page(Id, u64),
}

impl Effect {
    /// Whether it changes the names in directory `dir`, so its modification time too.
    #[must_use]
    pub fn is_in(&self, dir: Id) -> bool {
        match self {
            Effect::Make(_, _, Some(at)) | Effect::AddName(at, _) | Effect::DropName(at, _) => {
                at.dir == dir
            }
            Effect::Move(from, to, _) | Effect::Swap(from, to) => from.dir == dir || to.dir == dir,
            _ => false,
        }
    }
}

/// A tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Every inode ever made.
    pub nodes: BTreeMap<Id, Node>,
}

impl State {
    /// An empty volume.
    #[must_use]
    pub fn empty() -> State {
        let root = Node::new(FileKind::Directory, 0o755);
        State {
            nodes: BTreeMap::from([(ROOT, root)]),
        }
    }

    /// The inode `id`.
    ///
    /// # Panics
    /// If there is none: a workload names only what it made.
    #[must_use]
    pub fn node(&self, id: Id) -> &Node {
        self.nodes.get(&id).expect("made before it is used")
    }

    fn node_mut(&mut self, id: Id) -> &mut Node {
        self.nodes.get_mut(&id).expect("made before it is used")
    }

    fn enter(&mut self, at: Name, id: Id) {
        self.node_mut(at.dir).entries.insert(at.name, id);
    }

    fn leave(&mut self, at: Name) -> Id {
        let gone = self.node_mut(at.dir).entries.remove(at.name);
        gone.expect("the workload names it")
    }

    /// Applies a change. All that it depends on was applied before.
    pub fn apply(&mut self, effect: &Effect) {
        match effect {
            Effect::Make(id, node, at) => {
                self.nodes.insert(*id, node.clone());
                if let Some(at) = at {
                    self.enter(*at, *id);
                }
            }
            Effect::AddName(at, id) => self.enter(*at, *id),
            Effect::DropName(at, _) => {
                self.leave(*at);
            }
            Effect::Move(from, to, _) => {
                let id = self.leave(*from);
                self.enter(*to, id);
            }
            Effect::Swap(a, b) => {
                let (first, second) = (self.leave(*a), self.leave(*b));
                self.enter(*a, second);
                self.enter(*b, first);
            }
            Effect::Mode(id, mode) => self.node_mut(*id).mode = *mode,
            Effect::Owner(id, uid) => self.node_mut(*id).uid = *uid,
            Effect::Time(id, secs) => self.node_mut(*id).mtime = Some(*secs),
            Effect::Xattr(id, name, Some(value)) => {
                self.node_mut(*id).xattrs.insert(name, Arc::clone(value));
            }
            Effect::Xattr(id, name, None) => {
                self.node_mut(*id).xattrs.remove(name);
            }
            Effect::Grow(id, size) | Effect::Cut(id, size) => {
                let node = self.node_mut(*id);
                node.size = *size;
                node.mtime = None;
            }
            Effect::Page(id, _) | Effect::Touch(id) => self.node_mut(*id).mtime = None,
        }
    }

    /// The inode at `path`.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<Id> {
        path.split('/')
            .filter(|name| !name.is_empty())
            .try_fold(ROOT, |dir, name| self.node(dir).entries.get(name).copied())
    }

    /// Every path with its inode; directories before what is in them.
    #[must_use]
    pub fn paths(&self) -> BTreeMap<String, Id> {
        let mut paths = BTreeMap::new();
        let mut open = vec![(String::new(), ROOT)];
        while let Some((path, id)) = open.pop() {
            for (name, below) in &self.node(id).entries {
                let path = if path.is_empty() {
                    (*name).to_owned()
                } else {
                    format!("{path}/{name}")
                };
                open.push((path, *below));
            }
            paths.insert(path, id);
        }
        paths
    }
}

thread_local! {
    /// The names that were found on volumes: few different ones. A machine is simulated by one
    /// thread, and no task of it is interrupted in [`intern`].
    static NAMES: RefCell<BTreeSet<&'static str>> = const { RefCell::new(BTreeSet::new()) };
}

/// `text` for as long as the program lives.
pub(super) fn intern(text: &str) -> &'static str {
    NAMES.with_borrow_mut(|names| {
        if let Some(known) = names.get(text) {
            return *known;
        }
        let new: &'static str = Box::leak(text.to_owned().into_boxed_str());
        names.insert(new);
        new
    })
}

impl Node {
    /// What was read, but for names in a directory and the content of a file.
    #[must_use]
    pub fn of_item(item: &Item) -> Node {
        let text = |bytes: &[u8]| intern(&String::from_utf8_lossy(bytes));
        let xattr = |(name, value): (&Vec<u8>, &Vec<u8>)| (text(name), Arc::new(value.clone()));
        Node {
            uid: item.uid,
            size: if item.kind == FileKind::File {
                item.size
            } else {
                0
            },
            xattrs: item.xattrs.iter().map(xattr).collect(),
            target: if item.kind == FileKind::Symlink {
                text(&item.content)
            } else {
                ""
            },
            ..Node::new(item.kind, item.mode)
        }
    }

    /// A new inode.
    #[must_use]
    pub fn new(kind: FileKind, mode: u32) -> Node {
        Node {
            kind,
            mode,
            uid: 0,
            size: 0,
            mtime: None,
            xattrs: BTreeMap::new(),
            entries: BTreeMap::new(),
            target: "",
        }
    }
}

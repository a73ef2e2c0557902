//! Equality of states as a program sees them, and which times a program can see.
//!
//! Inode numbers are given in the order of creation, which no program may rely on: two states are
//! equal if they differ in numbers only. The model has no clock. To detect that one call changes a
//! time which another returns, every inode gets a known modification time first ([`ModelFs::age`]);
//! a call that changes its times clears that, here also where the model itself does not need it
//! ([`ModelFs::apply_marking`]).

use std::collections::BTreeMap;

use super::ModelFs;
use super::node::{Body, Node};
use super::operation::{Operation, Outcome, Step};
use super::permission::Who;
use super::store::ROOT;

/// A state without accidental numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Normal {
    /// Inodes in the order in which a walk of the tree, then of the descriptors, reaches them.
    nodes: Vec<Node>,
    /// Which of them each descriptor refers to, and its position.
    slots: Vec<Option<(u64, u64)>>,
}

/// Numbers inodes in the order in which it reaches them.
#[derive(Default)]
struct Walk {
    numbers: BTreeMap<u64, u64>,
    nodes: Vec<Node>,
}

impl Walk {
    fn meet(&mut self, model: &ModelFs, ino: u64) -> u64 {
        if let Some(number) = self.numbers.get(&ino) {
            return *number;
        }
        let number = u64::try_from(self.numbers.len()).expect("64 bits");
        self.numbers.insert(ino, number);
        let place = self.nodes.len();
        let mut node = model.store().node(ino).clone();
        self.nodes.push(node.clone());
        if let Body::Directory { entries, parent } = &mut node.body {
            for entry in entries.values_mut() {
                *entry = self.meet(model, *entry);
            }
            // A parent is reached before its children; a removed directory has one that may be
            // gone.
            *parent = self.numbers.get(parent).copied().unwrap_or(u64::MAX);
        }
        node.mtime = None;
        self.nodes[place] = node;
        number
    }
}

impl ModelFs {
    /// The state as a program sees it, times aside.
    #[must_use]
    pub fn normal(&self) -> Normal {
        let mut walk = Walk::default();
        walk.meet(self, ROOT);
        let slots = self.slots.iter().map(|slot| {
            let open = slot.as_ref()?;
            Some((walk.meet(self, open.ino), open.position()))
        });
        let slots = slots.collect();
        Normal {
            nodes: walk.nodes,
            slots,
        }
    }

    /// Gives every inode a known time.
    pub fn age(&mut self) {
        self.store.each_mut(|node| node.mtime = Some((1, 0)));
    }

    /// Does one call; inodes whose times it changes have no known time afterwards.
    ///
    /// # Errors
    /// What the call gives its caller.
    pub fn apply_marking(&mut self, step: &Step) -> Outcome {
        let outcome = self.apply(step)?;
        let marked = match &step.operation {
            Operation::Chmod { path, .. } | Operation::SetXattr { path, .. } => {
                self.find(step.who, path, true).ok()
            }
            Operation::Link { from, .. } => self.find(step.who, from, false).ok(),
            Operation::Rename { to, .. } => self.find(step.who, to, false).ok(),
            _ => None,
        };
        if let Some(ino) = marked {
            self.store.node_mut(ino).mtime = None;
        }
        Ok(outcome)
    }

    /// What `fsync` of a descriptor makes durable; nothing if it is not open.
    #[must_use]
    pub fn promise(&self, slot: usize) -> Option<Node> {
        let ino = self.slot(slot).ok()?.ino;
        let mut node = self.store.node(ino).clone();
        node.opens = 0;
        Some(node)
    }

    /// Whether `path` leads to something.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.find(Who::Root, path, false).is_ok()
    }
}

//! Changes of names, and what they depend on.

use dure_fs::RenameMode;

use super::{History, Resource, Uses};
use crate::crash::call::{At, Path};
use crate::crash::state::{Effect, Id, Node, ROOT};

impl History {
    pub(super) fn make(&mut self, step: usize, path: Path, node: Node) {
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

    pub(super) fn link(&mut self, step: usize, from: At, to: Path) {
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

    pub(super) fn remove(&mut self, step: usize, path: Path) {
        let (id, at) = (self.id(At::Path(path)), self.name(path));
        let uses = Uses::new()
            .reads([Resource::Exists(id), Resource::Parent(id)])
            .reads(self.names_in(id))
            .changes([Resource::Name(at), Resource::Attributes(id)]);
        self.atom(step, Effect::DropName(at, id), vec![id, at.dir], &uses);
    }

    pub(super) fn rename(&mut self, step: usize, from: Path, to: Path, mode: RenameMode) {
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
}

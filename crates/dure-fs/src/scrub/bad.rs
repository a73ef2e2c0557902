//! What is damaged, by name.

use std::collections::{BTreeMap, BTreeSet};

use dure_store::error::Error;
use dure_store::format::node::{MAGIC, NodeHeader, NodeKind};
use dure_store::units::{BLOCK_BYTES, Ino, Nid, to_u64};
use zerocopy::FromBytes;

use super::wanted::{Content, Wanted};
use super::{BadBlock, BadPart, Run, Scrub, ScrubProgress};
use crate::inode::InodeRef;

/// Damaged blocks whose paths are looked for: all directories are listed for that.
const NAMED_MAX: u64 = 1000;

impl Run<'_, '_> {
    /// Looks again at blocks that did not verify; notes, mends and names those that are damaged.
    pub(super) fn doubt(&mut self, doubted: Vec<(Wanted, Error)>) {
        let mut found = Vec::new();
        for (wanted, error) in doubted {
            let Some(error) = self.scrub.look_again(&wanted, error) else {
                self.counts.replaced += 1;
                continue;
            };
            // What clones share concerns each of them, and is mended from what one of them has.
            let is_named = self.counts.bad + to_u64(found.len()) < NAMED_MAX;
            let all = self.scrub.with_sharers(wanted);
            let mut asked = all.iter().filter(|_| is_named);
            let content = asked.find_map(|one| self.scrub.content_of(one));
            for one in all {
                let bad = self.scrub.bad(&one, &error, (is_named, content.as_ref()));
                found.push((bad, is_named));
            }
        }
        let named = found.iter().filter(|(_, is_named)| *is_named);
        self.find_paths(&named.map(|(bad, _)| bad).collect::<Vec<_>>());
        for (mut bad, _) in found {
            let paths = bad
                .inodes()
                .iter()
                .map(|ino| self.known.get(&key(&bad, *ino)));
            bad.paths = paths.flatten().flatten().cloned().collect();
            self.note(bad);
        }
    }

    /// Finds paths of what is damaged, now and in each snapshot, that were not looked for before.
    fn find_paths(&mut self, found: &[&BadBlock]) {
        let mut unknown: BTreeMap<Option<String>, BTreeSet<Ino>> = BTreeMap::new();
        for bad in found {
            for ino in bad.inodes() {
                if !self.known.contains_key(&key(bad, *ino)) {
                    unknown
                        .entry(bad.snapshot.clone())
                        .or_default()
                        .insert(*ino);
                }
            }
        }
        for (snapshot, inodes) in unknown {
            let nothing = ScrubProgress {
                cursor: Some(self.cursor),
                counts: self.counts,
                found: &[],
            };
            let go_on = &mut *self.go_on;
            let mut paths =
                (self.scrub.paths)(snapshot.as_deref(), &inodes, &mut || go_on(&nothing));
            let found = inodes
                .into_iter()
                .map(|ino| ((snapshot.clone(), ino), paths.remove(&ino)));
            self.known.extend(found);
        }
    }
}

/// What the paths of an inode are known under.
fn key(bad: &BadBlock, ino: Ino) -> (Option<String>, Ino) {
    (bad.snapshot.clone(), ino)
}

impl Scrub<'_> {
    /// A damaged page, and those that share its block.
    fn with_sharers(&self, wanted: Wanted) -> Vec<Wanted> {
        let mut all = vec![wanted];
        if let Content::Page { owner, .. } = wanted.content {
            all.extend(self.sharing(wanted.block, |other| *other != owner));
        }
        all
    }

    /// A damaged block, which is mended if that can be; `content`: what it held.
    fn bad(
        &self,
        wanted: &Wanted,
        error: &Error,
        (is_named, content): (bool, Option<&[u8; BLOCK_BYTES]>),
    ) -> BadBlock {
        let (mut part, mut mended, mut past) = (BadPart::Structure, false, None);
        match wanted.content {
            Content::Page { ino, .. } => {
                let inode = self.names.inodes.inode(ino).ok();
                let named = inode.as_ref().filter(|_| is_named);
                let page = named.and_then(|inode| self.page(inode, wanted));
                mended = content.is_some_and(|content| self.mend_page(wanted, content));
                let offset = page.map(|page| page * dure_store::units::BLOCK_BYTES_U64);
                let ino = inode.map_or(ino, |inode| {
                    let attributes = inode.inode().attributes();
                    attributes.xattr_owner()
                });
                part = BadPart::Page { ino, offset };
            }
            Content::Image { nid, .. } => {
                let inodes = self.inodes_of(nid, wanted);
                part = BadPart::Node { inodes };
                mended = self.mend_node(nid, wanted);
            }
            Content::PastPage { past: id, ino, .. } => {
                part = BadPart::Page { ino, offset: None };
                past = Some(id);
            }
            Content::PastImage { past: id, nid } => {
                let inodes = self.owner_in(nid, wanted).into_iter().collect();
                part = BadPart::Node { inodes };
                past = Some(id);
            }
            Content::Own => {}
        }
        let mut snapshot = past.and_then(|past| self.store.past_name(past));
        // What a snapshot has stays where it is, damaged.
        if mended && let Some(kept_by) = self.kept_by(wanted) {
            (snapshot, mended) = (Some(kept_by), false);
        }
        BadBlock {
            block: wanted.block,
            part,
            why: error.to_string(),
            paths: Vec::new(),
            snapshot,
            mended,
        }
    }

    pub(super) fn page(&self, inode: &InodeRef, wanted: &Wanted) -> Option<u64> {
        let found = self.names.files.page_in(inode.inode(), wanted.block);
        found.ok().flatten()
    }

    /// The inodes that a damaged node concerns: from memory, or else as its image says, if that has
    /// its number still.
    fn inodes_of(&self, nid: Nid, wanted: &Wanted) -> Vec<Ino> {
        let known = self
            .store
            .nodes
            .get(nid)
            .map(|node| (node.kind, node.owner));
        let Content::Image { entry, .. } = wanted.content else {
            return Vec::new();
        };
        let kind = NodeKind::from_code(entry.kind_code());
        let (kind, owner) = match known {
            Some((kind, owner)) => (Some(kind), owner),
            None => (kind, self.owner_in(nid, wanted).unwrap_or(Ino(0))),
        };
        match kind {
            Some(NodeKind::Inode) => Ino::all_of(nid).collect(),
            Some(NodeKind::Orphan) | None => Vec::new(),
            Some(_) => vec![owner],
        }
    }

    fn owner_in(&self, nid: Nid, wanted: &Wanted) -> Option<Ino> {
        let mut bytes = [0; BLOCK_BYTES];
        self.store.region.read(wanted.block, &mut bytes).ok()?;
        let (header, _) = NodeHeader::read_from_prefix(&bytes).ok()?;
        let is_its = header.magic.get() == MAGIC && header.nid.get() == nid.0;
        is_its.then(|| Ino(header.owner.get()))
    }
}

//! Changes of what files hold: an atom per page, and one for the size, which needs those pages.

use dure_fs::{AllocateMode, FileKind};
use dure_sync::Arc;

use super::{History, PAGE, Resource, Uses, Version, index};
use crate::crash::state::{Effect, Id};
use crate::crash::tree::Item;

/// The part of `page` that lies in `start..end`.
fn part(page: u64, start: u64, end: u64) -> std::ops::Range<usize> {
    let first = page * PAGE;
    index(start.clamp(first, first + PAGE) - first)..index(end.clamp(first, first + PAGE) - first)
}

impl History {
    pub(super) fn take_content(&mut self, id: Id, item: &Item) {
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

    /// Everything a file's content consists of.
    pub(super) fn content(&self, file: Id) -> Vec<Resource> {
        let own = |resource: &&Resource| match resource {
            Resource::Size(id) | Resource::Page(id, _) => *id == file,
            _ => false,
        };
        self.last.keys().filter(own).copied().collect()
    }

    /// The bytes of a page now.
    fn page(&self, id: Id, page: u64) -> Vec<u8> {
        match self.pages.get(&(id, page)).and_then(|all| all.last()) {
            Some(version) => version.bytes.to_vec(),
            None => vec![0; index(PAGE)],
        }
    }

    /// These bytes of a file now.
    pub(super) fn bytes(&self, id: Id, range: std::ops::Range<u64>) -> Vec<u8> {
        let pages = range.start / PAGE..range.end.div_ceil(PAGE);
        let of = |page| self.page(id, page)[part(page, range.start, range.end)].to_vec();
        pages.flat_map(of).collect()
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

    pub(super) fn write(&mut self, step: usize, id: Id, offset: u64, bytes: &[u8]) {
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

    pub(super) fn truncate(&mut self, step: usize, id: Id, size: u64) {
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

    pub(super) fn allocate(
        &mut self,
        step: usize,
        id: Id,
        mode: AllocateMode,
        range: std::ops::Range<u64>,
    ) {
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
}

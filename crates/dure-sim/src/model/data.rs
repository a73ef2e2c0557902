//! The content of a file: a size and the pages that were written.
//!
//! A page that is not in the map is a hole and reads as zeros. Bytes of a page beyond the size are
//! always zero, so a file that grows reads as zeros there.

use std::collections::BTreeMap;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Largest size a file can have.
pub const SIZE_MAX: u64 = i64::MAX.unsigned_abs();

/// The content of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Data {
    size: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

/// The part `[from, to)` of the byte range that lies in `page`.
fn part(page: u64, offset: u64, end: u64) -> (usize, usize) {
    let start = page * PAGE;
    let from = offset.max(start) - start;
    let to = end.min(start + PAGE) - start;
    (index(from), index(to))
}

fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a byte count of the model fits memory")
}

impl Data {
    /// Bytes of the file.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Numbers of the pages that hold data.
    pub fn pages(&self) -> impl Iterator<Item = u64> + '_ {
        self.pages.keys().copied()
    }

    /// The bytes from `offset`, at most `len`, less at the end of the file.
    #[must_use]
    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let end = offset.saturating_add(len).min(self.size);
        if offset >= end {
            return Vec::new();
        }
        let mut bytes = vec![0; index(end - offset)];
        for page in offset / PAGE..=(end - 1) / PAGE {
            if let Some(content) = self.pages.get(&page) {
                let (from, to) = part(page, offset, end);
                let at = index(page * PAGE + u64::try_from(from).expect("small") - offset);
                bytes[at..at + (to - from)].copy_from_slice(&content[from..to]);
            }
        }
        bytes
    }

    /// Stores `bytes` at `offset`.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + u64::try_from(bytes.len()).expect("64 bits");
        for page in offset / PAGE..=(end - 1) / PAGE {
            let (from, to) = part(page, offset, end);
            let at = index(page * PAGE + u64::try_from(from).expect("small") - offset);
            let content = self
                .pages
                .entry(page)
                .or_insert_with(|| vec![0; index(PAGE)]);
            content[from..to].copy_from_slice(&bytes[at..at + (to - from)]);
        }
        self.size = self.size.max(end);
    }

    /// Cuts or extends the file.
    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.punch(size, self.size - size);
            self.pages.retain(|page, _| page * PAGE < size);
        }
        self.size = size;
    }

    /// Makes `[offset, offset + len)` read as zeros; whole pages become holes.
    pub fn punch(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        self.pages
            .retain(|page, _| !(page * PAGE >= offset && (page + 1) * PAGE <= end));
        for (page, content) in &mut self.pages {
            if page * PAGE < end && (page + 1) * PAGE > offset {
                let (from, to) = part(*page, offset, end);
                content[from..to].fill(0);
            }
        }
    }

    /// Makes the file at least `size` long.
    pub fn extend(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    /// First byte at or after `offset` that lies in a data page; `None` if there is none.
    #[must_use]
    pub fn seek_data(&self, offset: u64) -> Option<u64> {
        let (page, _) = self.pages.range(offset / PAGE..).next()?;
        let found = offset.max(page * PAGE);
        (found < self.size).then_some(found)
    }

    /// First byte at or after `offset` that lies in a hole; the end of the file counts as one.
    #[must_use]
    pub fn seek_hole(&self, offset: u64) -> Option<u64> {
        if offset >= self.size {
            return None;
        }
        let mut page = offset / PAGE;
        while self.pages.contains_key(&page) {
            page += 1;
        }
        Some(offset.max(page * PAGE).min(self.size))
    }
}

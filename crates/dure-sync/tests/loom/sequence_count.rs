//! Orderings of versions: what a reader copied counts only if it was whole. It is the way of the
//! pages of a file and of the granules of a node; words stand for their bytes.

use dure_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use dure_sync::{Arc, SequenceCount, Weaken, thread};

use super::{BOTH, check, explore_with};

struct Page {
    version: SequenceCount,
    words: [AtomicU64; 2],
}

impl Page {
    fn new() -> Arc<Page> {
        Arc::new(Page {
            version: SequenceCount::new(),
            words: [AtomicU64::new(0), AtomicU64::new(0)],
        })
    }

    /// Relaxed: copies order nothing.
    fn copy(&self) -> [u64; 2] {
        [0, 1].map(|n| self.words[n].load(Ordering::Relaxed))
    }

    fn read(&self) -> Option<[u64; 2]> {
        let seen = self.version.look()?;
        let words = self.copy();
        self.version.is_still(seen).then_some(words)
    }

    fn write(&self, value: u64) {
        self.version.change(|| {
            for word in &self.words {
                // Relaxed: copies order nothing.
                word.store(value, Ordering::Relaxed);
            }
        });
    }
}

fn reader_meets_writer() {
    let page = Page::new();
    let other = Arc::clone(&page);
    let writer = thread::spawn("writer", move || other.write(1));
    let read = page.read();
    assert!(matches!(read, None | Some([0, 0] | [1, 1])), "{read:?}");
    writer.join().unwrap();
    assert_eq!(page.read(), Some([1, 1]));
}

#[test]
fn version_readers_see_whole_pages() {
    check(reader_meets_writer, BOTH);
}

fn reader_meets_two_changes() {
    let page = Page::new();
    let other = Arc::clone(&page);
    let writer = thread::spawn("writer", move || {
        other.write(1);
        other.write(2);
    });
    let first = page.read();
    let second = page.read();
    for read in [first, second].into_iter().flatten() {
        assert_eq!(read[0], read[1], "a mixed page");
    }
    if let (Some(first), Some(second)) = (first, second) {
        assert!(first[0] <= second[0], "an older page after a newer one");
    }
    writer.join().unwrap();
}

#[test]
fn version_readers_never_go_back() {
    explore_with(2, reader_meets_two_changes);
    super::canaries(
        || explore_with(2, reader_meets_two_changes),
        &[Weaken::Release],
    );
}

/// Two concurrent writers of a page, and a reader.
fn changers_meet() {
    let page = Page::new();
    let changers = [1, 2].map(|value| {
        let page = Arc::clone(&page);
        thread::spawn("changer", move || {
            let change = || {
                // What the other one wrote is whole, whoever came first.
                let before = page.copy();
                assert_eq!(before[0], before[1], "changed beside another change");
                for word in &page.words {
                    // Relaxed: the version orders these.
                    word.store(value, Ordering::Relaxed);
                }
            };
            page.version.try_change(change).is_some()
        })
    });
    if let Some(read) = page.read() {
        assert_eq!(read[0], read[1], "a mixed page");
    }
    let done = changers.map(|changer| changer.join().unwrap());
    assert!(done.contains(&true), "one of them finds nobody there");
    assert_ne!(page.read(), Some([0, 0]));
}

#[test]
fn version_changes_follow_each_other() {
    explore_with(2, changers_meet);
    super::canaries(|| explore_with(2, changers_meet), BOTH);
}

/// Two tasks make one page of a file dirty. What each may do next is an fsync, which must not find
/// the file clean.
fn page_becomes_dirty() {
    #[derive(Default)]
    struct File {
        dirty: AtomicU64,
        chunk: AtomicU64,
        page: AtomicBool,
    }
    fn write(file: &File) {
        if !file.page.load(Ordering::Acquire) {
            // Relaxed: a count, published by what follows.
            file.dirty.fetch_add(1, Ordering::Relaxed);
            if file.chunk.fetch_or(1, Ordering::AcqRel) == 0 {
                file.page.store(true, Ordering::Release);
            } else {
                file.dirty.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let dirty = file.dirty.load(Ordering::Relaxed);
        assert_ne!(dirty, 0, "a write that an fsync would miss");
    }
    let file = Arc::new(File::default());
    let other = Arc::clone(&file);
    let writer = thread::spawn("writer", move || write(&other));
    write(&file);
    writer.join().unwrap();
    assert_eq!(
        file.dirty.load(Ordering::Relaxed),
        1,
        "one block for the page"
    );
}

#[test]
fn version_of_dirty_pages_is_counted_first() {
    check(page_becomes_dirty, BOTH);
}

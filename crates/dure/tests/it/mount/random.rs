//! Calls drawn for either side, compared with a model after each.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};

use dure_sync::random::Seeded;

use super::{Both, Mapping};

const PAGE: u64 = 4096;
/// Bytes of a file at most; as much is mapped.
const FILE_BYTES: u64 = 3 * PAGE;
const NAMES: [&str; 5] = ["a", "b", "c", "d/a", "d/b"];

/// Draws calls.
struct Random(Seeded);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(255)).unwrap() + 1
    }

    fn mounted(&mut self) -> bool {
        self.0.coin()
    }

    fn name(&mut self) -> &'static str {
        NAMES[self.0.index(NAMES.len())]
    }

    fn index(&mut self, len: usize) -> usize {
        self.0.index(len)
    }
}

/// A file that both sides have open, and that the kernel has mapped.
struct Open {
    id: usize,
    mine: dure::File,
    theirs: File,
    /// Whether the kernel has it open for writing.
    writes: bool,
    map: Mapping,
}

/// What there should be.
#[derive(Default)]
struct Model {
    names: BTreeMap<&'static str, usize>,
    files: Vec<Vec<u8>>,
}

impl Model {
    fn links(&self, id: usize) -> u64 {
        self.names.values().filter(|named| **named == id).count() as u64
    }
}

struct Run {
    both: Both,
    model: Model,
    open: Vec<Open>,
    random: Random,
}

impl Run {
    fn write(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let which = self.random.index(self.open.len());
        let (offset, len) = (self.random.below(FILE_BYTES), self.random.below(2 * PAGE));
        let bytes =
            vec![self.random.byte(); usize::try_from(len.min(FILE_BYTES - offset)).unwrap()];
        let mounted = self.random.mounted();
        let open = &self.open[which];
        match mounted && open.writes {
            true => open.theirs.write_all_at(&bytes, offset).unwrap(),
            false => open.mine.write_all_at(&bytes, offset).unwrap(),
        }
        let (file, offset) = (
            &mut self.model.files[open.id],
            usize::try_from(offset).unwrap(),
        );
        if bytes.is_empty() {
            return;
        }
        file.resize(file.len().max(offset + bytes.len()), 0);
        file[offset..offset + bytes.len()].copy_from_slice(&bytes);
    }

    fn store(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let (which, byte) = (self.random.index(self.open.len()), self.random.byte());
        let file = &mut self.model.files[self.open[which].id];
        if file.is_empty() || !self.open[which].writes {
            return;
        }
        let place = self.random.index(file.len());
        // What a mapping shows follows the size that the kernel has seen last.
        self.open[which].theirs.metadata().unwrap();
        self.open[which].map.set(place, byte);
        file[place] = byte;
    }

    fn resize(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let (which, size) = (
            self.random.index(self.open.len()),
            self.random.below(FILE_BYTES),
        );
        let open = &self.open[which];
        match self.random.mounted() && open.writes {
            true => open.theirs.set_len(size).unwrap(),
            false => open.mine.set_len(size).unwrap(),
        }
        self.model.files[open.id].resize(usize::try_from(size).unwrap(), 0);
    }

    fn create(&mut self) {
        let name = self.random.name();
        let created = match self.random.mounted() {
            true => File::create_new(self.both.path(name)).is_ok(),
            false => {
                let new = dure::OpenOptions::new().write(true).create_new(true);
                new.open(&self.both.library, name).is_ok()
            }
        };
        assert_eq!(created, !self.model.names.contains_key(name));
        if created {
            self.model.names.insert(name, self.model.files.len());
            self.model.files.push(Vec::new());
        }
    }

    fn remove(&mut self) {
        let name = self.random.name();
        let removed = match self.random.mounted() {
            true => fs::remove_file(self.both.path(name)).is_ok(),
            false => self.both.library.remove_file(name).is_ok(),
        };
        assert_eq!(removed, self.model.names.remove(name).is_some());
    }

    fn rename(&mut self) {
        let (from, to) = (self.random.name(), self.random.name());
        let renamed = match self.random.mounted() {
            true => fs::rename(self.both.path(from), self.both.path(to)).is_ok(),
            false => self.both.library.rename(from, to).is_ok(),
        };
        let source = self.model.names.get(from).copied();
        assert_eq!(renamed, source.is_some());
        if let Some(id) = source
            && self.model.names.get(to) != Some(&id)
        {
            self.model.names.remove(from);
            self.model.names.insert(to, id);
        }
    }

    fn link(&mut self) {
        let (from, to) = (self.random.name(), self.random.name());
        let linked = match self.random.mounted() {
            true => fs::hard_link(self.both.path(from), self.both.path(to)).is_ok(),
            false => self.both.library.hard_link(from, to).is_ok(),
        };
        let source = self.model.names.get(from).copied();
        let free = !self.model.names.contains_key(to);
        assert_eq!(linked, source.is_some() && free);
        if let (Some(id), true) = (source, free) {
            self.model.names.insert(to, id);
        }
    }

    fn open(&mut self) {
        let name = self.random.name();
        let Some(id) = self.model.names.get(name).copied() else {
            return;
        };
        let writes = self.random.mounted();
        let mine = dure::OpenOptions::new().read(true).write(true);
        let mine = mine.open(&self.both.library, name).unwrap();
        let theirs = OpenOptions::new()
            .read(true)
            .write(writes)
            .open(self.both.path(name));
        let (theirs, len) = (theirs.unwrap(), usize::try_from(FILE_BYTES).unwrap());
        let map = match writes {
            true => Mapping::new(&theirs, len),
            false => Mapping::of_reader(&theirs, len),
        };
        self.open.push(Open {
            id,
            mine,
            theirs,
            writes,
            map,
        });
    }

    fn close(&mut self) {
        if self.open.len() > 3 {
            let which = self.random.index(self.open.len());
            self.open.swap_remove(which);
        }
    }

    /// What both sides see of names, sizes, content and links is the model.
    fn compare(&self) {
        for name in NAMES {
            let theirs = fs::read(self.both.path(name)).ok();
            let mine = self.both.library.read(name).ok();
            let id = self.model.names.get(name).copied();
            let want = id.map(|id| &self.model.files[id]);
            same(theirs.as_ref(), want, name, "the mount");
            same(mine.as_ref(), want, name, "the library");
            if let Some(id) = id {
                let theirs = fs::metadata(self.both.path(name)).unwrap();
                let mine = self.both.library.metadata(name).unwrap();
                assert_eq!(theirs.nlink(), self.model.links(id), "{name}");
                assert_eq!(theirs.ino(), mine.ino());
                assert_eq!(theirs.len(), mine.len());
            }
        }
        for open in &self.open {
            let file = &self.model.files[open.id];
            let mut bytes = vec![0; file.len() + 1];
            let got = open.mine.read_at(&mut bytes, 0).unwrap();
            assert!(&bytes[..got] == file, "an open file of the library");
            let got = open.theirs.read_at(&mut bytes, 0).unwrap();
            assert!(&bytes[..got] == file, "an open file of the mount");
            assert_eq!(open.theirs.metadata().unwrap().len(), file.len() as u64);
            for (place, byte) in file.iter().enumerate().step_by(61) {
                assert_eq!(
                    open.map.get(place),
                    *byte,
                    "mapped byte {place} of {}",
                    file.len()
                );
            }
        }
        let mut listed: Vec<_> = fs::read_dir(self.both.path("d")).unwrap().collect();
        listed.retain(|entry| entry.is_ok());
        let inside = self
            .model
            .names
            .keys()
            .filter(|name| name.starts_with("d/"));
        assert_eq!(listed.len(), inside.count());
    }
}

fn same(got: Option<&Vec<u8>>, want: Option<&Vec<u8>>, name: &str, side: &str) {
    let size = |file: Option<&Vec<u8>>| file.map(Vec::len);
    assert_eq!(size(got), size(want), "{name} as {side} sees it");
    assert!(got == want, "the content of {name} as {side} sees it");
}

#[expect(clippy::print_stdout, reason = "a failed run says its seed")]
fn run(seed: u64, steps: u64) {
    let Some(both) = Both::new() else { return };
    both.library.create_dir("d").unwrap();
    let mut run = Run {
        both,
        model: Model::default(),
        open: Vec::new(),
        random: Random(Seeded::new(seed)),
    };
    println!("seed={seed}");
    for step in 0..steps {
        let drawn = run.random.below(16);
        println!("step {step}: {drawn}");
        match drawn {
            0..=4 => run.write(),
            5..=7 => run.store(),
            8 => run.resize(),
            9 | 10 => run.create(),
            11 => run.remove(),
            12 => run.rename(),
            13 => run.link(),
            14 => run.open(),
            _ => run.close(),
        }
        run.compare();
    }
    run.open.clear();
    run.both.end();
}

#[test]
fn both_sides_agree_with_a_model_after_each_call() {
    for seed in 1..4 {
        run(seed, 400);
    }
}

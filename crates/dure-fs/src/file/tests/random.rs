//! Random calls against a vector of bytes.

use dure_store::units::BLOCK_BYTES_U64;
use dure_sync::random::Seeded;

use super::{World, check, content, file};
use crate::file::map::MapReader;
use crate::inode::InodeRef;
use crate::volume::FileSystem;
use crate::{AllocateMode, ReadMode, SeekTarget, Stamp, SyncScope};

pub(super) fn byte(random: &mut Seeded) -> u8 {
    random.next_u64().to_le_bytes()[0]
}

/// Longest file of the model: reaches into a map of height 2.
const LEN_MAX: u64 = 400 * 4096;

struct Model {
    rng: Seeded,
    bytes: Vec<u8>,
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).expect("small")
}

impl Model {
    /// A range: often within a page or at its edges, sometimes long.
    fn range(&mut self) -> (u64, u64) {
        let mut offset = self.rng.below(LEN_MAX);
        let mut len = match self.rng.below(4) {
            0 => 1 + self.rng.below(100),
            1 => 4096 * (1 + self.rng.below(4)),
            2 => 1 + self.rng.below(20_000),
            _ => 1 + self.rng.below(300_000),
        };
        match self.rng.below(4) {
            0 => offset -= offset % 4096,
            1 => offset %= 20 * 4096,
            _ => {}
        }
        len = len.min(LEN_MAX - offset);
        (offset, len)
    }

    fn fill(&mut self, offset: u64, data: &[u8]) {
        let end = at(offset) + data.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[at(offset)..end].copy_from_slice(data);
    }

    fn zero(&mut self, offset: u64, len: u64) {
        let end = at(offset + len).min(self.bytes.len());
        if at(offset) < end {
            self.bytes[at(offset)..end].fill(0);
        }
    }

    fn step(&mut self, fs: &FileSystem, inode: &InodeRef) {
        let (offset, len) = self.range();
        match self.rng.below(16) {
            0..=4 => self.write(fs, inode, offset, len),
            5 if self.bytes.len() as u64 + len < LEN_MAX => {
                let data: Vec<u8> = (0..len).map(|_| byte(&mut self.rng)).collect();
                let (start, count) = fs.append(inode, &data).unwrap();
                assert_eq!((at(start), count), (self.bytes.len(), data.len()));
                self.fill(start, &data);
            }
            6 | 7 => {
                fs.0.files.truncate(inode, offset).unwrap();
                self.bytes.resize(at(offset), 0);
            }
            8 => {
                fs.allocate(inode, AllocateMode::Punch, offset, len)
                    .unwrap();
                self.zero(offset, len);
            }
            9 => {
                fs.allocate(inode, AllocateMode::KeepSize, offset, len)
                    .unwrap();
            }
            10 => {
                let mode = if len.is_multiple_of(2) {
                    AllocateMode::Zero
                } else {
                    AllocateMode::Extend
                };
                fs.allocate(inode, mode, offset, len).unwrap();
                if mode == AllocateMode::Zero {
                    self.zero(offset, len);
                }
                let end = at(offset + len).max(self.bytes.len());
                self.bytes.resize(end, 0);
            }
            11 => self.seek(fs, inode, offset),
            12 => fs.fsync(inode, SyncScope::Data).unwrap(),
            13 => fs.0.store.checkpoint().unwrap(),
            _ => self.read(fs, inode, offset, len),
        }
        for target in [SeekTarget::Data, SeekTarget::Hole] {
            let from = offset / 2;
            let found = fs.seek(inode, from, target).unwrap();
            assert_eq!(found, walked(fs, inode, from, target), "from {from} on");
        }
        assert_eq!(fs.size(inode).unwrap(), self.bytes.len() as u64);
    }

    fn write(&mut self, fs: &FileSystem, inode: &InodeRef, offset: u64, len: u64) {
        let data: Vec<u8> = (0..len).map(|_| byte(&mut self.rng)).collect();
        let done = fs.write(inode, offset, &data, Stamp::Set).unwrap();
        assert_eq!(done, data.len());
        self.fill(offset, &data);
    }

    fn read(&self, fs: &FileSystem, inode: &InodeRef, offset: u64, len: u64) {
        let mode = if len.is_multiple_of(2) {
            ReadMode::Cached
        } else {
            ReadMode::Bypass
        };
        let mut buf = vec![0xaa; at(len)];
        let got = fs.read(inode, offset, &mut buf, mode).unwrap();
        let want = self.bytes.get(at(offset)..).unwrap_or(&[]);
        assert_eq!(got, want.len().min(at(len)));
        assert!(buf[..got] == want[..got], "read of {len} at {offset}");
    }

    /// Holes are zero, and what is not zero is data.
    fn seek(&self, fs: &FileSystem, inode: &InodeRef, from: u64) {
        let size = self.bytes.len() as u64;
        let data = fs.seek(inode, from, SeekTarget::Data).unwrap();
        let hole = fs.seek(inode, from, SeekTarget::Hole).unwrap();
        if from >= size {
            assert_eq!((data, hole), (None, None));
            return;
        }
        let hole = hole.expect("there is one at the end");
        assert!((from..=size).contains(&hole));
        let end = data.unwrap_or(size);
        assert!((from..=size).contains(&end) && (end == from) != (hole == from));
        assert!(self.bytes[at(from)..at(end)].iter().all(|&byte| byte == 0));
    }
}

/// What a look at every page finds.
fn walked(fs: &FileSystem, inode: &InodeRef, from: u64, target: SeekTarget) -> Option<u64> {
    // Exclusively: a new size is in the state then.
    let state = inode.inode().state().write_keep_cached();
    let (file, mut map) = (state.file(), MapReader::new(&fs.0.files, inode.inode()));
    let mut is_data = |page| {
        let slot = map.slot(page).unwrap();
        file.pages.is_unclean(page) || slot.is_written() && !file.is_cut(page)
    };
    let mut pages = from / BLOCK_BYTES_U64..file.size().div_ceil(BLOCK_BYTES_U64);
    let found = pages.find(|&page| is_data(page) == (target == SeekTarget::Data));
    let at = found.map(|page| from.max(page * BLOCK_BYTES_U64));
    let at = at.or((target == SeekTarget::Hole).then_some(file.size()));
    at.filter(|_| from < file.size())
}

/// What ends a round of random calls.
#[derive(Clone, Copy)]
pub(super) enum End {
    /// A sync of the file.
    Fsync,
    /// Nothing: each call promises by itself.
    Calls,
}

fn run(seed: u64, cache_bytes: u64, rounds: u32, steps: u32) {
    let world = World::new(16384, cache_bytes);
    run_on(&world, seed, (rounds, steps), End::Fsync);
}

/// Random calls on the volume of `world`, which loses all memory at the end of two rounds of three.
pub(super) fn run_on(world: &World, seed: u64, (rounds, steps): (u32, u32), end: End) {
    let cache_bytes = world.options.cache_bytes;
    let mut model = Model {
        rng: Seeded::new(seed),
        bytes: Vec::new(),
    };
    for round in 0..rounds {
        let fs = world.mount();
        let inode = file(&fs);
        assert!(
            content(&fs, &inode) == model.bytes,
            "after mount, seed {seed}, round {round}"
        );
        check(&fs, &inode);
        for step in 0..steps {
            model.step(&fs, &inode);
            if step % 16 == 0 {
                check(&fs, &inode);
            }
        }
        assert!(
            content(&fs, &inode) == model.bytes,
            "seed {seed}, round {round}"
        );
        check(&fs, &inode);
        assert!(fs.0.files.pages.pages_used() <= cache_bytes / 4096);
        if round % 3 == 2 {
            fs.close().unwrap();
        } else if let End::Fsync = end {
            fs.fsync(&inode, SyncScope::All).unwrap();
        }
        drop(inode);
        drop(fs);
        super::fsck(world.device(), &format!("seed {seed}, round {round}"));
    }
}

#[test]
fn random_calls_match_a_vector_of_bytes() {
    for seed in 0..6 {
        run(seed, 16 << 20, 5, 120);
    }
}

#[test]
fn random_calls_match_with_a_tiny_cache() {
    for seed in 100..104 {
        run(seed, 64 << 10, 5, 80);
    }
}

#[test]
fn several_threads_share_a_tiny_cache() {
    threads_on(&World::new(32768, 64 << 10));
}

/// Threads that each use a file of their own.
pub(super) fn threads_on(world: &World) {
    let fs = world.mount();
    dure_sync::thread::scope(|scope| {
        for thread in 0..4 {
            let fs = &fs;
            scope.spawn(move || {
                let inode = super::nth_file(fs, thread);
                let mut model = Model {
                    rng: Seeded::new(thread),
                    bytes: Vec::new(),
                };
                for _ in 0..60 {
                    model.step(fs, &inode);
                }
                assert!(content(fs, &inode) == model.bytes);
            });
        }
    });
    for thread in 0..4 {
        check(&fs, &super::nth_file(&fs, thread));
    }
    fs.close().unwrap();
}

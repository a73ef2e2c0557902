//! Tasks that give names to files, take and move them, while others use the files' data: the number
//! of names is right whenever somebody looks, also after a crash, and reads write no line that such
//! a change writes.
//!
//! Runs with the sim backend only: `cargo xtask sim -p dure-sim -- sim_names`.

#![expect(clippy::unwrap_used, reason = "tests say what they expect")]

use std::collections::BTreeMap;

use dure_block::ram::RamDevice;
use dure_block::share;
use dure_fs::{
    AttributeRule, Error, FileSystem, InodeRef, NewInode, ReadMode, RenameMode, SetAttributes,
    Stamp, SyncScope, VolumeRules,
};
use dure_sim::schedules::{Trial, assert_whole, mount_small, play_under, small_volume};
use dure_sync::canary::LeftOut;
use dure_sync::sim::{Config, Rng, run};
use dure_sync::{Arc, CoreId, thread};

const PAGE: usize = 4096;
/// Calls of one core.
const CALLS: u32 = 20;
/// Files of all cores, each with a name in the root.
const FILES: [&[u8]; 2] = [b"file0", b"file1"];

fn rules(attributes: AttributeRule) -> VolumeRules {
    VolumeRules {
        attributes,
        ..VolumeRules::default()
    }
}

fn new(mode: u32) -> NewInode {
    NewInode {
        mode,
        ..NewInode::default()
    }
}

fn directory_name(core: u16) -> Vec<u8> {
    format!("core{core}").into_bytes()
}

fn get(fs: &FileSystem, name: &[u8]) -> Option<InodeRef> {
    fs.lookup(&fs.root().unwrap(), name).unwrap()
}

fn names_of(fs: &FileSystem, inode: &InodeRef) -> u32 {
    fs.attributes(inode).unwrap().nlink
}

/// The names in one core's directory, and which of the files each is of.
type Names = BTreeMap<String, usize>;

/// What becomes of the names in the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Anchors {
    /// They stay.
    Stay,
    /// Core 0 takes them away, and each core its own names at the end: the last one goes somewhere.
    Go,
}

struct Core<'a> {
    fs: &'a FileSystem,
    core: u16,
    directory: InodeRef,
    files: Vec<InodeRef>,
    names: Names,
    random: Rng,
    anchors: Anchors,
}

impl Core<'_> {
    fn any_name(&mut self) -> Option<(String, usize)> {
        let count = self.names.len();
        let index = self.random.index(count.max(1));
        let (name, &file) = self.names.iter().nth(index)?;
        Some((name.clone(), file))
    }

    /// Names of this core that the file has.
    fn own(&self, file: usize) -> u32 {
        let own = self.names.values().filter(|&&of| of == file).count();
        u32::try_from(own).unwrap()
    }

    fn link(&mut self, n: u32) {
        let file = self.random.index(FILES.len());
        let name = format!("n{n}");
        let made = self
            .fs
            .link(&self.files[file], &self.directory, name.as_bytes());
        match made {
            Ok(()) => drop(self.names.insert(name, file)),
            Err(Error::NotFound) => {
                assert_eq!(self.anchors, Anchors::Go, "it has a name");
                assert_eq!(self.own(file), 0, "a name of this core");
                assert_eq!(names_of(self.fs, &self.files[file]), 0, "no name comes");
            }
            Err(error) => panic!("link: {error}"),
        }
    }

    fn unlink(&mut self) {
        let Some((name, _)) = self.any_name() else {
            return;
        };
        self.fs.unlink(&self.directory, name.as_bytes()).unwrap();
        self.names.remove(&name);
    }

    /// Within the directory: to a new name, over another one, or both change places.
    fn rename(&mut self, n: u32) {
        let (Some((from, file)), Some((other, replaced))) = (self.any_name(), self.any_name())
        else {
            return;
        };
        let (mode, to) = match self.random.index(3) {
            0 => (RenameMode::NoReplace, format!("n{n}")),
            1 => (RenameMode::Replace, other),
            _ => (RenameMode::Exchange, other),
        };
        let at = &self.directory;
        self.fs
            .rename(at, from.as_bytes(), at, to.as_bytes(), mode)
            .unwrap();
        match mode {
            RenameMode::Exchange => {
                self.names.insert(from, replaced);
            }
            // Two names of one file stay.
            RenameMode::Replace if file == replaced => {}
            _ => drop(self.names.remove(&from)),
        }
        self.names.insert(to, file);
    }

    fn look(&self) {
        for (file, inode) in self.files.iter().enumerate() {
            let least = self.own(file) + u32::from(self.anchors == Anchors::Stay);
            let seen = names_of(self.fs, inode);
            assert!(seen >= least, "{seen} names of file {file}, not {least}");
            if let Some(peeked) = self.fs.peek_attributes(inode.id()) {
                assert!(peeked.nlink >= least, "{} shown", peeked.nlink);
            }
        }
    }

    /// Writes and reads a page that nobody else does.
    fn data(&mut self, n: u32) {
        let inode = &self.files[self.random.index(FILES.len())];
        let at = u64::from(self.core) * 4096;
        let page = [u8::try_from(n).unwrap(); PAGE];
        self.fs.write(inode, at, &page, Stamp::Set).unwrap();
        let mut read = [0; PAGE];
        self.fs
            .read(inode, at, &mut read, ReadMode::Cached)
            .unwrap();
        assert_eq!(read, page, "nobody else writes there");
    }

    fn change_mode(&mut self, n: u32) {
        let inode = &self.files[self.random.index(FILES.len())];
        let set = SetAttributes {
            mode: Some(n),
            ..SetAttributes::default()
        };
        self.fs.set_attributes(inode, &set).unwrap();
    }

    fn work(mut self) -> Names {
        for n in 0..CALLS {
            match self.random.index(12) {
                0..3 => self.link(n),
                3 | 4 => self.unlink(),
                5 | 6 => self.rename(n),
                7 => self.data(n),
                8 => self.change_mode(n),
                9 => {
                    let file = self.random.index(FILES.len());
                    self.fs.fsync(&self.files[file], SyncScope::All).unwrap();
                }
                _ => {}
            }
            self.look();
            if self.anchors == Anchors::Go && self.core == 0 && n == CALLS / 2 {
                let root = self.fs.root().unwrap();
                FILES
                    .iter()
                    .for_each(|name| self.fs.unlink(&root, name).unwrap());
            }
        }
        if self.anchors == Anchors::Go {
            while !self.names.is_empty() {
                self.unlink();
            }
        }
        self.names
    }
}

/// The names are those of all cores, and counted.
fn check_names(fs: &FileSystem, all: &[Names], anchors: Anchors) {
    for (number, name) in FILES.iter().enumerate() {
        let file = get(fs, name);
        assert_eq!(file.is_some(), anchors == Anchors::Stay);
        let Some(file) = file else {
            continue;
        };
        let of = |names: &Names| names.values().filter(|&&of| of == number).count();
        let want = 1 + all.iter().map(of).sum::<usize>();
        assert_eq!(names_of(fs, &file), u32::try_from(want).unwrap(), "{all:?}");
        for (core, names) in (0..).zip(all) {
            let directory = get(fs, &directory_name(core)).unwrap();
            for (name, _) in names.iter().filter(|&(_, &of)| of == number) {
                let found = fs.lookup(&directory, name.as_bytes()).unwrap();
                assert_eq!(found.map(|found| found.ino()), Some(file.ino()), "{name}");
            }
        }
    }
}

fn prepare(fs: &FileSystem, cores: u16) -> Vec<InodeRef> {
    let root = fs.root().unwrap();
    for core in 0..cores {
        fs.mkdir(&root, &directory_name(core), &new(0o755)).unwrap();
    }
    let make = |name: &&[u8]| {
        let file = fs.create(&root, name, &new(0o100_644)).unwrap();
        let pages = vec![0; usize::from(cores) * PAGE];
        fs.write(&file, 0, &pages, Stamp::Set).unwrap();
        file
    };
    FILES.iter().map(make).collect()
}

fn share_files(rule: AttributeRule, trial: Trial) -> Result<(), String> {
    let Trial { seed, cores } = trial;
    let anchors = [Anchors::Stay, Anchors::Go][usize::try_from(seed / 9 % 2).unwrap()];
    trial.play(move || {
        let ram = small_volume(2048);
        let fs = trial.mount(share(Arc::clone(&ram)), rules(rule));
        let files = prepare(&fs, cores);
        let all: Vec<Names> = thread::scope(|scope| {
            let work = |core| {
                let (fs, files) = (&fs, files.clone());
                move || {
                    let core = Core {
                        fs,
                        core,
                        directory: get(fs, &directory_name(core)).unwrap(),
                        files,
                        names: Names::new(),
                        random: Rng::new(seed ^ u64::from(core) << 32),
                        anchors,
                    };
                    core.work()
                }
            };
            let tasks: Vec<_> = (0..cores)
                .map(|core| scope.spawn_on(CoreId::new(core), work(core)))
                .collect();
            tasks.into_iter().map(|task| task.join().unwrap()).collect()
        });
        check_names(&fs, &all, anchors);
        // What a crash leaves is what was promised, with files that only their users keep.
        for file in &files {
            assert_eq!(names_of(&fs, file) == 0, anchors == Anchors::Go);
            fs.fsync(file, SyncScope::All).unwrap();
        }
        let crashed = Arc::new(RamDevice::from_image("crashed", &ram.snapshot()));
        let recovered = trial.mount(share(Arc::clone(&crashed)), rules(rule));
        check_names(&recovered, &all, anchors);
        recovered.close().unwrap();
        drop(files);
        fs.close().unwrap();
        [ram, crashed].into_iter().for_each(assert_whole);
    })
}

#[test]
fn sim_names_change_while_data_is_used() {
    play_under(&[AttributeRule::Apart], 100, share_files);
}

#[test]
fn sim_names_canary_attributes_that_stay_cached_are_noticed() {
    let rule = AttributeRule::KeptCached(LeftOut);
    let failed = (0..20).any(|seed| share_files(rule, Trial::any(seed)).is_err());
    assert!(failed, "attributes of before were not noticed");
}

/// Cache lines that moved between a core that gives a file names, moves and takes them, and three
/// that read its pages.
fn transfers(rule: AttributeRule, rounds: u32) -> u64 {
    let done = run(Config::min_clock(4), move || {
        let fs = mount_small(&small_volume(2048), rules(rule));
        let root = fs.root().unwrap();
        let inode = fs.create(&root, b"file", &new(0o100_644)).unwrap();
        fs.write(&inode, 0, &[1; 4 * PAGE], Stamp::Set).unwrap();
        thread::scope(|scope| {
            for core in 0..4_u16 {
                let (fs, inode, root) = (&fs, &inode, &root);
                scope.spawn_on(CoreId::new(core), move || {
                    let mut bytes = [0; PAGE];
                    // The reads take as long as the changes, about.
                    for _ in 0..if core == 0 { rounds / 20 } else { rounds } {
                        if core == 0 {
                            fs.link(inode, root, b"a").unwrap();
                            fs.rename(root, b"a", root, b"b", RenameMode::Replace)
                                .unwrap();
                            fs.unlink(root, b"b").unwrap();
                        } else {
                            let at = u64::from(core) * 4096;
                            fs.read(inode, at, &mut bytes, ReadMode::Cached).unwrap();
                        }
                    }
                });
            }
        });
    });
    done.report.transfers
}

fn transfers_of_more(rule: AttributeRule) -> u64 {
    transfers(rule, 1_100).saturating_sub(transfers(rule, 300))
}

#[test]
fn sim_names_changes_and_reads_share_no_lines() {
    let more = transfers_of_more(AttributeRule::Apart);
    // A tick of the clock moves the times.
    assert!(more <= 60, "{more} transfers in 120 changes and 2400 reads");
}

#[test]
fn sim_names_canary_changes_that_hold_the_state_share_lines() {
    let more = transfers_of_more(AttributeRule::WithData);
    assert!(more > 300, "{more} transfers in 120 changes and 2400 reads");
}

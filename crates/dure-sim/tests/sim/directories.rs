//! Tasks that make, remove and move directories in one directory, beside files: the number of links
//! is that of the subdirectories whenever somebody looks, also after a crash, nothing comes into a
//! directory that was removed, and tasks with names of their own write hardly any common line.
//!
//! Runs with the sim backend only: `cargo xtask sim -p dure-sim -- sim_directories`.

#![expect(clippy::unwrap_used, reason = "tests say what they expect")]

use std::ops::ControlFlow;

use dure_block::ram::RamDevice;
use dure_block::share;
use dure_fs::{
    DirectoryRule, Error, FileKind, FileSystem, InodeRef, NewInode, RenameMode, SyncScope,
    VolumeRules,
};
use dure_sim::schedules::{Trial, assert_whole, mount_small, play_each, play_under, small_volume};
use dure_sync::canary::LeftOut;
use dure_sync::sim::{Config, Rng, run};
use dure_sync::{Arc, CoreId, thread};

/// Calls of one core.
const CALLS: u32 = 24;
/// Names of one core in each directory.
const OWN_NAMES: usize = 3;
/// Names that all cores use.
const COMMON_NAMES: usize = 2;
/// The directories in which all cores work.
const SHARED: [&[u8]; 2] = [b"a", b"b"];

fn rules(directories: DirectoryRule) -> VolumeRules {
    VolumeRules {
        directories,
        ..VolumeRules::default()
    }
}

fn mount(trial: Trial, ram: &Arc<RamDevice>, rule: DirectoryRule) -> FileSystem {
    trial.mount(share(Arc::clone(ram)), rules(rule))
}

fn new(mode: u32) -> NewInode {
    NewInode {
        mode,
        ..NewInode::default()
    }
}

fn shared(fs: &FileSystem) -> [InodeRef; 2] {
    let root = fs.root().unwrap();
    SHARED.map(|name| fs.lookup(&root, name).unwrap().unwrap())
}

fn links(fs: &FileSystem, directory: &InodeRef) -> u32 {
    fs.attributes(directory).unwrap().nlink
}

/// Entries of a directory that are directories.
fn subdirectories(fs: &FileSystem, directory: &InodeRef) -> u32 {
    let mut count = 0;
    fs.read_directory(directory, 0, &mut |entry| {
        count += u32::from(entry.kind == FileKind::Directory);
        ControlFlow::Continue(())
    })
    .unwrap();
    count
}

/// A name of one core: in which of the directories it is, and which of the core's.
type Place = (usize, usize);

struct Core<'a> {
    fs: &'a FileSystem,
    core: u16,
    cores: u16,
    directories: [InodeRef; 2],
    /// What the own names lead to.
    own: [[Option<FileKind>; OWN_NAMES]; 2],
    random: Rng,
}

impl Core<'_> {
    fn name(&self, number: usize) -> Vec<u8> {
        format!("own{}-{number}", self.core).into_bytes()
    }

    fn any_place(&mut self) -> Place {
        (self.random.index(2), self.random.index(OWN_NAMES))
    }

    fn make(&mut self) {
        let (at, number) = self.any_place();
        let directory = &self.directories[at];
        let kind = match self.random.index(3) {
            0 => FileKind::File,
            _ => FileKind::Directory,
        };
        let name = self.name(number);
        let made = match kind {
            FileKind::File => self.fs.create(directory, &name, &new(0o100_644)),
            _ => self.fs.mkdir(directory, &name, &new(0o755)),
        };
        match (made, &mut self.own[at][number]) {
            (Ok(_), own @ None) => *own = Some(kind),
            (Err(Error::Exists), Some(_)) => {}
            (made, own) => panic!("{own:?} was there: {:?}", made.map(|made| made.ino())),
        }
    }

    fn take(&mut self) {
        let (at, number) = self.any_place();
        let (directory, name) = (&self.directories[at], self.name(number));
        let taken = match self.own[at][number].take() {
            Some(FileKind::File) => self.fs.unlink(directory, &name),
            Some(_) => self.fs.rmdir(directory, &name),
            None => {
                let taken = self.fs.rmdir(directory, &name);
                assert!(matches!(taken, Err(Error::NotFound)), "{taken:?}");
                return;
            }
        };
        taken.unwrap();
    }

    /// To another name of the core, in the same directory or the other one.
    fn rename(&mut self) {
        let (from, to) = (self.any_place(), self.any_place());
        let kinds = [from, to].map(|(at, number)| self.own[at][number]);
        let mode = match self.random.index(3) {
            0 => RenameMode::Exchange,
            1 => RenameMode::NoReplace,
            _ => RenameMode::Replace,
        };
        let directory = |(at, _): Place| &self.directories[at];
        let (old, new) = (self.name(from.1), self.name(to.1));
        let done = self
            .fs
            .rename(directory(from), &old, directory(to), &new, mode);
        let is_directory = |kind| kind == Some(FileKind::Directory);
        let want = match kinds {
            [None, _] => Err(Error::NotFound),
            [_, None] if mode == RenameMode::Exchange => Err(Error::NotFound),
            [_, Some(_)] if mode == RenameMode::NoReplace => Err(Error::Exists),
            _ if from == to || mode == RenameMode::Exchange => Ok(()),
            [source, Some(target)] => match (is_directory(source), is_directory(Some(target))) {
                (true, false) => Err(Error::NotDirectory),
                (false, true) => Err(Error::IsDirectory),
                _ => Ok(()),
            },
            _ => Ok(()),
        };
        assert_eq!(
            format!("{done:?}"),
            format!("{want:?}"),
            "{kinds:?} {mode:?}"
        );
        if done.is_ok() && from != to {
            let back = kinds[1].filter(|_| mode == RenameMode::Exchange);
            self.own[from.0][from.1] = back;
            self.own[to.0][to.1] = kinds[0];
        }
    }

    /// Makes or removes a directory that others make and remove as well, or makes something in it.
    fn common(&mut self) {
        let directory = self.directories[self.random.index(2)].clone();
        let name = format!("common{}", self.random.index(COMMON_NAMES)).into_bytes();
        match self.random.index(3) {
            0 => match self.fs.mkdir(&directory, &name, &new(0o755)) {
                Ok(_) | Err(Error::Exists) => {}
                Err(error) => panic!("mkdir: {error}"),
            },
            1 => match self.fs.rmdir(&directory, &name) {
                Ok(()) | Err(Error::NotFound | Error::NotEmpty) => {}
                Err(error) => panic!("rmdir: {error}"),
            },
            _ => {
                let Some(inside) = self.fs.lookup(&directory, &name).unwrap() else {
                    return;
                };
                match self.fs.create(&inside, b"file", &new(0o100_644)) {
                    // Nobody removes it meanwhile.
                    Ok(_) => self.fs.unlink(&inside, b"file").unwrap(),
                    Err(Error::Exists | Error::NotFound) => {}
                    Err(error) => panic!("create: {error}"),
                }
            }
        }
    }

    /// Not fewer than the own ones, nor more than all there can be.
    fn look(&self) {
        for (directory, own) in self.directories.iter().zip(&self.own) {
            let own = own
                .iter()
                .filter(|&&kind| kind == Some(FileKind::Directory));
            let least = 2 + u32::try_from(own.count()).unwrap();
            let others = usize::from(self.cores - 1) * OWN_NAMES + COMMON_NAMES;
            let most = least + u32::try_from(others).unwrap();
            let seen = links(self.fs, directory);
            assert!((least..=most).contains(&seen), "{seen} links, not {least}");
            if let Some(peeked) = self.fs.peek_attributes(directory.id()) {
                let shown = peeked.nlink;
                assert!((least..=most).contains(&shown), "{shown} shown");
            }
        }
    }

    fn work(mut self) {
        for _ in 0..CALLS {
            match self.random.index(12) {
                0..4 => self.make(),
                4..6 => self.take(),
                6..9 => self.rename(),
                9..11 => self.common(),
                _ => {
                    let directory = &self.directories[self.random.index(2)];
                    self.fs.fsync(directory, SyncScope::All).unwrap();
                }
            }
            self.look();
        }
        // All go but the first ones.
        for at in 0..2 {
            for number in 1..OWN_NAMES {
                let (directory, name) = (&self.directories[at], self.name(number));
                match self.own[at][number] {
                    Some(FileKind::File) => self.fs.unlink(directory, &name).unwrap(),
                    Some(_) => self.fs.rmdir(directory, &name).unwrap(),
                    None => {}
                }
            }
        }
    }
}

fn check_links(fs: &FileSystem) {
    for directory in [fs.root().unwrap()].into_iter().chain(shared(fs)) {
        let want = 2 + subdirectories(fs, &directory);
        assert_eq!(links(fs, &directory), want, "directory {}", directory.ino());
    }
}

fn prepare(fs: &FileSystem) {
    let root = fs.root().unwrap();
    for name in SHARED {
        let directory = fs.mkdir(&root, name, &new(0o755)).unwrap();
        // It has a bucket node, and is counted.
        fs.mkdir(&directory, b"first", &new(0o755)).unwrap();
        assert_eq!(links(fs, &directory), 3);
        fs.rmdir(&directory, b"first").unwrap();
    }
}

fn share_directories(rule: DirectoryRule, trial: Trial) -> Result<(), String> {
    let Trial { seed, cores } = trial;
    trial.play(move || {
        let ram = small_volume(2048);
        let fs = mount(trial, &ram, rule);
        prepare(&fs);
        thread::scope(|scope| {
            for core in 0..cores {
                let fs = &fs;
                scope.spawn_on(CoreId::new(core), move || {
                    let core = Core {
                        fs,
                        core,
                        cores,
                        directories: shared(fs),
                        own: Default::default(),
                        random: Rng::new(seed ^ u64::from(core) << 32),
                    };
                    core.work();
                });
            }
        });
        check_links(&fs);
        for directory in shared(&fs) {
            fs.fsync(&directory, SyncScope::All).unwrap();
        }
        let names = |fs: &FileSystem| shared(fs).map(|directory| subdirectories(fs, &directory));
        let crashed = Arc::new(RamDevice::from_image("crashed", &ram.snapshot()));
        let recovered = mount(trial, &crashed, rule);
        check_links(&recovered);
        assert_eq!(names(&recovered), names(&fs), "after a crash");
        recovered.close().unwrap();
        fs.close().unwrap();
        [ram, crashed].into_iter().for_each(assert_whole);
    })
}

#[test]
fn sim_directories_are_made_and_moved_beside_each_other() {
    play_under(
        &[DirectoryRule::WhenContended, DirectoryRule::AtOnce],
        100,
        share_directories,
    );
}

#[test]
fn sim_directories_canary_subdirectories_that_nobody_counts_are_missed() {
    let rule = DirectoryRule::Uncounted(LeftOut);
    let failed = (0..20).any(|seed| share_directories(rule, Trial::any(seed)).is_err());
    assert!(failed, "missing links were not noticed");
}

/// One core makes a directory, another removes it, a third one counts: there is one more or not,
/// never one fewer or two more.
#[test]
fn sim_directories_are_counted_at_one_moment() {
    play_each(200, 3, |trial| {
        let fs = mount(trial, &small_volume(2048), DirectoryRule::AtOnce);
        prepare(&fs);
        thread::scope(|scope| {
            let fs = &fs;
            scope.spawn_on(CoreId::new(0), move || {
                let [directory, _] = shared(fs);
                for _ in 0..20 {
                    drop(fs.mkdir(&directory, b"x", &new(0o755)));
                }
            });
            scope.spawn_on(CoreId::new(1), move || {
                let [directory, _] = shared(fs);
                for _ in 0..20 {
                    drop(fs.rmdir(&directory, b"x"));
                }
            });
            scope.spawn_on(CoreId::new(2), move || {
                let [directory, _] = shared(fs);
                for _ in 0..20 {
                    let seen = links(fs, &directory);
                    assert!((2..=3).contains(&seen), "{seen} links");
                }
            });
        });
    });
}

/// A directory has entries only while it goes by the name "full": whoever removes it as "empty"
/// never hears that there is something in it, nor that it was removed when it is "full".
fn fill_under_another_name(fs: &FileSystem) {
    let [at, _] = shared(fs);
    for _ in 0..12 {
        if fs.lookup(&at, b"empty").unwrap().is_none() {
            fs.mkdir(&at, b"empty", &new(0o755)).unwrap();
        }
        match fs.rename(&at, b"empty", &at, b"full", RenameMode::NoReplace) {
            Ok(()) => {}
            Err(Error::NotFound) => continue,
            Err(error) => panic!("rename: {error}"),
        }
        let full = fs.lookup(&at, b"full").unwrap().unwrap();
        fs.create(&full, b"file", &new(0o100_644)).unwrap();
        // As long as it is full, its name is known.
        fs.look_up_and_remember(&at, b"full").unwrap();
        let refused = fs.rmdir(&at, b"full");
        assert!(matches!(refused, Err(Error::NotEmpty)), "{refused:?}");
        fs.unlink(&full, b"file").unwrap();
        fs.rename(&at, b"full", &at, b"empty", RenameMode::NoReplace)
            .unwrap();
    }
}

#[test]
fn sim_directories_that_are_empty_are_never_called_full() {
    play_each(200, 2, |trial| {
        let fs = mount(trial, &small_volume(2048), DirectoryRule::AtOnce);
        prepare(&fs);
        thread::scope(|scope| {
            let fs = &fs;
            scope.spawn_on(CoreId::new(0), move || fill_under_another_name(fs));
            scope.spawn_on(CoreId::new(1), move || {
                let [at, _] = shared(fs);
                for _ in 0..30 {
                    drop(fs.look_up_and_remember(&at, b"empty").unwrap());
                    match fs.rmdir(&at, b"empty") {
                        Ok(()) | Err(Error::NotFound) => {}
                        Err(error) => panic!("rmdir: {error}"),
                    }
                }
            });
        });
    });
}

/// Cache lines that moved between two cores that make, move and remove directories in one
/// directory.
fn transfers(rule: DirectoryRule, rounds: u32) -> u64 {
    let done = run(Config::min_clock(2), move || {
        let fs = mount_small(&small_volume(4096), rules(rule));
        prepare(&fs);
        let [directory, _] = shared(&fs);
        // So many that the two have different nodes.
        for n in 0..700 {
            let name = format!("there-{n:_>30}");
            fs.create(&directory, name.as_bytes(), &new(0o100_644))
                .unwrap();
        }
        thread::scope(|scope| {
            for core in 0..2_u16 {
                let fs = &fs;
                scope.spawn_on(CoreId::new(core), move || {
                    let [directory, _] = shared(fs);
                    let names = [0, 1].map(|n| format!("own{core}-{n}").into_bytes());
                    for _ in 0..rounds {
                        fs.mkdir(&directory, &names[0], &new(0o755)).unwrap();
                        fs.rename(
                            &directory,
                            &names[0],
                            &directory,
                            &names[1],
                            RenameMode::NoReplace,
                        )
                        .unwrap();
                        fs.rmdir(&directory, &names[1]).unwrap();
                    }
                });
            }
        });
    });
    done.report.transfers
}

fn transfers_of_more(rule: DirectoryRule) -> u64 {
    transfers(rule, 150).saturating_sub(transfers(rule, 50))
}

#[test]
fn sim_directories_of_two_tasks_share_few_lines() {
    let more = transfers_of_more(DirectoryRule::WhenContended);
    assert!(more <= 100, "{more} transfers in 600 calls");
}

#[test]
fn sim_directories_canary_a_parent_had_alone_is_shared() {
    let more = transfers_of_more(DirectoryRule::Exclusive);
    assert!(more > 1000, "{more} transfers in 600 calls");
}

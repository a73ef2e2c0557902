//! Open files and the end of their names, where cores count their pins: a file lives as long as somebody
//! has it.
//!
//! Runs with the sim backend only: `cargo xtask sim -p dure-sim -- sim_pins`.

#![expect(clippy::unwrap_used, reason = "tests say what they expect")]

use dure_block::share;
use dure_fs::{
    Error, FileKind, FileSystem, InodeRef, NewInode, ReadMode, RenameMode, Stamp, VolumeRules,
};
use dure_sim::schedules::{assert_whole, mount_small, play_each, small_volume};
use dure_sync::sim::{Config, Rng, run};
use dure_sync::{Arc, CoreId, thread};

const FILE: NewInode = NewInode {
    mode: 0o100_644,
    umask: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
};

const DIRECTORY: NewInode = NewInode {
    mode: 0o755,
    ..FILE
};

/// How a file loses its name.
#[derive(Debug, Clone, Copy)]
enum End {
    Unlinked,
    Replaced,
}

/// A core counts all its uses of a file in one pin of the count: the count of pins does not tell whether
/// another task of that core has the file open.
#[test]
fn sim_race_a_file_that_another_task_of_the_core_has_open_lives_on() {
    for end in [End::Unlinked, End::Replaced] {
        run(Config::random(2, 1), move || {
            let ram = small_volume(1024);
            let fs = mount_small(&ram, VolumeRules::default());
            let root = fs.root().unwrap();
            drop(fs.create(&root, b"file", &FILE).unwrap());
            contend(&fs, &root, b"file");
            let open = fs.lookup(&root, b"file").unwrap().unwrap();
            match end {
                End::Unlinked => fs.unlink(&root, b"file").unwrap(),
                End::Replaced => {
                    drop(fs.create(&root, b"new", &FILE).unwrap());
                    let replace = RenameMode::Replace;
                    fs.rename(&root, b"new", &root, b"file", replace).unwrap();
                }
            }
            assert_eq!(fs.attributes(&open).unwrap().nlink, 0);
            let other = fs.create(&root, b"other", &FILE).unwrap();
            assert_ne!(other.ino(), open.ino(), "it is in use");
            assert_eq!(fs.write(&open, 0, b"mine", Stamp::Set).unwrap(), 4);
            let mut bytes = [0; 4];
            assert_eq!(fs.read(&open, 0, &mut bytes, ReadMode::Cached).unwrap(), 4);
            assert_eq!(&bytes, b"mine");
            drop((open, other, root));
            fs.close().unwrap();
            assert_whole(ram);
        });
    }
}

/// The same of a directory.
#[test]
fn sim_race_a_directory_that_another_task_of_the_core_has_open_lives_on() {
    run(Config::random(2, 1), || {
        let ram = small_volume(1024);
        let fs = mount_small(&ram, VolumeRules::default());
        let root = fs.root().unwrap();
        drop(fs.mkdir(&root, b"directory", &DIRECTORY).unwrap());
        contend(&fs, &root, b"directory");
        let open = fs.lookup(&root, b"directory").unwrap().unwrap();
        fs.rmdir(&root, b"directory").unwrap();
        let other = fs.mkdir(&root, b"other", &DIRECTORY).unwrap();
        assert_ne!(other.ino(), open.ino(), "it is in use");
        assert_eq!(fs.attributes(&open).unwrap().nlink, 0);
        let made = fs.create(&open, b"file", &FILE).map(|made| made.ino());
        assert!(matches!(made, Err(Error::NotFound)), "{made:?}");
        drop((open, other, root));
        fs.close().unwrap();
        assert_whole(ram);
    });
}

/// Names that all tasks use.
const NAMES: u64 = 3;
const PAGE: u64 = 4096;

/// What a task has open: a file, and what it wrote to the page of its own, or a directory.
enum Open {
    File(InodeRef, Option<u8>),
    Directory(InodeRef),
}

struct Task<'a> {
    fs: &'a FileSystem,
    root: InodeRef,
    number: u64,
    open: Vec<Open>,
    random: Rng,
}

impl Task<'_> {
    fn name(&mut self) -> [u8; 1] {
        [b'a' + u8::try_from(self.random.below(NAMES)).unwrap()]
    }

    fn make(&mut self) {
        let name = self.name();
        let made = match self.random.below(3) {
            0 => self.fs.mkdir(&self.root, &name, &DIRECTORY),
            _ => self.fs.create(&self.root, &name, &FILE),
        };
        match made {
            Ok(made) if self.random.below(2) == 0 => self.keep(made),
            Ok(_) | Err(Error::Exists) => {}
            Err(error) => panic!("make: {error}"),
        }
    }

    fn keep(&mut self, inode: InodeRef) {
        self.open.push(match inode.kind() {
            FileKind::Directory => Open::Directory(inode),
            _ => Open::File(inode, None),
        });
    }

    fn look(&mut self) {
        let name = self.name();
        if let Some(found) = self.fs.lookup(&self.root, &name).unwrap() {
            self.keep(found);
        }
    }

    fn take(&mut self) {
        let (name, other) = (self.name(), self.name());
        let (fs, root) = (self.fs, &self.root);
        let taken = match self.random.below(4) {
            0 => fs.rmdir(root, &name),
            1 => fs.rename(root, &name, root, &other, RenameMode::Replace),
            _ => fs.unlink(root, &name),
        };
        match taken {
            Ok(())
            | Err(Error::NotFound | Error::NotEmpty | Error::IsDirectory | Error::NotDirectory) => {
            }
            Err(error) => panic!("take: {error}"),
        }
    }

    /// What is open is there, whoever has taken its name.
    fn use_open(&mut self) {
        let at = self.number * PAGE;
        let stamp = u8::try_from(self.random.below(200)).unwrap();
        for open in &mut self.open {
            match open {
                Open::File(file, mine) => {
                    let mut byte = [0];
                    let len = self.fs.read(file, at, &mut byte, ReadMode::Cached).unwrap();
                    if let Some(mine) = mine {
                        assert_eq!((len, byte), (1, [*mine]), "{}", file.ino());
                    }
                    self.fs.write(file, at, &[stamp], Stamp::Set).unwrap();
                    *mine = Some(stamp);
                }
                Open::Directory(directory) => match self.fs.create(directory, b"file", &FILE) {
                    Ok(_) => match self.fs.unlink(directory, b"file") {
                        Ok(()) | Err(Error::NotFound) => {}
                        Err(error) => panic!("unlink: {error}"),
                    },
                    Err(Error::Exists | Error::NotFound) => {}
                    Err(error) => panic!("create: {error}"),
                },
            }
        }
    }

    fn work(mut self) {
        for _ in 0..20 {
            match self.random.below(8) {
                0..2 => self.make(),
                2..4 => self.look(),
                4..6 => self.take(),
                6 => self.use_open(),
                _ => {
                    let count = self.open.len();
                    let one = self.random.index(count.max(1));
                    if one < count {
                        self.open.swap_remove(one);
                    }
                }
            }
            // A page that two handles of one file have is the last one's.
            for n in 0..self.open.len() {
                let Open::File(file, _) = &self.open[n] else {
                    continue;
                };
                let id = file.id();
                let same = |open: &Open| matches!(open, Open::File(file, _) if file.id() == id);
                if self.open[..n].iter().any(same) {
                    self.open.remove(n);
                    break;
                }
            }
        }
        self.use_open();
    }
}

/// Two tasks on each core: what one of them has open stays, whatever becomes of its name.
#[test]
fn sim_pins_of_tasks_that_share_cores_hold() {
    play_each(300, 2, |trial| {
        let ram = small_volume(2048);
        let fs = trial.mount(share(Arc::clone(&ram)), VolumeRules::default());
        thread::scope(|scope| {
            for number in 0..4_u16 {
                let task = Task {
                    fs: &fs,
                    root: fs.root().unwrap(),
                    number: number.into(),
                    open: Vec::new(),
                    random: Rng::new(trial.seed ^ u64::from(number) << 32),
                };
                scope.spawn_on(CoreId::new(number % 2), move || task.work());
            }
        });
        fs.close().unwrap();
        drop(fs);
        assert_whole(ram);
    });
}

/// Two cores take turns until each counts pins of its own.
fn contend(fs: &FileSystem, root: &InodeRef, name: &[u8]) {
    for turn in 0..12 {
        thread::scope(|scope| {
            scope.spawn_on(CoreId::new(turn % 2), || {
                drop(fs.lookup(root, name).unwrap().unwrap());
            });
        });
    }
}

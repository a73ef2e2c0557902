//! The script of a core: random calls on its own objects and on those that all cores share.
//!
//! **Structure.** [`Core`] keeps what it owns: names (which begin with its letter and number),
//! files with their content, directories. All cores share the names `s0`.. and `g`. The calls are in
//! [`names`], [`content`] and [`look`]. **Invariants.**
//! A call on own objects has the outcome this module predicts; one on shared objects may fail as
//! POSIX allows.

mod content;
mod look;
mod names;

use std::collections::BTreeMap;

use dure_block::record::RecordLog;
use dure_fs::{Error, FileSystem, InodeRef};
use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::sim::Rng;

use super::history::{Entity, Event, Key, Moment, PRIVATE, SHARED, Scope};

/// Files of one core at a time.
const FILES_MAX: usize = 4;
/// Bytes of a file with an owner.
const FILE_BYTES_MAX: u64 = 20_000;
/// Names in the shared directory that all cores use.
const COMMON_NAMES: u64 = 3;

/// Names and files of one core in a crowded directory.
const CROWD: u64 = 14;

/// What the calls are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scene {
    /// Everything a volume has.
    Tree,
    /// The entries of one directory, with names so long that few calls make it grow and shrink.
    Directory,
    /// The bytes of files: so many that persistent memory fills, of which dirty pages have little.
    Data,
}

/// Which core, of how many, and how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) core: u16,
    pub(super) cores: u16,
    pub(super) calls: u32,
    pub(super) seed: u64,
    pub(super) scene: Scene,
    pub(super) promises: Promises,
}

/// What is durable when a call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Promises {
    /// What it syncs.
    Synced,
    /// What it has made of the data of a file.
    Data,
    /// All of it.
    EachCall,
}

impl Shape {
    fn is_crowd(self) -> bool {
        self.scene == Scene::Directory
    }

    /// Short names, or names so long that a bucket has room for a few; those of more than 72 bytes
    /// are not kept in the dentry cache.
    fn name(self, text: String) -> String {
        match (self.scene, self.seed % 3) {
            (Scene::Tree | Scene::Data, _) => text,
            (Scene::Directory, 0) => format!("{text:_<200}"),
            (Scene::Directory, _) => format!("{text:_<70}"),
        }
    }
}

#[derive(Debug, Clone)]
struct Directory {
    entity: Entity,
    inode: InodeRef,
}

#[derive(Debug)]
struct OwnFile {
    entity: Entity,
    inode: InodeRef,
    data: Vec<u8>,
    /// Whether it ever had a name that others may take.
    common: bool,
}

/// A core that runs its script.
pub(super) struct Core<'a> {
    fs: &'a FileSystem,
    log: &'a RecordLog,
    clock: &'a AtomicU64,
    shape: Shape,
    random: Rng,
    serial: u32,
    /// The core's own directory, the shared one, and those it made.
    directories: Vec<Directory>,
    files: Vec<OwnFile>,
    /// Own names.
    names: BTreeMap<(Entity, String), Entity>,
    data: InodeRef,
    appended: InodeRef,
    events: Vec<Event>,
}

impl<'a> Core<'a> {
    pub(super) fn new(
        fs: &'a FileSystem,
        log: &'a RecordLog,
        clock: &'a AtomicU64,
        shape: Shape,
    ) -> Self {
        let get = |directory: &InodeRef, name: &str| {
            fs.lookup(directory, name.as_bytes())
                .expect("the base volume is sound")
                .expect("the base volume has it")
        };
        let root = fs.root().expect("the base volume has a root");
        let shared = get(&root, "shared");
        let own = get(&root, &format!("c{}", shape.core));
        let core = u64::from(shape.core);
        Core {
            fs,
            log,
            clock,
            shape,
            random: Rng::new(shape.seed.wrapping_mul(1009) ^ (core << 48)),
            serial: 1000 * (u32::from(shape.core) + 1),
            data: get(&shared, "data"),
            appended: get(&shared, "log"),
            directories: vec![
                Directory {
                    entity: PRIVATE + u32::from(shape.core),
                    inode: own,
                },
                Directory {
                    entity: SHARED,
                    inode: shared,
                },
            ],
            files: Vec::new(),
            names: BTreeMap::new(),
            events: Vec::new(),
        }
    }

    /// Runs the script.
    pub(super) fn run(mut self) -> Vec<Event> {
        match self.shape.scene {
            Scene::Tree => self.run_in_tree(),
            Scene::Directory => self.run_in_crowd(),
            Scene::Data => self.run_on_data(),
        }
        self.events
    }

    fn run_in_tree(&mut self) {
        for _ in 0..self.shape.calls {
            match self.random.below(100) {
                0..12 => self.create(),
                12..22 => self.write(),
                22..26 => self.truncate(),
                26..33 => self.unlink(),
                33..42 => self.rename(),
                42..47 => self.link(),
                47..53 => self.common_name(),
                53..60 => self.directory(),
                60..63 => self.in_foreign_directory(),
                63..68 => self.xattr(),
                68..74 => self.shared_page(),
                74..78 => self.append(),
                78..93 => self.promise(),
                93..95 => self.forget(),
                95..97 => self.look(),
                97..98 => self.quietly(FileSystem::background_now),
                _ => self.quietly(FileSystem::checkpoint_now),
            }
        }
    }

    fn run_on_data(&mut self) {
        for _ in 0..self.shape.calls {
            match self.random.below(100) {
                0..6 => self.create(),
                6..44 => self.write(),
                44..48 => self.truncate(),
                48..51 => self.unlink(),
                51..54 => self.rename(),
                54..64 => self.shared_page(),
                64..70 => self.append(),
                70..90 => self.promise(),
                90..91 => self.forget(),
                91..94 => self.look(),
                94..99 => self.quietly(FileSystem::background_now),
                _ => self.quietly(FileSystem::checkpoint_now),
            }
        }
    }

    fn run_in_crowd(&mut self) {
        // One half fills the directory, the other empties it.
        for call in 0..self.shape.calls {
            let filling = call < self.shape.calls / 2;
            match self.random.below(100) {
                0..26 if filling => self.create(),
                0..26 => self.unlink(),
                26..32 => self.create(),
                32..38 => self.unlink(),
                38..54 => self.rename(),
                54..62 => self.link(),
                62..70 => self.common_name(),
                70..75 => self.directory(),
                75..78 => self.in_foreign_directory(),
                78..86 => self.look(),
                86..95 => self.promise(),
                95..97 => self.set_times(),
                97..98 => self.quietly(FileSystem::background_now),
                _ => self.quietly(FileSystem::checkpoint_now),
            }
        }
    }

    fn step_of_clock(&self) -> u64 {
        // Relaxed: the simulated machine is sequentially consistent.
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes a call; `None` if it was refused in a way that a concurrent caller must expect.
    fn call<T>(
        &mut self,
        what: &str,
        call: impl FnOnce(&FileSystem) -> dure_fs::Result<T>,
    ) -> Option<(T, Moment)> {
        let start_step = self.log.step();
        let start = self.step_of_clock();
        let result = call(self.fs);
        let end = self.step_of_clock();
        match result {
            Ok(value) => {
                if self.shape.promises == Promises::EachCall {
                    self.promised();
                }
                Some((
                    value,
                    Moment {
                        start,
                        end,
                        start_step,
                    },
                ))
            }
            Err(Error::NoSpace { .. }) => {
                self.events.push(Event::NoSpace);
                None
            }
            Err(
                Error::Exists
                | Error::NotFound
                | Error::NotEmpty
                | Error::Loop
                | Error::NoAttribute
                | Error::AttributeTooLarge,
            ) => None,
            Err(error) => panic!("core {}: {what}: {error}", self.shape.core),
        }
    }

    /// All calls that have returned by now, of any core, are durable.
    fn promised(&mut self) {
        let start = self.step_of_clock();
        let (step, scope) = (self.log.step(), Scope::All);
        self.events.push(Event::Promise { start, step, scope });
    }

    /// A call that changed the data of `entity` has returned: this data is durable, and what a sync of
    /// the file at the beginning of the call would have made durable.
    fn data_promised(&mut self, entity: Entity, moment: Moment) {
        if self.shape.promises != Promises::Data {
            return;
        }
        let (start, step) = (self.step_of_clock(), self.log.step());
        let content = (start, Scope::Content(entity));
        let synced = (moment.start, Scope::Object(entity));
        for (start, scope) in [content, synced] {
            self.events.push(Event::Promise { start, step, scope });
        }
    }

    /// A call without a visible effect.
    fn quietly(&mut self, call: impl FnOnce(&FileSystem) -> dure_fs::Result<()>) {
        self.call("background work", call);
    }

    fn note(&mut self, moment: Moment, entity: Entity, sets: Vec<(Key, Option<u64>)>) {
        self.events.push(Event::Call {
            moment,
            entity,
            sets,
        });
    }

    fn new_entity(&mut self) -> Entity {
        self.serial += 1;
        self.serial
    }

    /// Any directory that an own name may be in.
    fn any_directory(&mut self) -> Directory {
        let crowd = self.shape.is_crowd() && !self.random.one_in(5);
        let index = if crowd {
            1
        } else {
            self.random.index(self.directories.len())
        };
        self.directories[index].clone()
    }

    fn own_name(&mut self, letter: char) -> String {
        let names = if self.shape.is_crowd() { CROWD } else { 3 };
        let number = self.random.below(names);
        self.shape
            .name(format!("{letter}{}-{number}", self.shape.core))
    }

    fn common_name_text(&mut self) -> String {
        let number = self.random.below(COMMON_NAMES);
        self.shape.name(format!("s{number}"))
    }

    fn any_file(&mut self) -> Option<usize> {
        (!self.files.is_empty()).then(|| self.random.index(self.files.len()))
    }

    /// An own name of a file, or of a directory.
    fn any_name(&mut self, letter: char) -> Option<((Entity, String), Entity)> {
        let names: Vec<_> = self
            .names
            .iter()
            .filter(|((_, name), _)| name.starts_with(letter))
            .map(|(place, entity)| (place.clone(), *entity))
            .collect();
        (!names.is_empty()).then(|| names[self.random.index(names.len())].clone())
    }

    /// The directory with this identity; this core's names are in directories of this list only.
    fn inode_of(&self, directory: Entity) -> InodeRef {
        let known = self
            .directories
            .iter()
            .find(|known| known.entity == directory);
        known
            .expect("own names are in known directories")
            .inode
            .clone()
    }
}

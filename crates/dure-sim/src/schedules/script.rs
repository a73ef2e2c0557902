//! The script of a core: random calls on its own objects and on those that all cores share.
//!
//! **Structure.** [`Core`] keeps what it owns: names (which begin with its letter and number),
//! files with their content, directories. All cores share the names `s0`.. and `g`. **Invariants.**
//! A call on own objects has the outcome this module predicts; one on shared objects may fail as
//! POSIX allows.

use std::collections::BTreeMap;

use dure_block::record::RecordLog;
use dure_fs::{
    Error, FileSystem, InodeRef, NewInode, Peek, RenameMode, SetAttributes, SetTime, Stamp,
    SyncScope, XattrMode,
};
use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::sim::Rng;

use super::history::{
    DATA, Entity, Event, Key, LOG, Moment, PRIVATE, RECORD_BYTES, SHARED, Scope, hash,
};
use super::tree::read_file;

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
}

/// Which core, of how many, and how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) core: u16,
    pub(super) cores: u16,
    pub(super) calls: u32,
    pub(super) seed: u64,
    pub(super) scene: Scene,
}

impl Shape {
    fn is_crowd(self) -> bool {
        self.scene == Scene::Directory
    }

    /// Short names, or names so long that a bucket has room for a few; those of more than 72 bytes
    /// are not kept in the dentry cache.
    fn name(self, text: String) -> String {
        match (self.scene, self.seed % 3) {
            (Scene::Tree, _) => text,
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
        if self.shape.is_crowd() {
            return self.run_in_crowd();
        }
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
        self.events
    }

    fn run_in_crowd(mut self) -> Vec<Event> {
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
        self.events
    }

    /// Sets the times of the shared directory, which takes its inode lock exclusively.
    fn set_times(&mut self) {
        let shared = self.inode_of(SHARED);
        let set = SetAttributes {
            mtime: Some(SetTime::Now),
            ..SetAttributes::default()
        };
        self.call("set times", |fs| fs.set_attributes(&shared, &set));
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
            Ok(value) => Some((
                value,
                Moment {
                    start,
                    end,
                    start_step,
                },
            )),
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

    fn create(&mut self) {
        let files_max = if self.shape.is_crowd() {
            usize::try_from(CROWD).expect("small")
        } else {
            FILES_MAX
        };
        if self.files.len() >= files_max {
            return self.forget();
        }
        let directory = self.any_directory();
        let name = self.own_name('f');
        let entity = self.new_entity();
        let new = NewInode {
            mode: 0o100_644,
            uid: entity,
            ..NewInode::default()
        };
        let made = self.call("create", |fs| {
            fs.create(&directory.inode, name.as_bytes(), &new)
        });
        let taken = self.names.contains_key(&(directory.entity, name.clone()));
        let Some((inode, moment)) = made else {
            return;
        };
        assert!(!taken, "{name} in {} was made twice", directory.entity);
        let key = Key::Name(directory.entity, name.clone());
        self.note(moment, entity, vec![(key, Some(entity.into()))]);
        self.names.insert((directory.entity, name), entity);
        self.files.push(OwnFile {
            entity,
            inode,
            data: Vec::new(),
            common: false,
        });
    }

    /// `len` bytes that no other call writes.
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let stamp = u64::from(self.new_entity()).to_le_bytes();
        let filler = self.random.next_u64().to_le_bytes();
        stamp
            .iter()
            .chain(&filler)
            .copied()
            .cycle()
            .take(len)
            .collect()
    }

    fn write(&mut self) {
        let Some(index) = self.any_file() else {
            return self.create();
        };
        let size = u64::try_from(self.files[index].data.len()).expect("small");
        let len = self.random.index(9000) + 1;
        let appends = self.random.one_in(3);
        let offset = if appends {
            size
        } else {
            self.random.below(12_000)
        };
        let end = offset + u64::try_from(len).expect("small");
        if end > FILE_BYTES_MAX {
            return;
        }
        let bytes = self.bytes(len);
        let inode = self.files[index].inode.clone();
        let done = self.call("write", |fs| {
            if appends {
                fs.append(&inode, &bytes)
            } else {
                fs.write(&inode, offset, &bytes, Stamp::Set)
                    .map(|len| (offset, len))
            }
        });
        let Some(((at, written), moment)) = done else {
            return;
        };
        assert_eq!((at, written), (offset, len), "a file with one writer");
        let file = &mut self.files[index];
        let (from, to) = (
            usize::try_from(offset).expect("small"),
            usize::try_from(end).expect("small"),
        );
        if file.data.len() < to {
            file.data.resize(to, 0);
        }
        file.data[from..to].copy_from_slice(&bytes);
        self.note_content(index, moment, None);
    }

    fn note_content(&mut self, index: usize, moment: Moment, cut: Option<u64>) {
        let file = &self.files[index];
        self.events.push(Event::Content {
            moment,
            entity: file.entity,
            data: file.data.clone(),
            cut,
        });
    }

    fn truncate(&mut self) {
        let Some(index) = self.any_file() else {
            return;
        };
        let size = self.random.below(FILE_BYTES_MAX);
        let set = SetAttributes {
            size: Some(size),
            ..SetAttributes::default()
        };
        let inode = self.files[index].inode.clone();
        let done = self.call("truncate", |fs| fs.set_attributes(&inode, &set));
        let Some((_, moment)) = done else {
            return;
        };
        let len = usize::try_from(size).expect("small");
        self.files[index].data.resize(len, 0);
        self.note_content(index, moment, Some(size));
    }

    fn unlink(&mut self) {
        let Some(((directory, name), entity)) = self.any_name('f') else {
            return;
        };
        let inode = self.inode_of(directory);
        let done = self.call("unlink", |fs| fs.unlink(&inode, name.as_bytes()));
        let (_, moment) = done.expect("an own name is there");
        self.note(
            moment,
            entity,
            vec![(Key::Name(directory, name.clone()), None)],
        );
        self.names.remove(&(directory, name));
    }

    fn rename(&mut self) {
        let letter = if self.random.one_in(4) { 'd' } else { 'f' };
        let Some(((from, old), entity)) = self.any_name(letter) else {
            return;
        };
        if letter == 'f' && self.random.one_in(4) {
            return self.rename_to_common(from, &old, entity);
        }
        let to = self.any_directory();
        let new = self.own_name(letter);
        let target = self.names.get(&(to.entity, new.clone())).copied();
        let mode = match self.random.below(4) {
            0 if target.is_some() && letter == 'f' => RenameMode::Exchange,
            1 => RenameMode::NoReplace,
            _ => RenameMode::Replace,
        };
        let from_inode = self.inode_of(from);
        let done = self.call("rename", |fs| {
            fs.rename(&from_inode, old.as_bytes(), &to.inode, new.as_bytes(), mode)
        });
        let Some((_, moment)) = done else {
            return;
        };
        if target == Some(entity) {
            return;
        }
        let back = target.filter(|_| mode == RenameMode::Exchange);
        let sets = vec![
            (Key::Name(from, old.clone()), back.map(u64::from)),
            (Key::Name(to.entity, new.clone()), Some(entity.into())),
        ];
        self.note(moment, entity, sets);
        match back {
            Some(back) => self.names.insert((from, old), back),
            None => self.names.remove(&(from, old)),
        };
        self.names.insert((to.entity, new), entity);
        if let (Some(target), 'd') = (target, letter) {
            self.drop_directory(target);
        }
    }

    /// Moves an own file to a name that other cores use, too.
    fn rename_to_common(&mut self, from: Entity, old: &str, entity: Entity) {
        let Some(index) = self.files.iter().position(|file| file.entity == entity) else {
            return;
        };
        if self.files[index].common {
            return;
        }
        let new = self.common_name_text();
        let (from_inode, to) = (self.inode_of(from), self.inode_of(SHARED));
        let done = self.call("rename over a common name", |fs| {
            fs.rename(
                &from_inode,
                old.as_bytes(),
                &to,
                new.as_bytes(),
                RenameMode::Replace,
            )
        });
        let Some((_, moment)) = done else {
            return;
        };
        let sets = vec![
            (Key::Name(from, old.to_owned()), None),
            (Key::Name(SHARED, new), Some(entity.into())),
        ];
        self.note(moment, entity, sets);
        self.names.remove(&(from, old.to_owned()));
        self.files[index].common = true;
    }

    fn link(&mut self) {
        let Some(index) = self.any_file() else {
            return;
        };
        let (entity, inode) = (self.files[index].entity, self.files[index].inode.clone());
        let common = self.random.one_in(3) && !self.files[index].common;
        let (directory, name) = if common {
            let shared = self.directories[1].clone();
            (shared, self.common_name_text())
        } else {
            (self.any_directory(), self.own_name('f'))
        };
        let done = self.call("link", |fs| {
            fs.link(&inode, &directory.inode, name.as_bytes())
        });
        let Some((_, moment)) = done else {
            return;
        };
        let key = Key::Name(directory.entity, name.clone());
        self.note(moment, entity, vec![(key, Some(entity.into()))]);
        if common {
            self.files[index].common = true;
        } else {
            self.names.insert((directory.entity, name), entity);
        }
    }

    /// Creates or removes a name that all cores use.
    fn common_name(&mut self) {
        let name = self.common_name_text();
        self.make_or_take(self.directories[1].clone(), name);
    }

    fn make_or_take(&mut self, directory: Directory, name: String) {
        let key = Key::Name(directory.entity, name.clone());
        if self.random.one_in(2) {
            let entity = self.new_entity();
            let new = NewInode {
                mode: 0o100_644,
                uid: entity,
                ..NewInode::default()
            };
            let made = self.call("create", |fs| {
                fs.create(&directory.inode, name.as_bytes(), &new)
            });
            if let Some((_, moment)) = made {
                self.note(moment, entity, vec![(key, Some(entity.into()))]);
            }
            return;
        }
        let done = self.call("unlink", |fs| fs.unlink(&directory.inode, name.as_bytes()));
        if let Some((_, moment)) = done {
            // This core does not know which object had the name.
            self.note(moment, Entity::MAX, vec![(key, None)]);
        }
    }

    /// Makes or removes an own directory.
    fn directory(&mut self) {
        if self.directories.len() < 4 && self.random.below(3) < 2 {
            let parent = self.any_directory();
            let (name, entity) = (self.own_name('d'), self.new_entity());
            let new = NewInode {
                mode: 0o755,
                uid: entity,
                ..NewInode::default()
            };
            let made = self.call("mkdir", |fs| fs.mkdir(&parent.inode, name.as_bytes(), &new));
            if let Some((inode, moment)) = made {
                let key = Key::Name(parent.entity, name.clone());
                self.note(moment, entity, vec![(key, Some(entity.into()))]);
                self.names.insert((parent.entity, name), entity);
                self.directories.push(Directory { entity, inode });
            }
            return;
        }
        let Some(((parent, name), entity)) = self.any_name('d') else {
            return;
        };
        let inode = self.inode_of(parent);
        let done = self.call("rmdir", |fs| fs.rmdir(&inode, name.as_bytes()));
        if let Some((_, moment)) = done {
            self.note(
                moment,
                entity,
                vec![(Key::Name(parent, name.clone()), None)],
            );
            self.names.remove(&(parent, name));
            self.drop_directory(entity);
        }
    }

    fn drop_directory(&mut self, entity: Entity) {
        let inside = self.names.keys().any(|(directory, _)| *directory == entity);
        assert!(!inside, "directory {entity} was removed with names in it");
        self.directories
            .retain(|directory| directory.entity != entity);
    }

    /// Creates or removes a name in a directory of another core, which may remove or move it at the
    /// same time.
    fn in_foreign_directory(&mut self) {
        let other = self.random.below(u64::from(self.shape.cores));
        let number = self.random.below(3);
        let name = self.shape.name(format!("d{other}-{number}"));
        let shared = self.inode_of(SHARED);
        let found = self.call("lookup", |fs| {
            let Some(inode) = fs.lookup(&shared, name.as_bytes())? else {
                return Ok(None);
            };
            let entity = fs.attributes(&inode)?.uid;
            Ok(Some(Directory { entity, inode }))
        });
        if let Some((Some(directory), _)) = found {
            self.make_or_take(directory, "g".to_owned());
        }
    }

    fn xattr(&mut self) {
        let Some(index) = self.any_file() else {
            return;
        };
        let (entity, inode) = (self.files[index].entity, self.files[index].inode.clone());
        let name = format!("user.{}", self.random.below(2));
        let key = Key::Xattr(entity, name.clone());
        if self.random.one_in(4) {
            let done = self.call("remove xattr", |fs| {
                fs.remove_xattr(&inode, name.as_bytes())
            });
            if let Some((_, moment)) = done {
                self.note(moment, entity, vec![(key, None)]);
            }
            return;
        }
        let len = [8, 300, 5000][self.random.index(3)];
        let value = self.bytes(len);
        let done = self.call("set xattr", |fs| {
            fs.set_xattr(&inode, name.as_bytes(), &value, XattrMode::Any)
        });
        if let Some((_, moment)) = done {
            self.note(moment, entity, vec![(key, Some(hash(&value)))]);
        }
    }

    /// Writes this core's page of the shared file, or the page that all cores write.
    fn shared_page(&mut self) {
        let own = u64::from(self.shape.core);
        let page = if self.random.one_in(3) {
            u64::from(super::CORES_MAX)
        } else {
            own
        };
        let bytes = self.bytes(4096);
        let data = self.data.clone();
        let done = self.call("write a shared page", |fs| {
            fs.write(&data, page * 4096, &bytes, Stamp::Set)
        });
        if let Some((written, moment)) = done {
            assert_eq!(written, 4096, "a page is written whole");
            self.note(moment, DATA, vec![(Key::Page(page), Some(hash(&bytes)))]);
        }
    }

    fn append(&mut self) {
        let bytes = self.bytes(RECORD_BYTES);
        let file = self.appended.clone();
        let done = self.call("append", |fs| fs.append(&file, &bytes));
        if let Some(((offset, written), moment)) = done {
            assert_eq!(written, RECORD_BYTES, "a record is appended whole");
            self.events.push(Event::Append {
                moment,
                offset,
                hash: hash(&bytes),
            });
        }
    }

    fn promise(&mut self) {
        let scope = if self.random.one_in(3) {
            SyncScope::Data
        } else {
            SyncScope::All
        };
        let object = match self.random.below(8) {
            0..4 => self.any_file().map(|index| {
                let file = &self.files[index];
                (file.entity, file.inode.clone())
            }),
            4 => Some((DATA, self.data.clone())),
            5 => Some((LOG, self.appended.clone())),
            6 => {
                let directory = self.any_directory();
                Some((directory.entity, directory.inode))
            }
            _ => None,
        };
        // A promise has the clock of its call: it covers the calls that had ended before it began.
        let done = match &object {
            Some((_, inode)) => self.call("fsync", |fs| fs.fsync(inode, scope)),
            None => self.call("sync", FileSystem::sync),
        };
        if let Some((_, moment)) = done {
            let scope = object.map_or(Scope::All, |(entity, _)| Scope::Object(entity));
            let (start, step) = (moment.start, self.log.step());
            self.events.push(Event::Promise { start, step, scope });
        }
    }

    /// Closes a file: if it has no name left, its inode is deleted.
    fn forget(&mut self) {
        if let Some(index) = self.any_file() {
            self.files.swap_remove(index);
        }
    }

    /// Reads an own file, looks up an own name, and lists the shared directory.
    fn look(&mut self) {
        if let Some(index) = self.any_file() {
            let inode = self.files[index].inode.clone();
            let read = self.call("read", |fs| read_file(fs, &inode));
            let (read, _) = read.expect("an open file can be read");
            assert!(
                read == self.files[index].data,
                "an own file holds what was written"
            );
        }
        self.look_up_own_name();
        self.list();
    }

    /// An own name leads to its object, also by a lockless lookup.
    fn look_up_own_name(&mut self) {
        let letter = if self.random.one_in(3) { 'd' } else { 'f' };
        let name = self.own_name(letter);
        let shared = self.inode_of(SHARED);
        let want = self.names.get(&(SHARED, name.clone())).copied();
        let found = self.call("lookup", |fs| {
            let found = fs.look_up_and_remember(&shared, name.as_bytes())?;
            let entity = match &found {
                Some(inode) => Some(fs.attributes(inode)?.uid),
                None => None,
            };
            assert_eq!(entity, want, "{name}: an own name leads elsewhere");
            match fs.peek(shared.id(), name.as_bytes()) {
                Peek::Unknown => {}
                Peek::Absent => assert!(found.is_none(), "{name} is there"),
                Peek::Found(id) => assert_eq!(found.map(|inode| inode.id()), Some(id), "{name}"),
            }
            Ok(())
        });
        assert!(found.is_some(), "{name}: a lookup is not refused");
    }

    /// Whatever other cores do, a listing has each own name exactly once.
    fn list(&mut self) {
        let shared = self.inode_of(SHARED);
        let mut shown = Vec::new();
        self.call("list", |fs| {
            fs.read_directory(&shared, 0, &mut |entry| {
                shown.push(String::from_utf8_lossy(entry.name).into_owned());
                std::ops::ControlFlow::Continue(())
            })
        });
        let owned = ['d', 'f'].map(|letter| format!("{letter}{}-", self.shape.core));
        shown.retain(|name| owned.iter().any(|start| name.starts_with(start)));
        shown.sort_unstable();
        let own = self.names.keys();
        let own: Vec<_> = own.filter(|(at, _)| *at == SHARED).collect();
        let mut own: Vec<_> = own.into_iter().map(|(_, name)| name.clone()).collect();
        own.sort_unstable();
        assert_eq!(shown, own, "core {}: the own names", self.shape.core);
    }
}

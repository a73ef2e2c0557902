//! Calls that change names: of files, of directories, of one core and of all.

use dure_fs::{NewInode, RenameMode, SetAttributes, SetTime};

use super::{CROWD, Core, Directory, FILES_MAX, OwnFile};
use crate::schedules::history::{Entity, Key, SHARED};

impl Core<'_> {
    pub(super) fn create(&mut self) {
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

    pub(super) fn unlink(&mut self) {
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

    pub(super) fn rename(&mut self) {
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

    pub(super) fn link(&mut self) {
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
    pub(super) fn common_name(&mut self) {
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
    pub(super) fn directory(&mut self) {
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
    pub(super) fn in_foreign_directory(&mut self) {
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

    /// Sets the times of the shared directory, which takes its inode lock exclusively.
    pub(super) fn set_times(&mut self) {
        let shared = self.inode_of(SHARED);
        let set = SetAttributes {
            mtime: Some(SetTime::Now),
            ..SetAttributes::default()
        };
        self.call("set times", |fs| fs.set_attributes(&shared, &set));
    }
}

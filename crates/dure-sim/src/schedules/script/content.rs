//! Calls that change what files hold, and those that make changes durable.

use dure_fs::{FileSystem, SetAttributes, Stamp, SyncScope, XattrMode};

use super::{Core, FILE_BYTES_MAX};
use crate::schedules::CORES_MAX;
use crate::schedules::history::{DATA, Event, Key, LOG, Moment, RECORD_BYTES, Scope, hash};

impl Core<'_> {
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

    pub(super) fn write(&mut self) {
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
        let entity = file.entity;
        self.events.push(Event::Content {
            moment,
            entity,
            data: file.data.clone(),
            cut,
        });
        self.data_promised(entity, moment);
    }

    pub(super) fn truncate(&mut self) {
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

    pub(super) fn xattr(&mut self) {
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
    pub(super) fn shared_page(&mut self) {
        let own = u64::from(self.shape.core);
        let page = if self.random.one_in(3) {
            u64::from(CORES_MAX)
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
            self.data_promised(DATA, moment);
        }
    }

    pub(super) fn append(&mut self) {
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
            self.data_promised(LOG, moment);
        }
    }

    pub(super) fn promise(&mut self) {
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
    pub(super) fn forget(&mut self) {
        if let Some(index) = self.any_file() {
            self.files.swap_remove(index);
        }
    }
}

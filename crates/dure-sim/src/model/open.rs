//! Descriptors in the model: opening, reading, writing and seeking.

use rustix::io::Errno;

use super::ModelFs;
use super::data::Data;
use super::node::{AllocateKind, Body, Kind, New};
use super::operation::{Answer, Flags, Outcome, Whence, pattern};
use super::path::{Last, Place, Walk};
use super::permission::{EXECUTE, READ, WRITE, Who};
use super::store::{ROOT, Result};

/// An open file.
#[derive(Debug, Clone)]
pub(super) struct Open {
    pub(super) ino: u64,
    /// Whose rights writes have.
    who: Who,
    flags: Flags,
    position: u64,
}

impl Open {
    pub(super) fn position(&self) -> u64 {
        self.position
    }
}

fn check_flags(flags: Flags) -> Result<()> {
    let writes = flags.write || flags.append;
    let nothing = !flags.read && !writes;
    let read_only = !writes && (flags.truncate || flags.create);
    let both_ends = flags.append && flags.truncate && !(flags.create && flags.exclusive);
    if nothing || read_only || both_ends || (flags.create && flags.directory) {
        Err(Errno::INVAL)
    } else {
        Ok(())
    }
}

impl ModelFs {
    pub(super) fn open(
        &mut self,
        who: Who,
        slot: usize,
        path: &str,
        flags: Flags,
        mode: u32,
    ) -> Outcome {
        self.close(slot);
        check_flags(flags)?;
        let mut walk = Walk::new(who);
        let place = self.place_from(&mut walk, ROOT, path)?;
        let ino = self.open_at(who, &mut walk, &place, flags, mode)?;
        self.store.pin(ino);
        self.slots[slot] = Some(Open {
            who,
            ino,
            flags,
            position: 0,
        });
        Ok(Answer::Done)
    }

    fn open_at(
        &mut self,
        who: Who,
        walk: &mut Walk,
        place: &Place,
        flags: Flags,
        mode: u32,
    ) -> Result<u64> {
        let name = match &place.last {
            Last::Root => return self.open_found(who, ROOT, flags),
            Last::Dot => return self.open_found(who, place.dir, flags),
            Last::DotDot => return self.open_found(who, self.store.parent(place.dir), flags),
            Last::Name(name) => name,
        };
        if flags.create && place.slash {
            return Err(Errno::ISDIR);
        }
        let Some(ino) = self.store.lookup(place.dir, name)? else {
            return self.open_new(who, place, name, flags, mode);
        };
        let is_link = self.store.node(ino).kind() == Kind::Symlink;
        if flags.create && flags.exclusive {
            return Err(Errno::EXIST);
        }
        if is_link && (!flags.no_follow || place.slash) {
            let target = self.place_of_link(walk, place.dir, ino)?;
            let target = Place {
                slash: target.slash || place.slash,
                ..target
            };
            return self.open_at(
                who,
                walk,
                &target,
                Flags {
                    no_follow: false,
                    ..flags
                },
                mode,
            );
        }
        if place.slash && self.store.node(ino).kind() != Kind::Directory {
            return Err(Errno::NOTDIR);
        }
        self.open_found(who, ino, flags)
    }

    fn open_new(
        &mut self,
        who: Who,
        place: &Place,
        name: &[u8],
        flags: Flags,
        mode: u32,
    ) -> Result<u64> {
        if !flags.create {
            return Err(Errno::NOENT);
        }
        let dir = self.store.node(place.dir);
        who.check(dir, WRITE | EXECUTE)?;
        let (gid, mode) = who.new_group_and_mode(dir, false, mode);
        let new = New {
            body: Body::File(Data::default()),
            mode,
            uid: who.uid(),
            gid,
        };
        self.store.create(place.dir, name, new)
    }

    fn open_found(&mut self, who: Who, ino: u64, flags: Flags) -> Result<u64> {
        let node = self.store.node(ino);
        let kind = node.kind();
        let writes = flags.write || flags.append;
        if flags.create && flags.exclusive {
            return Err(Errno::EXIST);
        }
        if flags.create && kind == Kind::Directory {
            return Err(Errno::ISDIR);
        }
        if flags.directory && kind != Kind::Directory {
            return Err(Errno::NOTDIR);
        }
        match kind {
            Kind::Symlink => return Err(Errno::LOOP),
            Kind::Directory if writes => return Err(Errno::ISDIR),
            _ => {}
        }
        let read = if flags.read { READ } else { 0 };
        who.check(node, read | if writes { WRITE } else { 0 })?;
        if !matches!(kind, Kind::File | Kind::Directory) {
            return Err(Errno::NXIO);
        }
        if flags.truncate {
            self.store.truncate(ino, 0)?;
            self.content_changed(who, ino);
        }
        Ok(ino)
    }

    pub(super) fn temporary(&mut self, who: Who, slot: usize, path: &str, mode: u32) -> Outcome {
        self.close(slot);
        let dir = self.find(who, path, true)?;
        let node = self.store.node(dir);
        if node.kind() != Kind::Directory {
            return Err(Errno::NOTDIR);
        }
        who.check(node, WRITE | EXECUTE)?;
        let (gid, mode) = who.new_group_and_mode(node, false, mode);
        let new = New {
            body: Body::File(Data::default()),
            mode,
            uid: who.uid(),
            gid,
        };
        let ino = self.store.temporary(dir, new)?;
        let flags = Flags {
            read: true,
            write: true,
            ..Flags::default()
        };
        self.slots[slot] = Some(Open {
            who,
            ino,
            flags,
            position: 0,
        });
        Ok(Answer::Done)
    }

    pub(super) fn close(&mut self, slot: usize) {
        if let Some(open) = self.slots[slot].take() {
            self.store.unpin(open.ino);
        }
    }

    pub(super) fn slot(&self, slot: usize) -> Result<&Open> {
        self.slots[slot].as_ref().ok_or(Errno::BADF)
    }

    fn writable(&self, slot: usize) -> Result<&Open> {
        let open = self.slot(slot)?;
        if open.flags.write || open.flags.append {
            Ok(open)
        } else {
            Err(Errno::BADF)
        }
    }

    fn content_changed(&mut self, who: Who, ino: u64) {
        let node = self.store.node_mut(ino);
        node.mode = who.mode_after_write(node);
    }

    pub(super) fn read(&self, slot: usize, offset: u64, len: u64) -> Result<Vec<u8>> {
        let open = self.slot(slot)?;
        if !open.flags.read {
            return Err(Errno::BADF);
        }
        self.store.read(open.ino, offset, len)
    }

    pub(super) fn read_next(&mut self, slot: usize, len: u64) -> Outcome {
        let bytes = self.read(slot, self.slot(slot)?.position, len)?;
        let open = self.slots[slot].as_mut().expect("read checked it");
        open.position += u64::try_from(bytes.len()).expect("64 bits");
        Ok(Answer::Bytes(bytes))
    }

    /// `pwrite`; returns the offset behind what was written.
    pub(super) fn write(
        &mut self,
        slot: usize,
        offset: u64,
        (len, fill): (u64, u8),
    ) -> Result<u64> {
        let open = self.writable(slot)?;
        let (ino, who) = (open.ino, open.who);
        let offset = if open.flags.append {
            self.store.node(ino).size()
        } else {
            offset
        };
        self.store.write(ino, offset, &pattern(fill, len))?;
        if len > 0 {
            self.content_changed(who, ino);
        }
        Ok(offset + len)
    }

    pub(super) fn write_next(&mut self, slot: usize, part: (u64, u8)) -> Outcome {
        let position = self.slot(slot)?.position;
        let end = self.write(slot, position, part)?;
        self.slots[slot]
            .as_mut()
            .expect("write checked it")
            .position = end;
        Ok(Answer::Number(part.0))
    }

    pub(super) fn seek(&mut self, slot: usize, whence: Whence, offset: i64) -> Outcome {
        let open = self.slot(slot)?;
        let node = self.store.node(open.ino);
        let by_content = matches!(whence, Whence::Data | Whence::Hole);
        if by_content && offset < 0 {
            return Err(Errno::NXIO);
        }
        let Body::File(data) = &node.body else {
            return Err(Errno::INVAL);
        };
        let base = match whence {
            Whence::Set => 0,
            Whence::Current => open.position,
            Whence::End => node.size(),
            Whence::Data | Whence::Hole => {
                let offset = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
                let found = match whence {
                    Whence::Data => data.seek_data(offset),
                    _ => data.seek_hole(offset),
                };
                return self.set_position(slot, found.ok_or(Errno::NXIO)?);
            }
        };
        let position = base.checked_add_signed(offset).ok_or(Errno::INVAL)?;
        self.set_position(slot, position)
    }

    fn set_position(&mut self, slot: usize, position: u64) -> Outcome {
        self.slots[slot]
            .as_mut()
            .expect("checked by the caller")
            .position = position;
        Ok(Answer::Number(position))
    }

    pub(super) fn truncate_slot(&mut self, slot: usize, size: u64) -> Outcome {
        let open = self.slot(slot)?;
        if !(open.flags.write || open.flags.append) {
            return Err(Errno::INVAL);
        }
        let (ino, who) = (open.ino, open.who);
        self.store.truncate(ino, size)?;
        self.content_changed(who, ino);
        Ok(Answer::Done)
    }

    pub(super) fn allocate(
        &mut self,
        slot: usize,
        kind: AllocateKind,
        (offset, len): (u64, u64),
    ) -> Outcome {
        let open = self.writable(slot)?;
        let (ino, who) = (open.ino, open.who);
        self.store.allocate(ino, kind, offset, len)?;
        self.content_changed(who, ino);
        Ok(Answer::Done)
    }
}

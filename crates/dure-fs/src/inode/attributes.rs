//! Attributes: what stat shows and chmod, chown, utimens and truncate set.

use dure_store::OpKind;
use dure_store::error::{Error, Result};
use dure_store::format::inode::{InodeRecord, Time};
use dure_store::format::name::FileKind;
use dure_store::space::OpClass;
use dure_store::units::{BLOCK_BYTES_U64, Ino};
use dure_sync::SpreadReadGuard;

use super::beside::Attributed;
use super::parts::{DataPart, PlainPart};
use crate::file::Added;
use crate::inode::{ChangedPart, ForAttributes, Inode, InodeRef, InodeState};
use crate::namespace::{InodeId, attempts};
use crate::ranks::INODE;
use crate::volume::{FileSystem, Volume};
use crate::xattr;

/// Permission bits, with setuid, setgid and sticky.
pub(crate) const MODE_BITS: u32 = 0o7777;
const SET_USER_ID: u32 = 0o4000;
pub(crate) const SET_GROUP_ID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o10;

/// Everything statx knows about an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Its number.
    pub ino: Ino,
    /// Which life of the number this is.
    pub generation: u32,
    /// Its type.
    pub kind: FileKind,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Names; of a directory 2 and its subdirectories.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device numbers of a device file.
    pub rdev: u64,
    /// Bytes.
    pub size: u64,
    /// Blocks of 512 bytes on the medium, or about to be: pages that wait for write-back count.
    pub blocks: u64,
    /// Last read.
    pub atime: Time,
    /// Last change of the content.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Birth.
    pub btime: Time,
    /// It has extended attributes, access control lists included.
    pub extended: bool,
}

/// What decides who may use an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permissions {
    /// Its type.
    pub kind: FileKind,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// It has extended attributes, access control lists included.
    pub extended: bool,
}

impl Permissions {
    /// The mode after a change by somebody who may not keep set-id bits, as the kernel's
    /// `setattr_should_drop_suidgid` has it: set-group-id without group execute (it once meant
    /// mandatory locking) stays if the caller is a member of the group, or privileged.
    pub fn without_set_id(&self, is_member: impl FnOnce() -> bool) -> u32 {
        let mode = self.mode & !SET_USER_ID;
        let means_locking = mode & (SET_GROUP_ID | GROUP_EXECUTE) == SET_GROUP_ID;
        if means_locking && is_member() {
            mode
        } else {
            mode & !SET_GROUP_ID
        }
    }

    fn of(kind: FileKind, plain: &PlainPart) -> Permissions {
        Permissions {
            kind,
            mode: plain.mode,
            uid: plain.uid,
            gid: plain.gid,
            extended: plain.extended,
        }
    }
}

impl From<&Attributes> for Permissions {
    fn from(whole: &Attributes) -> Permissions {
        Permissions {
            kind: whole.kind,
            mode: whole.mode,
            uid: whole.uid,
            gid: whole.gid,
            extended: whole.extended,
        }
    }
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The present.
    Now,
    /// This one.
    At(Time),
}

/// What to set; `None` stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttributes {
    /// Permission bits, setuid, setgid and sticky; other bits are ignored.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size of a regular file.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// Change time; `None`: now.
    pub ctime: Option<Time>,
}

/// Attributes of an inode to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NewInode {
    /// Permission bits, and the type for `create` and `temporary`.
    pub mode: u32,
    /// Bits taken from the mode, unless the directory has a default access control list.
    pub umask: u32,
    /// Owner.
    pub uid: u32,
    /// Group, unless the directory is setgid.
    pub gid: u32,
    /// Device numbers of a device file.
    pub rdev: u64,
}

fn check_time(time: Time) -> Result<Time> {
    if time.nanos.get() >= 1_000_000_000 {
        return Err(Error::Invalid("nanoseconds beyond a second"));
    }
    Ok(time)
}

impl SetTime {
    fn resolve(self, now: Time) -> Result<Time> {
        match self {
            SetTime::Now => Ok(now),
            SetTime::At(time) => check_time(time),
        }
    }
}

impl SetAttributes {
    fn needs_record(&self) -> bool {
        *self
            != SetAttributes {
                size: self.size,
                ..SetAttributes::default()
            }
    }

    /// Changes a record made from a draft; of a directory the fold is loaded.
    fn apply(
        &self,
        state: &InodeState,
        record: &mut InodeRecord,
        kind: FileKind,
        now: Time,
    ) -> Result<()> {
        if let Some(mode) = self.mode {
            record.mode = (record.mode.get() & !MODE_BITS | mode & MODE_BITS).into();
        }
        record.uid = self.uid.map_or(record.uid, Into::into);
        record.gid = self.gid.map_or(record.gid, Into::into);
        if let Some(atime) = self.atime {
            record.atime = atime.resolve(now)?;
        }
        if kind == FileKind::Directory && (self.mtime.is_some() || self.ctime.is_some()) {
            // Stamps of buckets that are later than the times set here must not count any more.
            record.mtime = state.times().0;
            record.set_number = record.set_number.get().wrapping_add(1).into();
        }
        if let Some(mtime) = self.mtime {
            record.mtime = mtime.resolve(now)?;
        }
        record.ctime = self.ctime.unwrap_or(now);
        Ok(())
    }

    /// Whether it sets times to others than now.
    fn gives_times(&self) -> bool {
        self.atime.is_some() || self.mtime.is_some() || self.ctime.is_some()
    }

    fn check_times(&self) -> Result<()> {
        let now = Time::default();
        self.atime.map_or(Ok(now), |time| time.resolve(now))?;
        self.mtime.map_or(Ok(now), |time| time.resolve(now))?;
        self.ctime.map_or(Ok(now), check_time)?;
        Ok(())
    }
}

impl FileSystem {
    /// The attributes of an inode.
    ///
    /// # Errors
    /// Of reading a directory's buckets, once per directory.
    pub fn attributes(&self, inode: &InodeRef) -> Result<Attributes> {
        if let Some(shown) = self.peek_attributes(inode.id()) {
            return Ok(shown);
        }
        let inode = inode.inode();
        let state = inode.state.read();
        if let Some(attributes) = asked(inode, &state) {
            return Ok(attributes);
        }
        drop(state);
        let mut state = inode.state.write();
        self.0.load_fold(&mut state)?;
        let plain = inode.plain_part(&state, &state.record, None);
        let plain = plain.expect("nobody else changes it");
        let data = inode.data_part(&state);
        Ok(Attributes::of(inode.id(), &plain, &data))
    }

    /// What decides who may use an inode.
    ///
    /// # Errors
    /// As [`FileSystem::attributes`].
    pub fn permissions(&self, inode: &InodeRef) -> Result<Permissions> {
        let id = inode.id();
        if let Some(shown) = self.peek_permissions(id) {
            return Ok(shown);
        }
        let held = inode.inode();
        let state = held.state.read();
        let whole = held.state.attributes(&state);
        let Some(plain) = held.plain_part(&state, whole.record(), whole.change_time()) else {
            drop(whole);
            drop(state);
            return self
                .attributes(inode)
                .map(|whole| Permissions::from(&whole));
        };
        let holds = || held.plain_holds(&state, &whole, &plain);
        held.state.asked_who_may(&state, (&plain, holds));
        Ok(Permissions::of(id.kind(), &plain))
    }

    /// The same, if it is known; takes no lock and writes nothing shared.
    #[must_use]
    pub fn peek_permissions(&self, id: InodeId) -> Option<Permissions> {
        let plain = self.0.shown.plain(id)?;
        Some(Permissions::of(id.kind(), &plain))
    }

    /// Sets attributes, and gives all of them.
    ///
    /// # Errors
    /// As [`FileSystem::change_attributes`].
    pub fn set_attributes(&self, inode: &InodeRef, set: &SetAttributes) -> Result<Attributes> {
        self.change_attributes(inode, set)?;
        self.attributes(inode)
    }

    /// Sets attributes; the size first, the others in one operation.
    ///
    /// # Errors
    /// `IsDirectory` or `Invalid` for the size of what is no regular file, `Invalid` for a
    /// malformed time.
    pub fn change_attributes(&self, inode: &InodeRef, set: &SetAttributes) -> Result<()> {
        self.0.check_writable()?;
        set.check_times()?;
        if let Some(size) = set.size {
            match inode.kind() {
                FileKind::File => self.0.truncate(inode, size)?,
                FileKind::Directory => return Err(Error::IsDirectory),
                _ => return Err(Error::Invalid("only regular files have a size to set")),
            }
        }
        if set.needs_record() {
            self.0.set_record(inode.inode(), set)?;
        }
        Ok(())
    }
}

/// The attributes, which somebody asks for; `None` if the subdirectories have to be counted by who
/// has the directory alone.
pub(crate) fn asked(
    inode: &Inode,
    state: &SpreadReadGuard<'_, INODE, InodeState>,
) -> Option<Attributes> {
    let whole = inode.state.attributes(state);
    let plain = inode.plain_part(state, whole.record(), whole.change_time())?;
    // The file does not grow until its size is in the table: who lets it grow takes that out first.
    let added = inode.state.added().map(Added::share);
    let pending = added.as_ref().map_or(0, |added| added.pending());
    let data = inode.data_part_with(state, pending);
    let plain_holds = || inode.plain_holds(state, &whole, &plain);
    let data_holds = || inode.data_part_with(state, pending) == data;
    inode
        .state
        .asked(state, (&plain, plain_holds), (&data, data_holds));
    Some(Attributes::of(inode.id(), &plain, &data))
}

impl Inode {
    /// The number of names, or of a directory 2 and the subdirectories, if they can be counted.
    fn links(&self, state: &InodeState, record: &InodeRecord) -> Option<u32> {
        if self.kind == FileKind::Directory && state.is_alive() {
            return Some(2 + state.directory.subdirectories()?);
        }
        Some(record.nlink.get())
    }

    /// Whether the part is still so: what is held with `whole` is, if that is current, but others
    /// may share the directory and change its subdirectories.
    fn plain_holds(&self, state: &InodeState, whole: &Attributed<'_>, plain: &PlainPart) -> bool {
        whole.is_current(&self.state) && self.links(state, whole.record()) == Some(plain.nlink)
    }

    fn id(&self) -> InodeId {
        InodeId::new(self.ino, self.generation, self.kind)
    }

    /// What stat shows and does not change with the data. The caller holds the inode, and its
    /// attributes, which are in `record`, as changed at `ctime`. `None` as for `links`.
    fn plain_part(
        &self,
        state: &InodeState,
        record: &InodeRecord,
        ctime: Option<Time>,
    ) -> Option<PlainPart> {
        Some(PlainPart {
            mode: record.mode.get(),
            nlink: self.links(state, record)?,
            uid: record.uid.get(),
            gid: record.gid.get(),
            rdev: record.rdev.get(),
            btime: record.btime,
            ctime,
            extended: record.xattr_root.get() != 0,
        })
    }

    /// What stat shows of the data. The caller has the inode alone; of a directory the fold is
    /// loaded.
    pub(crate) fn data_part(&self, alone: &InodeState) -> DataPart {
        self.data_part_with(alone, 0)
    }

    /// The same; `pending` pages wait beside the state, and the caller keeps others from adding to
    /// them.
    fn data_part_with(&self, state: &InodeState, pending: u64) -> DataPart {
        let record = &state.record;
        let (mtime, ctime) = state.times();
        DataPart {
            size: match self.kind {
                FileKind::File => self.outline.size(),
                _ => record.size.get(),
            },
            blocks: self.blocks(state, pending) * 8,
            atime: self.access_time.current(record),
            mtime,
            ctime,
        }
    }

    /// Blocks of the medium, and those that pages need which wait for write-back: a file must not
    /// look as if it had a hole where data waits. Only the map knows which of these pages have a
    /// block already, so there may be fewer in the end, but not more than the file has pages.
    fn blocks(&self, state: &InodeState, pending: u64) -> u64 {
        let placed = state.record.blocks.get();
        let pages = self.outline.size().div_ceil(BLOCK_BYTES_U64);
        let waiting = state.file.unclean_pages() + pending;
        placed.max(pages.min(placed + waiting))
    }

    /// Who had this inode alone with `StateLock::write_unseen`, when it showed `before`, has
    /// changed it.
    pub(crate) fn hide_unless(&self, alone: &InodeState, before: &DataPart) {
        if self.data_part(alone) != *before {
            self.state.forget();
        }
    }
}

impl InodeState {
    /// mtime and ctime as users see them. Of a directory they are complete once the fold is loaded.
    pub(crate) fn times(&self) -> (Time, Time) {
        use crate::directory::stamp::latest;
        let mut mtime = self.file.mtime(&self.record);
        let mut ctime = self.file.ctime(&self.record);
        if let Some(stamps) = self.directory.fold().and_then(|fold| fold.stamps) {
            (mtime, ctime) = (latest(mtime, stamps.mtime), latest(ctime, stamps.ctime));
        }
        if let Some(time) = self.directory.shared.latest() {
            (mtime, ctime) = (latest(mtime, time), latest(ctime, time));
        }
        (mtime, ctime)
    }
}

impl Volume {
    fn set_record(&self, inode: &Inode, set: &SetAttributes) -> Result<()> {
        attempts(|_| {
            // chmod of an inode with an access control list changes the list as well.
            let attributes = match set.mode {
                Some(_) => Some(xattr::load(self, inode)?),
                None => None,
            };
            // Whether there is a list does not depend on the mode.
            let part = match &attributes {
                Some(loaded) if loaded.with_mode(0)?.is_some() => ChangedPart::Extended,
                _ => ChangedPart::Plain,
            };
            let nodes = attributes
                .as_ref()
                .map_or(0, |loaded| loaded.nodes_max(loaded.stream.len()));
            // The inode's node exists, so the change of an attribute adds nothing. A kernel that
            // caches writes sets times before each fsync, also on a full volume.
            let class = match nodes {
                0 => OpClass::Delete,
                _ => OpClass::Normal,
            };
            let mut op = self.op(OpKind::Attributes, class, 1 + nodes)?;
            let mut held = match set.gives_times() {
                true => ForAttributes::Alone(inode.state.write()),
                false => inode.take_attributes(self.options.volume_rules.attributes, part),
            };
            if inode.kind == FileKind::Directory
                && let ForAttributes::Alone(state) = &mut held
            {
                self.load_fold(state)?;
            }
            let mut record = held.draft(inode);
            set.apply(held.state(), &mut record, inode.kind, op.time())?;
            if let Some(loaded) = &attributes {
                // Also if there was no list: there may be one by now.
                loaded.check(held.xattr_changes())?;
            }
            let list = match &attributes {
                Some(loaded) => loaded.with_mode(record.mode.get())?,
                None => None,
            };
            if let (Some(loaded), Some(list)) = (&attributes, &list) {
                loaded.write(&mut op, held.xattr_changes(), &mut record, list)?;
            }
            inode.store(&mut op, &record);
            let mark = op.finish();
            if let ForAttributes::Alone(state) = &mut held
                && record.set_number != state.record.set_number
            {
                state.directory.forget_stamps();
            }
            inode.attributes_stored(&mut held, record, (mark, part));
            Ok(())
        })
    }
}

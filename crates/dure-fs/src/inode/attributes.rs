//! Attributes: what stat shows. `namespace/set_attributes.rs` sets them.

use dure_store::format::inode::{AttributesRecord, DataHead, InodeRecord, Time};
use dure_store::format::name::FileKind;
use dure_store::units::Ino;
use dure_sync::PerCoreReadGuard;

use super::Inodes;
use super::attribute_cache::{DataPart, PlainPart};
use super::last_writer::Writer;
use super::times::latest;
use crate::file::{FileState, Growth};
use crate::inode::{Inode, InodeId, InodeState};
use crate::ranks::INODE;

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
    /// Generation of the number: tells its reuses apart.
    pub generation: u32,
    /// Its type.
    pub kind: FileKind,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Number of names; for a directory 2 plus its subdirectories.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device numbers of a device file.
    pub rdev: u64,
    /// Size in bytes.
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

/// What permission checks need to know about an inode.
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
    /// The mode after a change by a caller that may not keep set-id bits, as in the kernel's
    /// `setattr_should_drop_suidgid`: set-group-id without group execute (it once meant mandatory
    /// locking) stays if the caller is a member of the group, or privileged.
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

/// Attributes given to a new inode.
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

/// Attributes that a caller asks for, which are cached the second time; `None` if the
/// subdirectories have to be counted under the exclusive lock.
pub(crate) fn asked(
    inode: &Inode,
    state: &PerCoreReadGuard<'_, INODE, InodeState>,
) -> Option<Attributes> {
    // The file does not grow until its size is cached: a task that lets it grow removes the size
    // first.
    let _growth = inode.state().growth().map(Growth::share);
    let head = inode.data_head();
    let (writer, attributes, data) = loop {
        let writer = inode.state().attribute_writer().now();
        let attributes = inode.attributes();
        let data = inode.data_part_with(state, &head);
        // Else attributes may have changed before the data did, which is shown without them.
        if inode.state().attribute_writer().now() == writer {
            break (writer, attributes, data);
        }
    };
    let plain = inode.plain_part(state, &attributes)?;
    let plain_holds = || inode.plain_holds(state, &plain, writer);
    // Overwrites without a page cache store times under the shared lock.
    let data_holds = || match inode.sharing.get() {
        None => inode.data_part_with(state, &head) == data,
        Some(_) => inode.data_part_with(state, &inode.data_head()) == data,
    };
    inode
        .state()
        .asked(state, (&plain, plain_holds), (&data, data_holds));
    Some(Attributes::of(inode.id(), &plain, &data))
}

impl Attributes {
    /// Those of an inode that was just made, before another task can change them.
    pub(crate) fn of_new(kind: FileKind, record: &InodeRecord) -> Attributes {
        let InodeRecord { attributes, data } = record;
        let nlink = match kind {
            FileKind::Directory => 2,
            _ => attributes.nlink.get(),
        };
        let id = InodeId::new(attributes.number(), attributes.generation.get(), kind);
        let data = DataPart {
            size: data.size.get(),
            blocks: data.blocks.get() * 8,
            atime: data.atime,
            mtime: data.mtime,
            ctime: data.ctime,
        };
        Attributes::of(id, &PlainPart::of(attributes, nlink), &data)
    }
}

impl Inodes {
    /// The attributes that decide about permissions, if they are cached.
    #[inline]
    pub(crate) fn permissions_at_hand(&self, id: InodeId) -> Option<Permissions> {
        let plain = self.attribute_cache.plain(id)?;
        Some(Permissions::of(id.kind(), &plain))
    }
}

impl Inode {
    /// The number of names, which is `names`, or of a directory 2 plus its subdirectories, if these
    /// are counted.
    fn links(&self, state: &InodeState, names: u32) -> Option<u32> {
        if self.kind == FileKind::Directory && !state.gone {
            return Some(2 + state.directory().subdirectories()?);
        }
        Some(names)
    }

    /// The attributes that decide about permissions, which are cached if they were asked for before.
    /// `None` as for `links`.
    pub(crate) fn who_may(&self) -> Option<Permissions> {
        let state = self.state().read();
        let writer = self.state().attribute_writer().now();
        let plain = self.plain_part(&state, &self.attributes())?;
        let holds = || self.plain_holds(&state, &plain, writer);
        self.state().asked_who_may(&state, (&plain, holds));
        Some(Permissions::of(self.kind, &plain))
    }

    /// Whether a part of attributes that were loaded after `writer` still holds. Other holders of a
    /// directory's shared state may change the number of its subdirectories.
    fn plain_holds(&self, state: &InodeState, plain: &PlainPart, writer: Writer) -> bool {
        self.state().attribute_writer().now() == writer
            && self.links(state, plain.nlink) == Some(plain.nlink)
    }

    pub(crate) fn id(&self) -> InodeId {
        InodeId::new(self.ino, self.generation, self.kind)
    }

    /// What stat shows and does not change with the data. The caller holds the state. `None` as for
    /// `links`.
    pub(crate) fn plain_part(
        &self,
        state: &InodeState,
        attributes: &AttributesRecord,
    ) -> Option<PlainPart> {
        let nlink = self.links(state, attributes.nlink.get())?;
        Some(PlainPart::of(attributes, nlink))
    }

    /// What stat shows of the data. The caller holds the inode exclusively; the fold of a directory
    /// is loaded.
    pub(crate) fn data_part(&self, state: &InodeState) -> DataPart {
        self.data_part_with(state, &self.data_head())
    }

    /// Like `Inode::data_part`, with the head as logged; the caller keeps other tasks from adding
    /// pages.
    fn data_part_with(&self, state: &InodeState, data: &DataHead) -> DataPart {
        let (mtime, ctime) = state.data_times(data);
        let (size, blocks) = match state.if_file() {
            Some(file) => {
                let size = self.state().seek_hint().size();
                (size, file.blocks(data.blocks.get(), size))
            }
            None => (data.size.get(), data.blocks.get()),
        };
        DataPart {
            size,
            blocks: blocks * 8,
            atime: self.access_time().current(data),
            mtime,
            ctime,
        }
    }

    /// Removes the inode from the attribute cache if its data part is no longer `before`. The
    /// caller holds it exclusively, by `StateLock::write_keep_cached`, and has changed it.
    pub(crate) fn hide_unless(&self, state: &InodeState, before: &DataPart) {
        if self.data_part(state) != *before {
            self.state().forget();
        }
    }
}

impl InodeState {
    /// mtime and ctime as users see them, but for the ctime of the attributes. Those of a directory
    /// are complete once the fold is loaded.
    pub(crate) fn data_times(&self, data: &DataHead) -> (Time, Time) {
        let (mut mtime, mut ctime) = (data.mtime, data.ctime);
        if let Some(written) = self.if_file().and_then(FileState::written) {
            (mtime, ctime) = (written, written);
        }
        let Some(directory) = self.if_directory() else {
            return (mtime, ctime);
        };
        if let Some(stamps) = directory.fold().and_then(|fold| fold.stamps) {
            (mtime, ctime) = (latest(mtime, stamps.mtime), latest(ctime, stamps.ctime));
        }
        if let Some(time) = directory.shared.latest() {
            (mtime, ctime) = (latest(mtime, time), latest(ctime, time));
        }
        (mtime, ctime)
    }
}

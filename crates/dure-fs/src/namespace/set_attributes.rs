//! Setting attributes: chmod, chown, utimens, and the size of a file.
//!
//! **Problem.** A chmod changes an access control list, too, and a directory has times in its
//! buckets. **Structure.** The size is a truncate of its own; all else is one operation.
//! **Invariants.** A time that is set is seen, also an earlier one: a directory's set number rises,
//! so that older stamps do not count. **On a crash** the size may be set and the rest not; the rest
//! is there wholly or not at all.

use dure_store::OpKind;
use dure_store::error::{Error, Result};
use dure_store::format::inode::{AttributesRecord, InodeData, Time};
use dure_store::format::name::FileKind;
use dure_store::space::OpClass;

use crate::directory::DirectoryState;
use crate::inode::{Access, Inode, InodeState, MODE_BITS, attempts};
use crate::namespace::Names;
use crate::quota::Transfer;
use crate::xattr::{self, Loaded};

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The present.
    Now,
    /// This one.
    At(Time),
}

/// Attributes to set; `None` leaves one as it is.
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
    pub(super) fn needs_operation(&self) -> bool {
        *self
            != SetAttributes {
                size: self.size,
                ..SetAttributes::default()
            }
    }

    /// Applies the changes to the attributes.
    fn apply(&self, attributes: &mut AttributesRecord, now: Time) {
        if let Some(mode) = self.mode {
            attributes.mode = (attributes.mode.get() & !MODE_BITS | mode & MODE_BITS).into();
        }
        attributes.uid = self.uid.map_or(attributes.uid, Into::into);
        attributes.gid = self.gid.map_or(attributes.gid, Into::into);
        attributes.ctime = self.ctime.unwrap_or(now);
    }

    /// Whether it would only set the mode that is there, within the tick of the clock that it was
    /// changed in. An access control list has always the mode's bits.
    fn is_there(&self, loaded: &Loaded, now: impl FnOnce() -> Time) -> bool {
        let same = |mode| (mode ^ loaded.mode) & MODE_BITS == 0;
        let others = self.gives_owner() || self.gives_times();
        self.mode.is_some_and(same) && !others && loaded.changed == now()
    }

    /// Applies the times to the data of an inode that is held exclusively; the fold of a directory
    /// is loaded.
    fn apply_times(&self, inode: &Inode, state: &InodeState, now: Time) -> Result<InodeData> {
        let mut data = inode.data_draft(state);
        if let Some(atime) = self.atime {
            data.atime = atime.resolve(now)?;
        }
        if inode.kind == FileKind::Directory && (self.mtime.is_some() || self.ctime.is_some()) {
            // Stamps of buckets that are later than the times set here must not count any more.
            data.mtime = state.data_times(&data).0;
            data.set_number = data.set_number.get().wrapping_add(1).into();
        }
        if let Some(mtime) = self.mtime {
            data.mtime = mtime.resolve(now)?;
        }
        // An earlier time is to be seen, too.
        data.ctime = self.ctime.unwrap_or(data.ctime);
        Ok(data)
    }

    fn gives_owner(&self) -> bool {
        self.uid.is_some() || self.gid.is_some()
    }

    /// Whether it sets a time explicitly, be it to now.
    fn gives_times(&self) -> bool {
        self.atime.is_some() || self.mtime.is_some() || self.ctime.is_some()
    }

    pub(super) fn check_times(&self) -> Result<()> {
        let now = Time::default();
        self.atime.map_or(Ok(now), |time| time.resolve(now))?;
        self.mtime.map_or(Ok(now), |time| time.resolve(now))?;
        self.ctime.map_or(Ok(now), check_time)?;
        Ok(())
    }
}

impl Names {
    pub(super) fn set_attributes(&self, inode: &Inode, set: &SetAttributes) -> Result<()> {
        attempts(|_| {
            // chmod of an inode with an access control list changes the list as well.
            let extended = match set.mode {
                Some(_) => Some(xattr::load(&self.store, inode)?),
                None => None,
            };
            // No line is written that others read, and no operation made that others depend on.
            if let Some(loaded) = &extended
                && set.is_there(loaded, || self.store.now())
            {
                return Ok(());
            }
            let nodes = extended
                .as_ref()
                .map_or(0, |loaded| loaded.nodes_max(loaded.stream.len()));
            // The inode's node exists, so changing attributes allocates nothing. A kernel that
            // caches writes sets times before each fsync, also on a full volume.
            let class = match nodes {
                0 => OpClass::Delete,
                _ => OpClass::Normal,
            };
            let mut op = self.store.op(OpKind::Attributes, class, 1 + nodes)?;
            let rule = self.rule;
            let quotas = self.inodes.quotas().filter(|_| set.gives_owner());
            let is_whole = set.gives_times() || quotas.is_some();
            let mut held = inode.lock_attributes(match is_whole {
                true => Access::Whole,
                false => inode.attributes_access(rule),
            });
            let before = inode.attributes();
            let mut attributes = before;
            set.apply(&mut attributes, op.time());
            let charge = held.state().and_then(|state| state.charge());
            let moved = quotas
                .map(|quotas| Transfer::begin(quotas, (&before, &attributes), charge))
                .transpose()?;
            if let Some(loaded) = &extended {
                // Also if there was no list: there may be one by now.
                loaded.check(inode)?;
                if let Some(list) = loaded.with_mode(attributes.mode.get())? {
                    loaded.write(&mut op, &mut attributes, &list)?;
                }
            }
            inode.store_attributes(&mut op, &attributes);
            let data = match held.state() {
                Some(state) if set.gives_times() => {
                    if inode.kind == FileKind::Directory {
                        self.directories.load_fold(state)?;
                    }
                    let data = set.apply_times(inode, state, op.time())?;
                    inode.store_data(&mut op, &data);
                    Some(data)
                }
                _ => None,
            };
            let mark = match extended {
                Some(_) => inode.xattrs().change(|| op.finish()),
                None => op.finish(),
            };
            if let Some(moved) = moved {
                moved.done(held.state().and_then(|state| state.charge_mut()));
            }
            if let (Some(state), Some(data)) = (held.state(), data) {
                let sets =
                    |directory: &DirectoryState| directory.set_number != data.set_number.get();
                if state.if_directory().is_some_and(sets) {
                    state.directory_mut().forget_stamps();
                }
                inode.data_stored(state, &data, mark);
            }
            inode.attributes_stored(rule, mark);
            Ok(())
        })
    }
}

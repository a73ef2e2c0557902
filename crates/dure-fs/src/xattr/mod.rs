//! Extended attributes: a stream of names and values over a chain of blob nodes per inode.
//!
//! **Problem.** Most inodes have none, some have one of 30 bytes, few have a hundred kilobytes.
//! **Structure.** [`stream`] encodes, [`chain`] stores, [`acl`] knows access control lists, which
//! are tied to the mode bits. **Invariants.** A stream changes under its inode's lock, or the locks
//! of a shared inode's attributes and extended attributes, together with the inode (`xattr_root`,
//! `xattr_bytes`, ctime), in one handle; what does not fit one is written before ([`large`]). **On
//! a crash** an attribute is old or new.

pub(crate) mod acl;
pub(crate) mod chain;
mod large;
pub(crate) mod stream;

use dure_store::OpKind;
use dure_store::error::{Error, Result};
use dure_store::format::attribute;
use dure_store::format::inode::InodeRecord;
use dure_store::format::name::FileKind;
use dure_store::op::Op;
use dure_store::space::OpClass;
use dure_store::units::{Ino, to_u64, to_usize};

use self::acl::{Acl, Equivalence};
use self::chain::Chain;
pub use self::stream::XattrMode;
use crate::inode::{ChangedPart, Inode, InodeRef, SET_GROUP_ID, XattrPlace};
use crate::namespace::{Attempt, attempts};
use crate::volume::{FileSystem, Volume};

/// What becomes of set-group-id when an access control list is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetGid {
    /// It stays: the caller is in the group, or privileged.
    Keep,
    /// It goes.
    Drop,
}

/// The attributes of an inode as they were when `changes` was read.
#[derive(Debug)]
pub(crate) struct Loaded {
    chain: Chain,
    /// All names and values.
    pub(crate) stream: Vec<u8>,
    changes: u64,
}

/// Reads the attributes of an inode that the caller holds.
pub(crate) fn load_held(volume: &Volume, place: XattrPlace) -> Result<Loaded> {
    let chain = chain::load(volume, place.root, place.owner)?;
    Ok(Loaded {
        stream: chain.read(to_usize(u64::from(place.bytes)))?,
        chain,
        changes: place.changes,
    })
}

/// Reads the attributes of an inode whose lock the caller does not hold.
pub(crate) fn load(volume: &Volume, inode: &Inode) -> Result<Loaded> {
    let state = inode.state.read();
    let held = inode.state.extended(&state);
    load_held(volume, held.place())
}

impl Loaded {
    /// Nodes an operation may dirty that changes the stream to one of `bytes` bytes.
    pub(crate) fn nodes_max(&self, bytes: usize) -> u32 {
        self.chain.nodes().max(chain::nodes_for(bytes))
    }

    /// Whether the inode's count of changes is still the one loaded.
    pub(crate) fn check(&self, xattr_changes: u64) -> std::result::Result<(), Attempt> {
        match xattr_changes == self.changes {
            true => Ok(()),
            false => Err(Attempt::Again),
        }
    }

    /// Lets `op` write a changed stream, if the inode's count of changes is still the one loaded;
    /// its record is the caller's to store, and the count to raise.
    pub(crate) fn write(
        &self,
        op: &mut Op<'_>,
        xattr_changes: u64,
        record: &mut InodeRecord,
        new: &[u8],
    ) -> std::result::Result<(), Attempt> {
        self.check(xattr_changes)?;
        let owner = Ino(record.ino.get());
        record.xattr_root = self.chain.write(op, owner, new)?.into();
        record.xattr_bytes = u32::try_from(new.len()).expect("at most 128 KiB").into();
        Ok(())
    }

    /// chmod: the stream with the access control list, if there is one, following `mode`.
    pub(crate) fn with_mode(&self, mode: u32) -> Result<Option<Vec<u8>>> {
        let Some(value) = stream::get(&self.stream, attribute::ACCESS)? else {
            return Ok(None);
        };
        let mut list = Acl::parse(value)?;
        list.set_mode(mode);
        let mut new = self.stream.clone();
        stream::set(
            &mut new,
            attribute::ACCESS,
            &list.encode(),
            XattrMode::Replace,
        )?;
        Ok(Some(new))
    }
}

/// What a new inode gets from its directory's default access control list.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    /// The attributes of the new inode.
    pub(crate) stream: Vec<u8>,
    /// Its mode.
    pub(crate) mode: u32,
}

/// Applies inheritance: with a default list the umask does not count, without one it does.
pub(crate) fn inherit(
    directory: &Loaded,
    kind: FileKind,
    mode: u32,
    umask: u32,
) -> Result<Inherited> {
    let default = stream::get(&directory.stream, attribute::DEFAULT)?;
    let Some(default) = default.filter(|_| kind != FileKind::Symlink) else {
        let mode = if kind == FileKind::Symlink {
            mode
        } else {
            mode & !(umask & 0o777)
        };
        return Ok(Inherited {
            stream: Vec::new(),
            mode,
        });
    };
    let mut list = Acl::parse(default)?;
    let mode = list.restrict(mode);
    let mut own = Vec::new();
    if list.as_mode().1 == Equivalence::Part {
        stream::set(
            &mut own,
            attribute::ACCESS,
            &list.encode(),
            XattrMode::Create,
        )?;
    }
    if kind == FileKind::Directory {
        stream::set(&mut own, attribute::DEFAULT, default, XattrMode::Create)?;
    }
    Ok(Inherited { stream: own, mode })
}

impl FileSystem {
    /// The value of an extended attribute; `None` when it is not there.
    ///
    /// # Errors
    /// `Invalid`, `NameTooLong`, `NotSupported` for the name; of reading its nodes.
    pub fn get_xattr(&self, inode: &InodeRef, name: &[u8]) -> Result<Option<Vec<u8>>> {
        attribute::check_name(name)?;
        let inode = inode.inode();
        let state = inode.state.read();
        let held = inode.state.extended(&state);
        let place = held.place();
        if place.root == 0 {
            return Ok(None);
        }
        let loaded = load_held(&self.0, place)?;
        Ok(stream::get(&loaded.stream, name)?.map(<[u8]>::to_vec))
    }

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// Of reading its nodes.
    pub fn list_xattr(&self, inode: &InodeRef) -> Result<Vec<Vec<u8>>> {
        let loaded = load(&self.0, inode.inode())?;
        stream::attributes(&loaded.stream)
            .map(|a| Ok(a?.name.to_vec()))
            .collect()
    }

    /// Sets an extended attribute, in one operation. An access control list also sets the mode
    /// bits.
    ///
    /// # Errors
    /// As [`FileSystem::set_xattr_by`].
    pub fn set_xattr(
        &self,
        inode: &InodeRef,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.set_xattr_by(inode, name, value, (mode, SetGid::Keep))
    }

    /// The same by a caller who may have to leave set-group-id behind.
    ///
    /// # Errors
    /// `Exists`, `NoAttribute` by `mode`; `AttributeTooLarge` beyond 64 KiB, `NoSpace` beyond 128
    /// KiB in all; `Invalid`, `NameTooLong`, `NotSupported` for the name or a malformed list.
    pub fn set_xattr_by(
        &self,
        inode: &InodeRef,
        name: &[u8],
        value: &[u8],
        (mode, set_gid): (XattrMode, SetGid),
    ) -> Result<()> {
        self.0.check_writable()?;
        attribute::check_name(name)?;
        let bits = check_acl(inode, name, value)?;
        self.0.change_xattr(inode.inode(), |new, record| {
            if let Some((bits, equivalence)) = bits {
                let special = match set_gid {
                    SetGid::Keep => record.mode.get() & !0o777,
                    SetGid::Drop => record.mode.get() & !(0o777 | SET_GROUP_ID),
                };
                record.mode = (special | bits).into();
                if equivalence == Equivalence::Whole {
                    // The mode says it all: no list is kept, but the mode of the call still counts.
                    stream::set(new, name, b"", mode)?;
                    stream::remove(new, name)?;
                    return Ok(());
                }
            }
            stream::set(new, name, value, mode)
        })
    }

    /// Removes an extended attribute. Nothing is done where there is no access control list to
    /// remove: every inode has the one of its mode bits.
    ///
    /// # Errors
    /// `NoAttribute` when it is not there.
    pub fn remove_xattr(&self, inode: &InodeRef, name: &[u8]) -> Result<()> {
        self.0.check_writable()?;
        attribute::check_name(name)?;
        let removed = self.0.change_xattr(inode.inode(), |new, _| {
            if stream::remove(new, name)? {
                Ok(())
            } else {
                Err(Error::NoAttribute)
            }
        });
        match removed {
            Err(Error::NoAttribute) if attribute::is_acl(name) => Ok(()),
            removed => removed,
        }
    }
}

/// For an access control list: validates it; gives the mode bits that an access list stands for.
fn check_acl(inode: &InodeRef, name: &[u8], value: &[u8]) -> Result<Option<(u32, Equivalence)>> {
    let access = name == attribute::ACCESS;
    if !attribute::is_acl(name) {
        return Ok(None);
    }
    if inode.kind() == FileKind::Symlink {
        return Err(Error::NotSupported("access control lists of symlinks"));
    }
    if !access && inode.kind() != FileKind::Directory {
        return Err(Error::Invalid(
            "only directories have a default access control list",
        ));
    }
    let list = Acl::parse(value)?;
    Ok(access.then(|| list.as_mode()))
}

impl Volume {
    fn change_xattr(
        &self,
        inode: &Inode,
        change: impl Fn(&mut Vec<u8>, &mut InodeRecord) -> Result<()>,
    ) -> Result<()> {
        attempts(|_| {
            let loaded = load(self, inode)?;
            let mut new = loaded.stream.clone();
            change(&mut new, &mut inode.state.read().record.clone())?;
            if !loaded.chain.fits_a_record(self, &new) {
                return self.change_in_steps(inode, &loaded, &new, &change);
            }
            let mut op = self.op(
                OpKind::Xattr,
                OpClass::Normal,
                1 + loaded.nodes_max(new.len()),
            )?;
            let rule = self.options.volume_rules.attributes;
            let mut held = inode.take_attributes(rule, ChangedPart::Extended);
            let mut record = held.draft(inode);
            let mut again = loaded.stream.clone();
            change(&mut again, &mut record)?;
            loaded.write(&mut op, held.xattr_changes(), &mut record, &again)?;
            record.ctime = op.time();
            assert_eq!(to_u64(again.len()), u64::from(record.xattr_bytes.get()));
            inode.store(&mut op, &record);
            let mark = op.finish();
            inode.attributes_stored(&mut held, record, (mark, ChangedPart::Extended));
            Ok(())
        })
    }
}

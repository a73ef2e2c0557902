//! Extended attributes: a stream of names and values over a chain of blob nodes per inode.
//!
//! **Problem.** Most inodes have none, some have one of 30 bytes, few have a hundred kilobytes.
//! **Structure.** [`stream`] encodes, [`chain`] stores, [`acl`] handles access control lists, which
//! are tied to the mode bits. **Invariants.** A stream changes under the lock of its inode's
//! attributes, and within their sequence count: it is read without the lock. It changes together
//! with the inode (`xattr_root`, `xattr_bytes`, ctime), in one handle; what does
//! not fit one is written before ([`large`]). **On a crash** an attribute is old or new.

pub(crate) mod acl;
pub(crate) mod chain;
mod large;
pub(crate) mod stream;

use dure_store::error::{Error, Result};
use dure_store::format::attribute;
use dure_store::format::inode::{AttributesRecord, Time};
use dure_store::format::name::FileKind;
use dure_store::op::Op;
use dure_store::space::OpClass;
use dure_store::units::{to_u64, to_usize};
use dure_store::{OpKind, Store};
use dure_sync::{Arc, Seen, thread};
use zerocopy::IntoBytes;

use self::acl::{Acl, Equivalence};
use self::chain::Chain;
pub use self::stream::XattrMode;
use crate::inode::{Access, Attempt, Inode, InodeRef, Inodes, SET_GROUP_ID, attempts};
use crate::volume::AttributeRule;

/// What becomes of set-group-id when an access control list is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetGid {
    /// It stays: the caller is in the group, or privileged.
    Keep,
    /// It is cleared.
    Drop,
}

/// The extended attributes of a volume's inodes.
#[derive(Debug)]
pub(crate) struct Xattrs {
    pub(crate) store: Arc<Store>,
    pub(crate) inodes: Arc<Inodes>,
    /// What a change of attributes holds.
    pub(crate) rule: AttributeRule,
}

/// The attributes of an inode as they were when `seen` was.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The mode, and when attributes were changed.
    pub(crate) mode: u32,
    pub(crate) changed: Time,
    chain: Chain,
    /// All names and values.
    pub(crate) stream: Vec<u8>,
    seen: Seen,
}

/// How often attributes that change meanwhile are read again without a lock.
const READS: u32 = 3;

/// Reads the attributes of an inode whose attributes the caller has not locked.
pub(crate) fn load(store: &Store, inode: &Inode) -> Result<Loaded> {
    for _ in 0..READS {
        if let Some(seen) = inode.xattrs().look() {
            let loaded = load_since(store, inode, seen);
            // If another task has changed them, neither what was read nor an error says anything.
            if inode.xattrs().is_still(seen) {
                return loaded;
            }
        }
        thread::spin_hint();
    }
    let _held = inode.lock_attributes(Access::Attributes);
    load_held(store, inode)
}

/// Like `load`; the caller keeps them from changing.
pub(crate) fn load_held(store: &Store, inode: &Inode) -> Result<Loaded> {
    let seen = inode.xattrs().look();
    load_since(store, inode, seen.expect("the caller excludes changes"))
}

fn load_since(store: &Store, inode: &Inode, seen: Seen) -> Result<Loaded> {
    let attributes = inode.attributes();
    let (root, owner) = (attributes.xattr_root.get(), attributes.xattr_owner());
    let chain = chain::load(store, root, owner)?;
    Ok(Loaded {
        stream: chain.read(to_usize(u64::from(attributes.xattr_bytes.get())))?,
        mode: attributes.mode.get(),
        changed: attributes.ctime,
        chain,
        seen,
    })
}

impl Loaded {
    /// Nodes an operation may dirty that changes the stream to one of `bytes` bytes.
    pub(crate) fn nodes_max(&self, bytes: usize) -> u32 {
        self.chain.nodes().max(chain::nodes_for(bytes))
    }

    /// Whether the inode's attributes are still those that were loaded. The caller holds their
    /// lock.
    pub(crate) fn check(&self, inode: &Inode) -> std::result::Result<(), Attempt> {
        match inode.xattrs().is_still(self.seen) {
            true => Ok(()),
            false => Err(Attempt::Again),
        }
    }

    /// Lets `op` write a changed stream in place of the one that was loaded, and is still there.
    /// The caller stores the attributes.
    pub(crate) fn write(
        &self,
        op: &mut Op<'_>,
        attributes: &mut AttributesRecord,
        new: &[u8],
    ) -> std::result::Result<(), Attempt> {
        let owner = attributes.number();
        attributes.xattr_root = self.chain.write(op, owner, new)?.into();
        attributes.xattr_bytes = u32::try_from(new.len())
            .expect("a stream has at most 128 KiB")
            .into();
        Ok(())
    }

    /// chmod: the stream with its access control list changed to `mode`; `None` if it has no list.
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

/// Applies inheritance: the umask counts only without a default list.
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

/// Validates an access control list; returns the mode bits that an access list stands for.
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

impl Xattrs {
    fn change_xattr(
        &self,
        inode: &Inode,
        change: impl Fn(&mut Vec<u8>, &mut AttributesRecord) -> Result<()>,
    ) -> Result<()> {
        attempts(|_| {
            let loaded = load(&self.store, inode)?;
            let (mut new, before) = (loaded.stream.clone(), inode.attributes());
            let mut after = before;
            change(&mut new, &mut after)?;
            after.ctime = self.store.now();
            // The same again, within a tick of the clock. What another task has changed since the
            // stream was loaded comes after this.
            if new == loaded.stream && after.as_bytes() == before.as_bytes() {
                return Ok(());
            }
            if !loaded.chain.fits_a_record(&self.store, &new) {
                return self.change_in_steps(inode, &loaded, &new, &change);
            }
            let mut op = self.store.op(
                OpKind::Xattr,
                OpClass::Normal,
                1 + loaded.nodes_max(new.len()),
            )?;
            let rule = self.rule;
            let _held = inode.lock_attributes(inode.attributes_access(rule));
            loaded.check(inode)?;
            let mut attributes = inode.attributes();
            let mut again = loaded.stream.clone();
            change(&mut again, &mut attributes)?;
            loaded.write(&mut op, &mut attributes, &again)?;
            attributes.ctime = op.time();
            assert_eq!(to_u64(again.len()), u64::from(attributes.xattr_bytes.get()));
            inode.store_attributes(&mut op, &attributes);
            let mark = inode.xattrs().change(|| op.finish());
            inode.attributes_stored(rule, mark);
            Ok(())
        })?;
        self.store.end_call()
    }
}

impl Xattrs {
    /// See [`FileSystem::get_xattr`](crate::volume::FileSystem::get_xattr).
    pub(crate) fn get(&self, inode: &InodeRef, name: &[u8]) -> Result<Option<Vec<u8>>> {
        attribute::check_name(name)?;
        let inode = inode.inode();
        if inode.attributes().xattr_root.get() == 0 {
            return Ok(None);
        }
        let loaded = load(&self.store, inode)?;
        Ok(stream::get(&loaded.stream, name)?.map(<[u8]>::to_vec))
    }
}

impl Xattrs {
    /// See [`FileSystem::list_xattr`](crate::volume::FileSystem::list_xattr).
    pub(crate) fn list(&self, inode: &InodeRef) -> Result<Vec<Vec<u8>>> {
        let loaded = load(&self.store, inode.inode())?;
        stream::attributes(&loaded.stream)
            .map(|a| Ok(a?.name.to_vec()))
            .collect()
    }
}

impl Xattrs {
    /// See [`FileSystem::set_xattr_by`](crate::volume::FileSystem::set_xattr_by).
    pub(crate) fn set(
        &self,
        inode: &InodeRef,
        name: &[u8],
        value: &[u8],
        (mode, set_gid): (XattrMode, SetGid),
    ) -> Result<()> {
        self.store.check_writable()?;
        attribute::check_name(name)?;
        let bits = check_acl(inode, name, value)?;
        self.change_xattr(inode.inode(), |new, record| {
            if let Some((bits, equivalence)) = bits {
                let special = match set_gid {
                    SetGid::Keep => record.mode.get() & !0o777,
                    SetGid::Drop => record.mode.get() & !(0o777 | SET_GROUP_ID),
                };
                record.mode = (special | bits).into();
                if equivalence == Equivalence::Whole {
                    // The mode bits are the whole list: none is stored, but `mode` is still
                    // checked.
                    stream::set(new, name, b"", mode)?;
                    stream::remove(new, name)?;
                    return Ok(());
                }
            }
            stream::set(new, name, value, mode)
        })
    }
}

impl Xattrs {
    /// See [`FileSystem::remove_xattr`](crate::volume::FileSystem::remove_xattr).
    pub(crate) fn remove(&self, inode: &InodeRef, name: &[u8]) -> Result<()> {
        self.store.check_writable()?;
        attribute::check_name(name)?;
        let removed = self.change_xattr(inode.inode(), |new, _| {
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

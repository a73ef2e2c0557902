//! Quotas from mount to unmount: the attributes of the root directory that keep them.
//!
//! **Problem.** What users and groups have changes with each write, and is to be right after a crash,
//! at no cost for a write. **Structure.** While a volume is mounted usage is in memory only
//! ([`crate::quota`]). The unmount writes it into an attribute that counts for the next mount; any
//! other mount counts the inodes ([`count`]). Limits are in an attribute that is stored, and durable,
//! before the call returns that sets them.
//!
//! **Invariants.** The usage counts if the volume header has the number of mounts in it, plus this one:
//! who mounts the volume for writing and does not know quotas raises that number, too. What changes
//! while the unmount is under way makes it raise the number once more. A volume whose limits cannot be
//! read is mounted without limits.
//!
//! **Crash.** Before the header of the unmount is durable the volume is dirty, and the next mount
//! counts. A limit is old or new, as every attribute.

use dure_store::error::{Error, Result};
use dure_store::format::node::NodeKind;
use dure_store::format::quota::{
    self, LIMITS, Limits, QuotaKind, Subject, USAGE, USAGES_MAX, Usage,
};
use dure_store::node::NodeRef;
use dure_store::units::{Ino, to_usize};

use super::Volume;
use crate::inode::InodeRef;
use crate::quota::{Owner, Quotas};
use crate::xattr::{SetGid, XattrMode};

/// Nodes that are asked for together.
const TOGETHER: usize = 64;

/// What the usage of a volume was when it was unmounted, if that is stored.
pub(crate) type Kept = Option<Vec<(Subject, Usage)>>;

fn root(volume: &Volume) -> Result<InodeRef> {
    volume.inodes.inode(Ino::ROOT)
}

/// The quotas of a volume that is being mounted for writing, if they are on. No other task runs.
///
/// # Errors
/// Those of the device.
pub(super) fn begin(volume: &Volume) -> Result<()> {
    // Most volumes have none, and a damaged root directory keeps no volume from being mounted.
    let node = volume
        .store
        .node(Ino::ROOT.nid(), NodeKind::Inode.of_none());
    let has_attributes = |node: NodeRef| node.attributes(Ino::ROOT).xattr_root.get() != 0;
    if !node.is_ok_and(has_attributes) {
        return Ok(());
    }
    let Ok(root) = root(volume) else {
        return Ok(());
    };
    let (limits, unreadable) = match volume.xattrs.get(&root, LIMITS) {
        Ok(None) => return Ok(()),
        Ok(Some(value)) => match quota::parse_limits(&value) {
            Ok(limits) => (limits, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        },
        // Nothing says whether they are on.
        Err(Error::Corrupt { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    let cores = to_usize(volume.store.layout.journals.into());
    let mut quotas = Quotas::new(cores, &limits, unreadable);
    match usage_of_unmount(volume, &root) {
        Some(all) => all
            .iter()
            .for_each(|(subject, usage)| quotas.add(*subject, *usage)),
        None => quotas.has_all = count(volume, &quotas)?,
    }
    quotas.usage_is_known();
    assert!(
        volume.inodes.quotas.set(quotas).is_ok(),
        "quotas begin once in a mount"
    );
    // New files in the root directory read its attributes. If this fails, they read more; what stops
    // the volume is told by all that follows.
    let _ = volume.xattrs.remove(&root, USAGE);
    Ok(())
}

/// What the last unmount has stored, if it counts.
fn usage_of_unmount(volume: &Volume, root: &InodeRef) -> Option<Vec<(Subject, Usage)>> {
    if volume.store.recovered.is_some() {
        return None;
    }
    let value = volume.xattrs.get(root, USAGE).ok()??;
    let (mounts, all) = quota::parse_usage(&value).ok()?;
    // Crash scenario without: the volume is mounted, used and unmounted by a dure that does not know
    // quotas; or used and killed, and a repair makes it clean. The usage of long ago is taken for that
    // of now, and users have more than their limits.
    (mounts.wrapping_add(1) == volume.store.mounts()).then_some(all)
}

/// Counts what all inodes have; whether it knows them all. What is damaged counts nothing: the check
/// finds it.
///
/// # Errors
/// Those of the device. Without, what it could not read now would be missing in the usage that the
/// unmount stores, and in each one after it.
fn count(volume: &Volume, quotas: &Quotas) -> Result<bool> {
    let store = &volume.store;
    let mut has_all = true;
    for pair in store.nat_pairs() {
        let Some(nodes) = unless_damaged(store.inode_nodes(pair))? else {
            has_all = false;
            continue;
        };
        for some in nodes.chunks(TOGETHER) {
            store.preload(some.iter().copied());
            for nid in some {
                let node = store.node(*nid, NodeKind::Inode.of_none());
                let Some(node) = unless_damaged(node)? else {
                    has_all = false;
                    continue;
                };
                for ino in Ino::all_of(*nid) {
                    let record = node.inode(ino);
                    if record.attributes.is_free() {
                        continue;
                    }
                    let usage = Usage {
                        blocks: record.data.blocks.get().min(store.layout.total_blocks),
                        inodes: 1,
                    };
                    let owners = Owner::of(&record.attributes).subjects();
                    owners.for_each(|one| quotas.add(one, usage));
                }
            }
        }
    }
    Ok(has_all)
}

fn unless_damaged<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(Error::Corrupt { .. }) => Ok(None),
        read => read.map(Some),
    }
}

/// Stores what is used for the next mount, and since when soft limits are exceeded.
///
/// # Errors
/// Those of the operations; want of room and damaged attributes are none.
pub(crate) fn keep(volume: &Volume) -> Result<Kept> {
    let Some(quotas) = volume.inodes.quotas() else {
        return Ok(None);
    };
    match keep_usage(volume, quotas) {
        Err(Error::NoSpace { .. } | Error::Quota { .. } | Error::Corrupt { .. }) => Ok(None),
        kept => kept,
    }
}

fn keep_usage(volume: &Volume, quotas: &Quotas) -> Result<Kept> {
    let root = root(volume)?;
    let is_on = volume.xattrs.get(&root, LIMITS)?.is_some();
    let usage = quotas
        .usage()
        .filter(|all| is_on && quotas.has_all && all.len() <= USAGES_MAX);
    let Some(usage) = usage else {
        return Ok(None);
    };
    let unreadable = quotas.table.lock().unreadable.is_some();
    let value = quota::encode_usage(volume.store.mounts(), &usage);
    store_limits(volume, quotas, unreadable)?;
    volume.xattrs.set(&root, USAGE, &value, MAKE)?;
    Ok(Some(usage))
}

const MAKE: (XattrMode, SetGid) = (XattrMode::Any, SetGid::Keep);

/// Whether what [`keep`] has stored is what is used now that nothing changes any more.
pub(crate) fn still_holds(volume: &Volume, kept: Kept) -> bool {
    let now = volume.inodes.quotas().and_then(Quotas::usage);
    kept.is_none_or(|kept| now.is_some_and(|now| now == kept))
}

/// Stores all limits, unless they are stored so, or are to stay as they are.
fn store_limits(volume: &Volume, quotas: &Quotas, to_stay: bool) -> Result<()> {
    let root = root(volume)?;
    let all: Vec<(Subject, Limits)> = quotas.limits();
    let limits = all.iter().map(|(subject, limits)| (*subject, limits));
    let value = quota::encode_limits(limits);
    if to_stay || volume.xattrs.get(&root, LIMITS)?.as_deref() == Some(&value[..]) {
        return Ok(());
    }
    volume.xattrs.set(&root, LIMITS, &value, MAKE)
}

/// Switches quotas on, durably: the next mount for writing counts what is there.
///
/// # Errors
/// `ReadOnly`, `Stopped`, `NoSpace`, device errors.
pub(crate) fn switch_on(volume: &Volume) -> Result<()> {
    let root = root(volume)?;
    let mut table = volume.inodes.quotas().map(|quotas| quotas.table.lock());
    if volume.xattrs.get(&root, LIMITS)?.is_none() {
        let none: [(Subject, &Limits); 0] = [];
        let value = quota::encode_limits(none.into_iter());
        volume.xattrs.set(&root, LIMITS, &value, MAKE)?;
    }
    if let Some(table) = &mut table {
        table.is_on = true;
    }
    drop(table);
    volume.store.commit_all()
}

/// Takes all limits away and switches quotas off, durably.
///
/// # Errors
/// `ReadOnly`, `Stopped`, device errors.
pub(crate) fn switch_off(volume: &Volume) -> Result<()> {
    let root = root(volume)?;
    // Without: a task that sets limits has seen the attribute, and makes it again.
    let mut table = volume.inodes.quotas().map(|quotas| quotas.table.lock());
    for name in [LIMITS, USAGE] {
        match volume.xattrs.remove(&root, name) {
            Ok(()) | Err(Error::NoAttribute) => {}
            Err(error) => return Err(error),
        }
    }
    if let Some(quotas) = volume.inodes.quotas() {
        quotas.lift_all();
    }
    if let Some(table) = &mut table {
        (table.is_on, table.unreadable) = (false, None);
    }
    drop(table);
    volume.store.commit_all()
}

/// Sets the limits of a subject, durably.
///
/// # Errors
/// `BadOption` for limits that cannot be, or while quotas are off; `NoSpace` beyond 1023 limits;
/// `ReadOnly`, `Stopped`, device errors.
pub(crate) fn set(volume: &Volume, subject: Subject, limits: &Limits) -> Result<()> {
    let off = || Error::BadOption {
        option: "quota",
        why: "quotas are off, or were switched on after the volume was mounted".to_owned(),
    };
    volume.store.check_writable()?;
    let quotas = volume.inodes.quotas().ok_or_else(off)?;
    let mut table = quotas.table.lock();
    if !table.is_on {
        return Err(off());
    }
    let before = quotas.limit(subject, limits)?;
    let announced = match subject.kind {
        QuotaKind::Project => volume.store.allow_projects(),
        _ => Ok(()),
    };
    let stored = announced.and_then(|()| match quotas.limits().len() > quota::LIMITS_MAX {
        true => Err(Error::NoSpace {
            what: "limits: a volume has at most 1023",
        }),
        false => store_limits(volume, quotas, false),
    });
    if let Err(error) = stored {
        quotas.limit(subject, &before)?;
        return Err(error);
    }
    table.unreadable = None;
    drop(table);
    volume.store.commit_all()
}

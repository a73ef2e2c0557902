//! Attributes of a file changed beside those who use its data.
//!
//! **Problem.** chmod and setxattr, link, unlink and rename commute with reads and overwrites of
//! the file's data. If they took the inode alone, they would keep these out, and write the lines of
//! its lock that all of them read. **Structure.** Once readers have met in the lock of a file's
//! state, or writers in the file, who changes attributes shares the state and has [`Changes`] alone
//! instead. What it changed stays there, as [`Changed`], until somebody takes the state alone: that
//! moves it into the state before anybody looks (`StateLock::take_over`). So who has the state
//! alone need not know of this, nor who shares it for the data's sake.
//!
//! **Invariants.** The record in [`Changed`], or if there is none the state's, equals the granule.
//! It differs from the state's in attributes only: mode, owner, group, ctime, the number of names,
//! whether an orphan slot names the file, the extended attributes. What the data goes by (size,
//! blocks, map) changes by who has the state alone, and so do the first name of a file that had
//! none, and the end of the inode. [`Changes`] is made by the first who wants it, stays as long as
//! the inode is in memory, and is taken by who shares the state, and let go before it: so who has
//! the state alone finds it free. Who shares the state and finds none goes by the state, as it was
//! when he came: names may change beside him, extended attributes only after somebody has had the
//! state alone. The time of the change is in the record here; who only uses the data goes by that
//! of the state, so that a change writes no line he looks at. **On a crash** nothing of this is
//! needed: the operation is in the log.

use dure_store::format::inode::{InodeRecord, Time};
use dure_store::format::name::FileKind;
use dure_store::units::{Ino, Mark};
use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{CachePadded, RwLockWriteGuard, SpreadLock, SpreadReadGuard};

use super::{Access, Inode, InodeState, OrphanPlace, StateLock};
use crate::file::PendingMarks;
use crate::ranks::{ATTRIBUTES, EXTENDED, INODE};
use crate::volume::{AttributeRule, Volume};

/// Attributes that are not in the state yet.
#[derive(Debug)]
pub(super) struct Changed {
    record: InodeRecord,
    /// Who changed them.
    marks: PendingMarks,
    /// Changes of the extended attributes in this mount.
    xattr_changes: u64,
    /// The slot that names the file since it lost its last name.
    orphan: Option<OrphanPlace>,
}

/// Where an inode's extended attributes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct XattrPlace {
    /// The first node of their chain, or 0.
    pub(crate) root: u64,
    pub(crate) bytes: u32,
    /// The inode that its nodes name.
    pub(crate) owner: Ino,
    /// How often they have changed in this mount.
    pub(crate) changes: u64,
}

impl XattrPlace {
    /// As a record says that is current.
    pub(crate) fn of(record: &InodeRecord, changes: u64) -> XattrPlace {
        XattrPlace {
            root: record.xattr_root.get(),
            bytes: record.xattr_bytes.get(),
            owner: record.xattr_owner(),
            changes,
        }
    }
}

/// The extended attributes of an inode, for somebody who shares its state and reads them.
#[derive(Debug)]
pub(crate) struct HeldExtended<'i> {
    /// None: when the caller came, nobody had changed them but who had the state alone, and nobody
    /// does.
    changes: Option<SpreadReadGuard<'i, EXTENDED, Option<XattrPlace>>>,
    state: &'i InodeState,
}

impl HeldExtended<'_> {
    /// Where they are while this is held.
    pub(crate) fn place(&self) -> XattrPlace {
        let changed = self.changes.as_ref().and_then(|held| **held);
        changed.unwrap_or_else(|| XattrPlace::of(&self.state.record, self.state.xattr_changes))
    }
}

/// What those who share a file have changed of its attributes.
#[derive(Debug)]
pub(super) struct Changes {
    lock: SpreadLock<ATTRIBUTES, Option<Changed>>,
    /// Where the extended attributes are if the state does not know; the record in `Changed` says
    /// the same. Locked behind `lock` by who changes them, and without it by who reads them: other
    /// changes do not keep him out, and write no line he looks at.
    extended: CachePadded<SpreadLock<EXTENDED, Option<XattrPlace>>>,
    /// There is something. Set with `lock` held alone, cleared by who has the state alone. Relaxed:
    /// the state's lock orders these.
    waiting: AtomicBool,
    /// Somebody has had the state alone since this was made: nobody goes by what the state says of
    /// extended attributes because he found none of this. Relaxed: the state's lock orders that.
    settled: AtomicBool,
    rule: AttributeRule,
}

impl Changes {
    /// Nothing is changed yet.
    pub(super) fn new(rule: AttributeRule) -> Changes {
        Changes {
            lock: SpreadLock::new(None),
            extended: CachePadded::new(SpreadLock::new(None)),
            waiting: AtomicBool::new(false),
            settled: AtomicBool::new(false),
            rule,
        }
    }

    /// Whether the state lacks something.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether extended attributes may change here.
    #[inline]
    fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Relaxed)
    }

    /// Moves what was changed into the state, which the caller has alone. Says whether there was
    /// anything.
    #[inline]
    pub(super) fn move_into(&self, state: &mut InodeState) -> bool {
        if !self.is_settled() {
            self.settled.store(true, Ordering::Relaxed);
        }
        let waiting = self.is_waiting();
        if waiting {
            self.move_all(state);
        }
        waiting
    }

    #[cold]
    fn move_all(&self, state: &mut InodeState) {
        let mut held = self
            .lock
            .try_write()
            .expect("whoever has it shares the state");
        let changed = held.take().expect("something is waiting");
        drop(held);
        let extended = self.extended.try_write();
        let extended = extended.expect("as before").take();
        self.waiting.store(false, Ordering::Relaxed);
        if matches!(self.rule, AttributeRule::Dropped(_)) {
            return;
        }
        let Changed {
            record,
            marks,
            xattr_changes,
            orphan,
        } = changed;
        assert!(state.record.size == record.size && state.record.map_root == record.map_root);
        assert!(
            state.is_alive() || record.nlink.get() == 0,
            "a first name comes alone"
        );
        if let Some(place) = orphan {
            let before = state.orphan.replace(place);
            assert!(before.is_none(), "a last name goes once");
        }
        state.file.attributes_come(&record);
        state.record = record;
        marks
            .all()
            .iter()
            .for_each(|&mark| state.file.note_mark(mark));
        state.xattr_changes = xattr_changes;
        assert!(
            extended.is_none_or(|place| place == XattrPlace::of(&state.record, xattr_changes)),
            "the record has them"
        );
    }
}

/// The attributes of an inode, for somebody who shares its state.
#[derive(Debug)]
pub(crate) struct Attributed<'i> {
    /// None: when the caller came, nobody had changed them but who had the state alone.
    changes: Option<SpreadReadGuard<'i, ATTRIBUTES, Option<Changed>>>,
    state: &'i InodeState,
}

impl Attributed<'_> {
    fn changed(&self) -> Option<&Changed> {
        self.changes.as_ref()?.as_ref()
    }

    /// Whether they are still so: others may have begun to change them, but for extended
    /// attributes.
    pub(crate) fn is_current(&self, lock: &StateLock) -> bool {
        self.changes.is_some() || lock.changes().is_none()
    }

    /// The record, as the granule has it.
    pub(crate) fn record(&self) -> &InodeRecord {
        self.changed()
            .map_or(&self.state.record, |changed| &changed.record)
    }

    /// When they were changed, if that is not in the state. The later one of this and the state's
    /// counts.
    pub(super) fn change_time(&self) -> Option<Time> {
        self.changed().map(|changed| changed.record.ctime)
    }

    /// The operations of the changes that are not in the state.
    pub(crate) fn marks(&self) -> &[Mark] {
        self.changed().map_or(&[], |changed| changed.marks.all())
    }
}

/// An inode whose attributes are about to change.
#[derive(Debug)]
pub(crate) enum ForAttributes<'i> {
    /// Nobody else has it.
    Alone(RwLockWriteGuard<'i, INODE, InodeState>),
    /// Beside those who use its data.
    Beside(Beside<'i>),
}

/// A file whose attributes are held alone and the rest shared.
#[derive(Debug)]
pub(crate) struct Beside<'i> {
    // Dropped before `state`, the last one first.
    /// Of who changes extended attributes.
    extended: Option<RwLockWriteGuard<'i, EXTENDED, Option<XattrPlace>>>,
    changed: RwLockWriteGuard<'i, ATTRIBUTES, Option<Changed>>,
    changes: &'i Changes,
    state: SpreadReadGuard<'i, INODE, InodeState>,
}

/// What an operation has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The extended attributes, and perhaps others.
    Extended,
    /// Others.
    Plain,
}

impl StateLock {
    /// The attributes of the inode, which the caller shares or has alone: nobody changes them
    /// meanwhile, or if nobody had shared it for that before, they are those of a moment ago.
    pub(crate) fn attributes<'i>(&'i self, state: &'i InodeState) -> Attributed<'i> {
        let changes = self.changes().map(|changes| changes.lock.read());
        Attributed { changes, state }
    }

    /// Its extended attributes. The caller shares the inode and nothing of its attributes, or has
    /// it alone.
    pub(crate) fn extended<'i>(&'i self, state: &'i InodeState) -> HeldExtended<'i> {
        let changes = self.changes().map(|changes| changes.extended.read());
        HeldExtended { changes, state }
    }
}

impl Inode {
    /// Whether its attributes change beside those who use its data.
    fn changes_beside(&self, rule: AttributeRule) -> bool {
        let beside = match rule {
            // In this order: what readers do not look at is written by the first who has to.
            AttributeRule::WhenMet => self.state.readers_met() || self.ranges.are_locked(),
            AttributeRule::AtOnce | AttributeRule::Dropped(_) => true,
            AttributeRule::Alone => false,
        };
        self.kind == FileKind::File && beside
    }

    /// Takes the inode to change this part of its attributes, other than times that are given and
    /// the number of names.
    pub(crate) fn take_attributes(&self, rule: AttributeRule, part: Part) -> ForAttributes<'_> {
        if !self.changes_beside(rule) {
            return ForAttributes::Alone(self.state.write());
        }
        let settled = self.state.changes().filter(|changes| changes.is_settled());
        let Some(changes) = settled else {
            self.state.make_changes(rule);
            return ForAttributes::Alone(self.state.write());
        };
        let state = self.state.read();
        let changed = changes.lock.write();
        let extended = (part == Part::Extended).then(|| changes.extended.write());
        ForAttributes::Beside(Beside {
            extended,
            changed,
            changes,
            state,
        })
    }

    /// An operation that wrote `record`, made from a draft of `held`, has finished.
    pub(crate) fn attributes_stored(
        &self,
        held: &mut ForAttributes<'_>,
        record: InodeRecord,
        (mark, part): (Mark, Part),
    ) {
        match held {
            ForAttributes::Alone(state) => {
                state.file.note_mark(mark);
                state.xattr_changes += u64::from(part == Part::Extended);
                self.stored(state, record);
            }
            ForAttributes::Beside(held) => {
                let xattr_changes = held.xattr_changes() + u64::from(part == Part::Extended);
                if part == Part::Extended {
                    let extended = held.extended.as_mut().expect("taken to be changed");
                    **extended = Some(XattrPlace::of(&record, xattr_changes));
                }
                let changed = held.changed.get_or_insert_with(|| Changed {
                    record,
                    marks: PendingMarks::default(),
                    xattr_changes,
                    orphan: None,
                });
                changed.record = record;
                changed.marks.note(mark);
                changed.xattr_changes = xattr_changes;
                // Load first: the line stays shared.
                if !held.changes.is_waiting() {
                    held.changes.waiting.store(true, Ordering::Relaxed);
                }
                self.state.attributes_changed();
            }
        }
    }
}

impl Beside<'_> {
    fn record(&self) -> &InodeRecord {
        self.changed
            .as_ref()
            .map_or(&self.state.record, |changed| &changed.record)
    }

    fn xattr_changes(&self) -> u64 {
        let changed = self.changed.as_ref();
        changed.map_or(self.state.xattr_changes, |changed| changed.xattr_changes)
    }
}

impl Volume {
    /// How `LockedInodes` is to take an inode of which a name comes, goes or changes, but for the
    /// first that comes to it and the end of the inode. No inode is held.
    pub(crate) fn names_access(&self, inode: &Inode) -> Access {
        let rule = self.options.volume_rules.attributes;
        if !inode.changes_beside(rule) {
            return Access::Alone;
        }
        if inode.state.changes().is_none() {
            inode.state.make_changes(rule);
        }
        Access::Beside
    }
}

impl<'i> ForAttributes<'i> {
    /// Takes the attributes of an inode for which `Volume::names_access` said `Beside`. The caller
    /// holds only attributes of inodes with lower numbers.
    pub(super) fn beside(
        inode: &'i Inode,
        state: SpreadReadGuard<'i, INODE, InodeState>,
    ) -> ForAttributes<'i> {
        let changes = inode.state.changes().expect("they stay once made");
        ForAttributes::Beside(Beside {
            extended: None,
            changed: changes.lock.write_ordered(),
            changes,
            state,
        })
    }
}

impl ForAttributes<'_> {
    /// An orphan slot names the inode, by an operation whose record has been stored.
    pub(crate) fn set_orphan(&mut self, place: OrphanPlace) {
        let orphan = match self {
            ForAttributes::Alone(state) => &mut state.orphan,
            ForAttributes::Beside(held) => {
                let changed = held.changed.as_mut();
                &mut changed.expect("the record was stored").orphan
            }
        };
        let before = orphan.replace(place);
        assert!(before.is_none(), "a last name goes once");
    }

    /// The state; of what changes beside others only what `draft` and `xattr_changes` do not give.
    pub(crate) fn state(&self) -> &InodeState {
        match self {
            ForAttributes::Alone(state) => state,
            ForAttributes::Beside(held) => &held.state,
        }
    }

    /// The record that an operation starts from. Times that wait in memory go on waiting if others
    /// may be setting them.
    pub(crate) fn draft(&self, inode: &Inode) -> InodeRecord {
        match self {
            ForAttributes::Alone(state) => inode.draft(state),
            ForAttributes::Beside(held) => *held.record(),
        }
    }

    /// Changes of the extended attributes in this mount.
    pub(crate) fn xattr_changes(&self) -> u64 {
        match self {
            ForAttributes::Alone(state) => state.xattr_changes,
            ForAttributes::Beside(held) => held.xattr_changes(),
        }
    }
}

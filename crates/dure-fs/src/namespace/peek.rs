//! Walking without locks: names and attributes that are known already.
//!
//! **Problem.** A path leads through directories that every core walks through; a lock or a
//! reference for each of them would write lines that all cores share. **Structure.** An [`InodeId`]
//! names an inode without keeping it. [`FileSystem::peek`] and [`FileSystem::peek_attributes`]
//! answer from the tables of known names and shown attributes, writing nothing; what they do not
//! know, [`FileSystem::look_up_and_remember`] and [`FileSystem::attributes`] find with locks and
//! put there. [`FileSystem::pin`] makes a reference out of an id.
//!
//! **Invariants.** Every answer was true at a moment between the call and its return. An inode that
//! is only named may be gone, its number in its next life: whoever finds that asks again with
//! locks.

use dure_store::error::{Error, Result};
use dure_store::format::bucket::NAME_MAX;
use dure_store::format::name::FileKind;
use dure_store::units::Ino;

use crate::directory::known::{ABSENT, KnownNames, UNKNOWN};
use crate::inode::{Attributes, InodeRef};
use crate::volume::{FileSystem, Volume};

/// Which inode: number, life of the number, type. Says nothing about whether it still exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InodeId {
    ino: u64,
    /// Life of the number and type; two words, so that an id is passed in registers.
    life: u64,
}

impl InodeId {
    pub(crate) fn new(ino: Ino, generation: u32, kind: FileKind) -> InodeId {
        InodeId {
            ino: ino.0,
            life: u64::from(generation) << 8 | u64::from(kind.code()),
        }
    }

    /// Life and type as one word.
    pub(crate) fn life(self) -> u64 {
        self.life
    }

    /// Its place in tables of what is known of inodes; not 0.
    pub(crate) fn place(self) -> u64 {
        (self.ino().0 ^ self.life() << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
    }

    /// Its number.
    #[must_use]
    pub fn ino(self) -> Ino {
        Ino(self.ino)
    }

    /// Which life of the number it is.
    #[must_use]
    pub fn generation(self) -> u32 {
        u32::try_from(self.life >> 8).expect("put together from 32 bits")
    }

    /// Its type.
    #[must_use]
    pub fn kind(self) -> FileKind {
        let code = u8::try_from(self.life & 0xff).expect("eight bits");
        FileKind::from_code(code).expect("put together from a type")
    }

    /// Whether it is of this type.
    #[inline]
    #[must_use]
    pub fn is(self, kind: FileKind) -> bool {
        self.life & 0xff == u64::from(kind.code())
    }
}

/// What is known about a name without a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peek {
    /// It leads to this inode.
    Found(InodeId),
    /// It leads nowhere.
    Absent,
    /// Nothing is known: a lookup tells.
    Unknown,
}

impl Volume {
    fn peek_words(&self, directory: InodeId, name: &[u8]) -> (u64, u64) {
        self.known_names.get(directory, self.hash_of(name), name)
    }

    /// Whether the name is known to lead to this inode; takes no lock.
    pub(super) fn leads_to(&self, directory: InodeId, name: &[u8], id: InodeId) -> bool {
        self.peek_words(directory, name) == (id.ino, id.life)
    }

    fn pin(&self, id: InodeId) -> Result<Option<InodeRef>> {
        match self.inode(id.ino()) {
            Ok(found) => Ok((found.id() == id).then_some(found)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What `name` leads to, as far as that is known, pinned while the name led to it. No lock is
    /// held: a pin that is dropped may be the last.
    pub(super) fn look_up_known(&self, directory: InodeId, name: &[u8]) -> Result<Known> {
        let (ino, life) = match self.peek_words(directory, name) {
            (UNKNOWN, _) => return Ok(Known::No),
            (ABSENT, _) => return Ok(Known::Absent),
            words => words,
        };
        let Some(found) = self.pin(InodeId { ino, life })? else {
            return Ok(Known::No);
        };
        // If the name leads there now, it leads to what was pinned: this life of the number is not
        // over.
        if self.peek_words(directory, name) == (ino, life) {
            Ok(Known::Found(found))
        } else {
            Ok(Known::No)
        }
    }
}

/// What is known about a name, with a pin.
#[derive(Debug)]
pub(super) enum Known {
    Found(InodeRef),
    Absent,
    /// Nothing.
    No,
}

impl FileSystem {
    /// What `name` leads to in `directory`, if that is known; takes no lock and writes nothing
    /// shared.
    #[inline]
    #[must_use]
    pub fn peek(&self, directory: InodeId, name: &[u8]) -> Peek {
        match self.0.peek_words(directory, name) {
            (UNKNOWN, _) => Peek::Unknown,
            (ABSENT, _) => Peek::Absent,
            (ino, life) => Peek::Found(InodeId { ino, life }),
        }
    }

    /// The attributes of the inode, if they are known; takes no lock and writes nothing shared.
    #[must_use]
    pub fn peek_attributes(&self, id: InodeId) -> Option<Attributes> {
        self.0.shown.get(id)
    }

    /// A reference to the inode; `None` when this life of it is over.
    ///
    /// # Errors
    /// Of reading its node.
    pub fn pin(&self, id: InodeId) -> Result<Option<InodeRef>> {
        self.0.pin(id)
    }

    /// As [`FileSystem::lookup`]; the next [`FileSystem::peek`] knows the answer, also that there
    /// is none.
    ///
    /// # Errors
    /// As [`FileSystem::lookup`].
    pub fn look_up_and_remember(
        &self,
        directory: &InodeRef,
        name: &[u8],
    ) -> Result<Option<InodeRef>> {
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        let volume = &self.0;
        if !KnownNames::keeps(name) {
            return volume.look_up(directory, name);
        }
        let state = directory.inode().state.read();
        volume.look_up_settled(directory, &state, name, |found| {
            let answer = found.map(InodeRef::id);
            let known = &volume.known_names;
            known.put(&state, directory.id(), volume.hash_of(name), name, answer);
        })
    }
}

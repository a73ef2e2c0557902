//! Which inode is meant, without keeping it in memory.
//!
//! **Problem.** Caches and callers name inodes that may be deleted meanwhile, and whose numbers may
//! be used again. **Structure.** An [`InodeId`] has the generation of the number and the type, too.
//! **Invariants.** A number that is used again has another generation. **On a crash** ids are gone
//! with the memory they are in.

use dure_store::format::name::FileKind;
use dure_store::units::Ino;

/// Identifies an inode: number, generation, type. Says nothing about whether it still exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InodeId {
    ino: u64,
    /// Generation and type; two words in all, so that an id is passed in registers.
    life: u64,
}

impl InodeId {
    pub(crate) fn new(ino: Ino, generation: u32, kind: FileKind) -> InodeId {
        InodeId {
            ino: ino.0,
            life: u64::from(generation) << 8 | u64::from(kind.code()),
        }
    }

    /// An id from its two words, as [`InodeId::words`] has them.
    #[inline]
    pub(crate) fn from_words((ino, life): (u64, u64)) -> InodeId {
        InodeId { ino, life }
    }

    /// Number, and generation and type: the words that caches keep.
    #[inline]
    pub(crate) fn words(self) -> (u64, u64) {
        (self.ino, self.life)
    }

    /// Generation and type as one word.
    pub(crate) fn life(self) -> u64 {
        self.life
    }

    /// Its hash for tables by inode; not 0.
    pub(crate) fn place(self) -> u64 {
        (self.ino().0 ^ self.life() << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
    }

    /// Its number.
    #[must_use]
    pub fn ino(self) -> Ino {
        Ino(self.ino)
    }

    /// Generation of the number.
    #[must_use]
    pub fn generation(self) -> u32 {
        u32::try_from(self.life >> 8).expect("a life has a generation of 32 bits")
    }

    /// Its type.
    #[must_use]
    pub fn kind(self) -> FileKind {
        let code = u8::try_from(self.life & 0xff).expect("the type is masked to eight bits");
        FileKind::from_code(code).expect("a life has the code of a type")
    }

    /// Whether it is of this type.
    #[inline]
    #[must_use]
    pub fn is(self, kind: FileKind) -> bool {
        self.life & 0xff == u64::from(kind.code())
    }
}

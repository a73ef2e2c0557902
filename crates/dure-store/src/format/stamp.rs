//! The stamp of a medium: which mount it took part in last.
//!
//! **Structure.** A mirrored pair in blocks 1 to 4 of every medium but the first, whose stamp is the
//! volume header. Its body has two turns: the present one, and the one that is about to begin, if a
//! mount or an unmount is under way. **Invariants.** The volume header is of one of the two, on
//! every medium (`members::stamps`). **Crash.** A torn slot leaves the one before.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::volume::{PAIR_PAYLOAD, VolumeHeader};

/// The first block of the pair, on the medium.
pub const STAMP_BLOCK: u64 = 1;

/// What a volume header says of the mount that wrote it.
#[derive(
    FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq,
)]
#[repr(C)]
pub struct TurnV1 {
    /// The epoch, for messages.
    pub epoch: U64,
    /// The random number; 0: there is no such turn.
    pub mount: U64,
}
/// The current version.
pub type Turn = TurnV1;

/// Body of the pair.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct StampV1 {
    /// Which medium this is.
    pub member: U32,
    /// Written zero.
    pub padding: U32,
    /// The present turn.
    pub now: TurnV1,
    /// The one that is about to begin; zero: none.
    pub next: TurnV1,
    /// Written zero.
    pub reserved: [u8; PAIR_PAYLOAD - 40],
}
const _: () = assert!(size_of::<StampV1>() == PAIR_PAYLOAD);
/// The current version.
pub type Stamp = StampV1;

impl TurnV1 {
    /// No turn.
    pub const NONE: TurnV1 = TurnV1 {
        epoch: U64::ZERO,
        mount: U64::ZERO,
    };

    /// That of a volume header.
    #[must_use]
    pub fn of(header: &VolumeHeader) -> TurnV1 {
        TurnV1 {
            epoch: header.epoch,
            mount: header.mount,
        }
    }
}

impl StampV1 {
    /// The stamp of medium `member`.
    #[must_use]
    pub fn new(member: u32, now: Turn, next: Turn) -> StampV1 {
        StampV1 {
            member: U32::new(member),
            padding: U32::ZERO,
            now,
            next,
            reserved: [0; PAIR_PAYLOAD - 40],
        }
    }

    /// Whether a volume header of this turn belongs to the medium.
    #[must_use]
    pub fn knows(&self, turn: &Turn) -> bool {
        [self.now, self.next]
            .iter()
            .any(|known| known.mount == turn.mount)
    }
}

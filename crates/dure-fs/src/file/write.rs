//! Writing and appending: what is the same wherever the data goes.
//!
//! **Structure.** A call checks its arguments and takes the range of its bytes, if the file has a
//! range lock ([`super::ranges`]); the rest is the [body](super::body::Body)'s.

use dure_store::error::{Error, Result};
use dure_store::space::OpClass;
use dure_store::units::to_usize;
use dure_sync::Arc;

use super::Files;
use super::map::FILE_BYTES_MAX;
use super::state::Stamp;
use crate::inode::Inode;
use crate::volume::RangeRule;

/// What becomes of a write for which there is not room enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// The last free blocks take a part of it, as POSIX has it.
    Part,
    /// It fails.
    Whole,
    /// It takes of what was promised ([`promise_room`](crate::volume::FileSystem::promise_room)), then as `Part`.
    Promised,
}

impl Room {
    /// What the blocks of pages that have none are reserved as.
    pub(super) fn class(self) -> OpClass {
        match self {
            Room::Part | Room::Whole => OpClass::Normal,
            Room::Promised => OpClass::Promised,
        }
    }

    /// Whether a part of the write is better than nothing.
    pub(super) fn takes_parts(self) -> bool {
        self != Room::Whole
    }
}

impl Files {
    /// Writes `data` at `offset`; `room` says what if there is not enough of it.
    #[inline]
    pub(crate) fn write(
        &self,
        room: Room,
        inode: &Arc<Inode>,
        (offset, data): (u64, &[u8]),
        stamp: Stamp,
    ) -> Result<usize> {
        self.store.check_writable()?;
        let left = FILE_BYTES_MAX.saturating_sub(offset);
        if left == 0 && !data.is_empty() {
            return Err(Error::TooLarge);
        }
        let data = &data[..data.len().min(to_usize(left))];
        let ranges = inode.ranges_in(self);
        let range = match self.options.rules.ranges {
            RangeRule::Broken(left_out) => ranges.take_elsewhere(left_out),
            _ => {
                let (from, len) = self.body.claim(offset, data.len());
                ranges.take(from, len)
            }
        };
        let to = (inode, range);
        let done = self.body.write(self, to, (offset, data), room, stamp)?;
        self.end_data_call(inode)?;
        Ok(done)
    }
}

impl Files {
    /// See [`FileSystem::append`](crate::volume::FileSystem::append).
    pub(crate) fn append(&self, inode: &Arc<Inode>, data: &[u8]) -> Result<(u64, usize)> {
        self.store.check_writable()?;
        if data.is_empty() {
            return Ok((inode.state().seek_hint().size(), 0));
        }
        inode.ranges_in(self);
        let range = inode.take_end(u64::MAX);
        let done = self.body.append(self, (inode, range), data)?;
        self.end_data_call(inode)?;
        Ok(done)
    }
}

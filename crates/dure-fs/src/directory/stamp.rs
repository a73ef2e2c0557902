//! Times of a directory: the inode's own, and the stamps of its buckets, folded.
//!
//! Create and unlink do not write the directory's inode; they stamp the bucket. The directory's
//! mtime is the latest of the inode's and of all stamps whose set number is the inode's. Setting a
//! time explicitly raises the inode's set number, so that older stamps no longer count.

use dure_store::format::bucket::BucketHeader;
use dure_store::format::inode::Time;

use crate::inode::times::latest;

/// What the buckets of a directory add up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Fold {
    /// Latest stamps that count; `None` when no entry changed since the times were set.
    pub(crate) stamps: Option<Stamps>,
    /// Entries of all buckets that are directories.
    pub(crate) subdirectories: u32,
}

/// mtime and ctime of a bucket, or of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamps {
    /// An entry changed.
    pub(crate) mtime: Time,
    /// Equal to `mtime`, unless the times were set since.
    pub(crate) ctime: Time,
}

impl Fold {
    /// Adds a bucket of a directory whose set number is `set_number`.
    pub(crate) fn add_bucket(&mut self, header: &BucketHeader, set_number: u32) {
        self.subdirectories = self
            .subdirectories
            .saturating_add(header.subdirectories.get());
        if let Some(stamps) = stamps_of(header, set_number) {
            self.add_stamps(stamps);
        }
    }

    /// Adds stamps that count.
    pub(crate) fn add_stamps(&mut self, stamps: Stamps) {
        self.stamps = Some(match self.stamps {
            None => stamps,
            Some(before) => Stamps {
                mtime: latest(before.mtime, stamps.mtime),
                ctime: latest(before.ctime, stamps.ctime),
            },
        });
    }
}

/// The stamps of a bucket, if it has any that count.
pub(crate) fn stamps_of(header: &BucketHeader, set_number: u32) -> Option<Stamps> {
    let stamps = Stamps {
        mtime: header.mtime,
        ctime: header.ctime,
    };
    let never = stamps.mtime == Time::default() && stamps.ctime == Time::default();
    (header.set_number.get() == set_number && !never).then_some(stamps)
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;
    use zerocopy::little_endian::{I64, U32};

    use super::*;

    fn time(secs: i64) -> Time {
        Time {
            secs: I64::new(secs),
            nanos: U32::new(7),
        }
    }

    fn header(secs: i64, set_number: u32, subdirectories: u32) -> BucketHeader {
        let mut header = BucketHeader::new_zeroed();
        header.mtime = time(secs);
        header.ctime = time(secs + 1);
        header.set_number = U32::new(set_number);
        header.subdirectories = U32::new(subdirectories);
        header
    }

    #[test]
    fn only_stamps_of_the_same_set_number_count() {
        let mut fold = Fold::default();
        fold.add_bucket(&header(900, 1, 2), 2);
        assert_eq!(fold.stamps, None);
        fold.add_bucket(&header(100, 2, 3), 2);
        fold.add_bucket(&header(-5, 2, 0), 2);
        fold.add_bucket(&BucketHeader::new_zeroed(), 0);
        assert_eq!(
            fold.stamps,
            Some(Stamps {
                mtime: time(100),
                ctime: time(101)
            })
        );
        assert_eq!(fold.subdirectories, 5);
    }

    #[test]
    fn a_bucket_that_never_changed_has_no_stamp() {
        assert_eq!(stamps_of(&BucketHeader::new_zeroed(), 0), None);
    }
}

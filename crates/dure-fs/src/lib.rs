//! The dure file system.
mod alloc;
pub mod check;
mod checkpoint;
mod cleaner;
mod directory;
pub mod dump;
pub mod error;
mod file;
pub mod format;
mod inode;
pub mod layout;
mod namespace;
mod node;
mod op;
mod pair;
pub mod ranks;
mod recovery;
mod space;
pub mod units;
mod volume;
mod xattr;

pub use alloc::AllocPolicy;
pub use dure_journal::Order;
#[doc(hidden)]
pub use dure_journal::Rules;
pub use error::{Error, Result};
pub use file::{AllocateMode, FILE_BYTES_MAX, ReadMode, SeekTarget, Stamp, SyncScope};
pub use inode::{Attributes, InodeRef, NewInode, SetAttributes, SetTime};
pub use layout::{FormatOptions, Layout};
pub use namespace::{DirectoryEntry, FileKind, RenameMode};
#[doc(hidden)]
pub use volume::VolumeRules;
pub use volume::{
    AccessTime, Background, FileSystem, FlushRule, FsyncScope, MountOptions, Statistics, VolumeInfo,
};
pub use xattr::XattrMode;

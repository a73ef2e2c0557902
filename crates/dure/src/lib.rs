//! dure as a library: volumes, paths and open files without a kernel crossing.
//!
//! **Problem.** Programs want files by path, with the rules of POSIX, from any number of threads,
//! at the speed of a function call. The file system below (`dure_fs`) knows inodes and nothing of
//! paths, callers and descriptors.
//!
//! **Structure.**
//! * [`Volume`]: a mounted volume, on a device, in a file or in memory.
//! * [`Session`]: a caller ([`Credentials`]) with a root and a start directory; every call with a
//!   path is a method of it. [`Session::at`] gives the `*at` calls.
//! * [`File`]: a descriptor: inode, mode, position. There is no table of them. [`Calls`] has many
//!   reads of one thread under way at once.
//! * [`tree`]: copies of whole trees from and to the host. [`stream`]: snapshots as bytes, to another
//!   volume. [`acl`]: access control lists.
//! * Inside, a walk (`walk`) leads from a path to an inode, `permission` holds the rules, and an
//!   `Actor` does to an inode what a caller may.
//!
//! **Invariants.** Permissions are checked here and only here. A call holds no lock of its own
//! while it is in the file system but a descriptor's position (for `read`, `write`, `seek`). Reads
//! and writes at an offset touch nothing that another thread writes; a thread with its own clone of
//! a session shares no counter with others. Every error says what was tried, on which path, and
//! why.
//!
//! **On a crash** what [`File::sync_all`] or [`Volume::sync`] had returned for is there after
//! [`Volume::open`], with all it depends on; each later call is there as a whole or not at all
//! (docs/design/durability.md).
//!
//! # Example
//! The copy of the disk is what a power cut leaves.
//! ```
//! use dure::{FormatOptions, MountOptions, Volume};
//! use dure_block::{ram::RamDevice, share};
//! use dure_sync::Arc;
//!
//! let disk = Arc::new(RamDevice::new("disk", 4096));
//! let volume = Volume::create_on(
//!     share(Arc::clone(&disk)),
//!     &FormatOptions::default(),
//!     MountOptions::default(),
//! )?;
//! volume.root().write("greeting", b"hello")?;
//! volume.sync()?;
//! let after_crash = RamDevice::from_image("disk", &disk.snapshot());
//! let volume = Volume::open_on(share(after_crash), MountOptions::default())?;
//! assert_eq!(volume.root().read("greeting")?, b"hello");
//! # Ok::<(), dure::Error>(())
//! ```

pub mod acl;
mod actor;
mod attributes;
mod calls;
mod changes;
mod copy;
mod create;
mod credentials;
mod error;
mod fast_path;
mod file;
pub mod members;
mod memory;
mod metadata;
mod mount;
mod open;
mod options;
mod path;
mod permission;
mod quotas;
mod read_dir;
mod remove;
#[doc(hidden)]
pub mod run;
mod scrub;
mod session;
mod snapshots;
pub mod stream;
pub mod tree;
mod volume;
mod walk;
mod words;
mod xattr;

pub use calls::{Calls, Done};
pub use create::Special;
pub use credentials::{Capabilities, Credentials};
pub use dure_fs::{
    AccessTime, ActiveLogs, Advice, AllocPolicy, AllocateMode, Background, BadBlock, BadPart,
    Bounds, Change, CrashGuarantee, DataMode, Deduped, Extents, FileKind, FlushRule, FormatOptions,
    FsyncScope, Limits, MountOptions, Numa, NumaPolicy, Quota, QuotaKind, RecordPolicy, RenameMode,
    ScrubCounts, ScrubCursor, ScrubOptions, ScrubProgress, ScrubStage, SnapshotInfo, Statistics,
    Subject, TableCopies, Usage, XattrMode,
};
pub use dure_fuse::MountError;
pub use error::{Cause, Error, Result};
pub use file::{File, Seek};
pub use memory::quarter_of_memory;
pub use metadata::{FileTimes, Metadata, Permissions, TimeChange, Timestamp};
pub use mount::{Mount, MountPoint};
pub use options::OpenOptions;
pub use permission::Access;
pub use read_dir::{DirEntry, ReadDir};
pub use session::Session;
pub use volume::{CreateOptions, Volume};
pub use words::mount_options;

//! The FUSE front end of dure: a mounted volume as an ordinary directory of the host.
//!
//! **Problem.** The kernel speaks FUSE over `/dev/fuse`; dure-fs speaks inodes. Somebody has to
//! translate, keep what is open without a name, and mount and unmount cleanly.
//!
//! **Structure.** [`server`] answers requests in our own types and knows nothing of a transport.
//! [`protocol`] is what the bytes mean, [`transport`] takes them from the kernel and brings the
//! replies, one worker per core. [`mount`] makes the mount and ends it. [`nodes`] says what a
//! node id is, and keeps inodes without a name while the kernel knows them.
//!
//! **Invariants.** A FUSE node id is an inode number and its life; what the kernel knows costs no
//! memory here. Once an inode that the kernel knows has no name, a [`dure_fs::InodeRef`] pins it, so
//! an unlinked open file lives on. A WRITE fills dure's cache, wholly or not at all, and fails only
//! for lack of space; device errors show at FSYNC.
//!
//! **On a crash** of the server the kernel answers ENOTCONN until the directory is unmounted
//! (`dure umount`, `umount -l`); everything synced is on the volume, and the next mount recovers
//! it.
//!
//! # Example
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use dure_fuse::{MountSettings, Session};
//! # let device: dure_sync::Arc<dyn dure_block::Device> = unimplemented!();
//! let volume = dure_fs::FileSystem::open(device, dure_fs::MountOptions::default())?;
//! let session = Session::mount(volume, "/mnt/dure".as_ref(), &MountSettings::default())?;
//! session.run()?; // until somebody unmounts
//! # Ok(())
//! # }
//! ```

pub mod mount;
pub mod nodes;
pub mod protocol;
pub mod server;
pub mod transport;

pub use mount::{MountError, MountSettings, Session, unmount};
pub use transport::negotiate::WriteCache;

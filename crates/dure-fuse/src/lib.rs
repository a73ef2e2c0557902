//! The FUSE front end of dure: a mounted volume as an ordinary directory of the host.
//!
//! **Problem.** The kernel speaks FUSE over `/dev/fuse`; dure-fs speaks inodes. This crate
//! translates, keeps unlinked inodes that are still open, and mounts and unmounts cleanly.
//!
//! **Structure.** The protocol, its transports and mounting are `dure-fuse-wire`'s, for which this
//! is a [`Service`](dure_fuse_wire::Service). [`server`] answers requests in our own types and
//! knows nothing of a transport; `dispatch` encodes what it says; [`gate`] lets requests through, or
//! wait while the volume grows; `kernel_cache` keeps room for what the kernel collects. [`nodes`] defines FUSE node ids
//! and pins inodes without a name for as long as the kernel references them; [`session`] says what
//! is asked of the kernel.
//!
//! **Invariants.** A FUSE node id is an inode number and its generation; an inode in the kernel's
//! cache costs no memory here while it has a name. Once an inode that the kernel references has no
//! name, a [`dure_fs::InodeRef`] pins it, so an unlinked open file lives on. A WRITE fills dure's
//! cache, wholly or not at all, or, of pages of the kernel's cache, as far as there is room, and
//! fails only for lack of space; device errors are reported by
//! FSYNC.
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

pub mod coherence;
mod dispatch;
pub mod gate;
mod kernel_cache;
pub mod nodes;
pub mod server;
pub mod serving;
pub mod session;
#[cfg(test)]
mod tests;

pub use coherence::Coherence;
pub use dure_fuse_wire::transport::uring::switch::Switch;
pub use dure_fuse_wire::{
    MountError, RingPolicy, Transport, WriteCache, mount, protocol, service, transport, unmount,
};
pub use gate::{GrowError, MountedVolume};
pub use server::{SNAPSHOTS, SnapshotPlaces, report_errors};
pub use serving::Serving;
pub use session::{FEATURES, MountSettings, Session};

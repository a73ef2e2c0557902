//! The calls on a mounted volume: what [`FileSystem`](crate::volume::FileSystem) promises, a source
//! for each kind of call.
//!
//! **Structure.** A call checks its arguments and asks the owner of the state it concerns; how that
//! does it is written there. Nothing below names the volume, or another call.

mod allocate;
mod attributes;
mod changes;
mod clone;
mod lookup;
mod names;
mod projects;
mod quotas;
mod read;
mod scrub;
mod seek;
mod snapshots;
mod sync;
mod waits;
mod write;
mod xattrs;

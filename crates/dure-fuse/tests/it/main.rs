//! Mounts that the kernel sees.

mod cache;
mod handles;
mod mount;
mod room;
mod semantics;
mod uring;

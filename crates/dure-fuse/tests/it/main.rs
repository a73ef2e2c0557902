//! Mounts that the kernel sees.

mod cache;
mod handles;
mod mount;
mod ring_calls;
mod room;
mod semantics;
mod uring;

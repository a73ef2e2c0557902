//! Mounts that the kernel sees.

mod cache;
mod mount;
mod room;
mod uring;

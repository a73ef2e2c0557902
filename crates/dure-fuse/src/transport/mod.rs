//! Transports: how requests reach the server and answers the kernel. One file each.

pub mod fuser;

//! dure-fuse

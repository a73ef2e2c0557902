//! dure-fs

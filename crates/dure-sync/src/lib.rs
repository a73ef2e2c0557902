//! dure-sync

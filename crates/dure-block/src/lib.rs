//! dure-block

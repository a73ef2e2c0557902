//! dure-bench

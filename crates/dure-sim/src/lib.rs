//! dure-sim

//! dure

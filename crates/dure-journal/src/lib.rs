//! dure-journal

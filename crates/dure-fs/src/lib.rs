//! dure-fs (its modules join as the layers below land).

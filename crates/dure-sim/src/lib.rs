//! What verifies dure: models, generators and checkers. Nothing of the product depends on it.

#[cfg(dure_backend = "sim")]
pub mod conflicts;
pub mod crash;
pub mod explain;
pub mod images;
mod media;
pub mod model;
pub mod room;
#[cfg(dure_backend = "sim")]
pub mod schedules;

//! One file per command.

pub(crate) mod bench;
pub(crate) mod cat;
pub(crate) mod changes;
pub(crate) mod check;
pub(crate) mod conflicts;
pub(crate) mod copy;
mod damaged;
pub(crate) mod demo;
pub(crate) mod dump;
pub(crate) mod info;
pub(crate) mod journal;
pub(crate) mod ls;
pub(crate) mod mkdir;
pub(crate) mod mkfs;
pub(crate) mod mount;
pub(crate) mod project;
pub(crate) mod quota;
pub(crate) mod rescue;
pub(crate) mod resize;
pub(crate) mod rm;
pub(crate) mod room;
pub(crate) mod run;
pub(crate) mod scrub;
pub(crate) mod sim;
#[cfg(not(dure_backend = "sim"))]
pub(crate) mod simulated;
pub(crate) mod snapshot;
pub(crate) mod stream;
pub(crate) mod top;
pub(crate) mod trim;
pub(crate) mod umount;
pub(crate) mod undo;
pub(crate) mod upgrade;

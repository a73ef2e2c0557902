//! A file system of a few granules, and every crash it can meet.
//!
//! `buffers` is the file system: granules with versions and last writers, images written out of
//! place, a NAT and a volume header in slotted pairs, checkpoint and recovery in the order of
//! docs/design/journal.md. `truth` remembers what happened and judges what was recovered. `script`
//! runs steps on it, `power` cuts the power at every instant that matters and recovers.

pub(crate) mod buffers;
pub(crate) mod disk;
pub(crate) mod medium;
pub(crate) mod power;
pub(crate) mod recover;
pub(crate) mod scatter;
pub(crate) mod script;
pub(crate) mod truth;
pub(crate) mod workload;

//! The file system through its public calls.

mod activity;
mod any_machine;
mod changes;
mod check;
mod clones;
mod faults;
mod features;
mod golden;
mod hostile;
mod hostile_clones;
mod hostile_snapshots;
mod large;
mod numa;
mod resize;
mod rot;
mod snapshots;
mod trim;
mod worker_dies;
mod workers;
mod workload;

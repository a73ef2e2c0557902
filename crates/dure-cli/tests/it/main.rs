//! The program `dure`, as a user runs it.

mod bad_regions;
mod bench;
mod causes;
mod collected;
mod copy;
mod counts;
mod documents;
mod emulated;
mod exit_status;
mod full;
mod images;
mod log;
mod memory;
mod messages;
mod metrics;
mod mount_options;
mod options;
mod overlay;
mod pages;
mod program;
mod regions;
mod rescue;
mod resize;
mod ring_policy;
mod top;
mod trust;

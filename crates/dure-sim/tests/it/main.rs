//! The model, and crashes of whole volumes.

mod crash_ace;
mod crash_canaries;
mod crash_chipmunk;
mod crash_copies;
mod crash_cores;
mod crash_direct;
mod crash_hybrid;
mod crash_nvram;
mod crash_policies;
mod crash_recovery;
mod crash_seq1;
mod crash_sequences;
mod faults;
mod hybrid_costs;
mod model;
mod sampling;

/// Crashes mount a small volume for each state: the system's allocator took a sixth of their time.
#[cfg(not(dure_backend = "sim"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

//! A two-socket server with 32 cores per socket, of no particular make.
//!
//! **Problem.** Correctness runs need plausible costs, not those of one machine. **Structure.**
//! Typical figures of current x86 servers: idle transfer latencies, futex wake-up and context
//! switch as commonly published. **Invariants.** Not for performance claims. **Crash.** Nothing.

use super::CostModel;

/// Typical figures of a current server.
pub const GENERIC: CostModel = CostModel {
    cores_per_socket: 32,
    is_numa: false,
    hit_ns: 1,
    locked_ns: 8,
    transfer_ns: 50,
    transfer_far_ns: 130,
    third_node_ns: 0,
    hold_ns: 10,
    read_share_ns: 6,
    spin_hint_ns: 40,
    system_call_ns: 100,
    wake_ns: 3_000,
    switch_ns: 1_500,
    slice_ns: 3_000_000,
    copy_mb_s: 0,
    copy_memory_mb_s: 0,
    socket_mb_s: 0,
    persistent: None,
};

//! Machines to simulate, one file each.
//!
//! **Problem.** Costs must be fixed before a run, from measurements or published figures of one
//! machine. **Structure.** [`CostModel`] is a table of numbers; each file fills it for a machine.
//! **Invariants.** Never fitted to the figure it is to explain. **Crash.** Nothing is kept.

mod generic;

pub use generic::GENERIC;

/// What operations cost on a machine, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CostModel {
    /// The machine.
    pub name: &'static str,
    /// Cores of one socket; cores are numbered socket by socket.
    pub cores_per_socket: usize,
    /// A load or plain store of a line the core has.
    pub hit_ns: u64,
    /// A locked read-modify-write of a line the core owns.
    pub locked_ns: u64,
    /// Moving a line between two cores of a socket.
    pub transfer_ns: u64,
    /// Moving a line between two sockets.
    pub transfer_far_ns: u64,
    /// How long a core keeps a line it has just got, whatever other cores request.
    pub hold_ns: u64,
    /// How long a reader keeps other requests for the line waiting.
    pub read_share_ns: u64,
    /// One turn of a spin loop.
    pub spin_hint_ns: u64,
    /// Entering and leaving the kernel.
    pub system_call_ns: u64,
    /// From a wake-up until the sleeper can run.
    pub wake_ns: u64,
    /// Changing the task of a core.
    pub switch_ns: u64,
    /// How long a task keeps its core while others wait for it.
    pub slice_ns: u64,
}

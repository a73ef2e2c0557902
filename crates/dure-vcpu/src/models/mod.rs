//! Machines to simulate, one file each.
//!
//! **Problem.** Costs must be fixed before a run, from measurements or published figures of one
//! machine, and each must say where it comes from. **Structure.** [`CostModel`] is what a run
//! needs; a [`Machine`] is what a file says of one: figures with their sources (`file`). Files of
//! known machines are part of the program ([`Machine::named`]). [`GENERIC`] is no machine.
//! **Invariants.** Never fitted to the figure it is to explain; no figure without a source.
//! **Crash.** Nothing is kept.

mod figure;
mod file;
mod generic;

pub use figure::{FIGURES, Figure};
pub use file::{Device, Machine, Persistent};
pub use generic::GENERIC;

/// What operations cost on a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CostModel {
    /// Cores of one socket; cores are numbered socket by socket.
    pub cores_per_socket: usize,
    /// Whether a socket is a NUMA node of its own; otherwise the machine has one node.
    pub is_numa: bool,
    /// A load or plain store of a line the core has, in ns, as all of these unless they say else.
    pub hit_ns: u64,
    /// A locked read-modify-write of a line the core owns.
    pub locked_ns: u64,
    /// Moving a line between two cores of a socket.
    pub transfer_ns: u64,
    /// Moving a line between two sockets.
    pub transfer_far_ns: u64,
    /// What such a move takes more if the memory of the line is on a third socket.
    pub third_node_ns: u64,
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
    /// MB that a core copies in a second within its caches; 0: copies take no time.
    pub copy_mb_s: u64,
    /// MB that a core copies in a second from or to memory; 0: as within its caches.
    pub copy_memory_mb_s: u64,
    /// MB that the memory of a socket moves in a second; 0: any number.
    pub socket_mb_s: u64,
    /// Persistent memory; it costs nothing if none is described.
    pub persistent: Option<PersistentCosts>,
}

/// What copies from and to the persistent memory of a socket cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistentCosts {
    /// What a copy takes more than one in memory.
    pub latency_ns: u64,
    /// MB that a core reads in a second.
    pub read_mb_s: u64,
    /// MB that a core writes in a second.
    pub write_mb_s: u64,
    /// MB that all cores together read in a second from the modules of a socket.
    pub socket_read_mb_s: u64,
    /// MB that they write.
    pub socket_write_mb_s: u64,
}

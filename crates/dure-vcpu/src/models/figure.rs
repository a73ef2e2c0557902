//! The figures of a machine: their names, units and ranges.
//!
//! **Problem.** A file, its checks, a halved or doubled cost and the page that explains figures
//! must speak of the same ones. **Structure.** [`FIGURES`] is the one list. **Invariants.** Each
//! figure is used by a run: the name of none is accepted and ignored. **Crash.** Nothing is kept.

use super::file::Machine;

/// A figure of a machine.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    /// Where it stands in a file: `section.key`.
    pub name: &'static str,
    /// The least it can be.
    pub least: u64,
    /// The most it can be.
    pub most: u64,
    /// Whether it is a cost, that can be halved and doubled; the others describe the machine.
    pub is_cost: bool,
    /// Its place in a machine; `None` if that has no such section.
    pub(super) place: fn(&mut Machine) -> Option<&mut u64>,
}

const fn cost(
    name: &'static str,
    (least, most): (u64, u64),
    place: fn(&mut Machine) -> Option<&mut u64>,
) -> Figure {
    Figure {
        name,
        least,
        most,
        is_cost: true,
        place,
    }
}

const fn shape(
    name: &'static str,
    (least, most): (u64, u64),
    place: fn(&mut Machine) -> Option<&mut u64>,
) -> Figure {
    Figure {
        is_cost: false,
        ..cost(name, (least, most), place)
    }
}

/// A second, in ns.
const SECOND: u64 = 1_000_000_000;
/// The most MB/s of anything.
const FAST: u64 = 100_000_000;

/// All of them. Sections `device` and `persistent` may be missing from a file, the others not.
pub const FIGURES: [Figure; 30] = [
    shape("cores.sockets", (1, 64), |m| Some(&mut m.sockets)),
    shape("cores.per_socket", (1, 1024), |m| {
        Some(&mut m.cores_per_socket)
    }),
    cost("cores.instruction_ps", (1, 1_000_000), |m| {
        Some(&mut m.instruction_ps)
    }),
    cost("cores.instruction_new_ps", (1, 1_000_000), |m| {
        Some(&mut m.instruction_new_ps)
    }),
    cost("cores.locked_ns", (1, 10_000), |m| {
        Some(&mut m.costs.locked_ns)
    }),
    cost("cores.load_ns", (1, 1_000), |m| Some(&mut m.costs.hit_ns)),
    cost("cores.spin_hint_ns", (1, 10_000), |m| {
        Some(&mut m.costs.spin_hint_ns)
    }),
    cost("lines.same_socket_ns", (1, 100_000), |m| {
        Some(&mut m.costs.transfer_ns)
    }),
    cost("lines.cross_socket_ns", (1, 100_000), |m| {
        Some(&mut m.costs.transfer_far_ns)
    }),
    cost("lines.third_node_ns", (0, 100_000), |m| {
        Some(&mut m.costs.third_node_ns)
    }),
    cost("lines.hold_ns", (0, 100_000), |m| {
        Some(&mut m.costs.hold_ns)
    }),
    cost("lines.read_share_ns", (0, 100_000), |m| {
        Some(&mut m.costs.read_share_ns)
    }),
    cost("kernel.call_ns", (0, SECOND), |m| {
        Some(&mut m.costs.system_call_ns)
    }),
    cost("kernel.wake_ns", (0, SECOND), |m| {
        Some(&mut m.costs.wake_ns)
    }),
    cost("kernel.switch_ns", (0, SECOND), |m| {
        Some(&mut m.costs.switch_ns)
    }),
    shape("kernel.slice_ns", (1_000, SECOND), |m| {
        Some(&mut m.costs.slice_ns)
    }),
    cost("copy.cached_mb_s", (1, FAST), |m| {
        Some(&mut m.costs.copy_mb_s)
    }),
    cost("copy.memory_mb_s", (1, FAST), |m| {
        Some(&mut m.costs.copy_memory_mb_s)
    }),
    cost("copy.socket_mb_s", (1, FAST), |m| {
        Some(&mut m.costs.socket_mb_s)
    }),
    cost("device.read_ns", (0, SECOND), |m| {
        Some(&mut m.device.as_mut()?.read_ns)
    }),
    cost("device.write_ns", (0, SECOND), |m| {
        Some(&mut m.device.as_mut()?.write_ns)
    }),
    cost("device.flush_ns", (0, SECOND), |m| {
        Some(&mut m.device.as_mut()?.flush_ns)
    }),
    shape("device.queues", (1, 65_536), |m| {
        Some(&mut m.device.as_mut()?.queues)
    }),
    cost("device.parallel", (1, 1_000_000), |m| {
        Some(&mut m.device.as_mut()?.parallel)
    }),
    cost("device.mb_s", (1, FAST), |m| {
        Some(&mut m.device.as_mut()?.mb_s)
    }),
    shape("persistent.modules_per_socket", (1, 64), |m| {
        Some(&mut m.persistent.as_mut()?.modules_per_socket)
    }),
    shape("persistent.interleaved", (1, 64), |m| {
        Some(&mut m.persistent.as_mut()?.interleaved)
    }),
    cost("persistent.read_mb_s", (1, FAST), |m| {
        Some(&mut m.persistent.as_mut()?.read_mb_s)
    }),
    cost("persistent.write_mb_s", (1, FAST), |m| {
        Some(&mut m.persistent.as_mut()?.write_mb_s)
    }),
    cost("persistent.latency_ns", (0, SECOND), |m| {
        Some(&mut m.persistent.as_mut()?.latency_ns)
    }),
];

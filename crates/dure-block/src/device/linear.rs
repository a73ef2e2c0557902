//! Several devices, one after the other.
//!
//! **Problem.** A volume may have its metadata in persistent memory and its data on a disk, and what
//! checks, copies or rescues it wants one space of blocks. **Structure.** [`Part`]s in the order of
//! the space; of each device a run of blocks is used. A request is cut at the borders.
//! [`crate::Media`] asks each device by itself instead. **Invariants.** The parts lie one after the
//! other without a gap, each within its device. A flush flushes all of them. **Crash.** As on each
//! device; between devices no order holds.

use dure_sync::Arc;

use crate::{BLOCK_BYTES, Device, DeviceInfo, Error, Io, Lba, Op, Result};

/// A run of blocks of one device, in the space.
#[derive(Debug, Clone)]
pub struct Part {
    /// Whose blocks they are.
    pub device: Arc<dyn Device>,
    /// The first of them on the device.
    pub start: Lba,
    /// The first of them in the space.
    pub first: Lba,
    /// How many.
    pub blocks: u64,
}

impl Part {
    /// All blocks of a device.
    #[must_use]
    pub fn whole(device: Arc<dyn Device>) -> Part {
        let blocks = device.info().blocks;
        Part {
            device,
            start: Lba::new(0),
            first: Lba::new(0),
            blocks,
        }
    }
}

/// The device.
#[derive(Debug)]
pub struct LinearDevice {
    info: DeviceInfo,
    parts: Vec<Part>,
}

impl LinearDevice {
    /// These blocks of these devices, in this order: first block on the device, and how many.
    ///
    /// # Panics
    /// If there are none, or a device does not have them.
    #[must_use]
    pub fn new(devices: Vec<(Arc<dyn Device>, Lba, u64)>) -> LinearDevice {
        assert!(!devices.is_empty(), "a space has blocks");
        let mut first = 0;
        let mut parts = Vec::new();
        for (device, start, blocks) in devices {
            let have = device.info().blocks;
            assert!(
                blocks > 0 && start.number() + blocks <= have,
                "{blocks} blocks from {start} of a device of {have}"
            );
            parts.push(Part {
                device,
                start,
                first: Lba::new(first),
                blocks,
            });
            first += blocks;
        }
        let info = info_of(&parts, first);
        LinearDevice { info, parts }
    }
}

fn info_of(parts: &[Part], blocks: u64) -> DeviceInfo {
    let infos = || parts.iter().map(|part| part.device.info());
    let names: Vec<&str> = infos().map(|info| info.name.as_str()).collect();
    let least = |of: fn(&DeviceInfo) -> u64| infos().map(of).min().unwrap_or(0);
    DeviceInfo {
        name: names.join(" + "),
        blocks,
        rotational: infos().any(|info| info.rotational),
        volatile_cache: infos().any(|info| info.volatile_cache),
        read_only: infos().any(|info| info.read_only),
        max_blocks_per_request: least(|info| info.max_blocks_per_request),
        memory_alignment: infos().map(|info| info.memory_alignment).max().unwrap_or(1),
        atomic_write_blocks: least(|info| info.atomic_write_blocks),
        discard: infos().all(|info| info.discard),
        in_memory: infos().all(|info| info.in_memory),
        nvm: None,
    }
}

/// The pieces of `blocks` blocks from `lba` on: part, first block on its device, blocks before the
/// piece, and its length.
pub(crate) fn pieces(
    places: impl Iterator<Item = (Lba, Lba, u64)>,
    lba: Lba,
    blocks: u64,
) -> impl Iterator<Item = (usize, Lba, u64, u64)> {
    let (begin, end) = (lba.number(), lba.number().saturating_add(blocks));
    places
        .enumerate()
        .filter_map(move |(index, (first, start, len))| {
            let (from, to) = (first.number(), first.number() + len);
            let (from_here, to_here) = (begin.max(from), end.min(to));
            (from_here < to_here).then(|| {
                let at = start.offset(from_here - from);
                (index, at, from_here - begin, to_here - from_here)
            })
        })
}

pub(crate) fn bytes(blocks: u64) -> usize {
    usize::try_from(blocks).expect("a buffer has so many") * BLOCK_BYTES
}

impl Device for LinearDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn execute(&self, io: Io<'_>) -> Result<()> {
        let (op, lba, blocks) = (io.op(), io.lba(), io.blocks());
        let places = self.parts.iter().map(|p| (p.first, p.start, p.blocks));
        let end = lba.number().checked_add(blocks);
        if op != Op::Flush && end.is_none_or(|end| end > self.info.blocks) {
            return Err(Error::OutOfRange {
                device: self.info.name.clone(),
                op,
                lba,
                blocks,
                device_blocks: self.info.blocks,
            });
        }
        let mut pieces = pieces(places, lba, blocks);
        let device = |index: usize| &self.parts[index].device;
        match io {
            Io::Read { out, .. } => pieces.try_for_each(|(index, lba, skip, count)| {
                let out = &mut out[bytes(skip)..][..bytes(count)];
                device(index).execute(Io::Read { lba, out })
            }),
            Io::Write { parts, flags, .. } => {
                let data = parts.concat();
                pieces.try_for_each(|(index, lba, skip, count)| {
                    let parts: &[&[u8]] = &[&data[bytes(skip)..][..bytes(count)]];
                    device(index).execute(Io::Write { lba, parts, flags })
                })
            }
            Io::Discard { .. } => pieces.try_for_each(|(index, lba, _, blocks)| {
                device(index).execute(Io::Discard { lba, blocks })
            }),
            Io::Flush => {
                let mut parts = self.parts.iter();
                parts.try_for_each(|part| part.device.execute(Io::Flush))
            }
        }
    }

    fn parts(&self) -> &[Part] {
        &self.parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ram::RamDevice;
    use crate::{Queue, QueueConfig, WriteFlags, share};

    fn two() -> (Arc<RamDevice>, Arc<RamDevice>, Arc<dyn Device>) {
        let a = Arc::new(RamDevice::new("a", 8));
        let b = Arc::new(RamDevice::new("b", 8));
        let parts = vec![
            (share(Arc::clone(&a)), Lba::new(0), 4),
            (share(Arc::clone(&b)), Lba::new(2), 6),
        ];
        (a, b, share(LinearDevice::new(parts)))
    }

    #[test]
    fn a_request_is_cut_at_the_border() {
        let (a, b, device) = two();
        assert_eq!(
            (device.info().blocks, device.info().name.as_str()),
            (10, "a + b")
        );
        let queue = Queue::new(device, QueueConfig::default());
        let data: Vec<u8> = (1..=4).flat_map(|byte| [byte; BLOCK_BYTES]).collect();
        queue.write(Lba::new(2), &data, WriteFlags::NONE).unwrap();
        let mut found = vec![0; data.len()];
        queue.read(Lba::new(2), &mut found).unwrap();
        assert!(found == data);
        let first = |ram: &RamDevice, at| ram.snapshot().get(Lba::new(at)).map(|b| b.bytes()[0]);
        assert_eq!(
            (first(&a, 3), first(&b, 1), first(&b, 2)),
            (Some(2), None, Some(3))
        );
        queue.discard(Lba::new(3), 2).unwrap();
        queue.read(Lba::new(2), &mut found).unwrap();
        assert_eq!([0, 1, 2, 3].map(|n| found[n * BLOCK_BYTES]), [1, 0, 0, 4]);
        let beyond = queue.read(Lba::new(9), &mut found);
        assert!(
            matches!(beyond, Err(Error::OutOfRange { .. })),
            "{beyond:?}"
        );
    }
}

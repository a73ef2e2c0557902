//! Recovery of the crash tests' file system, in the order of docs/design/checkpoint-recovery.md.

use std::collections::BTreeMap;

use dure_block::{Media, Queue};
use dure_journal::recovery::{LogLayout, Record, Scan, scan};
use dure_journal::{LogMedium, RingStart};
use dure_sync::Arc;

use super::buffers::{Buffers, TestRules, decode};
use super::disk::{
    DEVICE_BLOCKS, GRANULES, Nat, SEED, SEGMENT_BLOCKS, Volume, header_at, read_image, write_image,
};
use super::truth::{Payload, SLOTS};

/// The state after a crash.
#[derive(Debug, Clone)]
pub(crate) struct Recovered {
    pub(crate) granules: Vec<(u64, Payload)>,
    pub(crate) scan: Scan,
    volume: Volume,
    nat: Nat,
}

/// Reads what is there. Writes nothing.
///
/// # Errors
/// What is wrong.
pub(crate) fn read(
    queue: &Arc<Queue>,
    rules: TestRules,
    threads: usize,
) -> Result<Recovered, String> {
    let volume = Volume::read(queue).ok_or("no volume header")?;
    let nat = Nat::read(queue).ok_or("no NAT")?;
    let mut granules = Vec::new();
    for (granule, (block, version)) in nat.entries.iter().enumerate() {
        let payload = if *block == 0 {
            [0; SLOTS]
        } else {
            read_image(queue, *block, granule, *version)?
        };
        granules.push((*version, payload));
    }
    let layout = LogLayout {
        seed: SEED,
        segment_blocks: SEGMENT_BLOCKS,
        first_number: volume.first_number,
        device_blocks: DEVICE_BLOCKS,
        headers: (0..usize::try_from(volume.journals).unwrap())
            .map(header_at)
            .collect(),
        clean: false,
        rules: rules.journal,
    };
    let medium = LogMedium::on(Media::behind(Arc::clone(queue)));
    let scan = scan(&medium, &layout, volume.epoch, threads).map_err(|error| error.to_string())?;
    if let Some(hole) = scan.holes().first() {
        return Err(hole.to_string());
    }
    apply(&scan, &mut granules)?;
    Ok(Recovered {
        granules,
        scan,
        volume,
        nat,
    })
}

/// Applies the deltas of the survivors in the order of versions, where newer than the image.
fn apply(scan: &Scan, granules: &mut [(u64, Payload)]) -> Result<(), String> {
    let mut deltas: BTreeMap<(usize, u64), (u16, Vec<u8>)> = BTreeMap::new();
    let mut logged = Vec::new();
    let mut images: Vec<(usize, u64, Payload)> = Vec::new();
    let survivors = scan.survivors();
    for (transaction, _) in scan
        .transactions()
        .iter()
        .zip(survivors)
        .filter(|(_, survives)| *survives)
    {
        for record in transaction.records.iter() {
            match record {
                Record::Delta {
                    granule,
                    version,
                    offset,
                    bytes,
                } => {
                    let granule = usize::try_from(granule.nid.0).unwrap();
                    if granule >= GRANULES
                        || bytes.len() != 8
                        || usize::from(offset) + 8 > SLOTS * 8
                    {
                        return Err(format!("nonsense in {transaction:?}"));
                    }
                    let delta = (offset, bytes.to_vec());
                    logged.push(((granule, version), delta.clone()));
                    if deltas.insert((granule, version), delta).is_some() {
                        return Err(format!("granule {granule} has version {version} twice"));
                    }
                }
                Record::Image { nid, bytes } => images.extend(decode(nid.0, bytes)),
                Record::Note { kind, bytes } => {
                    if kind != 7 || bytes.iter().any(|byte| *byte != 7) {
                        return Err(format!("nonsense in a note of {transaction:?}"));
                    }
                }
            }
        }
    }
    for (granule, version, payload) in images {
        if version > granules[granule].0 {
            granules[granule] = (version, payload);
        }
    }
    let by_version: Vec<_> = deltas.into_iter().collect();
    let ordered = if scan.rules().by_version.holds() {
        by_version
    } else {
        logged
    };
    for ((granule, version), (offset, bytes)) in ordered {
        let (current, payload) = &mut granules[granule];
        if version <= *current {
            continue;
        }
        if version != *current + 1 {
            return Err(format!(
                "granule {granule}: version {version} applied to {current}"
            ));
        }
        *current = version;
        let value = u64::from_le_bytes(bytes.try_into().unwrap());
        payload[usize::from(offset) / 8] = value;
    }
    Ok(())
}

impl Recovered {
    /// Makes the recovered state durable: images, NAT, and last the volume header with a new epoch.
    pub(crate) fn write(&self, queue: &Queue, rules: TestRules) {
        let mut nat = self.nat.clone();
        nat.generation += 1;
        for (granule, (version, payload)) in self.granules.iter().enumerate() {
            if *version > nat.entries[granule].1 {
                write_image(queue, nat.next_image, granule, *version, payload);
                nat.entries[granule] = (nat.next_image, *version);
                nat.next_image += 1;
            }
        }
        queue.flush().unwrap();
        nat.write(queue);
        queue.flush().unwrap();
        let mut volume = self.volume;
        volume.generation += 1;
        // The rule "epoch" stands for all of finding 2: a new epoch, and numbers that go on.
        if rules.journal.epoch.holds() {
            volume.epoch += 1;
            volume.first_number = self.scan.max_number().max(volume.first_number - 1) + 1;
        } else {
            volume.first_number = 1;
        }
        volume.write(queue);
        queue.flush().unwrap();
    }

    /// What the next mount's journal starts with.
    pub(crate) fn rings(&self) -> Vec<RingStart> {
        self.scan
            .rings()
            .iter()
            .map(|ring| ring.start.clone())
            .collect()
    }
}

/// Rings of a clean volume.
pub(crate) fn rings_of(queue: &Arc<Queue>) -> Vec<RingStart> {
    read(queue, TestRules::default(), 1)
        .expect("a clean volume")
        .rings()
}

/// Mounts a clean image.
pub(crate) fn mount(image: dure_block::ram::Image, rules: TestRules) -> Buffers {
    let rings = rings_of(&super::medium::queue_on(image.clone()));
    Buffers::mount(image, rings, rules)
}

/// Mounts a clean image on a device that fails.
pub(crate) fn mount_faulty(
    image: dure_block::ram::Image,
    faults: Vec<dure_block::fault::Rule>,
) -> Buffers {
    let rings = rings_of(&super::medium::queue_on(image.clone()));
    Buffers::mount_faulty(image, rings, TestRules::default(), faults)
}

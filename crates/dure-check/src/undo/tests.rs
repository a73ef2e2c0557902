//! An undo file brings a volume back, whenever the repair or the undo is cut off, and no other one.

use std::io;

use dure_block::crash::{CrashImages, Selection, Tear};
use dure_block::ram::{Image, RamDevice};
use dure_block::record::{RecordDevice, RecordLog};
use dure_block::{Device, share};
use dure_store::format::pair_kind;
use dure_store::format::volume::VolumeHeader;
use dure_sync::{Arc, Mutex};

use super::*;
use crate::tests::disk::{Disk, lines};
use crate::tests::volume::TestVolume;
use crate::tests::volume::place::SMALL;
use crate::{CheckOptions, Repair, check};

const FULL: CheckOptions<'_> = CheckOptions {
    repair: Repair::Full,
    data: crate::Data::Skip,
    progress: None,
    threads: None,
    recover: dure_store::Recover::Whole,
};

/// Blocks may be torn: their sectors are old or new.
const TORN: Selection = Selection {
    exhaustive_max: 6,
    random: 8,
    seed: 1,
    tear: Tear::Sectors,
};

/// A file in memory, which knows how long it was when the device had written how much.
#[derive(Debug, Clone, Default)]
struct MemoryFile(Arc<Mutex<195, State>>);

#[derive(Debug, Default)]
struct State {
    bytes: Vec<u8>,
    device: Option<Arc<RecordLog>>,
    /// Steps of the device before a sync, and the length that it made durable.
    synced: Vec<(u64, usize)>,
    /// Appends that work.
    room: Option<usize>,
}

impl MemoryFile {
    fn of(bytes: &[u8]) -> MemoryFile {
        let file = MemoryFile::default();
        file.0.lock().bytes = bytes.to_vec();
        file
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.lock().bytes.clone()
    }
}

impl UndoFile for MemoryFile {
    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<usize> {
        let state = self.0.lock();
        let from = usize::try_from(at).unwrap().min(state.bytes.len());
        let len = out.len().min(state.bytes.len() - from);
        out[..len].copy_from_slice(&state.bytes[from..from + len]);
        Ok(len)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.lock();
        if let Some(room) = &mut state.room {
            if *room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            *room -= 1;
        }
        let at = usize::try_from(at).unwrap();
        let end = state.bytes.len().max(at + bytes.len());
        state.bytes.resize(end, 0);
        state.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.0.lock();
        if let Some(device) = &state.device {
            let now = (device.step(), state.bytes.len());
            state.synced.push(now);
        }
        Ok(())
    }
}

/// A volume that a repair without guesses mends, and one that must be rebuilt.
fn damaged() -> [Disk; 2] {
    let mut wrong = TestVolume::new();
    wrong.edit(SMALL, |small| small.attributes.nlink.set(9));
    let wrong = wrong.write();
    wrong.damage(1023, |block| block.fill(0));
    let lost = TestVolume::new().write();
    let root = lost.nat_entry(0).block().0;
    lost.damage(root, |block| block.fill(0));
    [wrong, lost]
}

fn contents(device: &RamDevice) -> Image {
    device.snapshot()
}

fn device(image: &Image) -> Arc<RamDevice> {
    Arc::new(RamDevice::from_image("undo", image))
}

/// Repairs `device` with an undo file, which it returns.
fn repair(device: Arc<dyn Device>, file: &MemoryFile, finish: bool) {
    let undo = Arc::new(UndoDevice::new(device, Box::new(file.clone())).unwrap());
    let saving = share(Arc::clone(&undo));
    let report = check(saving, &FULL).unwrap();
    assert!(report.repaired(), "{:?}", lines(&report));
    if finish {
        assert!(undo.finish().unwrap().blocks > 0);
    }
}

#[test]
fn a_repair_is_taken_back() {
    for disk in damaged() {
        let before = contents(&disk.device);
        let file = MemoryFile::default();
        repair(disk.device(), &file, true);
        assert!(contents(&disk.device) != before);
        for again in [true, false] {
            let undone = undo(disk.device(), &file).unwrap();
            assert_eq!(undone.finished, again);
            assert!(contents(&disk.device) == before);
        }
    }
}

#[test]
fn a_sound_volume_leaves_the_file_empty() {
    let disk = TestVolume::new().write();
    let file = MemoryFile::default();
    let undo = Arc::new(UndoDevice::new(disk.device(), Box::new(file.clone())).unwrap());
    let saving = share(Arc::clone(&undo));
    assert!(check(saving, &FULL).unwrap().is_spotless());
    assert_eq!(undo.finish().unwrap(), Saved { blocks: 0 });
    assert_eq!(file.bytes(), Vec::<u8>::new());
}

/// Whenever the repair is cut off, and whatever of it has reached the medium: what was durable of
/// the file by then, and what may have been, brings the volume back.
#[test]
fn a_repair_that_is_cut_off_is_taken_back() {
    let mut states = 0;
    for disk in damaged() {
        let (base, before) = (disk.device.snapshot(), contents(&disk.device));
        let record = RecordDevice::new(disk.device());
        let log = record.log();
        let file = MemoryFile::default();
        file.0.lock().device = Some(Arc::clone(&log));
        repair(share(record), &file, false);
        let (whole, synced) = (file.bytes(), std::mem::take(&mut file.0.lock().synced));
        let images = CrashImages::new(base, &log);
        for step in 0..=images.last_step() {
            let len = |reached: &dyn Fn(u64) -> bool| {
                let mut synced = synced.iter().rev();
                synced
                    .find(|(at, _)| reached(*at))
                    .map_or(0, |(_, len)| *len)
            };
            let (least, most) = (len(&|at| at < step), len(&|at| at <= step));
            let point = images.at(step);
            for choice in point.choices(TORN) {
                let image = point.image(&choice).snapshot();
                for len in [least, (least + most) / 2, most] {
                    let device = device(&image);
                    let undone = undo(share(Arc::clone(&device)), &MemoryFile::of(&whole[..len]));
                    // Without a file, nothing has been written.
                    assert!(undone.is_ok() || len < 4096, "step {step}: {undone:?}");
                    assert!(
                        contents(&device) == before,
                        "step {step}, {len} bytes of the file"
                    );
                    states += 1;
                }
            }
        }
    }
    assert!(states > 200, "only {states} states");
}

#[test]
fn an_undo_that_is_cut_off_is_done_again() {
    let mut states = 0;
    for disk in damaged() {
        let before = contents(&disk.device);
        let file = MemoryFile::default();
        repair(disk.device(), &file, true);
        let base = disk.device.snapshot();
        let record = RecordDevice::new(disk.device());
        let log = record.log();
        undo(share(record), &file).unwrap();
        let images = CrashImages::new(base, &log);
        for step in 0..=images.last_step() {
            let point = images.at(step);
            for choice in point.choices(TORN) {
                let device = device(&point.image(&choice).snapshot());
                undo(share(Arc::clone(&device)), &file).unwrap();
                assert!(contents(&device) == before, "step {step}");
                states += 1;
            }
        }
    }
    assert!(states > 40, "only {states} states");
}

/// Both after a complete repair and after one that was cut off.
#[test]
fn a_volume_that_was_used_since_is_refused() {
    for finish in [true, false] {
        for disk in damaged() {
            let file = MemoryFile::default();
            repair(disk.device(), &file, finish);
            disk.reseal(pair_kind::VOLUME, 2, |payload| {
                let (header, _) = zerocopy::FromBytes::mut_from_prefix(payload).unwrap();
                let header: &mut VolumeHeader = header;
                header.mounts += 1;
            });
            let used = contents(&disk.device);
            let refused = undo(disk.device(), &file).unwrap_err();
            assert!(matches!(refused, UndoError::Changed { .. }), "{refused}");
            assert!(contents(&disk.device) == used);
        }
    }
}

#[test]
fn a_block_that_was_written_since_is_refused() {
    let [_, disk] = damaged();
    let file = MemoryFile::default();
    repair(disk.device(), &file, true);
    let blocks = read::contents(&file).unwrap().blocks;
    let block = *blocks.keys().find(|block| **block > 100).unwrap();
    disk.damage(block, |block| block[77] ^= 1);
    let refused = undo(disk.device(), &file).unwrap_err();
    let at = matches!(refused, UndoError::Changed { block: at } if at == block);
    assert!(at, "{refused}");
}

#[test]
fn what_is_no_file_of_this_volume_is_refused() {
    let [disk, _] = damaged();
    let file = MemoryFile::default();
    repair(disk.device(), &file, true);
    let mut other = TestVolume::new();
    other.layout.superblock.uuid = [9; 16];
    let other = other.write();
    let refused = undo(other.device(), &file).unwrap_err();
    assert!(
        matches!(refused, UndoError::OtherVolume { .. }),
        "{refused}"
    );
    let mut bytes = file.bytes();
    bytes[30] ^= 1;
    for bytes in [&b""[..], b"DUREUNDO", &[7; 9000], &bytes] {
        let refused = undo(disk.device(), &MemoryFile::of(bytes)).unwrap_err();
        assert!(matches!(refused, UndoError::NotUndo(_)), "{refused}");
    }
}

/// No room for the file: the repair fails, and what it had written by then is taken back.
#[test]
fn nothing_is_written_that_is_not_saved() {
    let [_, disk] = damaged();
    let before = contents(&disk.device);
    for room in 0..4 {
        let file = MemoryFile::default();
        file.0.lock().room = Some(room);
        let undo_device = UndoDevice::new(disk.device(), Box::new(file.clone())).unwrap();
        let error = check(share(undo_device), &FULL).unwrap_err();
        assert!(error.to_string().contains("its undo file"), "{error}");
        assert_eq!(room == 0, contents(&disk.device) == before);
        file.0.lock().room = None;
        if room > 0 {
            undo(disk.device(), &file).unwrap();
        }
        assert!(contents(&disk.device) == before);
    }
}

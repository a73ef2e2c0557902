//! Notes about blocks that say what is not so: recovery asks the slots, and what it refuses the
//! check reports.

use dure_block::ram::RamDevice;
use dure_block::share;
use dure_fs::{
    Background, Error, FileKind, FileSystem, FormatOptions, MountOptions, NewInode, Stamp,
    SyncScope,
};
use dure_store::media::Region;
use dure_store::read_layout;
use dure_sync::Arc;

use super::disk::Disk;

/// "DRtx".
const MAGIC: [u8; 4] = 0x7874_5244_u32.to_le_bytes();
const PAGES: usize = 26;

fn options(read_only: bool) -> MountOptions {
    MountOptions {
        background: Background::None,
        cache_bytes: 8 << 20,
        recovery_threads: Some(1),
        log_data_pages: 0,
        read_only,
        ..MountOptions::default()
    }
}

/// A volume that crashed behind the fsync of a file with so many pages.
fn crashed() -> Disk {
    let device = Arc::new(RamDevice::new("notes", 4096));
    let format = FormatOptions {
        journals: Some(1),
        ..FormatOptions::default()
    };
    FileSystem::format(share(Arc::clone(&device)), &format).unwrap();
    let fs = FileSystem::open(share(Arc::clone(&device)), options(false)).unwrap();
    let new = NewInode {
        mode: FileKind::File.mode() | 0o644,
        ..NewInode::default()
    };
    let file = fs.create(&fs.root().unwrap(), b"file", &new).unwrap();
    fs.write(&file, 0, &[7; PAGES * 4096], Stamp::Set).unwrap();
    fs.fsync(&file, SyncScope::All).unwrap();
    drop((file, fs));
    let region = Region::open(share(Arc::clone(&device)));
    let layout = read_layout(&region).unwrap();
    Disk { device, layout }
}

/// Changes every note about blocks in the logs, and makes the checksums right again.
fn change_notes(disk: &Disk, change: impl Fn(&mut [u8])) {
    let mut changed = 0;
    for at in disk.layout.main..disk.layout.total_blocks - 1 {
        let head = disk.get(at);
        if head[..4] != MAGIC || head[8..16] != at.to_le_bytes() {
            continue;
        }
        let count = u64::from(u32::from_le_bytes(head[68..72].try_into().unwrap()));
        let mut bytes: Vec<u8> = (at..at + count).flat_map(|at| disk.get(at)).collect();
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap()) as usize;
        let (mut from, end) = (80 + 8 * word(56), 80 + 8 * word(56) + word(60));
        while from < end {
            let len = u32::from_le_bytes(bytes[from..from + 4].try_into().unwrap()) >> 8;
            let record = &mut bytes[from..from + 4 + len as usize];
            if record[0] == 2 && record[4] == dure_store::format::note::BLOCKS {
                change(&mut record[5..]);
                changed += 1;
            }
            from += 4 + len as usize;
        }
        bytes[4..8].fill(0);
        let crc = dure_block::crc32c::crc32c_append(disk.layout.crc_seed, &bytes);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        for (at, block) in (at..).zip(bytes.chunks_exact(4096)) {
            disk.put(at, block);
        }
    }
    assert!(changed > 0, "there are notes");
}

/// Mount and check refuse it.
fn assert_refused(disk: &Disk) {
    for read_only in [false, true] {
        let mounted = FileSystem::open(disk.device(), options(read_only));
        let error = mounted.expect_err("it is refused");
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    }
    assert!(!disk.check().is_sound());
}

/// Regression: notes that did not name a block's slot left 26 blocks in use free in the space map,
/// and the check said nothing.
#[test]
fn blocks_that_no_note_names_are_live_by_their_slots() {
    let disk = crashed();
    // Each note tells of one slot beyond the one it is about.
    change_notes(&disk, |note| note[19] += 1);
    let fs = FileSystem::open(disk.device(), options(false)).unwrap();
    fs.close().unwrap();
    drop(fs);
    assert_eq!(disk.issues(), Vec::<String>::new());
}

#[test]
fn a_note_about_a_node_beyond_the_nat_is_refused_by_mount_and_check() {
    let disk = crashed();
    change_notes(&disk, |note| {
        note[8..16].copy_from_slice(&(1_u64 << 40).to_le_bytes())
    });
    assert_refused(&disk);
}

#[test]
fn a_note_about_blocks_outside_is_refused_by_mount_and_check() {
    for block in [0, 5, 1 << 47] {
        let disk = crashed();
        change_notes(&disk, |note| {
            note[..8].copy_from_slice(&u64::to_le_bytes(block))
        });
        assert_refused(&disk);
    }
}

/// Regression: even a read-only mount refused it, though summaries are hints.
#[test]
fn a_reserved_byte_of_a_summary_refuses_no_mount() {
    let disk = crashed();
    let fs = FileSystem::open(disk.device(), options(true)).unwrap();
    let image = fs
        .store()
        .nat
        .entry(dure_store::units::Ino::ROOT.nid())
        .unwrap()
        .block();
    drop(fs);
    // Recovery asks the summary whose the block is: a note names it, and the note's slot does not.
    change_notes(&disk, |note| {
        note[..8].copy_from_slice(&image.0.to_le_bytes());
    });
    let (segment, index) = disk.layout.locate(image).unwrap();
    let pair = index / dure_store::format::summary::ENTRIES;
    let at = 16 + 12 * (index % dure_store::format::summary::ENTRIES) as usize;
    let mut dirty = 0;
    for slot in 0..2 {
        let block = disk.layout.summary_pair(segment, pair) + slot;
        if !dure_store::units::is_zero(&disk.get(block)) {
            disk.forge(block, at + 11, &[1]);
            dirty += 1;
        }
    }
    assert!(dirty > 0 && !disk.check().is_sound());
    for read_only in [true, false] {
        let fs = FileSystem::open(disk.device(), options(read_only)).unwrap();
        let file = fs.lookup(&fs.root().unwrap(), b"file").unwrap().unwrap();
        let mut bytes = vec![0; PAGES * 4096];
        let read = fs.read(&file, 0, &mut bytes, dure_fs::ReadMode::Cached);
        assert_eq!(read.unwrap(), bytes.len());
        assert!(bytes.iter().all(|byte| *byte == 7));
        drop(file);
        fs.close().unwrap();
    }
}

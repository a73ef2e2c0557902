//! What the fuzz targets do with their input; `crates/dure-fs/tests/it/hostile.rs` does the same.
//!
//! Random bytes never pass a checksum, so each body makes checksums, magics and addresses right
//! first: an enemy would.

use dure_block::ram::{Image, RamDevice};
use dure_block::{BLOCK_BYTES, Device, Io, Lba, Media, QueueConfig, WriteFlags, share};
use dure_check::dump::{What, dump};
use dure_check::{CheckOptions, Data, Repair, check};
use dure_fs::format::node::{MAGIC, NodeImage};
use dure_fs::format::superblock::SuperBlock;
use dure_fs::units::{BlockNo, Ino, Nid, SegNo};
use dure_fs::{
    AllocateMode, Background, Error, FileKind, FileSystem, FormatOptions, InodeRef, Layout,
    MountOptions, NewInode, ReadMode, RenameMode, SeekTarget, SetAttributes, Stamp, SyncScope,
    XattrMode,
};
use dure_journal::format::{JournalHeader, TailPosition};
use dure_journal::recovery::{LogLayout, scan};
use dure_journal::{JournalId, LogMedium, Rules};
use dure_sync::{Arc, OnceLock};
use std::ops::ControlFlow;

/// `data` as one block, zeroes behind it.
fn block_of(data: &[u8]) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    let len = data.len().min(BLOCK_BYTES);
    block[..len].copy_from_slice(&data[..len]);
    block
}

/// Puts the checksum of `bytes` into the field at `field`.
fn seal(bytes: &mut [u8], field: usize, seed: u32) {
    bytes[field..field + 4].fill(0);
    let crc = dure_block::crc32c::crc32c_append(seed, bytes);
    bytes[field..field + 4].copy_from_slice(&crc.to_le_bytes());
}

/// A superblock and its layout.
pub(crate) fn superblock(data: &[u8]) {
    let template = Layout::plan(4096, &FormatOptions::default(), 4)
        .expect("the template is sound")
        .superblock;
    let mut block = template.seal(0).to_vec();
    for (byte, change) in block[12..].iter_mut().zip(data) {
        *byte ^= change;
    }
    seal(&mut block, 8, 0);
    if let Ok(layout) = SuperBlock::open(&block, 0).and_then(Layout::from_superblock) {
        assert!(layout.main < layout.total_blocks, "the layout was checked");
        assert_eq!(layout.locate(BlockNo(layout.main)), Some((SegNo(0), 0)));
    }
}

/// A node image.
pub(crate) fn node(data: &[u8]) {
    let mut block = block_of(data);
    block[..4].copy_from_slice(&MAGIC.to_le_bytes());
    block[8..16].copy_from_slice(&5_u64.to_le_bytes());
    block[16..24].copy_from_slice(&9_u64.to_le_bytes());
    seal(&mut block, 4, 7);
    if let Ok(image) = NodeImage::open(&block, Nid(5), BlockNo(9), 7) {
        let mut again = vec![0; BLOCK_BYTES];
        image.seal(&mut again, Nid(5), BlockNo(9), 1, 7);
        let reopened =
            NodeImage::open(&again, Nid(5), BlockNo(9), 7).expect("the template is sound");
        assert_eq!(
            image.versions().zip(image.payloads()).collect::<Vec<_>>(),
            reopened
                .versions()
                .zip(reopened.payloads())
                .collect::<Vec<_>>()
        );
    }
}

fn put(device: &RamDevice, lba: u64, bytes: &[u8]) {
    let io = Io::Write {
        lba: Lba::new(lba),
        parts: &[bytes],
        flags: WriteFlags::NONE,
    };
    device.execute(io).expect("the template is sound");
}

fn get(device: &RamDevice, lba: u64) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    device
        .execute(Io::Read {
            lba: Lba::new(lba),
            out: &mut block,
        })
        .expect("the template is sound");
    block
}

/// A log of one journal: the first byte says where the second transaction lies, the rest is what
/// the transactions hold.
pub(crate) fn log(data: &[u8]) {
    let device = RamDevice::new("log", 64);
    let segments = [Lba::new(8), Lba::new(16)];
    let header = JournalHeader {
        epoch: 1,
        journal: JournalId::new(0).expect("the template is sound"),
        generation: 1,
        segment_blocks: 8,
        tail: TailPosition {
            segment: 0,
            offset: 0,
            sequence: 1,
            number: 1,
        },
        durable_upto: 0,
        checkpoint: 0,
        segments: segments.to_vec(),
    };
    let mut block = vec![0; BLOCK_BYTES];
    let at = header.seal(&mut block, Lba::new(0), 3);
    put(&device, at.number(), &block);
    let (first, rest) = data.split_first().unwrap_or((&0, &[]));
    let places = [8, [9, 16, 10, 8][usize::from(first % 4)]];
    for (sequence, (at, content)) in
        (1_u64..).zip(places.into_iter().zip(rest.chunks(rest.len() / 2 + 1)))
    {
        put(&device, at, &transaction(at, sequence, content));
    }
    let layout = LogLayout {
        seed: 3,
        segment_blocks: 8,
        first_number: 1,
        device_blocks: 64,
        headers: vec![Lba::new(0)],
        clean: false,
        rules: Rules::default(),
    };
    let medium = LogMedium::on(Media::open(share(device), QueueConfig::default()));
    if let Ok(mut scan) = scan(&medium, &layout, 1, 1) {
        let survivors = scan.survivors();
        assert_eq!(survivors.len(), scan.transactions().len());
        if !survivors.is_empty() {
            scan.discard(0);
            assert!(!scan.survivors()[0]);
        }
    }
}

/// One block that a scan takes for transaction `sequence`: handle number = sequence, everything
/// else as `content` has it.
fn transaction(at: u64, sequence: u64, content: &[u8]) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    let mut word =
        |field: usize, bytes: &[u8]| block[field..field + bytes.len()].copy_from_slice(bytes);
    word(0, &0x7874_5244_u32.to_le_bytes());
    word(8, &at.to_le_bytes());
    word(16, &1_u64.to_le_bytes());
    word(24, &sequence.to_le_bytes());
    word(32, &sequence.to_le_bytes());
    word(40, &sequence.to_le_bytes());
    let marks = u32::from(content.first().copied().unwrap_or(0) % 8);
    word(56, &marks.to_le_bytes());
    let records = content.len().min(3000);
    word(
        60,
        &u32::try_from(records)
            .expect("the template is sound")
            .to_le_bytes(),
    );
    word(64, &1_u32.to_le_bytes());
    word(68, &1_u32.to_le_bytes());
    let start = 80 + 8 * usize::try_from(marks).expect("the template is sound");
    word(start, &content[..records]);
    seal(&mut block, 4, 3);
    block
}

fn options() -> MountOptions {
    MountOptions {
        background: Background::None,
        cache_bytes: 1 << 20,
        recovery_threads: Some(1),
        ..MountOptions::default()
    }
}

/// A clean volume with a little of everything, and the same one crashed with work in its logs.
fn templates() -> &'static [Image; 2] {
    static TEMPLATES: OnceLock<[Image; 2]> = OnceLock::new();
    TEMPLATES.get_or_init(|| {
        let device = Arc::new(RamDevice::new("template", 1024));
        let format = FormatOptions {
            journals: Some(1),
            uuid: Some([9; 16]),
            ..Default::default()
        };
        FileSystem::format(share(Arc::clone(&device)), &format).expect("the template is sound");
        let fs =
            FileSystem::open(share(Arc::clone(&device)), options()).expect("the template is sound");
        fill(&fs, "first");
        fs.close().expect("the template is sound");
        let clean = device.snapshot();
        let fs =
            FileSystem::open(share(Arc::clone(&device)), options()).expect("the template is sound");
        fill(&fs, "second");
        fs.sync().expect("the template is sound");
        drop(fs);
        [clean, device.snapshot()]
    })
}

fn fill(fs: &FileSystem, prefix: &str) {
    let root = fs.root().expect("the template is sound");
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let name = |rest: &str| format!("{prefix}-{rest}").into_bytes();
    let directory = fs
        .mkdir(&root, &name("directory"), &new)
        .expect("the template is sound");
    for n in 0..20 {
        let file = fs
            .create(&directory, &name(&n.to_string()), &new)
            .expect("the template is sound");
        fs.write(&file, n * 30_000, &[1; 5000], Stamp::Set)
            .expect("the template is sound");
    }
    fs.symlink(&root, &name("link"), &[b'l'; 1000], &new)
        .expect("the template is sound");
    let file = fs
        .lookup(&directory, &name("3"))
        .expect("the template is sound")
        .expect("the template is sound");
    fs.link(&file, &root, &name("again"))
        .expect("the template is sound");
    fs.set_xattr(&file, b"user.x", &[2; 5000], dure_fs::XattrMode::Any)
        .expect("the template is sound");
    fs.unlink(&directory, &name("4"))
        .expect("the template is sound");
}

/// Eight bytes: which block, where in it, what, flags, more of what, and how it is meant. Flags: 1
/// the checksum is made right again, 2 the next byte too, 4 a whole field, 8 a block that is in
/// use.
fn patch(device: &RamDevice, layout: &Layout, used: &[u64], bytes: &[u8; 8]) {
    let word = |at: usize| u64::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let mut block = word(0) % layout.total_blocks;
    if bytes[5] & 8 != 0 && !used.is_empty() {
        block = used[usize::try_from(word(0)).expect("16 bits") % used.len()];
    }
    let at = usize::try_from(word(2)).expect("16 bits") % BLOCK_BYTES;
    let mut content = get(device, block);
    if bytes[5] & 4 != 0 {
        set_field(&mut content, layout, at, bytes);
    } else {
        content[at] = bytes[4];
        if bytes[5] & 2 != 0 && at + 1 < BLOCK_BYTES {
            content[at + 1] = bytes[6];
        }
    }
    put(device, block, &content);
    if bytes[5] & 1 != 0 {
        reseal(device, layout, block, content);
    }
}

/// Sets an aligned field of 1, 2, 4 or 8 bytes to a small number, near what is there, near the
/// largest one, or to a block of the main area.
fn set_field(content: &mut [u8], layout: &Layout, at: usize, bytes: &[u8; 8]) {
    let width = 1 << (bytes[7] & 3);
    let field = &mut content[at / width * width..][..width];
    let mut whole = [0; 8];
    whole[..width].copy_from_slice(field);
    let number = u64::from(u16::from_le_bytes([bytes[4], bytes[6]]));
    let value = match bytes[7] >> 2 & 3 {
        0 => number,
        1 => u64::from_le_bytes(whole)
            .wrapping_add(number)
            .wrapping_sub(128),
        2 => u64::MAX - number,
        _ => layout.main + number % (layout.total_blocks - layout.main),
    };
    field.copy_from_slice(&value.to_le_bytes()[..width]);
}

/// Puts the checksum of `block` right, whatever kind of block it is.
fn reseal(device: &RamDevice, layout: &Layout, block: u64, mut content: Vec<u8>) {
    let superblock = block == 0 || block == layout.total_blocks - 1;
    if superblock {
        seal(&mut content, 8, 0);
        return put(device, block, &content);
    }
    // A transaction of the log has one checksum over all its blocks, in the first.
    for first in (block.saturating_sub(63)..=block).rev() {
        let head = get(device, first);
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let blocks = u64::from(word(64));
        if word(0) == 0x7874_5244 && blocks <= 64 && first + blocks > block {
            let last = (first + blocks).min(layout.total_blocks);
            let mut all: Vec<u8> = (first..last).flat_map(|at| get(device, at)).collect();
            seal(&mut all, 4, layout.crc_seed);
            return put(device, first, &all);
        }
    }
    seal(&mut content, 4, layout.crc_seed);
    put(device, block, &content);
}

/// The blocks of a template that hold something.
fn used(which: usize) -> &'static [u64] {
    static USED: OnceLock<[Vec<u64>; 2]> = OnceLock::new();
    let of = |image: &Image| {
        let device = RamDevice::from_image("used", image);
        let blocks = 0..device.info().blocks;
        blocks
            .filter(|&block| get(&device, block).iter().any(|&byte| byte > 1))
            .collect()
    };
    &USED.get_or_init(|| [of(&templates()[0]), of(&templates()[1])])[which]
}

/// Everything a user does, on a volume that may be anything: each call may fail, none may panic or
/// hang.
fn use_hostile(device: &RamDevice, read_only: bool) {
    let copy = RamDevice::from_image("hostile", &device.snapshot());
    let options = MountOptions {
        read_only,
        ..options()
    };
    let Ok(fs) = FileSystem::open(share(copy), options) else {
        return;
    };
    let _ = visit(&fs);
    let _ = fs.checkpoint_now();
    let _ = change(&fs);
    let _ = fs.background_now();
    let _ = visit(&fs);
    let _ = fs.statistics();
    let _ = fs.close();
}

/// Inodes looked at in one visit; a damaged tree may have cycles.
const VISITS_MAX: usize = 120;

/// Walks the tree; reads, and changes every third file.
fn visit(fs: &FileSystem) -> Result<(), Error> {
    let mut todo = vec![fs.root()?.ino()];
    let mut at = 0;
    while at < todo.len() && at < VISITS_MAX {
        let ino = todo[at];
        at += 1;
        let Ok(inode) = fs.inode(ino) else { continue };
        let _ = fs.attributes(&inode);
        let _ = fs.list_xattr(&inode);
        let _ = fs.get_xattr(&inode, b"user.x");
        match inode.kind() {
            FileKind::Directory => {
                let mut names = Vec::new();
                let _ = fs.read_directory(&inode, 0, &mut |entry| {
                    names.push((entry.name.to_vec(), entry.ino));
                    match names.len() < VISITS_MAX {
                        true => ControlFlow::Continue(()),
                        false => ControlFlow::Break(()),
                    }
                });
                for (n, (name, ino)) in names.iter().enumerate() {
                    let _ = fs.lookup(&inode, name);
                    todo.push(*ino);
                    if n % 5 == 4 {
                        let _ = fs.unlink(&inode, name);
                        let _ = fs.rmdir(&inode, name);
                    }
                    if n % 7 == 3 {
                        let _ = fs.rename(&inode, name, &inode, b"moved", RenameMode::Replace);
                    }
                }
            }
            FileKind::File => touch(fs, &inode, at),
            FileKind::Symlink => drop(fs.read_link(&inode)),
            _ => {}
        }
    }
    Ok(())
}

/// Reads a file and changes it in one of several ways.
fn touch(fs: &FileSystem, file: &InodeRef, n: usize) {
    let mut buf = vec![0; 20_000];
    for offset in [0, 30_000, 300_000] {
        let _ = fs.read(file, offset, &mut buf, ReadMode::Cached);
    }
    let size = fs.attributes(file).map_or(0, |attributes| attributes.size);
    let _ = fs.read(file, size.saturating_sub(5000), &mut buf, ReadMode::Bypass);
    let _ = fs.seek(file, size.saturating_sub(40_000), SeekTarget::Data);
    let _ = fs.seek(file, 0, SeekTarget::Hole);
    let cut = |size| SetAttributes {
        size: Some(size),
        ..SetAttributes::default()
    };
    match n % 6 {
        0 => drop(fs.write(file, 0, &[7; 9000], Stamp::Set)),
        1 => drop(fs.set_attributes(file, &cut(100))),
        2 => drop(fs.append(file, &[8; 100])),
        3 => drop(fs.allocate(file, AllocateMode::Punch, 0, 600_000)),
        4 => drop(fs.allocate(file, AllocateMode::Extend, 0, 100_000)),
        _ => drop(fs.set_xattr(file, b"user.y", &[3; 300], XattrMode::Any)),
    }
    let _ = fs.fsync(file, SyncScope::All);
}

/// Makes, overwrites and removes files.
fn change(fs: &FileSystem) -> Result<(), Error> {
    let root = fs.root()?;
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let directory = fs.mkdir(&root, b"hostile", &new);
    for n in 0..30_u64 {
        let parent = directory.as_ref().unwrap_or(&root);
        if let Ok(file) = fs.create(parent, format!("file-{n}").as_bytes(), &new) {
            let _ = fs.write(&file, n * 10_000, &[5; 9000], Stamp::Set);
            if n % 4 == 0 {
                let _ = fs.fsync(&file, SyncScope::Data);
            }
        }
        if n % 3 == 2 {
            let _ = fs.unlink(parent, format!("file-{}", n - 1).as_bytes());
        }
    }
    let _ = fs.symlink(&root, b"hostile-link", &[b'l'; 2000], &new);
    let _ = fs.sync();
    if let Ok(directory) = directory {
        for n in 0..15_u64 {
            let _ = fs.unlink(&directory, format!("file-{n}").as_bytes());
        }
    }
    fs.sync()
}

/// Patches of a small volume, then everything that reads one.
pub(crate) fn volume(data: &[u8]) {
    let (which, patches) = data.split_first().unwrap_or((&0, &[]));
    let device = Arc::new(RamDevice::from_image(
        "volume",
        &templates()[usize::from(which % 2)],
    ));
    let shared = || share(Arc::clone(&device));
    let superblock = SuperBlock::open(&get(&device, 0), 0).expect("the template is sound");
    let layout = Layout::from_superblock(superblock).expect("the template is sound");
    for bytes in patches.as_chunks::<8>().0.iter().take(64) {
        patch(&device, &layout, used(usize::from(which % 2)), bytes);
    }
    use_hostile(&device, true);
    use_hostile(&device, false);
    let verify = CheckOptions {
        data: Data::Verify,
        ..CheckOptions::default()
    };
    let sound = check(shared(), &verify).is_ok_and(|report| report.is_sound());
    for what in [
        What::Superblock,
        What::VolumeHeader,
        What::Journals,
        What::Log(None),
        What::Node(Nid(3)),
        What::Directory(Ino(1)),
        What::Segment(SegNo(3)),
        What::Block(BlockNo(layout.main)),
    ] {
        let _ = dump(shared(), what, &mut String::new());
    }
    let _ = check(
        shared(),
        &CheckOptions {
            repair: Repair::Safe,
            ..CheckOptions::default()
        },
    );
    if sound {
        // What the check calls sound must mount, and be sound afterwards.
        let fs = FileSystem::open(shared(), options()).expect("the template is sound");
        fill(&fs, "third");
        fs.close().expect("the template is sound");
        let after = check(shared(), &verify).expect("the template is sound");
        assert!(
            after.is_sound(),
            "use of a sound volume broke it: {:?}",
            after.issues()
        );
    }
}

//! The volumes that are damaged: one of everything, cleanly unmounted or crashed.

use dure_block::ram::{Image, RamDevice};
use dure_block::share;
use dure_fs::{
    AllocateMode, Background, FileKind, FileSystem, FormatOptions, InodeRef, MountOptions,
    NewInode, Result, SetAttributes, Stamp, SyncScope, XattrMode,
};
use dure_sync::{Arc, ProcessOnce};

use super::found::Found;

const BLOCKS: u64 = 2048;
/// Long enough for an absolute path of a scratch directory.
pub(super) const LONG_NAME: usize = 120;

/// Names of files that only a last transaction made.
pub(super) const LAST: &str = "last-";

/// A volume before the damage.
#[derive(Debug)]
pub(super) struct Base {
    /// How it was made.
    pub(super) name: &'static str,
    /// The medium.
    pub(super) image: Image,
    /// What is on it; all of it was synced.
    pub(super) found: Found,
}

/// Mount options of all mounts here: nothing runs in the background, little memory.
pub(super) fn options(read_only: bool) -> MountOptions {
    MountOptions {
        read_only,
        background: Background::None,
        cache_bytes: 2 << 20,
        recovery_threads: Some(1),
        ..MountOptions::default()
    }
}

/// All bases, made once.
pub(super) fn bases() -> &'static [Base] {
    static BASES: ProcessOnce<Vec<Base>> = ProcessOnce::new();
    BASES.get_or_init(|| make().expect("nothing fails on a sound volume in memory"))
}

fn make() -> Result<Vec<Base>> {
    let device = Arc::new(RamDevice::new("base", BLOCKS));
    let format = FormatOptions {
        // One log, so that what comes later in it proves that what was before was durable.
        journals: Some(1),
        uuid: Some([7; 16]),
        ..FormatOptions::default()
    };
    FileSystem::format(share(Arc::clone(&device)), &format)?;
    let open = || FileSystem::open(share(Arc::clone(&device)), options(false));
    let fs = open()?;
    fill(&fs, "first", 3)?;
    fs.close()?;
    let mut bases = vec![base("clean", &device)?];
    // A crash with everything in the logs.
    let fs = open()?;
    fill(&fs, "second", 5)?;
    fs.sync()?;
    prove(&fs, 1)?;
    drop(fs);
    bases.push(base("crashed", &device)?);
    // A crash behind a checkpoint, with an unlinked file in use.
    let fs = open()?;
    fill(&fs, "third", 9)?;
    fs.checkpoint_now()?;
    change(&fs, "first")?;
    let open_file = file(&fs, &fs.root()?, b"unlinked", 90_000, 1)?;
    fs.unlink(&fs.root()?, b"unlinked")?;
    fs.sync()?;
    prove(&fs, 2)?;
    drop(open_file);
    drop(fs);
    bases.push(base("crashed behind a checkpoint", &device)?);
    let fs = open()?;
    fs.close()?;
    bases.push(base("recovered", &device)?);
    Ok(bases)
}

/// Adds one more transaction, which proves that all before it were durable: a loss of those is rot,
/// whereas a crash may lose the last one.
fn prove(fs: &FileSystem, n: u8) -> Result<()> {
    fs.create(
        &fs.root()?,
        format!("{LAST}{n}").as_bytes(),
        &new(0o100_644),
    )?;
    fs.sync()
}

fn base(name: &'static str, device: &Arc<RamDevice>) -> Result<Base> {
    let image = device.snapshot();
    let copy = RamDevice::from_image("base", &image);
    let fs = FileSystem::open(share(copy), options(true))?;
    let found = Found::read(&fs)?;
    let wrong: Vec<_> = found.errors().collect();
    assert!(wrong.is_empty() && found.len() > 50, "{name}: {wrong:?}");
    Ok(Base { name, image, found })
}

fn new(mode: u32) -> NewInode {
    NewInode {
        mode,
        ..NewInode::default()
    }
}

fn file(fs: &FileSystem, dir: &InodeRef, name: &[u8], len: usize, key: u64) -> Result<InodeRef> {
    let inode = fs.create(dir, name, &new(0o100_644))?;
    let content: Vec<u8> = (0_u64..).zip(0..len).map(|(at, _)| byte(key, at)).collect();
    fs.write(&inode, 0, &content, Stamp::Set)?;
    Ok(inode)
}

/// Pages of a file differ, and so do files.
fn byte(key: u64, at: u64) -> u8 {
    (key.wrapping_mul(0x9e37_79b9) ^ at.wrapping_mul(0x0101_0000_01b3) >> 7).to_le_bytes()[0]
}

/// Files of many sizes, holes, maps, links, attributes, a directory of some levels.
fn fill(fs: &FileSystem, prefix: &str, key: u64) -> Result<()> {
    let root = fs.root()?;
    let dir = fs.mkdir(&root, prefix.as_bytes(), &new(0o40_755))?;
    for (n, len) in (0_u64..).zip([0, 1, 100, 4096, 5000, 20_000, 98_304, 120_000, 300_000]) {
        file(fs, &dir, format!("file-{n}").as_bytes(), len, key + n)?;
    }
    let sparse = file(fs, &dir, b"sparse", 5000, key)?;
    for offset in [1 << 20, 40 << 20, 900 << 20] {
        fs.write(&sparse, offset, &[7; 9000], Stamp::Set)?;
    }
    let allocated = file(fs, &dir, b"allocated", 3000, key)?;
    fs.allocate(&allocated, AllocateMode::Extend, 0, 60_000)?;
    let many = fs.mkdir(&dir, b"many", &new(0o40_755))?;
    for n in 0..90 {
        file(fs, &many, format!("entry-{n:030}").as_bytes(), 10, n)?;
    }
    for name in ["a", "bc", "def", "ghij"] {
        file(fs, &dir, name.as_bytes(), 50, key)?;
    }
    file(fs, &dir, &[b'L'; LONG_NAME], 60, key)?;
    fs.symlink(&dir, b"short", b"file-3", &new(0o120_777))?;
    fs.symlink(&dir, b"long", &[b'l'; 900], &new(0o120_777))?;
    fs.create(&dir, b"fifo", &new(0o010_600))?;
    let linked = file(fs, &dir, b"linked", 700, key)?;
    fs.link(&linked, &root, format!("{prefix}-linked").as_bytes())?;
    fs.set_xattr(&linked, b"user.small", b"value", XattrMode::Any)?;
    let large = file(fs, &dir, b"attributes", 10, key)?;
    for n in 0..3_u8 {
        let name = format!("user.n{n}");
        fs.set_xattr(&large, name.as_bytes(), &[n; 6000], XattrMode::Any)?;
    }
    fs.fsync(&large, SyncScope::All)
}

/// Overwrites, truncates, moves and removes, so that the logs change what tables name.
fn change(fs: &FileSystem, prefix: &str) -> Result<()> {
    let root = fs.root()?;
    let Some(dir) = fs.lookup(&root, prefix.as_bytes())? else {
        return Ok(());
    };
    for n in [3, 6, 8] {
        if let Some(file) = fs.lookup(&dir, format!("file-{n}").as_bytes())? {
            assert!(file.kind() == FileKind::File, "it was made as one");
            fs.write(&file, 2000, &[0xee; 9000], Stamp::Set)?;
            fs.fsync(&file, SyncScope::Data)?;
        }
    }
    if let Some(file) = fs.lookup(&dir, b"file-7")? {
        let size = Some(70_000);
        let cut = SetAttributes {
            size,
            ..SetAttributes::default()
        };
        fs.set_attributes(&file, &cut)?;
    }
    fs.unlink(&dir, b"file-5")?;
    fs.sync()
}

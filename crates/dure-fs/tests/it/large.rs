//! Large volumes: what mkfs, mount and check read and write depends on what is in use, not on the
//! size; and what an earlier volume left on the medium is never taken for a table.

use dure_block::ram::RamDevice;
use dure_block::{Device, DeviceInfo, Io, Op, Result, share};
use dure_check::{CheckOptions, check};
use dure_fs::{
    Background, FileSystem, FormatOptions, MountOptions, NewInode, ReadMode, Stamp, SyncScope,
};
use dure_sync::Arc;
use dure_sync::atomic::{AtomicU64, Ordering};

const TIB_BLOCKS: u64 = 1 << 28;

/// Counts blocks.
#[derive(Debug)]
struct Counted {
    inner: RamDevice,
    read: AtomicU64,
    written: AtomicU64,
}

impl Device for Counted {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn execute(&self, io: Io<'_>) -> Result<()> {
        let blocks = io.blocks();
        match io.op() {
            Op::Read => self.read.fetch_add(blocks, Ordering::Relaxed),
            Op::Write => self.written.fetch_add(blocks, Ordering::Relaxed),
            _ => 0,
        };
        self.inner.execute(io)
    }
}

fn device(blocks: u64) -> Arc<Counted> {
    Arc::new(Counted {
        inner: RamDevice::new("large", blocks),
        read: AtomicU64::new(0),
        written: AtomicU64::new(0),
    })
}

impl Counted {
    fn blocks(&self) -> (u64, u64) {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        (take(&self.read), take(&self.written))
    }
}

fn mount(device: &Arc<Counted>) -> FileSystem {
    let options = MountOptions {
        background: Background::None,
        cache_bytes: 16 << 20,
        recovery_threads: Some(1),
        ..MountOptions::default()
    };
    FileSystem::open(share(Arc::clone(device)), options).expect("a good volume")
}

fn format(device: &Arc<Counted>) {
    let options = FormatOptions {
        journals: Some(16),
        ..FormatOptions::default()
    };
    FileSystem::format(share(Arc::clone(device)), &options).expect("room");
}

fn expect_sound(device: &Arc<Counted>) {
    let report = check(share(Arc::clone(device)), &CheckOptions::default()).expect("a superblock");
    assert!(report.is_spotless(), "{:?}", report.issues());
}

#[test]
fn a_volume_of_100_tib_costs_what_is_in_use() {
    let mut costs = Vec::new();
    for tib in [1, 100] {
        let device = device(tib * TIB_BLOCKS);
        format(&device);
        let made = device.blocks();
        let fs = mount(&device);
        let mounted = device.blocks();
        assert!(fs.statistics().blocks > tib * (TIB_BLOCKS - TIB_BLOCKS / 20));
        fs.close().expect("a good device");
        device.blocks();
        expect_sound(&device);
        let checked = device.blocks();
        assert!(
            made.0 + made.1 < 500 && mounted.0 + mounted.1 < 2000,
            "{made:?} {mounted:?}"
        );
        assert!(checked.0 < 2000 && checked.1 == 0, "{checked:?}");
        costs.push((made, mounted, checked));
    }
    // Which core makes the volume decides which pairs of the SIT are the first in use.
    let all = |n: usize| {
        let ((a, b), (c, d), (e, f)) = costs[n];
        a + b + c + d + e + f
    };
    assert!(
        all(0).abs_diff(all(1)) < 200,
        "1 TiB and 100 TiB: {costs:?}"
    );
}

/// Files `from ..` with their number as content, of which some are synced.
fn fill(fs: &FileSystem, from: u32, count: u32) {
    let root = fs.root().expect("a root");
    let new = NewInode {
        mode: 0o100_600,
        ..NewInode::default()
    };
    for n in from..from + count {
        let name = format!("{n}");
        let file = fs.create(&root, name.as_bytes(), &new).expect("room");
        fs.write(&file, 0, &n.to_le_bytes(), Stamp::Set)
            .expect("room");
        if n % 500 == 0 {
            fs.fsync(&file, SyncScope::All).expect("a good device");
        }
    }
    fs.sync().expect("a good device");
}

/// Every table grows over what an earlier volume left in it, across checkpoints and a crash.
#[test]
fn what_lies_in_tables_that_were_never_written_is_not_believed() {
    let device = device(1 << 21);
    format(&device);
    let fs = mount(&device);
    fill(&fs, 0, 3000);
    fs.close().expect("a good device");
    format(&device);
    expect_sound(&device);
    let fs = mount(&device);
    fill(&fs, 10_000, 1000);
    // Nothing is unmounted: a crash.
    drop(fs);
    let fs = mount(&device);
    fill(&fs, 11_000, 1000);
    fs.close().expect("a good device");
    expect_sound(&device);
    let fs = mount(&device);
    let root = fs.root().expect("a root");
    for n in 10_000..12_000_u32 {
        let name = format!("{n}");
        let file = fs.lookup(&root, name.as_bytes()).expect("a lookup");
        let mut bytes = [0; 4];
        fs.read(&file.expect("the name"), 0, &mut bytes, ReadMode::Cached)
            .expect("a read");
        assert_eq!(bytes, n.to_le_bytes());
    }
    assert!(fs.lookup(&root, b"7").expect("a lookup").is_none());
}

//! Any machine recovers the same tree from a crash: with 1, 2 and 64 threads, with NUMA nodes that
//! are others than those the volume was made on, in every profile.

use dure_block::nvm::NvmDevice;
use dure_block::ram::RamDevice;
use dure_block::{BLOCK_BYTES, Device, Lba, Queue, QueueConfig, WriteFlags, share};
use dure_fs::members::{Member, join};
use dure_fs::{
    FileSystem, FormatOptions, NodeLog, Numa, NumaPolicy, NvmRegion, ReadMode, Stamp, SyncScope,
};
use dure_pmem::Region;
use dure_sync::{Arc, Topology};

use crate::numa::{file, mount_options, numa, two_cores_write, two_nodes};

const FILES: u64 = 40;

/// On which media a volume is, and how it is mounted.
#[derive(Debug, Clone, Copy)]
struct Profile {
    /// Blocks and node of each region of persistent memory.
    regions: &'static [(u64, u32)],
    /// Blocks of the disk, if it has one.
    disk: Option<u64>,
    node_log: NodeLog,
    /// Mount options.
    options: &'static [(&'static str, &'static str)],
}

const IN_NVM: Profile = Profile {
    regions: &[(2048, 0), (1024, 1), (2048, 0)],
    disk: None,
    node_log: NodeLog::Nvm,
    options: &[],
};
const BESIDE_NVM: Profile = Profile {
    regions: &[(2048, 0), (1024, 1)],
    disk: Some(2048),
    ..IN_NVM
};

/// What a medium is, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Nvm,
    Disk,
}

/// The media of a volume, the last of which gives it its name.
struct Media(Vec<(Kind, Arc<dyn Device>)>);

fn medium(kind: Kind, blocks: u64) -> (Kind, Arc<dyn Device>) {
    let device = match kind {
        Kind::Nvm => {
            let bytes = usize::try_from(blocks).expect("few") * BLOCK_BYTES;
            let region = Region::anonymous(bytes).expect("memory");
            share(NvmDevice::in_memory("nvm", region))
        }
        Kind::Disk => share(RamDevice::new("disk", blocks)),
    };
    (kind, device)
}

impl Media {
    fn new(profile: Profile, numa: &Numa) -> Media {
        let regions = profile.regions.iter();
        let regions = regions.map(|(blocks, _)| medium(Kind::Nvm, *blocks));
        let disk = profile.disk.map(|blocks| medium(Kind::Disk, blocks));
        let media = Media(regions.chain(disk).collect());
        let ((kind, last), others) = media.0.split_last().expect("a medium");
        let region = |(n, (_, device)): (usize, &(Kind, Arc<dyn Device>))| NvmRegion {
            device: device.clone(),
            path: format!("nvm{n}"),
            node: profile.regions[n].1,
        };
        let format = FormatOptions {
            journals: Some(4),
            segment_blocks: Some(32),
            nvm: others.iter().enumerate().map(region).collect(),
            device_node: (*kind == Kind::Nvm).then(|| profile.regions[others.len()].1),
            node_log: profile.node_log,
            numa: numa.clone(),
            ..FormatOptions::default()
        };
        FileSystem::format(last.clone(), &format).expect("room");
        media
    }

    fn device(&self) -> Arc<dyn Device> {
        let member = |(n, (_, device)): (usize, &(Kind, Arc<dyn Device>))| Member {
            device: device.clone(),
            path: format!("medium {n}"),
        };
        let members: Vec<_> = self.0.iter().enumerate().map(member).collect();
        join(&members).expect("all media")
    }

    fn copy(&self) -> Media {
        let copy = |(kind, device): &(Kind, Arc<dyn Device>)| {
            let from = Queue::new(device.clone(), QueueConfig::default());
            let blocks = from.info().blocks;
            let new = medium(*kind, blocks);
            let to = Queue::new(new.1.clone(), QueueConfig::default());
            let mut bytes = [0; BLOCK_BYTES];
            for block in 0..blocks {
                from.read(Lba::new(block), &mut bytes).expect("memory");
                to.write(Lba::new(block), &bytes, WriteFlags::NONE)
                    .expect("memory");
            }
            new
        };
        Media(self.0.iter().map(copy).collect())
    }

    fn mount(&self, profile: Profile, numa: &Numa, recovery_threads: usize) -> FileSystem {
        let mut options = mount_options(numa, recovery_threads);
        for (key, value) in profile.options {
            assert_eq!(options.set_policy(key, value), Ok(true), "{key}={value}");
        }
        FileSystem::open(self.device(), options).expect("it mounts")
    }
}

/// Names and content of all files.
fn tree(fs: &FileSystem) -> Vec<(Vec<u8>, Vec<u8>)> {
    let root = fs.root().expect("a root");
    let mut names = Vec::new();
    fs.read_directory(&root, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        std::ops::ControlFlow::Continue(())
    })
    .expect("a listing");
    let content = |name: Vec<u8>| {
        let file = fs.lookup(&root, &name).expect("a lookup").expect("a file");
        let size = fs.attributes(&file).expect("attributes").size;
        let mut bytes = vec![0; usize::try_from(size).expect("small")];
        fs.read(&file, 0, &mut bytes, ReadMode::Cached)
            .expect("a read");
        (name, bytes)
    };
    names.sort();
    names.into_iter().map(content).collect()
}

/// The volume goes on.
fn write_more(fs: &FileSystem) {
    let file = file(fs, "after");
    fs.write(&file, 0, &[7; 5000], Stamp::Set).expect("room");
    fs.fsync(&file, SyncScope::All).expect("it is durable");
}

fn any_machine_recovers(profile: Profile) {
    let made = numa(NumaPolicy::Local, two_nodes());
    let media = Media::new(profile, &made);
    let fs = media.mount(profile, &made, 1);
    two_cores_write(&fs, FILES);
    let expected = tree(&fs);
    assert_eq!(expected.len(), 2 * usize::try_from(FILES).expect("few"));
    // A crash.
    drop(fs);
    for (policy, topology, threads) in [
        (NumaPolicy::Local, two_nodes(), 1),
        (NumaPolicy::First, Topology::logical(1, 1), 2),
        (NumaPolicy::Interleave, Topology::logical(8, 8), 64),
        (
            NumaPolicy::Local,
            Topology::of(&[(3, vec![0]), (9, vec![])]),
            64,
        ),
        (NumaPolicy::Local, Topology::system(), 2),
    ] {
        let copy = media.copy();
        let numa = numa(policy, topology);
        let fs = copy.mount(profile, &numa, threads);
        assert!(fs.recovered().is_some(), "it had crashed");
        assert_eq!(tree(&fs), expected, "{profile:?}, {numa:?}");
        write_more(&fs);
        fs.close().expect("a good device");
        drop(fs);
        let report = dure_check::check(copy.device(), &dure_check::CheckOptions::default());
        let report = report.expect("a volume");
        assert!(report.is_spotless(), "{numa:?}: {:?}", report.issues());
    }
}

#[test]
fn any_machine_recovers_the_same_tree() {
    any_machine_recovers(IN_NVM);
}

#[test]
fn any_machine_recovers_the_same_tree_without_a_page_cache() {
    const STRICT: &[(&str, &str)] = &[("page_cache", "none"), ("durability", "strict")];
    const POSIX: &[(&str, &str)] = &[("page_cache", "none"), ("durability", "posix")];
    for options in [STRICT, POSIX] {
        any_machine_recovers(Profile { options, ..IN_NVM });
    }
}

#[test]
fn any_machine_recovers_the_same_tree_beside_a_disk() {
    for node_log in [NodeLog::Nvm, NodeLog::Block] {
        any_machine_recovers(Profile {
            node_log,
            ..BESIDE_NVM
        });
    }
}

#[test]
fn any_machine_recovers_the_same_tree_with_absorbed_data() {
    const ALL: &[(&str, &str)] = &[("page_cache", "nvram"), ("nvram_absorb", "all")];
    const SYNC: &[(&str, &str)] = &[("page_cache", "nvram"), ("nvram_absorb", "sync")];
    for options in [ALL, SYNC] {
        any_machine_recovers(Profile {
            options,
            ..BESIDE_NVM
        });
    }
}

//! Persistent memory on several NUMA nodes, on logical machines: what a core writes is on its own
//! node.

use dure_block::NodeCounters;
use dure_block::ram::RamDevice;
use dure_block::{Device, share};
use dure_fs::format::media::MediumKind;
use dure_fs::members::{Member, join};
use dure_fs::{
    Background, FileSystem, FormatOptions, InodeRef, MountOptions, NewInode, Numa, NumaPolicy,
    NvmRegion, Stamp, SyncScope, VolumeInfo,
};
use dure_sync::{Arc, CoreId, Topology, thread};

/// Regions, the last of which gives the volume its name.
struct Machine {
    disks: Vec<Arc<RamDevice>>,
}

impl Machine {
    /// Regions of so many blocks on these nodes; a volume, whose logs lie as on `topology`.
    fn new(regions: &[(u64, u32)], numa: &Numa, journals: u32) -> Machine {
        let disk = |(n, (blocks, _)): (usize, &(u64, u32))| {
            Arc::new(RamDevice::new(&format!("nvm{n}"), *blocks))
        };
        let machine = Machine {
            disks: regions.iter().enumerate().map(disk).collect(),
        };
        let (last, others) = machine.disks.split_last().expect("a region");
        let region = |(n, disk): (usize, &Arc<RamDevice>)| NvmRegion {
            device: shared(disk),
            path: format!("nvm{n}"),
            node: regions[n].1,
        };
        let options = FormatOptions {
            journals: Some(journals),
            segment_blocks: Some(32),
            nvm: others.iter().enumerate().map(region).collect(),
            device_node: Some(regions[others.len()].1),
            numa: numa.clone(),
            ..FormatOptions::default()
        };
        FileSystem::format(shared(last), &options).expect("room");
        machine
    }

    fn device(&self) -> Arc<dyn Device> {
        let member = |(n, disk): (usize, &Arc<RamDevice>)| Member {
            device: shared(disk),
            path: format!("nvm{n}"),
        };
        let members: Vec<_> = self.disks.iter().enumerate().map(member).collect();
        join(&members).expect("all media")
    }

    fn mount(&self, numa: &Numa, recovery_threads: usize) -> FileSystem {
        let options = mount_options(numa, recovery_threads);
        FileSystem::open(self.device(), options).expect("it mounts")
    }
}

/// Of a mount of which nothing but its calls and its recovery writes to the media.
pub(crate) fn mount_options(numa: &Numa, recovery_threads: usize) -> MountOptions {
    MountOptions {
        background: Background::None,
        cache_bytes: 4 << 20,
        recovery_threads: Some(recovery_threads),
        numa: numa.clone(),
        log_data_pages: 0,
        ..MountOptions::default()
    }
}

fn shared(device: &Arc<RamDevice>) -> Arc<dyn Device> {
    share(Arc::clone(device))
}

pub(crate) fn numa(policy: NumaPolicy, topology: Topology) -> Numa {
    Numa {
        policy,
        topology: Some(Arc::new(topology)),
    }
}

pub(crate) fn file(fs: &FileSystem, name: &str) -> InodeRef {
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    fs.create(&fs.root().expect("a root"), name.as_bytes(), &new)
        .expect("room")
}

/// Two cores write files of their own, in turn.
pub(crate) fn two_cores_write(fs: &FileSystem, files: u64) {
    for core in [0, 1] {
        let fs = fs.clone();
        let write = move || {
            for n in 0..files {
                let file = file(&fs, &format!("c{core}-{n}"));
                let page = vec![u8::try_from(n % 251).expect("small"); 3 * 4096];
                fs.write(&file, 0, &page, Stamp::Set).expect("room");
                fs.fsync(&file, SyncScope::All).expect("it is durable");
            }
        };
        let thread = thread::spawn_on("writer", CoreId::new(core), write);
        thread.join().expect("it writes");
    }
}

fn percent(counters: &NodeCounters) -> u64 {
    counters.local_written * 100 / (counters.local_written + counters.remote_written)
}

/// Two nodes of one core.
pub(crate) fn two_nodes() -> Topology {
    Topology::logical(2, 1)
}

#[test]
fn what_a_core_writes_is_on_its_own_node() {
    let share_of = |policy| {
        let numa = numa(policy, two_nodes());
        // Of a small volume partition 0 has the first half: here that is on the other core's node.
        let machine = Machine::new(&[(2048, 1), (2048, 0)], &numa, 2);
        let fs = machine.mount(&numa, 1);
        let before = fs.activity().nodes.expect("it is counted");
        two_cores_write(&fs, 60);
        let after = fs.activity().nodes.expect("it is counted");
        let written = NodeCounters {
            local_written: after.local_written - before.local_written,
            remote_written: after.remote_written - before.remote_written,
            ..NodeCounters::default()
        };
        percent(&written)
    };
    let local = share_of(NumaPolicy::Local);
    let first = share_of(NumaPolicy::First);
    let interleaved = share_of(NumaPolicy::Interleave);
    assert!(local >= 90, "local: {local} %");
    assert!(first <= 20, "first: {first} %");
    assert!(
        (20..=80).contains(&interleaved),
        "interleave: {interleaved} %"
    );
}

/// Cores whose numbers do not follow nodes, nodes of different size, and one without memory.
#[test]
fn logs_begin_on_the_node_of_their_core() {
    let topology = Topology::of(&[(0, vec![1, 3]), (5, vec![0, 2]), (7, vec![4, 5])]);
    let numa = numa(NumaPolicy::Local, topology.clone());
    let machine = Machine::new(&[(2048, 5), (1056, 0)], &numa, 6);
    let info = VolumeInfo::read(machine.device()).expect("a volume");
    let media = info.layout.superblock.media();
    assert!(media.iter().all(|medium| medium.kind == MediumKind::Nvm));
    let nodes: Vec<u32> = media.iter().map(|medium| medium.node).collect();
    assert_eq!(nodes, [5, 0]);
    let journals = dure_fs::JournalsInfo::read(machine.device()).expect("journals");
    for (number, journal) in journals.journals.iter().enumerate() {
        let core = CoreId::new(u16::try_from(number).expect("few"));
        for segment in &journal.segments {
            let medium = media.iter().rfind(|medium| medium.first <= *segment);
            let node = medium.expect("a medium").node;
            let own = topology.node_of(core);
            assert!(node == own || own == 7, "journal {number} on node {node}");
        }
    }
}

#[test]
fn a_full_node_is_passed_over() {
    let numa = numa(NumaPolicy::Local, two_nodes());
    let machine = Machine::new(&[(1024, 0), (2048, 1)], &numa, 2);
    let fs = machine.mount(&numa, 1);
    // More than node 0 has.
    two_cores_write(&fs, 300);
    let nodes = fs.activity().nodes.expect("it is counted");
    assert!(nodes.remote_written > 0);
    fs.close().expect("a good device");
}

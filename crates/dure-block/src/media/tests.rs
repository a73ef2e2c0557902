use dure_pmem::Region;
use dure_pmem::record::Selection;
use dure_sync::Mutex;

use super::*;
use crate::fault::{Fault, FaultDevice, Rule, When};
use crate::linear::LinearDevice;
use crate::nvm::NvmDevice;
use crate::ram::RamDevice;
use crate::record::RecordDevice;
use crate::{BLOCK_BYTES, Bio, Completion, DeviceInfo, Io, OsError, share};

const NVM_BLOCKS: u64 = 4;

/// Persistent memory of four blocks, then `disk`.
fn two(region: Region, disk: Arc<dyn Device>) -> Arc<Media> {
    let blocks = disk.info().blocks;
    let nvm = share(NvmDevice::in_memory("nvm", region));
    let parts = vec![(nvm, Lba::new(0), NVM_BLOCKS), (disk, Lba::new(0), blocks)];
    let device = share(LinearDevice::new(parts));
    Media::open(device, QueueConfig::default())
}

fn memory() -> Region {
    Region::anonymous(bytes(NVM_BLOCKS)).unwrap()
}

#[test]
fn only_a_device_that_was_written_is_flushed() {
    let disk = share(RecordDevice::new(share(RamDevice::new("disk", 8))));
    let media = two(memory(), disk);
    let flushes = || media.counters().device_flushes;
    let block = [1; BLOCK_BYTES];
    media.write(Lba::new(0), &block).unwrap();
    media.flush().unwrap();
    assert_eq!(flushes(), 0, "nothing was written to the disk");
    media.write(Lba::new(NVM_BLOCKS), &block).unwrap();
    media.flush().unwrap();
    media.flush().unwrap();
    assert_eq!(flushes(), 1);
    // Over the border: both.
    let both = [block, block].concat();
    media.write(Lba::new(NVM_BLOCKS - 1), &both).unwrap();
    media.flush().unwrap();
    assert_eq!(flushes(), 2);
    let mut found = vec![0; both.len()];
    media.read(Lba::new(NVM_BLOCKS - 1), &mut found).unwrap();
    assert!(found == both);
    let beyond = media.write(Lba::new(NVM_BLOCKS + 8), &block);
    assert!(
        matches!(beyond, Err(Error::OutOfRange { .. })),
        "{beyond:?}"
    );
}

#[test]
fn one_device_is_flushed_whenever_that_is_asked() {
    let disk = RecordDevice::new(share(RamDevice::new("disk", 8)));
    let media = Media::open(share(disk), QueueConfig::default());
    media.flush().unwrap();
    media.flush().unwrap();
    assert_eq!(media.counters().device_flushes, 2);
}

/// A disk during whose flushes something happens.
#[derive(Debug)]
struct Meanwhile {
    ram: Arc<dyn Device>,
    info: DeviceInfo,
    media: Mutex<1, Option<Arc<Media>>>,
}

impl Device for Meanwhile {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn execute(&self, io: Io<'_>) -> Result<()> {
        if matches!(io, Io::Flush)
            && let Some(media) = self.media.lock().take()
        {
            media.write(Lba::new(NVM_BLOCKS), &[2; BLOCK_BYTES])?;
        }
        self.ram.execute(io)
    }
}

#[test]
fn a_write_during_a_flush_needs_the_next_one() {
    let ram = share(RamDevice::new("disk", 8));
    let info = DeviceInfo {
        volatile_cache: true,
        ..ram.info().clone()
    };
    let media = Mutex::new(None);
    let disk = Arc::new(Meanwhile { ram, info, media });
    let media = two(memory(), share(Arc::clone(&disk)));
    media
        .write(Lba::new(NVM_BLOCKS), &[1; BLOCK_BYTES])
        .unwrap();
    *disk.media.lock() = Some(Arc::clone(&media));
    media.flush().unwrap();
    media.flush().unwrap();
    let flushes = media.counters().device_flushes;
    assert_eq!(flushes, 2, "the second write was never flushed");
}

#[test]
fn an_appended_prefix_is_durable_on_return_and_takes_the_lines_it_uses() {
    let (region, recorder) = Region::recording(&vec![9; bytes(NVM_BLOCKS)]).unwrap();
    let media = two(region, share(RamDevice::new("disk", 8)));
    let mut prefix = vec![0; 2 * BLOCK_BYTES];
    prefix[..100].fill(7);
    media.append(Lba::new(1), &prefix, 100).unwrap();
    let states: Vec<_> = recorder
        .crash_after(recorder.events())
        .states(&Selection::default())
        .collect();
    assert_eq!(states.len(), 1, "something of it is not durable");
    let state = &states[0][BLOCK_BYTES..];
    assert_eq!(
        (state[99], state[100], state[127], state[128]),
        (7, 0, 0, 9)
    );
}

/// Regression: one run of a device was read from the beginning of the device.
#[test]
fn a_run_of_one_device_is_where_it_lies() {
    let ram = Arc::new(RamDevice::new("disk", 8));
    let parts = vec![(share(Arc::clone(&ram)), Lba::new(3), 4)];
    let media = Media::open(share(LinearDevice::new(parts)), QueueConfig::default());
    assert_eq!(media.blocks(), 4);
    media.write(Lba::new(0), &[7; BLOCK_BYTES]).unwrap();
    let mut found = [0; BLOCK_BYTES];
    let (lba, out) = (Lba::new(3), &mut found[..]);
    ram.execute(Io::Read { lba, out }).unwrap();
    assert_eq!(found, [7; BLOCK_BYTES]);
}

/// What lies before a run is reached by the medium, and nothing else of it.
#[test]
fn heads_are_before_the_runs() {
    let log = |n: usize| Arc::new(RecordDevice::new(share(RamDevice::new(["a", "b"][n], 8))));
    let disks = [log(0), log(1)];
    let part = |n: usize, start| (share(Arc::clone(&disks[n])), Lba::new(start), 4);
    let parts = vec![part(0, 0), part(1, 2)];
    let media = Media::open(share(LinearDevice::new(parts)), QueueConfig::default());
    assert_eq!(media.heads(), 2);
    media.write_head(1, Lba::new(1), &[5; BLOCK_BYTES]).unwrap();
    let steps = |n: usize| disks[n].log().step();
    // A write, and its flush.
    assert_eq!((steps(0), steps(1)), (0, 4));
    let mut found = [0; BLOCK_BYTES];
    media.read_head(1, Lba::new(1), &mut found).unwrap();
    assert_eq!(found, [5; BLOCK_BYTES]);
    for (medium, at) in [(0, 0), (1, 2), (1, u64::MAX)] {
        let refused = media.write_head(medium, Lba::new(at), &found);
        assert!(matches!(refused, Err(Error::OutOfRange { .. })), "{at}");
    }
}

/// What each of these got, by the first byte of its memory, or its error.
fn results(media: &Media, bios: Vec<Bio>) -> Vec<std::result::Result<u8, &'static str>> {
    let under_way = media.submit_all(bios);
    let wait = |request| {
        let Completion {
            result, segments, ..
        } = media.wait(request);
        match result {
            Ok(()) => Ok(segments[0].as_slice()[0]),
            Err(Error::OutOfRange { .. }) => Err("range"),
            Err(Error::Io { .. }) => Err("io"),
            Err(error) => panic!("{error}"),
        }
    };
    under_way.into_iter().map(wait).collect()
}

#[test]
fn requests_under_way_reach_each_medium_and_tell_their_own_errors() {
    let ram = share(RamDevice::new("ram", 16));
    let disk = Arc::new(FaultDevice::new(ram));
    let media = two(memory(), share(Arc::clone(&disk)));
    let at = |block| Lba::new(NVM_BLOCKS + block);
    let filled = |n: u8, blocks| BlockBuf::from_slice(&vec![n; blocks * BLOCK_BYTES]);
    let writes = vec![
        Bio::write(at(4), filled(1, 2)),
        Bio::write(Lba::new(0), filled(2, 1)),
        // Over the border of the media.
        Bio::write(Lba::new(NVM_BLOCKS - 1), filled(3, 2)),
        Bio::write(at(16), filled(4, 1)),
        Bio::write(at(2), filled(5, 1)),
        Bio::write(Lba::new(u64::MAX), filled(6, 2)),
    ];
    let (range, io) = (Err("range"), Err("io"));
    assert_eq!(
        results(&media, writes),
        [Ok(1), Ok(2), Ok(3), range, Ok(5), range]
    );
    media.flush().unwrap();
    assert_eq!(media.counters().device_flushes, 1);
    let flaw = Rule::new(When::From(1), Fault::Error(OsError::EIO));
    disk.add(flaw.on(Op::Read).within(Lba::new(2)..Lba::new(3)));
    let reads = [4, 5, 0, 2].map(|block| Bio::read(at(block), BlockBuf::zeroed(1)));
    assert_eq!(results(&media, reads.into()), [Ok(1), Ok(1), Ok(3), io]);
}

#[test]
fn a_flush_covers_a_write_that_was_waited_for() {
    let disk = share(RecordDevice::new(share(RamDevice::new("disk", 8))));
    let media = two(memory(), disk);
    let write = Bio::write(Lba::new(NVM_BLOCKS), BlockBuf::zeroed(1));
    for request in media.submit_all([write]) {
        media.wait(request).result.unwrap();
    }
    media.flush().unwrap();
    assert_eq!(media.counters().device_flushes, 1);
}

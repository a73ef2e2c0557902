use std::path::{Path, PathBuf};
use std::time::Duration;

use dure_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use dure_sync::{Arc, ProcessOnce, thread};
use proptest::prelude::*;
use tempfile::TempDir;

use super::loop_device::Loop;
use super::*;
use crate::ram::RamDevice;
use crate::{Bio, Error, Hybrid, Queue, QueueConfig, Wait, share};

mod faults;

const BLOCKS: u64 = 64;

fn new_image(path: &Path, blocks: u64, allocation: Allocation) -> Result<FileDevice> {
    create_image(path, blocks, allocation, OpenOptions::default())
}

struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn image(&self) -> PathBuf {
        let path = self.path("image");
        drop(new_image(&path, BLOCKS, Allocation::Sparse).unwrap());
        path
    }
}

fn with(engine: Engine, direct: Direct) -> OpenOptions {
    OpenOptions {
        engine,
        direct,
        ..OpenOptions::default()
    }
}

fn queue_of(device: FileDevice) -> Arc<Queue> {
    waiting(device, Wait::Sleep)
}

fn waiting(device: FileDevice, wait: Wait) -> Arc<Queue> {
    Queue::new(
        share(device),
        QueueConfig {
            nr_requests: 8,
            wait,
            ..QueueConfig::default()
        },
    )
}

fn hybrid() -> Wait {
    Wait::Hybrid(Hybrid {
        period: Duration::from_micros(100),
        ..Hybrid::default()
    })
}

const SMALL_BUFFERS: Buffers = Buffers {
    count: 4,
    blocks: 2,
};

fn ring(iopoll: bool, sqpoll: bool, registered: Option<Buffers>) -> Engine {
    Engine::Uring(RingOptions {
        iopoll,
        sqpoll,
        registered,
        own_waits: false,
    })
}

/// The engines that the kernel has for a file; says which others there are not, and why.
fn engines(path: &Path) -> Vec<Engine> {
    let all = [
        Engine::Psync,
        Engine::Auto,
        Engine::Pvsync2,
        Engine::Libaio,
        ring(false, false, None),
        ring(false, true, None),
        ring(false, false, Some(SMALL_BUFFERS)),
        ring(true, false, None),
        Engine::Uring(RingOptions {
            own_waits: true,
            ..RingOptions::default()
        }),
    ];
    let is_there = |engine: &Engine| match open_file(path, with(*engine, Direct::Auto)) {
        Ok(_) => true,
        Err(refused @ Error::EngineUnavailable { .. }) => {
            eprintln!("SKIPPED in part: {refused}");
            false
        }
        Err(error) => panic!("{error}"),
    };
    all.into_iter().filter(is_there).collect()
}

fn modes() -> Vec<OpenOptions> {
    let place = Place::new();
    let path = &place.image();
    let all = |engine| [Direct::Auto, Direct::Never].map(|direct| with(engine, direct));
    let mut modes: Vec<_> = engines(path).into_iter().flat_map(all).collect();
    // Polling needs direct I/O.
    modes.retain(|mode| {
        let polls = matches!(mode.engine, Engine::Uring(ring) if ring.iopoll);
        !(polls && mode.direct == Direct::Never)
    });
    modes
}

#[derive(Debug, Clone)]
enum Step {
    Write {
        lba: u64,
        blocks: usize,
        byte: u8,
        shift: usize,
        flags: WriteFlags,
    },
    Vectored {
        lba: u64,
        parts: usize,
        byte: u8,
    },
    Submit {
        lba: u64,
        segments: usize,
        byte: u8,
        flags: WriteFlags,
    },
    Read {
        lba: u64,
        blocks: usize,
        shift: usize,
    },
    SubmitRead {
        lba: u64,
        blocks: usize,
    },
    Discard {
        lba: u64,
        blocks: u64,
    },
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    let lba = 0..BLOCKS - 16;
    let flags = prop_oneof![
        Just(WriteFlags::NONE),
        Just(WriteFlags::FUA),
        Just(WriteFlags::FUA | WriteFlags::PREFLUSH)
    ];
    let shift = prop_oneof![Just(0_usize), 1_usize..4096];
    prop_oneof![
        (
            lba.clone(),
            1_usize..16,
            any::<u8>(),
            shift.clone(),
            flags.clone()
        )
            .prop_map(|(lba, blocks, byte, shift, flags)| Step::Write {
                lba,
                blocks,
                byte,
                shift,
                flags
            }),
        (lba.clone(), 2_usize..8, any::<u8>()).prop_map(|(lba, parts, byte)| Step::Vectored {
            lba,
            parts,
            byte
        }),
        (lba.clone(), 1_usize..5, any::<u8>(), flags).prop_map(|(lba, segments, byte, flags)| {
            Step::Submit {
                lba,
                segments,
                byte,
                flags,
            }
        }),
        (lba.clone(), 1_usize..16, shift).prop_map(|(lba, blocks, shift)| Step::Read {
            lba,
            blocks,
            shift
        }),
        (lba.clone(), 1_usize..16).prop_map(|(lba, blocks)| Step::SubmitRead { lba, blocks }),
        (lba, 0_u64..16).prop_map(|(lba, blocks)| Step::Discard { lba, blocks }),
        Just(Step::Flush),
    ]
}

/// Memory of `blocks` blocks that starts `shift` bytes behind a block boundary.
fn shifted(blocks: usize, shift: usize) -> BlockBuf {
    BlockBuf::zeroed(blocks + usize::from(shift > 0))
}

/// Takes a step; returns what it read.
fn take(queue: &Queue, step: &Step) -> Vec<u8> {
    match *step {
        Step::Write {
            lba,
            blocks,
            byte,
            shift,
            flags,
        } => {
            let mut buf = shifted(blocks, shift);
            let memory = &mut buf.as_mut_slice()[shift..shift + blocks * BLOCK_BYTES];
            for (number, byte_of_block) in (0_u8..).zip(memory.chunks_mut(BLOCK_BYTES)) {
                byte_of_block.fill(byte.wrapping_add(number));
            }
            queue.write(Lba::new(lba), memory, flags).unwrap();
        }
        Step::Vectored { lba, parts, byte } => {
            let bufs: Vec<_> = (0..parts)
                .map(|n| vec![byte; BLOCK_BYTES * (n % 3)])
                .map(|bytes| BlockBuf::from_slice(&bytes))
                .collect();
            let parts: Vec<_> = bufs.iter().map(BlockBuf::as_slice).collect();
            queue.write_vectored(Lba::new(lba), &parts).unwrap();
        }
        Step::Submit {
            lba,
            segments,
            byte,
            flags,
        } => {
            let segment = || BlockBuf::from_slice(&vec![byte; 2 * BLOCK_BYTES]);
            let segments = (0..segments).map(|_| segment()).collect();
            let bio = Bio::write_segments(Lba::new(lba), segments).with_flags(flags);
            let ticket = queue.submit(bio).unwrap();
            queue.wait(ticket).into_segments().unwrap();
        }
        Step::Read { lba, blocks, shift } => {
            let mut buf = shifted(blocks, shift);
            let memory = &mut buf.as_mut_slice()[shift..shift + blocks * BLOCK_BYTES];
            queue.read(Lba::new(lba), memory).unwrap();
            return memory.to_vec();
        }
        Step::SubmitRead { lba, blocks } => {
            let bio = Bio::read(Lba::new(lba), queue.buffer(blocks));
            let ticket = queue.submit(bio).unwrap();
            return queue.wait(ticket).into_segments().unwrap()[0]
                .as_slice()
                .to_vec();
        }
        Step::Discard { lba, blocks } => queue.discard(Lba::new(lba), blocks).unwrap(),
        Step::Flush => {
            queue.flush().unwrap();
            let ticket = queue.submit(Bio::flush()).unwrap();
            queue.wait(ticket).result.unwrap();
        }
    }
    Vec::new()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn a_file_behaves_as_ram_does(steps in prop::collection::vec(step(), 1..30)) {
        static MODES: ProcessOnce<Vec<OpenOptions>> = ProcessOnce::new();
        let waits = [Wait::Sleep, Wait::Poll, hybrid()];
        for (options, wait) in MODES.get_or_init(modes).iter().zip(waits.iter().cycle()) {
            let (place, options) = (Place::new(), *options);
            let path = place.image();
            let file = waiting(open_file(&path, options).unwrap(), *wait);
            let ram_device = Arc::new(RamDevice::new("ram0", BLOCKS));
            let ram = Queue::new(share(Arc::clone(&ram_device)), QueueConfig::default());
            for step in &steps {
                prop_assert_eq!(take(&file, step), take(&ram, step), "{:?} {:?}", options, step);
            }
            drop(file);
            let stored = std::fs::read(&path).unwrap();
            prop_assert_eq!(stored, ram_device.snapshot().to_bytes(), "{:?}", options);
        }
    }
}

/// Tasks share rings, wait in any order, run out of tags, and forget tickets.
#[test]
fn many_tasks_share_the_rings() {
    let place = Place::new();
    for engine in engines(&place.image()) {
        for wait in [Wait::Sleep, Wait::Poll, hybrid()] {
            tasks_share_the_rings(engine, wait);
        }
    }
}

fn tasks_share_the_rings(engine: Engine, wait: Wait) {
    let place = Place::new();
    let options = with(engine, Direct::Auto);
    let queue = waiting(open_file(&place.image(), options).unwrap(), wait);
    thread::scope(|scope| {
        for task in 0_u8..8 {
            let queue = &queue;
            scope.spawn(move || {
                let lba = |n: u8| Lba::new(u64::from(task) * 8 + u64::from(n));
                for round in 0_u8..20 {
                    let buf = || {
                        let mut buf = queue.buffer(1);
                        buf.as_mut_slice().fill(round);
                        buf
                    };
                    let bios = (0..4).map(|n| Bio::write(lba(n), buf()));
                    let mut tickets = queue.submit_all(bios).unwrap();
                    if round % 2 == 0 {
                        tickets.reverse();
                    }
                    for ticket in tickets {
                        queue.wait(ticket).into_segments().unwrap();
                    }
                    drop(
                        queue
                            .submit(Bio::read(lba(5), BlockBuf::zeroed(1)))
                            .unwrap(),
                    );
                    let mut out = [0; BLOCK_BYTES];
                    queue.read(lba(3), &mut out).unwrap();
                    assert_eq!(out, [round; BLOCK_BYTES]);
                }
            });
        }
    });
    let counters = queue.counters();
    assert_eq!(counters.writes + counters.merges, 8 * 20 * 4);
    assert_eq!(counters.errors, 0);
}

/// What the kernel refuses for a device is said when the device is opened; where it only does not
/// poll, polled calls work, and the device says so.
#[test]
fn polling_that_the_device_cannot_do_is_refused_or_told() {
    let place = Place::new();
    let path = place.image();
    // Neither through the page cache.
    let options = with(ring(true, false, None), Direct::Never);
    let refused = open_file(&path, options).unwrap_err();
    let Error::EngineUnavailable { engine, os, .. } = &refused else {
        panic!("{refused}");
    };
    assert_eq!(
        (*engine, os.errno()),
        ("io_uring (IOPOLL)", libc::EOPNOTSUPP)
    );
    assert!(refused.to_string().contains("choose psync or auto"));
    let file = open_file(&path, OpenOptions::default()).unwrap();
    assert!(!file.is_polled(), "a file has no queues");
    let queue = waiting(file, Wait::Poll);
    queue
        .write(Lba::new(1), &[7; BLOCK_BYTES], WriteFlags::FUA)
        .unwrap();
    let mut out = [0; BLOCK_BYTES];
    queue.read(Lba::new(1), &mut out).unwrap();
    assert_eq!(out, [7; BLOCK_BYTES]);
}

#[test]
fn registered_buffers_are_used_and_come_back() {
    let place = Place::new();
    let engine = ring(false, false, Some(SMALL_BUFFERS));
    let device = match open_file(&place.image(), with(engine, Direct::Auto)) {
        Err(refused @ Error::EngineUnavailable { .. }) => {
            return eprintln!("SKIPPED: {refused}");
        }
        device => queue_of(device.unwrap()),
    };
    for round in 0_u8..3 {
        let buffers: Vec<_> = (0..5).map(|_| device.buffer(1)).collect();
        let registered = buffers
            .iter()
            .filter(|buffer| buffer.registered().is_some());
        assert_eq!(registered.count(), 4, "the fifth is an ordinary one");
        let bios = (0..).zip(buffers).map(|(lba, mut buffer)| {
            buffer.as_mut_slice().fill(round);
            Bio::write(Lba::new(2 * lba), buffer)
        });
        for ticket in device.submit_all(bios).unwrap() {
            device.wait(ticket).into_segments().unwrap();
        }
        for lba in 0..5 {
            let bio = Bio::read(Lba::new(2 * lba), device.buffer(1));
            let done = device.wait(device.submit(bio).unwrap());
            let memory = done.into_segments().unwrap();
            assert_eq!(memory[0].as_slice(), [round; BLOCK_BYTES]);
        }
    }
}

#[test]
fn without_rings_submitted_requests_are_system_calls() {
    let place = Place::new();
    let path = place.image();
    let device = open_file(&path, OpenOptions::default()).unwrap();
    for slot in device.rings.as_ref().unwrap().iter() {
        assert!(
            slot.set(None).is_ok(),
            "no ring is made before it is needed"
        );
    }
    assert!(!device.uses_rings());
    let queue = queue_of(device);
    let bio = Bio::write(Lba::new(3), BlockBuf::from_slice(&[7; BLOCK_BYTES]));
    let ticket = queue.submit(bio).unwrap();
    assert!(ticket.is_done());
    queue.wait(ticket).result.unwrap();
    assert_eq!(queue.poll(), 0);
    let start = 3 * BLOCK_BYTES;
    assert_eq!(
        std::fs::read(&path).unwrap()[start..start + BLOCK_BYTES],
        [7; BLOCK_BYTES]
    );
}

#[test]
fn requests_that_nobody_waits_for_do_not_outlive_the_device() {
    let place = Place::new();
    let path = place.image();
    let queue = queue_of(open_file(&path, OpenOptions::default()).unwrap());
    let bio = Bio::write(Lba::new(3), BlockBuf::from_slice(&[7; BLOCK_BYTES]));
    drop(queue.submit(bio).unwrap());
    drop(queue);
    let start = 3 * BLOCK_BYTES;
    assert_eq!(
        std::fs::read(&path).unwrap()[start..start + BLOCK_BYTES],
        [7; BLOCK_BYTES]
    );
}

#[test]
fn an_image_in_use_is_refused() {
    let place = Place::new();
    let path = place.image();
    let reading = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let first = open_file(&path, OpenOptions::default()).unwrap();
    for options in [OpenOptions::default(), reading] {
        let error = open_file(&path, options).unwrap_err();
        let text = error.to_string();
        let own = format!(
            "{}: in use by process {} (",
            path.display(),
            std::process::id()
        );
        assert!(text.starts_with(&own), "{text}");
    }
    let looking = OpenOptions {
        sharing: Sharing::Anybody,
        ..reading
    };
    open_file(&path, looking).unwrap();
    drop(first);
    // Readers share.
    let (_one, _two) = (
        open_file(&path, reading).unwrap(),
        open_file(&path, reading).unwrap(),
    );
    open_file(&path, OpenOptions::default()).unwrap_err();
}

#[test]
fn reading_only_refuses_writes() {
    let place = Place::new();
    let path = place.image();
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let queue = queue_of(open_file(&path, options).unwrap());
    let error = queue
        .write(Lba::new(0), &[1; BLOCK_BYTES], WriteFlags::NONE)
        .unwrap_err();
    let message = format!(
        "{}: write at block 0 refused: the device is open for reading only",
        path.display()
    );
    assert_eq!(error.to_string(), message);
    assert!(queue.discard(Lba::new(0), 1).is_err());
    queue.read(Lba::new(0), &mut [0; BLOCK_BYTES]).unwrap();
}

#[test]
fn what_cannot_hold_a_volume_is_refused() {
    let place = Place::new();
    let missing = place.path("missing");
    let error = open_file(&missing, OpenOptions::default()).unwrap_err();
    let message = format!(
        "{}: cannot find it: No such file or directory (os error 2)",
        missing.display()
    );
    assert_eq!(error.to_string(), message);
    let directory = place.directory.path();
    let error = open_file(directory, OpenOptions::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "{}: is a directory; a volume needs a regular file or a block device",
            directory.display()
        )
    );
    let image = place.image();
    let error = new_image(&image, 1, Allocation::Sparse).unwrap_err();
    let message = format!(
        "{}: cannot create the image file: File exists (os error 17)",
        image.display()
    );
    assert_eq!(error.to_string(), message);
}

#[test]
fn images_have_the_size_and_blocks_that_were_asked_for() {
    use std::os::unix::fs::MetadataExt;
    let place = Place::new();
    for (name, allocation) in [("s", Allocation::Sparse), ("p", Allocation::Preallocated)] {
        let path = place.path(name);
        drop(new_image(&path, BLOCKS, allocation).unwrap());
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!(metadata.len(), BLOCKS * 4096);
        assert_eq!(metadata.blocks() * 512 >= BLOCKS * 4096, name == "p");
        let device = open_file(&path, OpenOptions::default()).unwrap();
        assert_eq!(device.info().blocks, BLOCKS);
    }
    // No file is left behind when there is no room for it.
    let path = place.path("huge");
    new_image(&path, u64::MAX / 8192, Allocation::Preallocated).unwrap_err();
    assert!(!path.exists());
}

#[test]
fn a_file_that_became_shorter_is_an_error() {
    for options in modes() {
        let place = Place::new();
        let path = place.image();
        let queue = queue_of(open_file(&path, options).unwrap());
        std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(10 * 4096)
            .unwrap();
        let error = queue
            .read(Lba::new(9), &mut [0; 2 * BLOCK_BYTES])
            .unwrap_err();
        let expected = format!(
            "{}: read of 2 blocks at block 9 failed: Input/output error (os error 5)",
            path.display()
        );
        assert_eq!(error.to_string(), expected);
        let ticket = queue
            .submit(Bio::read(Lba::new(9), BlockBuf::zeroed(2)))
            .unwrap();
        assert_eq!(queue.wait(ticket).result.unwrap_err().to_string(), expected);
    }
}

/// The kernel refuses a libaio request before it takes it: that was a panic.
#[test]
fn a_failed_write_is_reported_by_both_paths() {
    // Opened for reading behind the queue's back: the kernel refuses the write itself.
    for options in modes() {
        let place = Place::new();
        let path = place.image();
        let options = OpenOptions {
            read_only: true,
            ..options
        };
        let mut device = open_file(&path, options).unwrap();
        device.info.read_only = false;
        let queue = queue_of(device);
        let refused = Some(OsError::new(libc::EBADF));
        let error = queue.write(Lba::new(1), &[1; BLOCK_BYTES], WriteFlags::NONE);
        assert_eq!(error.unwrap_err().os(), refused, "{options:?}");
        // Between others that are not refused.
        let write = |lba| Bio::write(Lba::new(lba), BlockBuf::zeroed(1));
        let read = |lba| Bio::read(Lba::new(lba), BlockBuf::zeroed(1));
        let bios = [write(1), read(2), write(3), write(7), read(5)];
        let tickets = queue.submit_all(bios).unwrap();
        let results: Vec<_> = tickets
            .into_iter()
            .map(|ticket| queue.wait(ticket).result.err().map(|error| error.os()))
            .collect();
        let bad = Some(refused);
        assert_eq!(results, [bad, None, bad, bad, None], "{options:?}");
        assert_eq!((queue.counters().errors, queue.in_flight()), (4, 0));
    }
}

/// Every request has one result, an error or its data, while the file vanishes and comes back.
#[test]
fn a_file_that_vanishes_under_load_fails_requests_and_loses_none() {
    const ROUNDS: u64 = 20;
    const DEPTH: u64 = 8;
    let mut failures = 0;
    for options in modes() {
        let place = Place::new();
        let path = place.image();
        let queue = queue_of(open_file(&path, options).unwrap());
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let (ended, failed) = (AtomicBool::new(false), AtomicU64::new(0));
        let load = |seat: u64| {
            for round in 0..ROUNDS {
                let lba = |slot| Lba::new((seat * 31 + round * 7 + slot * 5) % (BLOCKS - 1));
                let bios = (0..DEPTH)
                    .map(|slot| Bio::read(lba(slot), BlockBuf::zeroed(2)).with_cookie(slot));
                let tickets = queue.submit_all(bios).unwrap();
                for (slot, ticket) in (0..).zip(tickets) {
                    let done = queue.wait(ticket);
                    assert_eq!((done.cookie, done.segments.len()), (slot, 1));
                    failed.fetch_add(u64::from(done.result.is_err()), Ordering::Relaxed);
                }
                let one = queue.read(lba(0), &mut [0; BLOCK_BYTES]);
                failed.fetch_add(u64::from(one.is_err()), Ordering::Relaxed);
            }
        };
        thread::scope(|scope| {
            let jobs = [0, 1].map(|seat| scope.spawn(move || load(seat)));
            let ended = &ended;
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    for blocks in [0, BLOCKS / 2, BLOCKS] {
                        file.set_len(blocks * 4096).unwrap();
                        thread::yield_now();
                    }
                }
            });
            for job in jobs {
                job.join().unwrap();
            }
            ended.store(true, Ordering::Relaxed);
        });
        let counters = queue.counters();
        assert_eq!(counters.reads, 2 * ROUNDS * (DEPTH + 1), "{options:?}");
        let failed = failed.load(Ordering::Relaxed);
        assert_eq!((counters.errors, queue.in_flight()), (failed, 0));
        failures += failed;
        // What is there again is read again.
        std::fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(BLOCKS * 4096)
            .unwrap();
        queue.read(Lba::new(0), &mut [1; BLOCK_BYTES]).unwrap();
    }
    assert!(failures > 0, "the file was always there");
}

/// Opens a loop device twice; needs root and a free loop device.
#[test]
fn a_block_device_in_use_is_refused() {
    let place = Place::new();
    let path = place.image();
    let Some(looped) = Loop::new(&path) else {
        return;
    };
    let name = looped.0.clone();
    let device = open_file(&name, OpenOptions::default()).unwrap();
    assert_eq!(device.info().blocks, BLOCKS);
    let error = open_file(&name, OpenOptions::default()).unwrap_err();
    assert_eq!(error, Error::Busy { path: name.clone() });
    let message = format!(
        "{}: is mounted or in use (unmount it, or stop the program that has it open)",
        name.display()
    );
    assert_eq!(error.to_string(), message);
    let queue = queue_of(device);
    let data = vec![5; 4 * BLOCK_BYTES];
    queue.write(Lba::new(60), &data, WriteFlags::FUA).unwrap();
    queue.discard(Lba::new(61), 1).unwrap();
    queue.flush().unwrap();
    assert_eq!(queue.counters().device_flushes, 1, "loop caches writes");
    let ticket = queue
        .submit(Bio::read(Lba::new(60), BlockBuf::zeroed(4)))
        .unwrap();
    let segments = queue.wait(ticket).into_segments().unwrap();
    let read = segments[0].as_slice();
    assert_eq!(read[..BLOCK_BYTES], data[..BLOCK_BYTES]);
    assert_eq!(read[BLOCK_BYTES..2 * BLOCK_BYTES], [0; BLOCK_BYTES]);
    assert_eq!(read[2 * BLOCK_BYTES..], data[2 * BLOCK_BYTES..]);
    drop(queue);
    write_through_means_no_flush(&name);
}

/// What the kernel calls "write through" needs no flush, but only past the page cache.
fn write_through_means_no_flush(device: &Path) {
    let node = device.file_name().unwrap();
    let attribute = Path::new("/sys/block").join(node).join("queue/write_cache");
    std::fs::write(&attribute, "write through").unwrap();
    let caches = |direct| {
        let device = open_file(device, with(Engine::Psync, direct)).unwrap();
        device.info().volatile_cache
    };
    let (direct, cached) = (caches(Direct::Always), caches(Direct::Never));
    // The setting outlives this use of the loop device.
    std::fs::write(&attribute, "write back").unwrap();
    assert_eq!((direct, cached), (false, true));
}

/// zram says that 512 bytes are enough, and then stores shifted data and overwrites the memory in
/// front of a buffer that does not begin at a page.
#[test]
fn direct_io_never_uses_memory_that_begins_within_a_page() {
    let place = Place::new();
    let device = open_file(&place.image(), with(Engine::Psync, Direct::Auto)).unwrap();
    let alignment = device.info().memory_alignment;
    assert!(alignment == 1 || alignment >= BLOCK_BYTES, "{alignment}");
}

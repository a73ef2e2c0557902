//! Rings that fail for good, and devices that go under requests.

use std::io::Write;

use super::*;
use crate::Completion;
use crate::engine::uring::replace_file;

/// What the kernel says of a call to a ring that is none.
const NO_RING: OsError = OsError::new(libc::EOPNOTSUPP);

fn read(lba: u64) -> Bio {
    Bio::read(Lba::new(lba), BlockBuf::zeroed(1)).with_cookie(lba)
}

/// Has a ring made for each core.
fn make_rings(device: &FileDevice) {
    for core in 0..core_count() {
        let core = CoreId::new(u16::try_from(core).unwrap());
        assert!(device.ring(core).is_some());
    }
}

fn fail_rings(device: &FileDevice) {
    for ring in device.existing_rings() {
        let Kernel::Uring(uring) = ring.channel() else {
            panic!("the engine is io_uring");
        };
        uring.fail_calls();
    }
}

/// The error names the request, and its memory comes back.
fn assert_failed(done: &Completion, path: &Path, os: OsError) {
    let expected = Error::Io {
        device: path.display().to_string(),
        op: Op::Read,
        lba: Lba::new(done.cookie),
        blocks: 1,
        os,
    };
    assert_eq!(done.result, Err(expected));
    assert_eq!(done.segments.len(), 1);
    assert_eq!(done.segments[0].as_slice(), [0; BLOCK_BYTES]);
}

/// It was a panic, under the lock of the ring.
#[test]
fn a_ring_that_fails_for_good_fails_its_requests() {
    let place = Place::new();
    let path = place.image();
    for engine in engines(&path) {
        // One with a thread of the kernel may do without calls; and what a device that is polled
        // refuses with this error is done by calls.
        if !matches!(engine, Engine::Uring(ring) if !ring.iopoll && !ring.sqpoll) {
            continue;
        }
        let device = Arc::new(open_file(&path, with(engine, Direct::Auto)).unwrap());
        make_rings(&device);
        let queue = Queue::new(share(Arc::clone(&device)), QueueConfig::default());
        queue.wait(queue.submit(read(1)).unwrap()).result.unwrap();
        fail_rings(&device);
        for round in [0, 10] {
            let tickets = queue.submit_all((2..5).map(|lba| read(round + 2 * lba)));
            for ticket in tickets.unwrap() {
                assert_failed(&queue.wait(ticket), &path, NO_RING);
            }
        }
        assert_eq!((queue.counters().errors, queue.in_flight()), (6, 0));
        // System calls go on.
        queue.read(Lba::new(1), &mut [1; BLOCK_BYTES]).unwrap();
    }
}

/// Requests that the kernel has when its ring fails, and does not complete: who waits gets an error
/// and other memory, and what the kernel writes later overwrites nobody's.
#[test]
fn requests_that_a_failed_ring_keeps_are_abandoned() {
    let place = Place::new();
    let path = place.image();
    let engine = ring(false, false, None);
    let device = match open_file(&path, with(engine, Direct::Never)) {
        Err(refused @ Error::EngineUnavailable { .. }) => return eprintln!("SKIPPED: {refused}"),
        device => Arc::new(device.unwrap()),
    };
    make_rings(&device);
    // Reads of an empty pipe do not return.
    let (pipe, mut writer) = std::io::pipe().unwrap();
    replace_file(&device.target.fd, &pipe);
    let queue = Queue::new(share(Arc::clone(&device)), QueueConfig::default());
    let mut tickets = queue.submit_all([read(1), read(3)]).unwrap();
    fail_rings(&device);
    tickets.push(queue.submit(read(9)).unwrap());
    let done: Vec<_> = tickets
        .into_iter()
        .map(|ticket| queue.wait(ticket))
        .collect();
    writer.write_all(&[8; 2 * BLOCK_BYTES]).unwrap();
    for done in &done {
        assert_failed(done, &path, NO_RING);
    }
    assert_eq!((queue.counters().errors, queue.in_flight()), (3, 0));
    // What comes late is nobody's.
    assert_eq!(queue.poll(), 0);
}

/// What a load on a block device has seen.
#[derive(Debug, Default)]
struct Seen {
    /// Requests made, those that failed, and one of their errors.
    made: u64,
    failed: u64,
    error: Option<Error>,
}

/// Writes and reads the blocks below `blocks`, eight requests under way, until told to stop, and
/// checks that each is complete once and that a read that succeeds has what was written.
fn load(queue: &Queue, blocks: u64, stop: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let byte = |lba: u64| u8::try_from(lba % 251).unwrap();
    for round in 0.. {
        // The first round begins before anything is done to the device.
        if round > 0 && stop.load(Ordering::Relaxed) {
            break;
        }
        let lbas = (0..8).map(|slot| (round * 13 + slot * 7) % blocks);
        let bios = lbas.map(|lba| {
            let at = Lba::new(lba);
            let mut memory = BlockBuf::zeroed(1);
            match round % 2 {
                0 => memory.as_mut_slice().fill(byte(lba)),
                _ => memory.as_mut_slice().fill(255),
            }
            match round % 2 {
                0 => Bio::write(at, memory).with_cookie(lba),
                _ => Bio::read(at, memory).with_cookie(lba),
            }
        });
        for ticket in queue.submit_all(bios).unwrap() {
            let done = queue.wait(ticket);
            seen.made += 1;
            let content = done.segments[0].as_slice();
            match done.result {
                Ok(()) => {
                    let is_right = |found: u8| [0, byte(done.cookie)].contains(&found);
                    assert!(is_right(content[0]), "block {}", done.cookie);
                    assert!(content.iter().all(|found| *found == content[0]));
                }
                Err(error) => {
                    seen.failed += 1;
                    seen.error = Some(error);
                }
            }
        }
    }
    seen
}

/// Loads a device with two tasks while `change` is made to it; no request is lost or completes
/// twice.
fn load_while(device: FileDevice, change: impl FnOnce()) -> Seen {
    let blocks = device.info().blocks;
    let queue = queue_of(device);
    let stop = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let jobs = [0, 1].map(|_| scope.spawn(|| load(&queue, blocks, &stop)));
        thread::sleep(Duration::from_millis(20));
        change();
        thread::sleep(Duration::from_millis(20));
        stop.store(true, Ordering::Relaxed);
        let [one, other] = jobs.map(|job| job.join().unwrap());
        let last = load(&queue, blocks, &stop);
        Seen {
            made: one.made + other.made + last.made,
            failed: one.failed + other.failed + last.failed,
            error: one.error.or(other.error).or(last.error),
        }
    });
    let counters = queue.counters();
    assert_eq!(counters.reads + counters.writes, seen.made);
    assert_eq!((counters.errors, queue.in_flight()), (seen.failed, 0));
    seen
}

/// Tries again while a device is in use, for as long as the kernel may take to end a ring that was
/// closed.
fn patiently<T, E>(
    what: impl Fn() -> std::result::Result<T, E>,
    is_busy: impl Fn(&E) -> bool,
) -> std::result::Result<T, E> {
    for _ in 0..1000 {
        match what() {
            Err(error) if is_busy(&error) => thread::sleep(Duration::from_millis(5)),
            other => return other,
        }
    }
    what()
}

/// The engines for a block device that is made anew for each: with its load, and whatever is done
/// to it meanwhile.
fn load_each<D>(make: impl Fn() -> Option<(D, PathBuf)>, change: impl Fn(D), check: impl Fn(Seen)) {
    let place = Place::new();
    for engine in engines(&place.image()) {
        let Some((made, path)) = make() else {
            return;
        };
        let open = || open_file(&path, with(engine, Direct::Auto));
        match patiently(open, |error| matches!(error, Error::Busy { .. })) {
            Ok(device) => check(load_while(device, || change(made))),
            // It has no queues to poll.
            Err(Error::EngineUnavailable { .. }) => {}
            Err(error) => panic!("{engine:?} {error}"),
        }
    }
}

fn with_path(looped: Loop) -> (Loop, PathBuf) {
    let path = looped.0.clone();
    (looped, path)
}

/// The kernel detaches a loop device that is in use when its last user has closed it.
#[test]
fn a_loop_device_detached_under_requests_serves_them() {
    let place = Place::new();
    let path = place.image();
    load_each(
        || Loop::new(&path).map(with_path),
        drop,
        |seen| assert_eq!(seen.failed, 0, "{seen:?}"),
    );
}

/// Its file becomes shorter, and the kernel tells the device.
#[test]
fn a_loop_device_that_shrinks_under_requests_fails_those_beyond_its_end() {
    let place = Place::new();
    let path = place.image();
    let set_blocks = |blocks: u64| {
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(blocks * 4096).unwrap();
    };
    load_each(
        || {
            set_blocks(BLOCKS);
            Loop::new(&path).map(with_path)
        },
        |looped| {
            // A write under way may make the file longer again.
            while looped.blocks() != BLOCKS / 2 {
                set_blocks(BLOCKS / 2);
                looped.follow_size();
            }
        },
        |seen| {
            let Some(Error::Io { lba, os, .. }) = seen.error else {
                panic!("no request failed: {seen:?}");
            };
            assert!(lba.number() >= BLOCKS / 2, "block {lba}");
            assert!([libc::EIO, libc::ENOSPC].contains(&os.errno()), "{os}");
        },
    );
}

/// A zram device of the size of an image, which goes when dropped.
struct Zram(String);

impl Zram {
    /// `None` where there are none, or not for us.
    fn new() -> Option<Zram> {
        match std::fs::read_to_string("/sys/class/zram-control/hot_add") {
            Ok(number) => {
                let zram = Zram(number.trim().to_owned());
                zram.set("disksize", &(BLOCKS * 4096).to_string()).unwrap();
                Some(zram)
            }
            Err(error) => {
                eprintln!("SKIPPED: no zram devices here: {error}");
                None
            }
        }
    }

    fn path(&self) -> PathBuf {
        format!("/dev/zram{}", self.0).into()
    }

    fn set(&self, name: &str, value: &str) -> std::io::Result<()> {
        std::fs::write(format!("/sys/block/zram{}/{name}", self.0), value)
    }

    fn remove(&self) -> std::io::Result<()> {
        std::fs::write("/sys/class/zram-control/hot_remove", &self.0)
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        let is_busy = |error: &std::io::Error| error.raw_os_error() == Some(libc::EBUSY);
        patiently(|| self.remove(), is_busy).unwrap();
    }
}

/// The kernel refuses to empty or remove a zram device that is open.
#[test]
fn a_zram_device_reset_under_requests_serves_them() {
    let Some(zram) = Zram::new() else {
        return;
    };
    load_each(
        || Some((&zram, zram.path())),
        |zram| {
            for refused in [zram.set("reset", "1"), zram.remove()] {
                let error = refused.unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
            }
        },
        |seen| assert_eq!(seen.failed, 0, "{seen:?}"),
    );
}

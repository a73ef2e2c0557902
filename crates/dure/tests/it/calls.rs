//! Many reads of one thread under way at once.

#![expect(clippy::unwrap_used, reason = "tests")]

use dure::{Calls, FormatOptions, MountOptions, Session, Volume};
use dure_block::fault::{Fault, FaultDevice, Rule, When};
use dure_block::ram::RamDevice;
use dure_block::{Device, DeviceInfo, Io, Op, OsError, Request, Slot, share};
use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{Arc, Mutex};

const PAGE: usize = 4096;
const PAGES: u64 = 600;

fn page(n: u64) -> Vec<u8> {
    let mut bytes = vec![u8::try_from(n % 251).unwrap(); PAGE];
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    bytes
}

/// A volume on a device that is not memory, with a file that is not in memory.
fn cold() -> (Arc<FaultDevice>, Volume, Session) {
    let disk = Arc::new(FaultDevice::new(share(RamDevice::new("disk", 8192))));
    let (volume, session) = cold_on(&share(disk.clone()));
    (disk, volume, session)
}

fn cold_on(disk: &Arc<dyn Device>) -> (Volume, Session) {
    let options = || MountOptions {
        cache_bytes: 8 << 20,
        ..MountOptions::default()
    };
    let format = FormatOptions::default();
    let volume = Volume::create_on(disk.clone(), &format, options()).unwrap();
    let bytes: Vec<u8> = (0..PAGES).flat_map(page).collect();
    volume.root().write("/file", &bytes).unwrap();
    volume.close().unwrap();
    let volume = Volume::open_on(disk.clone(), options()).unwrap();
    let session = volume.root();
    (volume, session)
}

/// A number for each read, without pattern.
fn places() -> impl Iterator<Item = u64> {
    (0..2000_u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40)
}

#[test]
fn each_call_gets_its_bytes_and_its_buffer_back() {
    let (_disk, volume, session) = cold();
    let file = session.open("/file").unwrap();
    let (mut calls, mut reaped) = (Calls::new(16), 0);
    let mut check = |done: dure::Done<(u64, *const u8)>| {
        let (at, memory) = done.token;
        assert_eq!(done.buf.as_ptr(), memory);
        let len = done.result.unwrap();
        // Over two pages, or to the end of the file.
        let whole: Vec<u8> = [page(at), page(at + 1)].concat();
        let left = usize::try_from(PAGES - at).unwrap() * PAGE - 100;
        assert_eq!(len, left.min(5000));
        assert_eq!(done.buf[..len], whole[100..100 + len]);
        reaped += 1;
    };
    for n in places() {
        let (at, buf) = (n % PAGES, vec![0xee; 5000]);
        let memory = buf.as_ptr();
        calls.read(&file, buf, at * 4096 + 100, (at, memory));
        if n % 3 == 0 {
            calls.try_reap().into_iter().for_each(&mut check);
        }
    }
    std::iter::from_fn(|| calls.reap()).for_each(&mut check);
    assert!(calls.is_empty());
    assert_eq!(reaped, 2000);
    drop(calls);
    drop(file);
    volume.close().unwrap();
}

#[test]
fn a_read_sees_what_was_written_while_it_was_under_way() {
    let (_disk, volume, session) = cold();
    let file = dure::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&session, "/file");
    let file = file.unwrap();
    let mut calls = Calls::new(8);
    for at in 0..8 {
        calls.read(&file, vec![0; PAGE], at * 4096, at);
    }
    for at in 0..4 {
        calls.write(&file, vec![0xaa; PAGE], at * 4096, 100 + at);
    }
    for at in 0..8 {
        calls.read(&file, vec![0; PAGE], at * 4096, 200 + at);
    }
    while let Some(done) = calls.reap() {
        assert_eq!(done.result.unwrap(), PAGE);
        match done.token {
            0..4 => assert!(done.buf == page(done.token) || done.buf == [0xaa; PAGE]),
            200..204 => assert_eq!(done.buf, [0xaa; PAGE]),
            100..104 => {}
            n => assert_eq!(done.buf, page(n % 200)),
        }
    }
    drop(calls);
    drop(file);
    volume.close().unwrap();
}

#[test]
fn an_error_goes_to_the_call_whose_page_it_was() {
    let (disk, volume, session) = cold();
    let file = session.open("/file").unwrap();
    // One request of many, some of which are in the device.
    let flaw = Rule::new(When::Nth(40), Fault::Error(OsError::EIO));
    disk.add(flaw.on(Op::Read));
    let mut calls = Calls::new(32);
    for n in places().take(500) {
        calls.read(&file, vec![0; PAGE], n % PAGES * 4096, n % PAGES);
    }
    while let Some(done) = calls.reap() {
        // A failed page is read once more alone, which succeeds here.
        assert_eq!(done.result.unwrap(), PAGE);
        assert_eq!(done.buf, page(done.token));
    }
    disk.clear();
    let all = Rule::new(When::From(1), Fault::Error(OsError::EIO));
    disk.add(all.on(Op::Read));
    let (mut failed, mut good) = (0, 0);
    for at in 0..PAGES {
        calls.read(&file, vec![0; PAGE], at * 4096, at);
    }
    while let Some(done) = calls.reap() {
        match done.result {
            Ok(_) => {
                good += 1;
                assert_eq!(done.buf, page(done.token), "it was in memory");
            }
            Err(error) => {
                failed += 1;
                assert_eq!(
                    error.errno(),
                    rustix::io::Errno::IO.raw_os_error(),
                    "{error}"
                );
            }
        }
    }
    assert!(
        failed > 0 && good > 0,
        "{failed} failed, {good} were in memory"
    );
    disk.clear();
    drop(calls);
    drop(file);
    volume.close().unwrap();
}

#[test]
fn calls_that_are_dropped_hold_no_memory() {
    let (_disk, volume, session) = cold();
    let file = session.open("/file").unwrap();
    // Far more pages than the cache has, if any were kept.
    for round in 0..200 {
        let mut calls = Calls::new(64);
        for n in places().skip(round).take(64) {
            calls.read(&file, vec![0; PAGE], n % PAGES * 4096, n);
        }
    }
    let mut calls = Calls::new(1);
    calls.read(&file, vec![0; PAGE], 4096, 1);
    assert_eq!(calls.reap().unwrap().buf, page(1));
    let new = session.create("/new").unwrap();
    new.write_all_at(&vec![1; 4 << 20], 0).unwrap();
    drop(calls);
    drop((file, new));
    volume.close().unwrap();
}

#[test]
fn a_file_that_is_not_open_for_it_is_not_read() {
    let (_disk, volume, session) = cold();
    let file = dure::OpenOptions::new().write(true).open(&session, "/file");
    let file = file.unwrap();
    let mut calls = Calls::new(1);
    calls.read(&file, vec![0; PAGE], 0, "read");
    let done = calls.reap().unwrap();
    let error = done.result.unwrap_err();
    assert_eq!(error.errno(), rustix::io::Errno::BADF.raw_os_error());
    drop(calls);
    drop(file);
    volume.close().unwrap();
}

/// A device that leaves the first read after it is armed where nobody looks until it is waited for.
#[derive(Debug)]
struct Left {
    info: DeviceInfo,
    ram: RamDevice,
    armed: AtomicBool,
    left: Mutex<0, Option<Request>>,
}

impl Device for Left {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn execute(&self, io: Io<'_>) -> dure_block::Result<()> {
        self.ram.execute(io)
    }

    fn submit(&self, request: Request) {
        if request.bio().op() == Op::Read && self.armed.swap(false, Ordering::Relaxed) {
            *self.left.lock() = Some(request);
        } else {
            request.run_on(&self.ram);
        }
    }

    fn wait(&self, slot: &Slot) {
        let left = self.left.lock().take();
        left.into_iter().for_each(|left| left.run_on(&self.ram));
        slot.sleep();
    }
}

/// A read was overtaken for seconds: it lay, done, in the ring of a core that its thread had left.
#[test]
fn a_call_is_not_overtaken_for_ever() {
    let ram = RamDevice::new("disk", 8192);
    let disk = Arc::new(Left {
        info: DeviceInfo {
            in_memory: false,
            ..ram.info().clone()
        },
        ram,
        armed: AtomicBool::new(false),
        left: Mutex::new(None),
    });
    let (volume, session) = cold_on(&share(disk.clone()));
    let file = session.open("/file").unwrap();
    let (mut calls, mut places) = (Calls::new(4), places());
    disk.armed.store(true, Ordering::Relaxed);
    calls.read(&file, vec![0; PAGE], 0, 0);
    let mut begun = 0;
    while !calls.is_empty() {
        while calls.len() < 4 && begun < 1000 {
            begun += 1;
            let at = 1 + places.next().unwrap() % (PAGES - 1);
            calls.read(&file, vec![0; PAGE], at * 4096, begun);
        }
        if calls.reap().unwrap().token == 0 {
            break;
        }
    }
    assert!((4..100).contains(&begun), "{begun} calls before the first");
    drop(calls);
    drop(file);
    volume.close().unwrap();
}

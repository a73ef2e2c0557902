//! Rings with a kernel of the test on a simulated machine: every request is answered, once, on any
//! schedule, also when the connection ends or an entry is refused.
//!
//! `RUSTFLAGS='--cfg dure_backend="sim"' cargo test -p dure-fuse --test sim`

#![cfg_attr(
    dure_backend = "sim",
    expect(
        clippy::unwrap_used,
        reason = "a test stops at what it does not expect"
    )
)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;

use dure_block::ram::RamDevice;
use dure_block::share;
use dure_fs::{Background, FileSystem, FormatOptions, MountOptions};
use dure_fuse::MountSettings;
use dure_fuse::protocol::reply::OutHeader;
use dure_fuse::protocol::request::{FsyncIn, InHeader, MknodIn, ReadIn};
use dure_fuse::protocol::ring::RingHeaders;
use dure_fuse::protocol::{ROOT, opcode};
use dure_fuse::server::Server;
use dure_fuse::service;
use dure_fuse::transport::uring::entry::Entry;
use dure_fuse::transport::uring::helpers::{Helpers, Returns};
use dure_fuse::transport::uring::port::{Arrival, Bell, Port};
use dure_fuse::transport::uring::serve::{Registered, Shared, serve};
use dure_sync::sim::{Config, run, seeds};
use dure_sync::{Arc, Condvar, CoreId, Mutex, thread};
use zerocopy::{FromBytes, IntoBytes};

/// Rank of the kernel's lock; nothing is taken under it.
const KERNEL: u8 = 16;
const RINGS: u16 = 2;
const CALLERS: u16 = 3;

/// A request: opcode, record, payload.
type Ask = (u32, Vec<u8>, Vec<u8>);

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(u64, Ask)>,
    /// Entries without a request, by their index.
    available: BTreeSet<usize>,
    /// Entries whose request the server has.
    served: BTreeMap<usize, u64>,
    bell: bool,
}

#[derive(Debug, Default)]
struct State {
    queues: [Queue; RINGS as usize],
    replies: BTreeMap<u64, (i32, usize)>,
    requests: u64,
    ended: bool,
}

#[derive(Debug, Default)]
struct Kernel {
    state: Mutex<KERNEL, State>,
    changed: Condvar,
}

impl Kernel {
    /// A caller's system call: the error and the length of the reply.
    fn ask(&self, queue: u16, ask: Ask) -> (i32, usize) {
        let mut state = self.state.lock();
        state.requests += 1;
        let unique = state.requests;
        state.queues[usize::from(queue)]
            .waiting
            .push_back((unique, ask));
        self.changed.notify_all();
        loop {
            if let Some(reply) = state.replies.get(&unique) {
                return *reply;
            }
            if state.ended {
                return (-libc::ENOTCONN, 0);
            }
            state = self.changed.wait(state);
        }
    }

    fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }
}

/// Rings the bell of a queue.
struct FakeBell(Arc<Kernel>, u16);

impl Bell for FakeBell {
    fn ring(&self) {
        self.0.state.lock().queues[usize::from(self.1)].bell = true;
        self.0.changed.notify_all();
    }
}

/// A ring of one queue.
struct FakeRing {
    kernel: Arc<Kernel>,
    queue: u16,
    held: BTreeMap<usize, Entry>,
    /// Commands that the kernel has not seen; whether they commit.
    queued: Vec<(usize, bool)>,
    /// REGISTER is refused from the so-many-th on.
    refuse_from: usize,
}

/// The headers and the payload of an entry, as the kernel finds them.
fn memory(entry: &Entry) -> (*mut RingHeaders, *mut u8) {
    let vectors = usize::try_from(entry.vectors()).unwrap();
    let vectors = std::ptr::with_exposed_provenance::<[usize; 4]>(vectors);
    // SAFETY: the address is that of the four words.
    let [headers, _, payload, _] = unsafe { *vectors };
    (
        std::ptr::with_exposed_provenance_mut(headers),
        std::ptr::with_exposed_provenance_mut(payload),
    )
}

/// Puts a request into an entry.
fn fill(entry: &Entry, unique: u64, (opcode, record, body): &Ask) {
    let (at, payload) = memory(entry);
    // SAFETY: the entry is the kernel's, which is this test.
    let headers = unsafe { &mut *at };
    let header = InHeader {
        len: u32::try_from(size_of::<InHeader>() + record.len() + body.len()).unwrap(),
        opcode: *opcode,
        unique,
        node: ROOT,
        uid: 0,
        gid: 0,
        pid: 1,
        extensions: 0,
        reserved: 0,
    };
    headers.header[..size_of::<InHeader>()].copy_from_slice(header.as_bytes());
    headers.record[..record.len()].copy_from_slice(record);
    headers.entry.commit_id = unique;
    headers.entry.payload_bytes = u32::try_from(body.len()).unwrap();
    // SAFETY: the payload has a megabyte, and is the kernel's as well.
    unsafe { std::ptr::copy_nonoverlapping(body.as_ptr(), payload, body.len()) };
}

impl FakeRing {
    /// The kernel looks at the commands.
    fn take_commands(&mut self, state: &mut State, arrived: &mut Vec<Arrival>) {
        for (index, commits) in self.queued.drain(..) {
            let queue = &mut state.queues[usize::from(self.queue)];
            let entry = &self.held[&index];
            let refused = if state.ended {
                Some(libc::ENOTCONN)
            } else if commits {
                let unique = queue.served.remove(&index).expect("it holds a request");
                assert_eq!(entry.command().commit_id, unique);
                // SAFETY: the entry is the kernel's again.
                let headers = unsafe { &*memory(entry).0 };
                let (out, _) = OutHeader::read_from_prefix(&headers.header).unwrap();
                assert_eq!(out.unique, unique);
                let len = usize::try_from(headers.entry.payload_bytes).unwrap();
                let twice = state.replies.insert(unique, (out.error, len));
                assert_eq!(twice, None, "answered twice");
                None
            } else {
                (index >= self.refuse_from).then_some(libc::EINVAL)
            };
            match refused {
                Some(errno) => {
                    let entry = self.held.remove(&index).unwrap();
                    arrived.push(Arrival::Lost(entry, errno));
                }
                None => {
                    let new = queue.available.insert(index);
                    assert!(new, "an entry is available once");
                }
            }
        }
        self.kernel.changed.notify_all();
    }

    /// What the kernel has for the ring.
    fn take_work(&mut self, state: &mut State, arrived: &mut Vec<Arrival>) {
        let queue = &mut state.queues[usize::from(self.queue)];
        if std::mem::take(&mut queue.bell) {
            arrived.push(Arrival::Bell);
        }
        if state.ended {
            queue.available.clear();
            let held = std::mem::take(&mut self.held).into_values();
            arrived.extend(held.map(|entry| Arrival::Lost(entry, libc::ENOTCONN)));
            return;
        }
        while !queue.waiting.is_empty() {
            let Some(index) = queue.available.pop_first() else {
                return;
            };
            let (unique, ask) = queue.waiting.pop_front().unwrap();
            let entry = self.held.remove(&index).unwrap();
            fill(&entry, unique, &ask);
            queue.served.insert(index, unique);
            arrived.push(Arrival::Request(entry));
        }
    }
}

impl Port for FakeRing {
    fn register(&mut self, entry: Entry) {
        self.queued.push((entry.index(), false));
        self.held.insert(entry.index(), entry);
    }

    fn commit(&mut self, entry: Entry) {
        self.queued.push((entry.index(), true));
        self.held.insert(entry.index(), entry);
    }

    fn submit(&mut self, arrived: &mut Vec<Arrival>) -> io::Result<()> {
        let kernel = Arc::clone(&self.kernel);
        self.take_commands(&mut kernel.state.lock(), arrived);
        Ok(())
    }

    fn wait(&mut self, arrived: &mut Vec<Arrival>) -> io::Result<()> {
        let kernel = Arc::clone(&self.kernel);
        let mut state = kernel.state.lock();
        self.take_commands(&mut state, arrived);
        loop {
            self.take_work(&mut state, arrived);
            if !arrived.is_empty() {
                return Ok(());
            }
            state = kernel.changed.wait(state);
        }
    }

    fn held(&self) -> usize {
        self.held.len()
    }
}

/// One of the calls of a caller: short ones, with and without a payload, and such as a ring's thread
/// hands over.
fn call(caller: u16, step: u16) -> Ask {
    match (caller + step) % 4 {
        0 => {
            let made = MknodIn {
                mode: libc::S_IFREG | 0o644,
                rdev: 0,
                umask: 0,
                reserved: 0,
            };
            let name = format!("n{caller}-{step}\0").into_bytes();
            (opcode::MKNOD, made.as_bytes().to_vec(), name)
        }
        1 => {
            let fsync = FsyncIn {
                handle: 0,
                flags: 0,
                reserved: 0,
            };
            (opcode::FSYNCDIR, fsync.as_bytes().to_vec(), Vec::new())
        }
        2 => (opcode::STATFS, Vec::new(), Vec::new()),
        _ => {
            let list = ReadIn {
                handle: 0,
                offset: 0,
                size: 4096,
                read_flags: 0,
                lock_owner: 0,
                flags: 0,
                reserved: 0,
            };
            (opcode::READDIRPLUS, list.as_bytes().to_vec(), Vec::new())
        }
    }
}

/// The volume of all schedules' servers.
fn server() -> Arc<Server> {
    let ram = share(RamDevice::new("rings", 4096));
    let format = FormatOptions {
        journals: Some(2),
        ..FormatOptions::default()
    };
    FileSystem::format(Arc::clone(&ram), &format).unwrap();
    let options = MountOptions {
        background: Background::None,
        ..MountOptions::default()
    };
    let volume = FileSystem::open(ram, options).unwrap();
    Arc::new(Server::new(volume, &MountSettings::default()))
}

/// Starts the rings, with `depth` entries each; returns when the kernel knows them.
fn start(
    kernel: &Arc<Kernel>,
    depth: usize,
    refuse_from: usize,
) -> (Vec<thread::JoinHandle<()>>, Shared, Option<i32>) {
    let server = server();
    let cores: Vec<CoreId> = (0..RINGS).map(CoreId::new).collect();
    let service = service::share(server);
    let shared = Shared {
        helpers: Helpers::new(&service, Box::new(|_| true), 2, cores),
        service,
        registered: Arc::new(Registered::default()),
    };
    let threads = (0..RINGS).map(|queue| {
        let (kernel, shared) = (Arc::clone(kernel), shared.clone());
        thread::spawn_on("ring", CoreId::new(queue), move || {
            let entries = (0..depth).map(|index| Entry::new(index, queue)).collect();
            let bell = FakeBell(Arc::clone(&kernel), queue);
            let returns = Arc::new(Returns::new(Box::new(bell)));
            let mut ring = FakeRing {
                kernel,
                queue,
                held: BTreeMap::new(),
                queued: Vec::new(),
                refuse_from: if queue == 0 { refuse_from } else { usize::MAX },
            };
            serve(&mut ring, entries, &returns, &shared).unwrap();
        })
    });
    let threads = threads.collect();
    let refused = shared.registered.wait(RINGS.into());
    (threads, shared, refused)
}

/// Callers on both cores, each with a few calls; `ends_early` while they are at it.
fn all_are_answered(depth: usize, ends_early: bool) {
    let kernel = Arc::new(Kernel::default());
    let (rings, shared, refused) = start(&kernel, depth, usize::MAX);
    assert_eq!(refused, None);
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let kernel = Arc::clone(&kernel);
            thread::spawn_on("caller", CoreId::new(caller % RINGS), move || {
                for step in 0..4 {
                    let (error, len) = kernel.ask(caller % RINGS, call(caller, step));
                    if error == -libc::ENOTCONN && ends_early {
                        continue;
                    }
                    assert_eq!(error, 0, "call {step} of {caller}");
                    let empty = (caller + step) % 4 == 1;
                    assert_eq!(len == 0, empty, "call {step} of {caller}");
                }
            })
        })
        .collect();
    if ends_early {
        thread::yield_now();
        kernel.end();
    }
    callers
        .into_iter()
        .for_each(|caller| caller.join().unwrap());
    kernel.end();
    rings.into_iter().for_each(|ring| ring.join().unwrap());
    shared.helpers.end();
}

fn on_all_schedules(count: u64, body: impl Fn() + Clone + Send + 'static) {
    for seed in seeds(count) {
        let (one, two) = (body.clone(), body.clone());
        run(Config::random(RINGS.into(), seed), one);
        run(Config::stall(RINGS.into(), seed), two);
    }
}

#[test]
fn sim_every_request_is_answered_once() {
    for depth in [1, 2, 4] {
        on_all_schedules(100, move || all_are_answered(depth, false));
    }
}

#[test]
fn sim_the_end_of_the_connection_finds_every_thread() {
    on_all_schedules(200, || all_are_answered(2, true));
}

/// The session then has to serve the device with all its workers.
#[test]
fn sim_a_refused_entry_is_told() {
    on_all_schedules(100, || {
        let kernel = Arc::new(Kernel::default());
        let (rings, shared, refused) = start(&kernel, 3, 1);
        assert_eq!(refused, Some(libc::EINVAL));
        kernel.end();
        rings.into_iter().for_each(|ring| ring.join().unwrap());
        shared.helpers.end();
    });
}

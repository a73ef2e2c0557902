//! The listening side, in the process that serves a mount.

use std::io::{BufRead, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;

use anyhow::{Context, Result, bail};
use dure::stream::Sender;
use dure_block::Device;
use dure_fs::{FileSystem, RoomTaken, SnapshotInfo};
use dure_fuse::{GrowError, MountedVolume};
use dure_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use dure_sync::{Arc, Condvar, Mutex, clock, thread};

use super::scrub::Scrubs;
use super::snapshots::SnapshotMounts;
use super::wire::{
    Grown, Mounted, QuotaRow, QuotaTask, Reply, Request, ScrubReport, ScrubTask, Snapshot,
    SnapshotRow, SnapshotTask, TraceLine,
};
use crate::command::changes::{self, ChangeRow};
use crate::command::resize::Sizes;
use crate::command::{project, quota, snapshot};
use crate::log::{self, Level};

/// Connections at a time.
const CONNECTIONS_MAX: usize = 16;
/// Rank of the lock of the closing message; no other lock is taken while it is held.
const CLOSING: u8 = 12;
/// Bytes of a request.
const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// Answers until it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<thread::JoinHandle<()>>,
}

/// What can be asked about a mount.
#[derive(Debug, Clone)]
pub(crate) struct Observed {
    volume: MountedVolume,
    mounted: Mounted,
    /// When it was mounted last. Relaxed: a time to be shown.
    since_ns: Arc<AtomicU64>,
    grows: Option<Grows>,
    pub(crate) snapshot_mounts: Arc<SnapshotMounts>,
    pub(crate) scrubs: Arc<Scrubs>,
}

/// What a growth of a mounted volume needs.
#[derive(Debug, Clone)]
pub(crate) struct Grows {
    /// The device as the mount found it, with the claim on it.
    pub(crate) device: Arc<dyn Device>,
    /// It is no image file.
    pub(crate) is_block_device: bool,
}

impl Observed {
    /// A mount that begins now; one that can grow, if it is said how.
    pub(crate) fn new(
        volume: MountedVolume,
        mounted: Mounted,
        grows: Option<Grows>,
        snapshot_mounts: Arc<SnapshotMounts>,
    ) -> Observed {
        Observed {
            volume,
            mounted,
            since_ns: Arc::new(AtomicU64::new(clock::monotonic_ns())),
            grows,
            snapshot_mounts,
            scrubs: Arc::default(),
        }
    }

    /// With what scrubs the volume.
    pub(crate) fn scrubbed_by(self, scrubs: Arc<Scrubs>) -> Observed {
        Observed { scrubs, ..self }
    }

    /// Does this to the snapshots of the volume; those that there are then.
    fn do_all(&self, tasks: &[SnapshotTask]) -> Result<Vec<SnapshotRow>> {
        let file_system = self.volume.file_system();
        self.snapshot_mounts.await_unmounted();
        snapshot::allow(&file_system, tasks)?;
        let is_deleted = |info: &SnapshotInfo| {
            let is = |task: &SnapshotTask| matches!(task, SnapshotTask::Delete { name } if *name == info.name);
            tasks.iter().any(is)
        };
        let mut deleted = file_system.snapshots();
        deleted.retain(is_deleted);
        self.snapshot_mounts.end_unused(&deleted);
        for info in &deleted {
            file_system.check_snapshot_unused(&info.name)?;
        }
        for task in tasks {
            snapshot::perform(&file_system, task)?;
        }
        Ok(snapshot::rows(&file_system))
    }

    /// Sends what differs between two snapshots, or one and the present.
    fn tell_changes(
        &self,
        names: (&str, Option<&str>),
        send: &mut dyn FnMut(Vec<ChangeRow>) -> Result<()>,
    ) -> Result<()> {
        // Before it is asked for: no growth replaces it meanwhile.
        let _use = self.snapshot_mounts.begin_use()?;
        changes::batches(&self.volume.file_system(), names, send)
    }

    /// Answers with a snapshot as a stream, until the server ends. An error in the middle is in the
    /// stream.
    fn send(
        &self,
        stream: &UnixStream,
        (name, from): (&str, Option<&str>),
        is_ending: &AtomicBool,
    ) -> Result<()> {
        // Before it is asked for: no growth replaces it meanwhile.
        let opened = self.snapshot_mounts.begin_use().and_then(|in_use| {
            let sender = Sender::open(&self.volume.file_system(), name, from)?;
            Ok((in_use, sender))
        });
        let (_use, sender) = match opened {
            Ok(opened) => opened,
            Err(error) => return answer(stream, &done(Err(error))),
        };
        answer(stream, &Reply::Sending)?;
        let mut out = stream;
        // Acquire: pairs with the Release in `drop`.
        sender.send(&mut out, &mut |_| match is_ending.load(Ordering::Acquire) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })?;
        Ok(())
    }

    /// Does this to the quotas; what users and groups have then. What is switched on counts from a mount
    /// on: the volume is mounted again.
    fn do_quotas(&self, task: Option<QuotaTask>) -> Result<Vec<QuotaRow>> {
        let file_system = self.volume.file_system();
        let is_off = !file_system.has_quotas();
        if task.is_some() && self.mounted.read_only {
            let directory = &self.mounted.directory;
            bail!(
                "it is mounted read-only; `dure umount {directory}`, and try again on the volume"
            );
        }
        match task {
            // Data loss without: write(2) succeeds for all that the kernel collects, and what is above a
            // hard limit is dropped later.
            Some(QuotaTask::Enable) if is_off && self.volume.kernel_collects() => bail!(
                "the kernel collects the writes of this mount, so write(2) could not say that a quota is \
                 used up; mount with -o writethrough, or unmount and enable quotas then"
            ),
            Some(QuotaTask::Enable) if is_off => {
                file_system.switch_quotas_on()?;
                drop(file_system);
                self.scrubs.apart(&self.volume, || self.mount_again())?;
            }
            Some(task) => quota::perform(&file_system, task)?,
            None => return quota::rows(&file_system),
        }
        Ok(Vec::new())
    }

    /// Gives a directory a project, or asks for it, until the server ends; tells how far that is.
    fn do_project(
        &self,
        stream: &UnixStream,
        (directory, id): (&str, Option<u32>),
        is_ending: &AtomicBool,
    ) -> Result<()> {
        // Before it is asked for: no growth replaces it meanwhile.
        let _use = self.snapshot_mounts.begin_use()?;
        let file_system = self.volume.file_system();
        // A client that goes away stops it. Acquire: pairs with the Release in `drop`.
        project::perform(&file_system, directory, id, &mut |id, inodes| {
            let told = answer(stream, &Reply::Project { id, inodes });
            told.is_ok() && !is_ending.load(Ordering::Acquire)
        })
    }

    /// Mounts the volume anew, while files stay open.
    fn mount_again(&self) -> Result<()> {
        let later = "quotas are on from the next mount on: it cannot be mounted again by itself";
        let Some(grows) = &self.grows else {
            bail!(later);
        };
        let snapshots = self.volume.file_system().snapshots();
        let _growth = self
            .snapshot_mounts
            .begin_growth(&snapshots)
            .context(later)?;
        let Some(device) = grows.device.reopened(None)? else {
            bail!(later);
        };
        self.volume.mount_again(device).inspect_err(|error| {
            if matches!(error, GrowError::NotMounted(_)) {
                log::said(Level::Error, &error.to_string());
            }
        })?;
        self.since_ns
            .store(clock::monotonic_ns(), Ordering::Relaxed);
        Ok(())
    }

    fn mount_snapshot(&self, name: &str, directory: &str) -> Result<()> {
        let mounts = &self.snapshot_mounts;
        // Before it is asked for: no growth replaces it meanwhile.
        let _use = mounts.begin_use()?;
        let file_system = self.volume.file_system();
        mounts.mount(&file_system, name, Path::new(directory))
    }

    /// All numbers.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let clock_ns = clock::monotonic_ns();
        let activity = self.volume.file_system().activity();
        let since_ns = self.since_ns.load(Ordering::Relaxed);
        let up_ns = clock_ns.saturating_sub(since_ns);
        let times = (clock_ns, up_ns);
        let collected = self.volume.kernel_cache_bytes();
        let more = (collected, self.scrubs.numbers());
        Snapshot::of(self.mounted.clone(), times, &activity, more)
    }

    /// Does this to the scrub; how that is then.
    fn scrub(&self, task: ScrubTask) -> ScrubReport {
        match task {
            ScrubTask::Start { rate } => self.scrubs.start(&self.volume, rate),
            ScrubTask::Pause => self.scrubs.pause(),
            ScrubTask::Status => {}
        }
        self.scrubs.report()
    }

    /// Lets the volume grow, while no scrub has it.
    fn grow_apart(&self, bytes: Option<u64>) -> Result<Grown> {
        self.scrubs.apart(&self.volume, || self.grow(bytes))
    }

    /// Lets the volume grow to `bytes`, or to the size that its device has by now.
    fn grow(&self, bytes: Option<u64>) -> Result<Grown> {
        let Some(grows) = &self.grows else {
            bail!("cannot grow while it is mounted; unmount it first");
        };
        // A growth mounts the volume anew: what shows a snapshot knows the old mount only.
        let snapshots = self.volume.file_system().snapshots();
        let _growth = self.snapshot_mounts.begin_growth(&snapshots)?;
        let present = grows.device.reopened(None)?;
        let Some(present) = present else {
            bail!(
                "lies in persistent memory and cannot grow while it is mounted; unmount it first"
            );
        };
        let have = present.info().blocks;
        let file_system = self.volume.file_system();
        let sizes = Sizes {
            layout: file_system.layout(),
            have,
            is_block_device: grows.is_block_device,
        };
        let want = sizes.wanted(bytes)?;
        file_system.grown(want)?;
        drop(file_system);
        let larger = grows.device.reopened((want > have).then_some(want))?;
        let (before, after) = self
            .volume
            .grow(larger.unwrap_or(present))
            .inspect_err(|error| {
                if matches!(error, GrowError::NotMounted(_)) {
                    log::said(Level::Error, &error.to_string());
                }
            })?;
        self.since_ns
            .store(clock::monotonic_ns(), Ordering::Relaxed);
        let grown = Grown::of(&before, &after);
        log::said(Level::Info, &format!("grown: {grown}"));
        Ok(grown)
    }
}

#[derive(Debug)]
struct Shared {
    observed: Observed,
    /// Set when the server is dropped.
    is_ending: AtomicBool,
    connections: AtomicUsize,
    closing: Mutex<CLOSING, Closing>,
    /// The volume was closed, or a connection that waited for that was told.
    changed: Condvar,
}

/// How connections are told that the volume was closed.
#[derive(Debug, Default)]
struct Closing {
    /// Set when the volume was closed; the error, if it failed.
    outcome: Option<Option<String>>,
    /// Connections that wait for it and were not told.
    waiting: usize,
}

impl Shared {
    /// Waits until the volume is closed; returns the error, if closing failed. The caller has
    /// counted itself in `waiting`.
    fn await_close(&self) -> Option<String> {
        let mut closing = self.closing.lock();
        loop {
            if let Some(outcome) = &closing.outcome {
                return outcome.clone();
            }
            closing = self.changed.wait(closing);
        }
    }

    fn told(&self) {
        self.closing.lock().waiting -= 1;
        self.changed.notify_all();
    }
}

impl Server {
    /// The volume was closed: tells the connections that wait for it.
    pub(crate) fn finish(self, error: Option<String>) {
        let mut closing = self.shared.closing.lock();
        closing.outcome = Some(error);
        self.shared.changed.notify_all();
        // Bounded: each waiter does one short write to a socket, which fails if the client does not
        // read.
        while closing.waiting > 0 {
            closing = self.shared.changed.wait(closing);
        }
    }

    /// Listens at the address of a volume.
    ///
    /// # Errors
    /// When a server listens there already.
    pub(crate) fn start(address: &SocketAddr, observed: Observed) -> Result<Server> {
        let listener = UnixListener::bind_addr(address).context("its socket")?;
        let shared = Arc::new(Shared {
            observed,
            is_ending: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            closing: Mutex::new(Closing::default()),
            changed: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        let thread = thread::spawn("dure-live", move || accept(&listener, &accepting));
        Ok(Server {
            shared,
            address: address.clone(),
            thread: Some(thread),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `accept`.
        self.shared.is_ending.store(true, Ordering::Release);
        // Wakes the accepting thread, which checks the flag after each connection.
        let woken = UnixStream::connect_addr(&self.address);
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        // Acquire: pairs with the Release in `drop`.
        if shared.is_ending.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else {
            // Out of descriptors or memory: a passing state, so wait instead of spinning.
            thread::sleep(std::time::Duration::from_millis(100));
            continue;
        };
        // Relaxed: a bound, which orders nothing.
        let others = shared.connections.fetch_add(1, Ordering::Relaxed);
        if others >= CONNECTIONS_MAX || !super::is_trusted(&stream).unwrap_or(false) {
            shared.connections.fetch_sub(1, Ordering::Relaxed);
            let _ = answer(&stream, &Reply::Refused);
            continue;
        }
        let own = Arc::clone(shared);
        let _ = thread::spawn("dure-live-answer", move || {
            // A client that goes away in the middle is no error.
            let _ = serve(&own, &stream);
            own.connections.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn answer(mut stream: &UnixStream, reply: &Reply) -> Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    Ok(())
}

/// What was asked for is done, or why not.
fn done(result: Result<()>) -> Reply {
    Reply::Done {
        error: result.err().map(|error| format!("{error:#}")),
    }
}

/// What was asked for, or why not.
fn or_why<T>(result: Result<T>, reply: impl FnOnce(T) -> Reply) -> Reply {
    result.map_or_else(|error| done(Err(error)), reply)
}

/// The events from these on, if there is a trace.
fn traced(file_system: &FileSystem, from: &[u64]) -> Reply {
    match file_system.trace() {
        Some(trace) if trace.is_on() => {
            let batch = trace.read(from);
            Reply::Trace {
                events: batch.records.iter().map(TraceLine::of).collect(),
                next: batch.next,
                lost: batch.lost,
            }
        }
        _ => Reply::Tracing { is_on: false },
    }
}

/// Starts the trace, if there is one; whether it is on.
fn start_trace(fs: &FileSystem, events_per_core: usize, tracing: &mut Option<Tracing>) -> bool {
    let Some(trace) = fs.trace() else {
        return false;
    };
    tracing.get_or_insert_with(|| {
        trace.start(events_per_core);
        Tracing(fs.clone())
    });
    true
}

/// What takes the room of a volume.
fn room(fs: &FileSystem) -> Reply {
    let RoomTaken {
        used,
        in_logs,
        of_snapshots,
        spared,
    } = fs.room_taken();
    Reply::Room {
        used,
        in_logs,
        of_snapshots,
        spared,
        snapshots: fs.snapshots().len(),
    }
}

/// Keeps the trace on while a connection wants it.
struct Tracing(FileSystem);

impl Drop for Tracing {
    fn drop(&mut self) {
        if let Some(trace) = self.0.trace() {
            trace.stop();
        }
    }
}

fn serve(shared: &Shared, stream: &UnixStream) -> Result<()> {
    let mut tracing = None;
    let mut requests = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        let mut bounded = requests.by_ref().take(REQUEST_BYTES_MAX);
        let read = bounded.read_until(b'\n', &mut line)?;
        // Acquire: pairs with the Release in `drop`.
        if read == 0 || shared.is_ending.load(Ordering::Acquire) {
            return Ok(());
        }
        let file_system = shared.observed.volume.file_system();
        let reply = match serde_json::from_slice(&line) {
            Ok(Request::Snapshot) => Reply::Snapshot(Box::new(shared.observed.snapshot())),
            Ok(Request::StartTrace { events_per_core }) => {
                let is_on = start_trace(&file_system, events_per_core, &mut tracing);
                Reply::Tracing { is_on }
            }
            Ok(Request::Trace { from }) => traced(&file_system, &from),
            Ok(Request::Sync) => done(file_system.sync().map_err(Into::into)),
            Ok(Request::Grow { bytes }) => {
                drop(file_system);
                or_why(shared.observed.grow_apart(bytes), Reply::Grown)
            }
            Ok(Request::Snapshots { tasks }) => {
                let list = shared.observed.do_all(&tasks);
                or_why(list, |list| Reply::Snapshots { list })
            }
            Ok(Request::Quotas { task }) => {
                drop(file_system);
                let list = shared.observed.do_quotas(task);
                or_why(list, |list| Reply::Quotas { list })
            }
            Ok(Request::Project { directory, id }) => {
                let (observed, is_ending) = (&shared.observed, &shared.is_ending);
                done(observed.do_project(stream, (&directory, id), is_ending))
            }
            Ok(Request::Changes { from, to }) => {
                let names = (from.as_str(), to.as_deref());
                let mut send = |list| answer(stream, &Reply::Changes { list });
                done(shared.observed.tell_changes(names, &mut send))
            }
            Ok(Request::Send { name, from }) => {
                drop(file_system);
                let names = (name.as_str(), from.as_deref());
                return shared.observed.send(stream, names, &shared.is_ending);
            }
            Ok(Request::MountSnapshot { name, directory }) => {
                done(shared.observed.mount_snapshot(&name, &directory))
            }
            Ok(Request::Room) => room(&file_system),
            Ok(Request::Scrub(task)) => {
                drop(file_system);
                Reply::Scrub(Box::new(shared.observed.scrub(task)))
            }
            Ok(Request::AwaitClose) => {
                // Counted before the reply: the client unmounts only after it.
                shared.closing.lock().waiting += 1;
                let told = answer(stream, &Reply::Awaiting).and_then(|()| {
                    let error = shared.await_close();
                    answer(stream, &Reply::Done { error })
                });
                shared.told();
                told?;
                continue;
            }
            Err(error) => Reply::Unknown {
                why: error.to_string(),
            },
        };
        answer(stream, &reply)?;
    }
}

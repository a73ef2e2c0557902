//! Requests through rings of io_uring (Linux 6.14), one for each core.
//!
//! **Problem.** A request from `/dev/fuse` goes to a worker on whichever core, and costs a wake-up
//! on another core, a read(2) and a write(2). **Structure.** The kernel has a queue for each CPU,
//! and puts a request into that of its caller. [`ring`] is an io_uring with entries of such queues,
//! served by a thread bound to the core ([`mod@serve`]): the system call that sends a reply also waits
//! for the next request, which the kernel copies into the [`entry`] itself. What takes long goes to
//! [`helpers`]. [`port`] is what a ring is to its thread, [`idle`] and `schedule` how the scheduler
//! treats that, [`switch`] whether the kernel offers rings.
//!
//! **Invariants.** Each queue has two entries at least: the kernel sends nothing before it has one,
//! and a request may keep one while it asks the kernel, which may need the other. FORGET,
//! INTERRUPT and notifications stay with `/dev/fuse`, which is served besides, and by as many
//! workers as without rings if the kernel refuses an entry. **Crash.** As with `/dev/fuse`.

pub mod entry;
pub mod helpers;
pub mod idle;
pub mod port;
pub mod ring;
mod schedule;
pub mod serve;
pub mod switch;

use std::io;

use dure_sync::thread::{self, JoinHandle};
use dure_sync::{Arc, CoreId, core_count};

use self::entry::Entry;
use self::helpers::{Helpers, Returns};
use self::idle::{Idle, RingPolicy};
use self::ring::Ring;
use self::serve::{Registered, Shared, serve};
use super::device::Channel;
use crate::service::{Errno, Question, Service};

/// Least and greatest number of entries of a queue.
const DEPTH: (usize, usize) = (2, 32);
/// Cache memory required for each entry: it takes up to a megabyte of its own.
const CACHE_BYTES: u64 = 8 << 20;
/// Entries of a queue of a CPU that the server may not run on, or that is offline.
const DEPTH_FOREIGN: usize = DEPTH.0;

/// How many entries each of so many queues has, with a cache of so many bytes.
#[must_use]
pub fn depth(cache_bytes: u64, queues: usize) -> usize {
    let afforded = usize::try_from(cache_bytes / CACHE_BYTES).unwrap_or(usize::MAX) / queues.max(1);
    afforded.clamp(DEPTH.0, DEPTH.1)
}

/// Rings that are set up, with entries that the kernel does not know yet.
#[derive(Debug)]
pub struct Rings {
    rings: Vec<(CoreId, Ring, Vec<Entry>)>,
}

/// The threads of the rings.
#[derive(Debug)]
pub struct Running {
    threads: Vec<JoinHandle<()>>,
    helpers: Arc<Helpers>,
    refused: Option<Errno>,
}

impl Rings {
    /// For all queues of the connection, with `depth` entries each.
    ///
    /// # Errors
    /// What io_uring_setup(2) says, as a sentence.
    pub fn new(channel: &Channel, depth: usize) -> io::Result<Rings> {
        let rings = shares(core_count(), &allowed())
            .into_iter()
            .map(|(core, queues)| {
                let of_queue = |queue: CoreId| match queue == core {
                    true => depth,
                    false => DEPTH_FOREIGN,
                };
                let queues = queues
                    .into_iter()
                    .flat_map(|queue| std::iter::repeat_n(queue.number(), of_queue(queue)));
                let entries: Vec<Entry> = queues
                    .enumerate()
                    .map(|(index, queue)| Entry::new(index, queue))
                    .collect();
                let ring = Ring::new(channel.another(), entries.len());
                ring.map(|ring| (core, ring, entries))
            })
            .collect::<io::Result<_>>()
            .map_err(why)?;
        Ok(Rings { rings })
    }

    /// Starts their threads, and returns when the kernel knows, or has refused, all entries.
    #[must_use]
    pub fn run(
        self,
        service: &Arc<dyn Service>,
        channel: &Channel,
        (helpers_max, policy): (usize, RingPolicy),
    ) -> Running {
        let gives_way = policy == RingPolicy::Idle && idle::may_return();
        let asks = channel.another();
        let knows = Box::new(move |question: Question| asks.knows(&question));
        let shared = Shared {
            service: Arc::clone(service),
            helpers: Helpers::new(service, knows, helpers_max, allowed()),
            registered: Arc::new(Registered::default()),
        };
        let count = self.rings.len();
        let threads = self.rings.into_iter().map(|(core, mut ring, entries)| {
            let shared = shared.clone();
            thread::spawn_vital(&format!("dure-ring-{core}"), &[core], move || {
                // Without it, it is run later where others want the CPU, and that is all.
                let _ = schedule::shorten();
                let returns = Arc::new(Returns::new(Box::new(ring.bell())));
                ring.gives_way(gives_way.then(Idle::begin).flatten());
                let served = ring
                    .begin()
                    .and_then(|()| serve(&mut ring, entries, &returns, &shared));
                served.expect("a ring that was set up serves its CPU until the connection ends");
            })
        });
        let threads = threads.collect();
        Running {
            threads,
            refused: shared.registered.wait(count),
            helpers: shared.helpers,
        }
    }
}

impl Running {
    /// Why the kernel uses `/dev/fuse` all the same.
    #[must_use]
    pub fn refused(&self) -> Option<Errno> {
        self.refused
    }

    /// Waits until the connection has ended, and the threads with it.
    pub fn end(self) {
        for thread in self.threads {
            thread
                .join()
                .expect("a ring's thread that panics ends the process");
        }
        self.helpers.end();
    }
}

/// Which cores have a ring, and the queues that it serves: its own, and one of a core that has none
/// in turn.
fn shares(queues: usize, allowed: &[CoreId]) -> Vec<(CoreId, Vec<CoreId>)> {
    let mut shares: Vec<(CoreId, Vec<CoreId>)> =
        allowed.iter().map(|core| (*core, vec![*core])).collect();
    let mut turn = 0;
    for queue in 0..queues {
        let queue = CoreId::new(u16::try_from(queue).expect("Linux has at most 8192 cores"));
        if allowed.contains(&queue) {
            continue;
        }
        if shares.is_empty() {
            shares.push((queue, Vec::new()));
        }
        let of = turn % shares.len();
        shares[of].1.push(queue);
        turn += 1;
    }
    shares
}

/// The cores that this process may run on, and that are there.
fn allowed() -> Vec<CoreId> {
    let set = rustix::thread::sched_getaffinity(None);
    let cores = (0..core_count()).filter(|core| set.as_ref().is_ok_and(|set| set.is_set(*core)));
    cores
        .filter_map(|core| u16::try_from(core).ok().map(CoreId::new))
        .collect()
}

/// What to do about a ring that cannot be set up.
fn why(error: io::Error) -> io::Error {
    let advice = match error.raw_os_error() {
        Some(libc::EPERM) => {
            "io_uring is forbidden here (sysctl kernel.io_uring_disabled, or a seccomp filter)"
        }
        Some(libc::ENOSYS) => "the kernel has no io_uring, or a seccomp filter hides it",
        Some(libc::ENOMEM) => {
            "no memory for a ring (RLIMIT_MEMLOCK, `ulimit -l`, or the memory of the control group)"
        }
        _ => "a ring could not be set up",
    };
    io::Error::new(error.kind(), format!("{advice}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::why;
    use std::io;

    #[test]
    fn a_ring_that_is_refused_is_told_with_what_refuses_it() {
        for (errno, words) in [
            (libc::EPERM, "kernel.io_uring_disabled, or a seccomp filter"),
            (libc::ENOSYS, "the kernel has no io_uring"),
            (libc::ENOMEM, "`ulimit -l`"),
            (libc::EINVAL, "could not be set up: Invalid argument"),
        ] {
            let told = why(io::Error::from_raw_os_error(errno)).to_string();
            assert!(told.contains(words), "{told}");
        }
    }
}

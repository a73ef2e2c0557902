//! An asynchronous request on its way through a device, and the slot its completion lands in.
//!
//! **Problem.** The device uses the memory of a request until it completes; the submitter does
//! other work meanwhile. **Structure.** [`Request`] owns a [`Bio`], on the heap: it goes as a pointer
//! from the plug to the queue, the device and its completion, which moves the memory into the
//! [`Slot`] that the submitter's ticket shares.
//! **Invariants.** A request completes exactly once: dropping one completes it with
//! [`Error::Abandoned`], so that no task waits for ever. Its tag is free when the submitter learns
//! of the completion. **Crash.** Nothing is kept.

use std::fmt;
use std::time::Duration;

use dure_sync::atomic::{AtomicU32, Ordering};
use dure_sync::{Arc, Mutex, Waiting, clock, futex};

use crate::device::Device;
use crate::queue::{Context, Plugged, Tag};
use crate::rank::SLOT_RANK;
use crate::{Bio, BlockBuf, Error, Io, Op, Result, Segments, WriteFlags};

/// When a request passed each stage, in nanoseconds of the monotonic clock; 0 = not stamped.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Stamps {
    /// Q: the queue got the request.
    pub queued_ns: u64,
    /// M: it became a part of another's request, and took no tag.
    pub merged_ns: u64,
    /// G: it got a tag.
    pub tagged_ns: u64,
    /// I: it was inserted into the hardware queue.
    pub inserted_ns: u64,
    /// D: the device got it.
    pub dispatched_ns: u64,
    /// C: it completed.
    pub completed_ns: u64,
    /// How long it was held up by a lack of tags, between Q and G: its own wait, and those of the
    /// requests that left its plug before it.
    pub tag_wait_ns: u64,
}

/// A request that completed.
#[derive(Debug)]
pub struct Completion {
    /// The caller's value from [`Bio::with_cookie`].
    pub cookie: u64,
    /// Success, or the error.
    pub result: Result<()>,
    /// The memory of the bio.
    pub segments: Segments,
    /// The stages it passed; all zero unless the queue traces.
    pub stamps: Stamps,
}

impl Completion {
    /// The memory, if the request succeeded.
    ///
    /// # Errors
    /// The error of the request.
    pub fn into_segments(self) -> Result<Segments> {
        self.result.map(|()| self.segments)
    }
}

const PENDING: u32 = 0;
const SLEEPING: u32 = 1;
const DONE: u32 = 2;

/// Where a completion lands. Devices use it to wait ([`Slot::sleep`]) and to find their own
/// bookkeeping ([`Slot::hint`]).
#[derive(Debug)]
pub struct Slot {
    /// Written by the completer (`DONE`, after `completion`) and by a waiter (`SLEEPING`).
    /// Publishes `completion`.
    state: AtomicU32,
    /// Written by the device in `submit`, read by the same device in `wait`.
    hint: AtomicU32,
    completion: Mutex<SLOT_RANK, Option<Completion>>,
}

impl Slot {
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU32::new(PENDING),
            hint: AtomicU32::new(0),
            completion: Mutex::new(None),
        }
    }

    /// Whether the request has completed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        // Acquire: pairs with the Release in `fill`; publishes the completion.
        self.state.load(Ordering::Acquire) == DONE
    }

    /// What the device noted with [`Request::set_hint`].
    #[must_use]
    pub fn hint(&self) -> u32 {
        // Relaxed: the ticket that leads here was handed out after the device stored the hint.
        self.hint.load(Ordering::Relaxed)
    }

    /// Sleeps until the request completes, for devices that complete requests without being polled.
    pub fn sleep(&self) {
        while !self.is_done() {
            self.sleep_once(None);
        }
    }

    /// Sleeps until the request completes, for at most `most`; may return early.
    pub(crate) fn sleep_once(&self, most: Option<Duration>) {
        let _waiting = Waiting::on_device();
        // Relaxed: only tells that a task sleeps; the futex compares again.
        let _ =
            self.state
                .compare_exchange(PENDING, SLEEPING, Ordering::Relaxed, Ordering::Relaxed);
        futex::wait(&self.state, SLEEPING, most);
    }

    fn fill(&self, completion: Completion) {
        let previous = self.completion.lock().replace(completion);
        assert!(previous.is_none(), "a request completes once");
        // Release: pairs with the Acquire in `is_done`; publishes the completion.
        if self.state.swap(DONE, Ordering::Release) == SLEEPING {
            futex::wake(&self.state, u32::MAX);
        }
    }

    /// The completion, for the ticket, which is its only taker.
    pub(crate) fn take(slot: Arc<Self>) -> Completion {
        assert!(slot.is_done(), "a completion is taken after it arrived");
        // Usually the completer has let it go: then no other task can hold the lock.
        let completion = match Arc::try_unwrap(slot) {
            Ok(slot) => slot.completion.into_inner(),
            Err(slot) => slot.completion.lock().take(),
        };
        completion.expect("the ticket is the only taker")
    }
}

/// Called with the result of a request before its submitter learns of it.
type Observer = Box<dyn FnOnce(&Bio, &Result<()>) + Send>;

struct Inner {
    /// The bio, and the bios it is made of.
    plugged: Plugged,
    /// `None` in the plug.
    tag: Option<Tag>,
    stamps: Stamps,
    context: Arc<Context>,
    observers: Vec<Observer>,
}

/// An asynchronous request in the hands of a device.
pub struct Request {
    /// Present until completion.
    inner: Option<Box<Inner>>,
}

impl Request {
    /// A request that has no tag yet.
    pub(crate) fn new(plugged: Plugged, context: Arc<Context>) -> Self {
        let inner = Inner {
            plugged,
            tag: None,
            stamps: Stamps::default(),
            context,
            observers: Vec::new(),
        };
        Self {
            inner: Some(Box::new(inner)),
        }
    }

    /// It has a tag, which it or those before it in the plug waited for so long, and goes to the
    /// device.
    pub(crate) fn tagged(&mut self, tag: Tag, waited_ns: u64) {
        let inner = self.inner_mut();
        inner.tag = Some(tag);
        if inner.context.is_traced() {
            // There is no scheduler between G and I.
            let now = clock::monotonic_ns();
            let mut members = inner.plugged.members.iter();
            let first = members.find(|member| member.merged_ns == 0);
            let queued_ns = first.map_or(now, |first| first.queued_ns);
            inner.stamps = Stamps {
                queued_ns,
                tag_wait_ns: waited_ns.min(now.saturating_sub(queued_ns)),
                tagged_ns: now,
                inserted_ns: now,
                ..Stamps::default()
            };
        }
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.inner().context
    }

    pub(crate) fn plugged(&self) -> &Plugged {
        &self.inner().plugged
    }

    pub(crate) fn plugged_mut(&mut self) -> &mut Plugged {
        &mut self.inner_mut().plugged
    }

    /// What it holds, for another request that it becomes a part of.
    pub(crate) fn into_plugged(mut self) -> Plugged {
        self.inner.take().expect("present until completion").plugged
    }

    fn inner(&self) -> &Inner {
        self.inner.as_ref().expect("present until completion")
    }

    fn inner_mut(&mut self) -> &mut Inner {
        self.inner.as_mut().expect("present until completion")
    }

    /// What is requested.
    #[must_use]
    pub fn bio(&self) -> &Bio {
        &self.inner().plugged.bio
    }

    /// The memory, for a device that fills or reads it until it completes the request.
    pub fn segments_mut(&mut self) -> &mut [BlockBuf] {
        &mut self.inner_mut().plugged.bio.segments
    }

    /// Notes something for the device's own `wait`.
    pub fn set_hint(&self, hint: u32) {
        // Relaxed: see `Slot::hint`.
        for member in self.inner().plugged.members.iter() {
            member.slot.hint.store(hint, Ordering::Relaxed);
        }
    }

    /// Whether this is the request whose completion lands in `slot`.
    #[must_use]
    pub fn is_for(&self, slot: &Slot) -> bool {
        let mut members = self.inner().plugged.members.iter();
        members.any(|member| std::ptr::eq(Arc::as_ptr(&member.slot), slot))
    }

    /// Stamps D: call it when the device below gets the request.
    pub fn dispatched(&mut self) {
        let inner = self.inner_mut();
        if inner.context.is_traced() {
            inner.stamps.dispatched_ns = clock::monotonic_ns();
        }
    }

    /// Has `observer` called when the request completes; the last added is called first.
    pub fn on_complete(&mut self, observer: impl FnOnce(&Bio, &Result<()>) + Send + 'static) {
        self.inner_mut().observers.push(Box::new(observer));
    }

    /// Carries the request out on `device` now, on this core, and completes it.
    pub fn run_on(mut self, device: &(impl Device + ?Sized)) {
        self.dispatched();
        self.finish_here(device);
    }

    /// Like [`Request::run_on`], for a request that the device above got earlier and stamped.
    pub(crate) fn finish_on(mut self, device: &(impl Device + ?Sized)) {
        self.finish_here(device);
    }

    fn finish_here(&mut self, device: &(impl Device + ?Sized)) {
        let result = execute_bio(device, &mut self.plugged_mut().bio);
        self.complete_now(result);
    }

    /// Completes the request: frees its tag, then publishes the completion to the submitter.
    pub fn complete(mut self, result: Result<()>) {
        self.complete_now(result);
    }

    fn complete_now(&mut self, result: Result<()>) {
        let Some(mut inner) = self.inner.take() else {
            return;
        };
        for observer in inner.observers.drain(..).rev() {
            observer(&inner.plugged.bio, &result);
        }
        if let Some(tag) = inner.tag {
            inner.leave(tag, &result);
        }
        let Inner {
            plugged, stamps, ..
        } = *inner;
        plugged
            .members
            .part(plugged.bio.segments, |member, segments| {
                member.slot.fill(Completion {
                    cookie: member.cookie,
                    result: result.clone(),
                    segments,
                    stamps: Stamps {
                        queued_ns: member.queued_ns,
                        merged_ns: member.merged_ns,
                        ..stamps
                    },
                });
            });
    }
}

impl Inner {
    /// Gives the tag back, and counts.
    fn leave(&mut self, tag: Tag, result: &Result<()>) {
        let bio = &self.plugged.bio;
        self.context.completed(bio.op, bio.blocks(), result);
        if self.context.is_traced() {
            self.stamps.completed_ns = clock::monotonic_ns();
            self.trace(tag);
        }
        self.context.release(tag);
    }

    /// A record of the request, and one of each bio that was merged into it.
    fn trace(&self, tag: Tag) {
        let (context, bio) = (&self.context, &self.plugged.bio);
        context.trace(bio.op, bio.lba, bio.blocks(), tag, self.stamps);
        let members = self.plugged.members.iter();
        for member in members.filter(|member| member.merged_ns > 0) {
            let stamps = Stamps {
                queued_ns: member.queued_ns,
                merged_ns: member.merged_ns,
                completed_ns: self.stamps.completed_ns,
                ..Stamps::default()
            };
            context.trace(bio.op, member.lba, member.blocks, tag, stamps);
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(inner) = &self.inner {
            let bio = &inner.plugged.bio;
            let error = Error::Abandoned {
                device: inner.context.device_name().to_owned(),
                op: bio.op,
                lba: bio.lba,
                blocks: bio.blocks(),
            };
            self.complete_now(Err(error));
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.inner {
            Some(inner) => f
                .debug_struct("Request")
                .field("bio", &inner.plugged.bio)
                .field("tag", &inner.tag)
                .field("stamps", &inner.stamps)
                .finish_non_exhaustive(),
            None => f.write_str("Request(completed)"),
        }
    }
}

/// Carries a bio out synchronously, segment by segment where the device has no vectored form.
fn execute_bio(device: &(impl Device + ?Sized), bio: &mut Bio) -> Result<()> {
    match bio.op {
        Op::Read => {
            let mut lba = bio.lba;
            for segment in &mut bio.segments {
                let blocks = u64::try_from(segment.blocks()).expect("a usize fits in 64 bits");
                device.execute(Io::Read {
                    lba,
                    out: segment.as_mut_slice(),
                })?;
                lba = lba.offset(blocks);
            }
            Ok(())
        }
        Op::Write => {
            let flags = bio.flags.without(WriteFlags::PREFLUSH);
            if let [segment] = bio.segments.as_slice() {
                let parts = [segment.as_slice()];
                return device.execute(Io::Write {
                    lba: bio.lba,
                    parts: &parts,
                    flags,
                });
            }
            let parts: Vec<&[u8]> = bio.segments.iter().map(BlockBuf::as_slice).collect();
            device.execute(Io::Write {
                lba: bio.lba,
                parts: &parts,
                flags,
            })
        }
        Op::Flush => device.execute(Io::Flush),
        Op::Discard => device.execute(Io::Discard {
            lba: bio.lba,
            blocks: bio.discard_blocks,
        }),
    }
}

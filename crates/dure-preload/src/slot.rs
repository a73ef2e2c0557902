//! What each thread of the program is at.
//!
//! **Problem.** A thread uses what stands behind a descriptor while another one closes it, a signal may
//! come meanwhile, and the server has to know whether a thread was killed within a call.
//! **Structure.** Each thread that calls has a [`Slot`], a line of its own. It says there what it is
//! going to use before it looks whether that is there.
//! **Invariants.** A thread that has said so, and found it, keeps it until it leaves: what takes it away
//! waits ([`wait_for`]). No line is written that another thread reads, but by these waits.
//!
//! | caller | closer |
//! |---|---|
//! | 1. says in its slot: descriptor 7 | 1. takes the description of 7 out of the table |
//! | 2. looks for the description of 7 | 2. looks at all slots |
//!
//! Sequentially consistent: either the caller finds none, or the closer sees it.
//! Threads of the server and of children have none: what they call is the kernel's, whose numbers are not
//! those of the table. **On a crash** of the program the server reads the slots.

use std::cell::Cell;

use dure_sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use dure_sync::thread;

/// Threads that have a slot at most; others go to the kernel.
const SLOTS: usize = 4096;
/// Bytes of a page.
const PAGE_BYTES: usize = 4096;
/// In `uses`: nothing.
const NOTHING: u32 = 0;
/// In `uses`: something else than a descriptor.
const OTHER: u32 = u32::MAX;

/// What one thread is at.
#[repr(align(128))]
pub(crate) struct Slot {
    /// Number of the thread; 0: free.
    thread: AtomicU32,
    /// A descriptor and 1 while the thread is within a call, [`OTHER`], or [`NOTHING`].
    uses: AtomicU32,
    /// Signals that came meanwhile, a bit each. Of its thread: Relaxed.
    deferred: AtomicU64,
    /// Calls that it has done, of all threads that had it. Of its thread: Relaxed.
    short: AtomicU64,
    /// Calls that it has left to the kernel. Likewise.
    long: AtomicU64,
}

static ALL: [Slot; SLOTS] = [const {
    Slot {
        thread: AtomicU32::new(0),
        uses: AtomicU32::new(NOTHING),
        deferred: AtomicU64::new(0),
        short: AtomicU64::new(0),
        long: AtomicU64::new(0),
    }
}; SLOTS];

/// A word that is 1, and reads as 0 in every child that has a copy of the memory, however it was made.
static ONLY_HERE: AtomicPtr<u32> = AtomicPtr::new(std::ptr::null_mut());

/// Before the program begins.
pub(crate) fn begin() -> rustix::io::Result<()> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
    let (access, place) = (ProtFlags::READ | ProtFlags::WRITE, std::ptr::null_mut());
    // SAFETY: new memory.
    let page = unsafe { mmap_anonymous(place, PAGE_BYTES, access, MapFlags::PRIVATE) }?;
    // SAFETY: that memory.
    unsafe { madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork) }?;
    let word = page.cast::<u32>();
    // SAFETY: likewise.
    unsafe { word.write(1) };
    ONLY_HERE.store(word, Ordering::Relaxed);
    Ok(())
}

/// Whether this memory is the program's, not a copy of it.
fn is_here() -> bool {
    let word = ONLY_HERE.load(Ordering::Relaxed);
    // SAFETY: null, or the word, which is not written any more.
    !word.is_null() && unsafe { word.read_volatile() } == 1
}

/// How many of the first slots were ever used.
static USED: AtomicU32 = AtomicU32::new(0);

/// What a thread has.
#[derive(Clone, Copy)]
enum Mine {
    /// It has not called yet.
    Unknown,
    /// A slot.
    Slot(&'static Slot),
    /// None: it is not the program's, or there were no more.
    None,
}

thread_local! {
    /// Has no destructor, so that using it registers none.
    static MINE: Cell<Mine> = const { Cell::new(Mine::Unknown) };
}

/// The slots that may be in use.
fn used() -> &'static [Slot] {
    let used = usize::try_from(USED.load(Ordering::SeqCst)).expect("it is small");
    &ALL[..used]
}

#[inline]
fn mine() -> Option<&'static Slot> {
    match MINE.get() {
        Mine::Slot(slot) => Some(slot),
        Mine::None => None,
        Mine::Unknown => take(),
    }
}

/// The slot of this thread, if it has called before.
fn known() -> Option<&'static Slot> {
    match MINE.get() {
        Mine::Slot(slot) => Some(slot),
        Mine::Unknown | Mine::None => None,
    }
}

/// Whether the calling thread is the program's. For rare calls.
pub(crate) fn is_of_program() -> bool {
    known().is_some() || crate::server::is_program()
}

#[cold]
fn take() -> Option<&'static Slot> {
    MINE.set(Mine::None);
    if !crate::server::is_program() {
        return None;
    }
    let me = rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned();
    let free = |slot: &Slot| {
        let took = slot
            .thread
            .compare_exchange(0, me, Ordering::SeqCst, Ordering::Relaxed);
        took.is_ok()
    };
    let place = ALL.iter().position(free)?;
    let count = u32::try_from(place + 1).expect("it is small");
    USED.fetch_max(count, Ordering::SeqCst);
    let slot = &ALL[place];
    MINE.set(Mine::Slot(slot));
    at_end_of_thread(slot);
    Some(slot)
}

/// Has the C library give the slot back when its thread ends.
fn at_end_of_thread(slot: &'static Slot) {
    extern "C" fn give_back(slot: *mut libc::c_void) {
        // SAFETY: it is one of `ALL`, which are never freed.
        let slot = unsafe { &*slot.cast::<Slot>() };
        MINE.set(Mine::None);
        slot.thread.store(0, Ordering::SeqCst);
    }
    /// The key and 1; 0: none yet.
    static KEY: AtomicU32 = AtomicU32::new(0);
    let mut key = KEY.load(Ordering::Relaxed);
    if key == 0 {
        let mut made = 0;
        // SAFETY: the place for the key is written only.
        if unsafe { libc::pthread_key_create(&raw mut made, Some(give_back)) } != 0 {
            return;
        }
        // Of two threads that come first, both may make a key: each works.
        key = made + 1;
        KEY.store(key, Ordering::Relaxed);
    }
    // SAFETY: the key was made; the value is what its destructor takes.
    unsafe { libc::pthread_setspecific(key - 1, std::ptr::from_ref(slot).cast()) };
}

/// Within a call, until this is dropped.
pub(crate) struct Inside(&'static Slot);

impl Inside {
    fn begin(uses: u32) -> Option<Inside> {
        let slot = mine()?;
        if !is_here() {
            return None;
        }
        // What a call does itself, the C library's calls among it, goes to the kernel.
        if slot.uses.load(Ordering::Relaxed) != NOTHING {
            return None;
        }
        slot.uses.store(uses, Ordering::SeqCst);
        Some(Inside(slot))
    }

    /// With a descriptor, before its description is looked for.
    #[inline]
    pub(crate) fn with(descriptor: u32) -> Option<Inside> {
        Inside::begin(descriptor + 1)
    }

    /// With something else.
    pub(crate) fn other() -> Option<Inside> {
        Inside::begin(OTHER)
    }

    /// Counts a call that is done.
    #[inline]
    pub(crate) fn count_short(&self) {
        let slot = self.0;
        slot.short
            .store(slot.short.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Counts a call that is left to the kernel.
    pub(crate) fn count_long(&self) {
        let slot = self.0;
        slot.long
            .store(slot.long.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        self.0.uses.store(NOTHING, Ordering::Release);
        // A handler that comes from here on finds the thread outside.
        if self.0.deferred.load(Ordering::Relaxed) != 0 {
            deliver(self.0);
        }
    }
}

#[cold]
fn deliver(slot: &Slot) {
    crate::signals::unblock(slot.deferred.swap(0, Ordering::Relaxed));
}

/// Does something within which no signal of the program is delivered, and which the server notices if
/// the program ends in it.
pub(crate) fn inside<T>(body: impl FnOnce() -> T) -> T {
    let _inside = Inside::other();
    body()
}

/// Whether the calling thread is within a call; then a signal of this number is to be delivered after it.
pub(crate) fn defer(signal: u32) -> bool {
    let Some(slot) = known() else { return false };
    if slot.uses.load(Ordering::Relaxed) == NOTHING {
        return false;
    }
    let deferred = slot.deferred.load(Ordering::Relaxed);
    slot.deferred
        .store(deferred | 1 << (signal - 1), Ordering::Relaxed);
    true
}

/// Whether the calling thread is within a call.
pub(crate) fn is_inside() -> bool {
    known().is_some_and(|slot| slot.uses.load(Ordering::Relaxed) != NOTHING)
}

/// Waits until no other thread is within a call whose use `of` names: a descriptor and 1, or [`OTHER`].
pub(crate) fn wait_for(of: impl Fn(u32) -> bool) {
    let me = known().map(std::ptr::from_ref);
    for slot in used() {
        if me == Some(std::ptr::from_ref(slot)) {
            continue;
        }
        while matches!(slot.uses.load(Ordering::SeqCst), uses if uses != NOTHING && of(uses)) {
            thread::yield_now();
        }
    }
}

/// Waits until no other thread uses the descriptor.
pub(crate) fn wait_for_users_of(descriptor: u32) {
    wait_for(|uses| uses == descriptor + 1);
}

/// Waits until every thread is outside or, as `is_dead` says of its number, killed; whether one was
/// killed inside.
pub(crate) fn wait_for_the_dead(is_dead: impl Fn(u32) -> bool) -> bool {
    let mut died_inside = false;
    for slot in used() {
        while slot.uses.load(Ordering::SeqCst) != NOTHING {
            let dead = is_dead(slot.thread.load(Ordering::SeqCst));
            // It may have left between the two looks.
            if dead && slot.uses.load(Ordering::SeqCst) != NOTHING {
                died_inside = true;
                break;
            }
            thread::yield_now();
        }
    }
    died_inside
}

/// Calls of all threads.
pub(crate) fn calls() -> dure::run::Calls {
    let mut calls = dure::run::Calls::default();
    for slot in used() {
        calls.short += slot.short.load(Ordering::Relaxed);
        calls.long += slot.long.load(Ordering::Relaxed);
    }
    calls
}

/// In a forked child: without a slot its one thread leaves everything to the kernel.
pub(crate) fn forget() {
    MINE.set(Mine::None);
}

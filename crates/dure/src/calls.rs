//! Many calls of one thread at once.
//!
//! **Problem.** A program that wants many pages, of a database or of an index, waits for each in
//! turn, or needs a thread for each. **Structure.** [`Calls`] begins reads of any files; what is in
//! memory is read at once, and what is not is submitted. [`Calls::reap`] returns calls as they are
//! done. **Invariants.** A call has its buffer until it is reaped, so nothing is written to a buffer
//! that was given back; when a `Calls` is dropped what is under way ends unseen, in memory of its own.
//! Results are those of [`File::read_at`] and [`File::write_at`]. **On a crash** as these.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::fmt;

use dure_fs::{Begun, UnderWay};

use crate::error::Result;
use crate::file::File;

/// How often as many calls as are under way at once may end before the oldest.
const OVERTAKE_ROUNDS: usize = 2;

/// Reads and writes of one thread, of which up to some number are under way at once. A call has its
/// file as `F`, a reference or a [`File`] of its own, and its buffer as `B`.
///
/// ```
/// # let session = dure::Volume::in_memory(32 << 20)?.root();
/// session.write("/file", &[7; 100_000])?;
/// let file = session.open("/file")?;
/// let mut calls = dure::Calls::new(32);
/// for page in 0..10 {
///     calls.read(&file, vec![0; 4096], page * 4096, page);
/// }
/// let mut pages = Vec::new();
/// while let Some(done) = calls.reap() {
///     assert_eq!((done.result?, done.buf), (4096, vec![7; 4096]));
///     pages.push(done.token);
/// }
/// assert_eq!(pages.len(), 10); // in any order
/// # Ok::<(), dure::Error>(())
/// ```
pub struct Calls<F: Borrow<File>, T, B = Vec<u8>> {
    depth: usize,
    done: VecDeque<Done<T, B>>,
    /// The oldest first.
    under_way: VecDeque<Call<F, T, B>>,
    /// Calls that ended while the oldest was the oldest.
    overtook: usize,
}

/// A call that is done.
#[derive(Debug)]
pub struct Done<T, B = Vec<u8>> {
    /// What it was given.
    pub token: T,
    /// Its buffer.
    pub buf: B,
    /// How many bytes of it were read or written, from its first on.
    pub result: Result<usize>,
}

/// A read that the device is busy with.
struct Call<F, T, B> {
    file: F,
    offset: u64,
    token: T,
    buf: B,
    /// Bytes that were in memory, and the rest.
    begun: (usize, UnderWay),
}

impl<F: Borrow<File>, T, B> fmt::Debug for Calls<F, T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls")
            .field("depth", &self.depth)
            .field("done", &self.done.len())
            .field("under_way", &self.under_way.len())
            .finish()
    }
}

impl<F: Borrow<File>, T, B> Calls<F, T, B> {
    /// None yet, and at most `depth` under way.
    ///
    /// # Panics
    /// If `depth` is 0.
    #[must_use]
    pub fn new(depth: usize) -> Self {
        assert!(depth > 0, "at least one call has to be under way");
        Self {
            depth,
            done: VecDeque::new(),
            under_way: VecDeque::new(),
            overtook: 0,
        }
    }

    /// How many were not reaped yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.done.len() + self.under_way.len()
    }

    /// Whether all were reaped.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn is_done(&mut self, token: T, buf: B, result: Result<usize>) {
        self.done.push_back(Done { token, buf, result });
    }

    /// Writes `buf` at `offset`. It is in memory when this returns, and on the device after a sync.
    pub fn write(&mut self, file: F, buf: B, offset: u64, token: T)
    where
        B: AsRef<[u8]>,
    {
        let result = file.borrow().write_at(buf.as_ref(), offset);
        self.is_done(token, buf, result);
    }
}

impl<F: Borrow<File>, T, B: AsMut<[u8]>> Calls<F, T, B> {
    /// Reads into `buf` from `offset` on. Waits for another call if too many are under way.
    pub fn read(&mut self, file: F, mut buf: B, offset: u64, token: T) {
        if self.under_way.len() == self.depth {
            let done = self.end_next();
            self.done.extend(done);
        }
        match file.borrow().begin_read_at(buf.as_mut(), offset) {
            Ok(Begun::UnderWay(read, under_way)) => {
                self.under_way.push_back(Call {
                    file,
                    offset,
                    token,
                    buf,
                    begun: (read, under_way),
                });
            }
            Ok(Begun::Read(count)) => self.is_done(token, buf, Ok(count)),
            Err(error) => self.is_done(token, buf, Err(error)),
        }
    }

    /// A call that is done, whichever; waits for one. `None`: all were reaped.
    pub fn reap(&mut self) -> Option<Done<T, B>> {
        match self.done.pop_front() {
            Some(done) => Some(done),
            None => self.end_next(),
        }
    }

    /// A call that is done by now, if there is one.
    pub fn try_reap(&mut self) -> Option<Done<T, B>> {
        if self.done.is_empty() {
            self.under_way.front()?.file.borrow().fs().poll_reads();
            let ready = self.ready()?;
            return Some(self.end(ready));
        }
        self.done.pop_front()
    }

    fn ready(&self) -> Option<usize> {
        let mut calls = self.under_way.iter();
        calls.position(|call| call.begun.1.is_done())
    }

    /// Waits for a call that is under way.
    fn end_next(&mut self) -> Option<Done<T, B>> {
        loop {
            // As long as the ring of this core has something, no other is looked at: a call that was
            // begun before the thread came here, and is done, would wait there.
            if self.overtook >= OVERTAKE_ROUNDS * self.depth {
                return Some(self.end(0));
            }
            if let Some(ready) = self.ready() {
                return Some(self.end(ready));
            }
            // Of another core's ring, or of several devices, the oldest is waited for.
            if !self.under_way.front()?.file.borrow().fs().wait_for_reads() {
                return Some(self.end(0));
            }
        }
    }

    fn end(&mut self, place: usize) -> Done<T, B> {
        self.overtook = if place == 0 { 0 } else { self.overtook + 1 };
        let call = self.under_way.remove(place);
        let Call {
            file,
            offset,
            token,
            mut buf,
            begun,
        } = call.expect("it is under way");
        let result = file.borrow().end_read_at(begun, buf.as_mut(), offset);
        Done { token, buf, result }
    }
}

impl<F: Borrow<File>, T, B> Drop for Calls<F, T, B> {
    fn drop(&mut self) {
        for call in self.under_way.drain(..) {
            call.file.borrow().fs().cancel_read(call.begun.1);
        }
    }
}

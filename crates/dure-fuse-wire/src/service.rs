//! What a file system is to the transports.

use std::ops::Range;

use dure_sync::Arc;

use crate::protocol::{Malformed, Request};
use crate::transport::buffer::Reply;

/// An errno, positive.
pub type Errno = i32;

/// Whether the kernel waits for a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// It gets what was put into the [`Reply`].
    Reply,
    /// FORGET and BATCH_FORGET: it does not.
    Nothing,
}

/// What became of a request. With an errno, what was put into the reply does not count.
pub type Outcome = Result<Sent, Errno>;

/// What the kernel is asked. A question about an inode also makes it drop what it has cached of the
/// attributes, and waits while it evicts the inode; one about a name waits for the lock of the
/// directory in the kernel, whose holders may wait for an answer, so no thread that answers requests may ask it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Whether it has the inode of this node.
    Inode(u64),
    /// Whether it has the inode, when it has sent what is dirty of these bytes, by WRITEs that
    /// others have to answer, and dropped all that it has cached of them.
    Pages {
        /// Which file.
        node: u64,
        /// Up to `u64::MAX`: to the end.
        bytes: Range<u64>,
    },
    /// Whether it had an entry, negative ones too, of this name; it drops it, and looks the name up
    /// anew.
    Name {
        /// The directory.
        parent: u64,
        /// The name.
        name: Vec<u8>,
    },
    /// Whether it had the entry of a name that is gone, with the node, which has no other; it drops
    /// both, but for users of the node that there are.
    Removed {
        /// The directory.
        parent: u64,
        /// What the name led to.
        child: u64,
        /// The name.
        name: Vec<u8>,
    },
}

/// Asks the kernel.
pub type Knows<'a> = &'a dyn Fn(Question) -> bool;

/// Asks the kernel, on threads of the service's own.
pub type Asks = Box<dyn Fn(Question) -> bool + Send + Sync>;

/// A file system, as the transports see it. Requests come on many threads at once.
pub trait Service: Send + Sync {
    /// Requests are about to come. The kernel can be asked until they end.
    fn begin(&self, asks: Asks) {
        drop(asks);
    }

    /// Answers a request. An operation that is not served is answered ENOSYS: of many the kernel
    /// then does not ask again, and does without.
    ///
    /// # Errors
    /// An errno, for the caller.
    fn answer(&self, request: &Request<'_>, knows: Knows<'_>, reply: &mut Reply) -> Outcome;

    /// Whether the answer may wait, for a device or for another request. If so, others are answered
    /// by other threads meanwhile. A guess.
    fn may_wait(&self, request: &Request<'_>) -> bool {
        let _ = request;
        true
    }

    /// Like [`Service::answer`], for a thread on which all requests of a core wait. `None`: nothing
    /// has changed, and a thread that can wait is to answer.
    fn answer_promptly(&self, request: &Request<'_>, reply: &mut Reply) -> Option<Outcome> {
        match self.may_wait(request) {
            true => None,
            false => Some(self.answer(request, &|_| true, reply)),
        }
    }
}

impl<S: Service + ?Sized> Service for Arc<S> {
    fn begin(&self, asks: Asks) {
        (**self).begin(asks);
    }

    fn answer(&self, request: &Request<'_>, knows: Knows<'_>, reply: &mut Reply) -> Outcome {
        (**self).answer(request, knows, reply)
    }

    fn may_wait(&self, request: &Request<'_>) -> bool {
        (**self).may_wait(request)
    }

    fn answer_promptly(&self, request: &Request<'_>, reply: &mut Reply) -> Option<Outcome> {
        (**self).answer_promptly(request, reply)
    }
}

/// Shares a service among threads. To keep a reference to it, share an `Arc` of it.
#[must_use]
pub fn share(service: impl Service + 'static) -> Arc<dyn Service> {
    let boxed: Box<dyn Service> = Box::new(service);
    Arc::from(boxed)
}

/// Answers a request: what to send to the kernel, if anything.
pub fn answer<'r>(
    service: &dyn Service,
    knows: Knows<'_>,
    request: Result<Request<'_>, Malformed>,
    reply: &'r mut Reply,
) -> Option<&'r [u8]> {
    assert!(reply.is_empty(), "the last reply was finished");
    let (unique, outcome) = match request {
        Ok(request) => (request.unique, service.answer(&request, knows, reply)),
        Err(Malformed { unique, .. }) => (unique?, Err(libc::EIO)),
    };
    finish(unique, outcome, reply)
}

/// What became of a request that was not to be waited for.
#[derive(Debug)]
pub enum Prompt<'r> {
    /// What to send to the kernel, if anything.
    Answered(Option<&'r [u8]>),
    /// Nothing has changed: a thread that can wait is to answer it.
    Later,
}

/// Answers a request, unless that means to wait.
pub fn answer_promptly<'r>(
    service: &dyn Service,
    request: Result<Request<'_>, Malformed>,
    reply: &'r mut Reply,
) -> Prompt<'r> {
    assert!(reply.is_empty(), "the last reply was finished");
    let Ok(request) = request else {
        return Prompt::Answered(answer(service, &|_| true, request, reply));
    };
    match service.answer_promptly(&request, reply) {
        Some(outcome) => Prompt::Answered(finish(request.unique, outcome, reply)),
        None => Prompt::Later,
    }
}

fn finish(unique: u64, outcome: Outcome, reply: &mut Reply) -> Option<&[u8]> {
    match outcome {
        Ok(Sent::Nothing) => None,
        Ok(Sent::Reply) => Some(reply.finish(unique, Ok(()))),
        Err(errno) => Some(reply.finish(unique, Err(errno))),
    }
}

//! Submitted bios: on their way while the submitter does other work.
//!
//! **Problem.** A device with a latency to hide wants several requests at once from one core.
//! **Structure.** A bio owns its memory; it is checked, held in the plug of its call, merged, gets
//! a tag and goes to the device. The [`Ticket`] tells when it is complete; a task that waits runs
//! completions. **Invariants.** Each bio completes once, also after its waiter gave up. **Crash.**
//! Like [`Queue::write`].

use std::fmt;
use std::time::Duration;

use dure_sync::{Arc, clock};

use super::{Context, Merge, Plugged, Queue, Wait, check, context, plug};
use crate::{Bio, BlockBuf, Completion, Op, Poll, Request, Result, Slot, WriteFlags};

#[cfg(test)]
mod tests;

/// How often a task that waits with a limit looks for completions that no other task runs.
const LOOK_INTERVAL: Duration = Duration::from_micros(200);

/// A handle for the completion of one submitted request. Dropping it discards the result.
#[must_use = "the result of the request is learned by Queue::wait"]
pub struct Ticket {
    slot: Arc<Slot>,
    op: Op,
    /// 0 unless the queue wants to know how long requests take.
    submitted_ns: u64,
}

impl Ticket {
    /// Whether the request has completed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.slot.is_done()
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Ticket({})",
            if self.is_done() { "done" } else { "in flight" }
        )
    }
}

impl Queue {
    /// Submits a request and returns while it is under way; waits only when no tag is free. A
    /// [`WriteFlags::PREFLUSH`] is done before this returns. The bio must not be longer than
    /// `DeviceInfo::max_blocks_per_request`.
    ///
    /// # Errors
    /// [`crate::Error::TooLong`], and the errors of the synchronous calls that can be checked
    /// beforehand; the bio is then dropped.
    pub fn submit(&self, bio: Bio) -> Result<Ticket> {
        let (request, ticket) = self.plug(bio)?;
        self.dispatch(request, &mut 0);
        self.device.kick();
        Ok(ticket)
    }

    /// Submits several requests at the cost of one submission; bios that continue one another may
    /// become one request (`QueueConfig::merge`). Their tickets are in the order of the bios.
    ///
    /// # Errors
    /// The first error found beforehand; the bios before it are under way (their results are
    /// discarded), those after it are dropped.
    pub fn submit_all(&self, bios: impl IntoIterator<Item = Bio>) -> Result<Vec<Ticket>> {
        let (mut requests, mut waited_ns) = (Vec::new(), 0);
        let tickets = bios
            .into_iter()
            .map(|bio| {
                let (request, ticket) = self.plug(bio)?;
                match self.merge {
                    Merge::Off if !self.sort => self.dispatch(request, &mut 0),
                    Merge::Off => requests.push(request),
                    _ => self.merge(&mut requests, request),
                }
                Ok(ticket)
            })
            .collect();
        if self.sort {
            plug::sort(&mut requests);
        }
        requests
            .into_iter()
            .for_each(|request| self.dispatch(request, &mut waited_ns));
        self.device.kick();
        tickets
    }

    /// Checks a bio and does its preflush: Q.
    fn plug(&self, mut bio: Bio) -> Result<(Request, Ticket)> {
        check::bio(self.info(), &bio)?;
        if bio.flags().contains(WriteFlags::PREFLUSH) {
            self.flush()?;
            bio.flags = bio.flags.without(WriteFlags::PREFLUSH);
        }
        let context = self.contexts.local();
        let (context, queued_ns) = match context.is_plain() {
            true => (context, 0),
            false => {
                let context = Context::next_in_turn(context);
                (context, context.now())
            }
        };
        let slot = Arc::new(Slot::new());
        let ticket = Ticket {
            slot: Arc::clone(&slot),
            op: bio.op(),
            submitted_ns: match self.wait {
                Wait::Hybrid(_) => clock::monotonic_ns(),
                Wait::Sleep | Wait::Poll => 0,
            },
        };
        let plugged = Plugged::new(bio, slot, queued_ns);
        Ok((Request::new(plugged, Arc::clone(context)), ticket))
    }

    fn merge(&self, requests: &mut Vec<Request>, request: Request) {
        let context = self.contexts.local();
        let before = requests.len();
        let blocks_max = self.info().max_blocks_per_request;
        plug::add(requests, request, self.merge, blocks_max, || context.now());
        if requests.len() == before {
            context::bump(&context.merges, 1);
        }
    }

    /// Gives a request to the device, when there is a tag. `waited_ns` is how long the requests of
    /// its plug that went before it waited for theirs, if they are stamped.
    fn dispatch(&self, mut request: Request, waited_ns: &mut u64) {
        let (context, bio) = (request.context(), request.bio());
        if bio.op() == Op::Flush {
            context::bump(&context.flush_requests, 1);
        }
        let tag = context.take_tag().unwrap_or_else(|| {
            let begun_ns = context.now();
            let tag = self.wait_for_tag(context);
            *waited_ns += context.now() - begun_ns;
            tag
        });
        context.begin(tag, bio.op(), bio.lba(), bio.blocks());
        request.tagged(tag, *waited_ns);
        self.device.submit(request);
    }

    /// Waits for a submitted request, running completions on this core.
    pub fn wait(&self, ticket: Ticket) -> Completion {
        if !ticket.slot.is_done() {
            self.wait_for(&ticket.slot, ticket.op, ticket.submitted_ns);
        }
        Slot::take(ticket.slot)
    }

    /// Waits for a submitted request, for at most `most`.
    ///
    /// # Errors
    /// The ticket: the request is late, and the device still has it and its memory. It is counted
    /// (`Counters::timeouts`); the caller can wait again, or drop the ticket.
    pub fn wait_timeout(
        &self,
        ticket: Ticket,
        most: Duration,
    ) -> std::result::Result<Completion, Ticket> {
        let most_ns = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        let end = clock::monotonic_ns().saturating_add(most_ns);
        while !ticket.slot.is_done() {
            if self.device.poll(Poll::Ready) > 0 {
                continue;
            }
            let left = end.saturating_sub(clock::monotonic_ns());
            if left == 0 {
                context::bump(&self.contexts.local().timeouts, 1);
                return Err(ticket);
            }
            let left = Duration::from_nanos(left).min(LOOK_INTERVAL);
            ticket.slot.sleep_once(Some(left));
        }
        Ok(Slot::take(ticket.slot))
    }

    /// Waits until a request that this core submitted completes, and runs what has arrived of its
    /// completions; returns how many. 0: none of its requests is under way, or another task of this
    /// core waits for them already.
    pub fn wait_any(&self) -> usize {
        if self.wait != Wait::Sleep {
            match self.look(|count| count > 0) {
                0 => {}
                count => return count,
            }
        }
        self.device.poll(Poll::Own)
    }

    /// Memory for a bio, of any content: registered with the kernel, if the device is open that way.
    #[must_use]
    pub fn buffer(&self, blocks: usize) -> BlockBuf {
        self.device.buffer(blocks)
    }

    /// Runs the completions that have arrived, on this core; returns how many.
    pub fn poll(&self) -> usize {
        self.device.poll(Poll::Ready)
    }
}

//! Requests to the space that are under way while their maker does other work.
//!
//! **Problem.** A caller with many blocks to read or write gets one request's latency for each if
//! it waits for them in turn. **Structure.** [`Media::submit_all`] gives bios to the queues of
//! their media, together; [`Media::wait`] returns the completion of one. What a queue cannot take
//! as it is (a copy of memory, a bio over a border or longer than the device allows) is done before
//! `submit_all` returns. **Invariants.** Errors come with the completion, whenever they were found,
//! and the memory too. A flush covers writes that were waited for, no others.
//! **Crash.** As [`Media::write`].

use super::{Media, Medium};
use crate::{Bio, Completion, Op, Result, Stamps, Ticket, WriteFlags, linear};

/// A request that was submitted. Dropping it discards the result; its memory goes when the device
/// has completed it.
#[derive(Debug)]
#[must_use = "the result of the request is learned by Media::wait"]
pub struct UnderWay(State);

#[derive(Debug)]
enum State {
    Done(Completion),
    /// In the queue of a place.
    Queued(usize, Op, Ticket),
}

impl UnderWay {
    /// A request that has completed.
    pub fn done(bio: Bio, result: Result<()>) -> UnderWay {
        UnderWay(State::Done(Completion {
            cookie: bio.cookie,
            result,
            segments: bio.segments,
            stamps: Stamps::default(),
        }))
    }

    /// Whether it has completed, so that waiting for it takes no time.
    #[must_use]
    pub fn is_done(&self) -> bool {
        match &self.0 {
            State::Done(_) => true,
            State::Queued(_, _, ticket) => ticket.is_done(),
        }
    }
}

impl Media {
    /// Submits reads and writes, at the cost of one submission for each medium. What continues what
    /// may become one request. Waits only when no tag is free.
    ///
    /// # Panics
    /// If a bio is a flush or a discard, or has flags.
    pub fn submit_all(&self, bios: impl IntoIterator<Item = Bio>) -> Vec<UnderWay> {
        let mut under_way = Vec::new();
        // Bios for the same medium, one after the other.
        let mut group: Option<(usize, Vec<Bio>)> = None;
        for bio in bios {
            let has_data = matches!(bio.op(), Op::Read | Op::Write);
            assert!(
                has_data && bio.flags() == WriteFlags::NONE,
                "data, and no flush"
            );
            let placed = self.place_of(bio);
            if let Some((place, bios)) = &mut group {
                match placed {
                    Ok((to, bio)) if to == *place => {
                        bios.push(bio);
                        continue;
                    }
                    _ => self.submit_to(*place, std::mem::take(bios), &mut under_way),
                }
            }
            group = match placed {
                Ok((place, bio)) => Some((place, vec![bio])),
                Err(bio) => {
                    under_way.push(self.now(bio));
                    None
                }
            };
        }
        if let Some((place, bios)) = group {
            self.submit_to(place, bios, &mut under_way);
        }
        under_way
    }

    /// Waits for a request.
    pub fn wait(&self, request: UnderWay) -> Completion {
        let (place, op, ticket) = match request.0 {
            State::Done(completion) => return completion,
            State::Queued(place, op, ticket) => (place, op, ticket),
        };
        let Medium::Blocks { queue, since } = &self.places[place].medium else {
            unreachable!("a ticket is of a queue");
        };
        let completion = queue.wait(ticket);
        if op == Op::Write && self.places.len() > 1 {
            since.wrote();
        }
        completion
    }

    /// The place whose queue takes the bio, and the bio for its device; the bio again if none does.
    fn place_of(&self, mut bio: Bio) -> std::result::Result<(usize, Bio), Bio> {
        let (lba, blocks) = (bio.lba(), bio.blocks());
        let places = self.places.iter().map(|p| (p.first, p.start, p.blocks));
        let mut pieces = linear::pieces(places, lba, blocks);
        let (Some((place, at, _, count)), None) = (pieces.next(), pieces.next()) else {
            return Err(bio);
        };
        let Medium::Blocks { queue, .. } = &self.places[place].medium else {
            return Err(bio);
        };
        let info = queue.info();
        let writes = bio.op() == Op::Write;
        let fits = count == blocks && blocks <= info.max_blocks_per_request;
        // Memory has no latency to hide.
        if !fits || info.in_memory || writes && info.read_only {
            return Err(bio);
        }
        bio.lba = at;
        Ok((place, bio))
    }

    /// Submits bios that the place takes.
    fn submit_to(&self, place: usize, bios: Vec<Bio>, under_way: &mut Vec<UnderWay>) {
        let Medium::Blocks { queue, .. } = &self.places[place].medium else {
            unreachable!("the place has a queue");
        };
        let ops: Vec<Op> = bios.iter().map(Bio::op).collect();
        let tickets = queue
            .submit_all(bios)
            .expect("range, length and operation were checked");
        let queued = |(op, ticket)| UnderWay(State::Queued(place, op, ticket));
        under_way.extend(ops.into_iter().zip(tickets).map(queued));
    }

    /// Does what the bio asks for.
    fn now(&self, mut bio: Bio) -> UnderWay {
        let (op, mut lba) = (bio.op(), bio.lba());
        let mut result = Ok(());
        for segment in &mut bio.segments {
            let done = match op {
                Op::Read => self.read(lba, segment.as_mut_slice()),
                _ => self.write(lba, segment.as_slice()),
            };
            let blocks = u64::try_from(segment.blocks()).expect("a usize fits in 64 bits");
            // Past 2^64 the error is that of the first segment.
            lba = super::Lba::new(lba.number().saturating_add(blocks));
            result = result.and(done);
        }
        UnderWay::done(bio, result)
    }
}

//! The plug: bios submitted together, merged into requests.
//!
//! **Problem.** A device does one long request faster than several short ones, and each request
//! takes a tag. **Structure.** Bios of one call are held back in a list; one that continues another
//! (back merge) or that another continues (front merge) becomes a member of its request.
//! **Invariants.** A request is no longer than the device allows. Bios merge only if operation and
//! flags are equal, and none passes one that it overlaps. Each bio keeps its own completion.
//! **Crash.** A merged write may be torn between its blocks, as any.

use dure_sync::Arc;

use crate::{Bio, Lba, Op, Request, Segments, Slot};

/// Whether bios that are submitted together are merged.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// Each bio is a request.
    Off,
    /// A bio joins a request that it continues.
    Back,
    /// A bio joins a request that continues it.
    Front,
    /// Both (the default).
    #[default]
    Contiguous,
}

impl Merge {
    fn merges_back(self) -> bool {
        matches!(self, Self::Back | Self::Contiguous)
    }

    fn merges_front(self) -> bool {
        matches!(self, Self::Front | Self::Contiguous)
    }
}

/// Requests of a plug that are looked at for one more bio.
const LOOKED_AT: usize = 16;

/// What is left of a bio in the request it became a part of.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) lba: Lba,
    pub(crate) blocks: u64,
    /// How many of the request's segments are its own.
    pub(crate) segments: usize,
    pub(crate) cookie: u64,
    pub(crate) slot: Arc<Slot>,
    pub(crate) queued_ns: u64,
    /// 0: this bio began the request.
    pub(crate) merged_ns: u64,
}

/// The bios of a request, in the order of their blocks. Most requests have one, which takes no
/// memory of its own.
#[derive(Debug)]
pub(crate) struct Members {
    first: Member,
    rest: Vec<Member>,
}

impl Members {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Member> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    fn append(&mut self, next: Self) {
        self.rest.push(next.first);
        self.rest.extend(next.rest);
    }

    /// Gives each its segments.
    pub(crate) fn part(self, segments: Segments, mut give: impl FnMut(Member, Segments)) {
        if self.rest.is_empty() {
            return give(self.first, segments);
        }
        let mut segments = segments.into_iter();
        for member in std::iter::once(self.first).chain(self.rest) {
            let own = segments.by_ref().take(member.segments).collect();
            give(member, own);
        }
    }
}

/// What a request is made of.
#[derive(Debug)]
pub(crate) struct Plugged {
    /// All of it.
    pub(crate) bio: Bio,
    pub(crate) members: Members,
}

impl Plugged {
    pub(super) fn new(bio: Bio, slot: Arc<Slot>, queued_ns: u64) -> Self {
        let member = Member {
            lba: bio.lba(),
            blocks: bio.blocks(),
            segments: bio.segments().len(),
            cookie: bio.cookie,
            slot,
            queued_ns,
            merged_ns: 0,
        };
        Self {
            bio,
            members: Members {
                first: member,
                rest: Vec::new(),
            },
        }
    }

    fn end(&self) -> u64 {
        self.bio.lba().number() + self.bio.blocks()
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.bio.lba().number() < other.end() && other.bio.lba().number() < self.end()
    }

    fn may_join(&self, other: &Self, blocks_max: u64) -> bool {
        let has_data = matches!(self.bio.op(), Op::Read | Op::Write);
        let alike = self.bio.op() == other.bio.op() && self.bio.flags() == other.bio.flags();
        has_data && alike && self.bio.blocks() + other.bio.blocks() <= blocks_max
    }

    /// Appends `next`, which continues this.
    fn append(&mut self, next: Self) {
        assert_eq!(
            self.end(),
            next.bio.lba().number(),
            "a back merge continues"
        );
        self.bio.segments.extend(next.bio.segments);
        self.members.append(next.members);
    }
}

/// Adds a bio, as a request, to the requests of a plug.
pub(super) fn add(
    plug: &mut Vec<Request>,
    mut new: Request,
    merge: Merge,
    blocks_max: u64,
    now: impl Fn() -> u64,
) {
    for held in plug.iter_mut().rev().take(LOOKED_AT) {
        let (own, other) = (held.plugged(), new.plugged());
        if own.may_join(other, blocks_max) {
            let back = merge.merges_back() && own.end() == other.bio.lba().number();
            let front = merge.merges_front() && other.end() == own.bio.lba().number();
            if back || front {
                new.plugged_mut().members.first.merged_ns = now();
                if !back {
                    std::mem::swap(held, &mut new);
                }
                held.plugged_mut().append(new.into_plugged());
                return;
            }
        }
        if own.overlaps(other) {
            break;
        }
    }
    plug.push(new);
}

/// Sorts requests by their blocks. If any two overlap, they all stay in their order.
pub(super) fn sort(plug: &mut [Request]) {
    let mut order: Vec<_> = plug
        .iter()
        .map(|held| (held.bio().lba(), held.plugged().end()))
        .collect();
    order.sort_unstable();
    let apart = |pair: &[(Lba, u64)]| pair[0].1 <= pair[1].0.number();
    if order.windows(2).all(apart) {
        plug.sort_by_key(|held| held.bio().lba());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null::NullDevice;
    use crate::{BlockBuf, Queue, QueueConfig, WriteFlags, share};

    /// Requests of these bios, queued at 1, for a queue that they never get to.
    fn held(bios: impl IntoIterator<Item = Bio>) -> impl Iterator<Item = Request> {
        let queue = Queue::new(share(NullDevice::new("null", 64)), QueueConfig::default());
        bios.into_iter().map(move |bio| {
            let plugged = Plugged::new(bio, Arc::new(Slot::new()), 1);
            Request::new(plugged, Arc::clone(queue.contexts.local()))
        })
    }

    fn write(lba: u64, blocks: usize) -> Bio {
        Bio::write(Lba::new(lba), BlockBuf::zeroed(blocks))
    }

    /// The requests that writes of (first block, blocks) become.
    fn merged(bios: &[(u64, usize)], blocks_max: u64) -> Vec<(u64, u64)> {
        merged_by(Merge::Contiguous, bios, blocks_max)
    }

    fn merged_by(merge: Merge, bios: &[(u64, usize)], blocks_max: u64) -> Vec<(u64, u64)> {
        let mut plug = Vec::new();
        for new in held(bios.iter().map(|(lba, blocks)| write(*lba, *blocks))) {
            add(&mut plug, new, merge, blocks_max, || 2);
        }
        for request in plug.iter().map(Request::plugged) {
            let mut at = request.bio.lba();
            for member in request.members.iter() {
                assert_eq!(member.lba, at, "members follow each other");
                at = at.offset(member.blocks);
            }
            let first = request.members.iter().filter(|m| m.merged_ns == 0);
            assert_eq!(first.count(), 1, "one bio began the request");
        }
        let request = |held: &Request| (held.bio().lba().number(), held.bio().blocks());
        plug.iter().map(request).collect()
    }

    #[test]
    fn what_continues_is_merged_at_both_ends() {
        assert_eq!(merged(&[(5, 1), (6, 2), (8, 1)], 64), [(5, 4)]);
        assert_eq!(merged(&[(8, 1), (6, 2), (5, 1)], 64), [(5, 4)]);
        assert_eq!(
            merged(&[(1, 1), (9, 1), (2, 1), (8, 1)], 64),
            [(1, 2), (8, 2)]
        );
    }

    #[test]
    fn each_end_can_be_left_out() {
        let bios = [(5, 1), (6, 1), (4, 1)];
        assert_eq!(merged_by(Merge::Back, &bios, 64), [(5, 2), (4, 1)]);
        assert_eq!(merged_by(Merge::Front, &bios, 64), [(4, 2), (6, 1)]);
    }

    fn sorted(bios: &[(u64, usize)]) -> Vec<u64> {
        let mut plug: Vec<_> =
            held(bios.iter().map(|(lba, blocks)| write(*lba, *blocks))).collect();
        sort(&mut plug);
        plug.iter().map(|held| held.bio().lba().number()).collect()
    }

    #[test]
    fn requests_are_sorted_unless_two_overlap() {
        assert_eq!(sorted(&[(9, 2), (3, 1), (5, 4)]), [3, 5, 9]);
        assert_eq!(sorted(&[(9, 2), (3, 1), (5, 5)]), [9, 3, 5]);
        assert_eq!(sorted(&[(9, 1), (3, 1), (3, 1)]), [9, 3, 3]);
    }

    #[test]
    fn what_does_not_continue_or_is_too_long_is_not() {
        assert_eq!(merged(&[(1, 1), (3, 1)], 64), [(1, 1), (3, 1)]);
        assert_eq!(merged(&[(0, 2), (2, 2), (4, 1)], 3), [(0, 2), (2, 3)]);
        assert_eq!(merged(&[(4, 1), (4, 1)], 64), [(4, 1), (4, 1)]);
    }

    /// Block 4 has the content of the last bio, as the bios say.
    #[test]
    fn no_bio_passes_one_that_it_overlaps() {
        assert_eq!(
            merged(&[(5, 1), (4, 2), (4, 1)], 64),
            [(5, 1), (4, 2), (4, 1)]
        );
    }

    #[test]
    fn other_flags_and_operations_do_not_merge() {
        let bios = [
            write(0, 1),
            write(1, 1).with_flags(WriteFlags::FUA),
            Bio::read(Lba::new(2), BlockBuf::zeroed(1)),
            Bio::flush(),
            Bio::discard(Lba::new(3), 1),
            Bio::discard(Lba::new(4), 1),
        ];
        let mut plug = Vec::new();
        for new in held(bios) {
            add(&mut plug, new, Merge::Contiguous, 64, || 0);
        }
        assert_eq!(plug.len(), 6);
    }
}

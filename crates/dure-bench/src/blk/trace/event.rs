//! Events of requests, and the requests that they tell of.
//!
//! **Problem.** The kernel and blktrace tell of single events; phases are between two events of one
//! request. **Structure.** [`Event`]; [`gather`] follows each bio by its first sector until a
//! completion covers it; [`events`] is the way back. **Invariants.** A stamp that no event told of is
//! 0, and then the phases around it have one time less. Bios that begin at the same sector complete
//! in the order of their arrival. **On a crash** nothing is kept.

use std::collections::{BTreeMap, VecDeque};

use dure_block::{Op, Stamps, TraceRecord};

/// Sectors of 512 bytes in a block.
pub(crate) const BLOCK_SECTORS: u64 = 8;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Action {
    Queue,
    BackMerge,
    FrontMerge,
    GetRequest,
    Insert,
    Issue,
    Complete,
}

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
    Discard,
}

impl Direction {
    /// `None`: it has no data.
    fn of(op: Op) -> Option<Self> {
        match op {
            Op::Read => Some(Self::Read),
            Op::Write => Some(Self::Write),
            Op::Discard => Some(Self::Discard),
            Op::Flush => None,
        }
    }
}

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) ns: u64,
    pub(crate) core: u16,
    pub(crate) device: (u32, u32),
    pub(crate) action: Action,
    pub(crate) direction: Direction,
    pub(crate) sector: u64,
    pub(crate) sectors: u64,
}

/// A bio on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passage {
    pub(crate) stamps: Stamps,
    /// Where it was dispatched, or else queued.
    pub(crate) core: u16,
    /// If it is known.
    pub(crate) hw_queue: Option<u16>,
    pub(crate) sector: u64,
}

impl Passage {
    fn is_merged(&self) -> bool {
        self.stamps.merged_ns > 0
    }
}

/// What is known of the requests of a device.
#[derive(Debug, Default)]
pub(crate) struct Passages {
    /// Complete, in the order of their arrival.
    pub(crate) complete: Vec<Passage>,
    /// Queued, but no completion was seen.
    pub(crate) incomplete: usize,
}

impl From<&TraceRecord> for Passage {
    fn from(record: &TraceRecord) -> Self {
        Self {
            stamps: record.stamps,
            core: record.core,
            hw_queue: Some(record.hw_queue),
            sector: record.lba.number() * BLOCK_SECTORS,
        }
    }
}

/// The bios of `events`.
pub(crate) fn gather(events: &[Event]) -> Passages {
    let mut events: Vec<&Event> = events.iter().collect();
    events.sort_by_key(|event| (event.ns, event.action));
    let mut under_way: BTreeMap<((u32, u32), u64), VecDeque<Passage>> = BTreeMap::new();
    let mut complete = Vec::new();
    for event in events {
        let at = (event.device, event.sector);
        match event.action {
            Action::Queue => {
                let stamps = Stamps {
                    queued_ns: event.ns,
                    ..Stamps::default()
                };
                under_way.entry(at).or_default().push_back(Passage {
                    stamps,
                    core: event.core,
                    hw_queue: None,
                    sector: event.sector,
                });
            }
            Action::BackMerge | Action::FrontMerge | Action::GetRequest => {
                let bios = under_way.get_mut(&at).into_iter().flatten();
                stamp_first(bios, event);
            }
            Action::Insert | Action::Issue => {
                let end = (event.device, event.sector + event.sectors);
                for (_, bios) in under_way.range_mut(at..end) {
                    stamp_first(bios.iter_mut().filter(|bio| !bio.is_merged()), event);
                }
            }
            Action::Complete => {
                let end = (event.device, event.sector + event.sectors);
                for (_, bios) in under_way.range_mut(at..end) {
                    if let Some(mut bio) = bios.pop_front() {
                        bio.stamps.completed_ns = event.ns;
                        complete.push(bio);
                    }
                }
                let empty: Vec<_> = under_way
                    .range(at..end)
                    .filter_map(|(key, bios)| bios.is_empty().then_some(*key))
                    .collect();
                for key in empty {
                    under_way.remove(&key);
                }
            }
        }
    }
    complete.sort_by_key(|bio| bio.stamps.queued_ns);
    Passages {
        complete,
        incomplete: under_way.values().map(VecDeque::len).sum(),
    }
}

/// Stamps the first that has no such stamp.
fn stamp_first<'b>(bios: impl IntoIterator<Item = &'b mut Passage>, event: &Event) {
    for bio in bios {
        let stamps = &mut bio.stamps;
        let stamp = match event.action {
            Action::BackMerge | Action::FrontMerge => &mut stamps.merged_ns,
            Action::GetRequest => &mut stamps.tagged_ns,
            Action::Insert => &mut stamps.inserted_ns,
            Action::Issue => &mut stamps.dispatched_ns,
            Action::Queue | Action::Complete => unreachable!("they stamp no bio that is there"),
        };
        if *stamp == 0 {
            *stamp = event.ns;
            if event.action == Action::GetRequest {
                // The kernel's plug holds requests that have their tags.
                stamps.tag_wait_ns = event.ns.saturating_sub(stamps.queued_ns);
            }
            if event.action == Action::Issue {
                bio.core = event.core;
            }
            return;
        }
    }
}

/// The events of requests that a queue of ours traced, in order. Flushes have no sectors and are
/// left out.
pub(crate) fn events(records: &[TraceRecord]) -> Vec<Event> {
    let mut merged: BTreeMap<_, Vec<&TraceRecord>> = BTreeMap::new();
    let key = |record: &TraceRecord| (record.hw_queue, record.tag, record.stamps.completed_ns);
    for record in records.iter().filter(|record| record.stamps.merged_ns > 0) {
        merged.entry(key(record)).or_default().push(record);
    }
    let mut events = Vec::new();
    for record in records {
        if record.stamps.merged_ns > 0 {
            continue;
        }
        let members = merged.remove(&key(record)).unwrap_or_default();
        of_request(record, members, &mut events);
    }
    events.sort_by_key(|event: &Event| (event.ns, event.action));
    events
}

/// The events of a request and of the bios that were merged into it.
fn of_request(request: &TraceRecord, mut members: Vec<&TraceRecord>, events: &mut Vec<Event>) {
    let Some(direction) = Direction::of(request.op) else {
        return;
    };
    let mut add = |action, ns, (lba, blocks): (u64, u64)| {
        events.push(Event {
            ns,
            core: request.core,
            device: (0, 0),
            action,
            direction,
            sector: lba * BLOCK_SECTORS,
            sectors: blocks * BLOCK_SECTORS,
        });
    };
    let whole = (request.lba.number(), request.blocks);
    // The bio that began the request is what the others leave of it.
    members.sort_by_key(|member| member.lba);
    let mut begin = whole.0;
    let mut end = whole.0 + whole.1;
    for member in &members {
        let lba = member.lba.number();
        if lba == begin {
            begin += member.blocks;
        } else {
            end = end.min(lba);
        }
    }
    let first = (begin, end - begin);
    let stamps = &request.stamps;
    add(Action::Queue, stamps.queued_ns, first);
    add(Action::GetRequest, stamps.tagged_ns, first);
    for member in members {
        let own = (member.lba.number(), member.blocks);
        let action = match own.0 < begin {
            true => Action::FrontMerge,
            false => Action::BackMerge,
        };
        add(Action::Queue, member.stamps.queued_ns, own);
        add(action, member.stamps.merged_ns, own);
    }
    add(Action::Insert, stamps.inserted_ns, whole);
    add(Action::Issue, stamps.dispatched_ns, whole);
    add(Action::Complete, stamps.completed_ns, whole);
}

//! An entry of a ring: the memory of one request and of its reply.
//!
//! **Structure.** One mapping: the [`RingHeaders`] at its start, the payload from the second page
//! on. **Invariants.** The owner of an [`Entry`] may use its memory: it is handed to the kernel by
//! value ([`super::port::Port`]), and comes back with a request.
//!
//! # Where a reply is built
//! The payload of a reply takes the place of the request's. A request without a payload (READ,
//! GETATTR, READDIRPLUS) is read from a copy of its header and record, and its reply is built in
//! place. The others carry names or data, which are read where they lie; their replies are short,
//! are built in the thread's own memory and copied.

use zerocopy::{FromBytes, IntoBytes};

use crate::protocol::reply::OutHeader;
use crate::protocol::request::InHeader;
use crate::protocol::ring::{RingCommand, RingHeaders};
use crate::protocol::{self, Malformed, Request};
use crate::service::{self, Knows, Prompt, Service};
use crate::transport::buffer::{IO_BYTES, PAGE, Reply};

const HEADERS: usize = size_of::<RingHeaders>();
const HEADER: usize = size_of::<InHeader>();
/// A header and the largest record.
const HEAD: usize = HEADER + 128;

// A header and a record fit between the headers and the payload.
const _: () = assert!(HEADERS + HEAD <= PAGE);

/// Memory of a thread that answers requests of entries.
#[derive(Debug, Default)]
pub struct Desk {
    reply: Reply,
}

/// Which thread answers, and whether it can wait.
#[derive(Clone, Copy)]
pub enum Patience<'a> {
    /// A thread on which other requests wait.
    Prompt,
    /// One that can wait, with the way to ask the kernel about a node.
    Waits(Knows<'a>),
}

impl std::fmt::Debug for Patience<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Patience::Prompt => "Prompt",
            Patience::Waits(_) => "Waits",
        })
    }
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// The entry holds the reply.
    Yes,
    /// The entry still holds the request, for a thread that can wait.
    Later,
}

/// One entry.
#[derive(Debug)]
pub struct Entry {
    index: usize,
    queue: u16,
    reply: Reply,
    /// Names the request that it holds.
    commit_id: u64,
    /// Addresses and lengths of the headers and the payload: two `iovec`s.
    vectors: Box<[usize; 4]>,
}

/// A header and a record, one behind the other.
#[repr(align(8))]
struct Head {
    bytes: [u8; HEAD],
    len: usize,
}

impl Entry {
    /// The `index`th of its ring, for requests of `queue`.
    #[must_use]
    pub fn new(index: usize, queue: u16) -> Entry {
        let mut reply = Reply::new();
        let start = reply.pages().start().as_ptr();
        let vectors = Box::new([
            start.expose_provenance(),
            HEADERS,
            start.wrapping_add(PAGE).expose_provenance(),
            IO_BYTES,
        ]);
        Entry {
            index,
            queue,
            reply,
            commit_id: 0,
            vectors,
        }
    }

    /// Which of its ring it is.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Address of the two `iovec`s that describe its memory to the kernel.
    #[must_use]
    pub fn vectors(&self) -> u64 {
        let address = self.vectors.as_ptr().expose_provenance();
        u64::try_from(address).expect("an address has 64 bits")
    }

    /// Arguments of a command about it.
    #[must_use]
    pub fn command(&self) -> RingCommand {
        RingCommand {
            flags: 0,
            commit_id: self.commit_id,
            queue: self.queue,
            padding: [0; 6],
        }
    }

    /// Answers the request that it holds.
    pub fn answer(
        &mut self,
        service: &dyn Service,
        desk: &mut Desk,
        patience: Patience<'_>,
    ) -> Answered {
        let headers = self.headers();
        self.commit_id = headers.entry.commit_id;
        let payload = usize::try_from(headers.entry.payload_bytes).unwrap_or(usize::MAX);
        let header = InHeader::read_from_prefix(&headers.header);
        let (header, _) = header.expect("there is room for a header");
        let Some(head) = Head::of(&headers, &header, payload) else {
            self.fail(header.unique);
            return Answered::Yes;
        };
        let replied = if payload == 0 {
            self.answer_in_place(service, &head, patience)
        } else {
            self.answer_by_copy(service, desk, (&head, payload), patience)
        };
        match replied {
            Replied::Later => return Answered::Later,
            Replied::Yes(out, len) => self.put_headers(&out, len),
            // Only a FORGET has no reply, and FORGETs do not come through rings.
            Replied::No => self.fail(header.unique),
        }
        Answered::Yes
    }

    fn answer_in_place(
        &mut self,
        service: &dyn Service,
        head: &Head,
        patience: Patience<'_>,
    ) -> Replied {
        let request = protocol::parse(&head.bytes[..head.len]);
        let reply = &mut self.reply;
        Replied::of(attend(service, request, reply, patience)).0
    }

    fn answer_by_copy(
        &mut self,
        service: &dyn Service,
        desk: &mut Desk,
        (head, payload): (&Head, usize),
        patience: Patience<'_>,
    ) -> Replied {
        let begin = PAGE - head.len;
        let memory = self.reply.pages().bytes_mut();
        memory[begin..PAGE].copy_from_slice(&head.bytes[..head.len]);
        let request = protocol::parse(&memory[begin..PAGE + payload]);
        let reply = &mut desk.reply;
        let (replied, body) = Replied::of(attend(service, request, reply, patience));
        self.reply.pages().bytes_mut()[PAGE..PAGE + body.len()].copy_from_slice(body);
        replied
    }

    /// What the kernel has filled in.
    fn headers(&mut self) -> RingHeaders {
        let (headers, _) = RingHeaders::read_from_prefix(self.reply.pages().bytes())
            .expect("the mapping is larger than the headers");
        headers
    }

    /// The reply to a request that the server does not understand.
    fn fail(&mut self, unique: u64) {
        let len = u32::try_from(size_of::<OutHeader>()).expect("a header is short");
        let error = -libc::EIO;
        self.put_headers(&OutHeader { len, error, unique }, 0);
    }

    fn put_headers(&mut self, out: &OutHeader, payload: usize) {
        let mut headers = self.headers();
        headers.header[..size_of::<OutHeader>()].copy_from_slice(out.as_bytes());
        headers.entry.payload_bytes =
            u32::try_from(payload).expect("a payload is a megabyte at most");
        self.reply.pages().bytes_mut()[..HEADERS].copy_from_slice(headers.as_bytes());
    }
}

impl Head {
    /// `None` where the lengths contradict each other.
    fn of(headers: &RingHeaders, header: &InHeader, payload: usize) -> Option<Head> {
        let len = usize::try_from(header.len).ok()?.checked_sub(payload)?;
        let record = len.checked_sub(HEADER)?;
        if record > headers.record.len() || payload > IO_BYTES {
            return None;
        }
        let mut bytes = [0; HEAD];
        bytes[..HEADER].copy_from_slice(&headers.header[..HEADER]);
        bytes[HEADER..len].copy_from_slice(&headers.record[..record]);
        Some(Head { bytes, len })
    }
}

fn attend<'r>(
    service: &dyn Service,
    request: Result<Request<'_>, Malformed>,
    reply: &'r mut Reply,
    patience: Patience<'_>,
) -> Prompt<'r> {
    match patience {
        Patience::Prompt => service::answer_promptly(service, request, reply),
        Patience::Waits(knows) => Prompt::Answered(service::answer(service, knows, request, reply)),
    }
}

/// A [`Prompt`] without what it borrows: the reply's header and the bytes behind it.
enum Replied {
    Yes(OutHeader, usize),
    No,
    Later,
}

impl Replied {
    /// With the bytes behind the header.
    fn of(prompt: Prompt<'_>) -> (Replied, &[u8]) {
        match prompt {
            Prompt::Answered(Some(reply)) => {
                let (out, body) =
                    OutHeader::read_from_prefix(reply).expect("a reply begins with a header");
                (Replied::Yes(out, body.len()), body)
            }
            Prompt::Answered(None) => (Replied::No, &[]),
            Prompt::Later => (Replied::Later, &[]),
        }
    }
}

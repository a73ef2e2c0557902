//! The loop of a worker thread: it takes a request, answers it, and takes the next.

use std::cell::Cell;
use std::io;

use dure_sync::Arc;

use super::Transport;
use super::buffer::{Reply, RequestBuffer};
use super::crew::Crew;
use super::device::{Channel, Received};
use super::negotiate::{self, Features, Negotiated};
use super::uring::Rings;
use super::uring::switch::Switch;
use crate::protocol::{self, Operation};
use crate::service::{self, Question, Service};

/// What came of INIT.
#[derive(Debug)]
pub enum Agreed {
    /// Requests come through the device.
    Device,
    /// Rings were asked for, but cannot be had; a sentence says why.
    Fallback(String),
    /// Requests come through these rings.
    Rings(Rings),
}

/// Answers INIT on a fresh connection. Rings have `depth` entries for each CPU.
///
/// # Errors
/// The connection ended, or the kernel is too old.
pub fn handshake(
    channel: &Channel,
    features: &Features,
    (transport, depth): (Transport, usize),
) -> io::Result<Agreed> {
    let (mut buffer, mut reply) = (RequestBuffer::new(), Reply::new());
    loop {
        let len = match channel.receive(buffer.room())? {
            Received::Request(len) => len,
            Received::Nothing => continue,
            Received::End => return Err(io::Error::other("unmounted before it was served")),
        };
        let request = protocol::parse(buffer.filled(len)).map_err(io::Error::other)?;
        let Operation::Init(offer, more) = request.operation else {
            channel.send(reply.finish(request.unique, Err(libc::EIO)))?;
            continue;
        };
        // The kernel waits for rings once they are agreed: they have to be there before.
        let agreed = match transport {
            Transport::Device => Agreed::Device,
            Transport::Uring if !negotiate::offers_rings(offer, more) => {
                Agreed::Fallback(Switch::now().why_no_rings().to_owned())
            }
            Transport::Uring => match Rings::new(channel, depth) {
                Ok(rings) => Agreed::Rings(rings),
                Err(error) => Agreed::Fallback(error.to_string()),
            },
        };
        let transport = match &agreed {
            Agreed::Rings(_) => Transport::Uring,
            Agreed::Device | Agreed::Fallback(_) => Transport::Device,
        };
        let answer = match negotiate::negotiate((offer, more), features, transport) {
            Ok(answer) => answer,
            Err(old) => {
                channel.send(reply.finish(request.unique, Err(libc::EPROTO)))?;
                return Err(io::Error::other(old));
            }
        };
        let (Negotiated::Agreed(out) | Negotiated::Later(out)) = &answer;
        reply.put(out);
        channel.send(reply.finish(request.unique, Ok(())))?;
        if let Negotiated::Agreed(_) = answer {
            // The kernel made its inode of the root before it knew that access control lists are
            // served, and marked it as one whose lists it must not keep. The notification, which
            // the question is, has it forget them, and so the mark.
            let _ = channel.knows(&Question::Inode(protocol::ROOT));
            return Ok(agreed);
        }
    }
}

/// Answers requests with `workers` threads, or up to `stand_ins` more while those wait for the
/// device, until the connection ends.
///
/// # Errors
/// The error of a worker that failed; the others went on until the end.
pub fn run(
    service: &Arc<dyn Service>,
    channel: &Channel,
    (workers, stand_ins): (usize, usize),
) -> io::Result<()> {
    let (service, channel) = (Arc::clone(service), channel.clone());
    Crew::run(
        workers,
        stand_ins,
        Box::new(move |crew| work(crew, &*service, &channel.another())),
    )
}

fn work(crew: &Arc<Crew>, service: &dyn Service, channel: &Channel) -> io::Result<()> {
    let (mut buffer, mut reply) = (RequestBuffer::new(), Reply::new());
    loop {
        let len = match channel.receive(buffer.room())? {
            Received::Request(len) => len,
            Received::Nothing => continue,
            Received::End => return Ok(()),
        };
        let request = protocol::parse(buffer.filled(len));
        let may_wait = request
            .as_ref()
            .is_ok_and(|request| service.may_wait(request));
        if may_wait {
            Crew::begin_wait(crew);
        }
        let waits = Cell::new(may_wait);
        let knows = |question: Question| {
            if !waits.replace(true) {
                Crew::begin_wait(crew);
            }
            channel.knows(&question)
        };
        let bytes = service::answer(service, &knows, request, &mut reply);
        if let Some(bytes) = bytes {
            // A reply that the kernel rejects is a bug of ours. The kernel has then given its
            // caller EIO.
            let sent = channel.send(bytes);
            debug_assert!(sent.is_ok(), "the kernel rejected a reply: {sent:?}");
        }
        if waits.get() {
            crew.end_wait(|| {
                buffer.release();
                reply.release();
            });
        }
    }
}

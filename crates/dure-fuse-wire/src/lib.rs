//! FUSE without libfuse: the protocol and its transports, for a file system of any kind.
//!
//! **Problem.** The kernel speaks FUSE over `/dev/fuse`, and since Linux 6.14 over io_uring. A file
//! system should see requests and replies, and nothing of either. **Structure.** [`protocol`] gives
//! the layout of requests and replies; a [`Service`] answers requests; [`transport`] takes them
//! from the kernel and sends the replies, with one thread for each core; [`mount`] mounts, and runs
//! all of it.
//!
//! **Invariants.** Every request but FORGET gets exactly one reply. Nothing the kernel sends makes a
//! thread panic; should a service panic, the process ends, and with it the mount, rather than leave
//! a caller without an answer for ever.
//!
//! **On a crash** of the server the kernel answers ENOTCONN until the directory is unmounted.
//!
//! # What is not here
//! Handles of open files: CREATE, FLUSH and locks are [`Operation::Unserved`], and every request names
//! its node. Answered ENOSYS, the kernel does without them, and without OPEN where `NO_OPEN_SUPPORT` is
//! taken; a service that needs a handle for each open(2) has to parse more.
//!
//! # Example
//! `examples/passthrough.rs` mounts a directory a second time, in a hundred lines. This is the
//! smallest file system, an empty directory:
//! ```no_run
//! use dure_fuse_wire::protocol::reply::{Attr, AttrOut};
//! use dure_fuse_wire::{Knows, Operation, Outcome, Reply, Request, Sent, Service, Session, Settings};
//!
//! struct Empty;
//!
//! impl Service for Empty {
//!     fn answer(&self, request: &Request<'_>, _: Knows<'_>, reply: &mut Reply) -> Outcome {
//!         match request.operation {
//!             Operation::GetAttr { .. } => {
//!                 let mode = libc::S_IFDIR | 0o755;
//!                 let attr = Attr { mode, nlink: 2, ..Attr::default() };
//!                 reply.put(&AttrOut { valid: 1, attr, ..AttrOut::default() });
//!                 Ok(Sent::Reply)
//!             }
//!             Operation::ReadDirectory { .. } => Ok(Sent::Reply),
//!             Operation::Forget { .. } | Operation::BatchForget(_) => Ok(Sent::Nothing),
//!             Operation::Lookup(_) => Err(libc::ENOENT),
//!             _ => Err(libc::ENOSYS),
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (session, _) = Session::mount("/mnt/empty".as_ref(), &Settings::default())?;
//! session.run(Empty)?; // until somebody unmounts
//! # Ok(())
//! # }
//! ```

pub mod mount;
pub mod protocol;
pub mod service;
pub mod transport;

pub use mount::dirty::{Collects, KernelLimit, WriteCache};
pub use mount::{MountError, Session, Settings, unmount};
pub use protocol::{Operation, Request};
pub use service::{Asks, Errno, Knows, Outcome, Question, Sent, Service};
pub use transport::Transport;
pub use transport::buffer::Reply;
pub use transport::negotiate::Features;
pub use transport::uring::idle::RingPolicy;

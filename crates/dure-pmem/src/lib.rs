//! Persistent memory: what is stored by the processor itself, and stays.
//!
//! **Problem.** A store to persistent memory is durable only once its cache line was written back
//! and a fence has waited for that; a processor may also write lines back earlier, in any order. A
//! line that the medium has lost ends a program with SIGBUS. Code that forgets one write-back works
//! until the power fails.
//!
//! **Structure.**
//! * [`Region`]: a mapping of a DAX file with `MAP_SYNC`, or elsewhere *emulated NVM* over a file or
//!   anonymous memory, with the same instructions.
//! * [`Dirty`], [`Flushed`], [`Persisted`]: a store is each of these in turn, and only a
//!   [`Persisted`] may be pointed to ([`Region::publish`]).
//! * [`record`]: a region that keeps every store, write-back and fence, and every state that a
//!   crash may leave of them.
//! * [`Memory`]: sparse memory without any of this, for disks in memory.
//! * Inside, `instructions` has what the processor offers, `access` copies that survive SIGBUS, and
//!   `mapping` the memory itself.
//!
//! **Invariants.** Nothing outside the region is ever read or written. No access ends the process:
//! a line that cannot be read or written is an [`Error::Poison`]. A fence speaks for the stores of
//! its own thread, so [`Dirty`] and [`Flushed`] stay on theirs.
//!
//! **On a crash** each cache line holds what was persisted last, or a part of what was stored since:
//! of ordinary stores to one line the first so many, of non-temporal ones any words of 8 bytes.
//! Emulated NVM over a file survives the end of the process, not a power cut.
//!
//! ```
//! let region = dure_pmem::Region::anonymous(1 << 20)?;
//! // A record, durable before the word that points to it.
//! let record = region.copy(4096, &[7; 64])?.fence();
//! region.publish(0, 4096, record)?.write_back().fence();
//! # Ok::<(), dure_pmem::Error>(())
//! ```
//!
//! A word that points to what is not durable yet does not compile:
//! ```compile_fail,E0308
//! let region = dure_pmem::Region::anonymous(1 << 20)?;
//! let record = region.copy(4096, &[7; 64])?;
//! region.publish(0, 4096, record)?; // no fence: a Flushed, not a Persisted
//! # Ok::<(), dure_pmem::Error>(())
//! ```
//! nor does a fence without the write-back:
//! ```compile_fail,E0599
//! let region = dure_pmem::Region::anonymous(1 << 20)?;
//! let record = region.store(4096, &[7; 64])?;
//! region.publish(0, 4096, record.fence())?; // a Dirty has no fence
//! # Ok::<(), dure_pmem::Error>(())
//! ```
//! nor a fence by another thread:
//! ```compile_fail,E0277
//! fn on_another_thread<T: Send>(_: T) {}
//! let region = dure_pmem::Region::anonymous(1 << 20)?;
//! on_another_thread(region.copy(4096, &[7; 64])?);
//! # Ok::<(), dure_pmem::Error>(())
//! ```
//! nor a `Persisted` out of nothing:
//! ```compile_fail,E0423
//! let region = dure_pmem::Region::anonymous(1 << 20)?;
//! region.publish(0, 4096, dure_pmem::Persisted(std::marker::PhantomData))?;
//! # Ok::<(), dure_pmem::Error>(())
//! ```

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("persistent memory needs the instructions of x86-64 and Linux");

mod access;
mod error;
mod instructions;
mod mapping;
mod memory;
mod persist;
pub mod record;
mod region;

pub use error::{Error, Result};
pub use instructions::WriteBack;
pub use mapping::{Access, Medium, Need};
pub use memory::Memory;
pub use persist::{Dirty, Flushed, Persisted};
pub use region::Region;

/// Bytes of a cache line: the unit of write-back.
pub const LINE_BYTES: usize = 64;
/// Bytes that are stored wholly or not at all, if aligned.
pub const WORD_BYTES: usize = 8;

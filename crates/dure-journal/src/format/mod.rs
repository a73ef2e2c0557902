//! The journal's structures on the medium: slotted pairs, journal headers, transactions, records.
//!
//! **Problem.** Bytes read after a crash may be anything: torn, stale, of another volume, or
//! crafted by an attacker. **Structure.** Plain little-endian structures, and for each one a
//! function that turns bytes into a checked value. **Invariants.** Reserved fields are written zero
//! and checked zero; every structure names its own address, so a misdirected write is found; a
//! change of a structure is a new version of its type. **Crash.** A pair survives a torn write of
//! one slot; a transaction is complete or does not exist.

mod checksum;
mod header;
mod record;
pub mod slotted;
mod transaction;

#[cfg(test)]
mod tests;

pub use header::{JournalHeader, JournalHeaderV1, SEGMENTS_MAX, TailPosition};
pub use record::{
    DELTA_HEAD_BYTES, IMAGE_HEAD_BYTES, LoggedRecords, NOTE_HEAD_BYTES, RECORD_BYTES_MAX, Record,
    RecordError,
};
pub use transaction::{TransactionHeader, TransactionHeaderV1};

pub(crate) use record::{put_delta, put_image, put_note_of};
pub(crate) use transaction::{
    Expected, ParsedTransaction, Seal, SealBuffer, TRANSACTION_HEADER_BYTES, open, peek,
};

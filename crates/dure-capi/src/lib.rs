//! dure for C: the functions of `include/dure.h`.
//!
//! **Problem.** Programs in C and C++, and languages that call C, want volumes without a kernel
//! crossing and without Rust. **Structure.** The header is the contract, and each function here is
//! a line or a few over a call of `dure`:
//! * `argument`: what C passes. Handles are references and boxes, which are pointers to C; text,
//!   buffers and vectors are types of their own, so that only they need `unsafe`.
//! * `answer`: the boundary: errors become `-errno`, panics do not cross it.
//! * `owner`: what handles of a volume share: the process that opened it, and whether it failed.
//! * `last_error`: the message for the calling thread.
//! * `volume`, `session`, `open`, `file`, `vector`, `name`, `attribute`, `xattr`, `directory`, `copy`,
//!   `calls`, `snapshot`: the functions. `layout` has the structs.
//!
//! **Invariants.** A call on a live handle does not crash, whatever else is passed, and returns
//! `-errno`. Nothing that a forked child calls touches the medium. The header and this crate agree:
//! tests compare each declaration and each offset.
//!
//! **On a crash** as `dure`: the functions keep nothing of their own.
//!
//! # The shared library
//! Cargo makes an archive, not a `cdylib`: rustc passes a version script of its own to the linker,
//! which then refuses ours. `link.sh` links the archive with `dure.map`, which gives each function the
//! version `DURE_0` and hides all else, as `libdure.so` with the SONAME `libdure.so.0`.

mod answer;
mod argument;
mod attribute;
mod calls;
mod copy;
mod directory;
mod file;
mod last_error;
mod layout;
mod mount;
mod name;
mod open;
mod options;
mod owner;
mod session;
mod snapshot;
mod vector;
mod volume;
mod xattr;

pub use argument::{NewHandle, Place, Source, Target, Text, Vectors};
pub use attribute::*;
pub use calls::*;
pub use copy::*;
pub use directory::*;
pub use file::*;
pub use last_error::{dure_last_error, dure_version};
pub use layout::*;
pub use mount::*;
pub use name::*;
pub use open::*;
pub use session::*;
pub use snapshot::*;
pub use vector::*;
pub use volume::*;
pub use xattr::*;

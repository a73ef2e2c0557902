//! What `dure run` loads into a program: calls on files of a volume go to the library instead of the
//! kernel.
//!
//! **Problem.** A call through a mount is a switch to another process and back. Programs that nobody
//! changes can have the library's calls all the same, if its functions have the names of the C
//! library's.
//! **Structure.** `docs/user/run.md` is the page for users, `docs/decisions/run.md` says why.
//! * `server`: a process that shares the memory of the program, has the volume open and serves its mount.
//! * `table`: the description behind each descriptor. Each descriptor is a real one of the mount.
//! * `slot`: what each thread is at; a thread that is within a call cannot lose its description.
//! * `hooks`: the functions that a program calls in place of the C library's.
//! * `mapped`: how long the kernel takes mapped files to be.
//! * `signals`: a call is not interrupted by a handler of the program, nor by its end.
//! * `real`: the functions of the C library.
//!
//! **Invariants.** Whatever has no description goes to the kernel, and is right there too: in children,
//! after an exec, where a table is full. A call either has the description of its descriptor for its
//! whole length or does not begin.
//!
//! **On a crash** of the program outside of a call nothing is lost: the server closes the volume.
//! Within a call locks may be held: the server ends as if the machine had, and what was synced is there.

mod description;
mod hooks;
mod mapped;
mod real;
mod server;
mod signals;
mod slot;
mod table;

/// The C library's has locks that a thread may be killed with, and the server goes on.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Called by the loader before the program begins.
// SAFETY: the loader calls what stands in this section, in one thread.
#[unsafe(link_section = ".init_array")]
#[used]
static BEGIN: extern "C" fn() = begin;

/// Called by the C library at the end, after what the program has asked for.
// SAFETY: as above.
#[unsafe(link_section = ".fini_array")]
#[used]
static END: extern "C" fn() = end;

extern "C" fn begin() {
    server::begin();
}

extern "C" fn end() {
    server::leave();
}

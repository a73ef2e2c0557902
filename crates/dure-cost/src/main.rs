//! The program whose instructions `cargo xtask cost` counts; see docs/performance/cost.md.
//!
//! **Problem.** Time says little on a shared machine; the number of instructions of a call is the
//! same on every one. **Structure.** `prepare` makes an image with a directory of names, without
//! valgrind. `count` loads it into memory and makes one kind of call on it: [`library`] through the
//! library, [`server`] as FUSE requests, [`requests`] on the block layer, each an [`counted::Operation`]. [`scene`] is the volume.
//! **Invariants.** Only the functions in [`counted`] are counted; what calls need is prepared
//! outside. One thread, on one core: no other task's work is counted. **Crash.** Nothing is kept
//! but the image, a temporary file of the caller.

#![expect(clippy::print_stdout, reason = "its caller reads standard output")]

#[cfg(not(dure_backend = "sim"))]
mod allocator;
mod counted;
mod library;
mod requests;
mod scene;
mod server;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use dure_sync::{current_core, thread};

use counted::{Operation, Totals};
use scene::{Medium, Scene};

#[cfg(not(dure_backend = "sim"))]
#[global_allocator]
static ALLOCATOR: allocator::Repeatable = allocator::Repeatable;

#[derive(Debug, Parser)]
#[command(
    name = "dure-cost",
    about = "Makes calls whose instructions are counted"
)]
enum Command {
    /// Make an image with a directory of names.
    Prepare {
        /// The file to make.
        image: PathBuf,
        /// How many names.
        #[arg(long)]
        names: usize,
    },
    /// Make calls.
    Count {
        /// Which.
        #[arg(value_enum)]
        call: Call,
        /// What `prepare` made.
        #[arg(long)]
        image: PathBuf,
    },
}

/// What is counted, by its name in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "docs/performance/cost.md says what each is")]
pub enum Call {
    Create,
    Unlink,
    Rename,
    RenameOver,
    Mkdir,
    Link,
    StatFirst,
    StatSecond,
    StatAgain,
    StatMounted,
    OpenClose,
    Chmod,
    Append,
    Overwrite,
    OverwriteDirect,
    OverwriteFsync,
    Read,
    ReadDirect,
    Readdir,
    Request,
    FuseLookup,
    FuseMknod,
    FuseUnlink,
    FuseRename,
    FuseGetattr,
    FuseReaddirplus,
    FuseRead,
    FuseWrite,
}

fn operation(call: Call, scene: Scene) -> Result<Box<dyn Operation>> {
    if call == Call::Request {
        return Ok(Box::new(requests::Depth::new(scene)));
    }
    match server::Kind::of(call) {
        Some(kind) => Ok(Box::new(server::Requests::new(kind, scene)?)),
        None => Ok(Box::new(library::Calls::new(call, scene)?)),
    }
}

fn main() -> Result<()> {
    ensure!(thread::pin_to(current_core()), "cannot stay on one core");
    match Command::parse() {
        Command::Prepare { image, names } => scene::prepare(&image, names),
        Command::Count { call, image } => {
            let medium = match call {
                Call::OverwriteDirect | Call::ReadDirect => Medium::Nvm,
                _ => Medium::Ram,
            };
            let scene = Scene::load(&image, medium)?;
            let Totals { calls, background } = counted::run(operation(call, scene)?.as_mut())?;
            println!("calls {calls}");
            println!("background {background}");
            Ok(())
        }
    }
}

//! A mount that a thread of its own serves, in a process that does other things.
//!
//! **Structure.** [`Serving::begin`] mounts, and starts the thread, which ends with the connection;
//! [`Serving::unmount`] ends that. **Invariants.** A mount that is in use is not unmounted; when it is
//! dropped, it goes from its directory, and is served until its last user has left. **On a crash** of
//! the process the kernel answers ENOTCONN, until the directory is unmounted.

use std::any::Any;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dure_fs::FileSystem;
use dure_fuse_wire::mount::{Lazy, abort};
use dure_fuse_wire::{MountError, unmount};
use dure_sync::{Arc, clock, thread, without_signals};

use crate::coherence::Coherence;
use crate::session::{MountSettings, Session};

/// How long an unmount waits for the end of the connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it sleeps between two looks.
const LOOKS: Duration = Duration::from_millis(1);

/// A mount, and the thread that serves it.
#[derive(Debug)]
pub struct Serving {
    path: PathBuf,
    server: Option<thread::JoinHandle<Result<(), MountError>>>,
}

impl Serving {
    /// Mounts `volume`, which the process goes on to use, on the directory `at`. Changes that do not
    /// come through the mount are told to `coherence`. `keep` is dropped when the mount has no users any
    /// more.
    ///
    /// # Errors
    /// [`MountError`], naming the path and what to do.
    pub fn begin(
        (volume, keep): (FileSystem, Box<dyn Any + Send>),
        coherence: &Arc<Coherence>,
        (at, settings): (&Path, &MountSettings),
    ) -> Result<Serving, MountError> {
        let session = Session::coherent(volume, coherence, (at, settings))?;
        let path = session.path().to_owned();
        let server = without_signals(|| {
            thread::spawn("dure-mount", move || {
                let served = session.run();
                drop(keep);
                served
            })
        });
        while !coherence.is_mounted() && !server.is_finished() {
            thread::sleep(LOOKS);
        }
        let server = Some(server);
        Ok(Serving { path, server })
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether requests are answered: it is mounted, or still has users.
    #[must_use]
    pub fn is_served(&self) -> bool {
        let server = self.server.as_ref();
        server.is_some_and(|server| !server.is_finished())
    }

    /// Ends it without its server, whose process is about to end. Who uses it gets errors. `device`: the
    /// number that its files have.
    pub fn abort(&self, device: (u32, u32)) {
        // A process that maps nothing of it ends without.
        let _ = abort(&self.path, device);
    }

    /// Unmounts it. Does nothing if it was unmounted by others.
    ///
    /// # Errors
    /// `Unmount`: in use, here or in another mount namespace; not permitted. `Serve`: the connection
    /// has failed.
    pub fn unmount(&mut self) -> Result<(), MountError> {
        if self.is_served() {
            unmount(&self.path, Lazy::No)?;
        }
        let begin = clock::monotonic_ns();
        while self.is_served() {
            if Duration::from_nanos(clock::monotonic_ns() - begin) > PATIENCE {
                return Err(MountError::Unmount {
                    path: self.path.clone(),
                    source: io::Error::from_raw_os_error(libc::EBUSY),
                });
            }
            thread::sleep(LOOKS);
        }
        match self.server.take() {
            Some(server) => server
                .join()
                .expect("a server that panics ends the process"),
            None => Ok(()),
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if self.is_served() {
            // Where that fails it is gone from the directory already.
            let _ = unmount(&self.path, Lazy::Yes);
        }
    }
}

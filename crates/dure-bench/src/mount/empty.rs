//! A server with one file and nothing behind it: what a transport answers at best.
//!
//! **Structure.** One directory, in it `file`, which always reads as sevens; writes set its size
//! and are forgotten. It asks the kernel for what a volume asks for, in a thread of this program.
//! **Invariants.** Nothing waits, so rings answer on their own core. **Crash.** The mount stays
//! behind: `umount`.

use anyhow::{Context, Result};
use dure_fuse::protocol::reply::{Attr, AttrOut, EntryOut, WriteOut};
use dure_fuse::protocol::{Operation, ROOT, Request};
use dure_fuse::service::{Knows, Outcome, Sent, Service};
use dure_fuse::transport::buffer::Reply;
use dure_fuse::{Transport, WriteCache, unmount};
use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::thread::{self, JoinHandle};
use tempfile::TempDir;

const FILE: u64 = ROOT + 1;
/// Seconds for which the kernel may believe names and attributes.
const VALID: u64 = 1 << 20;

/// The file system.
#[derive(Debug, Default)]
struct Nothing {
    /// The size of the file. Relaxed: it stands for itself.
    size: AtomicU64,
}

impl Nothing {
    fn attr(&self, node: u64) -> Attr {
        let (mode, size) = match node {
            ROOT => (0o040_755, 4096),
            _ => (0o100_644, self.size.load(Ordering::Relaxed)),
        };
        Attr {
            ino: node,
            size,
            mode,
            nlink: 1,
            block_size: 4096,
            ..Attr::default()
        }
    }
}

impl Service for Nothing {
    fn answer(&self, request: &Request<'_>, _: Knows<'_>, reply: &mut Reply) -> Outcome {
        match &request.operation {
            Operation::Lookup(b"file") => reply.put(&EntryOut {
                node: FILE,
                attr: self.attr(FILE),
                entry_valid: VALID,
                attr_valid: VALID,
                ..EntryOut::default()
            }),
            Operation::Lookup(_) => return Err(libc::ENOENT),
            Operation::GetAttr { .. } | Operation::SetAttr(_) => reply.put(&AttrOut {
                valid: VALID,
                attr: self.attr(request.node),
                ..AttrOut::default()
            }),
            Operation::Read { size, .. } => {
                let want = usize::try_from(*size).map_err(|_| libc::EIO)?;
                reply.fill(want, |room| {
                    room.fill(7);
                    Ok(room.len())
                })?;
            }
            Operation::Write { offset, data, .. } => {
                let size = u32::try_from(data.len()).map_err(|_| libc::EIO)?;
                self.size
                    .fetch_max(offset + u64::from(size), Ordering::Relaxed);
                reply.put(&WriteOut { size, reserved: 0 });
            }
            Operation::Forget { .. } | Operation::BatchForget(_) => return Ok(Sent::Nothing),
            Operation::Fsync { .. } | Operation::Release(_) | Operation::Destroy => {}
            _ => return Err(libc::ENOSYS),
        }
        Ok(Sent::Reply)
    }

    fn may_wait(&self, _: &Request<'_>) -> bool {
        false
    }
}

/// The server, mounted.
#[derive(Debug)]
pub(super) struct Empty {
    pub(super) directory: TempDir,
    server: Option<JoinHandle<()>>,
}

impl Empty {
    /// Mounts one; a transport that cannot be had is no error, but said.
    pub(super) fn mount(transport: Transport) -> Result<Result<Empty, String>> {
        let directory = TempDir::with_prefix("dure-bench-")?;
        let settings = dure_fuse::mount::Settings {
            subtype: "dure-empty".into(),
            features: dure_fuse::FEATURES,
            write_cache: WriteCache::Through,
            transport,
            ..Default::default()
        };
        let (session, _) = dure_fuse::mount::Session::mount(directory.path(), &settings)?;
        let fallback = session.fallback().map(str::to_owned);
        let server = thread::spawn("empty server", move || {
            if let Err(error) = session.run(Nothing::default()) {
                crate::note!("the empty server: {error}");
            }
        });
        let empty = Empty {
            directory,
            server: Some(server),
        };
        Ok(match fallback {
            None => Ok(empty),
            Some(why) => Err(why),
        })
    }

    fn end(&mut self) -> Result<()> {
        // A program that was just forked may still have the file: the server waits for it.
        unmount(self.directory.path(), dure_fuse::mount::Lazy::Yes).context("unmounting")?;
        if let Some(server) = self.server.take() {
            server.join().ok().context("the server panicked")?;
        }
        Ok(())
    }
}

impl Drop for Empty {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            crate::note!(
                "{} stays behind: {error:#}",
                self.directory.path().display()
            );
        }
    }
}

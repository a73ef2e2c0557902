//! Carries out the steps of a workload on a mounted volume.

use std::collections::BTreeMap;
use std::time::Duration;

use dure_fs::format::inode::Time;
use dure_fs::{
    Error, FileKind, FileSystem, InodeRef, NewInode, ReadMode, Result, SetAttributes, SetTime,
    Stamp, SyncScope, XattrMode,
};
use dure_sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use dure_sync::{Arc, clock, thread};
use rustix::thread::gettid;
use zerocopy::little_endian::{I64, U32};

use super::call::{At, Call, Path, Step, pattern, snapshot_name};
use super::gate::Gate;

/// A user of a volume: its open descriptors, and its fsyncs in flight.
#[derive(Debug)]
pub struct Performer {
    fs: FileSystem,
    slots: BTreeMap<u8, InodeRef>,
    stage: Stage,
    running: Vec<Running>,
}

/// An fsync in flight.
#[derive(Debug)]
struct Running {
    thread: thread::JoinHandle<Result<()>>,
    /// The kernel's number of the thread; 0 before it runs.
    id: Arc<AtomicI64>,
}

/// What a workload on two cores needs besides the volume.
#[derive(Debug, Clone, Default)]
pub struct Stage {
    /// Where flushes are held back.
    pub gate: Arc<Gate>,
    /// The core that all threads are told they run on.
    pub core: Arc<AtomicUsize>,
}

/// Time between two checks of a thread.
const TURN: Duration = Duration::from_micros(30);

/// Whether thread `id` of this process sleeps; 0 has not begun. No other thread runs meanwhile, so
/// it sleeps only in a flush that is held back.
fn is_asleep(id: i64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{id}/stat"));
    // The state stands behind the name, which is in parentheses.
    let state = stat.as_ref().ok().and_then(|stat| stat.rsplit_once(") "));
    id != 0 && state.is_some_and(|(_, rest)| rest.starts_with('S'))
}

fn new(kind: FileKind, mode: u32) -> NewInode {
    NewInode {
        mode: kind.mode() | mode,
        ..NewInode::default()
    }
}

impl Performer {
    /// A user of `fs` without descriptors.
    #[must_use]
    pub fn new(fs: FileSystem, stage: Stage) -> Performer {
        Performer {
            fs,
            slots: BTreeMap::new(),
            stage,
            running: Vec::new(),
        }
    }

    fn fsync_begin(&mut self, at: At) -> Result<()> {
        let (fs, inode) = (self.fs.clone(), self.at(at)?);
        self.stage.gate.close();
        let (id, time) = (Arc::new(AtomicI64::new(0)), clock::wall());
        let own = Arc::clone(&id);
        let body = move || {
            clock::pretend_wall(Some(time));
            // Relaxed: only the number itself is shared.
            own.store(gettid().as_raw_nonzero().get().into(), Ordering::Relaxed);
            fs.fsync(&inode, SyncScope::All)
        };
        let thread = thread::spawn("fsync", body);
        self.running.push(Running { thread, id });
        self.settle();
        Ok(())
    }

    /// Waits until every thread has ended or sleeps in a flush that is held back.
    fn settle(&self) {
        // Seen twice: a thread that is asleep once may have waited for a lock.
        let rests = |running: &Running| {
            running.thread.is_finished() || is_asleep(running.id.load(Ordering::Relaxed))
        };
        let mut seen = 0;
        while seen < 2 {
            thread::sleep(TURN);
            seen = if self.running.iter().all(rests) {
                seen + 1
            } else {
                0
            };
        }
    }

    fn fsync_end(&mut self) -> Result<()> {
        while self
            .running
            .iter()
            .any(|running| !running.thread.is_finished())
        {
            self.stage.gate.let_one();
            self.settle();
        }
        self.stage.gate.open();
        let join = |running: Running| {
            let done = running.thread.join();
            done.expect("fsync returns its errors")
        };
        self.running.drain(..).try_for_each(join)
    }

    fn find(&self, path: Path) -> Result<InodeRef> {
        let mut at = self.fs.root()?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            at = self
                .fs
                .lookup(&at, name.as_bytes())?
                .ok_or(Error::NotFound)?;
        }
        Ok(at)
    }

    fn at(&self, at: At) -> Result<InodeRef> {
        match at {
            At::Path(path) => self.find(path),
            At::Slot(slot) => self.slots.get(&slot).cloned().ok_or(Error::NotFound),
        }
    }

    fn name(&self, path: Path) -> Result<(InodeRef, &'static [u8])> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.find(dir)?, name.as_bytes()))
    }

    /// Does one step.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn step(&mut self, step: &Step) -> Result<()> {
        match *step {
            Step::Call(call) => self.call(&call),
            Step::Open(slot, path) => {
                let inode = self.find(path)?;
                self.slots.insert(slot, inode);
                Ok(())
            }
            Step::Close(slot) => {
                self.slots.remove(&slot);
                Ok(())
            }
            Step::Fsync(at) => self.fs.fsync(&self.at(at)?, SyncScope::All),
            Step::Fdatasync(at) => self.fs.fsync(&self.at(at)?, SyncScope::Data),
            Step::Sync => self.fs.sync(),
            Step::WriteBack => self.fs.background_now(),
            Step::Checkpoint => self.fs.checkpoint_now(),
            Step::Snapshot(number) => self.fs.create_snapshot(&snapshot_name(number)).map(drop),
            Step::DropSnapshot(number) => self.fs.delete_snapshot(&snapshot_name(number)),
            Step::Core(core) => {
                // Relaxed: any core is right.
                self.stage.core.store(core, Ordering::Relaxed);
                Ok(())
            }
            Step::FsyncBegin(at) => self.fsync_begin(at),
            Step::FsyncEnd => self.fsync_end(),
            Step::Unmount => {
                self.slots.clear();
                self.fs.close()
            }
        }
    }

    fn call(&mut self, call: &Call) -> Result<()> {
        let fs = self.fs.clone();
        match *call {
            Call::Create { path } => {
                let (dir, name) = self.name(path)?;
                fs.create(&dir, name, &new(FileKind::File, 0o644)).map(drop)
            }
            Call::Fifo { path } => {
                let (dir, name) = self.name(path)?;
                fs.create(&dir, name, &new(FileKind::Fifo, 0o644)).map(drop)
            }
            Call::Mkdir { path } => {
                let (dir, name) = self.name(path)?;
                let new = new(FileKind::Directory, 0o755);
                fs.mkdir(&dir, name, &new).map(drop)
            }
            Call::Symlink { target, path } => {
                let (dir, name) = self.name(path)?;
                let new = new(FileKind::Symlink, 0o777);
                fs.symlink(&dir, name, target.as_bytes(), &new).map(drop)
            }
            Call::Temporary { slot, dir } => {
                let inode = fs.temporary(&self.find(dir)?, &new(FileKind::File, 0o600))?;
                self.slots.insert(slot, inode);
                Ok(())
            }
            Call::Link { from, to } => self.link(At::Path(from), to),
            Call::LinkSlot { slot, path } => self.link(At::Slot(slot), path),
            Call::Unlink { path } => {
                let (dir, name) = self.name(path)?;
                fs.unlink(&dir, name)
            }
            Call::Rmdir { path } => {
                let (dir, name) = self.name(path)?;
                fs.rmdir(&dir, name)
            }
            Call::Rename { from, to, mode } => {
                let ((from_dir, from), (to_dir, to)) = (self.name(from)?, self.name(to)?);
                fs.rename(&from_dir, from, &to_dir, to, mode)
            }
            _ => self.change(call),
        }
    }

    fn link(&self, from: At, to: Path) -> Result<()> {
        let (dir, name) = self.name(to)?;
        self.fs.link(&self.at(from)?, &dir, name)
    }

    /// As programs copy: what is not shared is read and written.
    fn clone(&self, (from, start): (At, u64), (at, offset): (At, u64), len: u64) -> Result<()> {
        let (fs, from, at) = (&self.fs, self.at(from)?, self.at(at)?);
        let done = fs.clone_range((&from, start), (&at, offset), len)?;
        let mut rest = vec![0; dure_fs::units::to_usize(len - done)];
        let count = fs.read(&from, start + done, &mut rest, ReadMode::Cached)?;
        assert_eq!(count, rest.len(), "the source has these bytes");
        let written = fs.write(&at, offset + done, &rest, Stamp::Set)?;
        assert_eq!(written, rest.len(), "the volume has room");
        Ok(())
    }

    /// Calls on an inode.
    fn change(&self, call: &Call) -> Result<()> {
        let fs = &self.fs;
        let set = |at, set: SetAttributes| fs.set_attributes(&self.at(at)?, &set).map(drop);
        let none = SetAttributes::default();
        match *call {
            Call::Write {
                at,
                offset,
                len,
                fill,
            } => {
                let bytes = pattern(fill, dure_fs::units::to_usize(len));
                let count = fs.write(&self.at(at)?, offset, &bytes, Stamp::Set)?;
                assert_eq!(count, bytes.len(), "the volume has room");
                Ok(())
            }
            Call::Allocate {
                at,
                mode,
                offset,
                len,
            } => fs.allocate(&self.at(at)?, mode, offset, len),
            Call::Clone {
                from,
                start,
                len,
                at,
                offset,
            } => self.clone((from, start), (at, offset), len),
            Call::SetXattr {
                at,
                name,
                len,
                fill,
            } => {
                let (value, mode) = (pattern(fill, len), XattrMode::Any);
                fs.set_xattr(&self.at(at)?, name.as_bytes(), &value, mode)
            }
            Call::RemoveXattr { at, name } => fs.remove_xattr(&self.at(at)?, name.as_bytes()),
            Call::Truncate { at, size } => set(
                at,
                SetAttributes {
                    size: Some(size),
                    ..none
                },
            ),
            Call::Chmod { at, mode } => set(
                at,
                SetAttributes {
                    mode: Some(mode),
                    ..none
                },
            ),
            Call::Chown { at, uid } => set(
                at,
                SetAttributes {
                    uid: Some(uid),
                    ..none
                },
            ),
            Call::SetTime { at, secs } => {
                let (secs, nanos) = (I64::new(secs), U32::new(0));
                let mtime = Some(SetTime::At(Time { secs, nanos }));
                set(at, SetAttributes { mtime, ..none })
            }
            _ => unreachable!("calls on names are done by `call`"),
        }
    }
}

//! A directory, mounted a second time: `cargo run --example passthrough -- FROM TO [--uring]`.
//!
//! A node is a file that is open without access (`O_PATH`), as often as the kernel has looked it up.
//! What is not served here (links, renames, times, extended attributes) is answered ENOSYS.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::{ffi::OsStr, io, os::unix::ffi::OsStrExt};

use dure_fuse_wire::protocol::opcode::init;
use dure_fuse_wire::protocol::reply::{Attr, AttrOut, Dirent, EntryOut, WriteOut};
use dure_fuse_wire::protocol::{ROOT, opcode::setattr, operation::ListForm};
use dure_fuse_wire::{Errno, Knows, Operation, Outcome, Reply, Request};
use dure_fuse_wire::{Features, Sent, Service, Session, Settings, Transport, WriteCache};
use dure_sync::Mutex;

/// Rank of the table's lock; nothing is taken under it.
const NODES: u8 = 1;

struct Passthrough(Mutex<NODES, BTreeMap<u64, (File, u64)>>);

fn errno(error: io::Error) -> Errno {
    error.raw_os_error().unwrap_or(libc::EIO)
}

fn open(path: impl AsRef<std::path::Path>) -> Result<File, Errno> {
    let flags = libc::O_PATH | libc::O_NOFOLLOW;
    let mut options = File::options();
    options
        .read(true)
        .custom_flags(flags)
        .open(path)
        .map_err(errno)
}

fn attr(file: &File) -> Result<Attr, Errno> {
    let found = file.metadata().map_err(errno)?;
    Ok(Attr {
        ino: found.ino(),
        size: found.size(),
        blocks: found.blocks(),
        mtime: found.mtime(),
        ctime: found.ctime(),
        mode: found.mode(),
        nlink: u32::try_from(found.nlink()).unwrap_or(u32::MAX),
        uid: found.uid(),
        gid: found.gid(),
        block_size: 4096,
        ..Attr::default()
    })
}

impl Passthrough {
    /// Where a node can be opened, whatever its name is now.
    fn path(&self, node: u64) -> Result<PathBuf, Errno> {
        let nodes = self.0.lock();
        let (file, _) = nodes.get(&node).ok_or(libc::ESTALE)?;
        Ok(PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())))
    }

    fn entry(&self, path: PathBuf, reply: &mut Reply) -> Outcome {
        let file = open(path)?;
        let attr = attr(&file)?;
        self.0.lock().entry(attr.ino).or_insert((file, 0)).1 += 1;
        let node = attr.ino;
        reply.put(&EntryOut {
            node,
            attr,
            entry_valid: 1,
            attr_valid: 1,
            ..EntryOut::default()
        });
        Ok(Sent::Reply)
    }

    fn attributes(&self, node: u64, reply: &mut Reply) -> Outcome {
        let found = self.0.lock().get(&node).map(|(file, _)| attr(file));
        reply.put(&AttrOut {
            valid: 1,
            attr: found.ok_or(libc::ESTALE)??,
            ..AttrOut::default()
        });
        Ok(Sent::Reply)
    }

    fn forget(&self, node: u64, lookups: u64) {
        let mut nodes = self.0.lock();
        if let Some((_, count)) = nodes.get_mut(&node).filter(|_| node != ROOT) {
            *count = count.saturating_sub(lookups);
            if *count == 0 {
                nodes.remove(&node);
            }
        }
    }

    fn list(&self, node: u64, (position, size): (u64, u32), reply: &mut Reply) -> Outcome {
        let entries = fs::read_dir(self.path(node)?).map_err(errno)?;
        for (next, entry) in (1..).zip(entries).filter(|(next, _)| *next > position) {
            let (entry, limit) = (entry.map_err(errno)?, usize::try_from(size).unwrap_or(0));
            let (name, ino) = (entry.file_name(), entry.metadata().map_err(errno)?.ino());
            let name_len = u32::try_from(name.len()).unwrap_or(0);
            if !reply.put_name(
                limit,
                &(),
                Dirent {
                    ino,
                    next,
                    name_len,
                    kind: 0,
                },
                name.as_bytes(),
            ) {
                break;
            }
        }
        Ok(Sent::Reply)
    }
}

impl Service for Passthrough {
    fn answer(&self, request: &Request<'_>, _: Knows<'_>, reply: &mut Reply) -> Outcome {
        let node = request.node;
        let child = |name| {
            self.path(node)
                .map(|path| path.join(OsStr::from_bytes(name)))
        };
        match request.operation {
            Operation::Lookup(name) => return self.entry(child(name)?, reply),
            Operation::Create { name, mode, .. } => {
                let (mut options, path) = (File::options(), child(name)?);
                options
                    .write(true)
                    .create_new(true)
                    .mode(mode)
                    .open(&path)
                    .map_err(errno)?;
                return self.entry(path, reply);
            }
            Operation::MakeDirectory { name, mode, .. } => {
                fs::DirBuilder::new()
                    .mode(mode)
                    .create(child(name)?)
                    .map_err(errno)?;
                return self.entry(child(name)?, reply);
            }
            Operation::Unlink(name) => fs::remove_file(child(name)?).map_err(errno)?,
            Operation::RemoveDirectory(name) => fs::remove_dir(child(name)?).map_err(errno)?,
            Operation::GetAttr { .. } => return self.attributes(node, reply),
            Operation::SetAttr(set) => {
                if set.valid & setattr::SIZE != 0 {
                    let mut options = File::options();
                    let file = options.write(true).open(self.path(node)?).map_err(errno)?;
                    file.set_len(set.size).map_err(errno)?;
                }
                return self.attributes(node, reply);
            }
            Operation::Read { offset, size, .. } => {
                let file = File::open(self.path(node)?).map_err(errno)?;
                let want = usize::try_from(size).map_err(|_| libc::EIO)?;
                reply.fill(want, |room| file.read_at(room, offset).map_err(errno))?;
            }
            Operation::Write { offset, data, .. } => {
                let file = File::options()
                    .write(true)
                    .open(self.path(node)?)
                    .map_err(errno)?;
                file.write_all_at(data, offset).map_err(errno)?;
                let size = u32::try_from(data.len()).map_err(|_| libc::EIO)?;
                reply.put(&WriteOut { size, reserved: 0 });
            }
            Operation::ReadDirectory {
                position,
                size,
                form: ListForm::Names,
            } => {
                return self.list(node, (position, size), reply);
            }
            Operation::Forget { lookups } => {
                self.forget(node, lookups);
                return Ok(Sent::Nothing);
            }
            Operation::BatchForget(all) => {
                all.iter()
                    .for_each(|one| self.forget(one.node, one.lookups));
                return Ok(Sent::Nothing);
            }
            Operation::Release(_) | Operation::Destroy => {}
            _ => return Err(libc::ENOSYS),
        }
        Ok(Sent::Reply)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, to, rest @ ..] = &arguments[..] else {
        return Err("usage: passthrough FROM TO [--uring]".into());
    };
    let root = open(fs::canonicalize(from)?).map_err(io::Error::from_raw_os_error)?;
    let settings = Settings {
        subtype: "passthrough".into(),
        features: Features {
            wanted: init::NO_OPEN_SUPPORT | init::NO_OPENDIR_SUPPORT,
            ..Features::default()
        },
        transport: match rest.is_empty() {
            true => Transport::Device,
            false => Transport::Uring,
        },
        write_cache: WriteCache::Through,
        ..Settings::default()
    };
    let (session, _) = Session::mount(to.as_ref(), &settings)?;
    session.run(Passthrough(Mutex::new(BTreeMap::from([(ROOT, (root, 1))]))))?;
    Ok(())
}

//! FUSE requests, as a worker answers them between read(2) and write(2) of `/dev/fuse`.
//!
//! **Invariants.** Requests are made before they are counted, where a worker would have read them;
//! an answer that is an error ends the program.

use anyhow::{Result, anyhow, ensure};
use dure_fuse::MountSettings;
use dure_fuse::protocol::reply::{Dirent, EntryOut, OutHeader};
use dure_fuse::protocol::request::{InHeader, MknodIn, ReadIn, Rename2In, WriteIn};
use dure_fuse::protocol::{ROOT, opcode, parse};
use dure_fuse::server::Server;
use dure_fuse::service::answer;
use dure_fuse::transport::buffer::{Reply, RequestBuffer};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::Call;
use crate::counted::{Operation, ROUND_CALLS};
use crate::scene::{DIRECTORY, FILE, FILE_BYTES, Scene};

const PAGE: u32 = 4096;
/// Size of the kernel's buffer for a listing.
const LISTING_BYTES: u32 = 128 << 10;

/// Which request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Lookup,
    Mknod,
    /// And the FORGET that follows, which deletes the inode.
    Unlink,
    Rename,
    Getattr,
    Readdirplus,
    Read,
    Write,
}

impl Kind {
    pub(crate) fn of(call: Call) -> Option<Kind> {
        Some(match call {
            Call::FuseLookup => Kind::Lookup,
            Call::FuseMknod => Kind::Mknod,
            Call::FuseUnlink => Kind::Unlink,
            Call::FuseRename => Kind::Rename,
            Call::FuseGetattr => Kind::Getattr,
            Call::FuseReaddirplus => Kind::Readdirplus,
            Call::FuseRead => Kind::Read,
            Call::FuseWrite => Kind::Write,
            _ => return None,
        })
    }
}

/// The bytes of one request.
struct Bytes {
    buffer: RequestBuffer,
    len: usize,
}

fn request(opcode: u32, node: u64, parts: &[&[u8]]) -> Bytes {
    let body = parts.concat();
    let len = size_of::<InHeader>() + body.len();
    let mut header = InHeader::new_zeroed();
    header.len = u32::try_from(len).expect("a request is short");
    header.opcode = opcode;
    header.unique = 2;
    header.node = node;
    let mut buffer = RequestBuffer::new();
    buffer.room()[..size_of::<InHeader>()].copy_from_slice(header.as_bytes());
    buffer.room()[size_of::<InHeader>()..len].copy_from_slice(&body);
    Bytes { buffer, len }
}

/// Requests of one kind.
pub(crate) struct Requests {
    kind: Kind,
    scene: Scene,
    server: Server,
    reply: Reply,
    directory: u64,
    file: u64,
    /// One for each call, and the FORGETs that follow.
    requests: Vec<Bytes>,
    forgets: Vec<Bytes>,
    units: usize,
}

impl Requests {
    pub(crate) fn new(kind: Kind, scene: Scene) -> Result<Requests> {
        let volume = scene.volume().file_system().clone();
        let mut made = Requests {
            kind,
            server: Server::new(volume, &MountSettings::default()),
            scene,
            reply: Reply::new(),
            directory: ROOT,
            file: ROOT,
            requests: Vec::new(),
            forgets: Vec::new(),
            units: 1,
        };
        made.file = made.lookup(ROOT, FILE.trim_start_matches('/'))?;
        made.directory = made.lookup(ROOT, DIRECTORY.trim_start_matches('/'))?;
        if kind == Kind::Readdirplus {
            made.units = made.listed()?;
        }
        Ok(made)
    }

    fn lookup(&mut self, node: u64, name: &str) -> Result<u64> {
        let asked = request(opcode::LOOKUP, node, &[name.as_bytes(), b"\0"]);
        let body = ask(&self.server, &mut self.reply, &asked)?;
        let (entry, _) = EntryOut::read_from_prefix(body).map_err(|_| anyhow!("no entry"))?;
        Ok(entry.node)
    }

    fn list(&self) -> Bytes {
        let mut record = ReadIn::new_zeroed();
        record.size = LISTING_BYTES;
        request(opcode::READDIRPLUS, self.directory, &[record.as_bytes()])
    }

    /// Entries of one listing.
    fn listed(&mut self) -> Result<usize> {
        let asked = self.list();
        let mut body = ask(&self.server, &mut self.reply, &asked)?;
        let mut count = 0;
        while let Some(rest) = body.get(size_of::<EntryOut>()..) {
            let (dirent, _) = Dirent::read_from_prefix(rest).map_err(|_| anyhow!("no name"))?;
            let name = usize::try_from(dirent.name_len)?.next_multiple_of(8);
            body = &rest[size_of::<Dirent>() + name..];
            count += 1;
        }
        Ok(count)
    }

    fn made(&self, index: usize) -> Bytes {
        let name = format!("new{index:06}\0");
        let offset = u64::try_from(index).expect("few") * u64::from(PAGE) % FILE_BYTES;
        let mut range = ReadIn::new_zeroed();
        (range.offset, range.size) = (offset, PAGE);
        match self.kind {
            Kind::Lookup => request(opcode::LOOKUP, self.directory, &[name.as_bytes()]),
            Kind::Mknod => self.mknod(index),
            Kind::Unlink => request(opcode::UNLINK, self.directory, &[name.as_bytes()]),
            Kind::Rename => {
                let mut record = Rename2In::new_zeroed();
                record.to = self.directory;
                let to = format!("other{index:06}\0");
                let parts = [record.as_bytes(), name.as_bytes(), to.as_bytes()];
                request(opcode::RENAME2, self.directory, &parts)
            }
            Kind::Getattr => request(opcode::GETATTR, self.file, &[&[0; 16]]),
            Kind::Readdirplus => self.list(),
            Kind::Read => request(opcode::READ, self.file, &[range.as_bytes()]),
            Kind::Write => {
                let mut record = WriteIn::new_zeroed();
                (record.offset, record.size) = (offset, PAGE);
                let page = [9; PAGE as usize];
                request(opcode::WRITE, self.file, &[record.as_bytes(), &page])
            }
        }
    }

    fn mknod(&self, index: usize) -> Bytes {
        let mut record = MknodIn::new_zeroed();
        record.mode = libc::S_IFREG | 0o644;
        let name = format!("new{index:06}\0");
        let parts = [record.as_bytes(), name.as_bytes()];
        request(opcode::MKNOD, self.directory, &parts)
    }
}

/// What follows the header of the answer; nothing if there is none.
fn ask<'r>(server: &Server, reply: &'r mut Reply, asked: &Bytes) -> Result<&'r [u8]> {
    let knows = |_| false;
    let bytes = asked.buffer.filled(asked.len);
    let Some(answered) = answer(server, &knows, parse(bytes), reply) else {
        return Ok(&[]);
    };
    let (header, body) = OutHeader::read_from_prefix(answered).map_err(|_| anyhow!("no header"))?;
    ensure!(header.error == 0, "a request was answered {}", header.error);
    Ok(body)
}

impl Operation for Requests {
    fn prepare(&mut self, count: usize) -> Result<()> {
        self.requests.clear();
        self.forgets.clear();
        for index in 0..count {
            if matches!(self.kind, Kind::Lookup | Kind::Unlink | Kind::Rename) {
                let asked = self.mknod(index);
                let body = ask(&self.server, &mut self.reply, &asked)?;
                let (entry, _) =
                    EntryOut::read_from_prefix(body).map_err(|_| anyhow!("no entry"))?;
                let once = 1_u64;
                let forget = request(opcode::FORGET, entry.node, &[once.as_bytes()]);
                self.forgets.push(forget);
            }
            let made = self.made(index);
            self.requests.push(made);
        }
        Ok(())
    }

    fn call(&mut self, index: usize) -> Result<()> {
        ask(&self.server, &mut self.reply, &self.requests[index])?;
        if self.kind == Kind::Unlink {
            ask(&self.server, &mut self.reply, &self.forgets[index])?;
        }
        Ok(())
    }

    fn undo(&mut self, count: usize) -> Result<()> {
        let prefix = match self.kind {
            Kind::Lookup | Kind::Mknod => "new",
            Kind::Rename => "other",
            _ => return Ok(()),
        };
        for index in 0..count {
            let path = format!("{DIRECTORY}/{prefix}{index:06}");
            self.scene.session().remove_file(path)?;
        }
        Ok(())
    }

    fn scene(&self) -> &Scene {
        &self.scene
    }

    fn changes(&self) -> bool {
        use Kind::{Mknod, Rename, Unlink, Write};
        matches!(self.kind, Mknod | Unlink | Rename | Write)
    }

    fn round(&self) -> usize {
        match self.kind {
            Kind::Readdirplus => 10,
            _ => ROUND_CALLS,
        }
    }

    fn units(&self) -> usize {
        self.units
    }
}

//! The asking side: `dure top` and `dure info --journal`.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dure_fuse::MountError;
use dure_fuse::mount::says_server_gone;
use dure_sync::clock;
use rustix::process::geteuid;

use super::wire::{Reply, Request, Snapshot};
use crate::mounts;

/// Bytes of a reply at most: the numbers of 1000 journals take some.
const REPLY_BYTES_MAX: usize = 64 << 20;
/// How long a reply may take if the request itself waits for nothing.
const ANSWER: Duration = Duration::from_secs(10);

/// A connection to the server of a mounted volume.
#[derive(Debug)]
pub(crate) struct Client {
    volume: PathBuf,
    stream: BufReader<UnixStream>,
    /// The received part of a line.
    line: Vec<u8>,
}

/// How waiting for the server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    /// It is done.
    Done,
    /// Not done in time.
    Late,
    /// The server has closed the connection without an answer.
    Gone,
}

/// What was received in time.
enum Line {
    Whole(Vec<u8>),
    /// The server has closed the connection.
    End,
    /// Nothing complete in time.
    Late,
}

impl Client {
    /// Connects to the server of `volume`; `None` if no server listens: it is not mounted here.
    ///
    /// # Errors
    /// When there is no such file, or the server is not to be trusted.
    pub(crate) fn connect(volume: &Path) -> Result<Option<Client>> {
        let at = || volume.display().to_string();
        let address = super::address(volume).with_context(at)?;
        let stream = match UnixStream::connect_addr(&address) {
            Ok(stream) => stream,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(None),
            Err(error) => return Err(error).with_context(at),
        };
        let peer = rustix::net::sockopt::socket_peercred(&stream).with_context(at)?;
        if !super::trusts(geteuid(), peer.uid) && !serves(volume, peer.uid.as_raw()) {
            bail!(
                "{}: a process of user {} answers, and that user is not known to have mounted the volume; \
                 ask as the user who mounted it, or as root",
                volume.display(),
                peer.uid.as_raw()
            );
        }
        Ok(Some(Client {
            volume: volume.to_owned(),
            stream: BufReader::new(stream),
            line: Vec::new(),
        }))
    }

    /// The volume that is at `path`, or mounted there, and a connection to its server, if it has one.
    ///
    /// # Errors
    /// `ServerGone` of a mount whose server has ended; those of [`Client::connect`].
    pub(crate) fn of(path: &Path) -> Result<(PathBuf, Option<Client>)> {
        let mount = mounts::on(path);
        let volume = mount.as_ref().map_or(path, |mount| &mount.source);
        let client = Client::connect(volume)?;
        // A request to a server that lives, but does not listen, is answered.
        if client.is_none()
            && mount.is_some()
            && let Err(error) = std::fs::metadata(path)
            && error.raw_os_error().is_some_and(says_server_gone)
        {
            let path = path.to_owned();
            return Err(MountError::ServerGone { path }.into());
        }
        Ok((volume.to_owned(), client))
    }

    /// Connects to the server of a volume, given the volume or where it is mounted.
    ///
    /// # Errors
    /// When it is neither, or not mounted.
    pub(crate) fn find(path: &Path) -> Result<Client> {
        match Client::of(path)?.1 {
            Some(client) => Ok(client),
            None => bail!(
                "{}: not mounted (give a mounted volume or its mount point; `dure info --journal` shows one \
                 that is not mounted)",
                path.display()
            ),
        }
    }

    /// The volume.
    pub(crate) fn volume(&self) -> &Path {
        &self.volume
    }

    /// Asks once. `None` when the server has closed the connection: the volume was unmounted.
    ///
    /// # Errors
    /// When it refuses, does not answer, or answers what is not understood.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Option<Reply>> {
        self.ask_patiently(request, ANSWER)
    }

    /// Like [`Client::ask`], if the answer may take longer.
    ///
    /// # Errors
    /// Those of [`Client::ask`].
    pub(crate) fn ask_patiently(
        &mut self,
        request: &Request,
        at_most: Duration,
    ) -> Result<Option<Reply>> {
        self.send(request)?;
        self.next(at_most)
    }

    /// The next reply to a request that has several.
    ///
    /// # Errors
    /// Those of [`Client::ask`].
    pub(crate) fn next(&mut self, at_most: Duration) -> Result<Option<Reply>> {
        match self.receive(at_most)? {
            Line::Late => bail!("{}: its server does not answer", self.volume.display()),
            Line::Whole(line) => self.understood(&line).map(Some),
            Line::End => Ok(None),
        }
    }

    /// What comes behind the last reply, of which any part may take so long.
    ///
    /// # Errors
    /// Those of the connection.
    pub(crate) fn into_bytes(self, at_most: Duration) -> Result<BufReader<UnixStream>> {
        let stream = self.stream.get_ref();
        let set = stream.set_read_timeout(Some(at_most));
        set.with_context(|| self.volume.display().to_string())?;
        Ok(self.stream)
    }

    /// Sends a request; [`Client::wait`] tells when it is done.
    ///
    /// # Errors
    /// Those of the connection.
    pub(crate) fn send(&self, request: &Request) -> Result<()> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        match self.stream.get_ref().write_all(&line) {
            Err(error) if !is_gone(&error) => {
                Err(error).with_context(|| self.volume.display().to_string())
            }
            _ => Ok(()),
        }
    }

    /// Waits until what was asked for is done.
    ///
    /// # Errors
    /// When it failed.
    pub(crate) fn wait(&mut self, at_most: Duration) -> Result<Waited> {
        let line = match self.receive(at_most)? {
            Line::Late => return Ok(Waited::Late),
            Line::End => return Ok(Waited::Gone),
            Line::Whole(line) => line,
        };
        match self.understood(&line)? {
            Reply::Done { error: None } => Ok(Waited::Done),
            Reply::Done { error: Some(why) } => bail!("{}: {why}", self.volume.display()),
            other => bail!("{}: answered {other:?}", self.volume.display()),
        }
    }

    /// A line of the server, which may send anything, at any pace.
    fn receive(&mut self, at_most: Duration) -> Result<Line> {
        let at = || self.volume.display().to_string();
        let start = clock::monotonic_ns();
        loop {
            let passed = Duration::from_nanos(clock::monotonic_ns() - start);
            let left = at_most.saturating_sub(passed);
            if left.is_zero() {
                return Ok(Line::Late);
            }
            let stream = self.stream.get_ref();
            stream.set_read_timeout(Some(left)).with_context(at)?;
            let got = match self.stream.fill_buf() {
                Ok(got) => got,
                Err(error) if is_gone(&error) => return Ok(Line::End),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    continue;
                }
                Err(error) => return Err(error).with_context(at),
            };
            if got.is_empty() {
                return Ok(Line::End);
            }
            let end = got.iter().position(|byte| *byte == b'\n');
            let count = end.map_or(got.len(), |end| end + 1);
            self.line.extend_from_slice(&got[..count]);
            self.stream.consume(count);
            if end.is_some() {
                return Ok(Line::Whole(std::mem::take(&mut self.line)));
            }
            if self.line.len() > REPLY_BYTES_MAX {
                bail!("{}: its server answers without end", at());
            }
        }
    }

    fn understood(&self, line: &[u8]) -> Result<Reply> {
        let reply = serde_json::from_slice(line).with_context(|| {
            format!(
                "{}: its server is of another version",
                self.volume.display()
            )
        })?;
        match reply {
            Reply::Refused => bail!(
                "{}: mounted by another user, or asked by too many at once",
                self.volume.display()
            ),
            Reply::Unknown { why } => bail!("{}: its server says: {why}", self.volume.display()),
            reply => Ok(reply),
        }
    }

    /// What the volume is doing.
    ///
    /// # Errors
    /// Those of [`Client::ask`].
    pub(crate) fn snapshot(&mut self) -> Result<Option<Snapshot>> {
        match self.ask(&Request::Snapshot)? {
            None => Ok(None),
            Some(Reply::Snapshot(snapshot)) => Ok(Some(*snapshot)),
            Some(other) => bail!("{}: answered {other:?}", self.volume.display()),
        }
    }
}

/// Whether, according to the kernel's list of mounts, this user serves a mount of the volume. Only
/// root asks: for other callers the answer is no.
fn serves(volume: &Path, user: u32) -> bool {
    let volume = volume.canonicalize().unwrap_or_else(|_| volume.to_owned());
    let mounts = mounts::all();
    let mut ours = mounts
        .iter()
        .filter(|mount| mount.is_dure() && mount.source == volume);
    geteuid().is_root() && ours.any(|mount| mount.user() == Some(user))
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
    )
}

//! The asking side: `dure top` and `dure info --journal`.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::process::geteuid;

use super::wire::{Reply, Request, Snapshot};
use crate::mounts;

/// A connection to the server of a mounted volume.
#[derive(Debug)]
pub(crate) struct Client {
    volume: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the server of `volume`; `None` when nobody listens: it is not mounted here.
    ///
    /// # Errors
    /// When there is no such file, or the server is not to be trusted.
    pub(crate) fn connect(volume: &Path) -> Result<Option<Client>> {
        let address = super::address(volume).with_context(|| volume.display().to_string())?;
        let stream = match UnixStream::connect_addr(&address) {
            Ok(stream) => stream,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(None),
            Err(error) => return Err(error).with_context(|| volume.display().to_string()),
        };
        if !geteuid().is_root() && !super::is_trusted(&stream)? {
            bail!(
                "{}: mounted by another user; ask as that user or as root",
                volume.display()
            );
        }
        Ok(Some(Client {
            volume: volume.to_owned(),
            stream: BufReader::new(stream),
        }))
    }

    /// Connects to the server of a volume, given the volume or where it is mounted.
    ///
    /// # Errors
    /// When it is neither, or not mounted.
    pub(crate) fn find(path: &Path) -> Result<Client> {
        let volume = mounts::source_of(path);
        let volume = volume.as_deref().unwrap_or(path);
        match Client::connect(volume)? {
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

    /// Asks once. `None` when the server has gone: the volume was unmounted.
    ///
    /// # Errors
    /// When it refuses, or answers what is not understood.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Option<Reply>> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        let gone = |kind| matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset);
        if let Err(error) = self.stream.get_ref().write_all(&line)
            && !gone(error.kind())
        {
            return Err(error).with_context(|| self.volume.display().to_string());
        }
        let mut line = Vec::new();
        match self.stream.read_until(b'\n', &mut line) {
            Ok(0) => return Ok(None),
            Err(error) if gone(error.kind()) => return Ok(None),
            read => read.with_context(|| self.volume.display().to_string())?,
        };
        let reply = serde_json::from_slice(&line).with_context(|| {
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
            reply => Ok(Some(reply)),
        }
    }

    /// What the volume is doing.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub(crate) fn snapshot(&mut self) -> Result<Option<Snapshot>> {
        match self.ask(&Request::Snapshot)? {
            None => Ok(None),
            Some(Reply::Snapshot(snapshot)) => Ok(Some(*snapshot)),
            Some(other) => bail!("{}: answered {other:?}", self.volume.display()),
        }
    }
}

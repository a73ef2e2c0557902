//! Where the lines of a log go.
//!
//! **Structure.** The system's log is the datagram socket that syslogd and journald listen to: a
//! line is a message with a priority, and the socket is opened again when its server was restarted.
//! **Invariants.** A message that the socket does not take at once is dropped: a server never waits
//! for its log daemon, which may wait for a file on this very mount. **Crash.** See the module.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use super::{Level, Line};

/// Where syslogd or journald listens.
const SYSTEM_LOG: &str = "/dev/log";
/// Daemons that have no facility of their own.
const FACILITY: u8 = 3;

/// Where lines go.
#[derive(Debug)]
pub(crate) enum Sink {
    /// Standard error.
    Terminal,
    /// A file, at its end.
    File(File),
    /// syslogd or journald.
    System {
        /// Where it listens.
        path: PathBuf,
        /// The connection, if there is one.
        socket: Option<UnixDatagram>,
    },
}

impl Sink {
    /// The log of the system.
    pub(crate) fn system() -> Sink {
        Sink::socket(Path::new(SYSTEM_LOG))
    }

    pub(super) fn socket(path: &Path) -> Sink {
        let path = path.to_owned();
        Sink::System { path, socket: None }
    }

    /// The end of the file at `path`, which is made if it is not there.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn file(path: &Path) -> io::Result<Sink> {
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(0o640).open(path)?;
        Ok(Sink::File(file))
    }

    /// Writes a line. What fails is lost: there is no place to report it.
    pub(super) fn write(&mut self, volume: &str, line: &Line) {
        match self {
            Sink::Terminal => dure_bench::note!("dure: {volume}: {}", line.text),
            Sink::File(file) => {
                // One write, so that the lines of two servers do not mix.
                let pid = std::process::id();
                let level = line.level.name();
                let date = super::date(line.secs);
                let text = format!("{date} dure[{pid}] {level}: {volume}: {}\n", line.text);
                let _ = file.write_all(text.as_bytes());
            }
            Sink::System { path, socket } => {
                let pid = std::process::id();
                let priority = FACILITY << 3 | severity(line.level);
                let text = format!("<{priority}>dure[{pid}]: {volume}: {}", line.text);
                let sent = socket.as_ref().map(|socket| socket.send(text.as_bytes()));
                if !matches!(sent, Some(Ok(_))) {
                    *socket = connect(path).ok();
                    if let Some(socket) = socket {
                        let _ = socket.send(text.as_bytes());
                    }
                }
            }
        }
    }
}

fn connect(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// As syslog(3) numbers them.
fn severity(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warning => 4,
        Level::Info => 6,
        Level::Debug => 7,
    }
}

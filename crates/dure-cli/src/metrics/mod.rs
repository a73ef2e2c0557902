//! `dure mount --metrics`: what `dure top` shows, for Prometheus.
//!
//! **Structure.** A [`Place`] is a Unix socket that answers HTTP, or a file that is written again
//! every few seconds (for the textfile collector of the node exporter); [`text`] is what stands
//! there. One thread serves it. **Invariants.** The file's mode and directory decide which users
//! may read. A request is read up to its first empty line, bounded in bytes and time, and never
//! obeyed. A file is replaced whole. **Crash.** A file or socket stays behind; the next mount
//! replaces it.

mod text;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{Arc, Condvar, Mutex, thread};

use crate::live::server::Observed;

/// How often the file is written.
const EVERY: Duration = Duration::from_secs(10);
/// A client has so long to ask, and to read the answer.
const PATIENCE: Duration = Duration::from_secs(2);
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Rank of the lock that the writer of the file sleeps with; no other is taken meanwhile.
const ENDING: u8 = 12;

/// Where the metrics are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// A socket.
    Socket(PathBuf),
    /// A file.
    File(PathBuf),
}

impl Place {
    /// `unix:PATH`, or the path of a file; absolute, as a server leaves its directory.
    pub(crate) fn parse(text: &str) -> Result<Place> {
        let whole = |path: &str| {
            if path.is_empty() {
                bail!("metrics={text}: unix:PATH, or a file");
            }
            Ok(std::path::absolute(path)?)
        };
        match text.strip_prefix("unix:") {
            Some(path) => whole(path).map(Place::Socket),
            None => whole(text).map(Place::File),
        }
    }
}

/// Serves until it is dropped.
#[derive(Debug)]
pub(crate) struct Metrics {
    place: Place,
    ending: Arc<Ending>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Debug)]
struct Ending {
    is_ending: AtomicBool,
    lock: Mutex<ENDING, ()>,
    changed: Condvar,
}

impl Ending {
    /// Sleeps until the file is due; true if it is not needed any more.
    fn sleep(&self) -> bool {
        let guard = self.lock.lock();
        // Acquire: pairs with the Release in `drop`.
        if !self.is_ending.load(Ordering::Acquire) {
            drop(self.changed.wait_timeout(guard, EVERY));
        }
        self.is_ending.load(Ordering::Acquire)
    }
}

impl Metrics {
    /// Begins to serve what `observed` shows.
    ///
    /// # Errors
    /// When the socket cannot be made, or the file cannot be written.
    pub(crate) fn start(place: Place, observed: Observed) -> Result<Metrics> {
        let ending = Arc::new(Ending {
            is_ending: AtomicBool::new(false),
            lock: Mutex::new(()),
            changed: Condvar::new(),
        });
        let own = Arc::clone(&ending);
        let thread = match &place {
            Place::Socket(path) => {
                let listener = listen(path).with_context(|| path.display().to_string())?;
                thread::spawn("dure-metrics", move || {
                    answer_all(&listener, &observed, &own)
                })
            }
            Place::File(path) => {
                write(path, &observed).with_context(|| path.display().to_string())?;
                let path = path.clone();
                thread::spawn("dure-metrics", move || write_all(&path, &observed, &own))
            }
        };
        Ok(Metrics {
            place,
            ending,
            thread: Some(thread),
        })
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        let guard = self.ending.lock.lock();
        // Release: pairs with the Acquires of the thread.
        self.ending.is_ending.store(true, Ordering::Release);
        drop(guard);
        self.ending.changed.notify_all();
        let (Place::Socket(path) | Place::File(path)) = &self.place;
        let woken = match &self.place {
            Place::Socket(path) => UnixStream::connect(path).is_ok(),
            Place::File(_) => true,
        };
        if let (true, Some(thread)) = (woken, self.thread.take()) {
            let _ = thread.join();
        }
        // A file that stays would be read as the numbers of a mount.
        let _ = fs::remove_file(path);
    }
}

/// Makes the socket, in place of one that no process listens on.
fn listen(path: &Path) -> Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            if UnixStream::connect(path).is_ok() {
                bail!("somebody listens there already");
            }
            fs::remove_file(path)?;
            Ok(UnixListener::bind(path)?)
        }
        bound => Ok(bound?),
    }
}

fn answer_all(listener: &UnixListener, observed: &Observed, ending: &Ending) {
    for stream in listener.incoming() {
        // Acquire: pairs with the Release in `drop`.
        if ending.is_ending.load(Ordering::Acquire) {
            return;
        }
        match stream {
            // A client that goes away in the middle is no error.
            Ok(stream) => drop(answer(stream, observed)),
            // Out of descriptors or memory: a passing state, so wait instead of spinning.
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn answer(mut stream: UnixStream, observed: &Observed) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (mut asked, mut bytes) = (Vec::new(), [0; 512]);
    while !asked.windows(4).any(|end| end == b"\r\n\r\n") && asked.len() < REQUEST_BYTES_MAX {
        match stream.read(&mut bytes)? {
            0 => break,
            count => asked.extend_from_slice(&bytes[..count]),
        }
    }
    let body = text::of(&observed.snapshot());
    let head = format!(
        "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

fn write_all(path: &Path, observed: &Observed, ending: &Ending) {
    while !ending.sleep() {
        // A full disk passes; the old file stays.
        let _ = write(path, observed);
    }
}

/// Replaces the file.
fn write(path: &Path, observed: &Observed) -> std::io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    fs::write(&name, text::of(&observed.snapshot()))?;
    fs::rename(&name, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_sockets_or_files() {
        let socket = Place::parse("unix:/run/d").unwrap();
        assert_eq!(socket, Place::Socket("/run/d".into()));
        let file = Place::parse("/var/d.prom").unwrap();
        assert_eq!(file, Place::File("/var/d.prom".into()));
        assert!(Place::parse("unix:").is_err());
    }
}

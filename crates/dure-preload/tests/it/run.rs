//! What `dure run` does.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use dure::run::{Calls, Order, Word};
use dure::{CreateOptions, MountOptions, Volume};
use rustix::io::FdFlags;

/// Names the part in the environment.
pub(crate) const PART: &str = "DURE_TEST_PART";

/// Has this program do a part.
const ARGUMENTS: [&str; 4] = ["--exact", "part", "--nocapture", "--test-threads=1"];

/// The library that cargo has made with this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.with_file_name("libdure_preload.so");
    assert!(library.is_file(), "cargo makes {}", library.display());
    library
}

/// A volume, and a directory for it.
pub(crate) struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Option<Place> {
        let fuse = std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse");
        if fuse.is_err() || !rustix::process::geteuid().is_root() {
            eprintln!("skipped: mounting needs root and /dev/fuse");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("m")).unwrap();
        let place = Place { folder };
        let options = CreateOptions {
            image_bytes: Some(64 << 20),
            ..CreateOptions::default()
        };
        Volume::create(place.image(), &options)
            .unwrap()
            .close()
            .unwrap();
        Some(place)
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.folder.path().join("v.img")
    }

    fn order(&self, socket: RawFd) -> Order {
        Order {
            volume: self.image(),
            at: self.mount(),
            begins_inside: true,
            options: String::new(),
            socket,
            before: None,
        }
    }

    /// Whether a program that does `goes_on` has begun; the next one may.
    pub(crate) fn has_gone_on(&self) -> bool {
        std::fs::remove_file(self.folder.path().join("there")).is_ok()
    }

    fn mount(&self) -> PathBuf {
        self.folder.path().join("m")
    }

    /// A file of the volume when nobody has that open.
    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        let volume = open(&self.image());
        let bytes = volume.root().read(name).unwrap();
        volume.close().unwrap();
        bytes
    }
}

impl Drop for Place {
    /// As `dure run` does where the server has ended without.
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.mount(), rustix::mount::UnmountFlags::DETACH);
    }
}

/// A part that runs.
pub(crate) struct Running {
    pub(crate) child: Child,
    words: BufReader<UnixStream>,
}

/// How it has ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) word: Word,
    /// Programs that it was before.
    pub(crate) given_away: u32,
    pub(crate) printed: String,
}

/// Starts this program, to do a part in the volume.
pub(crate) fn start(place: &Place, part: &str) -> Running {
    let (mine, theirs) = UnixStream::pair().unwrap();
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty()).unwrap();
    let order = place.order(theirs.as_raw_fd());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(ARGUMENTS);
    command.envs(order.variables()).env(PART, part);
    command.env("LD_PRELOAD", library());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    drop(theirs);
    let mut running = Running {
        child,
        words: BufReader::new(mine),
    };
    assert_eq!(running.word(), Some(Word::Ready));
    running
}

/// Runs this program as one that has replaced another, with a server in place of that one's which gives this
/// answer, or none; how it has ended, and the last word. It does its part in the folder of `place`.
pub(crate) fn replace(place: &Place, process: &str, answer: &[u8]) -> (ExitStatus, Option<Word>) {
    let (mine, theirs) = UnixStream::pair().unwrap();
    let (mut server, asks) = UnixStream::pair().unwrap();
    for passed_on in [&theirs, &asks] {
        rustix::io::fcntl_setfd(passed_on, FdFlags::empty()).unwrap();
    }
    let order = place.order(theirs.as_raw_fd());
    // The shell becomes the program, with its number.
    let line = format!(
        "LD_PRELOAD={} DURE_RUN_BEFORE=\"{} {process}\" exec \"$0\" \"$@\"",
        library().display(),
        asks.as_raw_fd()
    );
    let mut command = Command::new("sh");
    command
        .args(["-c", &line])
        .arg(std::env::current_exe().unwrap());
    command
        .args(ARGUMENTS)
        .envs(order.variables())
        .env(PART, "goes on");
    command.current_dir(place.folder.path());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    drop((theirs, asks));
    let mut running = Running {
        child,
        words: BufReader::new(mine),
    };
    if server.read(&mut [0]).unwrap() == 1 {
        server.write_all(answer).unwrap();
    }
    drop(server);
    let status = running.child.wait().unwrap();
    (status, std::iter::from_fn(|| running.word()).last())
}

impl Running {
    fn word(&mut self) -> Option<Word> {
        let mut line = String::new();
        self.words.read_line(&mut line).unwrap();
        Word::of(&line)
    }

    /// Waits for a line of the part.
    pub(crate) fn wait_for(&mut self, line: &str) {
        let output = self.child.stderr.as_mut().unwrap();
        let mut read = Vec::new();
        while !String::from_utf8_lossy(&read).contains(line) {
            let mut byte = [0];
            assert_eq!(output.read(&mut byte).unwrap(), 1, "{line} was not printed");
            read.push(byte[0]);
        }
    }

    pub(crate) fn end(mut self) -> Ended {
        let mut printed = String::new();
        let mut output = self.child.stdout.take().unwrap();
        let mut errors = self.child.stderr.take().unwrap();
        let status = self.child.wait().unwrap();
        let mut given_away = 0;
        let word = loop {
            match self.word() {
                Some(Word::InUse | Word::Ready) => {}
                Some(Word::GivenAway(_)) => given_away += 1,
                word => break word.expect("the server says how it has ended"),
            }
        };
        output.read_to_string(&mut printed).unwrap();
        errors.read_to_string(&mut printed).unwrap();
        Ended {
            status,
            word,
            given_away,
            printed,
        }
    }
}

/// Runs a part that is to succeed, with at least so many calls in the program.
pub(crate) fn run(part: &str, least: u64) {
    let Some(place) = Place::new() else { return };
    let ended = start(&place, part).end();
    assert!(
        ended.status.success(),
        "{}: {}",
        ended.status,
        ended.printed
    );
    let Word::Ended(Calls { short, .. }) = ended.word else {
        panic!("{:?}", ended.word);
    };
    assert!(
        short >= least,
        "{short} calls were done in the program, not {least}"
    );
    dure_is_clean(&place.image());
}

/// Opens a volume whose server has said that it has closed it, and ends.
fn open(image: &Path) -> Volume {
    for _ in 0..1000 {
        match Volume::open(image, MountOptions::default()) {
            Ok(volume) => return volume,
            Err(error) if error.errno() == rustix::io::Errno::BUSY.raw_os_error() => {}
            Err(error) => panic!("{error}"),
        }
        dure_sync::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("{} stays in use", image.display());
}

/// The volume was closed.
pub(crate) fn dure_is_clean(image: &Path) {
    let volume = open(image);
    assert!(volume.file_system().recovered().is_none());
    volume.close().unwrap();
}

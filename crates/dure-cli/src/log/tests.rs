//! Lines, where they go, and what makes them.

use std::os::unix::net::UnixDatagram;

use dure_block::fault::{Fault, FaultDevice, Rule, When};
use dure_block::ram::RamDevice;
use dure_block::{Op, OsError, share};
use dure_fs::{Background, FileSystem, FormatOptions, MountOptions, NewInode, Stamp};
use dure_sync::{Arc, thread};

use super::watch::Watch;
use super::*;

fn line(level: Level, text: &str) -> Line {
    let text = text.to_owned();
    Line {
        secs: 0,
        level,
        text,
    }
}

#[test]
fn dates_are_those_of_the_calendar() {
    for (secs, want) in [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_399, "2000-02-28T23:59:59Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (4_107_542_400, "2100-03-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59Z"),
    ] {
        assert_eq!(date(secs), want);
    }
}

#[test]
fn a_line_stays_one_line() {
    assert_eq!(printable("a\nb\x1b[2J\u{e9}"), "a\\nb\\u{1b}[2J\u{e9}");
}

#[test]
fn a_flood_of_errors_is_counted() {
    let mut state = State {
        sink: Sink::Terminal,
        last: VecDeque::new(),
        period: 0,
        errors: 0,
    };
    let written = (0..BURST + 5).filter(|_| state.admit(7).is_some()).count();
    assert_eq!(written, usize::try_from(BURST).unwrap());
    assert_eq!(state.admit(8), Some(5));
    assert_eq!(state.admit(8), Some(0));
}

/// Also after its server was restarted, and while there is none.
#[test]
fn the_system_log_is_sent_datagrams() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut sink = Sink::socket(&path);
    sink.write("v", &line(Level::Info, "nobody listens"));
    for text in ["first", "second"] {
        let daemon = UnixDatagram::bind(&path).unwrap();
        sink.write("v", &line(Level::Error, text));
        let mut bytes = [0; 100];
        daemon.set_nonblocking(true).unwrap();
        let len = daemon.recv(&mut bytes).unwrap();
        let want = format!("<27>dure[{}]: v: {text}", std::process::id());
        assert_eq!(String::from_utf8_lossy(&bytes[..len]), want);
        std::fs::remove_file(&path).unwrap();
    }
}

/// A volume whose device fails.
fn failing() -> (FileSystem, Arc<FaultDevice>) {
    let ram = Arc::new(RamDevice::new("log", 4096));
    let device = share(Arc::clone(&ram));
    FileSystem::format(Arc::clone(&device), &FormatOptions::default()).unwrap();
    let device = Arc::new(FaultDevice::new(device));
    let options = MountOptions {
        background: Background::None,
        ..MountOptions::default()
    };
    let fs = FileSystem::open(share(Arc::clone(&device)), options).unwrap();
    (fs, device)
}

/// One test, since a process has one log: a stop, a thread that dies, and an error of a request.
#[test]
fn what_goes_wrong_is_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dure.log");
    begin(Sink::file(&path).unwrap(), Level::Info, "v.img".into());
    watch::failures();
    write(Level::Debug, "not of interest");
    let (fs, device) = failing();
    let watch = Watch::begin(&dure_fuse::MountedVolume::new(
        fs.clone(),
        &dure_fuse::MountSettings::default(),
    ));
    let root = fs.root().unwrap();
    let new = NewInode {
        mode: 0o100_600,
        ..NewInode::default()
    };
    let file = fs.create(&root, b"f", &new).unwrap();
    fs.write(&file, 0, b"content", Stamp::Set).unwrap();
    let fault = Fault::Error(OsError::EIO);
    device.add(Rule::new(When::From(1), fault).on(Op::Write));
    assert!(fs.sync().is_err());
    drop(watch);
    let died = thread::spawn("unlucky", || panic!("by intent")).join();
    assert!(died.is_err());
    request_error(&"block 7 is rotten");
    let text = std::fs::read_to_string(&path).unwrap();
    for want in [
        "error: v.img: stopped: ",
        "error: v.img: thread unlucky died: ",
        "by intent",
        "error: v.img: block 7 is rotten\n",
    ] {
        assert!(text.contains(want), "{want}:\n{text}");
    }
    assert!(!text.contains("not of interest"), "{text}");
    assert_eq!(last(1)[0].text, "block 7 is rotten");
    assert_eq!(text.lines().count(), last(100).len());
}

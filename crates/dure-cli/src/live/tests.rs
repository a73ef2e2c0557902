use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use dure_block::ram::RamDevice;
use dure_block::share;
use dure_fs::{Background, FileSystem, FormatOptions, MountOptions, NewInode};
use dure_fuse::{MountSettings, MountedVolume};
use dure_sync::Arc;
use rustix::process::Uid;

use super::client::Client;
use super::server::{Observed, Server};
use super::snapshots::SnapshotMounts;
use super::wire::{JournalCounts, Mounted, Reply, Request};
use super::{address, trusts};

fn file_system(read_only: bool) -> FileSystem {
    let device = share(Arc::new(RamDevice::new("volume", 8192)));
    FileSystem::format(Arc::clone(&device), &FormatOptions::default()).unwrap();
    let options = MountOptions {
        read_only,
        background: Background::None,
        ..MountOptions::default()
    };
    FileSystem::open(device, options).unwrap()
}

/// A server for a file system; the file stands for the volume.
fn served(volume: &Path, read_only: bool) -> (FileSystem, Server) {
    let file_system = file_system(read_only);
    let mounted = Mounted {
        volume: volume.display().to_string(),
        label: String::new(),
        format_version: 3,
        directory: "/m".into(),
        uuid: "u".into(),
        options: "default options".into(),
        read_only,
        transport: "device".into(),
        no_rings: None,
        write_cache: "writethrough".into(),
        writes_through: None,
        half_done: None,
    };
    let observed = Observed::new(mounted_volume(&file_system), mounted, None, no_snapshots());
    let server = Server::start(&address(volume).unwrap(), observed).unwrap();
    (file_system, server)
}

fn mounted_volume(file_system: &FileSystem) -> MountedVolume {
    MountedVolume::new(file_system.clone(), &MountSettings::default())
}

fn create(file_system: &FileSystem, name: &str) {
    let root = file_system.root().unwrap();
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    file_system.create(&root, name.as_bytes(), &new).unwrap();
}

fn sum(journals: &[JournalCounts]) -> JournalCounts {
    let mut sum = JournalCounts::default();
    journals.iter().for_each(|journal| sum.add(journal));
    sum
}

#[test]
fn a_client_sees_the_numbers_of_the_server_and_its_end() {
    let volume = tempfile::NamedTempFile::new().unwrap();
    let (file_system, server) = served(volume.path(), false);
    let mut client = Client::connect(volume.path()).unwrap().unwrap();
    let before = client.snapshot().unwrap().unwrap();
    create(&file_system, "a");
    create(&file_system, "b");
    file_system.sync().unwrap();
    let after = client.snapshot().unwrap().unwrap();
    let (before, after) = (sum(&before.journals), sum(&after.journals));
    let change = after.since(&before);
    assert_eq!(change.handles_joined, 2);
    assert_eq!(change.operations["create"].handles, 2);
    assert_eq!(
        (change.commits, change.transactions.valid),
        (1, change.writes)
    );
    assert_eq!(change.times.running.count, change.writes);
    assert_eq!(
        change.times.running.buckets.iter().sum::<u64>(),
        change.writes
    );
    drop(server);
    assert!(Client::connect(volume.path()).unwrap().is_none());
    assert!(client.snapshot().unwrap().is_none(), "it has gone");
}

#[test]
fn the_trace_is_on_while_somebody_reads_it() {
    let volume = tempfile::NamedTempFile::new().unwrap();
    let (file_system, _server) = served(volume.path(), false);
    let trace = file_system.trace().unwrap();
    let mut client = Client::connect(volume.path()).unwrap().unwrap();
    let ask = Request::Trace { from: vec![] };
    let off = client.ask(&ask).unwrap().unwrap();
    assert!(matches!(off, Reply::Tracing { is_on: false }), "{off:?}");
    let start = Request::StartTrace {
        events_per_core: 100,
    };
    client.ask(&start).unwrap().unwrap();
    assert!(trace.is_on());
    create(&file_system, "a");
    let Some(Reply::Trace {
        events,
        next,
        lost: 0,
    }) = client.ask(&ask).unwrap()
    else {
        panic!("no events");
    };
    let names: Vec<_> = events.iter().map(|event| event.event.as_str()).collect();
    assert_eq!(names, ["begin", "join"]);
    assert_eq!(events[1].details["operation"], "create");
    let ask = Request::Trace { from: next };
    let Some(Reply::Trace { events, .. }) = client.ask(&ask).unwrap() else {
        panic!("no reply");
    };
    assert!(events.is_empty(), "{events:?}");
    drop(client);
    for _ in 0..5000 {
        if !trace.is_on() {
            return;
        }
        dure_sync::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("the trace outlives who asked for it");
}

#[test]
fn a_read_only_mount_has_no_journals_and_no_trace() {
    let volume = tempfile::NamedTempFile::new().unwrap();
    let (_, _server) = served(volume.path(), true);
    let mut client = Client::connect(volume.path()).unwrap().unwrap();
    assert!(client.snapshot().unwrap().unwrap().journals.is_empty());
    let start = Request::StartTrace {
        events_per_core: 100,
    };
    let reply = client.ask(&start).unwrap().unwrap();
    assert!(
        matches!(reply, Reply::Tracing { is_on: false }),
        "{reply:?}"
    );
}

#[test]
fn nonsense_is_answered_and_many_clients_are_refused() {
    let volume = tempfile::NamedTempFile::new().unwrap();
    let (_, _server) = served(volume.path(), false);
    let address = address(volume.path()).unwrap();
    let mut stream = UnixStream::connect_addr(&address).unwrap();
    stream.write_all(b"{\"ask\":\"everything\"}\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.contains("unknown"), "{text}");
    let mut clients = Vec::new();
    let refused = loop {
        let mut client = Client::connect(volume.path()).unwrap().unwrap();
        match client.snapshot() {
            Ok(_) => clients.push(client),
            Err(error) => break error.to_string(),
        }
        assert!(clients.len() <= 16, "there is no bound");
    };
    assert!(refused.contains("too many"), "{refused}");
}

#[test]
fn only_the_same_user_and_root_are_trusted() {
    let [root, one, two] = [0, 1000, 1001].map(Uid::from_raw);
    assert!(trusts(one, one) && trusts(one, root) && trusts(root, root));
    assert!(!trusts(one, two) && !trusts(root, one));
}

#[test]
fn a_volume_that_is_not_served_is_not_mounted() {
    let volume = tempfile::NamedTempFile::new().unwrap();
    assert!(Client::connect(volume.path()).unwrap().is_none());
    let error = Client::find(volume.path()).unwrap_err().to_string();
    assert!(error.contains("not mounted"), "{error}");
    assert!(Client::connect(Path::new("/no/such/volume")).is_err());
}

#[test]
fn a_client_sees_the_workers_and_what_waits_for_them() {
    let device = share(Arc::new(RamDevice::new("volume", 8192)));
    let format = FormatOptions {
        journals: Some(4),
        ..FormatOptions::default()
    };
    FileSystem::format(Arc::clone(&device), &format).unwrap();
    let options = MountOptions {
        commit_interval: std::time::Duration::from_secs(3600),
        workers: Some(1),
        ..MountOptions::default()
    };
    let file_system = FileSystem::open(device, options).unwrap();
    let volume = tempfile::NamedTempFile::new().unwrap();
    let mounted = Mounted {
        label: String::new(),
        format_version: 3,
        volume: volume.path().display().to_string(),
        directory: "/m".into(),
        uuid: "u".into(),
        options: "default options".into(),
        read_only: false,
        transport: "device".into(),
        no_rings: None,
        write_cache: "writethrough".into(),
        writes_through: None,
        half_done: None,
    };
    let observed = Observed::new(mounted_volume(&file_system), mounted, None, no_snapshots());
    let _server = Server::start(&address(volume.path()).unwrap(), observed).unwrap();
    let mut client = Client::connect(volume.path()).unwrap().unwrap();
    create(&file_system, "a");
    let root = file_system.root().unwrap();
    let file = file_system.lookup(&root, b"a").unwrap().unwrap();
    let data = [1; 3 * 4096];
    file_system
        .write(&file, 0, &data, dure_fs::Stamp::Set)
        .unwrap();
    let workers = client.snapshot().unwrap().unwrap().workers;
    assert_eq!(workers.len(), 1);
    assert_eq!(
        (workers[0].group().as_str(), workers[0].backlog_pages),
        ("0-3", 3)
    );
    file_system.sync().unwrap();
    let workers = client.snapshot().unwrap().unwrap().workers;
    assert_eq!(workers[0].backlog_pages, 0, "sync wrote them");
    file_system.close().unwrap();
}

fn no_snapshots() -> Arc<SnapshotMounts> {
    Arc::new(SnapshotMounts::of(
        &MountSettings::default(),
        Path::new("m"),
    ))
}

//! What Prometheus reads of a mount.

#![expect(clippy::unwrap_used, reason = "tests panic")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::program::{Mounted, can_mount, text, volume};

/// Each name has one type, its lines stand together, and every line is a name, labels and a number.
fn expect_sound(metrics: &str) {
    let mut names = BTreeSet::new();
    let mut name = "";
    for line in metrics.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            name = rest.split(' ').next().unwrap();
            assert!(names.insert(name), "{name} twice");
            continue;
        }
        let (head, value) = line.rsplit_once(' ').unwrap();
        assert!(
            head.starts_with(name) && head.ends_with('}'),
            "{name}: {line}"
        );
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
    for name in [
        "dure_blocks_free",
        "dure_up_seconds",
        "dure_device_writes_total",
        "dure_journal_commits_total",
        "dure_journal_times_running_seconds",
        "dure_worker_rounds_total",
    ] {
        assert!(names.contains(name), "{name} is not in\n{metrics}");
    }
    assert!(metrics.contains("dure_stopped{") && metrics.contains("journal=\"0\""));
}

#[test]
fn a_socket_answers_http_with_the_numbers_of_top() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let socket = folder.path().join("metrics");
    let mount = Mounted::new(&image, "m", &format!("metrics=unix:{}", text(&socket)));
    fs::write(mount.path("file"), "x").unwrap();
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: dure\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200 OK\r\n"), "{head}");
    assert!(
        head.contains(&format!("Content-Length: {}", body.len())),
        "{head}"
    );
    expect_sound(body);
    mount.end();
    assert!(!socket.exists(), "it ends with the mount");
}

#[test]
fn a_file_has_the_numbers_from_the_mount_on() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let file = folder.path().join("dure.prom");
    let mount = Mounted::new(&image, "m", &format!("metrics={}", text(&file)));
    expect_sound(&fs::read_to_string(&file).unwrap());
    mount.end();
    assert!(!file.exists(), "numbers of a mount that has ended are none");
}

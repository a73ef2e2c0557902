use tempfile::TempDir;

use dure_fuse::Transport;

use super::empty::Empty;
use super::workload::{ALL, Stuff, Workload};
use super::{BASE, Row, speed};

fn row(target: &str, unit: &'static str, median: f64) -> Row {
    Row {
        bench: "mount",
        target: target.into(),
        workload: "any",
        unit,
        median,
        min: median,
        max: median,
        n: 1,
        requests_per_entry: None,
    }
}

#[test]
fn twice_the_time_is_half_the_speed_and_twice_the_rate_twice() {
    for (unit, expected) in [("ms", 0.5), ("MiB/s", 2.0), ("calls/s", 2.0)] {
        let rows = [row(BASE, unit, 10.0), row("other", unit, 20.0)];
        assert_eq!(speed(&rows[1], &rows), Some(expected));
        assert_eq!(speed(&rows[0], &rows), Some(1.0));
        assert_eq!(speed(&rows[1], &rows[1..]), None);
    }
}

/// On a plain directory; each workload checks itself.
#[test]
fn workloads_run_one_after_the_other_again_and_again() {
    let place = TempDir::new().unwrap();
    let stuff = Stuff::make(place.path(), 30, (2, 0.01)).unwrap();
    let target = TempDir::new().unwrap();
    for _ in 0..2 {
        for workload in ALL {
            let figure = stuff.run(workload, target.path()).unwrap();
            assert!(figure > 0.0, "{workload:?}");
        }
    }
    stuff.run(Workload::Extract, target.path()).unwrap();
    let lost = target.path().join("tree/d0/e0/file0");
    std::fs::remove_file(lost).unwrap();
    assert!(stuff.run(Workload::Find, target.path()).is_err());
}

#[test]
fn an_empty_server_serves_what_rates_are_taken_of() {
    if !std::path::Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: it needs /dev/fuse and root");
    }
    let place = TempDir::new().unwrap();
    let stuff = Stuff::make(place.path(), 1, (2, 0.01)).unwrap();
    for transport in [Transport::Device, Transport::Uring] {
        let empty = match Empty::mount(transport) {
            Ok(Ok(empty)) => empty,
            Ok(Err(why)) => {
                eprintln!("skipped: {why}");
                continue;
            }
            // A root without the right to mount.
            Err(error) if format!("{error:#}").contains("not permitted") => {
                return eprintln!("skipped: {error:#}");
            }
            Err(error) => panic!("{error:#}"),
        };
        for workload in ALL.into_iter().filter(|workload| workload.needs_one_file()) {
            let figure = stuff.run(workload, empty.directory.path()).unwrap();
            assert!(figure > 0.0, "{workload:?}");
        }
        let at = empty.directory.path().to_owned();
        drop(empty);
        assert!(!at.exists(), "it is unmounted and gone");
    }
}

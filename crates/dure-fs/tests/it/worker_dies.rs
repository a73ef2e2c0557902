//! A worker that dies takes its process down: nobody else writes its partitions back.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use dure_block::ram::RamDevice;
use dure_block::{Device, DeviceInfo, Io, Result, share};
use dure_fs::{FileSystem, FormatOptions, MountOptions, NewInode, Stamp};
use dure_sync::{Arc, thread};

const CHILD: &str = "DURE_WORKER_DIES";

/// A device that panics when another thread than the test's writes.
#[derive(Debug)]
struct Panicking {
    device: Arc<dyn Device>,
    own: u64,
}

impl Device for Panicking {
    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    fn execute(&self, io: Io<'_>) -> Result<()> {
        let reads = matches!(io, Io::Read { .. });
        assert!(reads || thread::current_id() == self.own, "on purpose");
        self.device.execute(io)
    }
}

/// Runs itself: the child's worker panics while its main thread sleeps, and would end well.
#[test]
fn a_worker_that_panics_ends_the_process() {
    if std::env::var_os(CHILD).is_some() {
        let ram = share(RamDevice::new("ram", 4096));
        FileSystem::format(Arc::clone(&ram), &FormatOptions::default()).unwrap();
        let options = MountOptions {
            commit_interval: Duration::from_millis(1),
            ..MountOptions::default()
        };
        let device = Panicking {
            device: ram,
            own: thread::current_id(),
        };
        let fs = FileSystem::open(share(device), options).unwrap();
        let root = fs.root().unwrap();
        let new = NewInode {
            mode: 0o100_644,
            ..NewInode::default()
        };
        let file = fs.create(&root, b"file", &new).unwrap();
        fs.write(&file, 0, &[1; 4096], Stamp::Set).unwrap();
        thread::sleep(Duration::from_secs(20));
        return;
    }
    let itself = std::env::current_exe().expect("a test knows its program");
    let child = Command::new(itself)
        .args([
            "--exact",
            "worker_dies::a_worker_that_panics_ends_the_process",
        ])
        .env(CHILD, "1")
        .output()
        .expect("it runs again");
    let abort = 6;
    assert_eq!(child.status.signal(), Some(abort), "{child:?}");
}

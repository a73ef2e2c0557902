//! A block that others use while it is read is not blamed.

use std::time::Duration;

use dure_block::{DeviceInfo, Io};
use dure_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use dure_sync::thread;

use super::*;
use crate::volume::VolumeRules;

/// Holds the read of one block back until it is told to go on.
#[derive(Debug)]
struct Gate {
    device: Arc<dyn Device>,
    /// 0: none.
    block: AtomicU64,
    waits: AtomicBool,
}

impl Device for Gate {
    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    fn execute(&self, io: Io<'_>) -> dure_block::Result<()> {
        if let Io::Read { lba, out } = &io {
            let block = self.block.load(Ordering::SeqCst);
            let blocks = lba.number()..lba.number() + to_u64(out.len() / BLOCK_BYTES);
            if block > 0 && blocks.contains(&block) {
                self.block.store(0, Ordering::SeqCst);
                self.waits.store(true, Ordering::SeqCst);
                while self.waits.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        }
        self.device.execute(io)
    }
}

/// What a scrub blames when a page is written anew, and its block used again, between the look at its
/// slot and the read.
fn blamed(looks_again: Rule) -> Vec<BadBlock> {
    let (device, fs) = filled();
    fs.close().unwrap();
    drop(fs);
    let gate = Arc::new(Gate {
        device,
        block: AtomicU64::new(0),
        waits: AtomicBool::new(false),
    });
    let options = MountOptions {
        background: Background::None,
        volume_rules: VolumeRules {
            scrub_looks_again: looks_again,
            ..VolumeRules::default()
        },
        ..MountOptions::default()
    };
    let fs = FileSystem::open(share(Arc::clone(&gate)), options).unwrap();
    let block = block_of(&fs, 300);
    gate.block.store(block.0, Ordering::SeqCst);
    let scrubbed = {
        let fs = fs.clone();
        thread::spawn("scrub", move || scrub(&fs).0)
    };
    while !gate.waits.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(1));
    }
    write(&fs, &file(&fs), 300..301, 2);
    fs.sync().unwrap();
    fs.checkpoint_now().unwrap();
    assert_ne!(block_of(&fs, 300), block);
    flip(&fs, block);
    gate.waits.store(false, Ordering::SeqCst);
    scrubbed.join().expect("no panic")
}

#[test]
fn canary_a_block_that_did_not_verify_is_looked_at_again() {
    assert_eq!(blamed(Rule::Holds), []);
    assert_ne!(blamed(Rule::LEFT_OUT), []);
}

//! An operation changes two nodes while a checkpoint writes images: that of the first node was
//! written before, that of the second has the change.

use std::fmt;

use dure_block::ram::RamDevice;
use dure_block::{Device, DeviceInfo, Io, Result, share};
use dure_store::OpKind;
use dure_store::format::node::{MAGIC, NodeKind};
use dure_store::space::OpClass;
use dure_store::units::Nid;
use dure_sync::atomic::{AtomicUsize, Ordering};
use dure_sync::canary::Rule;
use dure_sync::{Arc, OnceLock, thread};

use super::{make, options, ram, shared};
use crate::{FileSystem, MountOptions};

/// Does something right after the first image is written.
struct Between {
    below: Arc<RamDevice>,
    work: OnceLock<Box<dyn Fn() + Send + Sync>>,
    images: AtomicUsize,
}

impl fmt::Debug for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Between")
    }
}

impl Device for Between {
    fn info(&self) -> &DeviceInfo {
        self.below.info()
    }

    fn execute(&self, io: Io<'_>) -> Result<()> {
        let is_image = match &io {
            Io::Write { parts, .. } => parts[0].starts_with(&MAGIC.to_le_bytes()),
            _ => false,
        };
        self.below.execute(io)?;
        if let Some(work) = self.work.get().filter(|_| is_image)
            && self.images.fetch_add(1, Ordering::AcqRel) == 0
        {
            thread::scope(|scope| scope.spawn(work).join()).expect("it succeeds");
        }
        Ok(())
    }
}

fn change_both(fs: &FileSystem, nids: [Nid; 2]) {
    let op = fs.0.store.op(OpKind::Write, OpClass::Normal, 2);
    let mut op = op.expect("there is room");
    for nid in nids {
        let node = fs.0.store.node(nid, NodeKind::Blob.of_none());
        op.edit(&node.expect("it is there"), 0).all()[0] = b'2';
    }
    op.finish();
}

/// The first bytes of the two nodes after a crash at the end of the checkpoint.
fn after_a_crash(commit_before_nat: Rule) -> [u8; 2] {
    let below = ram(8192, 2);
    let device = Arc::new(Between {
        below: Arc::clone(&below),
        work: OnceLock::new(),
        images: AtomicUsize::new(0),
    });
    let core = Arc::new(AtomicUsize::new(0));
    let mut of_one_core = MountOptions {
        core: Some(core.clone()),
        ..options()
    };
    of_one_core.volume_rules.store.commit_before_nat = commit_before_nat;
    let fs = FileSystem::open(share(Arc::clone(&device)), of_one_core).expect("a good volume");
    let fs = Arc::new(fs);
    // Each core's images are a share of the checkpoint.
    let nids = [0, 1].map(|number| {
        core.store(number, Ordering::Relaxed);
        make(&fs, b"1").0
    });
    let weak = Arc::downgrade(&fs);
    let work = move || change_both(&weak.upgrade().expect("it is mounted"), nids);
    assert!(device.work.set(Box::new(work)).is_ok());
    fs.checkpoint_now().expect("the device takes all");
    assert!(
        device.images.load(Ordering::Acquire) > 1,
        "one write has both"
    );
    let image = below.snapshot();
    std::mem::forget(fs);
    let crashed = Arc::new(RamDevice::from_image("crashed", &image));
    let fs = FileSystem::open(shared(&crashed), options()).expect("it is recovered");
    nids.map(|nid| {
        let node = fs.0.store.node(nid, NodeKind::Blob.of_none());
        node.expect("it is there").look(0, |bytes| bytes[0])
    })
}

#[test]
fn what_images_hold_is_valid_before_the_nat_names_them() {
    assert_eq!(after_a_crash(Rule::Holds), [b'2', b'2']);
}

/// The rule of the checkpoint: what was copied is committed, not only what had joined before.
#[test]
fn canary_an_image_with_half_of_a_lost_operation_is_noticed() {
    assert_eq!(after_a_crash(Rule::LEFT_OUT), [b'1', b'2']);
}

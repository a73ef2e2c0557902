use dure_block::crash::{CrashImages, Selection};
use dure_block::linear::LinearDevice;
use dure_block::ram::{Image, RamDevice};
use dure_block::record::RecordDevice;
use dure_block::{Device, Io, WriteFlags, share};
use dure_sync::Arc;
use dure_sync::canary::Rule;

use super::*;
use crate::layout::{FormatOptions, NvmRegion};
use crate::members::join;
use crate::options::StoreOptions;
use crate::store::tests::mounted_with;
use crate::store::{Mount, make_volume};

const NVM_BLOCKS: u64 = 600;
const DISK_BLOCKS: u64 = 2000;
const NAMES: [&str; 2] = ["nvm", "disk"];

/// The media of a volume, which lie one behind the other on `all`.
fn media(all: &Arc<dyn Device>) -> [Member; 2] {
    let run = |first, blocks, path: &str| Member {
        device: share(LinearDevice::new(vec![(
            all.clone(),
            Lba::new(first),
            blocks,
        )])),
        path: path.into(),
    };
    [
        run(0, NVM_BLOCKS, NAMES[0]),
        run(NVM_BLOCKS, DISK_BLOCKS, NAMES[1]),
    ]
}

fn volume(all: &Arc<dyn Device>) -> Result<Arc<dyn Device>> {
    join(&media(all))
}

fn made() -> Image {
    let ram = Arc::new(RamDevice::new("all", NVM_BLOCKS + DISK_BLOCKS));
    let [nvm, disk] = media(&share(Arc::clone(&ram)));
    let options = FormatOptions {
        journals: Some(2),
        segment_blocks: Some(32),
        uuid: Some([3; 16]),
        nvm: vec![NvmRegion {
            device: nvm.device,
            path: nvm.path,
            node: 0,
        }],
        ..FormatOptions::default()
    };
    make_volume(disk.device, &options).unwrap();
    ram.snapshot()
}

fn ram(image: &Image) -> Arc<RamDevice> {
    Arc::new(RamDevice::from_image("all", image))
}

/// Media at different times of a volume: after mkfs, mounted, unmounted, mounted, mounted after a
/// crash, unmounted.
fn times(made: &Image, rules: StoreRules) -> Vec<Image> {
    let options = StoreOptions {
        store_rules: rules,
        ..StoreOptions::default()
    };
    let ram = ram(made);
    let all = share(Arc::clone(&ram));
    let mount = || mounted_with(volume(&all).unwrap(), options.clone());
    let mut images = vec![made.clone()];
    let first = mount();
    images.push(ram.snapshot());
    first.close().unwrap();
    drop(first);
    images.push(ram.snapshot());
    drop(mount());
    images.push(ram.snapshot());
    let third = mount();
    images.push(ram.snapshot());
    third.close().unwrap();
    drop(third);
    images.push(ram.snapshot());
    images
}

/// `new` with medium `member` as it was in `old`.
fn mixed(new: &Image, old: &Image, member: usize) -> Arc<dyn Device> {
    let (mut bytes, old) = (new.to_bytes(), old.to_bytes());
    let border = crate::units::to_usize(NVM_BLOCKS) * BLOCK_BYTES;
    let run = [0..border, border..bytes.len()][member].clone();
    bytes[run.clone()].copy_from_slice(&old[run]);
    share(ram(&Image::from_bytes(&bytes)))
}

#[test]
fn an_old_copy_of_a_medium_is_refused_by_name() {
    let images = times(&made(), StoreRules::default());
    for (n, new) in images.iter().enumerate() {
        volume(&mixed(new, new, 0)).unwrap();
        for (o, old) in images[..n].iter().enumerate() {
            for member in [0, 1] {
                let error = volume(&mixed(new, old, member)).map(drop);
                let error = error.unwrap_err().to_string();
                let old_copy = format!("{}: is an old copy", NAMES[member]);
                let of_that_mount = error.contains("is of another time of mount");
                assert!(
                    error.starts_with(&old_copy) || of_that_mount,
                    "{member} of {o} in {n}: {error}"
                );
            }
        }
    }
}

/// Two volumes that were one, each mounted as often as the other.
#[test]
fn a_medium_of_a_volume_that_went_another_way_is_refused() {
    let made = made();
    let [one, other] = [0, 1].map(|_| times(&made, StoreRules::default()).pop().unwrap());
    for member in [0, 1] {
        let error = volume(&mixed(&one, &other, member)).map(drop).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("is of another time of mount 4"), "{error}");
    }
}

#[test]
fn canary_an_old_first_medium_is_not_noticed_without_the_last_step_of_a_turn() {
    let rules = StoreRules {
        stamps_after_header: Rule::LEFT_OUT,
        ..StoreRules::default()
    };
    let images = times(&made(), rules);
    volume(&mixed(&images[1], &images[0], 0)).unwrap();
}

/// Every state that a crash in a mount, or in an unmount, may leave: is it one volume, that mounts?
fn crashes(rules: StoreRules) -> std::result::Result<u64, String> {
    let made = made();
    let record = RecordDevice::new(share(ram(&made)));
    let log = record.log();
    let options = StoreOptions {
        store_rules: rules,
        ..StoreOptions::default()
    };
    let store = mounted_with(volume(&share(record)).unwrap(), options);
    store.close().unwrap();
    drop(store);
    let images = CrashImages::new(made, &log);
    let selection = Selection {
        exhaustive_max: 6,
        random: 8,
        ..Selection::default()
    };
    let mut states = 0;
    for step in 0..=images.last_step() {
        let point = images.at(step);
        for choice in point.choices(selection) {
            states += 1;
            let why = |error: Error| format!("step {step}, {choice}: {error}");
            let device = volume(&share(point.image(&choice))).map_err(why)?;
            let store = mounted_with(device, StoreOptions::default());
            store.close().map_err(why)?;
        }
    }
    Ok(states)
}

#[test]
fn whatever_a_crash_leaves_of_a_turn_is_one_volume() {
    let states = crashes(StoreRules::default()).unwrap();
    assert!(states > 100, "{states} states");
}

#[test]
fn canary_a_header_before_its_stamps() {
    let rules = StoreRules {
        stamps_before_header: Rule::LEFT_OUT,
        ..StoreRules::default()
    };
    let error = crashes(rules).unwrap_err();
    assert!(error.contains("is an old copy"), "{error}");
}

fn destroy(all: &Arc<dyn Device>, first: u64, blocks: u64) {
    let zeroes = vec![0; crate::units::to_usize(blocks) * BLOCK_BYTES];
    let (parts, flags) = (&[&zeroes[..]][..], WriteFlags::NONE);
    let lba = Lba::new(first);
    all.execute(Io::Write { lba, parts, flags }).unwrap();
}

#[test]
fn a_medium_is_known_by_its_stamp_if_its_head_is_destroyed() {
    // Of the disk its last block stands in for the head; of the first medium, the volume header is
    // the stamp.
    for (head, stamp) in [(0, 2), (NVM_BLOCKS, NVM_BLOCKS + STAMP_BLOCK)] {
        let all = share(ram(&made()));
        destroy(&all, head, 1);
        mounted_with(volume(&all).unwrap(), StoreOptions::default())
            .close()
            .unwrap();
        destroy(&all, stamp, 4);
        if head == 0 {
            let error = volume(&all).map(drop).unwrap_err().to_string();
            assert!(
                error.starts_with("nvm: holds no part of a volume"),
                "{error}"
            );
        }
    }
}

#[test]
fn media_that_are_hidden_are_not_mounted_for_writing() {
    let all = share(ram(&made()));
    let hiding = RecordDevice::new(volume(&all).unwrap());
    let log = hiding.log();
    let begun = Mount::begin(share(hiding), StoreOptions::default());
    let error = begun.map(drop).unwrap_err().to_string();
    assert!(error.contains("hidden behind another device"), "{error}");
    assert_eq!(log.step(), 0, "something was written");
}

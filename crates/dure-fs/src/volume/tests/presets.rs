//! Presets: what they set, what contradicts them, and what they cannot be had on.

use dure_block::nvm::NvmDevice;
use dure_block::ram::RamDevice;
use dure_block::{BLOCK_BYTES, Device, share};
use dure_pmem::Region;
use dure_store::layout::{FormatOptions, NodeLog, NvmRegion};
use dure_store::members::{Member, join};
use dure_sync::Arc;

use crate::{Background, FileSystem, MountOptions, NewInode, Preset, Stamp, SyncScope};

const BLOCKS: u64 = 16384;

fn with(words: &[(&str, &str)]) -> Result<MountOptions, String> {
    let mut options = MountOptions {
        background: Background::None,
        cache_bytes: 8 << 20,
        ..MountOptions::default()
    };
    for (key, value) in words {
        assert!(options.set_policy(key, value)?, "{key}={value}");
    }
    Ok(options)
}

fn memory() -> Arc<dyn Device> {
    let bytes = usize::try_from(BLOCKS).unwrap() * BLOCK_BYTES;
    share(NvmDevice::in_memory(
        "nvm",
        Region::anonymous(bytes).unwrap(),
    ))
}

fn disk() -> Arc<dyn Device> {
    share(RamDevice::new("disk", BLOCKS))
}

fn plain(device: Arc<dyn Device>) -> Arc<dyn Device> {
    let format = FormatOptions {
        journals: Some(2),
        ..FormatOptions::default()
    };
    FileSystem::format(device.clone(), &format).unwrap();
    device
}

fn both() -> Arc<dyn Device> {
    let (nvm, disk) = (memory(), disk());
    let format = FormatOptions {
        journals: Some(2),
        node_log: NodeLog::Nvm,
        nvm: vec![NvmRegion {
            device: nvm.clone(),
            path: "nvm".into(),
            node: 0,
        }],
        ..FormatOptions::default()
    };
    FileSystem::format(disk.clone(), &format).unwrap();
    let member = |device| Member {
        device,
        path: String::new(),
    };
    join(&[nvm, disk].map(member)).unwrap()
}

/// The volume that a preset is for, and one that it cannot be had on.
fn media_of(name: &str) -> (Arc<dyn Device>, Option<Arc<dyn Device>>) {
    match name {
        "nova-locks" | "pnova-locks" => (plain(memory()), Some(plain(disk()))),
        "nvram-lfs" => (both(), Some(plain(disk()))),
        _ => (plain(disk()), None),
    }
}

/// Each is what its words are, mounts, and keeps what was synced.
#[test]
fn each_preset_sets_its_policies_and_mounts() {
    for name in Preset::names() {
        let options = with(&[("preset", name)]).unwrap();
        let preset = options.said.preset().unwrap();
        assert_eq!(preset.name(), name);
        assert!(preset.words().len() > 1, "{name}");
        let mut by_words = with(preset.words()).unwrap();
        by_words.said = options.said.clone();
        assert_eq!(format!("{by_words:?}"), format!("{options:?}"), "{name}");
        let (device, _) = media_of(name);
        let root = |fs: &FileSystem| fs.root().unwrap();
        let fs = FileSystem::open(device.clone(), options.clone()).unwrap();
        let new = NewInode {
            mode: 0o100_644,
            ..NewInode::default()
        };
        let file = fs.create(&root(&fs), b"f", &new).unwrap();
        fs.write(&file, 100, &[7; 9000], Stamp::Set).unwrap();
        fs.fsync(&file, SyncScope::All).unwrap();
        drop((file, fs));
        // As after a crash.
        let fs = FileSystem::open(device, options).unwrap();
        let file = fs.lookup(&root(&fs), b"f").unwrap().unwrap();
        let mut out = [0; 9000];
        fs.read(&file, 100, &mut out, crate::ReadMode::Cached)
            .unwrap();
        assert_eq!(out, [7; 9000], "{name}");
    }
}

#[test]
fn what_contradicts_a_preset_is_refused_before_and_behind_it() {
    for (preset, word) in [
        ("jbd2", ("data", "ordered")),
        ("zjournal", ("fsync", "closure")),
        ("pnova-locks", ("range_lock", "tree")),
        ("nvram-lfs", ("nvram_low", "50")),
    ] {
        let preset = ("preset", preset);
        for words in [[preset, word], [word, preset]] {
            let why = with(&words).unwrap_err();
            let says = [
                format!("{}={}", word.0, word.1),
                format!("preset={}", preset.1),
                "leave one of the two out".to_owned(),
            ];
            assert!(says.iter().all(|says| why.contains(says)), "{why}");
        }
    }
    // The same value, and what a preset says nothing of, may be said.
    with(&[("preset", "jbd2"), ("data", "journal"), ("alloc", "global")]).unwrap();
    let why = with(&[("preset", "jbd2"), ("preset", "zjournal")]).unwrap_err();
    assert!(why.contains("preset=jbd2 and preset=zjournal"), "{why}");
    let why = with(&[("preset", "ext4")]).unwrap_err();
    assert!(why.contains("jbd2 or zjournal or f2fs-locks"), "{why}");
}

#[test]
fn a_volume_that_cannot_have_a_preset_is_refused_by_its_name() {
    let mut refused = 0;
    for name in Preset::names() {
        let Some(other) = media_of(name).1 else {
            continue;
        };
        let options = with(&[("preset", name)]).unwrap();
        let why = FileSystem::open(other, options).unwrap_err().to_string();
        assert!(
            why.starts_with(&format!("preset={name}: it sets page_cache=")),
            "{why}"
        );
        let to_do = if name == "nvram-lfs" {
            "mkfs DISK --nvm"
        } else {
            "nvm=emulated"
        };
        assert!(why.contains(to_do), "{why}");
        refused += 1;
    }
    assert_eq!(refused, 3);
    // An option that is not of the preset is told of by itself.
    let options = with(&[("preset", "nvram-lfs"), ("nvram", "1G")]).unwrap();
    let why = FileSystem::open(both(), options).unwrap_err().to_string();
    assert!(why.starts_with("nvram: "), "{why}");
}

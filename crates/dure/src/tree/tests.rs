use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use dure_block::ram::RamDevice;
use dure_block::{BLOCK_BYTES, Device, Io, Lba, WriteFlags, share};
use dure_fs::format::node::MAGIC;
use dure_fs::{FormatOptions, MountOptions};
use dure_sync::Arc;

use super::*;
use crate::{FileTimes, Seek, Special, TimeChange, Timestamp, Volume, XattrMode};

fn go(_: &Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn make_host_tree(at: &Path) {
    fs::create_dir(at.join("sub")).unwrap();
    fs::write(at.join("sub/file"), b"content").unwrap();
    fs::hard_link(at.join("sub/file"), at.join("other")).unwrap();
    symlink("sub/file", at.join("link")).unwrap();
    let directory = host::Inode::directory_at(at).unwrap();
    let pipe = directory.make_special("pipe".as_ref(), rustix::fs::FileType::Fifo, 0);
    pipe.unwrap();
    let sparse = fs::File::create(at.join("sparse")).unwrap();
    sparse.write_all_at(b"end", 10 << 20).unwrap();
    fs::set_permissions(at.join("sub/file"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(at.join("sub"), fs::Permissions::from_mode(0o2770)).unwrap();
}

#[test]
fn a_tree_comes_back_as_it_went() {
    let host = tempfile::tempdir().unwrap();
    let source = host.path().join("source");
    fs::create_dir(&source).unwrap();
    make_host_tree(&source);
    let volume = Volume::in_memory(64 << 20).unwrap();
    let session = volume.root();
    let times = FileTimes {
        accessed: TimeChange::Set(Timestamp {
            secs: 5_000_000_000,
            nanos: 7,
        }),
        modified: TimeChange::Set(Timestamp {
            secs: -3,
            nanos: 999_999_999,
        }),
    };
    let progress = put(&session, &source, "copy", &mut go).unwrap();
    assert_eq!(progress.files, 7);
    assert_eq!(progress.bytes, 3 + 7, "holes are not copied");

    let file = session.metadata("copy/sub/file").unwrap();
    assert_eq!((file.mode(), file.nlink()), (0o4751, 2));
    assert_eq!(file.ino(), session.metadata("copy/other").unwrap().ino());
    assert_eq!(session.read("copy/link").unwrap(), b"content");
    let sparse = session.open("copy/sparse").unwrap();
    assert_eq!(sparse.metadata().unwrap().len(), (10 << 20) + 3);
    assert_eq!(sparse.seek_to(Seek::Data(0)).unwrap(), 10 << 20);
    session.set_times("copy/sub", times).unwrap();
    session
        .set_xattr("copy/other", b"user.color", b"red", XattrMode::Any)
        .unwrap();

    let target = host.path().join("target");
    let back = get(&session, "copy", &target, &mut go).unwrap();
    assert_eq!(back.files, 7);
    let sub = fs::metadata(target.join("sub")).unwrap();
    assert_eq!(sub.mode() & 0o7777, 0o2770);
    assert_eq!((sub.mtime(), sub.mtime_nsec()), (-3, 999_999_999));
    assert_eq!((sub.atime(), sub.atime_nsec()), (5_000_000_000, 7));
    let (a, b) = (target.join("sub/file"), target.join("other"));
    assert_eq!(
        fs::metadata(&a).unwrap().ino(),
        fs::metadata(&b).unwrap().ino()
    );
    // Of a user what comes from a volume runs with nobody's rights but the caller's.
    let is_root = rustix::process::geteuid().is_root();
    let set_id = if is_root { 0o4000 } else { 0 };
    assert_eq!(fs::metadata(&a).unwrap().mode() & 0o7777, 0o751 | set_id);
    let sparse = fs::metadata(target.join("sparse")).unwrap();
    assert_eq!(sparse.len(), (10 << 20) + 3);
    assert!(
        sparse.blocks() < 1024,
        "holes stay holes: {} blocks",
        sparse.blocks()
    );
    let colour = host::Inode::at(&b).unwrap().attributes().unwrap();
    let red = (b"user.color".to_vec(), b"red".to_vec());
    assert!(
        colour.contains(&red) || back.attributes_skipped > 0,
        "{colour:?}"
    );
}

#[test]
fn a_failure_names_the_path_and_a_break_stops() {
    let volume = Volume::in_memory(64 << 20).unwrap();
    let session = volume.root();
    let error = put(&session, "/no/such/thing", "copy", &mut go).unwrap_err();
    assert!(
        error.to_string().starts_with("read /no/such/thing: "),
        "{error}"
    );
    session.create_dir("dir").unwrap();
    session.mknod("dir/pipe", Special::Fifo, 0o644).unwrap();
    let host = tempfile::tempdir().unwrap();
    let mut stop = |_: &Progress| ControlFlow::Break(());
    let error = get(&session, "dir", host.path().join("x"), &mut stop).unwrap_err();
    assert_eq!(error.errno(), rustix::io::Errno::INTR.raw_os_error());
}

/// Lets the entry `old` of some directory be called `new`, with sound checksums: what a crafted
/// image holds.
fn rename_on_medium(device: &RamDevice, seed: u32, old: &str, new: &str) {
    assert_eq!(old.len(), new.len());
    // A name stands behind its length; one of a byte or two is anywhere else, too, as in a time.
    let mut entry = vec![u8::try_from(old.len()).unwrap()];
    entry.extend(old.as_bytes());
    let mut found = 0;
    for lba in (0..device.info().blocks).map(Lba::new) {
        let mut block = vec![0; BLOCK_BYTES];
        let out = &mut block[..];
        device.execute(Io::Read { lba, out }).unwrap();
        let at = block
            .windows(entry.len())
            .position(|bytes| bytes == entry)
            .map(|at| at + 1);
        if let (true, Some(at)) = (block.starts_with(&MAGIC.to_le_bytes()), at) {
            block[at..at + new.len()].copy_from_slice(new.as_bytes());
            block[4..8].fill(0);
            let crc = dure_block::crc32c::crc32c_append(seed, &block);
            block[4..8].copy_from_slice(&crc.to_le_bytes());
            let parts = &[&block[..]];
            let flags = WriteFlags::NONE;
            device.execute(Io::Write { lba, parts, flags }).unwrap();
            found += 1;
        }
    }
    assert!(found > 0, "{old} is in some node");
}

/// Names of a crafted image led `get` to any place of the host.
#[test]
fn names_of_an_image_never_lead_out_of_the_destination() {
    let host = tempfile::tempdir().unwrap();
    let outside = host.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let evil = outside.join("evil");
    let absolute = evil.to_str().unwrap();
    for hostile in [absolute, "../outside/evil", "..", ".", "a/b"] {
        let device = Arc::new(RamDevice::new("hostile", 4096));
        let options = MountOptions::default();
        let volume = Volume::create_on(
            share(Arc::clone(&device)),
            &FormatOptions::default(),
            options.clone(),
        )
        .unwrap();
        let session = volume.root();
        // What a walk in the volume finds when it takes the name for a path.
        session.create_dir_all(&outside).unwrap();
        session.write(&evil, b"evil").unwrap();
        session.create_dir_all("/outside").unwrap();
        session.write("/outside/evil", b"evil").unwrap();
        session.create_dir_all("/d/a").unwrap();
        session.write("/d/a/b", b"evil").unwrap();
        let placeholder = "%".repeat(hostile.len());
        session.write(format!("/d/{placeholder}"), b"evil").unwrap();
        let seed = volume.file_system().layout().crc_seed;
        volume.close().unwrap();
        rename_on_medium(&device, seed, &placeholder, hostile);

        let volume = Volume::open_on(share(device), options).unwrap();
        let error = get(&volume.root(), "/d", host.path().join("copy"), &mut go).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("directory") && text.contains("bucket"),
            "{text}"
        );
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{hostile}");
    }
}

/// Another user puts a link in the place of a directory that is being filled.
#[test]
fn a_link_in_the_place_of_a_directory_does_not_lead_a_copy_away() {
    let host = tempfile::tempdir().unwrap();
    let (copy, outside) = (host.path().join("copy"), host.path().join("outside"));
    fs::create_dir(&outside).unwrap();
    let volume = Volume::in_memory(64 << 20).unwrap();
    let session = volume.root();
    session.create_dir_all("/d/sub").unwrap();
    for name in ["a", "b", "c"] {
        session
            .write(format!("/d/sub/{name}"), b"of the volume")
            .unwrap();
        fs::write(outside.join(name), b"secret").unwrap();
        session
            .hard_link(format!("/d/sub/{name}"), format!("/d/sub/{name}2"))
            .unwrap();
    }
    let swap = |directory: &Path| {
        let away = directory.with_extension("away");
        if !away.exists() && directory.join("a").exists() {
            fs::rename(directory, &away).unwrap();
            symlink(&outside, directory).unwrap();
        }
    };
    let mut swapped = |_: &Progress| {
        let sub = copy.join("sub");
        let started = fs::read_dir(&sub).is_ok_and(|mut names| names.next().is_some());
        if started && fs::symlink_metadata(&sub).unwrap().is_dir() {
            fs::rename(&sub, copy.join("away")).unwrap();
            symlink(&outside, &sub).unwrap();
        }
        ControlFlow::Continue(())
    };
    // It may fail, since the links of inodes are found by name; it must not write elsewhere.
    let _ = get(&session, "/d", &copy, &mut swapped);
    assert!(copy.join("away").exists(), "the swap took place");
    for name in ["a", "b", "c"] {
        assert_eq!(fs::read(outside.join(name)).unwrap(), b"secret");
    }
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 3);

    let source = host.path().join("source");
    fs::create_dir_all(source.join("sub")).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(source.join("sub").join(name), b"of the host").unwrap();
    }
    put(&session, &source, "/back", &mut |_| {
        swap(&source.join("sub"));
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(source.join("sub.away").exists(), "the swap took place");
    for name in ["a", "b", "c"] {
        let content = session.read(format!("/back/sub/{name}")).unwrap();
        assert_eq!(content, b"of the host");
    }
}

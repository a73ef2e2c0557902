//! A random workload on a whole file system: every call, few names, small files.

use dure_fs::{
    AllocateMode, Error, FileSystem, InodeRef, NewInode, ReadMode, RenameMode, SetAttributes,
    Stamp, SyncScope, XattrMode,
};
use dure_sync::random::Seeded;

/// A directory and a name in it.
struct Place {
    directory: InodeRef,
    name: Vec<u8>,
}

fn place(fs: &FileSystem, random: &mut Seeded) -> Place {
    let mut directory = fs.root().expect("a root");
    for _ in 0..random.below(3) {
        let name = format!("dir{}", random.below(3));
        match fs.lookup(&directory, name.as_bytes()).expect("a lookup") {
            Some(below) if below.kind() == dure_fs::FileKind::Directory => directory = below,
            _ => break,
        }
    }
    let tail = "n".repeat(usize::try_from(random.below(40)).expect("small"));
    let name = match random.below(4) {
        0 => format!("dir{}", random.below(3)),
        1 => format!("{tail}{}", random.below(200)),
        _ => format!("file{}", random.below(12)),
    };
    Place {
        directory,
        name: name.into_bytes(),
    }
}

/// One call; errors that a user could see are fine.
pub(crate) fn step(fs: &FileSystem, random: &mut Seeded) -> Result<(), Error> {
    let Place { directory, name } = place(fs, random);
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    match random.below(20) {
        0..=3 => fs.create(&directory, &name, &new).map(drop),
        4 => fs
            .mkdir(&directory, &name, &NewInode { mode: 0o755, ..new })
            .map(drop),
        5 => {
            let len = [5, 288, 289, 4000, 4095][usize::try_from(random.below(5)).expect("small")];
            fs.symlink(&directory, &name, &vec![b's'; len], &new)
                .map(drop)
        }
        6 => fs.unlink(&directory, &name),
        7 => fs.rmdir(&directory, &name),
        8 => {
            let to = place(fs, random);
            let mode = match random.below(4) {
                0 => RenameMode::Exchange,
                1 => RenameMode::NoReplace,
                _ => RenameMode::Replace,
            };
            fs.rename(&directory, &name, &to.directory, &to.name, mode)
        }
        9 => {
            let to = place(fs, random);
            let Some(inode) = fs.lookup(&directory, &name)? else {
                return Ok(());
            };
            fs.link(&inode, &to.directory, &to.name)
        }
        10 => fs
            .create(
                &directory,
                &name,
                &NewInode {
                    mode: 0o010_600,
                    ..new
                },
            )
            .map(drop),
        11 => fs.temporary(&directory, &new).map(drop),
        _ => {
            let Some(inode) = fs.lookup(&directory, &name)? else {
                return Ok(());
            };
            on_inode(fs, &inode, random)
        }
    }
}

fn on_inode(fs: &FileSystem, inode: &InodeRef, random: &mut Seeded) -> Result<(), Error> {
    let offset = [
        0,
        4096 * random.below(30),
        random.below(2_000_000),
        random.below(1 << 33),
    ][usize::try_from(random.below(4)).expect("small")];
    let len = usize::try_from(random.below(40_000)).expect("small");
    match random.below(10) {
        0..=3 => fs
            .write(inode, offset, &vec![0xd5; len], Stamp::Set)
            .map(drop),
        4 => {
            let size = Some(offset);
            fs.set_attributes(
                inode,
                &SetAttributes {
                    size,
                    ..SetAttributes::default()
                },
            )
            .map(drop)
        }
        5 => {
            let modes = [
                AllocateMode::Extend,
                AllocateMode::KeepSize,
                AllocateMode::Punch,
                AllocateMode::Zero,
                AllocateMode::ZeroKeepSize,
            ];
            let mode = modes[usize::try_from(random.below(5)).expect("small")];
            fs.allocate(inode, mode, offset, 1 + random.below(60_000))
        }
        6 => {
            let name = format!("user.{}", random.below(4));
            let value = vec![7; usize::try_from(random.below(9000)).expect("small")];
            fs.set_xattr(inode, name.as_bytes(), &value, XattrMode::Any)
        }
        7 => fs.remove_xattr(inode, format!("user.{}", random.below(4)).as_bytes()),
        8 => fs.fsync(inode, SyncScope::All),
        _ => fs
            .read(inode, offset, &mut vec![0; len], ReadMode::Cached)
            .map(drop),
    }
}

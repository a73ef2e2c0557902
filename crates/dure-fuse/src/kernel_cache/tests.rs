use std::fs;

use dure_block::ram::RamDevice;
use dure_block::share;
use dure_fs::{
    AllocateMode, Background, Error, FormatOptions, InodeRef, MountOptions, NewInode, Stamp,
};
use dure_sync::Arc;
use tempfile::TempDir;

use super::*;

const MIB: u64 = 1 << 20;
/// 256 MiB.
const BLOCKS: u64 = 64 << 10;
/// The limit for so much, as long as it is empty.
const EMPTY: u64 = 4 * MIB;

/// A volume, a limit that only files know, and the cache between them.
struct World {
    files: TempDir,
    volume: FileSystem,
    cache: KernelCache,
    file: InodeRef,
    end: u64,
}

impl World {
    fn new() -> World {
        let ram = Arc::new(RamDevice::new("room", BLOCKS));
        FileSystem::format(share(ram.clone()), &FormatOptions::default()).unwrap();
        let options = MountOptions {
            background: Background::None,
            ..MountOptions::default()
        };
        let volume = FileSystem::open(share(ram), options).unwrap();
        let files = tempfile::tempdir().unwrap();
        let contents = [
            ("strict_limit", 1),
            ("max_ratio", 1),
            ("max_bytes", 64 * MIB),
        ];
        for (name, number) in contents {
            fs::write(files.path().join(name), number.to_string()).unwrap();
        }
        let limit = KernelLimit::at(files.path().into()).unwrap();
        let new = NewInode {
            mode: libc::S_IFREG | 0o600,
            ..NewInode::default()
        };
        let file = volume
            .create(&volume.root().unwrap(), b"file", &new)
            .unwrap();
        World {
            cache: KernelCache::new(limit, &volume),
            files,
            volume,
            file,
            end: 0,
        }
    }

    /// The limit as the kernel would have it.
    fn limit(&self) -> u64 {
        let text = fs::read_to_string(self.files.path().join("max_bytes")).unwrap();
        text.parse().unwrap()
    }

    /// Takes room for good, as any call may.
    fn take(&mut self, bytes: u64) -> Result<(), Error> {
        let took = self
            .volume
            .allocate(&self.file, AllocateMode::Extend, self.end, bytes);
        self.end += bytes;
        took
    }

    fn promised(&self) -> u64 {
        self.volume.activity().room.blocks_promised
    }
}

#[test]
fn the_limit_follows_the_room_and_blocks_are_promised_for_it() {
    let mut world = World::new();
    assert_eq!(
        (world.limit(), world.promised()),
        (EMPTY, blocks_for(EMPTY))
    );
    // Until it is a sixteenth of the room, the limit stays.
    while world.volume.room_at_hand() * BLOCK > EMPTY * ROOM.1 {
        world.cache.look(&world.volume);
        assert_eq!(world.limit(), EMPTY);
        world.take(MIB).unwrap();
    }
    world.cache.look(&world.volume);
    let lower = EMPTY / 4;
    assert_eq!(world.limit(), lower);
    assert_eq!(
        world.promised(),
        blocks_for(EMPTY),
        "the kernel may hold as much"
    );
    world.take(2 * EMPTY).unwrap();
    world.cache.came(EMPTY - 1, &world.volume);
    assert_eq!(world.promised(), blocks_for(EMPTY));
    world.cache.came(lower, &world.volume);
    assert_eq!(world.promised(), blocks_for(lower));
    // All that was taken comes back.
    world
        .volume
        .allocate(&world.file, AllocateMode::Punch, 0, world.end)
        .unwrap();
    world.volume.sync().unwrap();
    world.cache.look(&world.volume);
    assert_eq!(
        (world.limit(), world.promised()),
        (EMPTY, blocks_for(EMPTY))
    );
}

#[test]
fn a_call_that_finds_no_room_brings_the_limit_down_and_the_promise_later() {
    let mut world = World::new();
    let error = world.take(BLOCKS * BLOCK).unwrap_err();
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    world.cache.was_refused(&world.volume);
    assert_eq!(
        (world.limit(), world.promised()),
        (LEAST, blocks_for(EMPTY))
    );
    let long_ago = clock::monotonic_ns() - u64::try_from(FOLLOWS.as_nanos()).unwrap();
    let mut state = world.cache.state.lock();
    state.fallen.as_mut().unwrap().at_ns = long_ago;
    drop(state);
    world.cache.was_refused(&world.volume);
    assert_eq!(
        (world.limit(), world.promised()),
        (LEAST, blocks_for(LEAST))
    );
}

/// The memory that it is a part of has become more.
#[test]
fn a_limit_that_has_grown_is_set_again() {
    let world = World::new();
    fs::write(
        world.files.path().join("max_bytes"),
        (2 * EMPTY).to_string(),
    )
    .unwrap();
    world.cache.look(&world.volume);
    assert_eq!(world.limit(), EMPTY);
}

/// The last room is taken while pages wait in the kernel's cache.
#[test]
fn what_was_promised_is_there_when_everything_else_is_taken() {
    let mut world = World::new();
    while world.take(MIB).is_ok() {}
    while world.take(BLOCK).is_ok() {}
    let data = vec![7; usize::try_from(MIB).unwrap()];
    let write = |at: u64| {
        world
            .volume
            .write_promised(&world.file, world.end + at, &data, Stamp::Keep)
    };
    let refused = world
        .volume
        .write_whole(&world.file, world.end, &data, Stamp::Keep);
    assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
    for at in (0..EMPTY).step_by(data.len()) {
        assert_eq!(write(at).unwrap(), data.len());
    }
    world.volume.sync().unwrap();
    // Twice as much was promised, as each page might have needed a node.
    let more = (EMPTY..4 * EMPTY).step_by(data.len());
    let refused = more.map(write).find_map(Result::err);
    assert!(
        matches!(refused, Some(Error::NoSpace { .. })),
        "{refused:?}"
    );
}

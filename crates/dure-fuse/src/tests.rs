mod snapshots;
mod trim;

use std::cell::RefCell;
use std::collections::BTreeSet;

use dure_block::ram::RamDevice;
use dure_block::{Device, share};
use dure_check::{CheckOptions, check};
use dure_fs::{Background, FileSystem, FormatOptions, MountOptions};
use dure_sync::Arc;
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

use crate::nodes::ino_of;
use crate::protocol::opcode as op;
use crate::protocol::reply::{CopyOut, Dirent, EntryOut, OpenOut, OutHeader, StatxOut, WriteOut};
use crate::protocol::request::InHeader;
use crate::protocol::{ROOT, parse};
use crate::server::Server;
use crate::service::{Question, answer};
use crate::transport::buffer::Reply;
use crate::{MountSettings, MountedVolume, WriteCache};

/// The bytes of a request, where a worker would have them.
#[derive(Debug, Clone)]
pub(crate) struct Bytes {
    words: Vec<u64>,
    len: usize,
}

impl Bytes {
    fn of(bytes: &[u8]) -> Bytes {
        let mut words = vec![0; bytes.len().div_ceil(8)];
        words.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
        Bytes {
            words,
            len: bytes.len(),
        }
    }

    pub(crate) fn get(&self) -> &[u8] {
        &self.words.as_bytes()[..self.len]
    }
}

/// The request `opcode` about `node` with `parts` behind the header.
pub(crate) fn request(opcode: u32, node: u64, parts: &[&[u8]]) -> Bytes {
    request_of(1000, opcode, node, parts)
}

/// Like [`request`], of another user.
fn request_of(uid: u32, opcode: u32, node: u64, parts: &[&[u8]]) -> Bytes {
    let body = parts.concat();
    let header = InHeader {
        len: u32::try_from(size_of::<InHeader>() + body.len()).unwrap(),
        opcode,
        unique: 77,
        node,
        uid,
        gid: 100,
        pid: 4711,
        extensions: 0,
        reserved: 0,
    };
    Bytes::of(&[header.as_bytes(), &body].concat())
}

/// A server of a volume in memory, without a kernel.
pub(crate) struct World {
    ram: Arc<RamDevice>,
    pub(crate) mounted: MountedVolume,
    reply: Reply,
    /// Nodes that the kernel would say it knows.
    pub(crate) known: BTreeSet<u64>,
}

impl World {
    fn new() -> World {
        World::with(4096, &MountSettings::default())
    }

    /// On a volume of so many blocks.
    fn with(blocks: u64, settings: &MountSettings) -> World {
        let ram = Arc::new(RamDevice::new("fuse", blocks));
        let format = FormatOptions {
            journals: Some(2),
            ..FormatOptions::default()
        };
        FileSystem::format(share(ram.clone()), &format).unwrap();
        World::on(share(ram.clone()), ram, settings)
    }

    /// On the volume of `device`, which is `ram` or stands before it.
    pub(crate) fn on(
        device: Arc<dyn Device>,
        ram: Arc<RamDevice>,
        settings: &MountSettings,
    ) -> World {
        let options = MountOptions {
            background: Background::None,
            ..MountOptions::default()
        };
        let volume = FileSystem::open(device, options).unwrap();
        World {
            mounted: MountedVolume::new(volume, settings),
            ram,
            reply: Reply::new(),
            known: BTreeSet::new(),
        }
    }

    /// The error and what follows, if there is a reply. It must be a whole one.
    pub(crate) fn ask(&mut self, request: &Bytes) -> Option<(i32, Vec<u8>)> {
        let known = self.known.clone();
        let knows = move |question| match question {
            Question::Inode(node) | Question::Pages { node, .. } => known.contains(&node),
            Question::Name { .. } | Question::Removed { .. } => unreachable!("not of a request"),
        };
        let bytes = answer(
            &*self.mounted.0,
            &knows,
            parse(request.get()),
            &mut self.reply,
        )?;
        let (header, body) = OutHeader::read_from_prefix(bytes).unwrap();
        assert_eq!(header.unique, 77);
        assert_eq!(usize::try_from(header.len), Ok(bytes.len()));
        assert!(header.error <= 0 && (header.error == 0 || body.is_empty()));
        Some((-header.error, body.to_vec()))
    }

    pub(crate) fn done(&mut self, opcode: u32, node: u64, parts: &[&[u8]]) -> Vec<u8> {
        let (errno, body) = self.ask(&request(opcode, node, parts)).unwrap();
        assert_eq!(errno, 0, "operation {opcode}");
        body
    }

    pub(crate) fn errno(&mut self, opcode: u32, node: u64, parts: &[&[u8]]) -> i32 {
        self.ask(&request(opcode, node, parts)).unwrap().0
    }

    /// Creates a file; its node.
    pub(crate) fn create(&mut self, name: &[u8]) -> u64 {
        let made = [libc::S_IFREG | 0o644, 0, 0, 0];
        let body = self.done(op::MKNOD, ROOT, &[made.as_bytes(), name, b"\0"]);
        EntryOut::read_from_bytes(&body).unwrap().node
    }

    pub(crate) fn write(&mut self, node: u64, data: &[u8]) {
        let size = u32::try_from(data.len()).unwrap();
        let record = [&[0; 16], [size, 0].as_bytes(), &[0; 16]].concat();
        let body = self.done(op::WRITE, node, &[&record, data]);
        assert_eq!(WriteOut::read_from_bytes(&body).unwrap().size, size);
    }

    pub(crate) fn read(&mut self, node: u64, size: u32) -> Vec<u8> {
        let record = [&[0; 16], [size, 0].as_bytes(), &[0; 16]].concat();
        self.done(op::READ, node, &[&record])
    }

    /// Everything is written and in order.
    pub(crate) fn end(self) {
        self.mounted.0.forget_all();
        self.mounted.file_system().close().unwrap();
        let report = check(share(self.ram), &CheckOptions::default()).unwrap();
        assert!(report.issues().is_empty(), "{:#?}", report.issues());
    }
}

/// That the kernel collects writes is up to the mount; nobody has direct I/O side by side.
#[test]
fn neither_collected_writes_nor_direct_io_side_by_side_is_asked_for() {
    use crate::protocol::opcode::init;
    let wanted = crate::FEATURES.wanted;
    assert_eq!(wanted & (init::WRITEBACK_CACHE | init::ASYNC_DIO), 0);
}

fn write_record(offset: u64, size: usize, flags: u32) -> Vec<u8> {
    let size = u32::try_from(size).unwrap();
    let place = [0, offset];
    [place.as_bytes(), [size, flags].as_bytes(), &[0; 16]].concat()
}

/// On a volume that has room for a part of a request.
#[test]
fn pages_of_the_kernels_cache_are_taken_wholly_or_refused() {
    for write_cache in [WriteCache::Through, WriteCache::Back] {
        let settings = MountSettings {
            write_cache,
            ..MountSettings::default()
        };
        let mut world = World::with(4096, &settings);
        let node = world.create(b"fill");
        let data = vec![7; 1 << 20];
        let write = |world: &mut World, node, offset: u64, len: usize, flags| {
            let record = write_record(offset, len, flags);
            let asked = request(op::WRITE, node, &[&record, &data[..len]]);
            let (errno, body) = world.ask(&asked).unwrap();
            if errno == 0 {
                let size = WriteOut::read_from_bytes(&body).unwrap().size;
                assert_eq!(usize::try_from(size), Ok(len));
            }
            errno
        };
        // Until there is no room for a page.
        let mut end = 0;
        for len in [1 << 20, 4096] {
            let errno = loop {
                match write(&mut world, node, end, len, 0) {
                    0 => end += u64::try_from(len).unwrap(),
                    errno => break errno,
                }
            };
            assert_eq!(errno, libc::ENOSPC);
            let body = world.done(op::STATX, node, &[&[0; 24]]);
            let size = StatxOut::read_from_bytes(&body).unwrap().size;
            assert_eq!(size, end, "what was refused changed nothing");
        }
        // Some room, less than a request needs.
        let mut set = [0_u8; 88];
        set[..4].copy_from_slice(op::setattr::SIZE.as_bytes());
        set[16..24].copy_from_slice((end - (512 << 10)).as_bytes());
        world.done(op::SETATTR, node, &[&set]);
        let cached = world.create(b"cached");
        for flags in [0, op::WRITE_CACHE] {
            let errno = write(&mut world, cached, 0, data.len(), flags);
            assert_eq!(errno, libc::ENOSPC, "{write_cache:?}");
        }
        let record = write_record(0, 4096, op::WRITE_CACHE);
        let body = world.done(op::WRITE, cached, &[&record, &data[..4096]]);
        assert_eq!(WriteOut::read_from_bytes(&body).unwrap().size, 4096);
        world.end();
    }
}

/// A shared mapping of a kernel that writes through leaves the times to the server.
#[test]
fn times_are_set_by_whoever_keeps_them() {
    for (write_cache, flags, sets) in [
        (WriteCache::Through, 0, true),
        (WriteCache::Through, op::WRITE_CACHE, true),
        (WriteCache::Back, op::WRITE_CACHE, false),
    ] {
        let settings = MountSettings {
            write_cache,
            ..MountSettings::default()
        };
        let mut world = World::with(4096, &settings);
        let node = world.create(b"timed");
        let mut set = [0_u8; 88];
        set[..4].copy_from_slice((op::setattr::MTIME | op::setattr::ATIME).as_bytes());
        world.done(op::SETATTR, node, &[&set]);
        let record = write_record(0, 4096, flags);
        world.done(op::WRITE, node, &[&record, &[1; 4096]]);
        let body = world.done(op::STATX, node, &[&[0; 24]]);
        let found = StatxOut::read_from_bytes(&body).unwrap();
        assert_eq!(found.mtime.secs > 0, sets, "{write_cache:?}, {flags}");
        world.end();
    }
}

/// The kernel has pages that dure has not: it sends them before a hole is claimed.
#[test]
fn a_hole_is_claimed_when_the_kernel_has_sent_its_pages() {
    let settings = MountSettings {
        write_cache: WriteCache::Back,
        ..MountSettings::default()
    };
    let mut world = World::with(4096, &settings);
    let node = world.create(b"sparse");
    let mut set = [0_u8; 88];
    set[..4].copy_from_slice(op::setattr::SIZE.as_bytes());
    set[16..24].copy_from_slice((1_u64 << 20).as_bytes());
    world.done(op::SETATTR, node, &[&set]);
    let body = world.done(op::STATX, node, &[&[0; 24]]);
    let blocks = StatxOut::read_from_bytes(&body).unwrap().blocks;
    assert_eq!(blocks, 1, "it may have pages");
    let server = Server::new(world.mounted.file_system(), &settings);
    let seek = |from, whence, page: Option<u64>| {
        let asked = RefCell::new(Vec::new());
        let answer = server.seek(node, from, whence, &|question| {
            let Question::Pages { bytes, .. } = question else {
                panic!("{question:?}");
            };
            if let Some(page) = page.filter(|page| bytes.contains(page)) {
                server.write_pages(node, page, &[7; 4096]).unwrap();
            }
            asked.borrow_mut().push(bytes);
            true
        });
        let asked = asked.into_inner();
        let asked: Vec<_> = asked.iter().map(|bytes| (bytes.start, bytes.end)).collect();
        (answer, asked)
    };
    let (data, hole) = (libc::SEEK_DATA, libc::SEEK_HOLE);
    let end = u64::MAX;
    assert_eq!(seek(0, data, None), (Err(libc::ENXIO), vec![(0, end)]));
    let expected = (Ok(8192), vec![(0, end), (0, 8192)]);
    assert_eq!(seek(5, data, Some(8192)), expected);
    let (found, asked) = seek(8192, hole, Some(12288));
    assert_eq!(
        (found, asked),
        (Ok(16384), vec![(12288, end), (16384, end)])
    );
    assert_eq!(seek(8192, data, None), (Ok(8192), vec![]), "data is data");
    // Behind what dure takes for the end.
    let (found, _) = seek(2 << 20, hole, Some(2 << 20));
    assert_eq!(found, Ok((2 << 20) + 4096));
    assert_eq!(seek(4 << 20, hole, None).0, Err(libc::ENXIO));
    assert_eq!(seek(0, 9, None), (Err(libc::EINVAL), vec![]));
    world.end();
}

/// Without this each call kept an entry of a ring while it waited for the kernel, and none was left
/// for the WRITEs that the kernel waited for.
#[test]
fn a_seek_does_not_wait_for_the_kernel_beside_another() {
    let settings = MountSettings {
        write_cache: WriteCache::Back,
        ..MountSettings::default()
    };
    let mut world = World::with(4096, &settings);
    let node = world.create(b"empty");
    let server = Server::new(world.mounted.file_system(), &settings);
    let seek = |asks: &dyn Fn(Question) -> bool| server.seek(node, 0, libc::SEEK_DATA, asks);
    let first = seek(&|_| {
        let second = seek(&|_| panic!("another asks"));
        assert_eq!(second, Err(libc::ENOSYS));
        true
    });
    assert_eq!(first, Err(libc::ENXIO), "it has asked");
    let later = seek(&|_| panic!("the kernel was told not to seek"));
    assert_eq!(later, Err(libc::ENOSYS));
    world.end();
}

#[test]
fn a_file_without_a_name_gets_one_by_link_or_goes() {
    let mut world = World::new();
    let made = [0_u32, libc::S_IFREG | 0o600, 0, 0];
    let unnamed = |world: &mut World| {
        let body = world.done(op::TMPFILE, ROOT, &[made.as_bytes(), b"/\0"]);
        let (entry, rest) = EntryOut::read_from_prefix(&body).unwrap();
        assert_eq!(rest.len(), size_of::<OpenOut>());
        assert_eq!((entry.attr.nlink, entry.attr.uid), (0, 1000));
        entry.node
    };
    let (kept, lost) = (unnamed(&mut world), unnamed(&mut world));
    world.write(kept, b"sown");
    world.write(lost, b"sown");
    let body = world.done(op::LINK, ROOT, &[kept.as_bytes(), b"name\0"]);
    let entry = EntryOut::read_from_bytes(&body).unwrap();
    assert_eq!((entry.node, entry.attr.nlink), (kept, 1));
    assert!(
        world
            .ask(&request(op::FORGET, lost, &[1_u64.as_bytes()]))
            .is_none()
    );
    assert_eq!(world.errno(op::GETATTR, lost, &[]), libc::ESTALE);
    assert_eq!(world.read(kept, 100), b"sown");
    world.end();
}

/// The kernel may have looked a name up again before a FORGET of its earlier lookups is read: the
/// inode stays until it says that it does not know it.
#[test]
fn an_unlinked_inode_stays_until_the_kernel_has_forgotten_it() {
    let mut world = World::new();
    let node = world.create(b"open");
    world.write(node, b"sown");
    world.known.insert(node);
    world.done(op::UNLINK, ROOT, &[b"open\0"]);
    let forget = request(op::FORGET, node, &[1_u64.as_bytes()]);
    assert!(world.ask(&forget).is_none());
    assert_eq!(world.read(node, 100), b"sown");
    world.known.clear();
    assert!(world.ask(&forget).is_none());
    assert_eq!(world.errno(op::GETATTR, node, &[]), libc::ESTALE);
    world.end();
}

/// What the kernel looks up needs no memory here: a node id is enough.
#[test]
fn a_node_that_has_a_name_is_found_without_being_kept() {
    let mut world = World::new();
    let node = world.create(b"named");
    world.write(node, b"sown");
    let forget = request(op::FORGET, node, &[1_u64.as_bytes()]);
    assert!(world.ask(&forget).is_none());
    assert_eq!(world.read(node, 100), b"sown", "as by an open file");
    world.end();
}

/// The next life of an inode number is another node.
#[test]
fn a_node_whose_inode_number_lives_again_is_stale() {
    let mut world = World::new();
    let node = world.create(b"first");
    world.done(op::UNLINK, ROOT, &[b"first\0"]);
    assert!(
        world
            .ask(&request(op::FORGET, node, &[1_u64.as_bytes()]))
            .is_none()
    );
    // The number that was freed last is used first.
    let again = world.create(b"second");
    assert_eq!(
        ino_of(again),
        ino_of(node),
        "the test wants the same number"
    );
    assert_ne!(again, node);
    assert_eq!(world.errno(op::GETATTR, node, &[]), libc::ESTALE);
    world.done(op::GETATTR, again, &[&[0; 16]]);
    world.end();
}

#[test]
fn birth_times_are_told() {
    let mut world = World::new();
    let node = world.create(b"born");
    let body = world.done(op::STATX, node, &[&[0; 24]]);
    let first = StatxOut::read_from_bytes(&body).unwrap();
    assert_eq!(first.mask & libc::STATX_BTIME, libc::STATX_BTIME);
    assert_eq!((first.nlink, first.uid, first.gid), (1, 1000, 100));
    assert!(first.btime.secs > 0);
    // utimens changes all but the birth.
    let mut set = [0_u8; 88];
    set[..4].copy_from_slice((op::setattr::MTIME | op::setattr::ATIME).as_bytes());
    world.done(op::SETATTR, node, &[&set]);
    let body = world.done(op::STATX, node, &[&[0; 24]]);
    let then = StatxOut::read_from_bytes(&body).unwrap();
    assert_eq!((then.mtime.secs, then.atime.secs), (0, 0));
    assert_eq!(then.btime.as_bytes(), first.btime.as_bytes());
    world.end();
}

#[test]
fn device_numbers_survive_both_forms_of_stat() {
    let mut world = World::new();
    let (major, minor) = (0xabc_u32, 0x98_7654_u32 & 0xf_ffff);
    let packed = minor & 0xff | major << 8 | (minor & !0xff) << 12;
    let made = [libc::S_IFBLK | 0o600, packed, 0, 0];
    let body = world.done(op::MKNOD, ROOT, &[made.as_bytes(), b"disk\0"]);
    let entry = EntryOut::read_from_bytes(&body).unwrap();
    assert_eq!(entry.attr.rdev, packed);
    let body = world.done(op::STATX, entry.node, &[&[0; 24]]);
    let attr = StatxOut::read_from_bytes(&body).unwrap();
    assert_eq!((attr.rdev_major, attr.rdev_minor), (major, minor));
    world.end();
}

#[test]
fn a_missing_name_may_be_believed() {
    let mut world = World::new();
    let body = world.done(op::LOOKUP, ROOT, &[b"nobody\0"]);
    let entry = EntryOut::read_from_bytes(&body).unwrap();
    assert_eq!(entry.node, 0);
    assert!(entry.entry_valid > 0);
    assert_eq!(world.errno(op::LOOKUP, 4_000_000, &[b"x\0"]), libc::ESTALE);
    world.end();
}

#[test]
fn syncfs_makes_everything_durable() {
    let mut world = World::new();
    let node = world.create(b"kept");
    world.write(node, b"sown");
    assert!(world.done(op::SYNCFS, ROOT, &[&[0; 8]]).is_empty());
    // What is on the device now, without a clean end.
    let copy = share(RamDevice::from_image("copy", &world.ram.snapshot()));
    let recovered = FileSystem::open(copy, MountOptions::default()).unwrap();
    let found = recovered
        .lookup(&recovered.root().unwrap(), b"kept")
        .unwrap();
    assert_eq!(recovered.attributes(&found.unwrap()).unwrap().size, 4);
    recovered.close().unwrap();
}

#[test]
fn copies_are_counted_in_both_widths() {
    let mut world = World::new();
    let (from, to) = (world.create(b"from"), world.create(b"to"));
    world.write(from, &[3; 5000]);
    for opcode in [op::COPY_FILE_RANGE, op::COPY_FILE_RANGE_64] {
        let range = [0, 1000, to, 0, 10, u64::MAX, 0];
        let body = world.done(opcode, from, &[range.as_bytes()]);
        let bytes = if opcode == op::COPY_FILE_RANGE {
            WriteOut::read_from_bytes(&body).unwrap().size.into()
        } else {
            CopyOut::read_from_bytes(&body).unwrap().bytes
        };
        assert_eq!(bytes, 4000);
    }
    assert_eq!(world.read(to, 9000), [&[0; 10][..], &[3; 4000]].concat());
    world.end();
}

#[test]
fn only_what_fits_is_listed() {
    let mut world = World::new();
    for index in 0..40 {
        world.create(format!("name-{index:02}").as_bytes());
    }
    let (mut position, mut seen) = (0_u64, Vec::new());
    loop {
        let size = 1000_u32;
        let record = [&[0; 8], position.as_bytes(), [size, 0].as_bytes(), &[0; 16]].concat();
        let mut body = &world.done(op::READDIRPLUS, ROOT, &[&record])[..];
        assert!(body.len() <= 1000);
        if body.is_empty() {
            break;
        }
        while !body.is_empty() {
            let (entry, rest) = EntryOut::read_from_prefix(body).unwrap();
            let (dirent, rest) = Dirent::read_from_prefix(rest).unwrap();
            let len = usize::try_from(dirent.name_len).unwrap();
            let name = &rest[..len];
            let dot = name == b"." || name == b"..";
            assert_eq!(entry.node, if dot { 0 } else { dirent.ino });
            seen.push(name.to_vec());
            position = dirent.next;
            body = &rest[len.next_multiple_of(8)..];
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 42);
    let record = [&[0; 16], [1 << 16, 0_u32].as_bytes(), &[0; 16]].concat();
    let names = world.done(op::READDIR, ROOT, &[&record]);
    assert_eq!(names.len(), 42 * 32);
    world.end();
}

#[test]
fn malformed_and_unknown_requests_are_answered() {
    let mut world = World::new();
    assert_eq!(world.errno(op::READ, ROOT, &[]), libc::EIO);
    assert_eq!(world.errno(op::LOOKUP, ROOT, &[b"no end"]), libc::EIO);
    assert_eq!(world.errno(op::INIT, 0, &[&[0; 16]]), libc::EIO);
    for opcode in [
        op::CREATE,
        op::OPEN,
        op::FLUSH,
        op::ACCESS,
        op::INTERRUPT,
        99,
    ] {
        assert_eq!(world.errno(opcode, ROOT, &[&[0; 24]]), libc::ENOSYS);
    }
    assert!(world.ask(&Bytes::of(&[1, 2, 3])).is_none());
    let node = world.create(b"f");
    let huge = [&[0; 16], [u32::MAX, 0].as_bytes(), &[0; 16]].concat();
    assert_eq!(world.errno(op::READ, node, &[&huge]), libc::EIO);
    world.end();
}

/// Gluster puts the number of a brick into the low bits of positions.
#[test]
fn a_directory_is_listed_once_also_by_who_cuts_the_low_bits_of_positions() {
    const NAMES: usize = 300;
    let mut world = World::new();
    for name in 0..NAMES {
        world.create(format!("n{name}").as_bytes());
    }
    for size in [64_u32, 300, 1 << 20] {
        let (mut position, mut names) = (0_u64, Vec::new());
        loop {
            let place = [0, position & !0x7fff];
            let place = if position < 3 { [0, position] } else { place };
            let record = [place.as_bytes(), [size, 0].as_bytes(), &[0; 16]].concat();
            let body = world.done(op::READDIR, ROOT, &[&record]);
            let mut rest = &body[..];
            if rest.is_empty() {
                break;
            }
            while !rest.is_empty() {
                let (entry, behind) = Dirent::read_from_prefix(rest).unwrap();
                let len = usize::try_from(entry.name_len).unwrap();
                names.push(behind[..len].to_vec());
                assert!(entry.next > position, "positions rise");
                position = entry.next;
                rest = &behind[len.next_multiple_of(8)..];
            }
            assert!(names.len() <= NAMES + 2, "an entry is listed again");
        }
        let unique: BTreeSet<_> = names.iter().collect();
        assert_eq!((names.len(), unique.len()), (NAMES + 2, NAMES + 2));
    }
    world.end();
}

/// Requests that mostly name something: the root or one of the first nodes, a handful of names.
fn wild() -> impl Strategy<Value = Bytes> {
    let opcode = prop_oneof![9 => 1_u32..54, 1 => any::<u32>()];
    let node = prop_oneof![3 => Just(ROOT), 5 => 0_u64..90, 1 => any::<u64>()];
    let number = prop_oneof![
        6 => 0_u64..100,
        2 => (0_u64..1 << 20).prop_map(|number| number & !4095),
        1 => Just(u64::MAX),
        1 => any::<u64>(),
    ];
    let names = prop::sample::select(vec![
        &b"a\0b\0"[..],
        b"a\0b\0",
        b"b\0a\0",
        b"user.x\0value",
        b".\0..\0",
        b"x/y\0\0",
        &[b'n'; 300],
    ]);
    // Records are 0 to 11 words long.
    let record = prop::collection::vec(number, 0..12);
    (opcode, node, record, names).prop_map(|(opcode, node, record, names)| {
        request(opcode, node, &[record.as_bytes(), names])
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Nothing panics, everything is answered but what must not be, and the volume is in order.
    #[test]
    fn any_requests_are_answered(requests in prop::collection::vec(wild(), 1..60)) {
        let mut world = World::new();
        for request in &requests {
            let (header, _) = InHeader::read_from_prefix(request.get()).unwrap();
            let answered = world.ask(request).is_some();
            let silent = [op::FORGET, op::BATCH_FORGET].contains(&header.opcode);
            prop_assert!(answered || silent, "operation {}", header.opcode);
        }
        world.end();
    }
}

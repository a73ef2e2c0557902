//! FITRIM, as fstrim(8) asks for it.

use zerocopy::IntoBytes;

use super::{Bytes, World, request, request_of};
use crate::protocol::ROOT;
use crate::protocol::opcode as op;

/// FITRIM, or another command, with what fstrim(8) sends: from where, how much, runs of what length.
fn trim_request(command: u32, uid: u32, range: [u64; 3]) -> Bytes {
    let head = [0, 0, 0, command, 0, 0, 24, 24];
    request_of(uid, op::IOCTL, ROOT, &[head.as_bytes(), range.as_bytes()])
}

#[test]
fn fstrim_tells_the_device_of_what_was_deleted() {
    let mut world = World::new();
    let node = world.create(b"file");
    world.write(node, &vec![7; 1 << 19]);
    world.done(op::FSYNC, node, &[&[0; 16]]);
    world.done(op::UNLINK, ROOT, &[b"file\0"]);
    assert_eq!(world.ask(&request(op::FORGET, node, &[&[1; 8]])), None);
    let range = [0_u64, u64::MAX, 1 << 12];
    let asked = |command: u32, uid| trim_request(command, uid, range);
    assert_eq!(
        world.ask(&asked(0xc018_5879, 1000)),
        Some((libc::EPERM, vec![]))
    );
    // FS_IOC_GETFLAGS, with more bytes than it has.
    assert_eq!(
        world.ask(&asked(0x8008_6601, 0)),
        Some((libc::ENOTTY, vec![]))
    );
    let (errno, body) = world.ask(&asked(0xc018_5879, 0)).unwrap();
    let (words, _) = body[16..].as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    assert_eq!(
        (errno, body[..16].iter().any(|byte| *byte != 0)),
        (0, false)
    );
    assert_eq!((words[0], words[2]), (0, 1 << 12));
    assert!(words[1] >= 1 << 19, "{words:?}");
    world.end();
}

/// It was "0 bytes trimmed".
#[test]
fn fstrim_of_nothing_is_refused_as_other_file_systems_do() {
    let mut world = World::new();
    let end = 4096 * 4096;
    let mut errno = |start, len| {
        let asked = trim_request(0xc018_5879, 0, [start, len, 0]);
        world.ask(&asked).unwrap().0
    };
    for (start, len) in [
        (end, u64::MAX),
        (2 * end, 4096),
        (u64::MAX, u64::MAX),
        (u64::MAX, 1),
        (0, 0),
        (0, 4095),
    ] {
        assert_eq!(errno(start, len), libc::EINVAL, "{len} bytes from {start}");
    }
    for (start, len) in [(0, 4096), (end - 1, u64::MAX), (4096, 2 * end)] {
        assert_eq!(errno(start, len), 0, "{len} bytes from {start}");
    }
    world.end();
}

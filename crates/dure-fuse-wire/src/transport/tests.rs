use super::Transport;
use super::buffer::{IO_BYTES, Reply, RequestBuffer, io_bytes};
use super::negotiate::{Features, Negotiated, negotiate, offers_rings};
use crate::protocol::MAJOR;
use crate::protocol::opcode::init;
use crate::protocol::reply::{EntryOut, OutHeader};
use crate::protocol::request::{InHeader, InitIn, WriteIn};

fn offer(minor: u32, flags: u32) -> InitIn {
    InitIn {
        major: MAJOR,
        minor,
        max_readahead: 1 << 17,
        flags,
    }
}

/// What a kernel has to offer.
const NEEDED: u32 = init::MAX_PAGES | init::HANDLE_KILLPRIV_V2 | init::SETXATTR_EXT;

/// What a service may ask for.
const FEATURES: Features = Features {
    needed: init::HANDLE_KILLPRIV_V2,
    wanted: init::WRITEBACK_CACHE,
    wanted_more: init::EXT_DIRECT_IO_ALLOW_MMAP,
    io_bytes: IO_BYTES,
};

#[test]
fn what_is_agreed_was_offered_and_asked_for() {
    for flags in [NEEDED, u32::MAX, NEEDED | init::WRITEBACK_CACHE] {
        let agreed = negotiate((&offer(45, flags), 0), &FEATURES, Transport::Device);
        let Ok(Negotiated::Agreed(out)) = agreed else {
            panic!("no agreement");
        };
        assert_eq!(out.flags & !flags, 0);
        assert_eq!(out.flags & NEEDED, NEEDED);
        assert_eq!(out.max_write, 1 << 20);
        assert_eq!(u32::from(out.max_pages) * 4096, out.max_write);
        assert!(out.congestion <= out.max_background);
        let same = |flag| out.flags & flag == flags & flag;
        assert!(same(init::WRITEBACK_CACHE), "asked for");
        assert_eq!(out.flags & init::ASYNC_DIO, 0, "nobody asked for it");
        assert_eq!((out.flags & init::EXT, out.flags2), (0, 0));
    }
}

/// The kernel sends nothing until the rings that are agreed are there.
#[test]
fn rings_are_agreed_where_they_are_offered_and_wanted() {
    let rings = init::EXT_OVER_IO_URING;
    assert!(offers_rings(&offer(45, NEEDED | init::EXT), rings));
    assert!(!offers_rings(&offer(45, NEEDED | init::EXT), !rings));
    assert!(!offers_rings(&offer(45, NEEDED), rings));
    let offered = offer(45, NEEDED | init::EXT);
    let mappings = init::EXT_DIRECT_IO_ALLOW_MMAP;
    for (transport, offered_more, more) in [
        (Transport::Device, rings, 0),
        (Transport::Device, u32::MAX, mappings),
        (Transport::Uring, rings, rings),
        (Transport::Uring, u32::MAX, mappings | rings),
    ] {
        let agreed = negotiate((&offered, offered_more), &FEATURES, transport);
        let Ok(Negotiated::Agreed(out)) = agreed else {
            panic!("no agreement");
        };
        let ext = if more == 0 { 0 } else { init::EXT };
        assert_eq!((out.flags & init::EXT, out.flags2), (ext, more));
    }
}

#[test]
fn a_small_cache_is_sent_small_requests() {
    for (cache, bytes) in [(0, 128 << 10), (16 << 20, 256 << 10), (u64::MAX, 1 << 20)] {
        let io_bytes = io_bytes(cache);
        let features = Features {
            io_bytes,
            ..FEATURES
        };
        let agreed = negotiate((&offer(45, NEEDED), 0), &features, Transport::Device);
        let Ok(Negotiated::Agreed(out)) = agreed else {
            panic!("no agreement");
        };
        assert_eq!(out.max_write, bytes);
        assert_eq!(u32::from(out.max_pages) * 4096, out.max_write);
    }
}

#[test]
fn old_kernels_are_refused_and_newer_ones_come_down_to_us() {
    let negotiate = |offer| negotiate((&offer, 0), &FEATURES, Transport::Device);
    assert!(negotiate(offer(32, u32::MAX)).is_err());
    assert!(negotiate(offer(33, u32::MAX)).is_ok());
    for missing in [init::SETXATTR_EXT, init::HANDLE_KILLPRIV_V2] {
        assert!(negotiate(offer(33, !missing)).is_err());
    }
    let mut later = offer(0, 0);
    later.major = MAJOR + 1;
    assert!(matches!(
        negotiate(later),
        Ok(Negotiated::Later(out)) if out.major == MAJOR
    ));
    let mut older = offer(99, 0);
    older.major = MAJOR - 1;
    assert!(negotiate(older).is_err());
}

#[test]
fn data_begin_at_a_page() {
    let mut buffer = RequestBuffer::new();
    let all = size_of::<InHeader>() + size_of::<WriteIn>() + IO_BYTES;
    assert_eq!(buffer.room().len(), all);
    let data = &buffer.filled(all)[all - IO_BYTES..];
    assert!(data.as_ptr().addr().is_multiple_of(4096));
    let mut reply = Reply::new();
    let fill = |room: &mut [u8]| {
        assert!(room.as_ptr().addr().is_multiple_of(4096));
        room.fill(7);
        Ok(room.len())
    };
    reply.fill(IO_BYTES, fill).unwrap();
    let sent = reply.finish(1, Ok(()));
    assert_eq!(sent.len(), size_of::<OutHeader>() + IO_BYTES);
    assert!(sent[size_of::<OutHeader>()..].iter().all(|byte| *byte == 7));
    assert_eq!(reply.fill(IO_BYTES + 1, |_| Ok(0)), Err(libc::EIO));
    assert_eq!(reply.fill(usize::MAX, |_| Ok(0)), Err(libc::EIO));
}

#[test]
fn an_error_carries_nothing_else() {
    let mut reply = Reply::new();
    reply.put(&EntryOut::default());
    assert_eq!(
        reply.finish(9, Err(libc::EIO)).len(),
        size_of::<OutHeader>()
    );
    assert!(reply.is_empty());
}

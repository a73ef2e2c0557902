//! Random sequences of calls. Paths come from few names, so that they collide; sizes lie around the
//! borders of pages, of the slots of an inode (24 pages) and of a map leaf (320 pages).

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use dure_sim::model::{
    AllocateKind, Flags, Kind, Operation, PAGE, RenameKind, SLOTS, Step, Whence, Who, XattrKind,
};

const MODES: [u32; 9] = [
    0o777, 0o755, 0o700, 0o666, 0o644, 0o600, 0o1777, 0o2775, 0o6755,
];

/// Sequences of `count` calls.
pub(crate) fn steps(
    count: impl Into<proptest::collection::SizeRange>,
) -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(step(), count)
}

/// The sequence of `count` calls that belongs to `seed`.
#[must_use]
pub(crate) fn sequence(seed: u64, count: usize) -> Vec<Step> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    steps(count)
        .new_tree(&mut runner)
        .expect("nothing is rejected")
        .current()
}

fn step() -> impl Strategy<Value = Step> {
    let who = prop_oneof![6 => Just(Who::Root), 2 => Just(Who::Alice), 1 => Just(Who::Bob)];
    (who, operation()).prop_map(|(who, operation)| Step { who, operation })
}

fn name() -> impl Strategy<Value = String> {
    let short = prop::sample::select(vec!["a", "b", "c", "d"]);
    let dots = prop::sample::select(vec![".", ".."]);
    let long = prop::sample::select(vec![254_usize, 255, 256]);
    prop_oneof![
        90 => short.prop_map(str::to_owned),
        4 => dots.prop_map(str::to_owned),
        2 => long.prop_map(|len| "n".repeat(len)),
    ]
}

fn path() -> impl Strategy<Value = String> {
    let depth = prop_oneof![5 => Just(1_usize), 4 => Just(2), 1 => Just(3)];
    let names = depth.prop_flat_map(|depth| proptest::collection::vec(name(), depth));
    (names, 0..100_u32).prop_map(|(names, form)| {
        let path = names.join("/");
        match form {
            0..4 => format!("{path}/"),
            4..10 => format!("/{path}"),
            10 => "/".to_owned(),
            11 => String::new(),
            _ => path,
        }
    })
}

/// Sizes and offsets.
fn size() -> impl Strategy<Value = u64> {
    let borders = [0, 1, PAGE, 2 * PAGE, 24 * PAGE, 320 * PAGE, 344 * PAGE];
    let near = (prop::sample::select(borders.to_vec()), 0..3_u64)
        .prop_map(|(border, delta)| (border + delta).saturating_sub(1));
    prop_oneof![
        12 => near,
        4 => 0..30 * PAGE,
        1 => Just(1 << 32),
        1 => Just((320 * 448 + 24) * PAGE - 1),
    ]
}

/// Lengths of reads and writes.
fn len() -> impl Strategy<Value = u64> {
    let lens = vec![0, 1, 100, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE + 5, 8 * PAGE];
    prop_oneof![
        12 => prop::sample::select(lens),
        3 => 0..3 * PAGE,
        1 => Just(25 * PAGE),
    ]
}

fn mode() -> impl Strategy<Value = u32> {
    prop::sample::select(MODES.to_vec())
}

fn flags() -> impl Strategy<Value = Flags> {
    let usual = Flags {
        read: true,
        write: true,
        create: true,
        ..Flags::default()
    };
    let any = (any::<[bool; 3]>(), any::<[bool; 3]>(), 0..8_u32, 0..8_u32).prop_map(
        |([read, write, create], [exclusive, truncate, append], directory, no_follow)| Flags {
            read,
            write,
            append: append && !write,
            create,
            exclusive: exclusive && create,
            truncate,
            directory: directory == 0,
            no_follow: no_follow == 0,
        },
    );
    prop_oneof![
        4 => Just(usual),
        1 => Just(Flags { read: true, ..Flags::default() }),
        1 => Just(Flags { append: true, create: true, ..Flags::default() }),
        3 => any,
    ]
}

fn slot() -> impl Strategy<Value = usize> {
    // Few descriptors are hit often.
    prop_oneof![3 => Just(0), 2 => Just(1), 1 => 2..SLOTS]
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        14 => open(),
        26 => content(),
        36 => names(),
        16 => attributes(),
        6 => xattrs(),
        1 => Just(Operation::Sync),
        1 => prop_oneof![Just(Operation::Remount), Just(Operation::Crash)],
    ]
}

fn open() -> impl Strategy<Value = Operation> {
    prop_oneof![
        12 => (slot(), path(), flags(), mode()).prop_map(|(slot, path, flags, mode)| {
            Operation::Open { slot, path, flags, mode }
        }),
        1 => (slot(), path(), mode())
            .prop_map(|(slot, path, mode)| Operation::Temporary { slot, path, mode }),
        1 => slot().prop_map(|slot| Operation::Close { slot }),
        1 => (slot(), path()).prop_map(|(slot, path)| Operation::LinkSlot { slot, path }),
    ]
}

fn content() -> impl Strategy<Value = Operation> {
    let whence = prop::sample::select(vec![
        Whence::Set,
        Whence::Current,
        Whence::End,
        Whence::Data,
        Whence::Hole,
    ]);
    let kind = prop::sample::select(vec![
        AllocateKind::Extend,
        AllocateKind::KeepSize,
        AllocateKind::Punch,
        AllocateKind::Zero,
    ]);
    let offset = (size(), any::<bool>()).prop_map(|(size, back)| {
        let offset = i64::try_from(size).expect("small");
        if back { -offset } else { offset }
    });
    prop_oneof![
        8 => (slot(), size(), len(), any::<u8>()).prop_map(|(slot, offset, len, fill)| {
            Operation::Write { slot, offset, len, fill }
        }),
        4 => (slot(), len(), any::<u8>())
            .prop_map(|(slot, len, fill)| Operation::WriteNext { slot, len, fill }),
        4 => (slot(), size(), len())
            .prop_map(|(slot, offset, len)| Operation::Read { slot, offset, len }),
        2 => (slot(), len()).prop_map(|(slot, len)| Operation::ReadNext { slot, len }),
        3 => (slot(), whence, offset)
            .prop_map(|(slot, whence, offset)| Operation::Seek { slot, whence, offset }),
        4 => (slot(), size()).prop_map(|(slot, size)| Operation::Truncate { slot, size }),
        4 => (slot(), kind, size(), len()).prop_map(|(slot, kind, offset, len)| {
            Operation::Allocate { slot, kind, offset, len }
        }),
        2 => slot().prop_map(|slot| Operation::StatSlot { slot }),
        3 => (slot(), any::<bool>())
            .prop_map(|(slot, data_only)| Operation::Fsync { slot, data_only }),
    ]
}

fn names() -> impl Strategy<Value = Operation> {
    let special = prop::sample::select(vec![
        Kind::File,
        Kind::Fifo,
        Kind::Socket,
        Kind::Character,
        Kind::Block,
    ]);
    let rename = prop::sample::select(vec![
        RenameKind::Replace,
        RenameKind::Replace,
        RenameKind::NoReplace,
        RenameKind::Exchange,
    ]);
    prop_oneof![
        8 => (path(), mode()).prop_map(|(path, mode)| Operation::Mkdir { path, mode }),
        2 => (path(), special, mode())
            .prop_map(|(path, kind, mode)| Operation::Mknod { path, kind, mode }),
        4 => (path(), path()).prop_map(|(target, path)| Operation::Symlink { target, path }),
        5 => (path(), path()).prop_map(|(from, to)| Operation::Link { from, to }),
        6 => path().prop_map(|path| Operation::Unlink { path }),
        4 => path().prop_map(|path| Operation::Rmdir { path }),
        10 => (path(), path(), rename)
            .prop_map(|(from, to, kind)| Operation::Rename { from, to, kind }),
        2 => path().prop_map(|path| Operation::ReadLink { path }),
        3 => path().prop_map(|path| Operation::ReadDirectory { path }),
    ]
}

fn attributes() -> impl Strategy<Value = Operation> {
    let owner = prop::sample::select(vec![
        (Some(1000), None),
        (Some(1000), Some(100)),
        (None, Some(100)),
        (None, Some(101)),
        (Some(0), Some(0)),
    ]);
    prop_oneof![
        5 => (path(), any::<bool>())
            .prop_map(|(path, follow)| Operation::Stat { path, follow }),
        3 => (path(), size()).prop_map(|(path, size)| Operation::TruncatePath { path, size }),
        3 => (path(), mode()).prop_map(|(path, mode)| Operation::Chmod { path, mode }),
        3 => (path(), owner, any::<bool>()).prop_map(|(path, (uid, gid), follow)| {
            Operation::Chown { path, uid, gid, follow }
        }),
        2 => (path(), -5_000_000_000..5_000_000_000_i64, 0..1_000_000_000_u32)
            .prop_map(|(path, secs, nanos)| Operation::SetTime { path, secs, nanos }),
        1 => (path(), 0..8_u32).prop_map(|(path, want)| Operation::Access { path, want }),
    ]
}

fn xattrs() -> impl Strategy<Value = Operation> {
    let name = || prop::sample::select(vec!["user.a", "user.b", "user.c", "trusted.t"]);
    let kind = prop::sample::select(vec![
        XattrKind::Any,
        XattrKind::Any,
        XattrKind::Create,
        XattrKind::Replace,
    ]);
    let len = prop::sample::select(vec![0_usize, 1, 30, 255, 4000, 5000]);
    prop_oneof![
        4 => (path(), name(), len, any::<u8>(), kind).prop_map(|(path, name, len, fill, kind)| {
            Operation::SetXattr { path, name: name.to_owned(), len, fill, kind }
        }),
        2 => (path(), name())
            .prop_map(|(path, name)| Operation::GetXattr { path, name: name.to_owned() }),
        1 => (path(), name())
            .prop_map(|(path, name)| Operation::RemoveXattr { path, name: name.to_owned() }),
        1 => path().prop_map(|path| Operation::ListXattr { path }),
    ]
}

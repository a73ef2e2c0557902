use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

use super::opcode as op;
use super::operation::{CopyForm, ListForm};
use super::request::InHeader;
use super::*;

/// The bytes of a request, where a worker would have them.
#[derive(Debug, Clone)]
pub(crate) struct Bytes {
    words: Vec<u64>,
    len: usize,
}

impl Bytes {
    pub(crate) fn of(bytes: &[u8]) -> Bytes {
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

    /// The first `len` bytes as a request of their own, which says that it is that long.
    fn cut(&self, len: usize) -> Bytes {
        let mut cut = Bytes::of(&self.get()[..len]);
        if let Some(said) = cut.words.as_mut_bytes().get_mut(..4) {
            let len = u32::try_from(len).unwrap();
            said.copy_from_slice(len.as_bytes());
        }
        cut
    }
}

/// The request `opcode` about `node` with `parts` behind the header.
pub(crate) fn request(opcode: u32, node: u64, parts: &[&[u8]]) -> Bytes {
    let body = parts.concat();
    let header = InHeader {
        len: u32::try_from(size_of::<InHeader>() + body.len()).unwrap(),
        opcode,
        unique: 77,
        node,
        uid: 1000,
        gid: 100,
        pid: 4711,
        extensions: 0,
        reserved: 0,
    };
    Bytes::of(&[header.as_bytes(), &body].concat())
}

/// A well-formed request of every operation, and the fewest bytes behind its header.
fn all() -> Vec<(u32, Vec<u8>, usize)> {
    let zeroes = |len: usize| vec![0; len];
    let named = |record: usize, names: &[u8]| ([zeroes(record), names.to_vec()].concat(), record);
    let fixed = |opcode, len| (opcode, zeroes(len), len);
    let mut all = vec![
        fixed(op::INIT, 16),
        fixed(op::DESTROY, 0),
        fixed(op::INTERRUPT, 0),
        fixed(op::FORGET, 8),
        fixed(op::GETATTR, 0),
        fixed(op::STATX, 0),
        fixed(op::SETATTR, 88),
        fixed(op::READLINK, 0),
        fixed(op::READ, 40),
        fixed(op::READDIR, 40),
        fixed(op::READDIRPLUS, 40),
        fixed(op::FSYNC, 16),
        fixed(op::FSYNCDIR, 0),
        fixed(op::SYNCFS, 0),
        fixed(op::STATFS, 0),
        fixed(op::LISTXATTR, 8),
        fixed(op::FALLOCATE, 32),
        fixed(op::LSEEK, 24),
        fixed(op::COPY_FILE_RANGE, 56),
        fixed(op::COPY_FILE_RANGE_64, 56),
        fixed(op::OPEN, 8),
        fixed(op::OPENDIR, 0),
        fixed(op::RELEASE, 24),
        fixed(op::RELEASEDIR, 0),
        fixed(op::TMPFILE, 16),
    ];
    let with_names: [(u32, usize, &[u8]); 11] = [
        (op::LOOKUP, 0, b"name\0"),
        (op::SYMLINK, 0, b"name\0to/there\0"),
        (op::MKNOD, 16, b"name\0"),
        (op::MKDIR, 8, b"name\0"),
        (op::UNLINK, 0, b"name\0"),
        (op::RMDIR, 0, b"name\0"),
        (op::RENAME, 8, b"old\0new\0"),
        (op::RENAME2, 16, b"old\0new\0"),
        (op::LINK, 8, b"name\0"),
        (op::GETXATTR, 8, b"user.x\0"),
        (op::REMOVEXATTR, 0, b"user.x\0"),
    ];
    for (opcode, record, names) in with_names {
        let (body, record) = named(record, names);
        all.push((opcode, body, record + names.len()));
    }
    let set = [[3_u32, 0, 0, 0].as_bytes(), b"user.x\0abc"].concat();
    all.push((op::SETXATTR, set.clone(), set.len()));
    let mut write = zeroes(40);
    write[16] = 5;
    write.extend(b"sown!");
    all.push((op::WRITE, write, 45));
    let forgets = [2_u64, 10, 1, 11, 2].as_bytes().to_vec();
    all.push((op::BATCH_FORGET, forgets, 40));
    all
}

#[test]
fn every_operation_is_recognized_and_needs_all_of_its_bytes() {
    for (opcode, body, least) in all() {
        let bytes = request(opcode, 5, &[&body]);
        let parsed = parse(bytes.get()).unwrap();
        assert_eq!((parsed.unique, parsed.node), (77, 5));
        assert_eq!((parsed.uid, parsed.gid), (1000, 100));
        assert!(
            !matches!(parsed.operation, Operation::Unserved(_)),
            "operation {opcode}"
        );
        for len in 0..bytes.get().len() {
            let cut = bytes.cut(len);
            let parsed = parse(cut.get());
            let enough = len >= size_of::<InHeader>() + least;
            assert_eq!(parsed.is_ok(), enough, "operation {opcode}, {len} bytes");
            if let Err(malformed) = parsed {
                let known = (len >= size_of::<InHeader>()).then_some(77);
                assert_eq!(malformed.unique, known);
            }
        }
    }
}

#[test]
fn what_a_request_says_is_what_is_parsed() {
    let bytes = request(op::RENAME2, 1, &[[9_u64, 1].as_bytes(), b"a\0bc\0"]);
    let Operation::Rename {
        name,
        to,
        to_name,
        flags,
    } = parse(bytes.get()).unwrap().operation
    else {
        panic!("no rename");
    };
    assert_eq!((name, to, to_name, flags), (&b"a"[..], 9, &b"bc"[..], 1));

    let made = [0o020_644_u32, 7, 0o22, 0];
    let bytes = request(op::MKNOD, 1, &[made.as_bytes(), b"f\0"]);
    let parsed = parse(bytes.get()).unwrap();
    let Operation::Create {
        name,
        mode,
        umask,
        rdev,
    } = parsed.operation
    else {
        panic!("no creation");
    };
    assert_eq!((name, mode, umask, rdev), (&b"f"[..], 0o020_644, 0o22, 7));

    let made = [0_u32, 0o100_644, 0o22, 0];
    let bytes = request(op::TMPFILE, 1, &[made.as_bytes(), b"f\0"]);
    let parsed = parse(bytes.get()).unwrap();
    let Operation::CreateUnnamed { mode, umask } = parsed.operation else {
        panic!("no creation");
    };
    assert_eq!((mode, umask), (0o100_644, 0o22));

    let write = [0_u64, 4096].as_bytes().to_vec();
    let sizes = [3_u32, op::WRITE_CACHE];
    let flags = [0, 0, (libc::O_WRONLY | libc::O_APPEND).cast_unsigned(), 0];
    let bytes = request(
        op::WRITE,
        8,
        &[&write, sizes.as_bytes(), flags.as_bytes(), b"abcdef"],
    );
    let parsed = parse(bytes.get()).unwrap();
    assert!(
        matches!(
            parsed.operation,
            Operation::Write {
                offset: 4096,
                data: b"abc",
                cached: true,
                drops_set_id: false,
                appends: true,
            }
        ),
        "{parsed:?}"
    );
}

#[test]
fn forms_of_one_operation_are_told_apart() {
    let list = |opcode| match parse(request(opcode, 1, &[&[0; 40]]).get()) {
        Ok(Request {
            operation: Operation::ReadDirectory { form, .. },
            ..
        }) => form,
        other => panic!("{other:?}"),
    };
    assert_eq!(list(op::READDIR), ListForm::Names);
    assert_eq!(list(op::READDIRPLUS), ListForm::Attributes);
    let copy = |opcode| match parse(request(opcode, 1, &[&[0; 56]]).get()) {
        Ok(Request {
            operation: Operation::Copy { form, .. },
            ..
        }) => form,
        other => panic!("{other:?}"),
    };
    assert_eq!(copy(op::COPY_FILE_RANGE), CopyForm::Short);
    assert_eq!(copy(op::COPY_FILE_RANGE_64), CopyForm::Long);
}

#[test]
fn extensions_are_no_part_of_the_names() {
    let mut bytes = request(op::LOOKUP, 1, &[b"name", &[0; 8]]);
    bytes.words.as_mut_bytes()[36] = 1;
    // The zero byte was in the extension.
    assert_eq!(parse(bytes.get()).unwrap_err().what, "a name without end");
    bytes.words.as_mut_bytes()[36] = 200;
    assert_eq!(
        parse(bytes.get()).unwrap_err().what,
        "extensions longer than itself"
    );
}

#[test]
fn empty_names_and_wrong_lengths_are_malformed() {
    for opcode in [op::LOOKUP, op::UNLINK, op::REMOVEXATTR] {
        let bytes = request(opcode, 1, &[b"\0"]);
        assert_eq!(parse(bytes.get()).unwrap_err().what, "an empty name");
    }
    let bytes = request(op::GETATTR, 1, &[&[0; 16]]);
    let longer = Bytes::of(&[bytes.get(), &[0]].concat());
    assert_eq!(
        parse(longer.get()).unwrap_err().what,
        "not as long as it says"
    );
    let count = u32::MAX;
    let bytes = request(op::BATCH_FORGET, 0, &[count.as_bytes(), &[0; 100]]);
    assert_eq!(
        parse(bytes.get()).unwrap_err().what,
        "fewer nodes than said"
    );
}

#[test]
fn unknown_operations_are_not_served() {
    for opcode in [0, 7, op::CREATE, op::ACCESS, 40, 54, u32::MAX] {
        let bytes = request(opcode, 1, &[&[0; 64]]);
        let parsed = parse(bytes.get()).unwrap();
        assert!(matches!(parsed.operation, Operation::Unserved(code) if code == opcode));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Nothing panics, and what is parsed lies within the request.
    #[test]
    fn any_bytes_are_parsed_or_malformed(
        opcode in prop_oneof![4 => 0_u32..56, 1 => any::<u32>()],
        extensions in prop_oneof![3 => Just(0_u16), 1 => 0_u16..8, 1 => any::<u16>()],
        body in prop::collection::vec(prop_oneof![2 => Just(0_u8), 1 => any::<u8>()], 0..200),
        shift in 0_usize..3,
    ) {
        let mut bytes = request(opcode, 1, &[&body]);
        bytes.words.as_mut_bytes()[36..38].copy_from_slice(extensions.as_bytes());
        if let Ok(parsed) = parse(bytes.get())
            && let Operation::Write { data, .. } = parsed.operation
        {
            prop_assert!(bytes.get().as_ptr_range().contains(&data.as_ptr()) || data.is_empty());
        }
        // At another address it is refused.
        let shifted = Bytes::of(&[&vec![0; shift][..], bytes.get()].concat());
        let parsed = parse(&shifted.get()[shift..]);
        prop_assert!(shift == 0 || parsed.is_err());
    }

    #[test]
    fn noise_is_no_request(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let bytes = Bytes::of(&bytes);
        if let Ok(header) = InHeader::ref_from_prefix(bytes.get()) {
            prop_assume!(usize::try_from(header.0.len) != Ok(bytes.get().len()));
        }
        prop_assert!(parse(bytes.get()).is_err());
    }
}

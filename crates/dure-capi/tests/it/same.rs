//! What calls of C do is what calls of the library do.

use std::ffi::{CStr, CString, c_void};
use std::mem::MaybeUninit;

use dure::{MountOptions, Volume};
use dure_c::*;

/// A buffer as C passes it.
fn to(bytes: &mut [u8]) -> (Target, usize) {
    // SAFETY: each call below passes this length with it, while `bytes` is borrowed.
    let target = unsafe { Target::new(bytes.as_mut_ptr().cast::<c_void>()) };
    (target, bytes.len())
}

fn from(bytes: &[u8]) -> (Source, usize) {
    // SAFETY: each call below passes this length with it, while `bytes` is borrowed.
    let source = unsafe { Source::new(bytes.as_ptr().cast::<c_void>()) };
    (source, bytes.len())
}

/// What a call returned through its last argument; it must succeed.
fn made<T>(call: impl FnOnce(&mut MaybeUninit<Option<Box<T>>>) -> i32) -> Box<T> {
    let mut place = MaybeUninit::new(None);
    assert_eq!(call(&mut place), 0, "{}", last_error());
    // SAFETY: it was set before the call.
    unsafe { place.assume_init() }.unwrap()
}

fn found<T: Default>(call: impl FnOnce(&mut MaybeUninit<T>) -> i32) -> T {
    let mut place = MaybeUninit::new(T::default());
    assert!(call(&mut place) >= 0, "{}", last_error());
    // SAFETY: it was set before the call.
    unsafe { place.assume_init() }
}

fn last_error() -> String {
    // SAFETY: the text stays until the next failure of this thread.
    let text = unsafe { CStr::from_ptr(dure_last_error()) };
    text.to_string_lossy().into_owned()
}

fn text(text: &str) -> CString {
    CString::new(text).unwrap()
}

struct Scene {
    folder: tempfile::TempDir,
    volume: Box<dure_volume>,
    session: Box<dure_session>,
}

impl Scene {
    fn new() -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let path = text(folder.path().join("v.img").to_str().unwrap());
        let volume = made(|place| {
            let (path, none) = (Text::from(&*path), Text::NULL);
            dure_volume_create(path, 64 << 20, none, none, Some(place))
        });
        let session = Scene::session(&volume, 0);
        Scene {
            folder,
            volume,
            session,
        }
    }

    fn session(volume: &dure_volume, uid: u32) -> Box<dure_session> {
        let (groups, len) = from(&[]);
        made(|place| dure_session_open(Some(volume), uid, uid, groups, len, 0o022, Some(place)))
    }

    fn open(&self, path: &str, flags: i32) -> Box<dure_file> {
        let path = text(path);
        made(|place| {
            dure_open(
                Some(&self.session),
                Text::from(&*path),
                flags,
                0o666,
                Some(place),
            )
        })
    }

    fn stat(&self, path: &str) -> dure_stat {
        let path = text(path);
        found(|place| dure_lstat(Some(&self.session), Text::from(&*path), Some(place)))
    }

    /// Closes it, and opens it as the library does.
    fn reopened(self) -> (tempfile::TempDir, Volume) {
        assert_eq!(dure_session_close(Some(self.session)), 0);
        assert_eq!(dure_volume_close(Some(self.volume)), 0);
        let volume = Volume::open(self.folder.path().join("v.img"), MountOptions::default());
        (self.folder, volume.unwrap())
    }
}

#[test]
fn what_c_writes_the_library_reads() {
    let scene = Scene::new();
    let file = scene.open("/file", libc::O_RDWR | libc::O_CREAT);
    let (bytes, len) = from(b"sown together");
    assert_eq!(dure_write(Some(&file), bytes, len), 13);
    let (bytes, len) = from(b"S");
    assert_eq!(dure_pwrite(Some(&file), bytes, len, 0), 1);
    assert_eq!(dure_lseek(Some(&file), -8, libc::SEEK_END), 5);
    let mut read = [0; 20];
    let (place, len) = to(&mut read);
    assert_eq!(dure_read(Some(&file), place, len), 8);
    assert_eq!(&read[..8], b"together");
    assert_eq!(dure_ftruncate(Some(&file), 100_000), 0);
    assert_eq!(dure_lseek(Some(&file), 0, libc::SEEK_HOLE), 4096);
    assert_eq!(dure_fallocate(Some(&file), 0, 0, 8192), 0);
    let mut offset = 0_i64;
    let mut at = 50_000_i64;
    let copied = dure_copy_file_range(
        Some(&file),
        Some(&mut offset),
        Some(&file),
        Some(&mut at),
        4,
        0,
    );
    assert_eq!((copied, offset, at), (4, 4, 50_004));
    let stat = scene.stat("/file");
    assert_eq!(dure_fsync(Some(&file)), 0);
    assert_eq!(dure_close(Some(file)), 0);
    let (_folder, volume) = scene.reopened();
    let bytes = volume.root().read("/file").unwrap();
    assert_eq!(bytes.len(), 100_000);
    assert!(bytes.starts_with(b"Sown together\0") && bytes[50_000..].starts_with(b"Sown\0"));
    let metadata = volume.root().metadata("/file").unwrap();
    assert_eq!((stat.ino, stat.mode), (metadata.ino(), 0o100_644));
    assert_eq!(stat.btime, metadata.created().into());
    assert_eq!(stat.mtime, metadata.modified().into());
}

#[test]
fn ranges_are_cloned_and_shared_if_they_are_the_same() {
    let scene = Scene::new();
    let [one, two] = [c"/one", c"/two"].map(|name| {
        let file = scene.open(name.to_str().unwrap(), libc::O_RDWR | libc::O_CREAT);
        let (bytes, len) = from(&[7; 20_000]);
        assert_eq!(dure_write(Some(&file), bytes, len), 20_000);
        file
    });
    let (one, two) = (Some(&*one), Some(&*two));
    let dedupe = |len: i64| {
        let mut differs = MaybeUninit::new(7);
        let same = dure_dedupe_range(one, 0, two, 0, len, Some(&mut differs));
        // SAFETY: it was set before the call.
        (same, unsafe { differs.assume_init() })
    };
    assert_eq!(dedupe(20_000), (20_000, 0));
    let (bytes, len) = from(b"other");
    assert_eq!(dure_pwrite(two, bytes, len, 9000), 5);
    assert_eq!(dedupe(16_384), (8192, 1));
    assert_eq!(dure_clone_range(one, 0, two, 0, 0), 0);
    let same = dure_dedupe_range(one, 0, two, 0, 20_000, None);
    assert_eq!(same, 20_000);
    // Nothing overlaps behind the end.
    for (start, copied) in [(19_999_i64, 1), (19_998, -i64::from(libc::EINVAL))] {
        let (mut offset, mut at) = (start, start + 1);
        let done = dure_copy_file_range(one, Some(&mut offset), one, Some(&mut at), 100, 0);
        assert_eq!(done, copied, "{}", last_error());
        assert_eq!(dure_ftruncate(one, 20_000), 0);
    }
}

/// Names, inode numbers and types in the root.
fn listed(session: &dure_session) -> Vec<(String, u64, u32)> {
    let path = Text::from(c"/");
    let listing = made(|place| dure_opendir(Some(session), path, Some(place)));
    let mut names = Vec::new();
    loop {
        let mut place = MaybeUninit::uninit();
        match dure_readdir(Some(&listing), Some(&mut place)) {
            0 => break,
            more => assert_eq!(more, 1),
        }
        // SAFETY: 1 says that it was set.
        let entry = unsafe { place.assume_init() };
        let name = entry.name.map(i8::cast_unsigned);
        let name = CStr::from_bytes_until_nul(&name).unwrap().to_str().unwrap();
        assert_eq!(name.len(), usize::try_from(entry.name_len).unwrap());
        names.push((name.to_owned(), entry.ino, entry.kind << 12));
    }
    assert_eq!(dure_closedir(Some(listing)), 0);
    names
}

#[test]
fn names_made_by_c_are_those_of_the_library() {
    let scene = Scene::new();
    let session = Some(&*scene.session);
    let (dir, file, link, soft) = (
        text("/dir"),
        text("/dir/file"),
        text("/link"),
        text("/soft"),
    );
    let path = |text: &'static CStr| Text::from(text);
    assert_eq!(dure_mkdir(session, Text::from(&*dir), 0o777), 0);
    dure_close(Some(
        scene.open("/dir/file", libc::O_RDONLY | libc::O_CREAT),
    ));
    assert_eq!(
        dure_link(session, Text::from(&*file), Text::from(&*link)),
        0
    );
    assert_eq!(
        dure_symlink(session, path(c"dir/file"), Text::from(&*soft)),
        0
    );
    assert_eq!(
        dure_mknod(session, path(c"/pipe"), libc::S_IFIFO | 0o600, 0),
        0
    );
    let taken = dure_rename(
        session,
        path(c"/pipe"),
        path(c"/link"),
        libc::RENAME_NOREPLACE,
    );
    assert_eq!(taken, -libc::EEXIST);
    assert_eq!(last_error(), "rename /pipe: file exists");
    assert_eq!(
        dure_rename(
            session,
            path(c"/pipe"),
            path(c"/soft"),
            libc::RENAME_EXCHANGE
        ),
        0
    );
    assert_eq!(dure_rename(session, path(c"/pipe"), path(c"/to"), 0), 0);
    assert_eq!(dure_rmdir(session, Text::from(&*dir)), -libc::ENOTEMPTY);
    let mut target = [0; 5];
    let (place, len) = to(&mut target);
    assert_eq!(dure_readlink(session, path(c"/to"), place, len), 5);
    assert_eq!(&target, b"dir/f");
    let gone = scene.open("/", libc::O_RDWR | libc::O_TMPFILE);
    assert_eq!(dure_flink(session, Some(&gone), path(c"/flinked")), 0);
    assert_eq!(dure_close(Some(gone)), 0);
    assert_eq!(dure_unlink(session, path(c"/link")), 0);
    assert_eq!(dure_copy(session, path(c"/dir/file"), path(c"/copy")), 0);

    let mut names = listed(&scene.session);
    names.sort();
    let (_folder, volume) = scene.reopened();
    let entries = volume.root().read_dir("/").unwrap().map(Result::unwrap);
    let name = |entry: &dure::DirEntry| entry.file_name().to_str().unwrap().to_owned();
    let mut found: Vec<_> = entries
        .map(|entry| (name(&entry), entry.ino(), entry.kind().mode()))
        .collect();
    found.sort();
    assert_eq!(names, found);
    let names: Vec<&str> = names.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["copy", "dir", "flinked", "soft", "to"]);
}

#[test]
fn attributes_set_by_c_are_those_of_the_library() {
    let scene = Scene::new();
    let session = Some(&*scene.session);
    let file = scene.open("/file", libc::O_RDWR | libc::O_CREAT);
    assert_eq!(dure_chmod(session, Text::from(c"/file"), 0o600), 0);
    assert_eq!(dure_fchown(Some(&file), 7, u32::MAX), 0);
    let times = [(5, 6), (0, libc::UTIME_OMIT)];
    let times = times.map(|(tv_sec, tv_nsec)| libc::timespec { tv_sec, tv_nsec });
    // SAFETY: two times, as the call reads.
    let two = unsafe { Source::new(times.as_ptr().cast::<c_void>()) };
    assert_eq!(dure_futimens(Some(&file), two), 0);
    let (value, len) = from(b"green");
    let set = dure_fsetxattr(
        Some(&file),
        Text::from(c"user.colour"),
        value,
        len,
        libc::XATTR_CREATE,
    );
    assert_eq!(set, 0);
    let (root, name) = (Text::from(c"/file"), Text::from(c"user.colour"));
    let mut bytes = [0; 20];
    let (place, len) = to(&mut bytes);
    assert_eq!(dure_getxattr(session, root, name, place, len), 5);
    assert_eq!(dure_flistxattr(Some(&file), place, len), 12);
    assert_eq!(&bytes[..12], b"user.colour\0");
    let stat = found(|place| dure_fstat(Some(&file), Some(place)));
    assert_eq!((stat.mode, stat.uid, stat.gid), (0o100_600, 7, 0));
    assert_eq!((stat.atime.sec, stat.atime.nsec), (5, 6));
    assert_ne!(stat.mtime.sec, 0);

    let stranger = Scene::session(&scene.volume, 1000);
    let owner = Scene::session(&scene.volume, 7);
    let open = |session: &dure_session| dure_access(Some(session), Text::from(c"/file"), 4);
    assert_eq!((open(&stranger), open(&owner)), (-libc::EACCES, 0));
    assert_eq!(
        dure_mkdir(Some(&stranger), Text::from(c"/dir"), 0o777),
        -libc::EACCES
    );
    dure_session_close(Some(stranger));
    dure_session_close(Some(owner));
    let space = found(|place| dure_volume_statfs(Some(&scene.volume), Some(place)));
    assert_eq!(space.block_bytes, 4096);
    dure_close(Some(file));
    let (_folder, volume) = scene.reopened();
    let metadata = volume.root().metadata("/file").unwrap();
    assert_eq!(dure_stat::from(&metadata), stat);
    assert_eq!(volume.statistics().blocks, space.blocks);
    let colour = volume.root().get_xattr("/file", b"user.colour").unwrap();
    assert_eq!(colour.unwrap(), b"green");
}

#[test]
fn vectors_are_one_read_or_write() {
    let scene = Scene::new();
    let empty = libc::O_CREAT | libc::O_APPEND | libc::O_TRUNC;
    let file = scene.open("/file", libc::O_RDWR | empty);
    let parts = [&b"sown "[..], b"", b"together"];
    let vector = |bytes: &[u8]| libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let vectors = parts.map(vector);
    // SAFETY: three vectors, of bytes that are only read.
    let written = unsafe { Vectors::new(vectors.as_ptr()) };
    assert_eq!(dure_writev(Some(&file), written, 3), 13);
    assert_eq!(dure_pwritev(Some(&file), written, 3, 0), 13); // at the end
    let mut halves = [[0; 10], [0; 10]];
    let vectors = halves.each_mut().map(|half| libc::iovec {
        iov_base: half.as_mut_ptr().cast(),
        iov_len: half.len(),
    });
    // SAFETY: two vectors, of bytes that are used here only.
    let read = unsafe { Vectors::new(vectors.as_ptr()) };
    assert_eq!(dure_preadv(Some(&file), read, 2, 5), 20);
    assert_eq!(halves.concat(), b"togethersown togethe");
    // The position is where the first write has ended.
    assert_eq!(dure_readv(Some(&file), read, 2), 13);
    assert_eq!(dure_readv(Some(&file), read, 2), 0);
    // Longer than what is written as one.
    let page = vec![7; 1 << 20];
    let vectors = [vector(&page), vector(b"!")];
    // SAFETY: two vectors, of bytes that are only read.
    let long = unsafe { Vectors::new(vectors.as_ptr()) };
    assert_eq!(dure_writev(Some(&file), long, 2), (1 << 20) + 1);
    let (_folder, volume) = {
        dure_close(Some(file));
        scene.reopened()
    };
    let bytes = volume.root().read("/file").unwrap();
    assert_eq!(bytes.len(), 26 + (1 << 20) + 1);
    assert!(bytes.ends_with(&[7, 7, b'!']));
}

#[test]
fn an_error_has_the_words_of_the_library() {
    let scene = Scene::new();
    let mut place = MaybeUninit::<dure_stat>::uninit();
    let path = Text::from(c"/a/b");
    let errno = dure_stat(Some(&scene.session), path, Some(&mut place));
    let in_rust = dure::Volume::in_memory(32 << 20)
        .unwrap()
        .root()
        .metadata("/a/b");
    let in_rust = in_rust.unwrap_err();
    assert_eq!(
        (-errno, last_error()),
        (in_rust.errno(), in_rust.to_string())
    );
}

#[test]
fn snapshots_are_those_of_the_library() {
    let scene = Scene::new();
    let volume = Some(&*scene.volume);
    let text = |text: &'static CStr| Text::from(text);
    assert_eq!(dure_snapshot_create(volume, text(c"monday")), 0);
    assert_eq!(dure_snapshot_create(volume, text(c"monday")), -libc::EEXIST);
    assert_eq!(dure_snapshot_create(volume, text(c"a/b")), -libc::EINVAL);
    assert_eq!(dure_snapshot_create(volume, text(c"\xff")), -libc::EINVAL);
    assert_eq!(dure_snapshot_create(volume, Text::NULL), -libc::EFAULT);
    let (monday, kept) = (text(c"monday"), text(c"kept"));
    assert_eq!(dure_snapshot_rename(volume, monday, kept), 0);
    let nothing = dure_snapshot {
        id: 0,
        created: 0,
        inodes: 0,
        bytes: 0,
        name: [0; 256],
        spare: [0; 4],
    };
    let mut place = MaybeUninit::new(nothing);
    assert_eq!(dure_snapshot_next(volume, 0, Some(&mut place)), 1);
    // SAFETY: it was set before the call.
    let first = unsafe { place.assume_init() };
    assert!(first.id > 0 && first.inodes > 0 && first.created > 0);
    let name = first.name.map(std::ffi::c_char::cast_unsigned);
    assert!(name.starts_with(b"kept\0"));
    assert_eq!(dure_snapshot_next(volume, first.id, Some(&mut place)), 0);
    let cache = text(c"cache=4M");
    let then = made(|to| dure_snapshot_open(volume, kept, cache, Some(to)));
    assert_eq!(dure_snapshot_delete(volume, kept), -libc::EBUSY);
    let session = Scene::session(&then, 0);
    let made = dure_mkdir(Some(&session), text(c"/new"), 0o755);
    assert_eq!(made, -libc::EROFS);
    assert_eq!(dure_session_close(Some(session)), 0);
    assert_eq!(dure_volume_close(Some(then)), 0);
    assert_eq!(dure_snapshot_delete(volume, kept), 0);
    assert_eq!(dure_snapshot_delete(volume, kept), -libc::ENOENT);
}

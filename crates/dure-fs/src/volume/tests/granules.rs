//! Two cores change the two granules of an inode, each in its own log.

use dure_block::ram::RamDevice;
use dure_check::{CheckOptions, check};
use dure_sync::Arc;
use dure_sync::atomic::{AtomicUsize, Ordering};
use dure_sync::canary::Rule;

use super::{options, ram, shared};
use crate::{
    AllocateMode, FileSystem, InodeRef, MountOptions, NewInode, ReadMode, RenameMode,
    SetAttributes, Stamp, SyncScope, XattrMode,
};

/// Core 0 creates a file and syncs nothing; core 1 changes its data, and commits its log for another
/// file. What a crash leaves.
fn crash(read_marks: Rule, change: impl Fn(&FileSystem, &InodeRef)) -> Arc<RamDevice> {
    let device = ram(8192, 2);
    let core = Arc::new(AtomicUsize::new(1));
    let mut options = MountOptions {
        core: Some(core.clone()),
        ..options()
    };
    options.volume_rules.store.read_marks = read_marks;
    let fs = FileSystem::open(shared(&device), options).unwrap();
    let root = fs.root().unwrap();
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let other = fs.create(&root, b"other", &new).unwrap();
    fs.fsync(&other, SyncScope::All).unwrap();
    core.store(0, Ordering::Relaxed);
    // Makes the node: what comes next in it depends on the creation of another inode only.
    let first = fs.create(&root, b"first", &new).unwrap();
    fs.fsync(&first, SyncScope::All).unwrap();
    let made = fs.create(&root, b"made", &new).unwrap();
    core.store(1, Ordering::Relaxed);
    change(&fs, &made);
    fs.set_xattr(&other, b"user.a", b"b", XattrMode::Any)
        .unwrap();
    fs.fsync(&other, SyncScope::All).unwrap();
    std::mem::forget((first, made, other, root));
    let image = device.snapshot();
    std::mem::forget(fs);
    Arc::new(RamDevice::from_image("crashed", &image))
}

fn settle(fs: &FileSystem, inode: &InodeRef) {
    let files = &fs.0.files;
    files
        .body
        .settle(files, std::slice::from_ref(inode.inode()));
}

fn write_back(fs: &FileSystem, inode: &InodeRef) {
    fs.write(inode, 0, &[7; 4096], Stamp::Set).unwrap();
    settle(fs, inode);
}

fn preallocate(fs: &FileSystem, inode: &InodeRef) {
    fs.allocate(inode, AllocateMode::KeepSize, 0, 4096).unwrap();
}

fn issues(device: &Arc<RamDevice>) -> Vec<String> {
    let fs = FileSystem::open(shared(device), options()).unwrap();
    fs.close().unwrap();
    let report = check(shared(device), &CheckOptions::default()).unwrap();
    report.issues().iter().map(ToString::to_string).collect()
}

#[test]
fn stored_data_survives_with_the_creation_of_its_inode_or_not_at_all() {
    for change in [write_back, preallocate] {
        let crashed = crash(Rule::Holds, change);
        assert_eq!(issues(&crashed), Vec::<String>::new());
    }
}

#[test]
fn canary_data_that_survives_alone_is_noticed() {
    for change in [write_back, preallocate] {
        let found = issues(&crash(Rule::LEFT_OUT, change));
        assert!(
            found
                .iter()
                .any(|issue| issue.contains("data of a free inode")),
            "{found:?}"
        );
    }
}

/// A volume on two cores with the files `other`, made by core 1, and `kept`, made by core 0; both
/// synced.
struct Pair {
    device: Arc<RamDevice>,
    core: Arc<AtomicUsize>,
    fs: FileSystem,
    commits: AtomicUsize,
}

const NEW: NewInode = NewInode {
    mode: 0o100_644,
    umask: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
};

impl Pair {
    fn new() -> Pair {
        let device = ram(8192, 2);
        let core = Arc::new(AtomicUsize::new(1));
        let options = MountOptions {
            core: Some(core.clone()),
            ..options()
        };
        let fs = FileSystem::open(shared(&device), options).unwrap();
        let pair = Pair {
            device,
            core,
            fs,
            commits: AtomicUsize::new(0),
        };
        pair.make("other", 1);
        pair.commit(1);
        pair.make("kept", 0);
        pair.commit(0);
        pair
    }

    fn on(&self, core: usize) -> InodeRef {
        self.core.store(core, Ordering::Relaxed);
        self.fs.root().unwrap()
    }

    fn make(&self, name: &str, core: usize) -> InodeRef {
        let root = self.on(core);
        let made = self.fs.create(&root, name.as_bytes(), &NEW).unwrap();
        self.fs.write(&made, 0, &CONTENT, Stamp::Set).unwrap();
        made
    }

    /// Commits what is in the log of this core, and what that depends on, by an fsync of a file
    /// that has nothing to do with it.
    fn commit(&self, core: usize) {
        let root = self.on(core);
        let name = format!("of core {core}");
        let own = self.fs.lookup(&root, name.as_bytes()).unwrap();
        let own = own.unwrap_or_else(|| self.fs.create(&root, name.as_bytes(), &NEW).unwrap());
        // The same value again would make no operation.
        let value = self.commits.fetch_add(1, Ordering::Relaxed).to_string();
        self.fs
            .set_xattr(&own, b"user.a", value.as_bytes(), XattrMode::Any)
            .unwrap();
        self.fs.fsync(&own, SyncScope::All).unwrap();
    }

    /// Core 0 renames `made` over `kept`, and commits its log.
    fn replace_kept(&self) {
        let root = self.on(0);
        self.fs
            .rename(&root, b"made", &root, b"kept", RenameMode::Replace)
            .unwrap();
        self.commit(0);
    }

    /// The volume after a crash now.
    fn crash(self) -> FileSystem {
        let image = self.device.snapshot();
        std::mem::forget(self.fs);
        let crashed = Arc::new(RamDevice::from_image("crashed", &image));
        assert_eq!(issues(&crashed), Vec::<String>::new());
        FileSystem::open(shared(&crashed), options()).unwrap()
    }
}

/// More than the direct slots have, so that it is freed in steps.
static CONTENT: [u8; 40 * 4096] = [7; 40 * 4096];

fn content(fs: &FileSystem, name: &str) -> Option<Vec<u8>> {
    let root = fs.root().unwrap();
    let found = fs.lookup(&root, name.as_bytes()).unwrap()?;
    let size = usize::try_from(fs.attributes(&found).unwrap().size).unwrap();
    let mut bytes = vec![0; size];
    let read = fs.read(&found, 0, &mut bytes, ReadMode::Cached).unwrap();
    bytes.truncate(read);
    Some(bytes)
}

/// Core 0 takes the last name of a synced file that is open. Core 1 closes it: its log is committed
/// when it has freed the content, and not yet the inode.
#[test]
fn content_is_freed_with_the_last_name_or_not_at_all() {
    let pair = Pair::new();
    let made = pair.make("made", 0);
    pair.fs.fsync(&made, SyncScope::All).unwrap();
    let root = pair.on(0);
    pair.fs.unlink(&root, b"made").unwrap();
    pair.on(1);
    pair.fs.0.files.free_contents(made.inode()).unwrap();
    pair.commit(1);
    std::mem::forget((made, root));
    let left = content(&pair.crash(), "made");
    assert!(left.is_none_or(|left| left == CONTENT), "a file of holes");
}

/// Core 0 makes a file, core 1 writes it back, core 0 renames it over another and commits its log.
#[test]
fn a_rename_that_replaces_survives_with_the_data_or_not_at_all() {
    let pair = Pair::new();
    let made = pair.make("made", 0);
    pair.commit(0);
    pair.on(1);
    settle(&pair.fs, &made);
    pair.replace_kept();
    drop(made);
    assert_eq!(content(&pair.crash(), "kept").unwrap(), CONTENT);
}

/// As before, of a file whose earlier content was synced: what wrote that is known already when the
/// new content comes.
#[test]
fn a_rename_that_replaces_survives_with_the_latest_data() {
    let pair = Pair::new();
    let made = pair.make("made", 0);
    pair.fs.fsync(&made, SyncScope::All).unwrap();
    pair.on(1);
    let latest = vec![9; CONTENT.len()];
    pair.fs.write(&made, 0, &latest, Stamp::Set).unwrap();
    settle(&pair.fs, &made);
    pair.replace_kept();
    drop(made);
    assert!(content(&pair.crash(), "kept").unwrap() == latest);
}

/// Core 0 takes the set-id bit of a file, core 1 writes new content back and commits its log.
#[test]
fn new_content_survives_with_the_loss_of_the_set_id_bit_or_not_at_all() {
    let pair = Pair::new();
    let made = pair.make("made", 0);
    let mode = |mode| SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    };
    pair.fs.change_attributes(&made, &mode(0o4755)).unwrap();
    pair.fs.fsync(&made, SyncScope::All).unwrap();
    pair.on(0);
    pair.fs.change_attributes(&made, &mode(0o755)).unwrap();
    pair.on(1);
    pair.fs.write(&made, 0, &[8; 4096], Stamp::Set).unwrap();
    settle(&pair.fs, &made);
    pair.commit(1);
    drop(made);
    let fs = pair.crash();
    let found = fs.lookup(&fs.root().unwrap(), b"made").unwrap().unwrap();
    let set_id = fs.attributes(&found).unwrap().mode & 0o4000 != 0;
    let is_new = content(&fs, "made").unwrap()[0] == 8;
    assert!(is_new && !set_id, "new content {is_new}, set-id {set_id}");
}

/// Pages of `CONTENT`.
const PAGES: u64 = 40;
const BEHIND: u64 = PAGES * 4096;

/// A synced file. Core 1 has changed its data by `change`, core 0 its mode by the last call.
fn with_a_new_mode(change: impl Fn(&FileSystem, &InodeRef)) -> (Pair, InodeRef) {
    let pair = Pair::new();
    let made = pair.make("made", 0);
    pair.fs.fsync(&made, SyncScope::All).unwrap();
    pair.on(1);
    change(&pair.fs, &made);
    pair.on(0);
    let mode = SetAttributes {
        mode: Some(0o600),
        ..SetAttributes::default()
    };
    pair.fs.change_attributes(&made, &mode).unwrap();
    (pair, made)
}

/// What a crash leaves, if core 0 commits its log: blocks and content of a file with the new mode.
fn crash_with_a_new_mode(change: impl Fn(&FileSystem, &InodeRef)) -> (u64, Vec<u8>) {
    let (pair, made) = with_a_new_mode(change);
    pair.commit(0);
    drop(made);
    left_with_a_new_mode(pair)
}

fn left_with_a_new_mode(pair: Pair) -> (u64, Vec<u8>) {
    let fs = pair.crash();
    let found = fs.lookup(&fs.root().unwrap(), b"made").unwrap().unwrap();
    let found = fs.attributes(&found).unwrap();
    assert_eq!(found.mode & 0o777, 0o600);
    (found.blocks / 8, content(&fs, "made").unwrap())
}

fn give_blocks(fs: &FileSystem, inode: &InodeRef) {
    fs.allocate(inode, AllocateMode::KeepSize, BEHIND, 3 * 4096)
        .unwrap();
}

/// Blocks that a hole gets show no content: a later change of attributes does not wait for them.
#[test]
fn a_new_mode_survives_without_blocks_that_have_no_content() {
    let (blocks, content) = crash_with_a_new_mode(give_blocks);
    assert!(blocks == PAGES && content == CONTENT, "{blocks} blocks");
}

#[test]
fn blocks_that_have_no_content_are_there_after_an_fsync() {
    // An fsync of the data leaves out the times, which would bring the blocks along.
    for scope in [SyncScope::All, SyncScope::Data] {
        let (pair, made) = with_a_new_mode(give_blocks);
        pair.fs.fsync(&made, scope).unwrap();
        drop(made);
        let (blocks, _) = left_with_a_new_mode(pair);
        assert_eq!(blocks, PAGES + 3);
    }
}

#[test]
fn a_new_mode_survives_with_what_was_written_into_such_blocks() {
    let (_, content) = crash_with_a_new_mode(|fs, inode| {
        give_blocks(fs, inode);
        fs.write(inode, BEHIND, &[9; 4096], Stamp::Set).unwrap();
        settle(fs, inode);
    });
    assert!(content.len() == CONTENT.len() + 4096 && content.ends_with(&[9; 4096]));
}

#[test]
fn a_new_mode_survives_with_the_zeroes_in_place_of_content() {
    let (_, content) = crash_with_a_new_mode(|fs, inode| {
        fs.allocate(inode, AllocateMode::Zero, 0, 4096).unwrap();
    });
    assert_eq!(content[..4096], [0; 4096]);
}

#[test]
fn a_new_mode_survives_with_the_truncate_before_it_or_not_at_all() {
    let (_, content) = crash_with_a_new_mode(|fs, inode| {
        let shorter = SetAttributes {
            size: Some(4096),
            ..SetAttributes::default()
        };
        fs.change_attributes(inode, &shorter).unwrap();
    });
    assert_eq!(content.len(), 4096);
}

//! What a rescue reads of a damaged volume: every file that was not hit, byte by byte, and nothing
//! is written.

use std::collections::BTreeSet;
use std::convert::Infallible;

use dure_block::record::RecordDevice;
use dure_block::share;
use dure_fs::FileKind;
use dure_store::units::{Ino, to_usize};
use dure_sync::Arc;

use super::aged::{Case, Content, Files};
use crate::{CheckOptions, NAMELESS, Rescue};

/// The end of a file that the cases look at.
const TAIL: u64 = 1 << 20;

/// All that is below the root, by inode, and the inodes whose content is destroyed in parts.
pub(super) fn files(rescue: &mut Rescue<'_>) -> (Files, BTreeSet<Ino>) {
    let (mut files, mut destroyed) = (Files::new(), BTreeSet::new());
    let mut stack = vec![(Ino::ROOT, Vec::new())];
    while let Some((directory, path)) = stack.pop() {
        let entries = rescue.entries(directory);
        let entries: Vec<_> = entries.map(|(name, ino)| (name.to_vec(), ino)).collect();
        for (name, ino) in entries {
            let path = [&path[..], b"/", &name].concat();
            if let Some(content) = files.get_mut(&ino) {
                content.paths.insert(path);
                continue;
            }
            let (content, sound) = read(rescue, ino, path.clone());
            if content.kind == FileKind::Directory {
                stack.push((ino, path));
            }
            if !sound {
                destroyed.insert(ino);
            }
            files.insert(ino, content);
        }
    }
    (files, destroyed)
}

fn read(rescue: &mut Rescue<'_>, ino: Ino, path: Vec<u8>) -> (Content, bool) {
    let record = rescue.inode(ino).unwrap();
    let mode = record.attributes.mode.get();
    let kind = FileKind::from_code(u8::try_from(mode >> 12).unwrap()).unwrap();
    let (mut bytes, mut sound) = (Vec::new(), true);
    if kind == FileKind::Symlink {
        bytes = rescue.target(ino).unwrap_or_default();
    } else if kind == FileKind::File {
        let size = record.data.size.get();
        let from = size.saturating_sub(TAIL);
        bytes = vec![0; to_usize(size - from)];
        let mut each = |at: u64, part: &[u8]| {
            assert!(at + u64::try_from(part.len()).unwrap() <= size);
            let skip = to_usize(from.saturating_sub(at)).min(part.len());
            let to = to_usize((at + u64::try_from(skip).unwrap()).saturating_sub(from));
            bytes[to..to + part.len() - skip].copy_from_slice(&part[skip..]);
            Ok::<(), Infallible>(())
        };
        sound = rescue.content(ino, &mut each).unwrap().is_empty();
    }
    let content = Content {
        kind,
        mode,
        bytes,
        xattrs: rescue.attributes(ino),
        paths: BTreeSet::from([path]),
    };
    (content, sound)
}

/// Rescues a volume, and compares what was not hit.
pub(super) fn compare(case: &Case<'_>) {
    let (at, want, names_whole) = (&case.at, &case.base.files, case.names_whole());
    let logs_whole = case.logs_whole();
    let record = RecordDevice::new(share(Arc::clone(&case.device)));
    let log = record.log();
    let options = CheckOptions::default();
    let mut rescue = Rescue::open(share(record), &options).unwrap();
    let (found, destroyed) = files(&mut rescue);
    assert_eq!(log.entries().len(), 0, "{at}: a rescue writes nothing");
    // Corrected in memory, the structures leave nothing without a name.
    assert!(!found.contains_key(&NAMELESS), "{at}");
    for (ino, content) in &found {
        let known = want.contains_key(ino) || content.kind == FileKind::Directory;
        assert!(known || !case.logs_whole(), "{at}: {ino:?} was not there");
    }
    for (ino, want) in want {
        let got = found.get(ino);
        let same = got.is_some_and(|got| got.bytes == want.bytes);
        if case.hit(*ino) {
            let named = destroyed.contains(ino)
                || !rescue.report().lost().is_empty()
                || rescue.report().losses().iter().any(|loss| {
                    let path = loss.path.as_ref();
                    loss.ino.nid() == ino.nid() || path.is_some_and(|p| want.paths.contains(p))
                });
            let named = named || same || case.is_older(*ino);
            assert!(named, "{at}: {ino:?} is lost without a word");
            continue;
        }
        if !logs_whole && case.is_older(*ino) {
            continue;
        }
        let Some(got) = got else {
            panic!("{at}: {ino:?} {:?} is not rescued", want.paths);
        };
        assert!(
            !destroyed.contains(ino),
            "{at}: {ino:?} is called destroyed"
        );
        assert!(same, "{at}: {ino:?} has other bytes");
        let attributes = |of: &Content| (of.kind, of.mode, of.xattrs.clone());
        assert_eq!(attributes(got), attributes(want), "{at}: {ino:?}");
        if names_whole {
            assert_eq!(got.paths, want.paths, "{at}");
        }
    }
}

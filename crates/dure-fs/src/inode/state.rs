//! What an inode keeps in memory, by its type.
//!
//! **Problem.** A volume keeps a million inodes in memory, most of them of small files that are
//! closed. **Structure.** [`InodeState`] has what inodes of all types have, and [`Content`] what
//! only a file or a directory has. What these repeat of the granule of the data (a size, a node, a
//! set number) follows each operation: [`InodeState::data_stored`].
//!
//! **Invariants.** The content is of the inode's type. **On a crash** it is gone: what was promised
//! is in the log.

use dure_store::format::inode::DataHead;
use dure_store::format::name::FileKind;
use dure_store::units::Mark;

use crate::directory::DirectoryState;
use crate::file::{FileState, PendingMarks};
use crate::quota::FileCharge;

/// Everything that changes about an inode, but for its granules.
#[derive(Debug)]
pub(crate) struct InodeState {
    /// Operations on the inode that are not known to be valid.
    pub(crate) marks: PendingMarks,
    content: Content,
    /// The directory was removed, or the inode was freed.
    pub(crate) gone: bool,
}

/// What only inodes of some types have.
#[derive(Debug)]
enum Content {
    /// Pages, visible size and pending times.
    File(FileState),
    /// Cached summary of the buckets, and where they are.
    Directory(DirectoryState),
    /// A link, device, pipe or socket.
    Other,
}

impl InodeState {
    /// The state of an inode whose data begins with `data`.
    pub(super) fn new(kind: FileKind, data: &DataHead, gone: bool) -> InodeState {
        let content = match kind {
            FileKind::File => Content::File(FileState::new(data)),
            FileKind::Directory => Content::Directory(DirectoryState::new(data)),
            _ => Content::Other,
        };
        InodeState {
            marks: PendingMarks::default(),
            content,
            gone,
        }
    }

    /// The file, if it is one.
    #[inline]
    pub(crate) fn if_file(&self) -> Option<&FileState> {
        match &self.content {
            Content::File(file) => Some(file),
            _ => None,
        }
    }

    /// The file; callers know that it is one.
    #[inline]
    pub(crate) fn file(&self) -> &FileState {
        self.if_file().expect("the inode is a regular file")
    }

    /// What of a file is counted for its owner, if quotas are on.
    pub(crate) fn charge(&self) -> Option<&FileCharge> {
        self.if_file()?.charge.as_deref()
    }

    /// Like [`InodeState::charge`], to be changed.
    pub(crate) fn charge_mut(&mut self) -> Option<&mut FileCharge> {
        self.if_file_mut()?.charge.as_deref_mut()
    }

    /// Like [`InodeState::if_file`], to be changed.
    #[inline]
    pub(crate) fn if_file_mut(&mut self) -> Option<&mut FileState> {
        match &mut self.content {
            Content::File(file) => Some(file),
            _ => None,
        }
    }

    /// Like [`InodeState::file`], to be changed.
    #[inline]
    pub(crate) fn file_mut(&mut self) -> &mut FileState {
        self.if_file_mut().expect("the inode is a regular file")
    }

    /// The directory, if it is one.
    #[inline]
    pub(crate) fn if_directory(&self) -> Option<&DirectoryState> {
        match &self.content {
            Content::Directory(directory) => Some(directory),
            _ => None,
        }
    }

    /// The directory; callers know that it is one.
    #[inline]
    pub(crate) fn directory(&self) -> &DirectoryState {
        self.if_directory().expect("the inode is a directory")
    }

    /// Like [`InodeState::directory`], to be changed.
    #[inline]
    pub(crate) fn directory_mut(&mut self) -> &mut DirectoryState {
        match &mut self.content {
            Content::Directory(directory) => directory,
            _ => panic!("the inode is no directory"),
        }
    }

    /// The inode's data was logged, with the times that were pending.
    pub(super) fn data_stored(&mut self, data: &DataHead) {
        match &mut self.content {
            Content::File(file) => file.data_stored(data),
            Content::Directory(directory) => directory.data_stored(data),
            Content::Other => {}
        }
    }

    /// Remembers an operation that concerned the inode, for fsync.
    pub(crate) fn note_mark(&mut self, mark: Mark) {
        self.marks.note(mark);
    }

    /// Whether an eviction of the inode would lose nothing of its content.
    pub(crate) fn is_clean(&self) -> bool {
        self.if_file().is_none_or(FileState::is_clean)
    }
}

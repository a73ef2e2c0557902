//! What operations are for.

/// The purpose of an operation: whose bytes the log holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// A new inode with its name, or without one.
    Create,
    /// One more name.
    Link,
    /// One name less.
    Remove,
    /// Another name.
    Rename,
    /// Mode, owner, times.
    Attributes,
    /// Extended attributes.
    Xattr,
    /// Data was written to blocks.
    Write,
    /// A size without data.
    Size,
    /// Less data.
    Truncate,
    /// Blocks without data, or holes.
    Allocate,
    /// The end of an inode.
    Delete,
    /// Room for more orphans.
    Orphan,
    /// Blocks moved by the cleaner.
    Clean,
}

impl OpKind {
    /// All of them; the place of each is its number in the journal's statistics.
    pub const ALL: [OpKind; 13] = [
        OpKind::Create,
        OpKind::Link,
        OpKind::Remove,
        OpKind::Rename,
        OpKind::Attributes,
        OpKind::Xattr,
        OpKind::Write,
        OpKind::Size,
        OpKind::Truncate,
        OpKind::Allocate,
        OpKind::Delete,
        OpKind::Orphan,
        OpKind::Clean,
    ];

    /// Its place in [`OpKind::ALL`].
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            OpKind::Create => 0,
            OpKind::Link => 1,
            OpKind::Remove => 2,
            OpKind::Rename => 3,
            OpKind::Attributes => 4,
            OpKind::Xattr => 5,
            OpKind::Write => 6,
            OpKind::Size => 7,
            OpKind::Truncate => 8,
            OpKind::Allocate => 9,
            OpKind::Delete => 10,
            OpKind::Orphan => 11,
            OpKind::Clean => 12,
        }
    }

    /// What it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            OpKind::Create => "create",
            OpKind::Link => "link",
            OpKind::Remove => "remove",
            OpKind::Rename => "rename",
            OpKind::Attributes => "attributes",
            OpKind::Xattr => "xattr",
            OpKind::Write => "write",
            OpKind::Size => "size",
            OpKind::Truncate => "truncate",
            OpKind::Allocate => "allocate",
            OpKind::Delete => "delete",
            OpKind::Orphan => "orphan",
            OpKind::Clean => "clean",
        }
    }
}

const _: () = assert!(OpKind::ALL.len() <= dure_journal::OPERATION_KINDS);

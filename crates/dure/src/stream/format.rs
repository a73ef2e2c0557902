//! The bytes of a stream: docs/design/stream.md.
//!
//! **Problem.** A stream outlives the program that wrote it, and comes from anywhere. **Structure.** A
//! [`Record`] is what one record says; [`encode`] makes bytes of it, in little endian, and `decode` reads
//! them; `frames` puts length and checksum around them. **Invariants.** A record has at most
//! [`PAYLOAD_MAX`] bytes. **Crash.** Nothing.

use dure_fs::format::name::FileKind;
use dure_sync::clock::Timestamp;

/// What a stream begins with.
pub(super) const MAGIC: [u8; 8] = *b"duresend";
/// The version of the format.
pub(super) const VERSION: u32 = 1;
/// Magic, version, and four bytes that are zero.
pub(super) const START_BYTES: usize = 16;
/// Bytes of content in a record.
pub(super) const DATA_MAX: usize = 1 << 20;
/// Bytes of a path.
pub(super) const PATH_BYTES_MAX: usize = dure_fs::Named::PATH_BYTES_MAX;
/// Bytes of all extended attributes of an inode, which are half as many, with their lengths.
pub(super) const XATTRS_MAX: usize = 1 << 18;
/// Bytes of what a record says: content is the most.
pub(super) const PAYLOAD_MAX: usize = DATA_MAX + 64;
/// Bytes of a message.
pub(super) const MESSAGE_MAX: usize = 4096;
/// Bytes of the name of a snapshot.
pub(super) const SNAPSHOT_NAME_MAX: usize = 64;
const IDENTITY_BYTES: usize = 40;

/// Which snapshot is meant, wherever a copy of it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// UUID of the volume on which it was taken.
    pub volume: [u8; 16],
    /// Its number there.
    pub id: u64,
    /// Seconds since 1970 when it was taken.
    pub created: i64,
    /// The checkpoint that it is: a volume has each once.
    pub checkpoint: u64,
}

/// What a stream is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begin {
    /// The snapshot.
    pub snapshot: Identity,
    /// Its name when it was sent.
    pub name: String,
    /// The snapshot that the stream is relative to, with its name; `None`: it has everything.
    pub base: Option<(Identity, String)>,
}

/// Attributes of an inode, and the size of a regular file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size: u64,
    pub(super) accessed: Timestamp,
    pub(super) modified: Timestamp,
}

/// A new inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Make<'a> {
    pub(super) kind: FileKind,
    /// Permission bits.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) rdev: u64,
    pub(super) path: &'a [u8],
    /// Of a symbolic link.
    pub(super) target: &'a [u8],
}

/// Name and value of an extended attribute.
pub(super) type Xattr<'a> = (&'a [u8], &'a [u8]);

/// What a record says. Paths are from the root, without a slash in front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record<'a> {
    /// The first one.
    Begin(Begin),
    /// Puts what is at a path of the base away.
    Away { path: &'a [u8] },
    /// Removes a name of the base.
    Remove { path: &'a [u8] },
    /// Gives what was put away, and was at `of` in the base, its new path.
    Place { of: &'a [u8], path: &'a [u8] },
    /// Makes an inode, and selects it.
    Make(Make<'a>),
    /// Gives the inode at `of` another path.
    Link { of: &'a [u8], path: &'a [u8] },
    /// What follows is of the inode at this path; the root's is empty.
    Select { path: &'a [u8] },
    /// Content of the selected file.
    Data { offset: u64, bytes: &'a [u8] },
    /// Nothing is in this range of the selected file.
    Hole { offset: u64, len: u64 },
    /// All extended attributes of the selected inode.
    Xattrs(Vec<Xattr<'a>>),
    /// The attributes of the selected inode; nothing more follows of it.
    Attributes(Attributes),
    /// The project of the selected inode; only of a volume with projects.
    Project { id: u32 },
    /// The last one: how many records came before.
    End { records: u64 },
    /// The last one of a sender that could not go on.
    Failed { message: &'a [u8] },
}

impl Record<'_> {
    /// Its number in the format; numbers are never reused.
    fn kind(&self) -> u16 {
        match self {
            Record::Begin(_) => 1,
            Record::Away { .. } => 2,
            Record::Remove { .. } => 3,
            Record::Place { .. } => 4,
            Record::Make(_) => 5,
            Record::Link { .. } => 6,
            Record::Select { .. } => 7,
            Record::Data { .. } => 8,
            Record::Hole { .. } => 9,
            Record::Xattrs(_) => 10,
            Record::Attributes(_) => 11,
            Record::End { .. } => 12,
            Record::Failed { .. } => 13,
            Record::Project { .. } => 14,
        }
    }
}

/// What to call a record in a message.
pub(super) fn name(kind: u16) -> &'static str {
    const NAMES: [&str; 14] = [
        "begin",
        "away",
        "remove",
        "place",
        "make",
        "link",
        "select",
        "data",
        "hole",
        "xattrs",
        "attributes",
        "end",
        "failed",
        "project",
    ];
    let place = usize::from(kind).checked_sub(1);
    place
        .and_then(|place| NAMES.get(place).copied())
        .unwrap_or("unknown")
}

/// Encodes what a record says; the bytes of content of `Data` are left to the caller. Returns its kind.
pub(super) fn encode(record: &Record<'_>, out: &mut Vec<u8>) -> u16 {
    out.clear();
    match record {
        Record::Begin(begin) => {
            identity(out, &begin.snapshot);
            string(out, begin.name.as_bytes());
            out.push(u8::from(begin.base.is_some()));
            if let Some((base, name)) = &begin.base {
                identity(out, base);
                string(out, name.as_bytes());
            }
        }
        Record::Away { path } | Record::Remove { path } | Record::Select { path } => {
            out.extend_from_slice(path);
        }
        Record::Make(make) => {
            word(out, make.rdev);
            for number in [make.mode, make.uid, make.gid] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            out.push(make.kind.code());
            string(out, make.path);
            out.extend_from_slice(make.target);
        }
        Record::Place { of, path } | Record::Link { of, path } => {
            string(out, of);
            out.extend_from_slice(path);
        }
        Record::Data { offset, .. } => word(out, *offset),
        Record::Hole { offset, len } => {
            word(out, *offset);
            word(out, *len);
        }
        Record::Xattrs(all) => {
            for (name, value) in all {
                string(out, name);
                string(out, value);
            }
        }
        Record::Attributes(attributes) => {
            word(out, attributes.size);
            for time in [attributes.accessed, attributes.modified] {
                out.extend_from_slice(&time.secs.to_le_bytes());
                out.extend_from_slice(&time.nanos.to_le_bytes());
            }
            for number in [attributes.mode, attributes.uid, attributes.gid] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        Record::Project { id } => out.extend_from_slice(&id.to_le_bytes()),
        Record::End { records } => word(out, *records),
        Record::Failed { message } => {
            out.extend_from_slice(&message[..message.len().min(MESSAGE_MAX)]);
        }
    }
    record.kind()
}

fn word(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn identity(out: &mut Vec<u8>, identity: &Identity) {
    out.extend_from_slice(&identity.volume);
    out.extend_from_slice(&identity.id.to_le_bytes());
    out.extend_from_slice(&identity.created.to_le_bytes());
    word(out, identity.checkpoint);
}

/// Bytes behind their length.
fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).expect("bounded far below");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(bytes);
}

/// An identity in its bytes, behind one that says whether there is one.
pub(super) fn put_identity(out: &mut Vec<u8>, found: Option<&Identity>) {
    out.push(u8::from(found.is_some()));
    match found {
        Some(found) => identity(out, found),
        None => out.extend_from_slice(&[0; IDENTITY_BYTES]),
    }
}

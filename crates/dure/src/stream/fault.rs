//! What is wrong with a stream, or with what it is to be applied to.

use std::fmt;

use rustix::io::Errno;

use super::format::Identity;
use super::half::Half;

/// Why a stream cannot be sent or received.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It does not begin as a stream does.
    NoStream,
    /// It is of a later version of the format.
    Version(u32),
    /// It ends early.
    Cut,
    /// A checksum is not that of the bytes.
    Checksum,
    /// A record says what it cannot say.
    Malformed(&'static str),
    /// The sender could not go on.
    Sender(String),
    /// The volume lacks the snapshot that the stream is relative to.
    NoBase {
        /// Which one that is.
        base: Identity,
        /// What it was called.
        name: String,
    },
    /// A stream of everything needs an empty volume.
    NotEmpty,
    /// The files are not as they are in the snapshot that the stream is relative to.
    Changed {
        /// What differs.
        path: String,
        /// That snapshot.
        base: String,
    },
    /// Another stream is half received.
    UnderWay {
        /// Its snapshot.
        name: String,
    },
    /// The records that were received are not those of this stream.
    OtherRecords,
    /// A name that has to be free is not.
    Occupied,
    /// What is to get a new path was not put away.
    NothingAway,
    /// A record that needs a base, in a stream that has none.
    Baseless,
    /// A record is of no inode.
    NothingSelected,
    /// A snapshot was taken of a volume with a stream half received.
    NotWhole {
        /// The snapshot.
        name: String,
    },
    /// A snapshot is needed to end what is half done.
    Needed {
        /// The snapshot that was to be deleted.
        name: String,
        /// What is half done.
        half: Half,
    },
    /// The snapshot that the stream is to be relative to is not older.
    NotOlder,
    /// The volume is used by another name that is reserved.
    Reserved,
    /// A path that is longer than a stream can say.
    PathTooLong,
    /// Another thread receives, or takes snapshots, too.
    Busy,
}

impl Fault {
    /// The errno a POSIX caller sees.
    pub(crate) fn errno(&self) -> Errno {
        match self {
            Fault::NoStream | Fault::Version(_) | Fault::NotOlder => Errno::INVAL,
            Fault::NoBase { .. } => Errno::NOENT,
            Fault::NotEmpty => Errno::NOTEMPTY,
            Fault::Changed { .. }
            | Fault::UnderWay { .. }
            | Fault::NotWhole { .. }
            | Fault::Needed { .. }
            | Fault::Busy => Errno::BUSY,
            Fault::Occupied | Fault::Reserved => Errno::EXIST,
            Fault::PathTooLong => Errno::NAMETOOLONG,
            _ => Errno::BADMSG,
        }
    }
}

/// A UUID as text.
fn uuid(bytes: &[u8; 16]) -> String {
    let mut text = String::new();
    for (n, byte) in bytes.iter().enumerate() {
        if [4, 6, 8, 10].contains(&n) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NoStream => f.write_str("this is no stream of `dure send`"),
            Fault::Version(version) => {
                write!(f, "the stream has version {version} of its format; this dure reads version 1")
            }
            Fault::Cut => f.write_str(
                "the stream ends early, or its sender failed; receive it again, from its start: what was received is \
                 skipped",
            ),
            Fault::Checksum => f.write_str("the stream is damaged: a checksum does not match; send it again"),
            Fault::Malformed(what) => write!(f, "the stream is malformed: {what}"),
            Fault::Sender(why) => write!(f, "the sender could not go on: {why}"),
            Fault::NoBase { base, name } => write!(
                f,
                "the stream is relative to snapshot {name} (number {}) of volume {}, which is not here; receive \
                 that first",
                base.id,
                uuid(&base.volume)
            ),
            Fault::NotEmpty => f.write_str(
                "the stream has everything, and needs a volume without files; `dure mkfs` makes one",
            ),
            Fault::Changed { path, base } => write!(
                f,
                "{path} is not as it is in snapshot {base}, to which the stream is relative; a volume that \
                 receives must not be changed otherwise (`dure snapshot restore` takes changes back)"
            ),
            Fault::UnderWay { name } => write!(
                f,
                "a stream of snapshot {name} is half received; receive that one again first, or, if it is lost, \
                 make the files those of a snapshot that is here, by `dure snapshot restore`"
            ),
            Fault::OtherRecords => f.write_str(
                "the stream is another one than that which was begun, of the same snapshot; receive it again: \
                 now all of it is applied",
            ),
            Fault::Occupied => f.write_str("something else is there: the volume was changed meanwhile, or the stream is malformed"),
            Fault::NothingAway => f.write_str("what was at the old path is not there to be moved"),
            Fault::Baseless => f.write_str("the stream is malformed: it has no base to change"),
            Fault::NothingSelected => f.write_str("the stream is malformed: a record of no inode"),
            Fault::NotWhole { name } => write!(
                f,
                "snapshot {name} was taken while a stream was half received: what it has is not whole; send another"
            ),
            Fault::Needed { name, half: Half::Restored(half) } => write!(
                f,
                "snapshot {name} is needed: {half} is half restored; end it first with `dure snapshot restore VOLUME \
                 {half}`"
            ),
            Fault::Needed { name, half: Half::Received(half) } => write!(
                f,
                "snapshot {name} is needed: a stream of snapshot {half} is half received; receive it again first, \
                 or, if it is lost, end it with `dure snapshot restore VOLUME {name}`"
            ),
            Fault::NotOlder => f.write_str("the snapshot of --from has to be the older one"),
            Fault::Reserved => f.write_str("this name is reserved for `dure receive`; rename it"),
            Fault::Busy => f.write_str("another thread receives a stream or takes snapshots; receive it again"),
            Fault::PathTooLong => f.write_str("the path has more than 16 KiB; move it up"),
        }
    }
}

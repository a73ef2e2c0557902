//! What `dure run` and the library that it loads into a program say to each other.
//!
//! **Problem.** Two programs that are installed together, and share no memory. **Structure.** The
//! command puts an [`Order`] into the environment of the program; the library, or its server, writes a
//! [`Word`] to a socket, a line each. **Invariants.** The library takes the order out of the
//! environment, so that no child finds it. A line that is not understood is the end. **On a crash**
//! of either side the socket ends.

mod program;

use std::ffi::{OsStr, OsString};
use std::os::fd::RawFd;
use std::path::PathBuf;

pub use self::program::{Program, find, kind};

use crate::{Mount, MountOptions, MountPoint, Volume};

/// Names in the environment.
const NAMES: [&str; 6] = [
    "DURE_RUN_VOLUME",
    "DURE_RUN_AT",
    "DURE_RUN_BEGINS",
    "DURE_RUN_OPTIONS",
    "DURE_RUN_SOCKET",
    "DURE_RUN_BEFORE",
];
/// The program begins where it was called from.
const OUTSIDE: &str = "outside";
/// The program begins in the mount.
const INSIDE: &str = "inside";

/// What is to be opened and mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The volume; an absolute path.
    pub volume: PathBuf,
    /// The directory that it is mounted on; an absolute path.
    pub at: PathBuf,
    /// Whether the program begins in it; otherwise where it was called from.
    pub begins_inside: bool,
    /// Words of [`options`].
    pub options: String,
    /// Where words are written; open in the program.
    pub socket: RawFd,
    /// The server of the program that this one replaces by exec(2).
    pub before: Option<Before>,
}

/// A server that has what is ordered, and gives it away when nobody else uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Before {
    /// Where it is asked, and answers; open in the program.
    pub socket: RawFd,
    /// The process that asks; another one that finds the order does not.
    pub process: u32,
}

impl Before {
    fn of(value: &OsStr) -> Option<Before> {
        let (socket, process) = value.to_str()?.split_once(' ')?;
        let (socket, process) = (socket.parse().ok()?, process.parse().ok()?);
        Some(Before { socket, process })
    }
}

impl Order {
    /// Variables for the environment of the program.
    #[must_use]
    pub fn variables(&self) -> [(&'static str, OsString); 6] {
        let begins = if self.begins_inside { INSIDE } else { OUTSIDE };
        let before = self.before.map_or(String::new(), |before| {
            format!("{} {}", before.socket, before.process)
        });
        let values = [
            self.volume.clone().into(),
            self.at.clone().into(),
            begins.into(),
            self.options.clone().into(),
            self.socket.to_string().into(),
            before.into(),
        ];
        let mut values = values.into_iter();
        NAMES.map(|name| (name, values.next().expect("a value for each name")))
    }

    /// Opens the volume and mounts it.
    ///
    /// # Errors
    /// In words.
    pub fn carry_out(&self) -> std::result::Result<(Volume, Mount), String> {
        let (options, point) = options(&self.options)?;
        let volume = Volume::open_all(&self.volume, options).map_err(|error| error.to_string())?;
        let mount = volume.mount_with(&self.at, &point);
        let mount = mount.map_err(|error| error.to_string())?;
        Ok((volume, mount))
    }

    /// The order in an environment, and the names that it has there.
    #[must_use]
    pub fn of(
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Option<(Order, &'static [&'static str])> {
        let [volume, at, begins, options, socket, before] = NAMES.map(variable);
        let order = Order {
            volume: volume?.into(),
            at: at?.into(),
            begins_inside: begins? == INSIDE,
            options: options?.into_string().ok()?,
            socket: socket?.to_str()?.parse().ok()?,
            before: Before::of(&before?),
        };
        Some((order, &NAMES))
    }
}

/// Words of [`crate::mount_options`], with the cache that a mount has unless they say another; and
/// `allow_other`.
///
/// # Errors
/// What is wrong with a word.
pub fn options(words: &str) -> std::result::Result<(MountOptions, MountPoint), String> {
    let is_of_point = |word: &&str| *word == "allow_other";
    let (of_point, others): (Vec<_>, Vec<_>) = words.split(',').partition(is_of_point);
    let (cache, others) = (crate::quarter_of_memory(), others.join(","));
    let point = MountPoint {
        allow_other: !of_point.is_empty(),
        ..MountPoint::default()
    };
    Ok((
        crate::mount_options(&format!("cache={cache},{others}"))?,
        point,
    ))
}

/// Name of the variable that names libraries to the loader.
pub const PRELOAD: &str = "LD_PRELOAD";

/// The value of [`PRELOAD`] that names `library` and then the others.
#[must_use]
pub fn preload_first(library: &OsStr, others: Option<&OsStr>) -> OsString {
    let mut value = library.to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        value.push(":");
        value.push(others);
    }
    value
}

/// The first library of such a value, which is the one that reads this, and the others.
#[must_use]
pub fn preloaded(value: &OsStr) -> (&OsStr, Option<&OsStr>) {
    use std::os::unix::ffi::OsStrExt;
    let bytes = value.as_bytes();
    match bytes.iter().position(|byte| *byte == b':') {
        Some(end) => (
            OsStr::from_bytes(&bytes[..end]),
            Some(OsStr::from_bytes(&bytes[end + 1..])),
        ),
        None => (value, None),
    }
}

/// What the library says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// The volume is mounted, and the program begins.
    Ready,
    /// It is not, and the program has not begun.
    Failed(String),
    /// The program has ended, and others still use the mount.
    InUse,
    /// The program was killed within a call: what was not synced may be lost.
    Killed,
    /// All is unmounted and closed; a server of what replaces the program opens it again.
    GivenAway(Calls),
    /// All is unmounted and closed.
    Ended(Calls),
}

/// How calls of the program on files of the volume went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Calls {
    /// Those that the library has done.
    pub short: u64,
    /// Those on descriptors that it knows, which it left to the kernel.
    pub long: u64,
}

impl std::ops::Add for Calls {
    type Output = Calls;

    fn add(self, other: Calls) -> Calls {
        Calls {
            short: self.short + other.short,
            long: self.long + other.long,
        }
    }
}

impl Word {
    /// A line, with its end.
    #[must_use]
    pub fn line(&self) -> String {
        match self {
            Word::Ready => "ready\n".to_owned(),
            Word::Failed(why) => format!("failed {}\n", why.replace('\n', " ")),
            Word::InUse => "in-use\n".to_owned(),
            Word::Killed => "killed\n".to_owned(),
            Word::GivenAway(calls) => format!("given-away {} {}\n", calls.short, calls.long),
            Word::Ended(calls) => format!("ended {} {}\n", calls.short, calls.long),
        }
    }

    /// The word of a line.
    #[must_use]
    pub fn of(line: &str) -> Option<Word> {
        let line = line.strip_suffix('\n').unwrap_or(line);
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let calls = || {
            let (short, long) = rest.split_once(' ')?;
            let (short, long) = (short.parse().ok()?, long.parse().ok()?);
            Some(Calls { short, long })
        };
        match word {
            "ready" => Some(Word::Ready),
            "failed" => Some(Word::Failed(rest.to_owned())),
            "in-use" => Some(Word::InUse),
            "killed" => Some(Word::Killed),
            "given-away" => calls().map(Word::GivenAway),
            "ended" => calls().map(Word::Ended),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let calls = Calls { short: 7, long: 1 };
        let of_calls = [Word::Ended(calls), Word::GivenAway(calls)];
        let words = [Word::Ready, Word::InUse, Word::Killed];
        let words = words.into_iter().chain(of_calls);
        for word in words.chain([Word::Failed("no such".into())]) {
            assert_eq!(Word::of(&word.line()), Some(word));
        }
        assert_eq!(Word::of("ended 7\n"), None);
        assert_eq!(Word::of("other\n"), None);
        let two_lines = Word::Failed("one\ntwo".into()).line();
        assert_eq!(Word::of(&two_lines), Some(Word::Failed("one two".into())));
    }

    #[test]
    fn an_order_survives_the_environment() {
        let order = Order {
            volume: "/v.img".into(),
            at: "/mnt".into(),
            begins_inside: true,
            options: "ro,cache=64M".into(),
            socket: 7,
            before: None,
        };
        let (socket, process) = (1030, 4711);
        let before = Some(Before { socket, process });
        for order in [order.clone(), Order { before, ..order }] {
            let variables = order.variables();
            let find = |name: &str| {
                let mut found = variables.iter().filter(|(known, _)| *known == name);
                found.next().map(|(_, value)| value.clone())
            };
            let (found, names) = Order::of(find).expect("all are there");
            assert_eq!((found, names.len()), (order, NAMES.len()));
        }
        assert_eq!(Order::of(|_| None), None);
    }

    #[test]
    fn options_are_of_the_file_system_and_of_the_mount() {
        let (mount, point) = options("ro,allow_other").unwrap();
        assert!(mount.read_only && point.allow_other);
        assert!(!options("").unwrap().1.allow_other);
        assert!(options("allow_others").is_err());
    }

    #[test]
    fn the_first_library_is_told_from_others() {
        let [a, others] = ["/a.so", "/b.so:c"].map(OsStr::new);
        for others in [None, Some(others)] {
            assert_eq!(preloaded(&preload_first(a, others)), (a, others));
        }
        assert_eq!(preload_first(a, Some(OsStr::new(""))), a);
    }
}

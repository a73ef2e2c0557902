//! The generic options of mount(8): words on one side, flags of mount(2) on the other.
//!
//! **Structure.** One table. **Invariants.** Of words that contradict each other the last one
//! counts, as mount(8) says: it appends what is typed to what fstab has. Without any such word
//! [`DEFAULT`] holds: neither set-user-id programs nor devices. **Crash.** Nothing is kept.

use rustix::mount::MountFlags;

/// Set on every mount unless root says `suid` or `dev`: an image may come from anyone.
pub const DEFAULT: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// How access times are kept: one of them.
const ATIME: MountFlags = MountFlags::NOATIME
    .union(MountFlags::RELATIME)
    .union(MountFlags::STRICTATIME);

/// The words that set and clear a flag.
const WORDS: [(MountFlags, &str, &str); 13] = [
    (MountFlags::RDONLY, "ro", "rw"),
    (MountFlags::NOSUID, "nosuid", "suid"),
    (MountFlags::NODEV, "nodev", "dev"),
    (MountFlags::NOEXEC, "noexec", "exec"),
    (MountFlags::SYNCHRONOUS, "sync", "async"),
    (MountFlags::DIRSYNC, "dirsync", ""),
    (MountFlags::NOATIME, "noatime", "atime"),
    (MountFlags::NODIRATIME, "nodiratime", "diratime"),
    (MountFlags::RELATIME, "relatime", "norelatime"),
    (MountFlags::STRICTATIME, "strictatime", "nostrictatime"),
    (MountFlags::NOSYMFOLLOW, "nosymfollow", "symfollow"),
    (MountFlags::LAZYTIME, "lazytime", "nolazytime"),
    (MountFlags::SILENT, "silent", "loud"),
];

/// The flags after `word` is applied; `None` if it is not a generic option with a flag.
#[must_use]
pub fn after(flags: MountFlags, word: &str) -> Option<MountFlags> {
    let is = |(_, set, clear): &&(MountFlags, &str, &str)| *set == word || *clear == word;
    let (flag, set, _) = WORDS.iter().find(is).filter(|_| !word.is_empty())?;
    Some(match *set == word {
        true if ATIME.contains(*flag) => flags.difference(ATIME) | *flag,
        true => flags | *flag,
        false => flags.difference(*flag),
    })
}

/// The words of the flags that are set.
pub fn words(flags: MountFlags) -> impl Iterator<Item = &'static str> {
    let set = WORDS
        .iter()
        .filter(move |(flag, _, _)| flags.contains(*flag));
    set.map(|(_, set, _)| *set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<&'static str> {
        let after = |flags, word| after(flags, word).unwrap();
        words(text.split(',').fold(DEFAULT, after)).collect()
    }

    #[test]
    fn the_last_word_counts() {
        assert_eq!(words(DEFAULT).collect::<Vec<_>>(), ["nosuid", "nodev"]);
        assert_eq!(all("ro,rw,suid,noexec"), ["nodev", "noexec"]);
        assert_eq!(all("suid,dev,nosuid"), ["nosuid"]);
        assert_eq!(all("noatime,relatime,suid,dev"), ["relatime"]);
        assert_eq!(all("strictatime,noatime,atime,suid,dev,silent"), ["silent"]);
        for none in ["", "auto", "nonsense", "mand"] {
            assert_eq!(after(DEFAULT, none), None, "{none}");
        }
    }
}

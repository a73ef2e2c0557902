//! Feature flags of a volume. A flag is never given another meaning; numbers are never reused.

use zerocopy::little_endian::U64;

use super::superblock::{SuperBlock, VERSION};
use crate::error::{Error, Result};

/// Which field of the superblock has a flag: what one that is unknown forbids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlagSet {
    /// To touch the volume.
    Incompat,
    /// To write to it.
    RoCompat,
    /// Nothing.
    Compat,
}

/// How a volume comes to a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comes {
    /// mkfs decides it.
    Mkfs,
    /// Its first use sets the flag, or `dure upgrade`: nothing else has to change.
    Use,
    /// A later dure: the number is taken.
    Later,
}

/// A feature that has a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feature {
    /// Its name in messages and arguments.
    pub name: &'static str,
    /// The set of its flag.
    pub set: FlagSet,
    /// Its flag.
    pub flag: u64,
    /// How a volume comes to it.
    pub comes: Comes,
}

const fn feature(name: &'static str, set: FlagSet, flag: u64, comes: Comes) -> Feature {
    Feature {
        name,
        set,
        flag,
        comes,
    }
}

/// The volume lies on several media, and the superblock has their table.
pub const MEDIA: Feature = feature("media", FlagSet::Incompat, 1, Comes::Mkfs);
/// Several slots may name one block, and the volume header names the index of those.
pub const CLONES: Feature = feature("clones", FlagSet::Incompat, 2, Comes::Use);
/// Inodes may have a project.
pub const PROJECTS: Feature = feature("projects", FlagSet::Incompat, 4, Comes::Use);
/// NAT and SIT have a second copy, whose place is in the superblock.
pub const COPIES: Feature = feature("copies", FlagSet::Incompat, 8, Comes::Mkfs);
/// The media are stamped by each mount for writing (`format::stamp`).
pub const STAMPS: Feature = feature("stamps", FlagSet::RoCompat, 1, Comes::Mkfs);
const COMPRESSION: Feature = feature("compression", FlagSet::Incompat, 16, Comes::Later);
const ENCRYPTION: Feature = feature("encryption", FlagSet::Incompat, 32, Comes::Later);

/// All features.
pub const FEATURES: [Feature; 7] = [
    MEDIA,
    STAMPS,
    CLONES,
    PROJECTS,
    COPIES,
    COMPRESSION,
    ENCRYPTION,
];

impl SuperBlock {
    /// The flags of a set.
    #[must_use]
    pub fn flags(&self, set: FlagSet) -> u64 {
        let flags = match set {
            FlagSet::Incompat => self.incompat,
            FlagSet::RoCompat => self.ro_compat,
            FlagSet::Compat => self.compat,
        };
        flags.get()
    }

    /// Whether the volume has a feature.
    #[must_use]
    pub fn has(&self, feature: Feature) -> bool {
        self.flags(feature.set) & feature.flag != 0
    }

    /// This superblock, with a feature.
    #[must_use]
    pub fn with(mut self, feature: Feature) -> SuperBlock {
        let flags = match feature.set {
            FlagSet::Incompat => &mut self.incompat,
            FlagSet::RoCompat => &mut self.ro_compat,
            FlagSet::Compat => &mut self.compat,
        };
        flags.set(flags.get() | feature.flag);
        self
    }

    /// This superblock, with the flags that another copy has, too: they come to one copy after the
    /// other, block 0 last, and a crash in between is no damage.
    #[must_use]
    pub fn with_flags_of(mut self, copy: &SuperBlock) -> SuperBlock {
        let both = |a: U64, b: U64| U64::new(a.get() | b.get());
        self.compat = both(self.compat, copy.compat);
        self.ro_compat = both(self.ro_compat, copy.ro_compat);
        self.incompat = both(self.incompat, copy.incompat);
        self
    }

    /// The flags of a set that this dure does not know: names, of those without one numbers.
    #[must_use]
    pub fn unknown(&self, set: FlagSet) -> Vec<String> {
        let of_set = FEATURES.iter().filter(|feature| feature.set == set);
        let (later, known): (Vec<_>, Vec<_>) =
            of_set.partition(|feature| feature.comes == Comes::Later);
        let without = |flags, feature: &&Feature| flags & !feature.flag;
        let rest = known.iter().fold(self.flags(set), without);
        let named = later.iter().filter(|feature| rest & feature.flag != 0);
        let mut names: Vec<String> = named.map(|feature| feature.name.to_owned()).collect();
        let rest = later.iter().fold(rest, without);
        names.extend((rest != 0).then(|| format!("{rest:#x}")));
        names
    }

    /// Whether this dure may read the volume.
    ///
    /// # Errors
    /// `Unsupported`, for incompatible features that it does not know.
    pub(super) fn expect_readable(&self) -> Result<()> {
        let names = self.unknown(FlagSet::Incompat);
        refuse_unless(names.is_empty(), || {
            format!("the volume needs a later dure: {}", names.join(", "))
        })
    }

    /// Whether this dure may write to the volume.
    ///
    /// # Errors
    /// `Unsupported`, for features with which it may only read it.
    pub fn expect_writable(&self) -> Result<()> {
        let names = self.unknown(FlagSet::RoCompat);
        refuse_unless(names.is_empty(), || {
            let names = names.join(", ");
            format!(
                "to write to the volume needs a later dure: {names}; this one can read it: `dure mount -o ro`, \
                 `dure get`"
            )
        })
    }
}

/// Refuses another version of the format.
pub(super) fn expect_version(version: u32, magic_is_right: bool) -> Result<()> {
    refuse_unless(magic_is_right && version == VERSION, || {
        let what_to_do = if version > VERSION {
            "it needs a later dure"
        } else {
            "no release made it: copy its files with the dure that did, `dure get VOLUME / DIRECTORY`, \
             to a new volume"
        };
        format!("format version {version}; this program reads version {VERSION} only; {what_to_do}")
    })
}

fn refuse_unless(fine: bool, what: impl FnOnce() -> String) -> Result<()> {
    if fine {
        return Ok(());
    }
    Err(Error::Unsupported { what: what() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_and_no_name_is_used_twice() {
        for (n, one) in FEATURES.iter().enumerate() {
            assert!(one.flag.is_power_of_two(), "{one:?}");
            for other in &FEATURES[..n] {
                assert_ne!(one.name, other.name);
                assert_ne!((one.set as u8, one.flag), (other.set as u8, other.flag));
            }
        }
    }
}

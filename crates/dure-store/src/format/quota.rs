//! Quotas: two extended attributes of the root directory, which no call shows or changes.
//!
//! The *limits* are there while quotas are on. The *usage* is what an unmount found; it counts for the
//! next mount for writing only, which [`UsageHeadV1::mounts`] tells.

use std::fmt;

use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Error, Result};
use crate::units::to_u64;

/// Attribute of the root with the limits; it is there while quotas are on.
pub const LIMITS: &[u8] = b"trusted.dure.quota";
/// Attribute of the root with what is used.
pub const USAGE: &[u8] = b"trusted.dure.usage";

/// The version of both.
const VERSION: u32 = 1;
/// Bytes of the longest value of an attribute.
const VALUE_MAX: usize = 65536;
/// The most limits of a volume.
pub const LIMITS_MAX: usize = (VALUE_MAX - size_of::<LimitsHeadV1>()) / size_of::<LimitV1>();
/// The most owners whose usage an unmount keeps.
pub const USAGES_MAX: usize = (VALUE_MAX - size_of::<UsageHeadV1>()) / size_of::<UsageV1>();
/// The greatest limit, and the greatest sum of a usage: of blocks of 4 KiB, or inodes.
pub const AMOUNT_MAX: u64 = 1 << 52;

/// Whom a quota is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum QuotaKind {
    /// The inodes that a user owns.
    User = 1,
    /// The inodes of a group.
    Group = 2,
    /// The inodes of a project: those below its directories.
    Project = 3,
}

impl QuotaKind {
    /// From its number.
    #[must_use]
    pub fn from_code(code: u32) -> Option<QuotaKind> {
        match code {
            1 => Some(QuotaKind::User),
            2 => Some(QuotaKind::Group),
            3 => Some(QuotaKind::Project),
            _ => None,
        }
    }

    /// Its number.
    #[must_use]
    pub fn code(self) -> u32 {
        match self {
            QuotaKind::User => 1,
            QuotaKind::Group => 2,
            QuotaKind::Project => 3,
        }
    }

    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            QuotaKind::User => "user",
            QuotaKind::Group => "group",
            QuotaKind::Project => "project",
        }
    }
}

/// Whom a quota is for: a user, a group or a project, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    /// Its kind.
    pub kind: QuotaKind,
    /// UID, GID or number of a project.
    pub id: u32,
}

impl Subject {
    /// Whether it has no limits: user 0, and project 0, which is none.
    #[must_use]
    pub fn is_unlimited(self) -> bool {
        self.id == 0 && self.kind != QuotaKind::Group
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.id)
    }
}

/// Start of the value with the limits.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct LimitsHeadV1 {
    /// 1.
    pub version: U32,
    /// Limits that follow, ascending by kind and number.
    pub count: U32,
    /// Written zero, checked zero.
    pub reserved: [u8; 8],
}
const _: () = assert!(size_of::<LimitsHeadV1>() == 16);

/// The limits of one subject; 0 is none.
#[derive(
    FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq,
)]
#[repr(C)]
pub struct LimitV1 {
    /// 1 user, 2 group, 3 project.
    pub kind: U32,
    /// UID, GID or number of a project.
    pub id: U32,
    /// Blocks that may be exceeded for the grace time.
    pub blocks_soft: U64,
    /// Blocks that are never exceeded.
    pub blocks_hard: U64,
    /// Inodes that may be exceeded for the grace time.
    pub inodes_soft: U64,
    /// Inodes that are never exceeded.
    pub inodes_hard: U64,
    /// Seconds since 1970 when the soft limit of blocks was exceeded; 0: it is not.
    pub blocks_since: I64,
    /// The same of inodes.
    pub inodes_since: I64,
    /// Seconds that a soft limit may be exceeded.
    pub grace: U32,
    /// Written zero, checked zero.
    pub reserved: [u8; 4],
}
const _: () = assert!(size_of::<LimitV1>() == 64);

/// Start of the value with what is used.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct UsageHeadV1 {
    /// 1.
    pub version: U32,
    /// Entries that follow, ascending by kind and number.
    pub count: U32,
    /// `mounts` of the volume header when this was written.
    pub mounts: U32,
    /// Written zero, checked zero.
    pub reserved: [u8; 4],
}
const _: () = assert!(size_of::<UsageHeadV1>() == 16);

/// What one subject uses.
#[derive(
    FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq,
)]
#[repr(C)]
pub struct UsageV1 {
    /// 1 user, 2 group, 3 project.
    pub kind: U32,
    /// UID, GID or number of a project.
    pub id: U32,
    /// Data blocks of its inodes, preallocated ones included.
    pub blocks: U64,
    /// Its inodes.
    pub inodes: U64,
}
const _: () = assert!(size_of::<UsageV1>() == 24);

/// A soft and a hard limit; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Bounds {
    /// May be exceeded for the grace time.
    pub soft: u64,
    /// Never exceeded.
    pub hard: u64,
    /// Seconds since 1970 when the soft limit was exceeded; 0: it is not.
    pub since: i64,
}

impl Bounds {
    /// Whether they can be.
    #[must_use]
    pub fn are_possible(&self) -> bool {
        let ordered = self.hard == 0 || self.soft <= self.hard;
        let is_time = u64::try_from(self.since).is_ok_and(|since| since <= AMOUNT_MAX);
        ordered && self.soft <= AMOUNT_MAX && self.hard <= AMOUNT_MAX && is_time
    }
}

/// The limits of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Limits {
    /// Of blocks of 4 KiB.
    pub blocks: Bounds,
    /// Of inodes.
    pub inodes: Bounds,
    /// Seconds that a soft limit may be exceeded.
    pub grace: u32,
}

/// What a subject has, of blocks of 4 KiB and inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Usage {
    /// Data blocks of its inodes, preallocated ones included, whether others share them or not.
    pub blocks: u64,
    /// Its inodes.
    pub inodes: u64,
}

fn damaged(what: &str, at: usize, want: u64, got: u64) -> Error {
    Error::Corrupt {
        what: format!("quotas, an attribute of the root directory: {what}; counted from its start"),
        at: to_u64(at),
        want,
        got,
    }
}

/// The entries of a value behind a head with these fields.
fn entries<'v, E: FromBytes + KnownLayout + Immutable + Unaligned>(
    rest: &'v [u8],
    (version, count, reserved): (U32, U32, &[u8]),
) -> Result<&'v [E]> {
    if version.get() != VERSION {
        let (want, got) = (u64::from(VERSION), u64::from(version.get()));
        return Err(damaged("version", 0, want, got));
    }
    if reserved.iter().any(|byte| *byte != 0) {
        return Err(damaged("reserved bytes of the head", 8, 0, 1));
    }
    match <[E]>::ref_from_bytes(rest) {
        Ok(found) if to_u64(found.len()) == u64::from(count.get()) => Ok(found),
        _ => {
            let has = to_u64(rest.len() / size_of::<E>());
            Err(damaged("number of entries", 4, has, u64::from(count.get())))
        }
    }
}

/// The subject of an entry, which comes after that of the one before.
fn subject((kind, id): (U32, U32), before: Option<Subject>, at: usize) -> Result<Subject> {
    let code = kind.get();
    let kind = QuotaKind::from_code(code);
    let kind = kind.ok_or_else(|| damaged("kind of an entry", at, 1, code.into()))?;
    let subject = Subject { kind, id: id.get() };
    match before {
        Some(before) if before >= subject => {
            let what = format!("order of entries, {before} and {subject}");
            Err(damaged(&what, at, before.id.into(), subject.id.into()))
        }
        _ => Ok(subject),
    }
}

/// The limits that a value has.
///
/// # Errors
/// `Corrupt`.
pub fn parse_limits(value: &[u8]) -> Result<Vec<(Subject, Limits)>> {
    let Ok((head, rest)) = LimitsHeadV1::ref_from_prefix(value) else {
        return Err(damaged("length", 0, 16, to_u64(value.len())));
    };
    let found = entries::<LimitV1>(rest, (head.version, head.count, &head.reserved))?;
    let mut all: Vec<(Subject, Limits)> = Vec::with_capacity(found.len());
    for (n, entry) in found.iter().enumerate() {
        let at = size_of::<LimitsHeadV1>() + n * size_of::<LimitV1>();
        let before = all.last().map(|(subject, _)| *subject);
        let subject = subject((entry.kind, entry.id), before, at)?;
        let bounds = |soft: U64, hard: U64, since: I64| Bounds {
            soft: soft.get(),
            hard: hard.get(),
            since: since.get(),
        };
        let limits = Limits {
            blocks: bounds(entry.blocks_soft, entry.blocks_hard, entry.blocks_since),
            inodes: bounds(entry.inodes_soft, entry.inodes_hard, entry.inodes_since),
            grace: entry.grace.get(),
        };
        let possible = limits.blocks.are_possible() && limits.inodes.are_possible();
        if subject.is_unlimited() || !possible || entry.reserved != [0; 4] {
            let what = format!("limits of {subject}");
            return Err(damaged(&what, at, limits.blocks.hard, limits.blocks.soft));
        }
        all.push((subject, limits));
    }
    Ok(all)
}

/// The value with these limits, at most [`LIMITS_MAX`], ascending.
#[must_use]
pub fn encode_limits<'l>(all: impl ExactSizeIterator<Item = (Subject, &'l Limits)>) -> Vec<u8> {
    assert!(all.len() <= LIMITS_MAX, "the caller bounds the limits");
    let head = LimitsHeadV1 {
        version: VERSION.into(),
        count: u32::try_from(all.len()).expect("at most LIMITS_MAX").into(),
        reserved: [0; 8],
    };
    let mut value = head.as_bytes().to_vec();
    for (subject, limits) in all {
        let entry = LimitV1 {
            kind: subject.kind.code().into(),
            id: subject.id.into(),
            blocks_soft: limits.blocks.soft.into(),
            blocks_hard: limits.blocks.hard.into(),
            inodes_soft: limits.inodes.soft.into(),
            inodes_hard: limits.inodes.hard.into(),
            blocks_since: limits.blocks.since.into(),
            inodes_since: limits.inodes.since.into(),
            grace: limits.grace.into(),
            reserved: [0; 4],
        };
        value.extend_from_slice(entry.as_bytes());
    }
    value
}

/// What a value says is used, and the `mounts` of the volume header for which it counts.
///
/// # Errors
/// `Corrupt`.
pub fn parse_usage(value: &[u8]) -> Result<(u32, Vec<(Subject, Usage)>)> {
    let Ok((head, rest)) = UsageHeadV1::ref_from_prefix(value) else {
        return Err(damaged("length", 0, 16, to_u64(value.len())));
    };
    let found = entries::<UsageV1>(rest, (head.version, head.count, &head.reserved))?;
    let mut all: Vec<(Subject, Usage)> = Vec::with_capacity(found.len());
    for (n, entry) in found.iter().enumerate() {
        let at = size_of::<UsageHeadV1>() + n * size_of::<UsageV1>();
        let before = all.last().map(|(subject, _)| *subject);
        let subject = subject((entry.kind, entry.id), before, at)?;
        let usage = Usage {
            blocks: entry.blocks.get(),
            inodes: entry.inodes.get(),
        };
        let most = usage.blocks.max(usage.inodes);
        if most > AMOUNT_MAX {
            let what = format!("usage of {subject}");
            return Err(damaged(&what, at, AMOUNT_MAX, most));
        }
        all.push((subject, usage));
    }
    Ok((head.mounts.get(), all))
}

/// The value with this usage, at most [`USAGES_MAX`] entries, ascending.
#[must_use]
pub fn encode_usage(mounts: u32, all: &[(Subject, Usage)]) -> Vec<u8> {
    assert!(all.len() <= USAGES_MAX, "the caller bounds the usage");
    let head = UsageHeadV1 {
        version: VERSION.into(),
        count: u32::try_from(all.len()).expect("at most USAGES_MAX").into(),
        mounts: mounts.into(),
        reserved: [0; 4],
    };
    let mut value = head.as_bytes().to_vec();
    for (subject, usage) in all {
        let entry = UsageV1 {
            kind: subject.kind.code().into(),
            id: subject.id.into(),
            blocks: usage.blocks.into(),
            inodes: usage.inodes.into(),
        };
        value.extend_from_slice(entry.as_bytes());
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(id: u32) -> Subject {
        let kind = QuotaKind::User;
        Subject { kind, id }
    }

    fn limits() -> Limits {
        Limits {
            blocks: Bounds {
                soft: 10,
                hard: 20,
                since: 1,
            },
            inodes: Bounds::default(),
            grace: 60,
        }
    }

    #[test]
    fn what_is_encoded_is_parsed() {
        let (a, b) = (limits(), Limits::default());
        let value = encode_limits([(user(1), &a), (user(7), &b)].into_iter());
        assert_eq!(parse_limits(&value).unwrap(), [(user(1), a), (user(7), b)]);
        let usage = [(
            user(3),
            Usage {
                blocks: 4,
                inodes: 5,
            },
        )];
        let (mounts, found) = parse_usage(&encode_usage(9, &usage)).unwrap();
        assert_eq!((mounts, &found[..]), (9, &usage[..]));
    }

    /// No value makes a reader panic, or is taken that says two things of one subject.
    #[test]
    fn a_table_that_lies_is_refused() {
        let a = limits();
        let value = encode_limits([(user(1), &a), (user(7), &a)].into_iter());
        for len in 0..value.len() {
            parse_limits(&value[..len]).unwrap_err();
        }
        let wrong = |at: usize, byte: u8| {
            let mut value = value.clone();
            value[at] = byte;
            parse_limits(&value).unwrap_err().to_string()
        };
        assert!(wrong(0, 2).contains("version"));
        assert!(wrong(4, 3).contains("number of entries"));
        assert!(wrong(8, 1).contains("reserved"));
        assert!(wrong(16, 9).contains("kind"));
        assert!(wrong(20, 7).contains("order of entries, user 7 and user 7"));
        assert!(wrong(24, 21).contains("limits of user 1"), "soft > hard");
        assert!(
            wrong(16 + 55, 0x80).contains("limits of user 1"),
            "a time before 1970"
        );
        assert!(
            wrong(16 + 54, 0x40).contains("limits of user 1"),
            "a time that never comes"
        );
        assert!(wrong(20, 0).contains("limits of user 0"), "root has none");
        let project = |id| {
            encode_limits(
                [(
                    Subject {
                        kind: QuotaKind::Project,
                        id,
                    },
                    &a,
                )]
                .into_iter(),
            )
        };
        parse_limits(&project(1)).unwrap();
        parse_limits(&project(0)).unwrap_err();
        assert!(wrong(16 + 63, 1).contains("limits of user 1"), "reserved");
        let usage = encode_usage(1, &[(user(1), Usage::default())]);
        let mut huge = usage.clone();
        huge[16 + 15] = 0x7f;
        assert!(
            parse_usage(&huge)
                .unwrap_err()
                .to_string()
                .contains("usage of user 1")
        );
        parse_usage(&usage[..30]).unwrap_err();
    }
}

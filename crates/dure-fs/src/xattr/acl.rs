//! POSIX access control lists as the kernel passes them (`system.posix_acl_access`, `_default`):
//! parsing, inheritance, and their tie to the mode bits. Pure functions.

use dure_store::error::{Error, Result};

const VERSION: u32 = 2;
const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;
/// `id` of entries without one.
const NO_ID: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    tag: u16,
    perm: u16,
    id: u32,
}

/// A valid access control list: entries in canonical order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Acl(Vec<Entry>);

impl Acl {
    /// Parses and validates the bytes of an attribute.
    ///
    /// # Errors
    /// `Invalid`.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Acl> {
        let wrong = Error::Invalid("not a POSIX access control list");
        let Some((version, rest)) = bytes.split_first_chunk::<4>() else {
            return Err(wrong);
        };
        if u32::from_le_bytes(*version) != VERSION || !rest.len().is_multiple_of(8) {
            return Err(wrong);
        }
        let entries = rest.chunks_exact(8).map(|raw| Entry {
            tag: u16::from_le_bytes([raw[0], raw[1]]),
            perm: u16::from_le_bytes([raw[2], raw[3]]),
            id: u32::from_le_bytes([raw[4], raw[5], raw[6], raw[7]]),
        });
        let acl = Acl(entries.collect());
        if acl.is_valid() { Ok(acl) } else { Err(wrong) }
    }

    /// The attribute's bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            bytes.extend_from_slice(&entry.tag.to_le_bytes());
            bytes.extend_from_slice(&entry.perm.to_le_bytes());
            bytes.extend_from_slice(&entry.id.to_le_bytes());
        }
        bytes
    }

    /// As the kernel's `posix_acl_valid`: tags in order, each of the three classes once, a mask if
    /// a user or group is named.
    fn is_valid(&self) -> bool {
        let count = |tag| self.0.iter().filter(|entry| entry.tag == tag).count();
        let known = |entry: &Entry| {
            let named = matches!(entry.tag, USER | GROUP);
            let class = matches!(entry.tag, USER_OBJ | GROUP_OBJ | MASK | OTHER);
            entry.perm <= 7 && (class || (named && entry.id != NO_ID))
        };
        let ordered = self.0.windows(2).all(|pair| pair[0].tag <= pair[1].tag);
        let named = count(USER) + count(GROUP) > 0;
        self.0.iter().all(known)
            && ordered
            && [USER_OBJ, GROUP_OBJ, OTHER]
                .into_iter()
                .all(|tag| count(tag) == 1)
            && count(MASK) <= 1
            && (!named || count(MASK) == 1)
    }

    fn perm(&self, tag: u16) -> Option<u16> {
        self.0
            .iter()
            .find(|entry| entry.tag == tag)
            .map(|entry| entry.perm)
    }

    /// The mode bits that the list stands for, and whether they say all of it.
    pub(crate) fn as_mode(&self) -> (u32, Equivalence) {
        let perm = |tag| u32::from(self.perm(tag).unwrap_or(0));
        let group = self.perm(MASK).map_or(perm(GROUP_OBJ), u32::from);
        let mode = perm(USER_OBJ) << 6 | group << 3 | perm(OTHER);
        (
            mode,
            if self.0.len() == 3 {
                Equivalence::Whole
            } else {
                Equivalence::Part
            },
        )
    }

    /// chmod: gives the classes the permissions of `mode`.
    pub(crate) fn set_mode(&mut self, mode: u32) {
        let bits =
            |shift: u32| u16::try_from(mode >> shift & 7).expect("permissions have three bits");
        let has_mask = self.perm(MASK).is_some();
        for entry in &mut self.0 {
            match entry.tag {
                USER_OBJ => entry.perm = bits(6),
                GROUP_OBJ if !has_mask => entry.perm = bits(3),
                MASK => entry.perm = bits(3),
                OTHER => entry.perm = bits(0),
                _ => {}
            }
        }
    }

    /// Inheritance: removes from a copy of the default list what `mode` does not allow; returns the
    /// mode of the new inode.
    pub(crate) fn restrict(&mut self, mode: u32) -> u32 {
        let (own, _) = self.as_mode();
        let allowed = own & mode & 0o777;
        self.set_mode(allowed);
        mode & !0o777 | allowed
    }
}

/// Whether mode bits can replace a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Equivalence {
    /// The list has only the three classes.
    Whole,
    /// The list says more.
    Part,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        Acl(entries
            .iter()
            .map(|&(tag, perm, id)| Entry { tag, perm, id })
            .collect())
        .encode()
    }

    fn named() -> Acl {
        let entries = [
            (USER_OBJ, 7, NO_ID),
            (USER, 7, 1000),
            (GROUP_OBJ, 5, NO_ID),
            (MASK, 7, NO_ID),
            (OTHER, 4, NO_ID),
        ];
        Acl::parse(&acl(&entries)).unwrap()
    }

    #[test]
    fn a_minimal_list_is_a_mode() {
        let bytes = acl(&[
            (USER_OBJ, 6, NO_ID),
            (GROUP_OBJ, 4, NO_ID),
            (OTHER, 0, NO_ID),
        ]);
        let parsed = Acl::parse(&bytes).unwrap();
        assert_eq!(parsed.as_mode(), (0o640, Equivalence::Whole));
        assert_eq!(parsed.encode(), bytes);
        assert_eq!(named().as_mode(), (0o774, Equivalence::Part));
    }

    #[test]
    fn wrong_lists_are_refused() {
        let class = [
            (USER_OBJ, 6, NO_ID),
            (GROUP_OBJ, 4, NO_ID),
            (OTHER, 0, NO_ID),
        ];
        assert!(Acl::parse(b"").is_err());
        assert!(Acl::parse(&[1, 0, 0, 0]).is_err());
        assert!(Acl::parse(&acl(&class[..2])).is_err(), "no OTHER");
        assert!(
            Acl::parse(&acl(&[class[1], class[0], class[2]])).is_err(),
            "order"
        );
        let unmasked = [class[0], (USER, 7, 5), class[1], class[2]];
        assert!(Acl::parse(&acl(&unmasked)).is_err(), "named without a mask");
        assert!(
            Acl::parse(&acl(&[(USER_OBJ, 8, NO_ID), class[1], class[2]])).is_err(),
            "perm"
        );
        assert!(Acl::parse(&acl(&class)[..27]).is_err(), "cut off");
    }

    #[test]
    fn chmod_changes_the_mask_not_the_group() {
        let mut list = named();
        list.set_mode(0o640);
        assert_eq!(list.perm(GROUP_OBJ), Some(5));
        assert_eq!(list.perm(MASK), Some(4));
        assert_eq!(list.as_mode().0, 0o640);
    }

    #[test]
    fn inheritance_keeps_what_both_allow() {
        let mut list = named();
        assert_eq!(list.restrict(0o100_666), 0o100_664);
        assert_eq!(
            list.perm(USER),
            Some(7),
            "named entries stay, the mask limits them"
        );
        assert_eq!(list.perm(MASK), Some(6));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(mut list) = Acl::parse(&bytes) {
                prop_assert_eq!(&list.encode(), &bytes);
                prop_assert!(list.restrict(0o644) & 0o777 <= 0o644);
            }
        }
    }
}

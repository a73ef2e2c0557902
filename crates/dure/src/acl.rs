//! POSIX access control lists (POSIX.1e draft 17), in the form Linux stores as the extended
//! attributes `system.posix_acl_access` and `system.posix_acl_default`.
//!
//! The file system keeps mode and access list consistent, does not store a list that says no more
//! than the mode, and applies default lists to new inodes; this module builds, parses and evaluates
//! lists.

use rustix::io::Errno;

use crate::permission::Access;

/// Name of the attribute that permission checks use.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of the attribute of a directory that new entries inherit.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const UNDEFINED_ID: u32 = u32::MAX;
const ENTRY_BYTES: usize = 8;

/// The subject of an entry, in the order in which entries are stored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Tag {
    /// The owner.
    Owner,
    /// A named user.
    User(u32),
    /// The owning group.
    OwningGroup,
    /// A named group.
    Group(u32),
    /// Upper bound for all entries but those of owner and others.
    Mask,
    /// All other users.
    Other,
}

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The subject.
    pub tag: Tag,
    /// `rwx` bits, 0..=7.
    pub permissions: u32,
}

/// A valid access control list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessList {
    entries: Vec<Entry>,
}

impl AccessList {
    /// Checks and sorts `entries`: exactly one each of owner, owning group and others, no name
    /// twice, and a mask if there are named entries.
    ///
    /// # Errors
    /// `INVAL`.
    pub fn new(mut entries: Vec<Entry>) -> Result<AccessList, Errno> {
        entries.sort_by_key(|entry| entry.tag);
        let count = |tag: Tag| entries.iter().filter(|entry| entry.tag == tag).count();
        let named = entries
            .iter()
            .any(|entry| matches!(entry.tag, Tag::User(_) | Tag::Group(_)));
        let twice = entries.windows(2).any(|pair| pair[0].tag == pair[1].tag);
        let complete = [Tag::Owner, Tag::OwningGroup, Tag::Other]
            .iter()
            .all(|tag| count(*tag) == 1);
        let in_range = entries.iter().all(|entry| entry.permissions <= 7);
        if !complete || twice || !in_range || (named && count(Tag::Mask) == 0) {
            return Err(Errno::INVAL);
        }
        Ok(AccessList { entries })
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// `INVAL` if it is not a valid list, `NOTSUP` for another version.
    pub fn parse(bytes: &[u8]) -> Result<AccessList, Errno> {
        let (version, rest) = bytes.split_first_chunk::<4>().ok_or(Errno::INVAL)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Errno::NOTSUP);
        }
        let (entries, []) = rest.as_chunks::<ENTRY_BYTES>() else {
            return Err(Errno::INVAL);
        };
        AccessList::new(entries.iter().map(parse_entry).collect::<Result<_, _>>()?)
    }

    /// The stored form.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            let (tag, id) = match entry.tag {
                Tag::Owner => (0x01_u16, UNDEFINED_ID),
                Tag::User(uid) => (0x02, uid),
                Tag::OwningGroup => (0x04, UNDEFINED_ID),
                Tag::Group(gid) => (0x08, gid),
                Tag::Mask => (0x10, UNDEFINED_ID),
                Tag::Other => (0x20, UNDEFINED_ID),
            };
            let permissions = u16::try_from(entry.permissions).expect("checked to be at most 7");
            bytes.extend(tag.to_le_bytes());
            bytes.extend(permissions.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    /// The entries, sorted.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    fn get(&self, tag: Tag) -> Option<u32> {
        self.entries
            .iter()
            .find(|entry| entry.tag == tag)
            .map(|entry| entry.permissions)
    }

    /// The permission bits that stand for this list in the mode (0..=0o777).
    #[must_use]
    pub fn mode(&self) -> u32 {
        let must = |tag| self.get(tag).expect("a valid list has this tag");
        let group = self
            .get(Tag::Mask)
            .unwrap_or_else(|| must(Tag::OwningGroup));
        must(Tag::Owner) << 6 | group << 3 | must(Tag::Other)
    }

    /// What the list grants to a caller that is not the owner; `groups` tells which groups the
    /// caller is in.
    pub(crate) fn grants(
        &self,
        uid: u32,
        owning_group: u32,
        in_group: impl Fn(u32) -> bool,
        want: Access,
    ) -> bool {
        let mask = self.get(Tag::Mask).unwrap_or(7);
        let masked = |permissions: u32| Access::from_bits(permissions & mask).contains(want);
        if let Some(permissions) = self.get(Tag::User(uid)) {
            return masked(permissions);
        }
        let mut is_member = false;
        for entry in &self.entries {
            let member = match entry.tag {
                Tag::OwningGroup => in_group(owning_group),
                Tag::Group(gid) => in_group(gid),
                _ => false,
            };
            if member && masked(entry.permissions) {
                return true;
            }
            is_member |= member;
        }
        let other = self.get(Tag::Other).expect("a valid list has this tag");
        !is_member && Access::from_bits(other).contains(want)
    }
}

fn parse_entry(bytes: &[u8; ENTRY_BYTES]) -> Result<Entry, Errno> {
    let [t0, t1, p0, p1, id @ ..] = *bytes;
    let id = u32::from_le_bytes(id);
    let tag = match u16::from_le_bytes([t0, t1]) {
        0x01 => Tag::Owner,
        0x02 => Tag::User(id),
        0x04 => Tag::OwningGroup,
        0x08 => Tag::Group(id),
        0x10 => Tag::Mask,
        0x20 => Tag::Other,
        _ => return Err(Errno::INVAL),
    };
    Ok(Entry {
        tag,
        permissions: u32::from(u16::from_le_bytes([p0, p1])),
    })
}

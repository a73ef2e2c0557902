//! The stream of extended attributes: name and value pairs one after another. Pure functions.
//!
//! Attributes keep their order; one whose value changes its length moves to the end, so that the
//! pieces of the stream before its old place stay as they are.

use dure_store::error::{Error, Result};
use dure_store::format::blob::{AttributeHeader, XATTR_STREAM_MAX};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

/// Longest value.
pub(crate) const VALUE_MAX: usize = 65536;
/// Whether an attribute must exist, must not, or may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum XattrMode {
    /// Create or replace.
    #[default]
    Any,
    /// It must not exist yet.
    Create,
    /// It must exist.
    Replace,
}

/// An attribute in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attribute<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
    /// Offset in the stream.
    at: usize,
    /// Length in bytes.
    len: usize,
}

/// Walks the attributes of a stream.
#[derive(Debug)]
pub(crate) struct AttributesOf<'a> {
    stream: &'a [u8],
    at: usize,
}

/// The attributes of a stream, in order.
pub(crate) fn attributes(stream: &[u8]) -> AttributesOf<'_> {
    AttributesOf { stream, at: 0 }
}

impl<'a> Iterator for AttributesOf<'a> {
    type Item = Result<Attribute<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.stream.len() {
            return None;
        }
        let attribute = parse(self.stream, self.at);
        self.at = attribute
            .as_ref()
            .map_or(self.stream.len(), |a| a.at + a.len);
        Some(attribute)
    }
}

fn parse(stream: &[u8], at: usize) -> Result<Attribute<'_>> {
    let malformed = |got: u64| Error::Corrupt {
        what: "extended attribute stream".into(),
        at: 0,
        want: dure_store::units::to_u64(stream.len()),
        got,
    };
    let place = dure_store::units::to_u64(at);
    let Ok((head, rest)) = AttributeHeader::ref_from_prefix(&stream[at..]) else {
        return Err(malformed(place));
    };
    let name_len = usize::from(head.name_len);
    let value_len = usize::try_from(head.value_len.get()).map_err(|_| malformed(place))?;
    if name_len == 0 || value_len > VALUE_MAX || name_len + value_len > rest.len() {
        return Err(malformed(place));
    }
    let (name, rest) = rest.split_at(name_len);
    let len = size_of::<AttributeHeader>() + name_len + value_len;
    Ok(Attribute {
        name,
        value: &rest[..value_len],
        at,
        len,
    })
}

/// The value of `name`.
pub(crate) fn get<'a>(stream: &'a [u8], name: &[u8]) -> Result<Option<&'a [u8]>> {
    Ok(find(stream, name)?.map(|attribute| attribute.value))
}

fn find<'a>(stream: &'a [u8], name: &[u8]) -> Result<Option<Attribute<'a>>> {
    for attribute in attributes(stream) {
        let attribute = attribute?;
        if attribute.name == name {
            return Ok(Some(attribute));
        }
    }
    Ok(None)
}

/// Sets `name`, which the caller has checked.
///
/// # Errors
/// `Exists`, `NoAttribute` by `mode`; `AttributeTooLarge`; `NoSpace` beyond 128 KiB in all.
pub(crate) fn set(stream: &mut Vec<u8>, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
    if value.len() > VALUE_MAX {
        return Err(Error::AttributeTooLarge);
    }
    let place = match (find(stream, name)?, mode) {
        (Some(_), XattrMode::Create) => return Err(Error::Exists),
        (None, XattrMode::Replace) => return Err(Error::NoAttribute),
        (Some(old), _) => Some((old.at, old.len, old.value.len())),
        (None, _) => None,
    };
    if let Some((at, len, value_len)) = place
        && value_len == value.len()
    {
        stream[at + len - value_len..at + len].copy_from_slice(value);
        return Ok(());
    }
    let need = size_of::<AttributeHeader>() + name.len() + value.len();
    let freed = place.map_or(0, |(_, len, _)| len);
    if stream.len() - freed + need > XATTR_STREAM_MAX {
        return Err(Error::NoSpace {
            what: "extended attributes of one inode, at most 128 KiB",
        });
    }
    if let Some((at, len, _)) = place {
        stream.drain(at..at + len);
    }
    let head = AttributeHeader {
        value_len: U32::new(u32::try_from(value.len()).expect("a value has at most 65536 bytes")),
        name_len: u8::try_from(name.len()).expect("a name has at most 255 bytes"),
        reserved: [0; 3],
    };
    stream.extend_from_slice(head.as_bytes());
    stream.extend_from_slice(name);
    stream.extend_from_slice(value);
    Ok(())
}

/// Removes `name`; returns false when it is not there.
pub(crate) fn remove(stream: &mut Vec<u8>, name: &[u8]) -> Result<bool> {
    let Some(place) = find(stream, name)?.map(|old| old.at..old.at + old.len) else {
        return Ok(false);
    };
    stream.drain(place);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn modes_and_limits() {
        let mut stream = Vec::new();
        let largest = vec![7; VALUE_MAX];
        set(&mut stream, b"user.a", &largest, XattrMode::Create).unwrap();
        let again = set(&mut stream, b"user.a", b"", XattrMode::Create);
        assert!(matches!(again, Err(Error::Exists)));
        let missing = set(&mut stream, b"user.b", b"", XattrMode::Replace);
        assert!(matches!(missing, Err(Error::NoAttribute)));
        let over = set(
            &mut stream,
            b"user.b",
            &vec![0; VALUE_MAX + 1],
            XattrMode::Any,
        );
        assert!(matches!(over, Err(Error::AttributeTooLarge)));
        let full = set(&mut stream, b"user.b", &largest, XattrMode::Any);
        assert!(matches!(full, Err(Error::NoSpace { .. })));
        assert_eq!(get(&stream, b"user.a").unwrap(), Some(&largest[..]));
        set(&mut stream, b"user.a", b"", XattrMode::Replace).unwrap();
        assert_eq!(get(&stream, b"user.a").unwrap(), Some(&b""[..]));
        assert!(remove(&mut stream, b"user.a").unwrap());
        assert!(!remove(&mut stream, b"user.a").unwrap());
        assert!(stream.is_empty());
    }

    #[test]
    fn a_value_of_the_same_length_stays_in_its_place() {
        let mut stream = Vec::new();
        set(&mut stream, b"user.a", b"111", XattrMode::Any).unwrap();
        set(&mut stream, b"user.b", b"22", XattrMode::Any).unwrap();
        let before = stream.clone();
        set(&mut stream, b"user.a", b"333", XattrMode::Any).unwrap();
        let changed: Vec<usize> = (0..before.len())
            .filter(|&at| before[at] != stream[at])
            .collect();
        assert_eq!(changed.len(), 3);
    }

    proptest! {
        #[test]
        fn a_stream_is_a_map(ops in proptest::collection::vec((0..6_u8, 0..4_u8, 0..50_usize), 1..60)) {
            let mut stream = Vec::new();
            let mut model = BTreeMap::new();
            for (number, what, len) in ops {
                let name = format!("user.{number}").into_bytes();
                if what == 0 {
                    let there = remove(&mut stream, &name).unwrap();
                    prop_assert_eq!(there, model.remove(&name).is_some());
                } else {
                    let value = vec![what; len];
                    set(&mut stream, &name, &value, XattrMode::Any).unwrap();
                    model.insert(name, value);
                }
                let now: BTreeMap<Vec<u8>, Vec<u8>> = attributes(&stream)
                    .map(|a| a.map(|a| (a.name.to_vec(), a.value.to_vec())).unwrap())
                    .collect();
                prop_assert_eq!(&now, &model);
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(stream in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = attributes(&stream).count();
            let _ = get(&stream, b"user.a");
        }
    }
}

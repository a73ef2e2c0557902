//! Names of extended attributes.

use crate::error::{Error, Result};

/// Attribute with the list that limits access.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// Attribute of a directory with the list that new inodes inherit.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Whether `name` is that of an access control list.
#[must_use]
pub fn is_acl(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

/// Longest name, prefix included.
pub const NAME_MAX: usize = 255;
/// Name spaces in which names are free. In `system.` there are access control lists and nothing
/// else: the kernel leaves the check of what is set there to the file system.
const PREFIXES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

/// Checks an attribute's name.
///
/// # Errors
/// `Invalid` for an empty name or one with NUL, `NameTooLong`, `NotSupported` for an unknown name
/// space.
pub fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    if name.contains(&0) {
        return Err(Error::Invalid("an attribute's name holds NUL"));
    }
    if is_acl(name) {
        return Ok(());
    }
    let Some(prefix) = PREFIXES.into_iter().find(|prefix| name.starts_with(prefix)) else {
        return Err(Error::NotSupported(
            "attributes outside user., trusted., security. but access control lists",
        ));
    };
    if name.len() == prefix.len() {
        return Err(Error::Invalid("an attribute's name ends with its prefix"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_need_a_known_prefix() {
        for good in [
            "user.a",
            "trusted.x",
            "security.capability",
            "system.posix_acl_access",
        ] {
            check_name(good.as_bytes()).unwrap();
        }
        assert!(matches!(check_name(b"user."), Err(Error::Invalid(_))));
        assert!(matches!(
            check_name(b"foo.bar"),
            Err(Error::NotSupported(_))
        ));
        assert!(matches!(check_name(b""), Err(Error::NotSupported(_))));
        assert!(matches!(check_name(b"user.\0"), Err(Error::Invalid(_))));
        assert!(matches!(check_name(&[b'u'; 256]), Err(Error::NameTooLong)));
    }
}

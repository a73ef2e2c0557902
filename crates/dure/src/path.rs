//! Paths as bytes: splitting into components, without allocation.

use rustix::io::Errno;

/// A path, with its end, is at most this long.
pub(crate) const PATH_MAX: usize = 4096;
/// Symbolic links followed in one walk.
pub(crate) const LINKS_MAX: u32 = 40;

/// The last component of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Last<'p> {
    /// A name.
    Name(&'p [u8]),
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// The path is nothing but slashes.
    Root,
}

/// A path that was checked for length and zero bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathBytes<'p> {
    /// Starts at the root.
    pub(crate) absolute: bool,
    /// Everything before the last component.
    pub(crate) parents: &'p [u8],
    /// The last component.
    pub(crate) last: Last<'p>,
    /// A slash follows it.
    pub(crate) slash: bool,
}

impl<'p> PathBytes<'p> {
    pub(crate) fn parse(path: &'p [u8]) -> Result<PathBytes<'p>, Errno> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        if path.len() >= PATH_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        if path.contains(&0) {
            return Err(Errno::INVAL);
        }
        let absolute = path[0] == b'/';
        let Some(end) = path.iter().rposition(|byte| *byte != b'/') else {
            return Ok(PathBytes {
                absolute,
                parents: &[],
                last: Last::Root,
                slash: true,
            });
        };
        let trimmed = &path[..=end];
        let start = trimmed
            .iter()
            .rposition(|byte| *byte == b'/')
            .map_or(0, |slash| slash + 1);
        let last = match &trimmed[start..] {
            b"." => Last::Dot,
            b".." => Last::DotDot,
            name => Last::Name(name),
        };
        Ok(PathBytes {
            absolute,
            parents: &path[..start],
            last,
            slash: end + 1 < path.len(),
        })
    }

    /// The components before the last.
    pub(crate) fn components(&self) -> impl Iterator<Item = &'p [u8]> + use<'p> {
        self.parents
            .split(|byte| *byte == b'/')
            .filter(|component| !component.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(path: &str) -> (Vec<String>, Last<'_>, bool) {
        let parsed = PathBytes::parse(path.as_bytes()).unwrap();
        let text = |component: &[u8]| String::from_utf8_lossy(component).into_owned();
        (
            parsed.components().map(text).collect(),
            parsed.last,
            parsed.slash,
        )
    }

    #[test]
    fn paths_are_split_as_posix_says() {
        assert_eq!(split("a"), (vec![], Last::Name(b"a"), false));
        assert_eq!(split("/a//b/"), (vec!["a".into()], Last::Name(b"b"), true));
        assert_eq!(split("a/."), (vec!["a".into()], Last::Dot, false));
        assert_eq!(split("../.."), (vec!["..".into()], Last::DotDot, false));
        assert_eq!(split("//"), (vec![], Last::Root, true));
    }

    #[test]
    fn bad_paths_are_refused() {
        let parse = |path: &[u8]| PathBytes::parse(path).map(|_| ());
        assert_eq!(parse(b""), Err(Errno::NOENT));
        assert_eq!(parse(b"a\0b"), Err(Errno::INVAL));
        assert_eq!(parse(&[b'a'; PATH_MAX]), Err(Errno::NAMETOOLONG));
        assert_eq!(parse(&[b'a'; PATH_MAX - 1]), Ok(()));
    }
}

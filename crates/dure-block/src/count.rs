//! Counts with a noun: 1 file, 2 files, 0 directories.

use std::fmt;

/// A number of things, as a sentence has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count {
    count: u64,
    /// What one of them is called.
    one: &'static str,
    /// What several are called, where the rule does not say.
    several: Option<&'static str>,
}

impl Count {
    /// `count` things of which one is called `one`; its plural is a regular one.
    #[must_use]
    pub fn of(count: impl TryInto<u64>, one: &'static str) -> Count {
        Count {
            count: whole(count),
            one,
            several: None,
        }
    }

    /// `count` things called by a noun, or by words, with a plural of its own.
    #[must_use]
    pub fn with(count: impl TryInto<u64>, one: &'static str, several: &'static str) -> Count {
        Count {
            count: whole(count),
            one,
            several: Some(several),
        }
    }

    /// Files and directories that were copied.
    #[must_use]
    pub fn copied(count: u64) -> Count {
        Count::with(count, "file or directory", "files and directories")
    }
}

/// More than fits is told as the most that does.
fn whole(count: impl TryInto<u64>) -> u64 {
    count.try_into().unwrap_or(u64::MAX)
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.count)?;
        match (self.count, self.several) {
            (1, _) => f.write_str(self.one),
            (_, Some(several)) => f.write_str(several),
            (_, None) => plural(f, self.one),
        }
    }
}

/// The last word counts: entry, entries; match, matches; day, days.
fn plural(f: &mut fmt::Formatter<'_>, one: &str) -> fmt::Result {
    let with_es = ["s", "x", "ch", "sh"];
    let vowel_before_y = ["ay", "ey", "oy", "uy"];
    match one.strip_suffix('y') {
        Some(stem) if !vowel_before_y.iter().any(|end| one.ends_with(end)) => {
            write!(f, "{stem}ies")
        }
        _ if with_es.iter().any(|end| one.ends_with(end)) => write!(f, "{one}es"),
        _ => write!(f, "{one}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::Count;

    #[test]
    fn one_thing_is_not_told_as_several() {
        for (count, noun, told) in [
            (0, "file", "0 files"),
            (1, "file", "1 file"),
            (2, "file", "2 files"),
            (1, "directory", "1 directory"),
            (3, "directory", "3 directories"),
            (2, "way", "2 ways"),
            (2, "match", "2 matches"),
            (2, "free block", "2 free blocks"),
        ] {
            assert_eq!(Count::of(count, noun).to_string(), told);
        }
        assert_eq!(Count::copied(1).to_string(), "1 file or directory");
        assert_eq!(Count::copied(2).to_string(), "2 files and directories");
        assert_eq!(
            Count::of(usize::MAX, "byte").to_string(),
            format!("{} bytes", usize::MAX)
        );
    }
}

//! Workloads from their text: what a report prints can be run again, or changed by hand.

use std::str::FromStr;

use dure_fs::{AllocateMode, RenameMode};

use super::call::{At, Call, Path, Step, Workload};
use super::state::intern;
use super::workload::SETUPS;

/// The words of one step.
struct Words<'t> {
    step: &'t str,
    rest: std::str::SplitWhitespace<'t>,
}

impl<'t> Words<'t> {
    fn of(step: &'t str) -> Words<'t> {
        let rest = step.split_whitespace();
        Words { step, rest }
    }

    fn wrong(&self, what: &str) -> String {
        format!("\"{}\": {what}", self.step.trim())
    }

    fn word(&mut self) -> Result<&'t str, String> {
        self.rest.next().ok_or_else(|| self.wrong("too short"))
    }

    fn end(&mut self) -> Result<(), String> {
        match self.rest.next() {
            None => Ok(()),
            Some(more) => Err(self.wrong(&format!("{more} is too much"))),
        }
    }

    /// The next word must be this.
    fn expect(&mut self, text: &str) -> Result<(), String> {
        if self.word()? == text {
            return Ok(());
        }
        Err(self.wrong(&format!("\"{text}\" is missing")))
    }

    fn number<T: FromStr>(&mut self) -> Result<T, String> {
        let word = self.word()?;
        word.parse()
            .map_err(|_| self.wrong(&format!("{word} is no number")))
    }

    fn path(&mut self) -> Result<Path, String> {
        let word = self.word()?;
        let path = word.strip_prefix('/');
        Ok(intern(
            path.ok_or_else(|| self.wrong("paths begin with /"))?,
        ))
    }

    fn slot(&mut self) -> Result<u8, String> {
        let word = self.word()?;
        let number = word
            .strip_prefix('#')
            .and_then(|number| number.parse().ok());
        number.ok_or_else(|| self.wrong(&format!("{word} is no descriptor")))
    }

    fn at(&mut self) -> Result<At, String> {
        let mut ahead = Words {
            step: self.step,
            rest: self.rest.clone(),
        };
        if ahead.word()?.starts_with('#') {
            self.slot().map(At::Slot)
        } else {
            self.path().map(At::Path)
        }
    }

    /// `OFFSET+LENGTH`.
    fn range(&mut self) -> Result<(u64, u64), String> {
        let word = self.word()?;
        let parts = word.split_once('+');
        let parse = |(offset, len): (&str, &str)| Some((offset.parse().ok()?, len.parse().ok()?));
        let range = parts.and_then(parse);
        range.ok_or_else(|| self.wrong(&format!("{word} is no OFFSET+LENGTH")))
    }

    fn one_of<T: std::fmt::Debug + Copy>(&mut self, all: &[T]) -> Result<T, String> {
        let word = self.word()?;
        let found = all.iter().find(|one| format!("{one:?}") == word);
        found
            .copied()
            .ok_or_else(|| self.wrong(&format!("{word} is none of {all:?}")))
    }

    fn mode(&mut self) -> Result<u32, String> {
        let word = self.word()?;
        u32::from_str_radix(word, 8).map_err(|_| self.wrong(&format!("{word} is no mode")))
    }
}

const RENAMES: &[RenameMode] = &[
    RenameMode::Replace,
    RenameMode::NoReplace,
    RenameMode::Exchange,
];

const ALLOCATIONS: &[AllocateMode] = &[
    AllocateMode::Extend,
    AllocateMode::KeepSize,
    AllocateMode::Punch,
    AllocateMode::Zero,
    AllocateMode::ZeroKeepSize,
];

/// Calls on names; nothing if `name` is another.
fn on_names(name: &str, words: &mut Words<'_>) -> Result<Option<Call>, String> {
    Ok(Some(match name {
        "create" => Call::Create {
            path: words.path()?,
        },
        "mkdir" => Call::Mkdir {
            path: words.path()?,
        },
        "fifo" => Call::Fifo {
            path: words.path()?,
        },
        "symlink" => Call::Symlink {
            target: intern(words.word()?),
            path: words.path()?,
        },
        "link" => match words.at()? {
            At::Path(from) => Call::Link {
                from,
                to: words.path()?,
            },
            At::Slot(slot) => Call::LinkSlot {
                slot,
                path: words.path()?,
            },
        },
        "unlink" => Call::Unlink {
            path: words.path()?,
        },
        "rmdir" => Call::Rmdir {
            path: words.path()?,
        },
        "rename" => Call::Rename {
            from: words.path()?,
            to: words.path()?,
            mode: words.one_of(RENAMES)?,
        },
        "tmpfile" => {
            let slot = words.slot()?;
            words.expect("in")?;
            let dir = words.path()?;
            Call::Temporary { slot, dir }
        }
        _ => return Ok(None),
    }))
}

/// Calls on inodes; nothing if `name` is another.
fn on_inodes(name: &str, words: &mut Words<'_>) -> Result<Option<Call>, String> {
    Ok(Some(match name {
        "write" => {
            let at = words.at()?;
            let (offset, len) = words.range()?;
            words.expect("of")?;
            let fill = words.number()?;
            Call::Write {
                at,
                offset,
                len,
                fill,
            }
        }
        "truncate" => Call::Truncate {
            at: words.at()?,
            size: words.number()?,
        },
        "allocate" => {
            let (at, mode) = (words.at()?, words.one_of(ALLOCATIONS)?);
            let (offset, len) = words.range()?;
            Call::Allocate {
                at,
                mode,
                offset,
                len,
            }
        }
        "clone" => {
            let from = words.at()?;
            let (start, len) = words.range()?;
            let (at, offset) = (words.at()?, words.number()?);
            Call::Clone {
                from,
                start,
                len,
                at,
                offset,
            }
        }
        "setxattr" => {
            let (at, name, len) = (words.at()?, intern(words.word()?), words.number()?);
            words.expect("of")?;
            let fill = words.number()?;
            Call::SetXattr {
                at,
                name,
                len,
                fill,
            }
        }
        "removexattr" => Call::RemoveXattr {
            at: words.at()?,
            name: intern(words.word()?),
        },
        "chmod" => Call::Chmod {
            at: words.at()?,
            mode: words.mode()?,
        },
        "chown" => Call::Chown {
            at: words.at()?,
            uid: words.number()?,
        },
        "settime" => Call::SetTime {
            at: words.at()?,
            secs: words.number()?,
        },
        _ => return Ok(None),
    }))
}

fn fsync(words: &mut Words<'_>) -> Result<Step, String> {
    if words.rest.clone().eq(["ends"]) {
        words.expect("ends")?;
        return Ok(Step::FsyncEnd);
    }
    let at = words.at()?;
    if words.rest.clone().eq(["begins"]) {
        words.expect("begins")?;
        return Ok(Step::FsyncBegin(at));
    }
    Ok(Step::Fsync(at))
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Step, String> {
        let mut words = Words::of(text);
        let name = words.word()?;
        let step = match name {
            "open" => Step::Open(words.slot()?, words.path()?),
            "close" => Step::Close(words.slot()?),
            "fsync" => fsync(&mut words)?,
            "fdatasync" => Step::Fdatasync(words.at()?),
            "sync" => Step::Sync,
            "writeback" => Step::WriteBack,
            "checkpoint" => Step::Checkpoint,
            "snapshot" => Step::Snapshot(words.number()?),
            "drop" => Step::DropSnapshot(words.number()?),
            "unmount" => Step::Unmount,
            "core" => Step::Core(words.number()?),
            _ => match on_names(name, &mut words)? {
                Some(call) => Step::Call(call),
                None => match on_inodes(name, &mut words)? {
                    Some(call) => Step::Call(call),
                    None => return Err(words.wrong("no such step")),
                },
            },
        };
        words.end()?;
        Ok(step)
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Workload, String> {
        let mut parts = text
            .split(';')
            .map(str::trim)
            .filter(|part| !part.is_empty());
        let first = parts.next().ok_or("a workload begins with \"setup N\"")?;
        let number = first
            .strip_prefix("setup ")
            .and_then(|number| number.parse().ok());
        let setup = number.filter(|setup| *setup < SETUPS.len());
        let setup = setup.ok_or_else(|| {
            let last = SETUPS.len() - 1;
            format!("\"{first}\": a workload begins with \"setup N\", N from 0 to {last}")
        })?;
        let steps = parts.map(Step::from_str).collect::<Result<_, _>>()?;
        Ok(Workload { setup, steps })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::ace::Ace;
    use crate::crash::workload::{full_volume, one_operation};

    #[test]
    fn every_workload_can_be_read_back() {
        let ace = Ace::new(2, 3);
        let groups = (0..ace.groups()).step_by(211);
        let spread = groups
            .flat_map(|group| ace.group(group))
            .map(|made| made.workload);
        let mut count = 0;
        for workload in one_operation()
            .into_iter()
            .chain(full_volume())
            .chain(spread)
        {
            let text = workload.to_string();
            assert_eq!(text.parse(), Ok(workload));
            count += 1;
        }
        assert!(count > 2_000, "{count}");
    }

    #[test]
    fn wrong_texts_say_what_is_wrong() {
        let wrong = |text: &str| text.parse::<Workload>().unwrap_err();
        assert!(wrong("create /a").contains("begins with \"setup N\""));
        assert!(wrong("setup 9; sync").contains("N from 0 to 2"));
        assert!(wrong("setup 1; creat /a").contains("no such step"));
        assert!(wrong("setup 1; create a").contains("paths begin with /"));
        assert!(wrong("setup 1; create /a /b").contains("too much"));
        assert!(wrong("setup 1; truncate /a").contains("too short"));
        assert!(wrong("setup 1; rename /a /b Over").contains("none of"));
        assert!(wrong("setup 1; write /a 7 of 1").contains("OFFSET+LENGTH"));
    }
}

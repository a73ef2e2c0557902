//! Calls of the library, by path.

use std::hint::black_box;
use std::path::{Path, PathBuf};

use anyhow::Result;
use dure::{File, OpenOptions, Session};

use crate::Call;
use crate::counted::{BACKGROUND_CALLS, Operation, ROUND_CALLS};
use crate::scene::{DIRECTORY, FILE, FILE_BYTES, Scene, existing};

const PAGE: usize = 4096;
/// The appended file.
const GROWING: &str = "/growing";

/// One kind of call, with the names it is made on.
pub(crate) struct Calls {
    call: Call,
    scene: Scene,
    /// Names that are there only in a round, and a second set.
    first: Vec<PathBuf>,
    second: Vec<PathBuf>,
    /// Names that are always there, far from each other.
    existing: Vec<PathBuf>,
    file: File,
    page: Vec<u8>,
    rounds: u32,
}

impl Calls {
    pub(crate) fn new(call: Call, scene: Scene) -> Result<Calls> {
        let set = |prefix: &str| {
            let name = |index| Path::new(DIRECTORY).join(format!("{prefix}{index:06}"));
            (0..BACKGROUND_CALLS).map(name).collect()
        };
        let both = OpenOptions::new().read(true).write(true);
        let file = match call {
            Call::Append => both.create(true).open(scene.session(), GROWING)?,
            _ => both.open(scene.session(), FILE)?,
        };
        // 7919 is prime: every name of a directory is used before one is used again.
        let at = |index: usize| existing(index * 7919 % scene.names);
        Ok(Calls {
            call,
            first: set("new"),
            second: set("other"),
            existing: (0..BACKGROUND_CALLS).map(at).collect(),
            file,
            page: vec![5; PAGE],
            rounds: 0,
            scene,
        })
    }

    fn session(&self) -> &Session {
        self.scene.session()
    }

    /// Bytes of the file as a call finds it.
    fn offset(index: usize) -> u64 {
        u64::try_from(index * PAGE).expect("few pages")
    }

    fn create(&self, paths: &[PathBuf]) -> Result<()> {
        for path in paths {
            self.session().create(path)?;
        }
        Ok(())
    }

    fn remove(&self, paths: &[PathBuf]) -> Result<()> {
        for path in paths {
            self.session().remove_file(path)?;
        }
        Ok(())
    }

    fn stat(&self, paths: &[PathBuf]) -> Result<()> {
        for path in paths {
            self.session().metadata(path)?;
        }
        Ok(())
    }
}

impl Operation for Calls {
    fn prepare(&mut self, count: usize) -> Result<()> {
        self.rounds += 1;
        let first = &self.first[..count];
        match self.call {
            Call::Unlink | Call::Rename | Call::StatFirst => self.create(first),
            Call::StatSecond => {
                self.create(first)?;
                self.stat(first)
            }
            // The second stat fills the caches: the third finds everything in them, without a lock.
            Call::StatAgain => {
                self.create(first)?;
                self.stat(first)?;
                self.stat(first)
            }
            Call::RenameOver => {
                self.create(first)?;
                self.create(&self.second[..count])
            }
            Call::StatMounted => {
                self.scene.mount_again()?;
                self.session().metadata(DIRECTORY)?;
                Ok(())
            }
            Call::OpenClose | Call::Chmod | Call::Link => self.stat(&self.existing[..count]),
            Call::Append => Ok(self.file.set_len(0)?),
            _ => Ok(()),
        }
    }

    fn call(&mut self, index: usize) -> Result<()> {
        let session = self.scene.session();
        let first = &self.first[index];
        match self.call {
            Call::Create => {
                let options = OpenOptions::new().write(true).create_new(true);
                drop(options.open(session, first)?);
            }
            Call::Unlink => session.remove_file(first)?,
            Call::Rename | Call::RenameOver => session.rename(first, &self.second[index])?,
            Call::Mkdir => session.create_dir(first)?,
            Call::Link => session.hard_link(&self.existing[index], first)?,
            Call::StatFirst | Call::StatSecond | Call::StatAgain => {
                black_box(session.metadata(first)?);
            }
            Call::StatMounted => {
                black_box(session.metadata(&self.existing[index])?);
            }
            Call::OpenClose => drop(session.open(&self.existing[index])?),
            Call::Chmod => {
                let mode = if self.rounds.is_multiple_of(2) {
                    0o600
                } else {
                    0o640
                };
                session.set_permissions(&self.existing[index], mode)?;
            }
            Call::Append => self.file.write_all_at(&self.page, Calls::offset(index))?,
            Call::Overwrite | Call::OverwriteDirect | Call::OverwriteFsync => {
                let offset = Calls::offset(index) % FILE_BYTES;
                self.file.write_all_at(&self.page, offset)?;
                if self.call == Call::OverwriteFsync {
                    self.file.sync_all()?;
                }
            }
            Call::Read | Call::ReadDirect => {
                let offset = Calls::offset(index) % FILE_BYTES;
                self.file.read_exact_at(&mut self.page, offset)?;
            }
            Call::Readdir => {
                for entry in session.read_dir(DIRECTORY)? {
                    drop(entry?);
                }
            }
            _ => unreachable!("requests are another operation"),
        }
        Ok(())
    }

    fn undo(&mut self, count: usize) -> Result<()> {
        let first = &self.first[..count];
        match self.call {
            Call::Create | Call::Link => self.remove(first),
            Call::StatFirst | Call::StatSecond | Call::StatAgain => self.remove(first),
            Call::Rename | Call::RenameOver => self.remove(&self.second[..count]),
            Call::Mkdir => {
                for path in first {
                    self.session().remove_dir(path)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn scene(&self) -> &Scene {
        &self.scene
    }

    fn changes(&self) -> bool {
        !matches!(
            self.call,
            Call::StatFirst
                | Call::StatSecond
                | Call::StatAgain
                | Call::StatMounted
                | Call::OpenClose
                | Call::Read
                | Call::ReadDirect
                | Call::Readdir
        )
    }

    fn round(&self) -> usize {
        match self.call {
            Call::Readdir => (2000 / self.scene.names).max(1),
            _ => ROUND_CALLS,
        }
    }

    fn units(&self) -> usize {
        if self.call == Call::Readdir {
            self.scene.names
        } else {
            1
        }
    }
}

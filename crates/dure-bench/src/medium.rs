//! Block devices made for a run, equal for every target, and file systems on them.
//!
//! **Structure.** A [`Medium`] is a zram disk, a loop device on a file in memory, or a preallocated
//! file; a [`Mounted`] has a file system on it. **Invariants.** Dropping them undoes everything, also after Ctrl-C.
//! **On a crash** of the run they stay behind: `losetup -D`, `umount`, and
//! /sys/class/zram-control/hot_remove take them away.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// Where media come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// zram: a RAM disk that compresses.
    Zram,
    /// loop on a file in /dev/shm, past the page cache.
    Loop,
    /// Preallocated files in this directory.
    Directory(PathBuf),
}

impl Source {
    /// From the command line.
    ///
    /// # Errors
    /// Neither a known word nor a directory.
    pub fn parse(text: &str) -> Result<Source> {
        match text {
            "zram" => Ok(Source::Zram),
            "loop" => Ok(Source::Loop),
            path if Path::new(path).is_dir() => Ok(Source::Directory(path.into())),
            _ => bail!("--device {text}: it is zram, loop, delay or a directory"),
        }
    }
}

#[derive(Debug)]
enum Kind {
    Zram(u32),
    Loop,
    File,
}

/// A device or file of the wanted size, empty.
#[derive(Debug)]
pub struct Medium {
    /// What to open.
    pub path: PathBuf,
    kind: Kind,
    /// The directory of the file behind it.
    _files: Option<TempDir>,
}

pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("{program} cannot be run"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {}: {}", arguments.join(" "), why.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path in UTF-8")
}

fn file_in(place: &Path, bytes: u64) -> Result<(TempDir, PathBuf)> {
    let files = tempfile::Builder::new()
        .prefix("dure-bench-")
        .tempdir_in(place)
        .with_context(|| place.display().to_string())?;
    let path = files.path().join("image");
    let whole = dure_block::file::Allocation::Preallocated;
    let options = dure_block::file::OpenOptions::default();
    // The target that measures it opens it again.
    drop(dure_block::file::create_image(
        &path,
        bytes / 4096,
        whole,
        options,
    )?);
    Ok((files, path))
}

impl Medium {
    /// Makes one.
    ///
    /// # Errors
    /// No permission, no such module, no room.
    pub fn make(source: &Source, bytes: u64) -> Result<Medium> {
        match source {
            Source::Zram => Medium::zram(bytes),
            Source::Loop => {
                let (files, image) = file_in(Path::new("/dev/shm"), bytes)?;
                let arguments = ["--direct-io=on", "--find", "--show", text(&image)?];
                let device = run("losetup", &arguments)?;
                Ok(Medium {
                    path: device.into(),
                    kind: Kind::Loop,
                    _files: Some(files),
                })
            }
            Source::Directory(place) => {
                let (files, path) = file_in(place, bytes)?;
                Ok(Medium {
                    path,
                    kind: Kind::File,
                    _files: Some(files),
                })
            }
        }
    }

    fn zram(bytes: u64) -> Result<Medium> {
        let control = Path::new("/sys/class/zram-control");
        if !control.exists() {
            run("modprobe", &["zram"])?;
        }
        // Reading makes a device and tells its number.
        let number = fs::read_to_string(control.join("hot_add")).context("zram: hot_add")?;
        let number: u32 = number.trim().parse().context("zram: hot_add")?;
        let medium = Medium {
            path: format!("/dev/zram{number}").into(),
            kind: Kind::Zram(number),
            _files: None,
        };
        let size = format!("/sys/block/zram{number}/disksize");
        fs::write(size, bytes.to_string()).context("zram: disksize")?;
        Ok(medium)
    }
}

impl Drop for Medium {
    fn drop(&mut self) {
        let undone = match self.kind {
            Kind::Zram(number) => fs::write(format!("/sys/block/zram{number}/reset"), "1")
                .and_then(|()| fs::write("/sys/class/zram-control/hot_remove", number.to_string()))
                .map_err(anyhow::Error::from),
            Kind::Loop => text(&self.path)
                .and_then(|path| run("losetup", &["--detach", path]))
                .map(drop),
            Kind::File => Ok(()),
        };
        if let Err(error) = undone {
            say_left_behind(&self.path, &error);
        }
    }
}

fn say_left_behind(path: &Path, error: &anyhow::Error) {
    crate::note!("{} stays behind: {error:#}", path.display());
}

/// A file system on a medium, mounted.
#[derive(Debug)]
pub struct Mounted {
    /// Where.
    pub directory: TempDir,
    /// Dropped after the unmount.
    _medium: Medium,
}

impl Mounted {
    /// Makes and mounts `kind` (ext4, xfs).
    ///
    /// # Errors
    /// The tools are missing or fail.
    pub fn make(kind: &str, options: &str, medium: Medium) -> Result<Mounted> {
        let mkfs = format!("mkfs.{kind}");
        let force = if kind == "ext4" { "-F" } else { "-f" };
        run(&mkfs, &["-q", force, text(&medium.path)?])?;
        let directory = TempDir::with_prefix("dure-bench-")?;
        let (device, place) = (text(&medium.path)?, text(directory.path())?);
        let options = if options.is_empty() { "rw" } else { options };
        run("mount", &["-t", kind, "-o", options, device, place])?;
        Ok(Mounted {
            directory,
            _medium: medium,
        })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let path = self.directory.path();
        if let Err(error) = text(path).and_then(|path| run("umount", &[path])) {
            say_left_behind(path, &error);
        }
    }
}

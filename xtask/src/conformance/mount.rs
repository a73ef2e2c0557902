//! A volume for one suite, and its mount.
//!
//! **Problem.** A suite that fails or panics must not leave a mount behind, and one that crashes
//! the server must be able to do so at a chosen instant. **Structure.** [`Volume`] owns a scratch
//! directory with the image, the mount point and the logs, and the server as a child in the
//! foreground. **Invariants.** Dropping it ends the server and the mount; the scratch directory is
//! removed only when nothing is mounted in it. **Crash.** [`Volume::kill`] is the crash.

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dure_sync::thread;
use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;

use super::step::{Steps, tail, wait_for};
use super::{Cx, Profile, Transport};

/// Size of the image of every suite.
pub(crate) const SIZE: &str = "1G";
/// Of the region of persistent memory, where there is one.
const REGION_SIZE: &str = "256M";
/// For `mkfs`, `check` and the end of the server.
const LIMIT: Duration = Duration::from_secs(120);

/// A scratch directory with a volume in it, mounted or not.
#[derive(Debug)]
pub(crate) struct Volume {
    dure: PathBuf,
    scratch: Scratch,
    server: Option<Child>,
    /// How requests come, if it is not left to dure.
    pub(crate) transport: Option<Transport>,
    profile: Profile,
    /// What `dure mount` gets: the image, or a device made from it.
    device: PathBuf,
    /// Runs programs, with logs next to the image.
    pub(crate) steps: Steps,
}

impl Volume {
    /// A freshly made volume, mounted.
    pub(crate) fn mounted(cx: &Cx, suite: &str) -> Result<Volume> {
        let mut volume = Volume::unmounted(cx, suite)?;
        volume.mount()?;
        Ok(volume)
    }

    /// A freshly made volume.
    pub(crate) fn unmounted(cx: &Cx, suite: &str) -> Result<Volume> {
        Volume::sized(cx, suite, SIZE)
    }

    /// A freshly made volume of a size of its own.
    pub(crate) fn sized(cx: &Cx, suite: &str, size: &str) -> Result<Volume> {
        let scratch = Scratch::new(suite, cx.keep)?;
        fs::create_dir(scratch.path().join("mnt"))?;
        let steps = Steps::new(scratch.path().join("log"))?;
        let device = scratch.path().join("volume.img");
        let volume = Volume {
            dure: cx.dure.clone(),
            scratch,
            server: None,
            transport: cx.transport,
            profile: cx.profile,
            device,
            steps,
        };
        let mut mkfs = volume.dure("mkfs");
        mkfs.arg(volume.image()).args(["--size", size]);
        if cx.profile.has_region() {
            let region = volume.scratch().join("region.img");
            mkfs.arg("--nvm")
                .arg(region)
                .args(["--nvm-size", REGION_SIZE]);
        }
        volume.steps.run(mkfs, LIMIT)?;
        Ok(volume)
    }

    /// The scratch directory, on the host's file system.
    pub(crate) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// The image file.
    pub(crate) fn image(&self) -> PathBuf {
        self.scratch.path().join("volume.img")
    }

    /// The mount point.
    pub(crate) fn root(&self) -> PathBuf {
        self.scratch.path().join("mnt")
    }

    /// A `dure` command.
    pub(crate) fn dure(&self, subcommand: &str) -> Command {
        let mut command = Command::new(&self.dure);
        command.arg(subcommand);
        command
    }

    /// The same command under `dure run`, with the volume where it is mounted otherwise.
    pub(crate) fn under_run(&self, command: &Command) -> Command {
        let mut place = self.image().into_os_string();
        place.push(":");
        place.push(self.root());
        let mut run = self.dure("run");
        let profile = self.profile.options().unwrap_or_default();
        run.args(["--report", "-o", &format!("allow_other,{profile}")]);
        run.arg(place)
            .arg("--")
            .arg(command.get_program())
            .args(command.get_args());
        run.envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        run
    }

    /// From now on mounts `device`, which presents the image.
    pub(crate) fn mount_through(&mut self, device: PathBuf) {
        assert!(self.server.is_none(), "nothing is mounted");
        self.device = device;
    }

    /// Starts the server, and returns when it serves.
    pub(crate) fn mount(&mut self) -> Result<()> {
        self.mount_with(&[])
    }

    /// The same, with more options.
    pub(crate) fn mount_with(&mut self, options: &[&str]) -> Result<()> {
        self.mount_under(&[], options)
    }

    /// The same, started by another program, which replaces itself by the server. It stays mounted
    /// if the transport that was asked for cannot be had, which is an error.
    pub(crate) fn mount_under(&mut self, starter: &[&str], options: &[&str]) -> Result<()> {
        assert!(self.server.is_none(), "a volume is mounted once at a time");
        detach(&self.root())?;
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.server_log())?;
        // The server ends with us even if we are killed.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "TERM"])
            .args(starter)
            .arg(&self.dure)
            .arg("mount")
            .arg(&self.device)
            .arg(self.root())
            .args(["-o", "allow_other", "--foreground"])
            .args(
                self.profile
                    .options()
                    .iter()
                    .flat_map(|profile| ["-o", profile]),
            )
            .args(options.iter().flat_map(|option| ["-o", option]))
            .args(self.transport.iter().flat_map(|way| ["-o", way.option()]))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        let mut server = command.spawn().context("cannot start the mount server")?;
        let out = server.stdout.take().expect("the standard output was piped");
        let mut line = String::new();
        BufReader::new(out)
            .read_line(&mut line)
            .context("waiting for the mount")?;
        if line.is_empty() {
            let status = server.wait()?;
            bail!("dure mount ended with {status}{}", tail(&self.server_log()));
        }
        self.server = Some(server);
        let fallback = fs::read_to_string(self.server_log())?;
        let fallback = fallback
            .lines()
            .find(|line| line.contains("transport=uring:"));
        if let Some(why) = fallback {
            bail!("the wanted transport cannot be had: {why}");
        }
        ensure!(
            is_mounted(&self.root())?,
            "dure mount said '{}', but nothing is mounted",
            line.trim()
        );
        Ok(())
    }

    /// The growth of the volume to `mib` MiB, in the manner it is: mounted or not.
    pub(crate) fn growth(&self, mib: u64) -> Command {
        let mut resize = self.dure("resize");
        resize.arg(self.image()).arg(format!("{mib}M"));
        resize
    }

    /// The process of the server.
    pub(crate) fn server_id(&self) -> u32 {
        self.server.as_ref().expect("it is mounted").id()
    }

    /// Ends the server with SIGKILL, in whatever state it is. The dead mount stays until the next
    /// one, so that running programs see errors and not the directory below.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let mut server = self.server.take().expect("it is mounted");
        let ended = server.try_wait()?;
        ensure!(
            ended.is_none(),
            "the mount server had ended before the kill: {ended:?}{}",
            tail(&self.server_log())
        );
        server.kill()?;
        server.wait()?;
        Ok(())
    }

    /// Unmounts, waits for the server, which must succeed.
    pub(crate) fn unmount(&mut self) -> Result<()> {
        let mut umount = self.dure("umount");
        umount.arg(self.root());
        self.steps.run(umount, LIMIT)?;
        self.served()
    }

    /// Waits for the server, which must end by itself and succeed, since nothing is mounted.
    pub(crate) fn served(&mut self) -> Result<()> {
        let server = self.server.as_mut().context("it is not mounted any more")?;
        let Some(status) = wait_for(server, LIMIT)? else {
            bail!("the mount server still runs {LIMIT:?} after the unmount");
        };
        self.server = None;
        ensure!(
            status.success(),
            "the mount server ended with {status}{}",
            tail(&self.server_log())
        );
        ensure!(!is_mounted(&self.root())?, "it is still mounted");
        Ok(())
    }

    /// `dure check --data`, which must find nothing.
    pub(crate) fn check(&self) -> Result<()> {
        let mut check = self.dure("check");
        check.arg(self.image()).arg("--data");
        let done = self.steps.finish(check, LIMIT)?;
        ensure!(
            done.status.success(),
            "dure check: {}\n{}{}",
            done.status,
            done.out.trim_end(),
            done.err()
        );
        Ok(())
    }

    /// Unmounts and mounts again.
    pub(crate) fn remount(&mut self) -> Result<()> {
        self.unmount()?;
        self.mount()
    }

    /// Unmounts and checks.
    pub(crate) fn close(&mut self) -> Result<()> {
        self.unmount()?;
        self.check()
    }

    /// Keeps the scratch directory, so that a failure can be examined; returns where it is.
    pub(crate) fn keep(&mut self) -> String {
        self.scratch.keep = true;
        format!(
            "the volume and its logs are in {}",
            self.scratch().display()
        )
    }

    fn server_log(&self) -> PathBuf {
        self.scratch.path().join("log/server.err")
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // A hanging server would make the unmount hang.
            let _ = server.kill();
            let _ = server.wait();
        }
        let _ = detach(&self.root());
    }
}

/// A tmpfs on a directory of its own.
#[derive(Debug)]
pub(crate) struct Tmpfs(Scratch);

impl Tmpfs {
    pub(crate) fn new() -> Result<Tmpfs> {
        let tmpfs = Tmpfs(Scratch::new("tmpfs", false)?);
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=512m", "dure-conformance"])
            .arg(tmpfs.path())
            .status()
            .context("cannot start mount")?;
        ensure!(status.success(), "mount -t tmpfs: {status}");
        Ok(tmpfs)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = detach(self.path());
    }
}

/// A temporary directory that others may enter, and that is not removed while something is
/// mounted in it.
#[derive(Debug)]
struct Scratch {
    directory: TempDir,
    keep: bool,
}

impl Scratch {
    fn new(suite: &str, keep: bool) -> Result<Scratch> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("dure-").suffix(suite);
        let directory = builder.tempdir().context("making a temporary directory")?;
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755))?;
        Ok(Scratch { directory, keep })
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Removing the tree would go into the mount.
        let mounted = is_mounted(self.path()).unwrap_or(true);
        let inside = is_mounted(&self.path().join("mnt")).unwrap_or(true);
        if self.keep || mounted || inside {
            self.directory.disable_cleanup(true);
            eprintln!("  left behind: {}", self.path().display());
        }
    }
}

/// Whether a file system is mounted on `path`.
fn is_mounted(path: &Path) -> Result<bool> {
    let table = fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    let path = path
        .to_str()
        .context("temporary directories have plain names")?;
    Ok(table
        .lines()
        .any(|line| line.split(' ').nth(4) == Some(path)))
}

/// Detaches every mount on `path`, also one in use.
pub(crate) fn detach(path: &Path) -> Result<()> {
    for _ in 0..100 {
        if !is_mounted(path)? {
            return Ok(());
        }
        if unmount(path, UnmountFlags::DETACH).is_err() {
            thread::sleep(Duration::from_millis(50));
        }
    }
    bail!("{}: cannot be unmounted", path.display())
}

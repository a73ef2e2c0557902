//! The two ways to use the volume: through a mount whose server is killed, or through the library
//! in a process that is killed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dure_bench::interrupt;
use dure_block::count::Count;
use dure_fuse::mount::Lazy;
use dure_sync::{clock, thread};

use super::source::{ItemKind, Sources};
use super::writers::{Acknowledged, Write, host_writers};
use super::{Step, WRITE_MS, directory, timed};
use crate::args::Demo;
use crate::size::Size;
use crate::volume::{self, Access};

/// How long the server may take to serve.
const MOUNT_MS: u64 = 20_000;

/// A directory to mount on, or why there can be no mount.
pub(super) fn mount_point(args: &Demo, place: &Path) -> Result<PathBuf, String> {
    if args.no_mount {
        return Err("asked to (--no-mount)".into());
    }
    let fuse = fs::File::options().read(true).write(true).open("/dev/fuse");
    fuse.map_err(|error| format!("/dev/fuse cannot be opened ({error})"))?;
    if !rustix::process::geteuid().is_root() && !on_path("fusermount3") {
        return Err("not root, and fusermount3 is not installed".into());
    }
    let directory = place.join("mount");
    fs::create_dir(&directory).map_err(|error| format!("no directory to mount on ({error})"))?;
    Ok(directory)
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

fn this_program() -> Result<Command> {
    Ok(Command::new(
        std::env::current_exe().context("finding the dure program")?,
    ))
}

/// Copies and writes through a mount; kills its server while the writers run.
pub(super) fn through_mount(
    image: &Path,
    at: &Path,
    sources: &Sources,
    steps: &mut Vec<Step>,
) -> Result<Acknowledged> {
    let server = timed("mount it", steps, || {
        Ok((start_server(image, at)?, at_text(at)))
    })?;
    let mut server = Server {
        process: server,
        at: at.to_owned(),
    };
    timed("copy a real tree in, sync", steps, || {
        copy_host(sources, &at.join("tree"))?;
        // Every file was synced when it was written; this covers the directories.
        rustix::fs::syncfs(fs::File::open(at)?)?;
        sync_directories(sources, &at.join("tree"))?;
        Ok(((), copied(sources)))
    })?;
    timed("write with fsync, kill -9 the server", steps, || {
        let writers = at.join("writers");
        fs::create_dir(&writers)?;
        let acknowledged = host_writers(&writers, |acknowledged| {
            wait_for_writes(acknowledged);
            server.process.kill().context("killing the server")
        })?;
        let result = acknowledged.summary();
        Ok((acknowledged, result))
    })
}

/// The server process; whatever happens, it and the mount do not outlive the demo.
struct Server {
    process: Child,
    at: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = dure_fuse::unmount(&self.at, Lazy::Yes);
    }
}

fn at_text(at: &Path) -> String {
    at.display().to_string()
}

fn start_server(image: &Path, at: &Path) -> Result<Child> {
    let mut command = this_program()?;
    command.arg("mount").arg(image).arg(at).arg("--foreground");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut server = command.spawn().context("starting the server")?;
    let outside = fs::metadata(at)?;
    let start = clock::monotonic_ns();
    loop {
        use std::os::unix::fs::MetadataExt;
        if fs::metadata(at).is_ok_and(|now| now.dev() != outside.dev()) {
            return Ok(server);
        }
        if let Some(status) = server.try_wait()? {
            bail!("the server ended with {status}");
        }
        if clock::monotonic_ns() - start > MOUNT_MS * 1_000_000 {
            let _ = server.kill();
            let _ = server.wait();
            bail!("the server did not serve within {} s", MOUNT_MS / 1000);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn copy_host(sources: &Sources, target: &Path) -> Result<()> {
    fs::create_dir(target)?;
    for item in &sources.items {
        interrupt::check()?;
        let to = target.join(&item.to);
        let done = match item.kind {
            ItemKind::Directory => fs::create_dir_all(&to),
            ItemKind::File => {
                fs::copy(&item.from, &to).and_then(|_| fs::File::open(&to)?.sync_all())
            }
            ItemKind::Symlink => {
                fs::read_link(&item.from).and_then(|link| std::os::unix::fs::symlink(link, &to))
            }
        };
        done.with_context(|| to.display().to_string())?;
    }
    Ok(())
}

fn sync_directories(sources: &Sources, target: &Path) -> Result<()> {
    for item in sources
        .items
        .iter()
        .filter(|item| item.kind == ItemKind::Directory)
    {
        fs::File::open(target.join(&item.to))?.sync_all()?;
    }
    Ok(())
}

fn copied(sources: &Sources) -> String {
    format!(
        "{}, {}",
        Count::of(sources.files, "file"),
        Size(sources.bytes)
    )
}

fn wait_for_writes(acknowledged: &Acknowledged) {
    let start = clock::monotonic_ns();
    while clock::monotonic_ns() - start < WRITE_MS * 1_000_000 || acknowledged.is_empty() {
        thread::sleep(Duration::from_millis(10));
        let waited = clock::monotonic_ns() - start;
        if interrupt::check().is_err() || waited > 20 * WRITE_MS * 1_000_000 {
            return;
        }
    }
}

/// Copies through the library; then a child process writes through the library until it is killed.
pub(super) fn through_library(
    image: &Path,
    sources: &Sources,
    steps: &mut Vec<Step>,
) -> Result<Acknowledged> {
    timed("copy a real tree in, sync", steps, || {
        let volume = volume::open(image, Access::Write)?;
        let session = volume.root();
        session.create_dir(directory("tree"))?;
        for item in &sources.items {
            interrupt::check()?;
            let to = directory("tree").join(&item.to);
            match item.kind {
                ItemKind::Directory => session.create_dir_all(&to)?,
                ItemKind::File => session.write(&to, &fs::read(&item.from)?)?,
                ItemKind::Symlink => session.symlink(fs::read_link(&item.from)?, &to)?,
            }
        }
        volume.sync()?;
        volume::close(&volume, image)?;
        Ok(((), copied(sources)))
    })?;
    timed("write with fsync, kill -9 the process", steps, || {
        let mut command = this_program()?;
        command.arg("demo").arg("--child").arg(image);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().context("starting the writing process")?;
        let out = child.stdout.take().expect("the standard output was piped");
        let acknowledged = Acknowledged::default();
        let killed = thread::scope(|scope| {
            scope.spawn(|| {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    // The last line may have been cut off by the kill: then nothing was promised.
                    if let Some(write) = Write::parse(&line) {
                        acknowledged.add(write);
                    }
                }
            });
            wait_for_writes(&acknowledged);
            child.kill()
        });
        killed.context("killing the writing process")?;
        child.wait().context("waiting for the writing process")?;
        let result = acknowledged.summary();
        Ok((acknowledged, result))
    })
}

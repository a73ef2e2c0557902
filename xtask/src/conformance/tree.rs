//! A real source tree on a mount, with kills of the server.
//!
//! **Structure.** Copy, compare, sync, kill in the middle of another copy, mount, compare what was
//! synced; then the same on a block device, mounted as `fuseblk`, and the commands of the README.
//! **Invariants.** Nothing that was synced is lost or changed. **Crash.** SIGKILL to the server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dure_sync::thread;

use super::Cx;
use super::git::sync;
use super::manifest::{Detail, Manifest};
use super::mount::Volume;
use super::report::Report;
use super::tools::{self, Needs};
use crate::cargo;

pub(crate) const NEEDS: Needs = Needs {
    mount: true,
    crates: &[],
    programs: &[("diff", "diffutils"), ("losetup", "mount"), ("tar", "tar")],
};

const LIMIT: Duration = Duration::from_secs(600);

/// What is copied, if it is there: sources of this repository and the system's headers.
const QUICK: &[&str] = &["crates", "docs", "xtask"];
const SYSTEM: &[&str] = &["/usr/include", "/usr/share/perl"];

/// Copies without end, the older ones removed.
const COPIES: &str = r#"
n=0
while cp -a "$1" "$2/$n"; do
    rm -rf "$2/$((n - 2))" || exit 1
    n=$((n + 1))
done
exit 1
"#;

pub(crate) fn run(cx: &Cx, report: &mut Report) -> Result<()> {
    let mut volume = Volume::mounted(cx, "tree")?;
    let source = volume.scratch().join("source");
    gather(&volume, &source, cx.quick)?;
    let original = Manifest::of(&source, Detail::Full)?;
    report.note(format!("{} entries", original.len()));

    let copied = copy(&volume, &source, "copy").and_then(|()| same(&volume, &source, "copy"));
    if !report.case("cp -a and diff -r", copied) {
        return Ok(());
    }
    report.case("tar through the mount", tar(&volume, "copy"));
    report.case("mount again", remount(&mut volume, &original, "copy"));
    for round in 1..=if cx.quick { 1 } else { 3 } {
        let name = format!("fsync, kill {round} under cp -a");
        let cut = cut_off(&mut volume, &source, &original, round);
        if !report.case(&name, cut) {
            return Ok(());
        }
    }
    let removed = fs::remove_dir_all(volume.root().join("copy"));
    report.case("rm -r", removed.context("rm -r"));
    report.case("check", volume.close());
    drop(volume);

    if cx.profile.may_be_a_block_device() {
        match block_device(cx, &source_roots(cx.quick)) {
            Ok(None) => report.note("no loop device: a block device was not tried".to_owned()),
            tried => drop(report.case("syncfs on a block device, kill", tried.map(drop))),
        }
    }
    report.case("the commands of the README", readme(cx));
    Ok(())
}

fn source_roots(quick: bool) -> Vec<PathBuf> {
    let own = QUICK.iter().map(|name| cargo::root().join(name));
    let system = SYSTEM.iter().filter(|_| !quick).map(PathBuf::from);
    own.chain(system).filter(|path| path.is_dir()).collect()
}

/// A tree on the host that does not change.
fn gather(volume: &Volume, source: &Path, quick: bool) -> Result<()> {
    fs::create_dir(source)?;
    let mut cp = Command::new("cp");
    cp.arg("-a").args(source_roots(quick)).arg(source);
    volume.steps.run(cp, LIMIT).map(drop)
}

fn copy(volume: &Volume, source: &Path, name: &str) -> Result<()> {
    let mut cp = Command::new("cp");
    cp.arg("-a").arg(source).arg(volume.root().join(name));
    volume.steps.run(cp, LIMIT).map(drop)
}

/// `diff -r`, and the manifests.
fn same(volume: &Volume, source: &Path, name: &str) -> Result<()> {
    let copy = volume.root().join(name);
    let mut diff = tools::command("diff");
    diff.args(["-r", "--no-dereference"]).arg(source).arg(&copy);
    volume.steps.run(diff, LIMIT)?;
    let original = Manifest::of(source, Detail::Full)?;
    original.expect_same(&Manifest::of(&copy, Detail::Full)?)
}

/// Packs the copy, unpacks it next to it, and compares.
fn tar(volume: &Volume, name: &str) -> Result<()> {
    let (root, archive) = (volume.root(), volume.root().join("archive.tar"));
    let mut pack = tools::command("tar");
    pack.arg("-C")
        .arg(root.join(name))
        .arg("-cf")
        .arg(&archive)
        .arg(".");
    volume.steps.run(pack, LIMIT)?;
    fs::create_dir(root.join("unpacked"))?;
    let mut unpack = tools::command("tar");
    unpack
        .arg("-C")
        .arg(root.join("unpacked"))
        .arg("-xpf")
        .arg(&archive);
    volume.steps.run(unpack, LIMIT)?;
    // tar keeps whole seconds only.
    let original = Manifest::of(&root.join(name), Detail::NoTimes)?;
    original.expect_same(&Manifest::of(&root.join("unpacked"), Detail::NoTimes)?)?;
    fs::remove_dir_all(root.join("unpacked"))?;
    fs::remove_file(archive).context("removing the archive")
}

fn remount(volume: &mut Volume, original: &Manifest, name: &str) -> Result<()> {
    volume.close()?;
    volume.mount()?;
    original.expect_same(&Manifest::of(&volume.root().join(name), Detail::Full)?)
}

/// Syncs the copy, kills the server under another copy, and compares.
fn cut_off(volume: &mut Volume, source: &Path, original: &Manifest, round: u64) -> Result<()> {
    let name = "copy";
    sync(volume, &volume.root())?;
    let others = volume.root().join("others");
    fs::create_dir(&others)?;
    let mut copies = Command::new("sh");
    copies.args(["-c", COPIES, "sh"]).arg(source).arg(&others);
    let mut running = volume.steps.start(copies, None)?;
    thread::sleep(Duration::from_millis(300 + 370 * round));
    running.expect_running("cp")?;
    volume.kill()?;
    let done = running.wait(LIMIT)?;
    ensure!(
        !done.status.success(),
        "cp saw no error though the server was gone"
    );
    volume.check().context("before the remount")?;
    volume.mount()?;
    original.expect_same(&Manifest::of(&volume.root().join(name), Detail::Full)?)?;
    // The rest of the other copies can be read, and can be removed.
    if others.exists() {
        Manifest::of(&others, Detail::Full).context("the copies that were cut off")?;
        fs::remove_dir_all(&others).context("removing the copies that were cut off")?;
    }
    Ok(())
}

/// A loop device, detached when dropped.
struct Loop(PathBuf);

impl Loop {
    /// `None` where there are none.
    fn of(image: &Path) -> Option<Loop> {
        let mut losetup = tools::command("losetup");
        losetup.args(["--find", "--show"]).arg(image);
        let output = losetup.output().ok()?;
        let name = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| Loop(name.trim().into()))
    }

    fn flush(&self) -> Result<()> {
        let device = fs::File::open(&self.0)?;
        device.sync_all().context("flushing the loop device")
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = tools::command("losetup")
            .arg("--detach")
            .arg(&self.0)
            .status();
    }
}

/// On a block device, mounted as `fuseblk`: one syncfs(2), the server killed.
fn block_device(cx: &Cx, roots: &[PathBuf]) -> Result<Option<()>> {
    let mut volume = Volume::unmounted(cx, "device")?;
    let Some(device) = Loop::of(&volume.image()) else {
        return Ok(None);
    };
    let source = volume.scratch().join("source");
    fs::create_dir(&source)?;
    let mut cp = Command::new("cp");
    cp.arg("-a").args(roots).arg(&source);
    volume.steps.run(cp, LIMIT)?;
    volume.mount_through(device.0.clone());
    volume.mount()?;
    copy(&volume, &source, "copy")?;
    let mut sync = tools::command("sync");
    sync.arg("--file-system").arg(volume.root());
    volume.steps.run(sync, LIMIT)?;
    volume.kill()?;
    volume.mount()?;
    let original = Manifest::of(&source, Detail::Full)?;
    original.expect_same(&Manifest::of(&volume.root().join("copy"), Detail::Full)?)?;
    volume.unmount()?;
    device.flush()?;
    drop(device);
    volume.check()?;
    Ok(Some(()))
}

/// `mkfs`, `mount` in the background, `cp -a`, `umount` and `check`, one after the other.
fn readme(cx: &Cx) -> Result<()> {
    let volume = Volume::unmounted(cx, "readme")?;
    let script = r#"set -e
        dure=$1; source=$2
        rm volume.img
        "$dure" mkfs volume.img --size 1G
        "$dure" mount volume.img mnt
        trap '"$dure" umount --lazy mnt 2>/dev/null || true' EXIT
        cp -a "$source" mnt/ && sync
        "$dure" umount mnt && "$dure" check volume.img
        "$dure" mount volume.img mnt
        diff -r --no-dereference "$source" "mnt/$(basename "$source")"
        "$dure" umount mnt && "$dure" check volume.img"#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(&cx.dure);
    shell
        .arg(cargo::root().join("docs"))
        .current_dir(volume.scratch());
    volume.steps.run(shell, LIMIT).map(drop)
}

//! The kernel of the guest, and the small memory file system that it starts from.
//!
//! **Problem.** The host's kernel may lack what a suite needs, and may not be there to read.
//! **Structure.** A kernel package of Debian's backports, unpacked in `target/guest`; apt finds it
//! with lists of its own, so that the host's sources stay as they are. The initial file system has
//! busybox, the modules that reach the host's files, and `init.sh`. **Invariants.** A kernel that
//! was not unpacked to its end is unpacked again. **Crash.** Everything can be run again.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::cargo;
use crate::conformance::tools::command;

const SOURCE: &str = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \
                      http://deb.debian.org/debian bookworm-backports main\n";
/// The package that depends on the newest kernel.
const NEWEST: &str = "linux-image-amd64";
/// Reach the host's files.
const MODULES: [&str; 2] = ["/9p.ko.xz", "/9pnet_virtio.ko.xz"];
const INIT: &str = include_str!("../../programs/guest/init.sh");

/// What QEMU starts.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) image: PathBuf,
    pub(crate) initial: PathBuf,
    /// `lib/modules`.
    pub(crate) modules: PathBuf,
    pub(crate) version: String,
}

impl Kernel {
    /// Fetches it unless it is there.
    pub(crate) fn ready() -> Result<Kernel> {
        let folder = cargo::target().join("guest");
        fs::create_dir_all(&folder)?;
        let root = folder.join("kernel");
        if !root.is_dir() {
            fetch(&folder, &root)?;
        }
        let modules = root.join("lib/modules");
        let version = only_entry(&modules)?;
        let kernel = Kernel {
            image: root.join(format!("boot/vmlinuz-{version}")),
            initial: folder.join("initial.cpio"),
            modules,
            version,
        };
        ensure!(
            kernel.image.is_file(),
            "no {}; remove {}",
            kernel.image.display(),
            root.display()
        );
        kernel.make_initial(&folder)?;
        Ok(kernel)
    }

    fn make_initial(&self, folder: &Path) -> Result<()> {
        let root = folder.join("initial");
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        for name in ["bin", "lib", "proc", "sys", "dev", "host"] {
            fs::create_dir_all(root.join(name))?;
        }
        let busybox = fs::read("/bin/busybox").context("/bin/busybox")?;
        let loader = b"/lib64/ld-linux";
        let is_static = !busybox.windows(loader.len()).any(|bytes| bytes == loader);
        ensure!(
            is_static,
            "/bin/busybox needs libraries; install the package busybox-static"
        );
        fs::copy("/bin/busybox", root.join("bin/busybox"))?;
        let init = root.join("init");
        fs::write(&init, INIT)?;
        fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
        for (number, module) in self.modules_in_order()?.iter().enumerate() {
            let packed = self.modules.join(&self.version).join(module);
            let mut unpack = command("xz");
            unpack.arg("-dc").arg(&packed);
            fs::write(
                root.join(format!("lib/{number:02}.ko")),
                output(&mut unpack)?,
            )?;
        }
        let mut pack = Command::new("sh");
        pack.args(["-c", "find . | busybox cpio -o -H newc 2>/dev/null"])
            .current_dir(&root);
        fs::write(&self.initial, output(&mut pack)?)?;
        Ok(())
    }

    /// Modules to load, each after those it needs.
    fn modules_in_order(&self) -> Result<Vec<String>> {
        let list = self.modules.join(&self.version).join("modules.dep");
        let list = fs::read_to_string(&list).with_context(|| list.display().to_string())?;
        in_order(&list, &MODULES)
    }
}

/// From the text of modules.dep: a line is `MODULE: NEEDED...`, of which the last comes first.
fn in_order(list: &str, wanted: &[&str]) -> Result<Vec<String>> {
    let mut all: Vec<String> = Vec::new();
    for end in wanted {
        let line = list
            .lines()
            .find(|line| line.split(':').next().is_some_and(|m| m.ends_with(end)));
        let line = line.with_context(|| format!("the kernel has no module {end}"))?;
        let names: Vec<&str> = line.split([':', ' ']).filter(|n| !n.is_empty()).collect();
        for name in names.into_iter().rev() {
            if !all.iter().any(|known| known == name) {
                all.push(name.to_owned());
            }
        }
    }
    Ok(all)
}

fn fetch(folder: &Path, root: &Path) -> Result<()> {
    eprintln!("  fetching a kernel for the guest");
    let apt = folder.join("apt");
    for name in ["lists/partial", "cache/archives/partial", "package"] {
        fs::create_dir_all(apt.join(name))?;
    }
    let sources = apt.join("sources.list");
    fs::write(&sources, SOURCE)?;
    let with_lists = |program: &str| {
        let option = |name: &str, path: &Path| format!("{name}={}", path.display());
        let mut command = command(program);
        for option in [
            option("Dir::Etc::sourcelist", &sources),
            option("Dir::Etc::sourceparts", Path::new("/dev/null")),
            option("Dir::State::lists", &apt.join("lists")),
            option("Dir::Cache", &apt.join("cache")),
        ] {
            command.args(["-o", &option]);
        }
        command.arg("-q").current_dir(apt.join("package"));
        command
    };
    let mut update = with_lists("apt-get");
    output(update.arg("update"))?;
    let mut depends = with_lists("apt-cache");
    let depends = output(depends.args(["depends", NEWEST]))?;
    let depends = String::from_utf8_lossy(&depends).into_owned();
    let package = depends
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: linux-image-"))
        .with_context(|| format!("{NEWEST} depends on no kernel: {depends}"))?;
    let mut download = with_lists("apt-get");
    output(download.args(["download", &format!("linux-image-{package}")]))?;
    unpack(&apt.join("package"), package, root)?;
    fs::remove_dir_all(&apt)?;
    Ok(())
}

/// Has its name only when it is complete.
fn unpack(folder: &Path, version: &str, root: &Path) -> Result<()> {
    let making = root.with_extension("new");
    if making.exists() {
        fs::remove_dir_all(&making)?;
    }
    let mut deb = command("dpkg-deb");
    deb.arg("-x")
        .arg(folder.join(only_entry(folder)?))
        .arg(&making);
    output(&mut deb)?;
    let mut list = command("depmod");
    list.arg("-b").arg(&making).arg(version);
    output(&mut list)?;
    fs::rename(&making, root)?;
    Ok(())
}

fn only_entry(folder: &Path) -> Result<String> {
    let mut names = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let first = names.next().context("an empty folder")??;
    ensure!(names.next().is_none(), "more than one in {folder:?}");
    Ok(first.file_name().to_string_lossy().into_owned())
}

/// The standard output of a program that must succeed.
fn output(command: &mut Command) -> Result<Vec<u8>> {
    let done = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    ensure!(
        done.status.success(),
        "{command:?}: {}: {}",
        done.status,
        String::from_utf8_lossy(&done.stderr).trim_end()
    );
    Ok(done.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_comes_after_those_it_needs_and_once() {
        let list = "k/a.ko.xz: k/b.ko.xz k/c.ko.xz\nk/c.ko.xz:\nk/d.ko.xz: k/c.ko.xz\n";
        let order = in_order(list, &["/a.ko.xz", "/d.ko.xz"]).unwrap();
        assert_eq!(order, ["k/c.ko.xz", "k/b.ko.xz", "k/a.ko.xz", "k/d.ko.xz"]);
        assert!(in_order(list, &["/e.ko.xz"]).is_err());
    }
}

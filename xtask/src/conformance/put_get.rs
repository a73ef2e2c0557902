//! `dure put` and `dure get`: a tree into a volume and out of it again.
//!
//! **Structure.** A tree with one of everything is put, read through a mount where one is possible,
//! got, and compared. **Invariants.** What comes out is what went in, holes and hard links
//! included. **Crash.** None here.

use std::fs::{self, File, Metadata, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, lsetxattr, makedev, mknodat,
    utimensat,
};

use super::Cx;
use super::manifest::{Detail, Manifest, paths};
use super::mount::Volume;
use super::report::Report;
use super::tools::{self, Needs};

pub(crate) const NEEDS: Needs = Needs {
    mount: false,
    crates: &[],
    programs: &[("diff", "diffutils")],
};

const LIMIT: Duration = Duration::from_secs(300);
const MIB: u64 = 1 << 20;

pub(crate) fn run(cx: &Cx, report: &mut Report) -> Result<()> {
    let mut volume = Volume::unmounted(cx, "put-get")?;
    let tree = volume.scratch().join("tree");
    make_tree(&tree, cx.quick)?;
    let original = Manifest::of(&tree, Detail::Full)?;
    report.note(format!("{} entries", original.len()));

    let mut put = volume.dure("put");
    put.arg("--quiet").arg(volume.image()).arg(&tree).arg("/");
    if !report.case("put", volume.steps.run(put, LIMIT).map(drop)) {
        return Ok(());
    }
    report.case("check after put", volume.check());
    let copy = volume.scratch().join("copy");
    let mut get = volume.dure("get");
    get.arg("--quiet")
        .arg(volume.image())
        .arg("/tree")
        .arg(&copy);
    if !report.case("get", volume.steps.run(get, LIMIT).map(drop)) {
        return Ok(());
    }
    report.case("contents", diff(&volume, &tree, &copy));
    let same = Manifest::of(&copy, Detail::Full).and_then(|copy| original.expect_same(&copy));
    report.case("attributes", same);
    report.case("holes of the copy", holes(&copy));

    if rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists() {
        volume.mount()?;
        let shown = volume.root().join("tree");
        let same = Manifest::of(&shown, Detail::Full).and_then(|copy| original.expect_same(&copy));
        report.case("attributes on the mount", same);
        report.case("holes on the mount", holes(&shown));
        report.case("check", volume.close());
    }
    report.case("a second put", put_again(&volume, &tree, &original));
    report.case("check at the end", volume.check());
    Ok(())
}

/// Puts the tree to another name, removes the first, and gets the second.
fn put_again(volume: &Volume, tree: &Path, original: &Manifest) -> Result<()> {
    let mut put = volume.dure("put");
    put.arg("--quiet")
        .arg(volume.image())
        .arg(tree)
        .arg("/second");
    volume.steps.run(put, LIMIT)?;
    let mut rm = volume.dure("rm");
    rm.arg("--recursive").arg(volume.image()).arg("/tree");
    volume.steps.run(rm, LIMIT)?;
    let copy = volume.scratch().join("copy-2");
    let mut get = volume.dure("get");
    get.arg("--quiet")
        .arg(volume.image())
        .arg("/second")
        .arg(&copy);
    volume.steps.run(get, LIMIT)?;
    original.expect_same(&Manifest::of(&copy, Detail::Full)?)
}

/// `diff -r`, which must find nothing. Special files are left to the manifest: diff would wait for
/// the writer of a FIFO.
fn diff(volume: &Volume, a: &Path, b: &Path) -> Result<()> {
    let mut command = tools::command("diff");
    command.args(["-r", "--no-dereference", "--exclude", "special"]);
    command.arg(a).arg(b);
    volume.steps.run(command, LIMIT).map(drop)
}

/// Files named `sparse*` have at most a quarter of their size in blocks.
fn holes(root: &Path) -> Result<()> {
    let mut seen = 0;
    for path in paths(root, Metadata::is_file)? {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !name.starts_with("sparse") {
            continue;
        }
        seen += 1;
        let metadata = fs::metadata(&path)?;
        ensure!(
            metadata.blocks() * 512 <= metadata.len() / 4,
            "{name}: {} of {} bytes are allocated",
            metadata.blocks() * 512,
            metadata.len()
        );
    }
    ensure!(seen == 3, "{seen} sparse files, not 3");
    Ok(())
}

/// One of everything, and folders with ordinary files.
fn make_tree(root: &Path, quick: bool) -> Result<()> {
    fs::create_dir(root)?;
    for folder in 0..if quick { 5 } else { 40 } {
        let folder = root.join(format!("folder-{folder}"));
        fs::create_dir(&folder)?;
        for file in 0..50_usize {
            let bytes = vec![b'a' + u8::try_from(file % 26).expect("small"); file * file * 31];
            fs::write(folder.join(format!("file-{file}")), bytes)?;
        }
    }
    names(&root.join("names"))?;
    links(&root.join("links"))?;
    sparse(&root.join("sparse"))?;
    modes(&root.join("modes")).context("modes")?;
    attributes(&root.join("attributes")).context("attributes")?;
    if rustix::process::geteuid().is_root() {
        special(&root.join("special")).context("special files")?;
    }
    // Last and from below, because everything changes the times of directories.
    let all = paths(root, |_| true)?;
    for (path, seconds) in all.iter().rev().zip(1_000_000_000..) {
        set_mtime(path, seconds, 123_456_789)?;
    }
    Ok(())
}

fn names(root: &Path) -> Result<()> {
    fs::create_dir(root)?;
    let longest = "n".repeat(255);
    for name in [
        " ",
        "-n",
        "new\nline",
        "\u{e9}\u{1f980}",
        "back\\slash",
        longest.as_str(),
    ] {
        fs::write(root.join(name), name)?;
    }
    let mut deep = root.to_owned();
    for level in 0..60 {
        deep.push(format!("level-{level}"));
    }
    fs::create_dir_all(&deep)?;
    fs::write(deep.join("end"), "deep")?;
    Ok(())
}

fn links(root: &Path) -> Result<()> {
    fs::create_dir_all(root.join("beside"))?;
    fs::write(root.join("a"), "linked")?;
    for name in ["b", "beside/c", "beside/d"] {
        fs::hard_link(root.join("a"), root.join(name))?;
    }
    let far = "/far/".repeat(800);
    for (target, name) in [
        ("a", "short"),
        ("nowhere", "dangling"),
        (far.as_str(), "long"),
    ] {
        symlink(target, root.join(name))?;
    }
    Ok(())
}

fn sparse(root: &Path) -> Result<()> {
    fs::create_dir(root)?;
    File::create(root.join("sparse-empty"))?.set_len(10 * MIB)?;
    let file = File::create(root.join("sparse-holes"))?;
    for at in [0, 3 * MIB, 7 * MIB + 123] {
        file.write_all_at(b"island", at)?;
    }
    file.set_len(20 * MIB)?;
    let end = File::create(root.join("sparse-end"))?;
    end.write_all_at(b"the end", 200 * MIB)?;
    Ok(())
}

fn modes(root: &Path) -> Result<()> {
    fs::create_dir(root)?;
    let is_root = rustix::process::geteuid().is_root();
    for mode in [0, 0o400, 0o644, 0o755, 0o1777, 0o2755, 0o4755, 0o7777] {
        if mode == 0 && !is_root {
            continue;
        }
        let path = root.join(format!("{mode:o}"));
        fs::write(&path, "")?;
        if is_root {
            std::os::unix::fs::chown(&path, Some(mode), Some(70_000 + mode))?;
        }
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
    }
    Ok(())
}

fn attributes(root: &Path) -> Result<()> {
    fs::create_dir(root)?;
    let set = |path: &Path, name: &str, value: &[u8]| {
        lsetxattr(path, name, value, XattrFlags::empty()).with_context(|| name.to_owned())
    };
    let file = root.join("file");
    fs::write(&file, "x")?;
    set(&file, "user.empty", b"")?;
    set(&file, "user.binary", &[0, 1, 2, 255])?;
    set(root, "user.of-a-directory", b"yes")?;
    // The host may allow only one block for all attributes of a file.
    for number in 0..20 {
        set(&file, &format!("user.number-{number}"), &[number; 64])?;
    }
    if rustix::process::geteuid().is_root() {
        set(&file, "trusted.root", b"only")?;
    }
    Ok(())
}

fn special(root: &Path) -> Result<()> {
    fs::create_dir(root)?;
    let kinds = [
        ("fifo", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
        ("null", FileType::CharacterDevice, makedev(1, 3)),
        ("loop", FileType::BlockDevice, makedev(7, 200)),
    ];
    for (name, kind, device) in kinds {
        mknodat(
            CWD,
            root.join(name),
            kind,
            Mode::from_raw_mode(0o640),
            device,
        )?;
    }
    Ok(())
}

fn set_mtime(path: &Path, seconds: i64, nanos: i64) -> Result<()> {
    // Before the epoch and after 2038 are times, too.
    let seconds = match seconds % 3 {
        0 => seconds,
        1 => seconds - 1_500_000_000,
        _ => seconds + 3_000_000_000,
    };
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: nanos,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
        .with_context(|| path.display().to_string())
}

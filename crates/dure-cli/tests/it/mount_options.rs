//! Options of mount(8) do what they say, on the way root takes and on the way users take.

#![expect(clippy::unwrap_used, reason = "tests panic")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::program::{Mounted, as_user, can_mount, dure, errors, printed, refused, text, volume};

/// A user who owns nothing.
const STRANGER: u32 = 65_534;

fn run_as(uid: u32, program: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .uid(uid)
        .gid(uid)
        .output()
        .unwrap_or_else(|error| Output {
            status: std::os::unix::process::ExitStatusExt::from_raw(126 << 8),
            stdout: Vec::new(),
            stderr: error.to_string().into_bytes(),
        })
}

/// The options the kernel shows of a mount.
fn shown(directory: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let at = format!(" {} ", directory.display());
    let line = mounts
        .lines()
        .rev()
        .find(|line| line.contains(&at))
        .unwrap();
    let words = line.split(' ').nth(5).unwrap().split(',');
    words.map(str::to_owned).collect()
}

/// A set-uid program ran as root, and a device opened, on a mount with nosuid,nodev,noexec.
#[test]
fn set_uid_programs_devices_and_programs_are_what_the_options_say() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let volume = volume(folder.path());
    for (options, set_uid, device, exec) in [
        ("allow_other", false, false, true),
        ("allow_other,suid,dev", true, true, true),
        (
            "allow_other,suid,dev,nosuid,nodev,noexec",
            false,
            false,
            false,
        ),
        ("allow_other,users", false, false, false),
        ("allow_other,user,exec,dev", false, true, true),
    ] {
        let mounted = Mounted::new(&volume, "m", options);
        let (id, null) = (mounted.path("id"), mounted.path("null"));
        if !id.exists() {
            fs::copy("/usr/bin/id", &id).unwrap();
            fs::set_permissions(&id, fs::Permissions::from_mode(0o4755)).unwrap();
            let (kind, mode) = (rustix::fs::FileType::CharacterDevice, 0o666.into());
            let number = rustix::fs::makedev(1, 3);
            rustix::fs::mknodat(rustix::fs::CWD, &null, kind, mode, number).unwrap();
        }
        let output = run_as(STRANGER, &id, &["-u"]);
        assert_eq!(
            output.status.success(),
            exec,
            "{options}: {}",
            errors(&output)
        );
        if exec {
            let uid = String::from_utf8(output.stdout).unwrap();
            assert_eq!(uid.trim() == "0", set_uid, "{options}: {uid}");
        }
        let opened = fs::File::open(&null);
        assert_eq!(opened.is_ok(), device, "{options}: {opened:?}");
        drop(opened);
        mounted.end();
    }
}

#[test]
fn generic_options_reach_the_kernel_and_the_server() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    for (options, want) in [
        ("", &["rw", "nosuid", "nodev", "relatime"][..]),
        ("noatime,nodiratime", &["noatime", "nodiratime"]),
        ("strictatime,noexec,nosymfollow", &["noexec", "nosymfollow"]),
        ("ro,defaults,auto,_netdev,nofail,x-a=b,comment=c", &["ro"]),
    ] {
        let mounted = Mounted::new(&volume, "m", options);
        let words = shown(&mounted.0);
        for word in want {
            assert!(
                words.iter().any(|shown| shown == word),
                "{options}: {words:?}"
            );
        }
        assert_eq!(
            fs::write(mounted.path("f"), b"x").is_ok(),
            !options.contains("ro,")
        );
        mounted.end();
    }
    // Read-only, the volume is not written at all.
    let before = fs::read(&volume).unwrap();
    Mounted::new(&volume, "m", "ro").end();
    assert!(fs::read(&volume).unwrap() == before);
    for (bad, why) in [
        ("mand", "mandatory"),
        ("bind", "mount(8)"),
        ("nosiud", "unknown"),
        ("journal=single,journal=per-core", "give one of them"),
    ] {
        let directory = folder.path().join("m");
        let said = refused(&["mount", text(&volume), text(&directory), "-o", bad]);
        assert!(said.contains(why), "{said}");
    }
}

/// With `sync` what was written is on the volume when write(2) returns: a copy of the image, as a
/// crash leaves it, has it.
#[test]
fn changes_of_a_synchronous_mount_are_durable_at_once() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    let crashed = folder.path().join("crashed.img");
    let mounted = Mounted::new(&volume, "m", "sync,commit=3600");
    fs::create_dir(mounted.path("d")).unwrap();
    fs::write(mounted.path("d/f"), b"written").unwrap();
    fs::set_permissions(mounted.path("d/f"), fs::Permissions::from_mode(0o604)).unwrap();
    fs::copy(&volume, &crashed).unwrap();
    assert_eq!(printed(&["cat", text(&crashed), "/d/f"]), "written");
    assert!(printed(&["ls", "-l", text(&crashed), "/d"]).contains("-rw----r--"));
    mounted.end();

    let mounted = Mounted::new(&volume, "m", "dirsync,commit=3600");
    fs::rename(mounted.path("d"), mounted.path("renamed")).unwrap();
    fs::remove_file(&crashed).unwrap();
    fs::copy(&volume, &crashed).unwrap();
    assert_eq!(printed(&["ls", text(&crashed)]), "renamed\n");
    mounted.end();
}

#[test]
fn remount_changes_what_the_kernel_can_and_refuses_the_rest() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    let mounted = Mounted::new(&volume, "m", "commit=3600");
    let again = |options: &str| {
        let options = format!("remount,{options}");
        dure(&["mount", text(&volume), text(&mounted.0), "-o", &options])
    };
    fs::write(mounted.path("f"), b"before").unwrap();
    // As mount(8) does it, which repeats what the kernel shows.
    let output = again("ro,nosuid,nodev,relatime,user_id=0,group_id=0,default_permissions");
    assert!(output.status.success(), "{}", errors(&output));
    assert!(fs::write(mounted.path("f"), b"after").is_err());
    let crashed = folder.path().join("crashed.img");
    fs::copy(&volume, &crashed).unwrap();
    assert_eq!(
        printed(&["cat", text(&crashed), "/f"]),
        "before",
        "durable by then"
    );
    assert!(again("rw,noexec,suid").status.success());
    assert!(shown(&mounted.0).iter().any(|word| word == "noexec"));
    assert!(!shown(&mounted.0).iter().any(|word| word == "nosuid"));
    fs::write(mounted.path("f"), b"after").unwrap();
    for (options, why) in [
        ("noatime", "until it ends"),
        ("sync", "until it ends"),
        ("commit=1", "unmount and mount again"),
    ] {
        let output = again(options);
        assert!(
            errors(&output).contains(why),
            "{options}: {}",
            errors(&output)
        );
    }
    mounted.end();
    let mounted = Mounted::new(&volume, "m", "ro");
    let why = refused(&["mount", text(&volume), text(&mounted.0), "-o", "remount,rw"]);
    assert!(why.contains("has it read-only"), "{why}");
}

/// As mount(8) calls a helper: `mount.dure SOURCE DIRECTORY -sfnv -o OPTIONS -t TYPE`.
#[test]
fn the_helper_does_what_mount_8_asks() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    let (mount, umount) = (
        folder.path().join("mount.fuse.dure"),
        folder.path().join("umount.dure"),
    );
    for name in [&mount, &umount] {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_dure"), name).unwrap();
    }
    let directory = folder.path().join("m");
    fs::create_dir(&directory).unwrap();
    let call = |more: &[&str]| {
        let arguments = [&[text(&volume), text(&directory)], more].concat();
        run_as(0, &mount, &arguments)
    };
    let outside = fs::metadata(&directory).unwrap().dev();
    let fake = call(&["-f", "-v", "-n", "-o", "rw,noexec", "-t", "fuse.dure"]);
    assert!(fake.status.success(), "{}", errors(&fake));
    assert!(String::from_utf8_lossy(&fake.stdout).contains("can be mounted"));
    assert_eq!(
        fs::metadata(&directory).unwrap().dev(),
        outside,
        "not mounted"
    );
    assert!(!call(&["-f", "-o", "nonsense"]).status.success());
    assert!(!call(&["-t", "ext4"]).status.success());
    let done = call(&["-s", "-v", "-o", "nonsense,noexec"]);
    assert!(done.status.success(), "{}", errors(&done));
    assert!(
        errors(&done).contains("'nonsense', left out"),
        "{}",
        errors(&done)
    );
    assert!(shown(&directory).iter().any(|word| word == "noexec"));
    assert!(!call(&["-f"]).status.success(), "in use");
    let ended = run_as(0, &umount, &[text(&directory), "-n"]);
    assert!(ended.status.success(), "{}", errors(&ended));
    assert!(printed(&["check", text(&volume)]).contains("clean"));
}

#[test]
fn all_files_show_the_owner_that_the_mount_gives_them() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    let mounted = Mounted::new(&volume, "m", "uid=7,gid=8");
    let file = mounted.path("f");
    fs::write(&file, b"x").unwrap();
    let found = fs::metadata(&file).unwrap();
    assert_eq!((found.uid(), found.gid()), (7, 8));
    std::os::unix::fs::chown(&file, Some(7), Some(8)).unwrap();
    let refused = std::os::unix::fs::chown(&file, Some(9), None).unwrap_err();
    let not_permitted = rustix::io::Errno::PERM.raw_os_error();
    assert_eq!(refused.raw_os_error(), Some(not_permitted), "{refused}");
    mounted.end();
    assert!(
        printed(&["ls", "-l", text(&volume)]).contains(" 0 "),
        "what is stored is root's"
    );
}

/// Any user set 128 KiB of `system.` attributes on anybody's file.
#[test]
fn attributes_are_set_by_the_rules_of_their_namespace() {
    use rustix::fs::{XattrFlags, getxattr, listxattr, setxattr};
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let volume = volume(folder.path());
    let mounted = Mounted::new(&volume, "m", "allow_other");
    let file = mounted.path("f");
    fs::write(&file, b"x").unwrap();
    let set = |name: &str| setxattr(&file, name, b"v", XattrFlags::empty());
    for name in [
        "system.anything",
        "system.posix_acl_other",
        "other.x",
        "plain",
    ] {
        assert_eq!(
            set(name).unwrap_err(),
            rustix::io::Errno::OPNOTSUPP,
            "{name}"
        );
    }
    for name in ["user.x", "trusted.x", "security.x"] {
        set(name).unwrap();
    }
    // Another user, on a file that is root's and that he may read.
    let python = "import os,sys,errno\nf=sys.argv[1]\n\
         def t(n):\n  try: os.setxattr(f,n,b'v'); return 'set'\n  except OSError as e: return errno.errorcode[e.errno]\n\
         print([t(n) for n in ['user.y','trusted.y','security.y','security.capability',\
         'system.y','system.posix_acl_access']], sorted(os.listxattr(f)))\n";
    let output = run_as(
        STRANGER,
        Path::new("/usr/bin/python3"),
        &["-c", python, text(&file)],
    );
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.code() == Some(126) {
        eprintln!("skipped in part: no python3 to be another user with");
    } else {
        assert!(!said.contains("'set'"), "{said}{}", errors(&output));
        assert!(
            said.contains("'user.x'") && !said.contains("'trusted.x'"),
            "{said}"
        );
    }
    let mut room = [0; 256];
    let len = listxattr(&file, &mut room[..]).unwrap();
    assert!(String::from_utf8_lossy(&room[..len]).contains("trusted.x"));
    assert_eq!(getxattr(&file, "trusted.x", &mut room[..]).unwrap(), 1);
    mounted.end();
}

/// Users mount through fusermount3.
#[test]
fn a_user_gets_what_fusermount3_grants_and_no_more() {
    let fusermount = Command::new("fusermount3").arg("-V").output();
    if !can_mount() || fusermount.is_err() {
        return eprintln!("skipped: fusermount3 is not there");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let (image, directory) = (folder.path().join("u.img"), folder.path().join("m"));
    fs::create_dir(&directory).unwrap();
    std::os::unix::fs::chown(&directory, Some(1234), Some(1234)).unwrap();
    let user = |arguments: &[&str]| as_user(1234, arguments);
    assert!(
        user(&["mkfs", "--size", "64M", text(&image)])
            .status
            .success()
    );
    for (options, why) in [("suid", "only root"), ("dev", "only root")] {
        let output = user(&["mount", text(&image), text(&directory), "-o", options]);
        assert!(errors(&output).contains(why), "{}", errors(&output));
    }
    let options = "noexec,noatime,users";
    let output = user(&["mount", text(&image), text(&directory), "-o", options]);
    if errors(&output).contains("/dev/fuse") || errors(&output).contains("ermission") {
        return eprintln!("skipped: users may not use FUSE here: {}", errors(&output));
    }
    assert!(output.status.success(), "{}", errors(&output));
    let words = shown(&directory);
    for word in ["nosuid", "nodev", "noexec", "noatime"] {
        assert!(words.iter().any(|shown| shown == word), "{words:?}");
    }
    let touched = run_as(
        1234,
        Path::new("/usr/bin/touch"),
        &[text(&directory.join("f"))],
    );
    let info = user(&["info", text(&directory)]).stdout;
    let info = String::from_utf8(info).unwrap();
    // Only root may limit what the kernel collects.
    assert!(info.contains("why writethrough     /sys/"), "{info}");
    let output = user(&["mount", text(&image), text(&directory), "-o", "remount,ro"]);
    let ended = user(&["umount", text(&directory)]);
    assert!(touched.status.success(), "{}", errors(&touched));
    assert!(!output.status.success());
    assert!(ended.status.success(), "{}", errors(&ended));
    assert!(printed(&["ls", text(&image)]).contains('f'));
}

/// The switch is the machine's, so nothing may be turned on for a user, nor by a dry run.
#[test]
fn only_root_switches_rings_on() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: needs another user");
    }
    let switch = "/sys/module/fuse/parameters/enable_uring";
    let before = fs::read_to_string(switch).ok();
    let arguments = [
        "mount",
        "--enable-rings",
        "/no/such/volume",
        "/no/such/directory",
    ];
    let refused = as_user(1234, &arguments);
    assert_eq!(refused.status.code(), Some(1));
    let why = errors(&refused);
    assert!(why.contains("--enable-rings"), "{why}");
    assert!(why.contains("only root") || why.contains("6.14"), "{why}");
    let mut arguments = arguments.to_vec();
    arguments.push("--fake");
    assert!(!dure(&arguments).status.success());
    assert_eq!(fs::read_to_string(switch).ok(), before);
}

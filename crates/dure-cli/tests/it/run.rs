//! `dure run`: programs with a volume mounted, whose calls on its files do not leave them.

#![expect(clippy::unwrap_used, reason = "tests panic")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use crate::program::{can_mount, dure, errors, printed, program, refused, text, told, volume};

/// Runs a line of a shell in the volume.
fn run(image: &str, line: &str) -> Output {
    dure(&["run", "--report", image, "--", "sh", "-c", line])
}

/// How many calls were done in the program.
fn done_in_the_program(output: &Output) -> u64 {
    let errors = errors(output);
    let count = errors.split(" calls were done").next().unwrap();
    let count = count.rsplit(' ').next().unwrap();
    count.parse().unwrap_or_else(|_| panic!("{errors}"))
}

#[test]
fn a_program_begins_in_the_volume_and_its_status_is_the_commands() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let image = text(&image);
    let output = run(image, "echo sown > field; cat field; pwd; echo $DURE_DIR");
    let lines = String::from_utf8(output.stdout.clone()).unwrap();
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!((lines[0], lines[1]), ("sown", lines[2]));
    assert!(done_in_the_program(&output) >= 1);
    assert!(!fs::exists(lines[1]).unwrap(), "{} is left", lines[1]);
    assert_eq!(printed(&["cat", image, "field"]), "sown\n");
    assert_eq!(run(image, "exit 7").status.code(), Some(7));
    let killed = run(image, "kill -TERM $$").status.code();
    assert_eq!(killed, Some(128 + 15));
    let none = refused(&["run", image, "--", "no-such-program"]);
    told(&none, &["no-such-program: no such program"]);
}

#[test]
fn on_a_directory_it_begins_where_it_is_called() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let at = folder.path().join("m");
    fs::create_dir(&at).unwrap();
    let place = format!("{}:{}", text(&image), text(&at));
    fs::write(folder.path().join("host"), "of the host").unwrap();
    let mut command = program();
    command.current_dir(folder.path());
    command.args(["run", "--report", &place, "--", "dd"]);
    command.args(["if=host", "of=m/copy", "bs=4"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(done_in_the_program(&output), 3, "writes");
    assert_eq!(printed(&["cat", text(&image), "copy"]), "of the host");
    assert!(at.read_dir().unwrap().next().is_none());
}

/// Regression: the mount ended with the program that a shell is replaced by, as nobody was in it yet.
#[test]
fn a_program_that_a_shell_is_replaced_by_has_the_mount() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let at = folder.path().join("m");
    fs::create_dir(&at).unwrap();
    let place = format!("{}:{}", text(&image), text(&at));
    let line = format!("exec sh -c 'sleep 0.3; echo sown > {}/field'", text(&at));
    let output = dure(&["run", &place, "--", "sh", "-c", &line]);
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(printed(&["cat", text(&image), "field"]), "sown\n");
}

#[test]
fn what_a_program_becomes_has_its_calls_in_it() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let image = text(&image);
    let line =
        "mkdir d; cd d; echo sown > field; exec env A=b nice dd if=field of=copy bs=1 count=4";
    let output = run(image, line);
    // One of the shell, eight of dd.
    assert_eq!(done_in_the_program(&output), 9, "{}", errors(&output));
    assert_eq!(printed(&["cat", image, "d/copy"]), "sown");
    let output = run(image, "cd d; exec env pwd -P");
    assert!(output.stdout.ends_with(b"/d\n"), "{}", errors(&output));
    let output = run(image, "exec env");
    let variables = String::from_utf8(output.stdout).unwrap();
    assert!(variables.contains("DURE_DIR="), "{variables}");
    for name in ["DURE_RUN_", "LD_PRELOAD"] {
        assert!(!variables.contains(name), "{variables}");
    }
    assert_eq!(run(image, "exec ./none").status.code(), Some(127));
}

/// What a program becomes goes through the mount where something else uses that, or it may do less.
#[test]
fn what_a_program_becomes_leaves_the_mount_to_others() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let image = text(&image);
    let copied = |line: &str| {
        let output = run(image, &format!("echo sown > field; {line}"));
        let done = done_in_the_program(&output);
        assert_eq!(
            (output.stdout.as_slice(), done),
            (&b"sown\n"[..], 1),
            "{line}: {}",
            errors(&output)
        );
    };
    copied("exec cat < field");
    copied("cp /bin/cat here; exec ./here field");
    copied("sleep 0.2 > /dev/null 2>&1 & exec sh -c 'cat field; sleep 0.4'");
    copied("exec setpriv --bounding-set=-sys_time cat field");
    copied("exec unshare --mount cat field");
    // Regression: the C library ended it, as the server's helper may not what setpriv keeps.
    let other = run(image, "exec setpriv --reuid=65534 --clear-groups true");
    assert_eq!(other.status.code(), Some(0), "{}", errors(&other));
}

#[test]
fn a_program_clones_as_on_a_file_system_of_the_kernel() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let image = text(&image);
    let sown = run(image, "seq 100000 > field");
    assert!(sown.status.success(), "{}", errors(&sown));
    let cloned = run(image, "exec cp --reflink=always field copy");
    assert!(cloned.status.success(), "{}", errors(&cloned));
    let info = printed(&["info", image, "--json"]);
    let spared = info.split("\"blocks_spared_by_clones\": ").nth(1).unwrap();
    assert!(!spared.starts_with('0'), "{info}");
    assert_eq!(
        printed(&["cat", image, "copy"]),
        printed(&["cat", image, "field"])
    );
    let abroad = run(image, "exec cp --reflink=always /etc/passwd copy");
    assert!(!abroad.status.success());
}

#[test]
fn children_use_the_mount_as_long_as_they_live() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let image = text(&image);
    let line = "echo one > file; (sleep 1; echo two >> file) > /dev/null 2>&1 & cat file";
    let output = run(image, line);
    assert_eq!(output.stdout, b"one\n");
    assert!(errors(&output).contains("still used by other processes"));
    for _ in 0..200 {
        // Regression: with its directory `dure run` removed what was in it, the files of the volume.
        if dure(&["cat", image, "file"]).stdout == b"one\ntwo\n" {
            return;
        }
        dure_sync::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("the volume stays in use");
}

#[test]
fn a_program_that_takes_no_library_goes_through_the_mount() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    // A script, whose interpreter has a set-id bit.
    let shell = folder.path().join("shell");
    fs::copy("/bin/sh", &shell).unwrap();
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o4755)).unwrap();
    let script = folder.path().join("script");
    fs::write(
        &script,
        format!("#!{}\necho sown > field; cat field\n", text(&shell)),
    )
    .unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let output = dure(&["run", "--report", text(&image), "--", text(&script)]);
    assert_eq!(output.stdout, b"sown\n", "{}", errors(&output));
    told(
        &errors(&output),
        &["set-id bits", "all its calls go through the mount"],
    );
    assert_eq!(printed(&["cat", text(&image), "field"]), "sown\n");
}

#[test]
fn what_cannot_be_run_is_refused_before_the_program_begins() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let image = text(&image);
    let none = refused(&["run", "none.img", "--", "true"]);
    told(&none, &["none.img"]);
    let empty = folder.path().join("empty");
    fs::write(&empty, "no volume").unwrap();
    told(&refused(&["run", text(&empty), "--", "true"]), &["empty"]);
    let option = dure(&["run", "-o", "cache=much", image, "--", "true"]);
    assert_eq!(option.status.code(), Some(2), "{}", errors(&option));
    // The volume is in use by the program.
    let again = format!("{} cat {image} field", env!("CARGO_BIN_EXE_dure"));
    assert!(errors(&run(image, &again)).contains("in use by process"));
    let line = format!("{} run {image} -- true", env!("CARGO_BIN_EXE_dure"));
    let twice = errors(&run(image, &line));
    assert!(twice.contains("in use by process"), "{twice}");
}

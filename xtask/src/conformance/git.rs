//! git on a mount, with kills of the server.
//!
//! **Structure.** A generated repository and this one: commit, clone with and without hard links,
//! gc, fsck. Then commits without end that a kill cuts off. **Invariants.** `git fsck` finds
//! nothing, what was committed and synced is an ancestor of what is there. **Crash.** SIGKILL to
//! the server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dure_sync::thread;

use super::Cx;
use super::mount::Volume;
use super::report::Report;
use super::tools::{self, Needs};
use crate::cargo;

pub(crate) const NEEDS: Needs = Needs {
    mount: true,
    crates: &[],
    programs: &[("git", "git")],
};

const LIMIT: Duration = Duration::from_secs(600);

/// Commits until a call fails. A commit counts when the folders of the repository are synced too:
/// git syncs files and not folders.
const COMMITS: &str = r#"
n=$(($1 * 1000000))
while :; do
    n=$((n + 1))
    seq $n $((n + 200)) >"file-$((n % 23))" || exit 1
    mkdir -p "folder-$((n % 7))" || exit 1
    echo "$n" >"folder-$((n % 7))/$n" || exit 1
    git add -A || exit 1
    git commit -q -m "commit $n" || exit 1
    head=$(git rev-parse HEAD) || exit 1
    find .git -type d -exec sync {} + || exit 1
    echo "$head" || exit 1
done
"#;

pub(crate) fn run(cx: &Cx, report: &mut Report) -> Result<()> {
    let mut volume = Volume::mounted(cx, "git")?;
    let repository = volume.root().join("generated");
    let made = generate(&volume, &repository, if cx.quick { 10 } else { 60 });
    if report.case("generated: commits, merge, tag", made) {
        let name = "generated: fsck, clones, gc";
        report.case(name, exercise(&volume, &repository));
    }
    if cargo::root().join(".git").exists() {
        let clone = volume.root().join("own");
        let source = format!("file://{}", cargo::root().display());
        let mut command = git(&volume.root());
        command.args(["clone", "-q", &source]).arg(&clone);
        let cloned = volume.steps.run(command, LIMIT).map(drop);
        if report.case("this repository: clone", cloned) {
            let name = "this repository: fsck, clones, gc";
            report.case(name, exercise(&volume, &clone));
        }
    } else {
        report.note("this tree is not a git repository: only a generated one is used".to_owned());
    }
    for round in 1..=if cx.quick { 2 } else { 6 } {
        let result = cut_off(&mut volume, round);
        if !report.case(&format!("kill {round}"), result) {
            break;
        }
    }
    report.case("check", volume.close());
    Ok(())
}

/// git without the configuration of the user that runs this.
pub(crate) fn git(directory: &Path) -> Command {
    let mut command = tools::command("git");
    environment(&mut command);
    command.arg("-C").arg(directory);
    command
}

fn environment(command: &mut Command) {
    let configuration = [
        ("user.name", "Conformance"),
        ("user.email", "conformance@example.org"),
        ("init.defaultBranch", "main"),
        ("safe.directory", "*"),
        ("gc.auto", "0"),
        ("core.fsync", "all"),
        ("core.fsyncMethod", "fsync"),
    ];
    command
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_CONFIG_COUNT", configuration.len().to_string());
    for (number, (key, value)) in configuration.iter().enumerate() {
        command
            .env(format!("GIT_CONFIG_KEY_{number}"), key)
            .env(format!("GIT_CONFIG_VALUE_{number}"), value);
    }
}

fn run_git(volume: &Volume, directory: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = git(directory);
    command.args(arguments);
    volume.steps.run(command, LIMIT)
}

fn generate(volume: &Volume, repository: &Path, commits: usize) -> Result<()> {
    fs::create_dir(repository)?;
    let run = |arguments: &[&str]| run_git(volume, repository, arguments).map(drop);
    run(&["init", "-q"])?;
    for commit in 0..commits {
        for file in 0..40 {
            let folder = repository.join(format!("d{}/e{}", file % 5, (file + commit) % 3));
            fs::create_dir_all(&folder)?;
            let text = format!("{commit} {file}\n").repeat(file * 29 + commit);
            fs::write(folder.join(format!("f{file}")), text)?;
        }
        run(&["add", "-A"])?;
        run(&["commit", "-q", "-m", "more"])?;
        if commit == commits / 2 {
            run(&["branch", "side"])?;
        }
    }
    run(&["checkout", "-q", "side"])?;
    fs::write(repository.join("only-here"), "side\n")?;
    run(&["add", "-A"])?;
    run(&["commit", "-q", "-m", "side"])?;
    run(&["checkout", "-q", "main"])?;
    run(&["merge", "-q", "--no-edit", "side"])?;
    run(&["mv", "d0", "moved"])?;
    run(&["commit", "-q", "-m", "move"])?;
    run(&["tag", "-a", "-m", "tagged", "v1"])
}

/// fsck, clones, gc, and that nothing was changed by them.
fn exercise(volume: &Volume, repository: &Path) -> Result<()> {
    let run = |directory: &Path, arguments: &[&str]| run_git(volume, directory, arguments);
    run(repository, &["fsck", "--full", "--strict"])?;
    clean(volume, repository)?;
    let head = run(repository, &["rev-parse", "HEAD"])?;
    let name = repository
        .file_name()
        .context("it has a name")?
        .to_string_lossy();
    for (suffix, how) in [("linked", "--local"), ("copied", "--no-hardlinks")] {
        let clone: PathBuf = volume.root().join(format!("{name}-{suffix}"));
        let mut command = git(&volume.root());
        command
            .args(["clone", "-q", how])
            .arg(repository)
            .arg(&clone);
        volume.steps.run(command, LIMIT)?;
        run(&clone, &["fsck", "--full", "--strict"])?;
        run(&clone, &["gc", "-q", "--aggressive", "--prune=now"])?;
        run(&clone, &["fsck", "--full", "--strict"])?;
        clean(volume, &clone)?;
        let cloned = run(&clone, &["rev-parse", "HEAD"])?;
        ensure!(
            cloned == head,
            "the clone {suffix} is at {cloned}, not at {head}"
        );
        fs::remove_dir_all(&clone)?;
    }
    run(repository, &["gc", "-q", "--prune=now"])?;
    run(repository, &["fsck", "--full", "--strict"])?;
    clean(volume, repository)
}

fn clean(volume: &Volume, repository: &Path) -> Result<()> {
    let status = run_git(volume, repository, &["status", "--porcelain"])?;
    ensure!(status.is_empty(), "git status: {status}");
    Ok(())
}

/// Commits without end, a kill, and what is left.
fn cut_off(volume: &mut Volume, round: u64) -> Result<()> {
    let repository = volume.root().join("killed");
    if round == 1 {
        fs::create_dir(&repository)?;
        run_git(volume, &repository, &["init", "-q"])?;
        sync(volume, &repository)?;
    }
    let mut shell = Command::new("sh");
    environment(&mut shell);
    let round_text = round.to_string();
    shell
        .args(["-c", COMMITS, "sh", &round_text])
        .current_dir(&repository);
    let mut running = volume.steps.start(shell, None)?;
    thread::sleep(Duration::from_millis(1500 + 410 * round));
    running.expect_running("git")?;
    volume.kill()?;
    let done = running.wait(LIMIT)?;
    ensure!(
        !done.status.success(),
        "git saw no error though the server was gone"
    );
    let synced = done.out.lines().last().map(str::to_owned);
    let synced = synced.with_context(|| format!("no commit before the kill{}", done.tail()))?;
    volume.check().context("before the remount")?;
    volume.mount()?;

    run_git(
        volume,
        &repository,
        &["fsck", "--full", "--strict", "--no-dangling"],
    )?;
    let ancestor = ["merge-base", "--is-ancestor", synced.as_str(), "HEAD"];
    run_git(volume, &repository, &ancestor).context("a synced commit is gone")?;
    // What a killed git leaves behind, as after any crash.
    let git_folder = repository.join(".git");
    for lock in ["index.lock", "HEAD.lock", "refs/heads/main.lock"] {
        match fs::remove_file(git_folder.join(lock)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    run_git(volume, &repository, &["reset", "-q", "--hard"])?;
    run_git(volume, &repository, &["clean", "-q", "-d", "--force"])?;
    clean(volume, &repository)?;
    sync(volume, &repository)
}

/// Makes a tree durable: every file and every folder.
pub(crate) fn sync(volume: &Volume, tree: &Path) -> Result<()> {
    let mut find = Command::new("find");
    find.arg(tree);
    find.args([
        "(", "-type", "f", "-o", "-type", "d", ")", "-exec", "sync", "{}", "+",
    ]);
    volume.steps.run(find, LIMIT).map(drop)
}

//! fsx: random operations on one file, each read compared with a model.
//!
//! **Structure.** A seed per configuration: everything at once, and only what changes the size
//! with calls that make it durable; meanwhile the volume grows, twice. **Invariants.** The file is the same after the volume was
//! unmounted, checked and mounted again. **Crash.** None here.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dure_sync::thread;

use super::Cx;
use super::mount::Volume;
use super::report::Report;
use super::tools::Needs;

pub(crate) const NEEDS: Needs = Needs {
    mount: true,
    crates: &[CRATE],
    programs: &[],
};

pub(crate) const CRATE: (&str, &str) = ("fsx", "0.3.2");

const LIMIT: Duration = Duration::from_secs(900);
/// To what the volume, of 1 GiB, grows while fsx runs.
const GROWTHS_MIB: [u64; 2] = [1200, 3000];
const GROWS_EVERY: Duration = Duration::from_millis(500);

/// Name, seed, configuration.
pub(crate) const CONFIGURATIONS: [(&str, &str, &str); 3] = [
    (
        "everything",
        "1",
        r"
flen = 1048576
[weights]
close_open = 1
invalidate = 1
mapread = 10
mapwrite = 10
read = 10
write = 10
truncate = 5
fsync = 1
fdatasync = 1
posix_fallocate = 3
punch_hole = 5
sendfile = 3
posix_fadvise = 1
copy_file_range = 5
",
    ),
    (
        "sizes",
        "2",
        r"
flen = 8388608
[opsize]
max = 200000
[weights]
close_open = 1
mapread = 0
mapwrite = 0
read = 10
write = 10
truncate = 20
fsync = 5
posix_fallocate = 5
punch_hole = 10
copy_file_range = 10
",
    ),
    (
        "blocks",
        "3",
        r"
flen = 1048576
[opsize]
align = 4096
[weights]
invalidate = 3
mapread = 10
mapwrite = 10
read = 10
write = 10
truncate = 5
fdatasync = 3
punch_hole = 10
copy_file_range = 10
",
    ),
];

pub(crate) fn run(cx: &Cx, report: &mut Report) -> Result<()> {
    let operations = if cx.quick { "5000" } else { "100000" };
    for (name, seed, configuration) in CONFIGURATIONS {
        let mut volume = Volume::mounted(cx, "fsx")?;
        let result = one(cx, &mut volume, configuration, seed, operations);
        let result = result.with_context(|| format!("fsx -S {seed} -N {operations}"));
        report.case(name, result);
    }
    Ok(())
}

fn one(
    cx: &Cx,
    volume: &mut Volume,
    configuration: &str,
    seed: &str,
    operations: &str,
) -> Result<()> {
    let file = volume.root().join("file");
    let command = command(cx, volume, configuration, [seed, operations])?;
    let running = volume.steps.start(command, None)?;
    for mib in GROWTHS_MIB.into_iter().filter(|_| cx.profile.grows()) {
        thread::sleep(GROWS_EVERY);
        volume.steps.run(volume.growth(mib), LIMIT)?;
    }
    running.wait(LIMIT)?.success()?;
    let before = std::fs::read(&file)?;
    volume.close()?;
    volume.mount()?;
    let after = std::fs::read(&file)?;
    let differs = before.iter().zip(&after).position(|(a, b)| a != b);
    ensure!(
        before == after,
        "the file had {} bytes before the unmount and {} after it, first difference at {differs:?}",
        before.len(),
        after.len()
    );
    volume.close()
}

/// The program, on a file of the volume.
pub(crate) fn command(
    cx: &Cx,
    volume: &Volume,
    configuration: &str,
    [seed, operations]: [&str; 2],
) -> Result<Command> {
    let config = volume.scratch().join("fsx.toml");
    std::fs::write(&config, configuration)?;
    let mut command = Command::new(cx.tools.program("fsx"));
    command.arg("-f").arg(config);
    command.args(["-S", seed, "-N", operations]);
    command.arg("-P").arg(volume.scratch());
    command.arg(volume.root().join("file"));
    Ok(command)
}

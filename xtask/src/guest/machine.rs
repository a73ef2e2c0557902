//! A virtual machine that runs one script, and whose power can be cut.
//!
//! **Structure.** [`Hardware`] is what it has; [`Machine`] is QEMU, in software emulation, with two
//! serial lines in files: one of the kernel, one of the script. The script tells its cases, which
//! [`Machine::follow`] enters into the report as they come. **Invariants.** QEMU does not outlive
//! its [`Machine`], nor this process; a guest that says nothing for [`SILENCE`] is a failure.
//! **Crash.** [`Machine::cut`] is the crash: memory and everything in the guest is gone; what it
//! stored in persistent memory, or gave to its disk, is in the files.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use dure_sync::clock::monotonic_ns;
use dure_sync::thread;

use super::kernel::Kernel;
use crate::conformance::report::Report;
use crate::conformance::step::{tail, wait_for};
use crate::conformance::tools::find;

/// How long a guest may say nothing: emulated processors on a loaded host are slow.
const SILENCE: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(50);
/// For QEMU's own end.
const ENDED: Duration = Duration::from_secs(60);

/// What the guest has.
#[derive(Debug)]
pub(crate) struct Hardware {
    pub(crate) processors: u32,
    pub(crate) model: Model,
    /// Files that are NVDIMMs, each on a NUMA node of its own.
    pub(crate) memories: Vec<PathBuf>,
    /// Files that are disks: `/dev/vda` and so on.
    pub(crate) disks: Vec<PathBuf>,
    pub(crate) memory_bytes: u64,
}

/// What its processors can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Model {
    /// All that QEMU emulates.
    Newest,
    /// Of the instructions that write cache lines back, only `clflush`; others are invalid.
    ClflushOnly,
}

/// A running guest.
#[derive(Debug)]
pub(crate) struct Machine {
    qemu: Child,
    console: PathBuf,
    said: File,
    /// How much of it was read.
    read_bytes: u64,
    /// What is no complete line yet.
    rest: Vec<u8>,
    /// Lines that are no words to the host, for an error.
    other: Vec<String>,
}

/// Why [`Machine::follow`] returned.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// `reached WORD`.
    Reached(String),
    /// The script ended with this status.
    Ended(i32),
}

/// A line of the script.
#[derive(Debug, PartialEq, Eq)]
enum Line<'l> {
    Passed(&'l str),
    Failed(&'l str, &'l str),
    Note(&'l str),
    Event(Event),
    Other,
}

impl Machine {
    /// Starts `script` (a name in `share`, and its arguments). Files are next to `share`.
    pub(crate) fn start(
        kernel: &Kernel,
        hardware: &Hardware,
        share: &Path,
        script: &str,
    ) -> Result<Machine> {
        let folder = share.parent().context("the share lies in a folder")?;
        let (console, said) = (folder.join("console"), folder.join("said"));
        fs::write(share.join("script"), format!("{script}\n"))?;
        File::create(&said)?;
        // QEMU ends with us even if we are killed.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL"])
            .arg(find("qemu-system-x86_64").context("no qemu-system-x86_64")?);
        hardware.arguments(&mut command)?;
        command
            .args(share_of(Path::new("/"), "host", true)?)
            .args(share_of(share, "share", false)?)
            .args(share_of(&kernel.modules, "modules", true)?)
            .args(["-serial", &format!("file:{}", word(&console)?)])
            .args(["-serial", &format!("file:{}", word(&said)?)])
            .args(["-append", "console=ttyS0 panic=-1 quiet"])
            .arg("-kernel")
            .arg(&kernel.image)
            .arg("-initrd")
            .arg(&kernel.initial)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(folder.join("qemu"))?);
        let qemu = command.spawn().context("cannot start QEMU")?;
        Ok(Machine {
            qemu,
            console,
            said: File::open(said)?,
            read_bytes: 0,
            rest: Vec::new(),
            other: Vec::new(),
        })
    }

    /// Enters cases until the script is somewhere, or has ended.
    pub(crate) fn follow(&mut self, report: &mut Report) -> Result<Event> {
        let mut heard_ns = monotonic_ns();
        loop {
            // Looked at first: what was said before the end is read after it.
            let ended = self.qemu.try_wait()?;
            while let Some(line) = self.line()? {
                heard_ns = monotonic_ns();
                match parse(&line) {
                    Line::Passed(case) => {
                        report.case(case, Ok(()));
                    }
                    Line::Failed(case, why) => {
                        report.case(case, Err(anyhow!("{why}{}", tail(&self.console))));
                    }
                    Line::Note(text) => report.note(text.to_owned()),
                    Line::Event(event) => return Ok(event),
                    Line::Other => self.other.push(line),
                }
            }
            if let Some(status) = ended {
                bail!("QEMU ended with {status} before the script{}", self.tails());
            }
            let silent = Duration::from_nanos(monotonic_ns() - heard_ns);
            ensure!(
                silent < SILENCE,
                "the guest says nothing for {SILENCE:?}{}",
                self.tails()
            );
            thread::sleep(LOOK);
        }
    }

    /// The script must get to `wanted`.
    pub(crate) fn reach(&mut self, report: &mut Report, wanted: &str) -> Result<()> {
        let event = self.follow(report)?;
        ensure!(
            event == Event::Reached(wanted.to_owned()),
            "{event:?}, not {wanted}{}",
            self.tails()
        );
        Ok(())
    }

    /// The script must end, and the machine with it.
    pub(crate) fn finish(mut self, report: &mut Report) -> Result<()> {
        let event = self.follow(report)?;
        ensure!(event == Event::Ended(0), "{event:?}{}", self.tails());
        ensure!(
            wait_for(&mut self.qemu, ENDED)?.is_some(),
            "the guest does not power off{}",
            self.tails()
        );
        Ok(())
    }

    /// Cuts the power: SIGKILL to QEMU, in whatever state the guest is.
    pub(crate) fn cut(mut self) -> Result<()> {
        let ended = self.qemu.try_wait()?;
        ensure!(
            ended.is_none(),
            "it ended before the power cut{}",
            self.tails()
        );
        self.qemu.kill()?;
        self.qemu.wait()?;
        Ok(())
    }

    /// The next complete line.
    fn line(&mut self) -> Result<Option<String>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line);
                return Ok(Some(line.trim_end().to_owned()));
            }
            let mut bytes = [0; 4096];
            let count = self.said.read_at(&mut bytes, self.read_bytes)?;
            if count == 0 {
                return Ok(None);
            }
            self.read_bytes += u64::try_from(count).expect("at most a buffer");
            self.rest.extend(&bytes[..count]);
        }
    }

    /// The last that was said on both lines.
    fn tails(&self) -> String {
        let from = self.other.len().saturating_sub(10);
        let other: Vec<String> = self.other[from..]
            .iter()
            .map(|l| format!("\n    {l}"))
            .collect();
        format!("{}{}", other.concat(), tail(&self.console))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

impl Hardware {
    fn arguments(&self, command: &mut Command) -> Result<()> {
        let (memory, nodes) = (self.memory_bytes >> 20, self.memories.len().max(1));
        let slots = self.memories.len();
        let model = match self.model {
            Model::Newest => "max",
            Model::ClflushOnly => "max,-clwb,-clflushopt",
        };
        let cpus = usize::try_from(self.processors)?;
        ensure!(cpus >= nodes, "a node without a processor");
        command
            .args(["-nodefaults", "-no-user-config", "-display", "none"])
            .args(["-no-reboot", "-accel", "tcg,thread=multi", "-cpu", model])
            .args(["-machine", "pc,nvdimm=on"])
            .args(["-smp", &cpus.to_string()])
            .args(["-m", &format!("{memory}M,slots={slots},maxmem=64G")]);
        for node in 0..nodes {
            let size = memory / u64::try_from(nodes)?;
            let (first, last) = (node * cpus / nodes, (node + 1) * cpus / nodes - 1);
            command
                .args([
                    "-object",
                    &format!("memory-backend-ram,id=ram{node},size={size}M"),
                ])
                .args([
                    "-numa",
                    &format!("node,nodeid={node},memdev=ram{node},cpus={first}-{last}"),
                ]);
        }
        for (node, file) in self.memories.iter().enumerate() {
            let (path, bytes) = (word(file)?, fs::metadata(file)?.len());
            command
                .args([
                    "-object",
                    &format!(
                        "memory-backend-file,id=nv{node},share=on,mem-path={path},size={bytes}"
                    ),
                ])
                .args(["-device", &format!("nvdimm,memdev=nv{node},node={node}")]);
        }
        for (number, file) in self.disks.iter().enumerate() {
            let path = word(file)?;
            command
                .args([
                    "-drive",
                    &format!("if=none,id=disk{number},format=raw,file={path}"),
                ])
                .args(["-device", &format!("virtio-blk-pci,drive=disk{number}")]);
        }
        Ok(())
    }
}

/// A folder of the host in the guest.
fn share_of(path: &Path, tag: &str, read_only: bool) -> Result<[String; 2]> {
    let read_only = if read_only { ",readonly=on" } else { "" };
    let path = word(path)?;
    Ok([
        "-virtfs".to_owned(),
        format!("local,path={path},mount_tag={tag},security_model=none,multidevs=remap{read_only}"),
    ])
}

/// A path in an option of QEMU, where a comma would end it.
fn word(path: &Path) -> Result<&str> {
    let word = path.to_str().filter(|word| !word.contains(','));
    word.with_context(|| format!("{path:?}: QEMU cannot be told of it"))
}

fn parse(line: &str) -> Line<'_> {
    let Some((word, rest)) = line.split_once(' ') else {
        return Line::Other;
    };
    match word {
        "ok" => Line::Passed(rest),
        "FAILED" => {
            let (case, why) = rest
                .split_once(" | ")
                .unwrap_or((rest, "no reason was given"));
            Line::Failed(case, why)
        }
        "note" => Line::Note(rest),
        "reached" => Line::Event(Event::Reached(rest.to_owned())),
        "ended" => rest
            .parse()
            .map_or(Line::Other, |status| Line::Event(Event::Ended(status))),
        _ => Line::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_script() {
        assert_eq!(parse("ok a: b"), Line::Passed("a: b"));
        assert_eq!(parse("FAILED a: b | c: d"), Line::Failed("a: b", "c: d"));
        assert_eq!(parse("FAILED a"), Line::Failed("a", "no reason was given"));
        assert_eq!(parse("ended 3"), Line::Event(Event::Ended(3)));
        assert_eq!(parse("reached x"), Line::Event(Event::Reached("x".into())));
        for other in ["", "ok", "okay a", "ended x", "[ 1.0] kernel"] {
            assert_eq!(parse(other), Line::Other, "{other}");
        }
    }
}

//! Resident memory of the server against `cache=`.
//!
//! **Problem.** A server whose memory grows with its load takes the memory of other programs.
//! **Structure.** Per cache size: files without end, data, tasks that share files and tasks that
//! sync; after each the kernel is asked for the server's peak resident memory. **Invariants.**
//! Never more than the fixed part and the cache and a tenth of it (docs/design/memory.md).
//! **Crash.** None here.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use dure_sync::thread;

use super::Cx;
use super::mount::Volume;
use super::report::Report;
use super::tools::Needs;

pub(crate) const NEEDS: Needs = Needs {
    mount: true,
    crates: &[],
    programs: &[],
};

/// Room for a million files.
const VOLUME: &str = "6G";
/// What a server has resident whatever its cache is, in MiB.
const FIXED: u64 = 28;
/// Sizes of the cache, in MiB.
const CACHES: [u64; 3] = [16, 64, 1024];
const TASKS: u64 = 16;

pub(crate) fn run(cx: &Cx, report: &mut Report) -> Result<()> {
    let (caches, files, mib) = if cx.quick {
        (&CACHES[..1], 100_000, 100)
    } else {
        (&CACHES[..], 1_000_000, 600)
    };
    for &cache in caches {
        let mut volume = Volume::sized(cx, "memory", VOLUME)?;
        volume.mount_with(&[&format!("cache={cache}M")])?;
        let watch = Watch {
            root: &volume.root(),
            server: volume.server_id(),
            cache,
        };
        let steps: [(&str, &dyn Fn() -> Result<()>); 6] = [
            ("files created", &|| watch.create(files)),
            ("listed and stat-ed", &|| watch.list(files)),
            ("written and read", &|| watch.stream(mib)),
            ("small files", &|| watch.small(files / 10)),
            ("one file of all tasks", &|| watch.share()),
            ("all tasks sync", &|| watch.sync()),
        ];
        for (name, step) in steps {
            let held = step().and_then(|()| watch.check());
            report.case(&format!("cache={cache}M: {name}"), held);
        }
        report.case(&format!("cache={cache}M: volume"), volume.close());
    }
    Ok(())
}

/// A mounted volume whose server is watched.
struct Watch<'v> {
    root: &'v Path,
    server: u32,
    cache: u64,
}

impl Watch<'_> {
    fn check(&self) -> Result<()> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.server))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.and_then(|text| text.split_ascii_whitespace().next());
        let peak = kib.context("VmHWM")?.parse::<u64>()?.div_ceil(1024);
        let most = FIXED + self.cache + self.cache / 10;
        eprintln!("          {peak} MiB resident at most, {most} allowed");
        ensure!(peak <= most, "{peak} MiB were resident, {most} are allowed");
        Ok(())
    }

    fn create(&self, files: usize) -> Result<()> {
        let folder = self.root.join("files");
        fs::create_dir(&folder)?;
        for n in 0..files {
            File::create(folder.join(format!("file-{n:07}")))?;
        }
        Ok(())
    }

    fn list(&self, files: usize) -> Result<()> {
        let mut seen = 0;
        for entry in fs::read_dir(self.root.join("files"))? {
            ensure!(entry?.metadata()?.is_file(), "a file has become another");
            seen += 1;
        }
        ensure!(seen == files, "{seen} of {files} files are listed");
        Ok(())
    }

    fn stream(&self, mib: u64) -> Result<()> {
        let path = self.root.join("stream");
        let mut piece = vec![7; 1 << 20];
        let mut file = File::create(&path)?;
        for _ in 0..mib {
            file.write_all(&piece)?;
        }
        file.sync_all()?;
        // Drops the kernel's cached pages, so that reads reach the server.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        let mut file = File::open(&path)?;
        for _ in 0..mib {
            file.read_exact(&mut piece)?;
            ensure!(piece.iter().all(|byte| *byte == 7), "it reads otherwise");
        }
        Ok(())
    }

    fn small(&self, files: usize) -> Result<()> {
        let folder = self.root.join("small");
        fs::create_dir(&folder)?;
        let name = |n| folder.join(format!("file-{n:07}"));
        for n in 0..files {
            fs::write(name(n), format!("{n}"))?;
        }
        for n in 0..files {
            ensure!(fs::read_to_string(name(n))? == format!("{n}"), "file {n}");
        }
        Ok(())
    }

    fn share(&self) -> Result<()> {
        let path = self.root.join("shared");
        File::create(&path)?.set_len(64 << 20)?;
        each_task(|task| {
            let file = File::options().write(true).open(&path)?;
            for n in 0..2000 {
                let page = (task * 7919 + n * 104_729) % (64 << 8);
                file.write_all_at(&[1; 4096], page << 12)?;
            }
            Ok(())
        })
    }

    fn sync(&self) -> Result<()> {
        each_task(|task| {
            let folder = self.root.join(format!("synced-{task}"));
            fs::create_dir(&folder)?;
            for n in 0..100 {
                let mut file = File::create(folder.join(format!("{n}")))?;
                file.write_all(&[3; 5000])?;
                file.sync_all()?;
            }
            Ok(())
        })
    }
}

fn each_task(work: impl Fn(u64) -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let work = &work;
                scope.spawn(move || work(task))
            })
            .collect();
        let mut ended = tasks.into_iter();
        ended.try_for_each(|task| task.join().expect("a task returns its errors"))
    })
}

//! `dure demo`: makes a volume, copies a real tree in, lets writers run, kills everything hard in
//! the middle, recovers, checks, and verifies that every acknowledged write is there. Ctrl-C ends it
//! with an error, which removes its folder, server and mount.

mod source;
mod stage;
mod verify;
mod writers;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use comfy_table::{Table, presets};
use dure_bench::{interrupt, note, say};
use dure_block::count::Count;
use dure_check::{CheckOptions, Data, check};
use dure_fs::{FileSystem, FormatOptions};
use dure_sync::clock;

use crate::args::Demo;
use crate::exit;
use crate::size::Size;
use crate::volume::{self, Access, Allocation};

/// How long the writers run before the kill.
const WRITE_MS: u64 = 1500;

pub(crate) fn run(args: &Demo) -> Result<u8> {
    if let Some(image) = &args.child {
        writers::child(image)?;
        return Ok(exit::OK);
    }
    interrupt::run(|| in_a_folder(args))
}

fn in_a_folder(args: &Demo) -> Result<u8> {
    let place = tempfile::Builder::new().prefix("dure-demo-").tempdir();
    let place = place.context("making a temporary directory")?;
    let image = place.path().join("volume.img");
    let result = show(args, place.path(), &image);
    if args.keep {
        say!("kept: {}", place.keep().display());
    }
    result
}

/// One line of the table.
struct Step {
    what: String,
    ms: u64,
    result: String,
}

fn timed<T>(
    what: &str,
    steps: &mut Vec<Step>,
    work: impl FnOnce() -> Result<(T, String)>,
) -> Result<T> {
    interrupt::check()?;
    note!("{what} ...");
    let start = clock::monotonic_ns();
    let (value, result) = work().with_context(|| what.to_owned())?;
    let ms = (clock::monotonic_ns() - start) / 1_000_000;
    steps.push(Step {
        what: what.to_owned(),
        ms,
        result,
    });
    Ok(value)
}

fn show(args: &Demo, place: &Path, image: &Path) -> Result<u8> {
    let mut steps = Vec::new();
    let Size(bytes) = args.size;
    timed("make a volume", &mut steps, || {
        let options = volume::exclusively(Access::Write);
        let device = volume::create_image(image, bytes / 4096, Allocation::Sparse, options)?;
        let layout = FileSystem::format(dure_block::share(device), &FormatOptions::default())?;
        Ok((
            (),
            format!(
                "{} with {}",
                args.size,
                Count::of(layout.journals, "journal")
            ),
        ))
    })?;
    let mount = stage::mount_point(args, place);
    match &mount {
        Ok(_) => note!("FUSE can be used: going through a mount"),
        Err(why) => note!("going through the library: {why}"),
    }
    let sources = source::find(bytes);
    ensure!(sources.files > 0, "there are no files to copy");
    let acknowledged = match mount {
        Ok(directory) => stage::through_mount(image, &directory, &sources, &mut steps)?,
        Err(_) => stage::through_library(image, &sources, &mut steps)?,
    };
    recover_and_verify(image, &sources, &acknowledged, &mut steps)?;
    print(&steps);
    Ok(exit::OK)
}

fn recover_and_verify(
    image: &Path,
    sources: &source::Sources,
    acknowledged: &writers::Acknowledged,
    steps: &mut Vec<Step>,
) -> Result<()> {
    let recovered = timed("recover", steps, || {
        let volume = volume::open(image, Access::Write)?;
        Ok((volume, "logs replayed, volume mounted".into()))
    })?;
    let session = recovered.root();
    timed("verify the copied tree", steps, || {
        let files = verify::tree(&session, sources)?;
        Ok(((), format!("{} identical", Count::of(files, "file"))))
    })?;
    timed("verify acknowledged writes", steps, || {
        let (there, lost) = verify::writes(&session, acknowledged)?;
        if let Some(first) = lost.first() {
            bail!(
                "lost: {}, the first is {first}",
                Count::of(lost.len(), "acknowledged write")
            );
        }
        Ok(((), format!("{there} of {there} there")))
    })?;
    timed("unmount cleanly", steps, || {
        volume::close(&recovered, image)?;
        Ok(((), "done".into()))
    })?;
    drop(session);
    drop(recovered);
    timed("check the volume", steps, || {
        let device = volume::device(image, Access::Read)?;
        let report = check(
            device,
            &CheckOptions {
                data: Data::Verify,
                ..CheckOptions::default()
            },
        )?;
        if let Some(issue) = report.issues().first() {
            let issues = Count::of(report.issues().len(), "issue");
            bail!("{issues}, the first: {issue}");
        }
        let counts = report.counts();
        Ok((
            (),
            format!(
                "clean, {}, all data checksums right",
                Count::of(counts.files, "file")
            ),
        ))
    })
}

fn print(steps: &[Step]) {
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_HORIZONTAL_ONLY)
        .set_header(["what", "ms", "result"]);
    for step in steps {
        table.add_row([step.what.clone(), step.ms.to_string(), step.result.clone()]);
    }
    say!("{table}");
    say!("nothing that was acknowledged is lost");
}

/// Where in the volume the tree and the writers' files lie.
pub(crate) fn directory(name: &str) -> PathBuf {
    Path::new("/").join(name)
}

//! `dure send`, `dure receive`, `dure snapshot restore`: a snapshot as a stream on standard output, from
//! standard input, and from the volume itself.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use dure::stream::{self, Fault, Progress, Sender};
use dure::{Cause, Volume};
use dure_bench::{note, print, say};
use dure_block::count::Count;
use dure_fs::{FileSystem, MountOptions};
use indicatif::ProgressBar;

use crate::args::{Receive, Send, SnapshotRestore};
use crate::exit;
use crate::live::client::Client;
use crate::live::wire::{Reply, Request};
use crate::mounts;
use crate::progress;
use crate::size::Size;
use crate::volume::{self, Access};

/// How long a server may take for the first record: it compares all names.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Bytes of a stream that are read at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Shows how far a stream is.
struct Meter {
    bar: ProgressBar,
    shown: u64,
}

impl Meter {
    fn new(what: &'static str) -> Meter {
        let bar = progress::counter(what);
        Meter { bar, shown: 0 }
    }

    fn show(&mut self, now: &Progress) -> ControlFlow<()> {
        let mib = now.bytes >> 20;
        if mib != self.shown {
            self.shown = mib;
            self.bar.set_position(mib);
        }
        ControlFlow::Continue(())
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Standard output or input, without a buffer.
fn raw(stream: impl AsFd) -> io::Result<File> {
    Ok(File::from(stream.as_fd().try_clone_to_owned()?))
}

/// `dure send`.
pub(crate) fn send(args: &Send) -> Result<u8> {
    if io::stdout().is_terminal() {
        bail!("the stream is not for a terminal: send it to a file or a program");
    }
    let mut out = raw(io::stdout()).context("standard output")?;
    let found = super::snapshot::find(&args.volume)?.0;
    let at = || found.path.display().to_string();
    let mut meter = Meter::new("MiB sent");
    if let Some(client) = found.client
        && let Some(sent) = ask(client, args, &mut out, &mut meter)?
    {
        return ended(sent, at);
    }
    let device = volume::device(&found.path, Access::Read)?;
    let options = MountOptions {
        read_only: true,
        ..MountOptions::default()
    };
    let fs = FileSystem::open(device, options).with_context(at)?;
    let sender = Sender::open(&fs, &args.name, args.from.as_deref()).with_context(at)?;
    let sent = sender.send(&mut out, &mut |now| meter.show(now));
    ended(sent, at)
}

/// A reader that went away is told by the exit status and no message, as of any program.
fn ended(sent: dure::Result<Progress>, at: impl Fn() -> String) -> Result<u8> {
    let Err(error) = sent else {
        return Ok(exit::OK);
    };
    match error.cause() {
        Cause::Host(host) if host.kind() == io::ErrorKind::BrokenPipe => Ok(print::CLOSED),
        Cause::Host(host) => Err(anyhow!("standard output: {host}")),
        _ => Err(error).with_context(at),
    }
}

/// Passes on what the server of a mounted volume sends; nothing if it was about to end.
fn ask(
    mut client: Client,
    args: &Send,
    out: &mut dyn Write,
    meter: &mut Meter,
) -> Result<Option<dure::Result<Progress>>> {
    let at = client.volume().display().to_string();
    let request = Request::Send {
        name: args.name.clone(),
        from: args.from.clone(),
    };
    match client.ask_patiently(&request, PATIENCE)? {
        Some(Reply::Sending) => {}
        Some(Reply::Done { error: Some(why) }) => bail!("{at}: {why}"),
        Some(other) => bail!("{at}: answered {other:?}"),
        None => return Ok(None),
    }
    let mut input = client.into_bytes(PATIENCE)?;
    let sent = stream::relay(&mut input, out, &mut |now| meter.show(now));
    if let Err(error) = &sent
        && let Cause::Stream(Fault::Cut) = error.cause()
    {
        bail!("{at}: its server ended meanwhile");
    }
    Ok(Some(sent))
}

/// `dure receive`.
pub(crate) fn receive(args: &Receive) -> Result<u8> {
    if io::stdin().is_terminal() {
        bail!("the stream does not come from a terminal: `dure receive v.img < stream`");
    }
    let input = raw(io::stdin()).context("standard input")?;
    let mut input = BufReader::with_capacity(BUFFER_BYTES, input);
    match &args.volume {
        Some(path) => receive_into(path, args, &mut input)?,
        None => each(&mut input, &mut check)?,
    }
    Ok(exit::OK)
}

/// A volume that becomes like a snapshot.
fn open(path: &Path) -> Result<Volume> {
    if mounts::on(path).is_some() {
        let at = path.display();
        bail!("{at}: is mounted, and others could change it; `dure umount {at}` ends that");
    }
    volume::open_any(path, Access::Write)
}

/// `dure snapshot restore`.
pub(crate) fn restore(args: &SnapshotRestore) -> Result<()> {
    let at = args.volume.display();
    let volume = open(&args.volume)?;
    let mut meter = Meter::new("MiB restored");
    let restored = stream::restore(&volume, &args.name, &mut |now| meter.show(now));
    drop(meter);
    // What was done before an error stays.
    volume::close(&volume, &args.volume)?;
    let restored = restored.with_context(|| at.to_string())?;
    say!(
        "the files are those of {}; what they were is {}",
        args.name,
        restored.before
    );
    if let Some(copy) = restored.copy {
        say!("{copy} is what increments are relative to; keep it until the next one is received");
    }
    Ok(())
}

fn receive_into(path: &Path, args: &Receive, input: &mut dyn BufRead) -> Result<()> {
    let volume = open(path)?;
    let received = each(input, &mut |input| {
        let mut meter = Meter::new("MiB received");
        let name = args.snapshot.as_deref();
        let received = stream::receive(&volume, name, input, &mut |now| meter.show(now));
        drop(meter);
        let received = received.with_context(|| path.display().to_string())?;
        let bytes = Size(received.bytes);
        if let Some(wanted) = name.filter(|name| *name != received.snapshot) {
            let (at, has) = (path.display(), &received.snapshot);
            note!(
                "dure: {at}: the snapshot is there already, and stays {has}; `dure snapshot rename {at} {has} \
                 {wanted}` changes that"
            );
        }
        match received.skipped {
            0 => say!("{}: {bytes}", received.snapshot),
            skipped => {
                let skipped = Size(skipped);
                say!("{}: {bytes}, {skipped} of it was there", received.snapshot);
            }
        }
        Ok(())
    });
    // What was received before an error stays.
    volume::close(&volume, path)?;
    received
}

fn check(input: &mut dyn BufRead) -> Result<()> {
    let mut meter = Meter::new("MiB read");
    let (begin, read) = stream::check(input, &mut |now| meter.show(now))?;
    drop(meter);
    let from = match &begin.base {
        Some((_, name)) => format!(" from {name}"),
        None => String::new(),
    };
    let (bytes, records) = (Size(read.bytes), Count::of(read.records, "record"));
    say!("{}{from}: {records}, {bytes}", begin.name);
    Ok(())
}

/// Streams, one after the other.
fn each(
    input: &mut dyn BufRead,
    one: &mut dyn FnMut(&mut dyn BufRead) -> Result<()>,
) -> Result<()> {
    loop {
        one(input)?;
        if input.fill_buf().context("standard input")?.is_empty() {
            return Ok(());
        }
    }
}

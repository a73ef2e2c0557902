//! `dure top`: what a mounted volume is doing, again and again.

mod table;
mod trace;

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::{Context, Result};
use dure_bench::note;
use dure_sync::thread;

use crate::args::Top;
use crate::exit;
use crate::live::client::Client;
use crate::live::wire::Snapshot;

/// Clears the screen and goes to its top.
const CLEAR: &str = "\x1b[H\x1b[2J";

pub(crate) fn run(args: &Top) -> Result<u8> {
    let mut client = Client::find(&args.volume)?;
    if args.trace {
        trace::follow(args, &mut client)?;
    } else if args.once {
        once(args, &mut client)?;
    } else {
        follow(args, &mut client)?;
    }
    Ok(exit::OK)
}

/// The pause between two samples.
fn interval(args: &Top) -> Duration {
    Duration::from_secs_f64(args.interval.unwrap_or(1.0))
}

/// Whether another sample is wanted after `done` of them.
fn is_more_wanted(args: &Top, done: u64) -> bool {
    args.count.is_none_or(|count| done < count)
}

/// Prints totals since the mount of one snapshot.
pub(crate) fn print_once(snapshot: &Snapshot, json: bool, wide: bool) -> Result<()> {
    let text = if json {
        serde_json::to_string(snapshot)? + "\n"
    } else {
        table::since_mount(snapshot, wide)
    };
    print(&text);
    Ok(())
}

/// Prints, at once.
pub(crate) fn print(text: &str) {
    dure_bench::print::text(format_args!("{text}"));
}

fn once(args: &Top, client: &mut Client) -> Result<()> {
    let snapshot = client.snapshot()?.context("unmounted just now")?;
    print_once(&snapshot, args.json, args.wide)
}

fn follow(args: &Top, client: &mut Client) -> Result<()> {
    let on_terminal = std::io::stdout().is_terminal();
    let Some(mut before) = client.snapshot()? else {
        return unmounted(client);
    };
    let mut done = 0;
    while is_more_wanted(args, done) {
        thread::sleep(interval(args));
        let Some(now) = client.snapshot()? else {
            return unmounted(client);
        };
        if args.json {
            print_once(&now, true, args.wide)?;
        } else {
            let clear = if on_terminal { CLEAR } else { "" };
            let between = if on_terminal { "" } else { "\n" };
            // A growth mounts the volume anew, and all counts begin again.
            let table = match now.up_ns < before.up_ns {
                true => table::since_mount(&now, args.wide),
                false => table::between(&before, &now, args.wide),
            };
            print(&format!("{clear}{table}{between}"));
        }
        before = now;
        done += 1;
    }
    Ok(())
}

/// The end of the mount is the end of the show, and no error.
fn unmounted(client: &Client) -> Result<()> {
    note!("dure: {}: unmounted", client.volume().display());
    Ok(())
}

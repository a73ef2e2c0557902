//! `dure top --trace`: the events of all journals, merged in the order of time.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Result, bail};
use dure_bench::note;
use dure_block::count::Count;
use dure_sync::thread;

use crate::args::Top;
use crate::live::client::Client;
use crate::live::wire::{Reply, Request, TraceLine};

/// Events per core that are kept between two requests.
const EVENTS_PER_CORE: usize = 1 << 16;
/// The longest pause between two requests by default: short, so that fewer events are lost.
const INTERVAL: Duration = Duration::from_millis(100);

pub(super) fn follow(args: &Top, client: &mut Client) -> Result<()> {
    // With --once, what a mount with trace= has kept; the trace is not turned on for that.
    let start = Request::StartTrace {
        events_per_core: EVENTS_PER_CORE,
    };
    if !args.once && !is_on(client.ask(&start)?)? {
        bail!(
            "{}: mounted read-only, so it has no journal to trace",
            client.volume().display()
        );
    }
    let interval = args.interval.map_or(INTERVAL, Duration::from_secs_f64);
    let mut from = Vec::new();
    let mut done = 0;
    while super::is_more_wanted(args, done) {
        if !args.once {
            thread::sleep(interval);
        }
        let request = Request::Trace {
            from: std::mem::take(&mut from),
        };
        match client.ask(&request)? {
            None => return super::unmounted(client),
            Some(Reply::Trace { events, next, lost }) => {
                super::print(&text(&events, lost, args.json)?);
                from = next;
            }
            Some(Reply::Tracing { .. }) => bail!(
                "{}: its trace is off; mount it with -o trace=EVENTS, or leave out --once",
                client.volume().display()
            ),
            Some(other) => bail!("{}: answered {other:?}", client.volume().display()),
        }
        if args.once {
            return Ok(());
        }
        done += 1;
    }
    Ok(())
}

fn is_on(reply: Option<Reply>) -> Result<bool> {
    match reply {
        Some(Reply::Tracing { is_on }) => Ok(is_on),
        other => bail!("its server answered {other:?}"),
    }
}

fn text(events: &[TraceLine], lost: u64, json: bool) -> Result<String> {
    let mut out = String::new();
    if lost > 0 {
        note!(
            "dure: {} lost: events came faster than they were read",
            Count::of(lost, "event")
        );
    }
    for event in events {
        if json {
            out.push_str(&serde_json::to_string(event)?);
            out.push('\n');
            continue;
        }
        let (secs, nanos) = (event.ns / 1_000_000_000, event.ns % 1_000_000_000);
        let journal = event
            .journal
            .map_or_else(|| "-".to_owned(), |journal| journal.to_string());
        write!(
            out,
            "{secs:>6}.{nanos:09} core {:<3} journal {journal:<4} {:<12}",
            event.core, event.event
        )?;
        for (name, value) in &event.details {
            let plain = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            write!(out, " {name} {plain}")?;
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    Ok(out)
}

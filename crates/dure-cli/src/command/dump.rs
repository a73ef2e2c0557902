//! `dure dump`.

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use dure_bench::print;
use dure_block::nvm::Nvm;
use dure_check::dump::{What, dump};
use dure_fs::units::{BlockNo, Ino, JournalId, Nid, SegNo};

use crate::args::{Dump, Structure};
use crate::exit;
use crate::volume::{self, Access};

pub(crate) fn run(args: &Dump) -> Result<u8> {
    let device = volume::device_as(&args.volume, Access::Read, &args.regions, Nvm::Auto)?;
    let what = what(args)?;
    let mut text = String::new();
    let done = dump(device, what, &mut text);
    // What could be read before an error is worth seeing.
    print::text(format_args!("{text}"));
    done.with_context(|| asked(args))?;
    Ok(exit::OK)
}

/// The volume and the structure, as on the command line.
fn asked(args: &Dump) -> String {
    let kind = args.what.to_possible_value();
    let kind = kind.as_ref().map_or("", |kind| kind.get_name());
    let number = args.number.map(|number| format!(" {number}"));
    format!(
        "{}: {kind}{}",
        args.volume.display(),
        number.unwrap_or_default()
    )
}

fn what(args: &Dump) -> Result<What> {
    let number = || match args.number {
        Some(number) => Ok(number),
        None => bail!("which one? give its number after the kind of structure"),
    };
    Ok(match args.what {
        Structure::Superblock => What::Superblock,
        Structure::Volume => What::VolumeHeader,
        Structure::Journals => What::Journals,
        Structure::Log => What::Log(args.number.map(journal).transpose()?),
        Structure::Nat => What::Nat(Nid(number()?)),
        Structure::Node => What::Node(Nid(number()?)),
        Structure::Inode => What::Inode(Ino(number()?)),
        Structure::Directory => What::Directory(Ino(number()?)),
        Structure::Map => What::Map(Ino(number()?)),
        Structure::Segment => What::Segment(segment(number()?)?),
        Structure::Block => What::Block(BlockNo(number()?)),
    })
}

fn journal(number: u64) -> Result<JournalId> {
    let id = u16::try_from(number).ok().and_then(JournalId::new);
    id.with_context(|| format!("{number}: no volume has so many journals"))
}

fn segment(number: u64) -> Result<SegNo> {
    let number = u32::try_from(number);
    number.map(SegNo).context("no volume has so many segments")
}

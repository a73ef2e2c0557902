//! `dure upgrade`: features of a volume that is not mounted.

use anyhow::{Context, Result};
use dure_bench::say;
use dure_block::nvm::Nvm;
use dure_fs::format::feature::{Comes, FEATURES, Feature, FlagSet};
use dure_fs::format::superblock::SuperBlock;
use dure_fs::{FileSystem, VolumeInfo};

use crate::args::Upgrade;
use crate::exit;
use crate::volume::{self, Access};

pub(crate) fn run(args: &Upgrade) -> Result<u8> {
    let path = args.volume.display();
    let access = if args.list {
        Access::Read
    } else {
        Access::Write
    };
    let wanted = wanted(&args.features)?;
    let device = volume::device_as(&args.volume, access, &args.regions, Nvm::Auto)?;
    if args.list {
        let info = VolumeInfo::read(device).with_context(|| path.to_string())?;
        list(&info.layout.superblock);
        return Ok(exit::OK);
    }
    let turned = FileSystem::turn_on(device, &wanted).with_context(|| path.to_string())?;
    match names(&turned) {
        names if names.is_empty() => say!("{path}: nothing to do"),
        names => say!("{path}: turned on: {names}; an older dure may refuse the volume now"),
    }
    Ok(exit::OK)
}

/// The features with these names; without names all that can be turned on.
fn wanted(chosen: &[String]) -> Result<Vec<Feature>> {
    if chosen.is_empty() {
        let all = FEATURES.into_iter();
        return Ok(all.filter(|one| one.comes == Comes::Use).collect());
    }
    let find = |name: &String| {
        let found = FEATURES.into_iter().find(|one| one.name == name);
        match found {
            Some(feature) => Ok(feature),
            None => {
                let known = names(&FEATURES);
                let why = format!("there is no feature {name}; known are {known}");
                Err(exit::WrongArguments(why).into())
            }
        }
    };
    chosen.iter().map(find).collect()
}

fn names(features: &[Feature]) -> String {
    let names: Vec<&str> = features.iter().map(|one| one.name).collect();
    names.join(", ")
}

fn list(superblock: &SuperBlock) {
    for feature in &FEATURES {
        let state = match (superblock.has(*feature), feature.comes) {
            (true, _) => "on",
            (false, Comes::Use) => "off; its first use turns it on, or `dure upgrade`",
            (false, Comes::Mkfs) => "off; only mkfs gives it",
            (false, Comes::Later) => "needs a later dure",
        };
        say!("{:<12} {state}", feature.name);
    }
    for (set, meaning) in [
        (FlagSet::RoCompat, "on; this dure may only read the volume"),
        (FlagSet::Compat, "on; this dure need not know it"),
    ] {
        for name in superblock.unknown(set) {
            say!("{name:<12} {meaning}");
        }
    }
}

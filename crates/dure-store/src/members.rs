//! A volume put together from its media.
//!
//! **Problem.** A volume whose metadata lies in persistent memory is lost if that is missing, and
//! worse than lost if another volume's is taken for it. **Structure.** The first block of each medium
//! is its head: a copy of the superblock that says which medium it is ([`crate::format::superblock`]).
//! [`look`] reads it from one medium, and finds which others there must be; [`join`] compares all of
//! them and makes one space of blocks. **Invariants.** Every medium is of this volume, is that which
//! its place asks for, is as long as it was, and took part in the last mount ([`stamps`]), or nothing
//! is opened; so nothing is written before. A head that is destroyed is replaced by the check: the
//! stamp says whose it was.
//! **Crash.** mkfs writes the heads after all tables and before the first copy of the superblock,
//! which is the head of the first medium: a volume that was half made has none.

use dure_block::linear::LinearDevice;
use dure_block::{Device, Io, Lba};
use dure_sync::Arc;

use crate::error::{Error, Result, size_of};
use crate::format::media::Medium;
use crate::format::stamp::Turn;
use crate::format::superblock::SuperBlock;
use crate::headers::read_header;
use crate::layout::Layout;
use crate::media::Region;
use crate::units::BLOCK_BYTES;

pub mod stamps;

/// What the head of a medium says.
#[derive(Debug)]
pub struct Head {
    layout: Layout,
    /// All media of the volume, in the order of mkfs: the device that it is called by is the last.
    pub media: Vec<Medium>,
    /// Which of them this is.
    pub member: usize,
}

/// A medium, and its name in messages.
#[derive(Debug, Clone)]
pub struct Member {
    /// The medium.
    pub device: Arc<dyn Device>,
    /// Where it is.
    pub path: String,
}

/// The head of `device`; `None` if it holds no volume, or a whole one.
///
/// # Errors
/// `Unsupported`, `Corrupt`, a failed read.
pub fn look(device: &dyn Device) -> Result<Option<Head>> {
    match head(device) {
        Ok(head) if head.media.len() > 1 => Ok(Some(head)),
        // Of a volume on one device, others find out what is wrong with it.
        Ok(_) | Err(Error::NotDure | Error::Corrupt { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The first block says it, or, of the last medium, the last.
fn head(device: &dyn Device) -> Result<Head> {
    let read = |at: u64| -> Result<[u8; BLOCK_BYTES]> {
        let mut block = [0; BLOCK_BYTES];
        let (lba, out) = (Lba::new(at), &mut block[..]);
        device.execute(Io::Read { lba, out })?;
        Ok(block)
    };
    let Some(last) = device.info().blocks.checked_sub(1) else {
        return Err(Error::NotDure);
    };
    let superblock = match SuperBlock::open_head(&read(0)?) {
        Ok(superblock) => superblock,
        Err(error @ Error::Unsupported { .. }) => return Err(error),
        Err(error) => SuperBlock::open_last(&read(last)?)
            .map_err(|last| Error::of_superblocks(error, last))?,
    };
    let layout = Layout::from_superblock(superblock)?;
    let media = layout.superblock.media();
    let member = usize::try_from(superblock.member.get()).unwrap_or(usize::MAX);
    if member >= media.len() {
        return Err(Error::Corrupt {
            what: "superblock: which medium it is on".into(),
            at: 0,
            want: crate::units::to_u64(media.len()) - 1,
            got: crate::units::to_u64(member),
        });
    }
    Ok(Head {
        layout,
        media,
        member,
    })
}

/// The volume that lies on `members`, in the order of mkfs.
///
/// # Errors
/// `Medium` for the first that is not what it must be; as [`look`].
pub fn join(members: &[Member]) -> Result<Arc<dyn Device>> {
    let Some(own) = members.last() else {
        return Err(Error::NotDure);
    };
    let refuse = |name: &str, why: String| {
        Err(Error::Medium {
            name: name.into(),
            why,
        })
    };
    let Some(volume) = look(&*own.device)? else {
        return refuse(
            &own.path,
            "is no volume on several media; leave out --nvm".into(),
        );
    };
    let count = volume.media.len();
    if members.len() != count {
        let (have, want) = (members.len() - 1, count - 1);
        let why = format!("lies on {want} regions of persistent memory, and --nvm names {have}");
        return refuse(&own.path, why);
    }
    for (place, member) in members.iter().enumerate() {
        check(&volume, place, member, &members[..place])?;
    }
    let devices = members.iter().map(|member| member.device.clone());
    let device = compose(&volume.media, devices);
    let region = Region::open(device.clone());
    // What is wrong with the header, others say.
    if let Ok((header, _)) = read_header(&region, &volume.layout) {
        let names: Vec<&str> = members.iter().map(|member| member.path.as_str()).collect();
        stamps::compare(&region, &volume.layout, Turn::of(&header), &names)?;
    }
    Ok(device)
}

/// Refuses a medium that is not the one for `place`; `before` it have been found right.
fn check(volume: &Head, place: usize, member: &Member, before: &[Member]) -> Result<()> {
    let count = volume.media.len();
    let refuse = |why: String| {
        Err(Error::Medium {
            name: member.path.clone(),
            why,
        })
    };
    let medium = &volume.media[place];
    let (have, want) = (member.device.info().blocks, medium.start + medium.blocks);
    let cut_off = || {
        let (have, want) = (size_of(have), size_of(want));
        refuse(format!(
            "has {have}, and {want} of it belong to the volume: it was cut off"
        ))
    };
    let found = match head(&*member.device) {
        Ok(found) => found,
        Err(Error::NotDure | Error::Corrupt { .. })
            if stamps::identifies(member, &volume.layout, place) =>
        {
            return if have < want { cut_off() } else { Ok(()) };
        }
        Err(Error::NotDure) => {
            let why = "holds no part of a volume: it was wiped, or is not what it was";
            return refuse(format!(
                "{why}; medium {} of {count} was expected",
                place + 1
            ));
        }
        Err(error) => return refuse(error.to_string()),
    };
    let uuid = |superblock: &SuperBlock| uuid::Uuid::from_bytes(superblock.uuid);
    let (theirs, ours) = (&found.layout.superblock, &volume.layout.superblock);
    let all_flags = |one: &SuperBlock, other| one.with_flags_of(other).seal_head(0);
    let same_table = all_flags(theirs, ours) == all_flags(ours, theirs);
    let (theirs, ours) = (uuid(theirs), uuid(ours));
    if theirs != ours {
        return refuse(format!("belongs to volume {theirs}, and not to {ours}"));
    }
    // Equal but for what says which copy it is.
    if !same_table {
        return refuse("has another table of media than the volume: it is of another time".into());
    }
    if found.member != place {
        let this = found.member + 1;
        return refuse(match before.get(found.member) {
            Some(first) => format!(
                "is medium {this} of {count}, which {} is too: one is a copy",
                first.path
            ),
            None => format!(
                "is medium {this} of {count}, where medium {} was expected: name them in the order \
                 of mkfs, the device last",
                place + 1
            ),
        });
    }
    if have < want {
        return cut_off();
    }
    Ok(())
}

/// The runs of the media as one space.
pub(crate) fn compose(
    media: &[Medium],
    devices: impl Iterator<Item = Arc<dyn Device>>,
) -> Arc<dyn Device> {
    let runs = media.iter().zip(devices);
    let runs = runs.map(|(medium, device)| (device, Lba::new(medium.start), medium.blocks));
    dure_block::share(LinearDevice::new(runs.collect()))
}

#[cfg(test)]
mod tests;

//! Snapshots of a volume.

use std::ffi::{c_char, c_int};

use dure::SnapshotInfo;
use dure_sync::{Arc, without_signals};

use crate::answer::{Outcome, answer, invalid};
use crate::argument::{NewHandle, Place, Text, make_in, there};
use crate::layout::{NAME_BYTES, dure_snapshot};
use crate::options;
use crate::volume::dure_volume;

fn name(text: Text<'_>) -> Outcome<&str> {
    match std::str::from_utf8(text.bytes()?) {
        Ok(name) => Ok(name),
        Err(_) => invalid("names of snapshots are UTF-8"),
    }
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_snapshot_create(volume: Option<&dure_volume>, name: Text<'_>) -> c_int {
    answer(volume, |volume| {
        volume.volume.create_snapshot(self::name(name)?)?;
        Ok(())
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_snapshot_delete(volume: Option<&dure_volume>, name: Text<'_>) -> c_int {
    answer(volume, |volume| {
        Ok(volume.volume.delete_snapshot(self::name(name)?)?)
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_snapshot_rename(
    volume: Option<&dure_volume>,
    name: Text<'_>,
    to: Text<'_>,
) -> c_int {
    answer(volume, |volume| {
        let (name, to) = (self::name(name)?, self::name(to)?);
        Ok(volume.volume.rename_snapshot(name, to)?)
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_snapshot_next(
    volume: Option<&dure_volume>,
    after: u64,
    snapshot: Place<'_, dure_snapshot>,
) -> c_int {
    answer(volume, |volume| {
        let place = there(snapshot)?;
        let snapshots = volume.volume.snapshots();
        let next = snapshots.iter().find(|snapshot| snapshot.id > after);
        if let Some(next) = next {
            place.write(shown(next));
        }
        Ok(next.is_some())
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_snapshot_open(
    volume: Option<&dure_volume>,
    name: Text<'_>,
    mount_options: Text<'_>,
    snapshot: NewHandle<'_, dure_volume>,
) -> c_int {
    answer(volume, |volume| {
        make_in(snapshot, || {
            let options = options::of_mount(mount_options.words()?)?;
            let name = self::name(name)?;
            let opened = without_signals(|| volume.volume.open_snapshot(name, options))?;
            Ok(dure_volume {
                volume: opened,
                owner: Arc::clone(&volume.owner),
            })
        })
    })
}

fn shown(snapshot: &SnapshotInfo) -> dure_snapshot {
    let mut name: [c_char; NAME_BYTES] = [0; NAME_BYTES];
    for (place, byte) in name.iter_mut().zip(snapshot.name.as_bytes()) {
        *place = byte.cast_signed();
    }
    dure_snapshot {
        id: snapshot.id,
        created: snapshot.created,
        inodes: snapshot.inodes,
        bytes: snapshot.blocks * 4096,
        name,
        spare: [0; 4],
    }
}

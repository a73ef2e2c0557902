//! Volumes: made, opened, closed.

#![expect(non_camel_case_types, reason = "they are named as in C")]

use std::ffi::c_int;

use dure::{Cause, CreateOptions, Volume};
use dure_sync::{Arc, without_signals};

use crate::answer::{Failure, Handle, Outcome, answer, answer_alone};
use crate::argument::{NewHandle, Place, Text, make_in, there};
use crate::layout::dure_statfs;
use crate::options;
use crate::owner::Owner;

/// A mounted volume.
#[derive(Debug)]
pub struct dure_volume {
    pub(crate) volume: Volume,
    pub(crate) owner: Arc<Owner>,
}

impl Handle for dure_volume {
    fn owner(&self) -> &Owner {
        &self.owner
    }
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_volume_create(
    path: Text<'_>,
    image_bytes: u64,
    format_options: Text<'_>,
    mount_options: Text<'_>,
    volume: NewHandle<'_, dure_volume>,
) -> c_int {
    answer_alone(|| {
        make_in(volume, || {
            let options = CreateOptions {
                image_bytes: (image_bytes > 0).then_some(image_bytes),
                format: options::of_format(format_options.words()?)?,
                mount: options::of_mount(mount_options.words()?)?,
            };
            let owner = Owner::new()?;
            let path = path.path()?;
            let volume = without_signals(|| Volume::create(path, &options))?;
            Ok(dure_volume { volume, owner })
        })
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_volume_open(
    path: Text<'_>,
    mount_options: Text<'_>,
    volume: NewHandle<'_, dure_volume>,
) -> c_int {
    answer_alone(|| {
        make_in(volume, || {
            let options = options::of_mount(mount_options.words()?)?;
            let owner = Owner::new()?;
            let path = path.path()?;
            let volume = without_signals(|| Volume::open(path, options))?;
            Ok(dure_volume { volume, owner })
        })
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_volume_close(volume: Option<Box<dure_volume>>) -> c_int {
    answer_alone(|| match volume {
        None => Ok(()),
        Some(volume) => close(volume),
    })
}

fn close(volume: Box<dure_volume>) -> Outcome<()> {
    match volume.owner.check() {
        Ok(()) => {
            let closed = volume.volume.close();
            if let Err(error) = &closed
                && matches!(error.cause(), Cause::Mounted { .. })
            {
                // The caller has it still.
                std::mem::forget(volume);
            }
            Ok(closed?)
        }
        Err(refusal) => {
            // Nothing is written, not even by dropping it.
            std::mem::forget(volume);
            match refusal {
                // Closing is what a child may do.
                Failure::Errno(libc::ENXIO, _) => Ok(()),
                failed => Err(failed),
            }
        }
    }
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_volume_sync(volume: Option<&dure_volume>) -> c_int {
    answer(volume, |volume| Ok(volume.volume.sync()?))
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_volume_statfs(
    volume: Option<&dure_volume>,
    statfs: Place<'_, dure_statfs>,
) -> c_int {
    answer(volume, |volume| {
        let place = there(statfs)?;
        let found = volume.volume.statistics();
        place.write(dure_statfs {
            block_bytes: 4096,
            blocks: found.blocks,
            blocks_free: found.blocks_free,
            blocks_available: found.blocks_available,
            inodes: found.inodes,
            inodes_free: found.inodes_free,
            name_max: u64::from(found.name_max),
            spare: [0; 4],
        });
        Ok(())
    })
}

//! Volumes that are mounted, too.

#![expect(non_camel_case_types, reason = "they are named as in C")]

use std::ffi::c_int;
use std::os::fd::IntoRawFd;

use dure::{Mount, MountPoint};
use dure_sync::Arc;

use crate::answer::{Handle, Outcome, answer, answer_alone, invalid};
use crate::argument::{NewHandle, Text, make_in};
use crate::file::dure_file;
use crate::options;
use crate::owner::Owner;
use crate::volume::dure_volume;

/// Flag of `dure_unmount`: also if it is in use.
pub const DURE_DETACH: c_int = 1;

/// A mount of a volume that is open.
#[derive(Debug)]
pub struct dure_mountpoint {
    mount: Mount,
    owner: Arc<Owner>,
}

impl Handle for dure_mountpoint {
    fn owner(&self) -> &Owner {
        &self.owner
    }
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_mount(
    volume: Option<&dure_volume>,
    directory: Text<'_>,
    options: Text<'_>,
    mounted: NewHandle<'_, dure_mountpoint>,
) -> c_int {
    answer(volume, |volume| {
        make_in(mounted, || {
            let options: MountPoint = options::of_mount_point(options.words()?)?;
            let mount = volume.volume.mount_with(directory.path()?, &options)?;
            let owner = Arc::clone(&volume.owner);
            Ok(dure_mountpoint { mount, owner })
        })
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_mount_fd(
    mounted: Option<&dure_mountpoint>,
    file: Option<&dure_file>,
) -> c_int {
    let opened = answer(mounted, |mounted| {
        let file = crate::answer::live(file)?;
        mounted.owner.same(file.owner())?;
        let fd = mounted.mount.open(&file.file)?.into_raw_fd();
        Ok(usize::try_from(fd).expect("an open file has a number"))
    });
    c_int::try_from(opened).expect("descriptors and errors are small")
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_unmount(mounted: Option<Box<dure_mountpoint>>, flags: c_int) -> c_int {
    answer_alone(|| match mounted {
        None => Ok(()),
        Some(mounted) => unmount(mounted, flags),
    })
}

fn unmount(mut mounted: Box<dure_mountpoint>, flags: c_int) -> Outcome<()> {
    if mounted.owner.is_given_up() {
        // The mount is the parent's, or nothing may be done any more.
        std::mem::forget(mounted);
        return Ok(());
    }
    let done = match flags {
        0 => mounted.mount.unmount(),
        DURE_DETACH => return Ok(()),
        _ => {
            std::mem::forget(mounted);
            return invalid("0 or DURE_DETACH");
        }
    };
    if done.is_err() {
        // The caller has it still.
        std::mem::forget(mounted);
    }
    Ok(done?)
}

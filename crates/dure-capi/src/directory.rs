//! Reading directories.

#![expect(non_camel_case_types, reason = "they are named as in C")]

use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;

use dure::{DirEntry, ReadDir};
use dure_sync::{Arc, Mutex};

use crate::answer::{Handle, answer, end};
use crate::argument::{NewHandle, Place, Text, make_in, there};
use crate::layout::{NAME_BYTES, dure_dirent};
use crate::owner::Owner;
use crate::session::dure_session;

/// Rank of a listing: below the locks of the file system, because it is held over reads.
const LISTING: u8 = 28;

/// A directory that is being read.
#[derive(Debug)]
pub struct dure_dir {
    entries: Mutex<LISTING, ReadDir>,
    owner: Arc<Owner>,
}

impl Handle for dure_dir {
    fn owner(&self) -> &Owner {
        &self.owner
    }
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_opendir(
    session: Option<&dure_session>,
    path: Text<'_>,
    dir: NewHandle<'_, dure_dir>,
) -> c_int {
    answer(session, |session| {
        make_in(dir, || {
            let entries = session.session.read_dir(path.path()?)?;
            Ok(dure_dir {
                entries: Mutex::new(entries),
                owner: Arc::clone(&session.owner),
            })
        })
    })
}

fn shown(entry: &DirEntry) -> dure_dirent {
    let bytes = entry.file_name().as_bytes();
    let mut name: [c_char; NAME_BYTES] = [0; NAME_BYTES];
    for (place, byte) in name.iter_mut().zip(bytes) {
        *place = byte.cast_signed();
    }
    dure_dirent {
        ino: entry.ino(),
        kind: entry.kind().mode() >> 12,
        name_len: u32::try_from(bytes.len()).expect("names are short"),
        name,
    }
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_readdir(dir: Option<&dure_dir>, entry: Place<'_, dure_dirent>) -> c_int {
    answer(dir, |dir| {
        let place = there(entry)?;
        match dir.entries.lock().next() {
            None => Ok(false),
            Some(entry) => {
                place.write(shown(&entry?));
                Ok(true)
            }
        }
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_closedir(dir: Option<Box<dure_dir>>) -> c_int {
    end(dir)
}

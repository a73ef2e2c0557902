//! Sessions: callers with credentials, and where their paths begin.

#![expect(non_camel_case_types, reason = "they are named as in C")]

use std::ffi::c_int;

use dure::{Capabilities, Credentials, Session};
use dure_sync::Arc;

use crate::answer::{Handle, Outcome, answer, end, invalid, live};
use crate::argument::{NewHandle, Source, Text, make_in};
use crate::file::dure_file;
use crate::owner::Owner;
use crate::volume::dure_volume;

/// Most groups of a caller, `NGROUPS_MAX`.
const GROUPS_MAX: usize = 65536;
/// What is no user and no group.
const NOBODY: u32 = u32::MAX;

/// A caller on a volume.
#[derive(Debug)]
pub struct dure_session {
    pub(crate) session: Session,
    pub(crate) owner: Arc<Owner>,
}

impl Handle for dure_session {
    fn owner(&self) -> &Owner {
        &self.owner
    }
}

impl dure_session {
    fn with(&self, session: Session) -> dure_session {
        let owner = Arc::clone(&self.owner);
        dure_session { session, owner }
    }
}

fn credentials(uid: u32, gid: u32, groups: &[u32], umask: u32) -> Outcome<Credentials> {
    if uid == NOBODY || gid == NOBODY || groups.contains(&NOBODY) {
        return invalid("-1 is no user and no group");
    }
    let user = Credentials::user(uid, gid, groups).with_umask(umask);
    let capabilities = match uid {
        0 => Capabilities::Root,
        _ => Capabilities::User,
    };
    Ok(Credentials {
        capabilities,
        ..user
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_session_open(
    volume: Option<&dure_volume>,
    uid: u32,
    gid: u32,
    groups: Source,
    groups_len: usize,
    umask: u32,
    session: NewHandle<'_, dure_session>,
) -> c_int {
    answer(volume, |volume| {
        make_in(session, || {
            if groups_len > GROUPS_MAX {
                return invalid("more than 65536 groups");
            }
            let caller = credentials(uid, gid, groups.get(groups_len)?, umask)?;
            Ok(dure_session {
                session: volume.volume.session(caller),
                owner: Arc::clone(&volume.owner),
            })
        })
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_session_open_process(
    volume: Option<&dure_volume>,
    session: NewHandle<'_, dure_session>,
) -> c_int {
    answer(volume, |volume| {
        make_in(session, || {
            Ok(dure_session {
                session: volume.volume.session(Credentials::of_process()),
                owner: Arc::clone(&volume.owner),
            })
        })
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_session_clone(
    session: Option<&dure_session>,
    clone: NewHandle<'_, dure_session>,
) -> c_int {
    answer(session, |session| {
        make_in(clone, || Ok(session.with(session.session.clone())))
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_session_at(
    session: Option<&dure_session>,
    directory: Option<&dure_file>,
    at: NewHandle<'_, dure_session>,
) -> c_int {
    answer(session, |session| {
        let directory = live(directory)?;
        session.owner.same(&directory.owner)?;
        make_in(
            at,
            || Ok(session.with(session.session.at(&directory.file)?)),
        )
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_session_with_root(
    session: Option<&dure_session>,
    path: Text<'_>,
    inside: NewHandle<'_, dure_session>,
) -> c_int {
    answer(session, |session| {
        make_in(inside, || {
            Ok(session.with(session.session.with_root(path.path()?)?))
        })
    })
}

/// See `dure.h`.
#[unsafe(no_mangle)]
pub extern "C" fn dure_session_close(session: Option<Box<dure_session>>) -> c_int {
    end(session)
}

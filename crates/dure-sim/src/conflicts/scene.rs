//! The tree in which every pair plays: two directories, each made by the core to which it belongs.
//!
//! A digit is the round that uses the entry up. In `/a`: files `f`, `g`, `k`; empty directories
//! `c`, `d`; a full one, `e`; symbolic links `l` and `m` to the last `f` and `g`. In `/b`: `f`,
//! `g`, `d`, `e`, `l`, and `h`, second names of the files `/a/k`. `x` and `y` are the names of
//! nothing.

use super::act::{LAST, ROUNDS, Side};
use crate::model::{Flags, Operation, XattrKind};

/// Bytes of a page.
pub(super) const PAGE: u64 = crate::model::PAGE;
/// Pages with data of the files that are in use all the time.
pub(super) const DATA_PAGES: u64 = 16;
/// Pages of these files, holes included.
pub(super) const FILE_PAGES: u64 = 32;

/// A descriptor that making the tree uses.
const SCRATCH: usize = 3;

fn file(path: &str, pages: u64) -> Vec<Operation> {
    let flags = Flags {
        read: true,
        write: true,
        create: true,
        ..Flags::default()
    };
    let mut steps = vec![
        Operation::Open {
            slot: SCRATCH,
            path: path.to_owned(),
            flags,
            mode: 0o644,
        },
        Operation::Write {
            slot: SCRATCH,
            offset: 0,
            len: pages * PAGE,
            fill: 1,
        },
    ];
    if pages > 1 {
        let size = FILE_PAGES * PAGE;
        steps.push(Operation::Truncate {
            slot: SCRATCH,
            size,
        });
    }
    steps.push(Operation::Close { slot: SCRATCH });
    steps.push(Operation::SetXattr {
        path: path.to_owned(),
        name: "user.a".to_owned(),
        len: 20,
        fill: 3,
        kind: XattrKind::Any,
    });
    steps
}

fn files(steps: &mut Vec<Operation>, stem: &str) {
    for round in 0..ROUNDS {
        let pages = if round == LAST { DATA_PAGES } else { 1 };
        steps.extend(file(&format!("{stem}{round}"), pages));
    }
}

fn mkdir(path: String) -> Operation {
    Operation::Mkdir { path, mode: 0o755 }
}

/// The operations by which a core makes its part. The second core's run after the first one's.
pub(super) fn making(side: Side) -> Vec<Operation> {
    let dir = match side {
        Side::First => "/a",
        Side::Second => "/b",
    };
    let mut steps = vec![mkdir(dir.to_owned())];
    files(&mut steps, &format!("{dir}/f"));
    files(&mut steps, &format!("{dir}/g"));
    let links: &[(&str, &str)] = match side {
        Side::First => {
            files(&mut steps, "/a/k");
            steps.extend((0..ROUNDS).map(|round| mkdir(format!("/a/c{round}"))));
            &[("f", "l"), ("g", "m")]
        }
        Side::Second => {
            steps.extend((0..ROUNDS).map(|round| Operation::Link {
                from: format!("/a/k{round}"),
                to: format!("/b/h{round}"),
            }));
            &[("f", "l")]
        }
    };
    steps.extend((0..ROUNDS).map(|round| mkdir(format!("{dir}/d{round}"))));
    steps.push(mkdir(format!("{dir}/e")));
    steps.push(mkdir(format!("{dir}/e/n")));
    steps.extend(links.iter().map(|(to, name)| Operation::Symlink {
        target: format!("{to}{LAST}"),
        path: format!("{dir}/{name}"),
    }));
    steps
}

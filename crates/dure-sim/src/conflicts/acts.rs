//! The calls with all classes of arguments.
//!
//! The first core's arguments stand for their class (`/a/f` for a file, `/a/x` for a name that is
//! not there); the second core's are in each relation to them: the same, another in the same
//! directory, another in another directory, another name of the same file, the same descriptor,
//! other bytes.

use super::act::{Act, Before, Call, Descriptor, Owner, SLOT, Side};
use super::scene::{DATA_PAGES, FILE_PAGES, PAGE};
use crate::model::{AllocateKind, Flags, Operation, RenameKind, Whence, XattrKind};

/// Pages that hold data and that no other act touches.
const HOT: [u64; 2] = [DATA_PAGES - 2, DATA_PAGES - 1];

/// What the calls of a core are.
#[must_use]
pub fn acts(side: Side) -> Vec<Act> {
    let mut list = List {
        side,
        acts: Vec::new(),
    };
    list.opens();
    list.links();
    list.directories();
    list.attributes();
    list.streams();
    list.offsets();
    list.sizes();
    list.rest();
    list.acts.sort_by_key(|act| act.call);
    list.acts
}

struct List {
    side: Side,
    acts: Vec<Act>,
}

impl List {
    /// The arguments of this side.
    fn pick<'a, T>(&self, first: &'a [T], second: &'a [T]) -> &'a [T] {
        match self.side {
            Side::First => first,
            Side::Second => second,
        }
    }

    fn push(&mut self, call: Call, arguments: &str, operation: Operation) -> &mut Act {
        let plain = arguments.replace(['#', '*'], "").replace("user.", "");
        self.acts.push(Act {
            call,
            text: format!("{} {plain}", call.name()),
            operation,
            descriptor: None,
            before: Before::Nothing,
            stride: 0,
        });
        self.acts.last_mut().expect("just pushed")
    }

    /// A call on a descriptor of the core's own, or of both.
    fn push_slot(
        &mut self,
        call: Call,
        path: &'static str,
        owner: Owner,
        what: &str,
        operation: Operation,
    ) -> &mut Act {
        let joint = if owner == Owner::Joint {
            " of both"
        } else {
            ""
        };
        let act = self.push(call, &format!("{path}{joint}{what}"), operation);
        act.descriptor = Some(Descriptor {
            path,
            owner,
            append: false,
        });
        act
    }

    /// The files of descriptors.
    fn slots(&self) -> &'static [(&'static str, Owner)] {
        const ALL: [(&str, Owner); 5] = [
            ("/a/f*", Owner::Own),
            ("/a/f*", Owner::Joint),
            ("/a/g*", Owner::Own),
            ("/b/f*", Owner::Own),
            ("/b/h*", Owner::Own),
        ];
        match self.side {
            Side::First => &ALL[..2],
            Side::Second => &ALL,
        }
    }

    fn opens(&mut self) {
        let open = |path: &str, flags| Operation::Open {
            slot: SLOT,
            path: path.to_owned(),
            flags,
            mode: 0o644,
        };
        let read = Flags {
            read: true,
            ..Flags::default()
        };
        let write = Flags {
            write: true,
            create: true,
            ..Flags::default()
        };
        let exclusive = Flags {
            exclusive: true,
            ..write
        };
        let truncate = Flags {
            truncate: true,
            ..write
        };
        let all = [
            "/a/f*", "/a/k*", "/a/x*", "/a/g*", "/a/y*", "/b/f*", "/b/h*", "/b/x*",
        ];
        for path in self.pick(&all[..3], &all) {
            self.push(Call::Open, path, open(path, read));
        }
        for path in self.pick(&["/a/f*"], &["/a/f*", "/a/g*", "/b/f*"]) {
            self.push(Call::Open, &format!("{path} O_CREAT"), open(path, write));
        }
        let present = ["/a/f*", "/a/g*", "/b/f*"];
        let absent = ["/a/x#", "/a/y#", "/b/x#"];
        for path in [
            self.pick(&absent[..1], &absent),
            self.pick(&present[..1], &present),
        ]
        .concat()
        {
            let text = format!("{path} O_CREAT|O_EXCL");
            self.push(Call::Open, &text, open(path, exclusive));
        }
        for path in [
            self.pick(&absent[..1], &absent),
            self.pick(&present[..1], &present),
        ]
        .concat()
        {
            self.push(Call::Creat, path, open(path, truncate));
        }
    }

    fn links(&mut self) {
        let all = [
            ("/a/f*", "/a/x#"),
            ("/a/k*", "/a/x#"),
            ("/a/f*", "/a/g*"),
            ("/a/f*", "/a/y#"),
            ("/a/g*", "/a/y#"),
            ("/a/f*", "/b/x#"),
            ("/b/f*", "/b/x#"),
            ("/b/h*", "/b/x#"),
            ("/b/f*", "/b/g*"),
        ];
        for (from, to) in self.pick(&all[..3], &all) {
            let (from, to) = (from.to_string(), to.to_string());
            let text = format!("{from} {to}");
            self.push(Call::Link, &text, Operation::Link { from, to });
        }
        let all = [
            "/a/f#", "/a/k#", "/a/x*", "/a/g#", "/a/y*", "/b/f#", "/b/h#", "/b/x*",
        ];
        for path in self.pick(&all[..3], &all) {
            let path = path.to_string();
            self.push(Call::Unlink, &path.clone(), Operation::Unlink { path });
        }
        let all = [
            ("/a/f#", "/a/x#"),
            ("/a/f#", "/a/g#"),
            ("/a/f#", "/b/x#"),
            ("/a/d#", "/a/x#"),
            ("/a/x*", "/a/y*"),
            ("/a/g#", "/a/y#"),
            ("/a/c#", "/a/y#"),
            ("/a/g#", "/b/y#"),
            ("/b/f#", "/b/x#"),
            ("/b/f#", "/b/g#"),
            ("/b/f#", "/a/y#"),
            ("/b/h#", "/b/x#"),
            ("/b/d#", "/b/x#"),
            ("/b/d#", "/a/y#"),
            ("/b/x*", "/b/y*"),
        ];
        for (from, to) in self.pick(&all[..5], &all) {
            let (from, to) = (from.to_string(), to.to_string());
            let text = format!("{from} {to}");
            let kind = RenameKind::Replace;
            self.push(Call::Rename, &text, Operation::Rename { from, to, kind });
        }
    }

    fn directories(&mut self) {
        let all = ["/a/x#", "/a/f*", "/a/y#", "/b/x#", "/b/f*"];
        for path in self.pick(&all[..2], &all) {
            let path = path.to_string();
            let text = path.clone();
            self.push(Call::Mkdir, &text, Operation::Mkdir { path, mode: 0o755 });
        }
        for path in self.pick(&all[..2], &all) {
            let (target, path) = ("f".to_owned(), path.to_string());
            self.push(
                Call::Symlink,
                &path.clone(),
                Operation::Symlink { target, path },
            );
        }
        let all = [
            "/a/d#", "/a/x*", "/a/e", "/a/c#", "/a/y*", "/b/d#", "/b/x*", "/b/e",
        ];
        for path in self.pick(&all[..3], &all) {
            let path = path.to_string();
            self.push(Call::Rmdir, &path.clone(), Operation::Rmdir { path });
        }
        let all = [
            "/a/l", "/a/x*", "/a/f*", "/a/m", "/a/y*", "/b/l", "/b/x*", "/b/f*",
        ];
        for path in self.pick(&all[..3], &all) {
            let path = path.to_string();
            self.push(Call::Readlink, &path.clone(), Operation::ReadLink { path });
        }
        for path in self.pick(&["/a", "/a/e"], &["/a", "/a/e", "/b", "/b/e", "/b/x*"]) {
            let path = path.to_string();
            self.push(
                Call::Readdir,
                &path.clone(),
                Operation::ReadDirectory { path },
            );
        }
    }

    fn attributes(&mut self) {
        let all = [
            "/a/f*", "/a/k*", "/a/x*", "/a", "/a/e", "/a/l", "/a/g*", "/a/y*", "/a/m", "/b/f*",
            "/b/h*", "/b/x*", "/b", "/b/e", "/b/l",
        ];
        for path in self.pick(&all[..6], &all) {
            let (path, follow) = (path.to_string(), true);
            self.push(Call::Stat, &path.clone(), Operation::Stat { path, follow });
        }
        for (path, owner) in self.slots() {
            let stat = Operation::StatSlot { slot: SLOT };
            self.push_slot(Call::Fstat, path, *owner, "", stat);
        }
        let files = [
            "/a/f*", "/a/k*", "/a/e", "/a/g*", "/b/f*", "/b/h*", "/b/e", "/b/x*",
        ];
        for path in self.pick(&files[..3], &files) {
            let path = path.to_string();
            let text = format!("{path} other mode");
            let mode = 0o600;
            let act = self.push(Call::Chmod, &text, Operation::Chmod { path, mode });
            act.stride = 1;
        }
        for path in self.pick(&["/a/f*"], &["/a/f*", "/a/g*", "/b/f*", "/b/h*"]) {
            let path = path.to_string();
            let text = format!("{path} same mode");
            let mode = 0o644;
            self.push(Call::Chmod, &text, Operation::Chmod { path, mode });
        }
        self.xattrs();
    }

    fn xattrs(&mut self) {
        let all = [
            ("/a/f*", "user.a"),
            ("/a/f*", "user.z"),
            ("/a/g*", "user.a"),
            ("/b/f*", "user.a"),
            ("/b/f*", "user.z"),
            ("/b/h*", "user.a"),
            ("/b/e", "user.z"),
        ];
        for (path, name) in self.pick(&all[..2], &all) {
            let (path, name) = (path.to_string(), name.to_string());
            let text = format!("{path} {name}");
            self.push(Call::Getxattr, &text, Operation::GetXattr { path, name });
        }
        let all = [
            ("/a/f*", "user.n#"),
            ("/a/f*", "user.a"),
            ("/a/f*", "user.p#"),
            ("/a/g*", "user.p#"),
            ("/a/g*", "user.a"),
            ("/b/f*", "user.p#"),
            ("/b/f*", "user.a"),
            ("/b/h*", "user.p#"),
        ];
        for (path, name) in self.pick(&all[..2], &all) {
            let (path, name) = (path.to_string(), name.to_string());
            let text = format!("{path} {name}");
            let set = Operation::SetXattr {
                path,
                name,
                len: 20,
                fill: 3,
                kind: XattrKind::Any,
            };
            self.push(Call::Setxattr, &text, set);
        }
    }

    /// Calls at the position.
    fn streams(&mut self) {
        let (slot, len) = (SLOT, PAGE);
        for (path, owner) in self.slots() {
            let read = Operation::ReadNext { slot, len };
            let act = self.push_slot(Call::Read, path, *owner, "", read);
            act.before = Before::Seek;
            let fill = 50;
            let write = Operation::WriteNext { slot, len, fill };
            let act = self.push_slot(Call::Write, path, *owner, "", write);
            act.before = Before::Seek;
        }
        for path in self.pick(&["/a/f*"], &["/a/f*", "/a/g*", "/b/f*", "/b/h*"]) {
            let (len, fill) = (100, 50);
            let write = Operation::WriteNext { slot, len, fill };
            let act = self.push_slot(Call::Append, path, Owner::Own, "", write);
            act.descriptor = Some(Descriptor {
                path,
                owner: Owner::Own,
                append: true,
            });
        }
        let ends = [
            (Whence::Set, PAGE, " SEEK_SET"),
            (Whence::End, 0, " SEEK_END"),
            (Whence::Data, PAGE, " SEEK_DATA"),
            (Whence::Hole, PAGE, " SEEK_HOLE"),
        ];
        for (path, owner) in self.slots() {
            for (whence, offset, what) in ends {
                let offset = i64::try_from(offset).expect("small");
                let seek = Operation::Seek {
                    slot,
                    whence,
                    offset,
                };
                self.push_slot(Call::Lseek, path, *owner, what, seek);
            }
        }
    }

    /// Calls at offsets.
    fn offsets(&mut self) {
        use Owner::{Joint, Own};
        let slot = SLOT;
        let hot = HOT.map(|page| page * PAGE);
        let (hole, end) = ((DATA_PAGES + 1) * PAGE, 2 * FILE_PAGES * PAGE);
        let all = [
            ("/a/f*", Own, " page 1", hot[0]),
            ("/a/f*", Own, " in a hole", hole),
            ("/a/f*", Own, " behind the end", end),
            ("/a/f*", Own, " page 2", hot[1]),
            ("/a/f*", Joint, " page 1", hot[0]),
            ("/a/g*", Own, " page 1", hot[0]),
            ("/b/f*", Own, " page 1", hot[0]),
            ("/b/f*", Own, " in a hole", hole),
            ("/b/f*", Own, " behind the end", end),
            ("/b/h*", Own, " page 1", hot[0]),
        ];
        for (path, owner, what, offset) in self.pick(&all[..3], &all) {
            let (offset, len) = (*offset, PAGE / 4);
            let read = Operation::Read { slot, offset, len };
            self.push_slot(Call::Pread, path, *owner, what, read);
        }
        let page = i64::try_from(PAGE).expect("small");
        let (hole, end) = match self.side {
            Side::First => (hole, FILE_PAGES * PAGE),
            Side::Second => (hole + 6 * PAGE, (FILE_PAGES + 6) * PAGE),
        };
        let all = [
            ("/a/f*", Own, " page 1", hot[0], 0),
            ("/a/f*", Own, " in a hole", hole, page),
            ("/a/f*", Own, " behind the end", end, page),
            ("/a/f*", Own, " page 2", hot[1], 0),
            ("/a/f*", Own, " other half of page 1", hot[0] + PAGE / 2, 0),
            ("/a/f*", Joint, " page 2", hot[1], 0),
            ("/a/g*", Own, " page 1", hot[0], 0),
            ("/a/g*", Own, " in a hole", hole, page),
            ("/a/g*", Own, " behind the end", end, page),
            ("/b/f*", Own, " page 1", hot[0], 0),
            ("/b/f*", Own, " in a hole", hole, page),
            ("/b/f*", Own, " behind the end", end, page),
            ("/b/h*", Own, " page 2", hot[1], 0),
        ];
        for (path, owner, what, offset, stride) in self.pick(&all[..3], &all) {
            let write = Operation::Write {
                slot,
                offset: *offset,
                len: PAGE / 4,
                fill: 50,
            };
            let act = self.push_slot(Call::Pwrite, path, *owner, what, write);
            act.stride = *stride;
        }
    }

    fn sizes(&mut self) {
        let slot = SLOT;
        let page = i64::try_from(PAGE).expect("small");
        let files = self.pick(&["/a/f*"], &["/a/f*", "/a/g*", "/b/f*", "/b/h*"]);
        let sizes = [
            (" shorter", FILE_PAGES - 1, -page),
            (" longer", FILE_PAGES + 8, page),
            (" same", FILE_PAGES, 0),
        ];
        for path in files {
            for (what, pages, stride) in sizes {
                let size = pages * PAGE;
                let truncate = Operation::Truncate { slot, size };
                let act = self.push_slot(Call::Truncate, path, Owner::Own, what, truncate);
                act.stride = stride;
            }
        }
        let own = 5 * self.side.number();
        let parts = [
            (" in a hole", AllocateKind::Extend, DATA_PAGES + 1 + own),
            (
                " behind the end",
                AllocateKind::KeepSize,
                FILE_PAGES + 16 + own,
            ),
            (" punch", AllocateKind::Punch, own),
            (" zero", AllocateKind::Zero, own),
        ];
        for path in files {
            for (what, kind, first) in parts {
                let (offset, len) = (first * PAGE, PAGE);
                let allocate = Operation::Allocate {
                    slot,
                    kind,
                    offset,
                    len,
                };
                let act = self.push_slot(Call::Fallocate, path, Owner::Own, what, allocate);
                act.stride = page;
            }
        }
    }

    fn rest(&mut self) {
        let (slot, data_only) = (SLOT, false);
        for path in self.pick(&["/a/f*"], &["/a/f*", "/a/g*", "/b/f*", "/b/h*"]) {
            let fsync = Operation::Fsync { slot, data_only };
            self.push_slot(Call::Fsync, path, Owner::Own, " clean", fsync.clone());
            let act = self.push_slot(Call::Fsync, path, Owner::Own, " dirty", fsync);
            act.before = Before::Dirty;
        }
    }
}

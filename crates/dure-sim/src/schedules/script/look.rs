//! Calls that read, and must see what this core knows.

use dure_fs::Peek;

use super::Core;
use crate::schedules::history::SHARED;
use crate::schedules::tree::read_file;

impl Core<'_> {
    /// Reads an own file, looks up an own name, and lists the shared directory.
    pub(super) fn look(&mut self) {
        if let Some(index) = self.any_file() {
            let inode = self.files[index].inode.clone();
            let read = self.call("read", |fs| read_file(fs, &inode));
            let (read, _) = read.expect("an open file can be read");
            assert!(
                read == self.files[index].data,
                "an own file holds what was written"
            );
        }
        self.look_up_own_name();
        self.list();
    }

    /// An own name leads to its object, also by a lockless lookup.
    fn look_up_own_name(&mut self) {
        let letter = if self.random.one_in(3) { 'd' } else { 'f' };
        let name = self.own_name(letter);
        let shared = self.inode_of(SHARED);
        let want = self.names.get(&(SHARED, name.clone())).copied();
        let found = self.call("lookup", |fs| {
            let found = fs.look_up_and_remember(&shared, name.as_bytes())?;
            let entity = match &found {
                Some(inode) => Some(fs.attributes(inode)?.uid),
                None => None,
            };
            assert_eq!(entity, want, "{name}: an own name leads elsewhere");
            match fs.peek(shared.id(), name.as_bytes()) {
                Peek::Unknown => {}
                Peek::Absent => assert!(found.is_none(), "{name} is there"),
                Peek::Found(id) => assert_eq!(found.map(|inode| inode.id()), Some(id), "{name}"),
            }
            Ok(())
        });
        assert!(found.is_some(), "{name}: a lookup is not refused");
    }

    /// Whatever other cores do, a listing has each own name exactly once.
    fn list(&mut self) {
        let shared = self.inode_of(SHARED);
        let mut shown = Vec::new();
        self.call("list", |fs| {
            fs.read_directory(&shared, 0, &mut |entry| {
                shown.push(String::from_utf8_lossy(entry.name).into_owned());
                std::ops::ControlFlow::Continue(())
            })
        });
        let owned = ['d', 'f'].map(|letter| format!("{letter}{}-", self.shape.core));
        shown.retain(|name| owned.iter().any(|start| name.starts_with(start)));
        shown.sort_unstable();
        let own = self.names.keys();
        let own: Vec<_> = own.filter(|(at, _)| *at == SHARED).collect();
        let mut own: Vec<_> = own.into_iter().map(|(_, name)| name.clone()).collect();
        own.sort_unstable();
        assert_eq!(shown, own, "core {}: the own names", self.shape.core);
    }
}

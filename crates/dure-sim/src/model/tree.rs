//! A whole tree as data, of the model or of a volume, for comparison.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use dure::{FileKind, Seek, Session};

use super::calls::ModelFs;
use super::data::{Data, PAGE};
use super::node::Body;
use super::operation::{Answer, Stat, agree};
use super::real::stat_of;
use super::store::ROOT;

/// Files up to this size are read in one piece, so that holes are read too; longer ones by their
/// data.
const WHOLE_MAX: u64 = 8 << 20;

/// The inode at one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Attributes.
    pub stat: Stat,
    /// The first path, in order of names, that leads to the same inode.
    pub same_as: String,
    /// Pages of a file that are not all zeros, or under page 0 a link's target.
    pub content: BTreeMap<u64, Vec<u8>>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Everything, by path. The root is the empty path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    items: BTreeMap<String, Item>,
}

impl Tree {
    /// The items.
    #[must_use]
    pub fn items(&self) -> &BTreeMap<String, Item> {
        &self.items
    }

    /// A number that differs, all but certainly, where trees differ. Times do not count.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut text = String::new();
        for (path, item) in &self.items {
            let item = Item {
                stat: Stat {
                    mtime: None,
                    ..item.stat.clone()
                },
                ..item.clone()
            };
            text += &format!("{path:?} {item:?}\n");
        }
        xxhash_rust::xxh3::xxh3_64(text.as_bytes())
    }

    /// Where `real` is not what `self`, the model's tree, says. Times count where the model knows
    /// them.
    #[must_use]
    pub fn difference(&self, real: &Tree) -> Option<String> {
        for path in self.items.keys().chain(real.items.keys()) {
            let (Some(model), Some(real)) = (self.items.get(path), real.items.get(path)) else {
                let side = if self.items.contains_key(path) {
                    "missing"
                } else {
                    "too much"
                };
                return Some(format!("{path:?} is {side} in dure"));
            };
            if let Some(what) = model.difference(real) {
                return Some(format!("{path:?}: {what}"));
            }
        }
        None
    }

    /// The tree of the model.
    #[must_use]
    pub fn of_model(model: &ModelFs) -> Tree {
        let mut tree = Tree::default();
        tree.add_model(model, ROOT, String::new(), &mut BTreeMap::new());
        tree
    }

    fn add_model(
        &mut self,
        model: &ModelFs,
        ino: u64,
        path: String,
        seen: &mut BTreeMap<u64, String>,
    ) {
        let node = model.store().node(ino);
        let content = match &node.body {
            Body::File(data) => pages_of(data),
            Body::Symlink(target) => BTreeMap::from([(0, target.clone())]),
            _ => BTreeMap::new(),
        };
        let same_as = seen.entry(ino).or_insert_with(|| path.clone()).clone();
        let item = Item {
            stat: model.stat(ino),
            same_as,
            content,
            xattrs: node.xattrs.clone(),
        };
        self.items.insert(path.clone(), item);
        if let Body::Directory { entries, .. } = &node.body {
            for (name, ino) in entries {
                let name = String::from_utf8_lossy(name);
                self.add_model(model, *ino, format!("{path}/{name}"), seen);
            }
        }
    }

    /// The tree that `session` (of the super user) sees.
    ///
    /// # Errors
    /// Those of reading.
    pub fn of_volume(session: &Session) -> dure::Result<Tree> {
        let mut tree = Tree::default();
        tree.add_volume(session, String::new(), &mut BTreeMap::new())?;
        Ok(tree)
    }

    fn add_volume(
        &mut self,
        session: &Session,
        path: String,
        seen: &mut BTreeMap<u64, String>,
    ) -> dure::Result<()> {
        let at = if path.is_empty() { "/" } else { &path };
        let metadata = session.symlink_metadata(at)?;
        let content = match metadata.kind() {
            FileKind::File => content(session, at, metadata.len())?,
            FileKind::Symlink => {
                let target = session.read_link(at)?;
                BTreeMap::from([(0, target.as_os_str().as_bytes().to_vec())])
            }
            _ => BTreeMap::new(),
        };
        let mut xattrs = BTreeMap::new();
        if !metadata.is_symlink() {
            for name in session.list_xattr(at)? {
                let value = session
                    .get_xattr(at, &name)?
                    .expect("a listed attribute is there");
                xattrs.insert(name, value);
            }
        }
        let same_as = seen
            .entry(metadata.ino())
            .or_insert_with(|| path.clone())
            .clone();
        let item = Item {
            stat: stat_of(&metadata),
            same_as,
            content,
            xattrs,
        };
        self.items.insert(path.clone(), item);
        if metadata.is_dir() {
            let mut names = Vec::new();
            for entry in session.read_dir(at)? {
                let entry = entry?;
                names.push((
                    entry.file_name().to_string_lossy().into_owned(),
                    entry.ino(),
                ));
            }
            names.sort();
            for (name, ino) in names {
                let below = format!("{path}/{name}");
                let found = session.symlink_metadata(&below)?.ino();
                assert_eq!(
                    found, ino,
                    "{below}: readdir and stat name different inodes"
                );
                self.add_volume(session, below, seen)?;
            }
        }
        Ok(())
    }
}

impl Item {
    fn difference(&self, real: &Item) -> Option<String> {
        let stat = |item: &Item| Ok(Answer::Stat(item.stat.clone()));
        if !agree(&stat(self), &stat(real)) {
            return Some(format!(
                "attributes: model {:?}, dure {:?}",
                self.stat, real.stat
            ));
        }
        if self.same_as != real.same_as {
            return Some(format!(
                "link of {:?}, in dure of {:?}",
                self.same_as, real.same_as
            ));
        }
        if self.xattrs != real.xattrs {
            let (model, real) = (lens(&self.xattrs), lens(&real.xattrs));
            return Some(format!(
                "xattrs (and lengths): model {model:?}, dure {real:?}"
            ));
        }
        let pages = self.content.keys().chain(real.content.keys());
        for page in pages {
            let (model, real) = (self.content.get(page), real.content.get(page));
            if model != real {
                return Some(format!("page {page}: {}", first_difference(model, real)));
            }
        }
        None
    }
}

fn lens(xattrs: &BTreeMap<Vec<u8>, Vec<u8>>) -> Vec<(String, usize)> {
    let of =
        |(name, value): (&Vec<u8>, &Vec<u8>)| (String::from_utf8_lossy(name).into(), value.len());
    xattrs.iter().map(of).collect()
}

fn first_difference(model: Option<&Vec<u8>>, real: Option<&Vec<u8>>) -> String {
    let (Some(model), Some(real)) = (model, real) else {
        return format!(
            "data in the model: {}, in dure: {}",
            model.is_some(),
            real.is_some()
        );
    };
    match model
        .iter()
        .zip(real)
        .position(|(model, real)| model != real)
    {
        Some(at) => format!("byte {at}: model {:#x}, dure {:#x}", model[at], real[at]),
        None => format!("model has {} bytes, dure {}", model.len(), real.len()),
    }
}

/// Pages that are not all zeros; the last one cut at the end of the file.
fn pages_of(data: &Data) -> BTreeMap<u64, Vec<u8>> {
    let pages = data
        .pages()
        .map(|page| (page, data.read(page * PAGE, PAGE)));
    pages
        .filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0))
        .collect()
}

fn content(session: &Session, path: &str, size: u64) -> dure::Result<BTreeMap<u64, Vec<u8>>> {
    let file = session.open(Path::new(path))?;
    let mut data = Data::default();
    data.extend(size);
    let mut offset = 0;
    while offset < size {
        let mut end = size;
        if size > WHOLE_MAX {
            match file.seek_to(Seek::Data(offset)) {
                Ok(start) => offset = start,
                Err(error) if error.errno() == rustix::io::Errno::NXIO.raw_os_error() => break,
                Err(error) => return Err(error),
            }
            end = file.seek_to(Seek::Hole(offset))?;
        }
        let len = usize::try_from((end - offset).min(1 << 20)).expect("at most 1 MiB");
        let mut bytes = vec![0xee; len];
        file.read_exact_at(&mut bytes, offset)?;
        data.write(offset, &bytes);
        offset += u64::try_from(len).expect("64 bits");
    }
    assert_eq!(data.size(), size, "nothing was read beyond the size");
    Ok(pages_of(&data))
}

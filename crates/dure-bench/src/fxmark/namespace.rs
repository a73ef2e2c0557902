//! The workloads that read or change directories. Every worker's names begin with its number, so
//! that in a shared directory, too, each can count its own.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use dure_sync::clock;
use dure_sync::random::Seeded;

use super::seat::{Files, Numbered, Seat};
use super::workload::Workload;
use crate::measure::Worker;
use crate::micro::content;
use crate::target::{How, Listing, Tree};

pub(super) fn make(tree: &Tree, workload: Workload, seat: Seat) -> Result<Box<dyn Worker>> {
    Ok(match workload {
        _ if seat.is_background() => Box::new(Replacer::new(tree, workload, seat)?),
        Workload::Mrdl | Workload::MrdlBg => Box::new(Reader::new(&seat.private(tree)?, seat)?),
        Workload::Mrdm | Workload::MrdmBg => Box::new(Reader::new(tree, seat)?),
        Workload::Mwcl => Box::new(Creator::new(&seat.private(tree)?, seat, Vec::new())?),
        Workload::Mwcm => Box::new(Creator::new(tree, seat, content(seat.number))?),
        Workload::Mwul => Box::new(Unlinker::new(&seat.private(tree)?, seat)?),
        Workload::Mwum => Box::new(Unlinker::new(tree, seat)?),
        Workload::Mwrl => Box::new(Renamer::new(&seat.private(tree)?)?),
        _ => Box::new(Mover::new(tree, seat)?),
    })
}

/// MRDL, MRDM: works are entries. At the end of the directory it begins again, where the original
/// goes on counting the end.
struct Reader {
    tree: Tree,
    files: Files,
    seat: Seat,
    listing: Option<Listing>,
}

impl Reader {
    fn new(tree: &Tree, seat: Seat) -> Result<Reader> {
        Ok(Reader {
            tree: tree.clone(),
            files: Files::new(tree, seat)?,
            seat,
            listing: None,
        })
    }
}

impl Worker for Reader {
    /// Files for as long as a measurement takes, once.
    fn prepare(&mut self) -> Result<()> {
        if self.files.count() == 0 {
            let until = clock::monotonic_ns() + self.seat.fill_ns;
            self.files.fill(self.seat.fill, until)?;
        }
        ensure!(
            self.files.count() > 0,
            "no time to make a file: a longer --seconds"
        );
        Ok(())
    }

    fn operate(&mut self) -> Result<Option<u64>> {
        loop {
            if let Some(listing) = &mut self.listing
                && let Some(entries) = listing.read(|_| ())?
                && entries > 0
            {
                return Ok(Some(entries));
            }
            self.listing = Some(self.tree.list(self.tree.root())?);
        }
    }

    fn batch(&self) -> u64 {
        1
    }

    fn check(&mut self) -> Result<()> {
        self.files.check()
    }
}

/// MRDL_bg, MRDM_bg: unlinks a random file of each worker, and creates them again.
struct Replacer {
    of_workers: Vec<Files>,
    random: Seeded,
    replaced: u64,
}

impl Replacer {
    fn new(tree: &Tree, workload: Workload, seat: Seat) -> Result<Replacer> {
        let files_of = |worker: Seat| match workload {
            Workload::MrdlBg => Files::new(&worker.own(tree), worker),
            _ => Files::new(tree, worker),
        };
        Ok(Replacer {
            of_workers: seat.counted().map(files_of).collect::<Result<_>>()?,
            random: Seeded::new(seat.id()),
            replaced: 0,
        })
    }
}

impl Worker for Replacer {
    fn operate(&mut self) -> Result<Option<u64>> {
        // Only now, when all workers are ready, are their files there.
        if self.replaced == 0 {
            self.of_workers.iter_mut().try_for_each(Files::adopt)?;
        }
        let mut unlinked = Vec::new();
        for files in &mut self.of_workers {
            ensure!(files.count() > 0, "a worker has no files to replace");
            let number = self.random.below(files.count());
            files.unlink_one(number)?;
            unlinked.push(number);
        }
        for (files, number) in self.of_workers.iter_mut().zip(unlinked) {
            files.create_again(number)?;
        }
        self.replaced += 1;
        Ok(Some(1))
    }

    fn batch(&self) -> u64 {
        1
    }

    fn check(&mut self) -> Result<()> {
        ensure!(self.replaced > 0, "nothing was replaced");
        Ok(())
    }
}

/// MWCL, MWCM.
struct Creator {
    files: Files,
    content: Vec<u8>,
}

impl Creator {
    fn new(tree: &Tree, seat: Seat, content: Vec<u8>) -> Result<Creator> {
        let files = Files::new(tree, seat)?;
        Ok(Creator { files, content })
    }
}

impl Worker for Creator {
    fn prepare(&mut self) -> Result<()> {
        while self.files.unlink()? {}
        Ok(())
    }

    fn warm(&mut self) -> Result<Option<u64>> {
        self.files.create_and_unlink(&self.content)?;
        Ok(Some(1))
    }

    #[inline]
    fn operate(&mut self) -> Result<Option<u64>> {
        self.files.create(&self.content)?;
        Ok(Some(1))
    }

    fn batch(&self) -> u64 {
        8
    }

    fn check(&mut self) -> Result<()> {
        ensure!(self.files.count() > 0, "nothing was created");
        self.files.check()
    }
}

/// MWUL, MWUM.
struct Unlinker {
    files: Files,
    seat: Seat,
}

impl Unlinker {
    fn new(tree: &Tree, seat: Seat) -> Result<Unlinker> {
        let files = Files::new(tree, seat)?;
        Ok(Unlinker { files, seat })
    }
}

impl Worker for Unlinker {
    /// Up to the bound, not to the last inode of the device as the original.
    fn prepare(&mut self) -> Result<()> {
        self.files.fill(self.seat.fill, u64::MAX)
    }

    fn warm(&mut self) -> Result<Option<u64>> {
        self.files.create_and_unlink(&[])?;
        Ok(Some(1))
    }

    #[inline]
    fn operate(&mut self) -> Result<Option<u64>> {
        Ok(self.files.unlink()?.then_some(1))
    }

    fn batch(&self) -> u64 {
        8
    }

    fn check(&mut self) -> Result<()> {
        self.files.check()
    }
}

/// MWRL: one file goes from number to number.
struct Renamer {
    tree: Tree,
    from: Numbered,
    to: Numbered,
    number: u64,
}

impl Renamer {
    fn new(tree: &Tree) -> Result<Renamer> {
        let mut from = Numbered::new(tree, "u")?;
        drop(tree.open(from.at(0), How::CreateNew)?);
        Ok(Renamer {
            tree: tree.clone(),
            from,
            to: Numbered::new(tree, "u")?,
            number: 0,
        })
    }
}

impl Worker for Renamer {
    #[inline]
    fn operate(&mut self) -> Result<Option<u64>> {
        let from = self.from.at(self.number);
        self.tree.rename(from, self.to.at(self.number + 1))?;
        self.number += 1;
        Ok(Some(1))
    }

    fn batch(&self) -> u64 {
        8
    }

    fn check(&mut self) -> Result<()> {
        let mut names = Vec::new();
        let mut listing = self.tree.list(self.tree.root())?;
        while listing.read(|name| names.push(name.to_vec()))?.is_some() {}
        let want = format!("u{}", self.number).into_bytes();
        ensure!(
            names == [want],
            "not the one file of the last rename is there"
        );
        Ok(())
    }
}

/// MWRM: from the private directory into the shared one.
struct Mover {
    shared: Tree,
    files: Files,
    from: Numbered,
    to: Numbered,
    prefix: String,
    seat: Seat,
    moved: u64,
    side: (PathBuf, PathBuf),
}

impl Mover {
    fn new(tree: &Tree, seat: Seat) -> Result<Mover> {
        let own = seat.private(tree)?;
        let name = format!("warm{}", seat.number);
        let side = (own.path(&name), tree.path(&name));
        drop(own.open(&side.0, How::CreateNew)?);
        let prefix = format!("m{}-", seat.number);
        Ok(Mover {
            shared: tree.clone(),
            files: Files::new(&own, seat)?,
            from: Numbered::new(&own, &format!("f{}-", seat.number))?,
            to: Numbered::new(tree, &prefix)?,
            prefix,
            seat,
            moved: 0,
            side,
        })
    }
}

impl Worker for Mover {
    /// Files for as long as a measurement takes, less one of twenty, as the original; later on
    /// those that were moved come back.
    fn prepare(&mut self) -> Result<()> {
        while self.moved > 0 {
            self.moved -= 1;
            let to = self.from.at(self.moved);
            self.shared.rename(self.to.at(self.moved), to)?;
        }
        if self.files.count() == 0 {
            let until = clock::monotonic_ns() + self.seat.fill_ns;
            self.files.fill(self.seat.fill, until)?;
            for _ in 0..self.files.count() / 20 {
                self.files.unlink_last()?;
            }
        }
        ensure!(
            self.files.count() > 0,
            "no time to make a file: a longer --seconds"
        );
        Ok(())
    }

    fn warm(&mut self) -> Result<Option<u64>> {
        self.shared.rename(&self.side.0, &self.side.1)?;
        self.shared.rename(&self.side.1, &self.side.0)?;
        Ok(Some(2))
    }

    #[inline]
    fn operate(&mut self) -> Result<Option<u64>> {
        if self.moved == self.files.count() {
            return Ok(None);
        }
        let from = self.from.at(self.moved);
        self.shared.rename(from, self.to.at(self.moved))?;
        self.moved += 1;
        Ok(Some(1))
    }

    fn batch(&self) -> u64 {
        8
    }

    fn check(&mut self) -> Result<()> {
        let found = self.shared.list(self.shared.root())?;
        let found = found.count(|name| name.starts_with(self.prefix.as_bytes()))?;
        let moved = self.moved;
        ensure!(found == moved, "{moved} files were moved, {found} arrived");
        let here = self.shared.exists(self.from.at(moved))?;
        ensure!(
            here == (moved < self.files.count()),
            "the next file is not where it was"
        );
        Ok(())
    }
}

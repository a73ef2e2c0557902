//! Explains a mechanism by a run of it: the examples of the published documents.
//!
//! **Problem.** What a journal per core does with blocks that cores share is drawn in papers; whether
//! the program does it, only a run shows. **Structure.** A journal in memory, buffers with the
//! names of the documents, and after each step its transactions with their marks. **Invariants.**
//! All that is told was asked of the journal. **Crash.** The last example is about one: the logs are
//! scanned as after a crash.

use std::fmt::Write as _;

use dure_block::ram::RamDevice;
use dure_block::{Lba, Media, QueueConfig, share};
use dure_journal::recovery::{LogLayout, scan, write_fresh_headers};
use dure_journal::{
    Buffer, BufferUse, Change, Effects, Hold, Journal, JournalConfig, JournalId, LogMedium, Mark,
    Nid, Order, Records, RingStart, Rules, Settle, TransactionId, TransactionState,
    TransactionView,
};
use dure_sync::{Arc, CoreId};

const SEED: u32 = 7;
const SEGMENT_BLOCKS: u32 = 8;
const SEGMENTS: u64 = 4;
const IMAGE_BYTES: u32 = 8;
const DEVICE_BLOCKS: u64 = 256;
/// The first log segment.
const LOGS_AT: u64 = 16;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

struct Nothing;

impl Settle for Nothing {
    type Effect = ();
    fn settle(&self, _: Effects<()>) {}
}

/// A block of the documents: BH0, BH1, ...
#[derive(Debug)]
struct Block {
    number: usize,
    hold: Hold,
}

/// As the journal holds it. The run has one thread, so it is always held exclusively.
#[derive(Debug)]
struct Filed(Arc<Block>);

impl Buffer for Filed {
    fn nid(&self) -> Nid {
        Nid(dure_fs::units::to_u64(self.0.number))
    }

    fn hold(&self) -> &Hold {
        &self.0.hold
    }

    fn capture(&self, transaction: TransactionId, out: &mut Vec<u8>) {
        let hold = &self.0.hold;
        out.extend(hold.take_frozen(transaction).unwrap_or(vec![0; 8]));
        hold.captured(transaction);
    }
}

/// A run that tells what it does.
struct Play {
    journal: Journal<Nothing>,
    medium: LogMedium,
    blocks: Vec<Arc<Block>>,
    last_writers: Vec<Mark>,
    text: String,
}

fn journal_of(core: u16) -> JournalId {
    JournalId::new(core).expect("few cores")
}

fn header_at(index: u64) -> Lba {
    Lba::new(4 * index)
}

impl Play {
    fn new(title: &str, cores: u64, blocks: usize) -> Result<Play> {
        let device = share(RamDevice::new("ram0", DEVICE_BLOCKS));
        let medium = LogMedium::on(Media::open(device, QueueConfig::default()));
        let segment = |number: u64| Lba::new(LOGS_AT + number * u64::from(SEGMENT_BLOCKS));
        let ring = |core: u64| RingStart {
            header: header_at(core),
            generation: 1,
            segments: (core * SEGMENTS..(core + 1) * SEGMENTS)
                .map(segment)
                .collect(),
        };
        let journals: Vec<RingStart> = (0..cores).map(ring).collect();
        write_fresh_headers(&medium, SEED, SEGMENT_BLOCKS, &journals)?;
        let config = JournalConfig {
            epoch: 1,
            first_number: 1,
            order: Order::PerCore,
            records: Records::Image {
                image_bytes_max: IMAGE_BYTES,
            },
            seed: SEED,
            segment_blocks: SEGMENT_BLOCKS,
            journals,
            rules: Rules::default(),
        };
        let block = |number| {
            Arc::new(Block {
                number,
                hold: Hold::new(),
            })
        };
        Ok(Play {
            journal: Journal::start(medium.clone(), Arc::new(Nothing), config)?,
            medium,
            blocks: (0..blocks).map(block).collect(),
            last_writers: vec![Mark::NONE; blocks],
            text: format!("{title}\n"),
        })
    }

    fn say(&mut self, line: &str) {
        writeln!(self.text, "\n{line}").expect("writing to a string cannot fail");
    }

    /// An operation of `core` changes these blocks.
    fn change(&mut self, core: u16, blocks: &[usize]) -> Result<()> {
        let most = u32::try_from(blocks.len())?;
        let mut handle = self.journal.begin_images(CoreId::new(core), 512, most)?;
        for block in blocks {
            handle.mark(self.last_writers[*block]);
        }
        let uses = blocks.iter().map(|block| BufferUse {
            buffer: Box::new(Filed(Arc::clone(&self.blocks[*block]))),
            change: Change::Content,
        });
        let joined = handle.join_images(uses.collect());
        for (at, transaction) in joined.freeze {
            let hold = &self.blocks[blocks[at]].hold;
            hold.freeze(transaction, vec![0; 8]);
        }
        for block in blocks {
            self.last_writers[*block] = joined.mark;
        }
        Ok(())
    }

    /// Transactions of a core that are valid and of which nothing is told.
    fn earlier(&mut self, core: u16, transactions: u32) -> Result<()> {
        for _ in 0..transactions {
            self.change(core, &[])?;
            self.journal.commit_joined(&[journal_of(core)])?;
        }
        Ok(())
    }

    fn changes(&mut self, core: u16, blocks: &[usize]) -> Result<()> {
        self.change(core, blocks)?;
        let names: Vec<String> = blocks.iter().map(|block| format!("BH{block}")).collect();
        self.say(&format!("core {core} changes {}", names.join(", ")));
        self.show();
        Ok(())
    }

    fn commits(&mut self, core: u16) -> Result<()> {
        self.journal.commit_joined(&[journal_of(core)])?;
        self.say(&format!("core {core} commits"));
        self.show();
        Ok(())
    }

    /// The transactions that are not valid, with their marks as (core, transaction).
    fn show(&mut self) {
        let all = self.journal.transactions();
        for one in &all {
            let line = line_of(one, &all);
            writeln!(self.text, "  {line}").expect("writing to a string cannot fail");
        }
        if all.is_empty() {
            self.text.push_str("  all transactions are valid\n");
        }
    }

    /// What recovery makes of the logs.
    fn crash(&mut self) -> Result<()> {
        self.say("if the power fails now");
        let cores = dure_fs::units::to_u64(self.journal.journal_count());
        let layout = LogLayout {
            seed: SEED,
            segment_blocks: SEGMENT_BLOCKS,
            first_number: 1,
            device_blocks: DEVICE_BLOCKS,
            headers: (0..cores).map(header_at).collect(),
            clean: false,
            rules: Rules::default(),
        };
        let found = scan(&self.medium, &layout, 1, 1)?;
        let fates = found.survivors();
        for (one, survives) in found.transactions().iter().zip(fates) {
            let fate = if survives { "is kept" } else { "is rejected" };
            let id = format!("({},{})", one.journal.index(), one.sequence);
            writeln!(self.text, "  {id} is complete, and {fate}")?;
        }
        Ok(())
    }
}

fn name_of(one: &TransactionView) -> String {
    format!("({},{})", one.journal.index(), one.sequence)
}

fn line_of(one: &TransactionView, all: &[TransactionView]) -> String {
    let state = match one.state {
        TransactionState::Running => "running",
        TransactionState::Committing => "committing",
        TransactionState::Committed => "committed, not valid",
    };
    let has = |mark: &Mark| {
        let holds = |other: &&TransactionView| {
            other.journal == mark.journal() && other.handles.contains(&mark.number())
        };
        all.iter().find(holds).map(name_of)
    };
    let mut marks: Vec<String> = one.marks.iter().filter_map(has).collect();
    marks.dedup();
    let blocks: Vec<String> = one
        .buffers
        .iter()
        .map(|nid| format!("BH{}", nid.0))
        .collect();
    let mut line = format!("{} {state}", name_of(one));
    if !blocks.is_empty() {
        line += &format!(": {}", blocks.join(", "));
    }
    if !marks.is_empty() {
        line += &format!("; valid only with {}", marks.join(", "));
    }
    line
}

/// The examples of Z-Journal: marks of three cores, and a crash between the commits of two.
///
/// # Errors
/// None are expected of a device in memory.
pub fn zjournal() -> Result<String> {
    let title = "Marks of transactions that share blocks. (1,7) is transaction 7 of core 1.";
    let mut play = Play::new(title, 3, 6)?;
    for (core, transactions) in [(2, 1), (1, 6), (0, 3)] {
        play.earlier(core, transactions)?;
    }
    play.changes(2, &[4, 5])?;
    play.say("core 2 begins to commit");
    // Only core 2 has changed something.
    let _ = play.journal.cut();
    play.show();
    play.changes(1, &[2, 3, 4])?;
    play.changes(0, &[0, 1, 3])?;
    play.changes(1, &[0])?;
    play.commits(1)?;
    play.commits(2)?;
    play.commits(0)?;
    let mut text = play.text;
    let title = "\nA crash between the commits of two cores that share BH0.";
    let mut play = Play::new(title, 2, 3)?;
    play.changes(0, &[0, 1])?;
    play.changes(1, &[0, 2])?;
    play.commits(1)?;
    play.crash()?;
    play.commits(0)?;
    play.crash()?;
    text += &play.text;
    Ok(text)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_examples_of_the_documents() {
        let told = super::zjournal().expect("a device in memory");
        let both = "core 1 changes BH0
  (0,4) running: BH0, BH1; valid only with (1,7)
  (1,7) running: BH2, BH3, BH4; valid only with (0,4), (2,2)
  (2,2) committing: BH4, BH5
";
        assert!(told.contains(both), "{told}");
        let rejected = "if the power fails now
  (1,1) is complete, and is rejected

core 0 commits
  all transactions are valid

if the power fails now
  (0,1) is complete, and is kept
  (1,1) is complete, and is kept
";
        assert!(told.ends_with(rejected), "{told}");
    }
}

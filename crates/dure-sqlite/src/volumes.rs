//! The volumes that this process has open for SQLite.
//!
//! **Problem.** A volume is open once in a process, and connections come and go. **Structure.** A
//! table by medium; each open file has a [`Use`] of its volume. The first one opens it, the last one
//! closes it. [`lend`] adds a volume that the program has open itself.
//!
//! **Invariants.** A volume is opened and closed under the lock of the table, so that the next
//! open waits until it is closed. Nothing is done in a child of fork while its parent has volumes
//! open, nor on a volume on which a call has panicked. **On a crash** of the process volumes are left
//! as they are; the next mount recovers them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dure::{
    Capabilities, Cause, Credentials, DataMode, MountOptions, RecordPolicy, Session, Volume,
};
use dure_fs::PageCaching;
use dure_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use dure_sync::{Arc, Mutex, ProcessOnce, clock, thread, without_signals};

use crate::abi::code;
use crate::database::Databases;
use crate::failure::{During, Failure, Outcome, tell};
use crate::place::{Medium, Place};

/// Rank of the lock on the table.
pub(crate) const VOLUMES: u8 = 20;

/// How long the first connection waits for a volume that is in use.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(5);

type Table = BTreeMap<Medium, Entry>;

struct Entry {
    mounted: Arc<Mounted>,
    uses: usize,
}

fn table() -> &'static Mutex<VOLUMES, Table> {
    static TABLE: ProcessOnce<Mutex<VOLUMES, Table>> = ProcessOnce::new();
    TABLE.get_or_init(|| Mutex::new(Table::new()))
}

/// The process that has volumes open; 0: none has. Relaxed: a process sees what it has stored, and a
/// child what was there at the fork.
static OWNER: AtomicU32 = AtomicU32::new(0);

fn process() -> u32 {
    rustix::process::getpid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned()
}

/// Whether this is a child of the process that has volumes open: it has none of the threads, and would
/// write to the media of its parent. It may not even wait for the lock on the table.
pub(crate) fn is_child() -> bool {
    let owner = OWNER.load(Ordering::Relaxed);
    owner != 0 && owner != process()
}

/// Who closes a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    LastUse,
    Program,
}

/// An open volume.
#[derive(Debug)]
pub(crate) struct Mounted {
    pub(crate) volume: Volume,
    /// Whoever may open the volume may do all; what is made belongs to the user of the process.
    pub(crate) session: Session,
    pub(crate) databases: Databases,
    closing: Closing,
    /// A call has panicked. Relaxed: one that began before may go on.
    failed: AtomicBool,
}

impl Mounted {
    fn new(volume: Volume, closing: Closing) -> Mounted {
        let session = volume.session(Credentials {
            capabilities: Capabilities::Root,
            ..Credentials::of_process()
        });
        Mounted {
            volume,
            session,
            databases: Databases::default(),
            closing,
            failed: AtomicBool::new(false),
        }
    }

    /// Refuses calls in a child, and after a bug.
    pub(crate) fn check(&self) -> Outcome<()> {
        if is_child() {
            return Err(child());
        }
        match self.failed.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(Failure::new(
                code::IOERR,
                "a call on this volume has failed by a bug".to_owned(),
            )),
        }
    }

    /// A call has panicked: no other one is let in.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }
}

fn child() -> Failure {
    Failure::new(
        code::IOERR,
        "the volume was opened before fork(): open databases in the child, after the parent has \
         closed its own"
            .to_owned(),
    )
}

/// A use of a volume, which keeps it open.
#[derive(Debug)]
pub(crate) struct Use {
    medium: Medium,
    pub(crate) mounted: Arc<Mounted>,
}

impl Drop for Use {
    fn drop(&mut self) {
        if self.mounted.check().is_err() {
            // Nothing is written, not even by dropping it.
            std::mem::forget(Arc::clone(&self.mounted));
            return;
        }
        let mut table = table().lock();
        let entry = table
            .get_mut(&self.medium)
            .expect("a volume in use is there");
        entry.uses -= 1;
        if entry.uses > 0 {
            return;
        }
        let last = table.remove(&self.medium).expect("it was there");
        if last.mounted.closing == Closing::LastUse
            && let Err(error) = last.mounted.volume.close()
        {
            // SQLite asks for no result of closing a file. What was committed is durable already.
            tell(Failure::of(code::IOERR_CLOSE, &error));
        }
        // The device is given up before others may open it.
        drop(last);
        if table.is_empty() {
            OWNER.store(0, Ordering::Relaxed);
        }
    }
}

/// Opens the volume of a file, unless it is open. `options` has the words of mount options for it.
pub(crate) fn open(place: &Place, options: &str) -> Outcome<Use> {
    if is_child() {
        return Err(child());
    }
    let mut table = table().lock();
    if let Some(entry) = table.get_mut(&place.medium) {
        entry.mounted.check()?;
        entry.uses += 1;
        let mounted = Arc::clone(&entry.mounted);
        let medium = place.medium;
        return Ok(Use { medium, mounted });
    }
    let options = options_of(options)?;
    let volume = patiently(|| without_signals(|| Volume::open(&place.image, options.clone())))?;
    Ok(enter(&mut table, place.medium, volume, Closing::LastUse))
}

/// Retries for [`PATIENCE`] while the volume is in use: the kernel lets go of the files of a process
/// that was killed a little after the process has ended.
fn patiently(open: impl Fn() -> dure::Result<Volume>) -> Outcome<Volume> {
    let since = clock::monotonic_ns();
    loop {
        let failure = match open().during(code::CANTOPEN) {
            Err(failure) if failure.code == code::BUSY => failure,
            opened => return opened,
        };
        if Duration::from_nanos(clock::monotonic_ns() - since) > PATIENCE {
            return Err(failure);
        }
        thread::sleep(PAUSE);
    }
}

fn enter(table: &mut Table, medium: Medium, volume: Volume, closing: Closing) -> Use {
    OWNER.store(process(), Ordering::Relaxed);
    let mounted = Arc::new(Mounted::new(volume, closing));
    let entry = Entry {
        mounted: Arc::clone(&mounted),
        uses: 1,
    };
    let before = table.insert(medium, entry);
    assert!(before.is_none(), "a volume is open once");
    Use { medium, mounted }
}

/// Whether a volume with these options keeps what SQLite is told of it
/// (`crate::file::CHARACTERISTICS`), and what it has synced.
fn keeps_promises(options: &MountOptions) -> bool {
    options.data != DataMode::Writeback
        && options.page_cache != Some(PageCaching::None)
        && options.records != RecordPolicy::None
}

/// What the words of a URI say.
fn options_of(words: &str) -> Outcome<MountOptions> {
    let refused = |why: String| Failure::new(code::CANTOPEN, format!("options={words}: {why}"));
    let options = dure::mount_options(words).map_err(refused)?;
    if !keeps_promises(&options) {
        return Err(refused(
            "without data=writeback, page_cache=none and journal=none: a database relies on pages that \
             are old or new, on files that end where their content ends, and on what was synced"
                .to_owned(),
        ));
    }
    Ok(options)
}

/// A volume of the program's that SQLite may use, until this is dropped and its databases are closed.
#[derive(Debug)]
pub struct Lent {
    _use: Use,
}

/// Lets SQLite use a volume that this program has open, for programs in Rust: a volume is open only
/// once. `path` is the image file or block device that databases are named by.
///
/// # Errors
/// `ENOENT` if there is nothing at `path`, `EEXIST` if SQLite has the volume there open, `EINVAL` for
/// a volume whose options a database cannot rely on, `EBUSY` in a child of fork while its parent has
/// volumes open.
pub fn lend(path: impl Into<PathBuf>, volume: &Volume) -> dure::Result<Lent> {
    let path = path.into();
    let options = volume.file_system().options();
    let refused = |path: &Path, errno| dure::Error::new("lend", path, Cause::Posix(errno));
    // Before the lock, which a thread of the parent may have held; and a child that became the owner
    // would write to the volumes of its parent.
    if is_child() {
        return Err(refused(&path, rustix::io::Errno::BUSY));
    }
    if !keeps_promises(options) {
        return Err(refused(&path, rustix::io::Errno::INVAL));
    }
    let Some(medium) = Medium::at(&path) else {
        return Err(refused(&path, rustix::io::Errno::NOENT));
    };
    let mut table = table().lock();
    if table.contains_key(&medium) {
        return Err(refused(&path, rustix::io::Errno::EXIST));
    }
    let _use = enter(&mut table, medium, volume.clone(), Closing::Program);
    Ok(Lent { _use })
}

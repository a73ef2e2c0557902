//! Changes of a directory that has grown, in which every core has names of its own, move few lines.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a panic is how a run fails; tests print what they have seen"
)]

use dure::{OpenOptions, Session};
use dure_sync::atomic::{AtomicU32, Ordering};
use dure_sync::sim::{Config, Report, run};
use dure_sync::{CoreId, thread};

use crate::profiles::Profile;

const CORES: u16 = 2;

/// A directory that has grown, in which every core has names of its own.
struct Crowd {
    session: Session,
    core: u16,
}

impl Crowd {
    fn make(&self, path: &str) {
        let options = OpenOptions::new().write(true).create_new(true);
        drop(options.open(&self.session, path).unwrap());
    }

    fn create_unlink(&self, _turn: u64) {
        let path = format!("/crowd/own{}", self.core);
        self.make(&path);
        self.session.remove_file(&path).unwrap();
    }

    fn rename(&self, turn: u64) {
        let names = [0, 1].map(|n| format!("/crowd/own{}-{}", self.core, (turn + n) % 2));
        if !self.session.exists(&names[0]).unwrap() {
            self.make(&names[0]);
        }
        self.session.rename(&names[0], &names[1]).unwrap();
    }

    fn list(&self, _turn: u64) {
        let entries = self.session.read_dir("/crowd").unwrap();
        assert!(entries.count() >= CROWD);
    }
}

/// Files that make three levels of bucket nodes.
const CROWD: usize = 700;

fn crowd(turns: u64, call: fn(&Crowd, u64)) -> Report {
    let body = move || {
        let volume = Profile::Disk.volume(CORES);
        let root = volume.root();
        root.create_dir("/crowd").unwrap();
        let filler = Crowd {
            session: root,
            core: 0,
        };
        for n in 0..CROWD {
            filler.make(&format!("/crowd/there-{n:_>30}"));
        }
        let ready = AtomicU32::new(0);
        thread::scope(|scope| {
            for core in 0..CORES {
                let (ready, session) = (&ready, volume.root());
                scope.spawn_on(CoreId::new(core), move || {
                    let crowd = Crowd { session, core };
                    // They contend: what happens once is done then.
                    (0..20).for_each(|turn| call(&crowd, turn));
                    ready.fetch_add(1, Ordering::AcqRel);
                    while ready.load(Ordering::Acquire) < u32::from(CORES) {
                        thread::yield_now();
                    }
                    (0..turns).for_each(|turn| call(&crowd, turn));
                });
            }
        });
    };
    run(Config::min_clock(usize::from(CORES)), body).report
}

/// Lines that move per hundred calls.
fn crowd_lines(what: &str, call: fn(&Crowd, u64)) -> u64 {
    let (few, many) = (crowd(20, call), crowd(70, call));
    let more = many.transfers.saturating_sub(few.transfers);
    println!(
        "{what}: {more} transfers in 100 calls: {:#?}",
        many.hot_lines
    );
    more
}

#[test]
fn sim_lines_changes_of_a_grown_directory_move_few_lines() {
    let create = crowd_lines("create and unlink", Crowd::create_unlink);
    let rename = crowd_lines("rename", Crowd::rename);
    let list = crowd_lines("list", Crowd::list);
    // Now and then a bucket is split or a node freed. A listing of seven hundred entries reads a
    // hundred nodes and takes their granules' locks.
    assert!(create <= 100 && rename <= 100, "{create}, {rename}");
    assert!(list <= 90_000, "{list}");
}

//! Both sides at once: nothing waits for ever, and nothing that is ordered is lost.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::random::Seeded;
use dure_sync::thread;

use super::{Both, Mapping};

const FILE_BYTES: u64 = 64 << 10;
const NAMES: [&str; 4] = ["a", "b", "d/a", "d/b"];

/// Ends the process if a test does not.
struct Watch(dure_sync::Arc<AtomicBool>);

impl Watch {
    fn begin(limit: Duration) -> Watch {
        let ended = dure_sync::Arc::new(AtomicBool::new(false));
        let watched = dure_sync::Arc::clone(&ended);
        thread::spawn("watch", move || {
            thread::sleep(limit);
            if !watched.load(Ordering::Relaxed) {
                eprintln!("the threads wait for each other");
                std::process::abort();
            }
        });
        Watch(ended)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn here(both: &Both, random: &mut Seeded) {
    let name = NAMES[random.index(NAMES.len())];
    let (offset, byte) = (random.below(FILE_BYTES), random.below(256).to_le_bytes()[0]);
    let options = dure::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .posix();
    match random.below(8) {
        0 => drop(both.library.remove_file(name)),
        1 => drop(both.library.rename(name, NAMES[random.index(NAMES.len())])),
        2 => drop(both.library.truncate(name, offset)),
        3 => drop(both.library.read(name)),
        _ => {
            let file = options.open(&both.library, name).unwrap();
            file.write_all_at(&[byte; 5000], offset).unwrap();
            file.read_at(&mut [0; 9000], offset).unwrap();
        }
    }
}

fn there(both: &Both, random: &mut Seeded) {
    let name = both.path(NAMES[random.index(NAMES.len())]);
    let (offset, byte) = (random.below(FILE_BYTES), random.below(256).to_le_bytes()[0]);
    let open = || {
        let options = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .clone();
        options.open(&name)
    };
    match random.below(8) {
        0 => drop(fs::remove_file(name)),
        1 => drop(fs::rename(
            name,
            both.path(NAMES[random.index(NAMES.len())]),
        )),
        2 => drop(fs::read(name)),
        3 => drop(fs::read_dir(both.path("d")).unwrap().count()),
        // Another thread may have replaced it meanwhile.
        4 => {
            if let Ok(file) = open() {
                file.write_all_at(&[byte; 5000], offset).unwrap();
                let _ = file.set_len(offset);
            }
        }
        _ => write_and_sync(open(), offset),
    }
}

fn write_and_sync(open: std::io::Result<fs::File>, offset: u64) {
    let Ok(file) = open else { return };
    file.write_all_at(&[1; 100], offset).unwrap();
    file.sync_data().unwrap();
}

#[test]
fn threads_of_both_sides_never_wait_for_ever() {
    let Some(both) = Both::new() else { return };
    let _watch = Watch::begin(Duration::from_secs(120));
    both.library.create_dir("d").unwrap();
    let work: [fn(&Both, &mut Seeded); 2] = [here, there];
    thread::scope(|scope| {
        for number in 0..6_u64 {
            let (both, work) = (&both, work[usize::from(number % 2 == 1)]);
            scope.spawn(move || {
                let mut random = Seeded::new(number);
                for _ in 0..400 {
                    work(both, &mut random);
                }
            });
        }
    });
    both.end();
}

/// Each thread has its bytes of the pages, which it changes by stores and through the library in turn,
/// and reads after each; others do so with other pages of the file.
#[test]
fn stores_and_calls_of_a_thread_are_in_order_while_others_do_the_same() {
    const PAGES: usize = 4;
    let Some(both) = Both::new() else { return };
    let _watch = Watch::begin(Duration::from_secs(120));
    both.library.write("f", &[0; PAGES * 4096]).unwrap();
    let theirs = OpenOptions::new()
        .read(true)
        .write(true)
        .open(both.path("f"))
        .unwrap();
    let map = Mapping::new(&theirs, PAGES * 4096);
    thread::scope(|scope| {
        for page in 0..PAGES {
            let (both, map, theirs) = (&both, &map, &theirs);
            scope.spawn(move || {
                let options = dure::OpenOptions::new().read(true).write(true);
                let mine = options.open(&both.library, "f").unwrap();
                let (first, mut got) = (page * 4096, [0; 3]);
                let offset = u64::try_from(first).unwrap();
                for round in 0..300_u32 {
                    let byte = round.to_le_bytes()[0];
                    map.set(first, byte);
                    mine.write_all_at(&[byte ^ 1], offset + 1).unwrap();
                    theirs.write_all_at(&[byte ^ 2], offset + 2).unwrap();
                    mine.read_exact_at(&mut got, offset).unwrap();
                    assert_eq!(got, [byte, byte ^ 1, byte ^ 2]);
                    theirs.read_exact_at(&mut got, offset).unwrap();
                    assert_eq!(got, [byte, byte ^ 1, byte ^ 2]);
                    let mapped = [0, 1, 2].map(|n| map.get(first + n));
                    assert_eq!(mapped, got);
                }
            });
        }
    });
    drop((map, theirs));
    both.end();
}

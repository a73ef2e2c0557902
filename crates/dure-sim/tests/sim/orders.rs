//! What one call has shown, another one does not take back: a name that is moved is moved once, and
//! times go forward.
//!
//! Runs with the sim backend only: `cargo xtask sim -p dure-sim -- sim_orders`.

#![expect(clippy::unwrap_used, reason = "tests say what they expect")]

use std::time::Duration;

use dure_block::share;
use dure_fs::{
    DirectoryRule, Error, FileSystem, InodeRef, NewInode, RenameMode, SetAttributes, Stamp,
    VolumeRules, XattrMode,
};
use dure_sim::schedules::{Trial, assert_whole, play_each, small_volume};
use dure_sync::sim::{Config, Rng, Schedule, seeds, try_run};
use dure_sync::{Arc, CoreId, thread};

const PAGE: u64 = 4096;

fn new(mode: u32) -> NewInode {
    NewInode {
        mode,
        ..NewInode::default()
    }
}

/// Two tasks claim a job by moving its name, to the same place: one of them has it.
#[test]
fn sim_race_one_of_two_renames_to_one_name_moves_it() {
    play_each(300, 2, |trial| {
        let ram = small_volume(1024);
        let fs = trial.mount(share(Arc::clone(&ram)), VolumeRules::default());
        let root = fs.root().unwrap();
        let to = fs.mkdir(&root, b"taken", &new(0o755)).unwrap();
        for round in 0..6 {
            let job = match round % 2 {
                0 => fs.create(&root, b"job", &new(0o100_644)).unwrap(),
                _ => fs.mkdir(&root, b"job", &new(0o755)).unwrap(),
            };
            let claim = || match fs.rename(&root, b"job", &to, b"job", RenameMode::Replace) {
                Ok(()) => 1,
                Err(Error::NotFound) => 0,
                Err(error) => panic!("rename: {error}"),
            };
            let claims = thread::scope(|scope| {
                let other = scope.spawn_on(CoreId::new(1), claim);
                claim() + other.join().unwrap()
            });
            assert_eq!(claims, 1, "round {round}");
            let moved = fs.lookup(&to, b"job").unwrap().unwrap();
            assert_eq!(moved.id(), job.id());
            drop((job, moved));
            match round % 2 {
                0 => fs.unlink(&to, b"job").unwrap(),
                _ => fs.rmdir(&to, b"job").unwrap(),
            }
        }
        drop((root, to));
        fs.close().unwrap();
        assert_whole(ram);
    });
}

/// One core's calls on a file that all change.
fn change(fs: &FileSystem, file: &InodeRef, core: u16, mut random: Rng) {
    let root = fs.root().unwrap();
    for n in 0..40 {
        match random.index(7) {
            0..3 => {
                let at = u64::from(core) * PAGE;
                assert_eq!(fs.write(file, at, b"data", Stamp::Set).unwrap(), 4);
            }
            3 => {
                let set = SetAttributes {
                    mode: Some(0o600 + u32::from(core)),
                    ..SetAttributes::default()
                };
                fs.change_attributes(file, &set).unwrap();
            }
            4 => fs
                .set_xattr(file, b"user.core", &[n], XattrMode::Any)
                .unwrap(),
            5 => {
                let name = format!("{core}-{n}");
                fs.link(file, &root, name.as_bytes()).unwrap();
                fs.unlink(&root, name.as_bytes()).unwrap();
            }
            _ => {
                let set = SetAttributes {
                    size: Some(4 * PAGE),
                    ..SetAttributes::default()
                };
                fs.change_attributes(file, &set).unwrap();
            }
        }
    }
}

/// Who is slow to change a file, while others change it, does not set its times back to when he
/// began.
#[test]
fn sim_race_times_of_a_file_do_not_go_back() {
    for seed in seeds(300) {
        // Pauses of up to two ticks of the clock.
        let schedule = Schedule::Stall {
            every: 300,
            ns: 8_000_000,
        };
        let done = try_run(Config::new(3, seed, schedule), move || {
            let trial = Trial::new(seed, 3);
            let fs = trial.mount(share(small_volume(1024)), VolumeRules::default());
            let root = fs.root().unwrap();
            let file = fs.create(&root, b"file", &new(0o100_644)).unwrap();
            for page in 0..4 {
                fs.write(&file, page * PAGE, &[1; 4096], Stamp::Set)
                    .unwrap();
            }
            thread::scope(|scope| {
                for core in 0..2 {
                    let (fs, file) = (&fs, &file);
                    let random = Rng::new(seed ^ u64::from(core) << 32);
                    scope.spawn_on(CoreId::new(core), move || change(fs, file, core, random));
                }
                let (fs, file) = (&fs, &file);
                scope.spawn_on(CoreId::new(2), move || {
                    let times = || {
                        let seen = fs.attributes(file).unwrap();
                        [seen.mtime, seen.ctime].map(|time| (time.secs.get(), time.nanos.get()))
                    };
                    let mut before = times();
                    for _ in 0..60 {
                        let now = times();
                        assert!(
                            now[0] >= before[0] && now[1] >= before[1],
                            "mtime, ctime: {before:?}, then {now:?}"
                        );
                        before = now;
                        thread::sleep(Duration::from_micros(500));
                    }
                });
            });
        });
        if let Err(failure) = done {
            panic!("{failure}");
        }
    }
}

/// One core makes subdirectories, another files, in one directory: whoever looks sees ever more
/// subdirectories, also when only what changes with the files has to be looked up anew.
#[test]
fn sim_race_links_of_a_directory_do_not_go_back() {
    play_each(300, 3, |trial| {
        let rules = VolumeRules {
            directories: DirectoryRule::AtOnce,
            ..VolumeRules::default()
        };
        let fs = trial.mount(share(small_volume(2048)), rules);
        let root = fs.root().unwrap();
        let directory = fs.mkdir(&root, b"directory", &new(0o755)).unwrap();
        drop(fs.mkdir(&directory, b"first", &new(0o755)).unwrap());
        assert_eq!(fs.attributes(&directory).unwrap().nlink, 3);
        thread::scope(|scope| {
            let (fs, directory) = (&fs, &directory);
            scope.spawn_on(CoreId::new(0), move || {
                for n in 0..12 {
                    let name = format!("directory{n}");
                    drop(fs.mkdir(directory, name.as_bytes(), &new(0o755)).unwrap());
                }
            });
            scope.spawn_on(CoreId::new(1), move || {
                for n in 0..24 {
                    let name = format!("file{n}");
                    drop(
                        fs.create(directory, name.as_bytes(), &new(0o100_644))
                            .unwrap(),
                    );
                }
            });
            scope.spawn_on(CoreId::new(2), move || {
                let mut before = 3;
                while before < 15 {
                    let now = fs.attributes(directory).unwrap().nlink;
                    assert!(now >= before, "{before} links, then {now}");
                    before = now;
                }
            });
        });
    });
}

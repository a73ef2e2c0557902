//! What one call has shown, another one does not take back: a name that is moved is moved once.
//!
//! Runs with the sim backend only: `cargo xtask sim -p dure-sim -- sim_orders`.

#![cfg(dure_backend = "sim")]
#![expect(clippy::unwrap_used, reason = "tests say what they expect")]

use dure_fs::{Error, NewInode, RenameMode, VolumeRules};
use dure_sim::schedules::{assert_whole, mount_small, small_volume};
use dure_sync::sim::{Config, seeds, try_run};
use dure_sync::{CoreId, thread};

fn new(mode: u32) -> NewInode {
    NewInode {
        mode,
        ..NewInode::default()
    }
}

fn config(cores: usize, seed: u64) -> Config {
    let config = [Config::random, Config::stall, Config::priority];
    config[usize::try_from(seed % 3).unwrap()](cores, seed)
}

/// Two tasks claim a job by moving its name, to the same place: one of them has it.
#[test]
fn sim_race_one_of_two_renames_to_one_name_moves_it() {
    for seed in seeds(300) {
        let done = try_run(config(2, seed), || {
            let ram = small_volume(1024);
            let fs = mount_small(&ram, VolumeRules::default());
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
        if let Err(failure) = done {
            panic!("{failure}");
        }
    }
}

//! The lock on the real machine, and under schedules.

use super::*;

type Lock = SeqLock<10, u32>;

fn lock_of(byte: u8) -> Lock {
    SeqLock::new(1, vec![byte; 700].into())
}

#[test]
fn what_is_stored_is_loaded() {
    let lock = lock_of(1);
    {
        let mut guard = lock.write_ordered();
        *guard += 1;
        guard.store([(3, &[2; 2][..]), (600, &[2; 100])]);
        assert_eq!(guard.bytes()[..6], [1, 1, 1, 2, 2, 1]);
    }
    let mut out = [0; 4];
    lock.load(598, &mut out);
    assert_eq!(out, [1, 1, 2, 2]);
    let guard = lock.read();
    assert_eq!((*guard, guard.bytes()[699]), (2, 2));
}

#[test]
#[should_panic(expected = "of a box of 700")]
fn a_load_past_the_end_is_refused() {
    lock_of(1).load(699, &mut [0; 2]);
}

#[cfg(dure_backend = "sim")]
mod schedules {
    use super::*;
    use crate::sim::{Config, seeds, try_run};
    use crate::thread;

    type Load = fn(&Lock, usize, &mut [u8]);

    /// Two write, one after the other; a reader never sees parts of two contents.
    fn meet(seed: u64, load: Load) -> Result<(), String> {
        let config = [Config::random, Config::stall, Config::priority];
        let config = config[usize::try_from(seed % 3).unwrap()](3, seed);
        let run = try_run(config, move || {
            let lock = lock_of(0);
            thread::scope(|scope| {
                for writer in 1..3_u8 {
                    let lock = &lock;
                    scope.spawn(move || {
                        for n in 0..4 {
                            let bytes = [writer * 16 + n; 700];
                            let parts = [(0, &bytes[..300]), (300, &bytes[300..])];
                            lock.write_ordered().store(parts);
                        }
                    });
                }
                for _ in 0..8 {
                    let mut out = [0; 700];
                    load(&lock, 0, &mut out);
                    assert!(out.iter().all(|&byte| byte == out[0]), "torn");
                }
            });
        });
        run.map(|_| ()).map_err(|failure| failure.to_string())
    }

    #[test]
    fn sim_versioned_loads_are_whole() {
        for seed in seeds(300) {
            if let Err(what) = meet(seed, Lock::load) {
                panic!("seed={seed}: {what}");
            }
        }
    }

    /// Canary: without the version a reader sees half a change.
    #[test]
    fn sim_canary_loads_without_version_are_torn() {
        let torn = (0..300)
            .any(|seed| meet(seed, Lock::load_carelessly).is_err_and(|what| what.contains("torn")));
        assert!(torn, "300 seeds did not show what the version is for");
    }
}

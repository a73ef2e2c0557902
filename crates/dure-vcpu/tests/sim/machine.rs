//! The machine itself: determinism, clocks, sleeping, failures.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use dure_vcpu::models::PersistentCosts;
use dure_vcpu::{
    Access, Config, FailureKind, Report, Schedule, Wake, access, charge, copy_persistent,
    current_core, futex_wait, futex_wake, is_running, join, move_to, now_ns, place_persistent,
    random, run, seeds, sleep, spawn, spin_hint, try_run, with_local, yield_now,
};

const ALL: [Schedule; 5] = [
    Schedule::Random,
    Schedule::Priority { change_every: 30 },
    Schedule::Stall {
        every: 20,
        ns: 20_000,
    },
    Schedule::Jitter { percent: 20 },
    Schedule::MinClock { ahead_ns: 0 },
];

/// A word that announces its accesses.
#[derive(Default)]
struct Word(Cell<u32>);

impl Word {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn load(&self) -> u32 {
        access(Access::Load, self.address());
        self.0.get()
    }

    fn store(&self, value: u32) {
        access(Access::Store, self.address());
        self.0.set(value);
    }

    fn swap(&self, value: u32) -> u32 {
        access(Access::Update, self.address());
        self.0.replace(value)
    }

    fn wait(&self, expected: u32, timeout: Option<Duration>) -> Wake {
        futex_wait(self.address(), u32::MAX, timeout, || {
            self.0.get() == expected
        })
    }

    fn wake(&self, count: u32) -> u32 {
        futex_wake(self.address(), count, u32::MAX)
    }
}

/// A three-state futex lock.
#[derive(Default)]
struct Lock(Word);

impl Lock {
    fn with(&self, act: impl FnOnce()) {
        if self.0.swap(1) != 0 {
            while self.0.swap(2) != 0 {
                self.0.wait(2, None);
            }
        }
        act();
        if self.0.swap(0) == 2 {
            self.0.wake(1);
        }
    }
}

/// `tasks` tasks add to a counter that is read and written in separate steps.
fn count(config: Config, tasks: usize, turns: u32, locked: bool) -> (u32, Report) {
    let run = run(config, move || {
        let shared = Rc::new((Lock::default(), Word::default()));
        let started: Vec<_> = (0..tasks)
            .map(|task| {
                let shared = Rc::clone(&shared);
                spawn("adder", Some(task), move || {
                    let add = || {
                        let value = shared.1.load();
                        shared.1.store(value + 1);
                    };
                    (0..turns).for_each(|_| if locked { shared.0.with(add) } else { add() });
                })
            })
            .collect();
        started.into_iter().for_each(join);
        shared.1.load()
    });
    (run.value, run.report)
}

#[test]
fn sim_same_seed_same_run() {
    for schedule in ALL {
        let mut hashes = Vec::new();
        for seed in seeds(30) {
            let config = Config::new(3, seed, schedule);
            let first = count(config.clone(), 4, 20, true);
            // Disturb the heap: the schedule must not depend on addresses.
            let _hole = vec![0_u8; 1000 + usize::try_from(seed).unwrap() * 17];
            let second = count(config, 4, 20, true);
            assert_eq!(first.0, 80);
            assert_eq!(
                first.1.schedule_hash, second.1.schedule_hash,
                "{schedule:?} {seed}"
            );
            assert_eq!(first.1.transfers, second.1.transfers);
            hashes.push(first.1.schedule_hash);
        }
        hashes.sort_unstable();
        hashes.dedup();
        let seeded = !matches!(schedule, Schedule::MinClock { .. });
        if seeds(30).count() > 1 {
            assert_eq!(hashes.len() > 1, seeded, "{schedule:?}: seeds must matter");
        }
    }
}

#[test]
fn sim_lock_excludes_under_every_schedule() {
    for schedule in ALL {
        for seed in seeds(300) {
            let (sum, _) = count(Config::new(2, seed, schedule), 3, 10, true);
            assert_eq!(sum, 30, "seed={seed} {schedule:?}");
        }
    }
}

#[test]
fn sim_canary_unlocked_counter_loses_updates() {
    for schedule in [
        Schedule::Random,
        Schedule::Stall {
            every: 20,
            ns: 20_000,
        },
    ] {
        let lost = (0..20).any(|seed| count(Config::new(2, seed, schedule), 2, 20, false).0 < 40);
        assert!(lost, "{schedule:?} must find a lost update");
    }
}

#[test]
fn sim_run_ahead_changes_times_only() {
    let exact = count(Config::min_clock(4), 4, 200, true);
    let config = Config::new(4, 0, Schedule::MinClock { ahead_ns: 100 });
    let ahead = count(config, 4, 200, true);
    assert_eq!(exact.0, ahead.0);
    assert!(ahead.1.switches <= exact.1.switches);
}

#[test]
fn sim_cores_run_in_parallel_and_tasks_of_one_core_do_not() {
    let work = |core_of_second: usize| {
        run(Config::min_clock(2), move || {
            let busy = || charge(Duration::from_micros(100));
            let tasks = [
                spawn("a", Some(0), busy),
                spawn("b", Some(core_of_second), busy),
            ];
            tasks.into_iter().for_each(join);
        })
        .report
        .virtual_ns
    };
    assert!((100_000..130_000).contains(&work(1)), "{}", work(1));
    assert!((200_000..230_000).contains(&work(0)), "{}", work(0));
}

#[test]
fn sim_sleep_and_timeout_take_virtual_time() {
    let hour = Duration::from_secs(3600);
    let run = run(Config::min_clock(1), move || {
        let start = now_ns().unwrap();
        sleep(hour);
        let slept = now_ns().unwrap() - start;
        let word = Word::default();
        assert_eq!(word.wait(7, Some(hour)), Wake::Changed);
        assert_eq!(word.wait(0, Some(hour)), Wake::TimedOut);
        (slept, now_ns().unwrap() - start)
    });
    let hour = 3_600_000_000_000;
    assert!((hour..hour + 10_000).contains(&run.value.0));
    assert!((2 * hour..2 * hour + 20_000).contains(&run.value.1));
}

#[test]
fn sim_wake_beats_a_later_deadline_and_wakes_the_asked_number() {
    run(Config::min_clock(4), || {
        let word = Rc::new(Word::default());
        let sleepers: Vec<_> = (1..4)
            .map(|core| {
                let word = Rc::clone(&word);
                spawn("sleeper", Some(core), move || {
                    assert_eq!(word.wait(0, Some(Duration::from_secs(9))), Wake::Woken);
                })
            })
            .collect();
        sleep(Duration::from_millis(1));
        assert_eq!(word.wake(2), 2);
        assert_eq!(word.wake(u32::MAX), 1);
        assert_eq!(word.wake(1), 0);
        sleepers.into_iter().for_each(join);
        assert!(
            now_ns().unwrap() < 2_000_000,
            "nobody waited for the deadline"
        );
    });
}

#[test]
fn sim_deadlock_names_the_tasks() {
    let failure = try_run(Config::random(2, 5), || {
        let word = Rc::new(Word::default());
        let other = Rc::clone(&word);
        let task = spawn("forgotten", Some(1), move || {
            while other.wait(0, None) == Wake::Woken {}
        });
        join(task);
    })
    .unwrap_err();
    let FailureKind::Deadlock { tasks } = &failure.kind else {
        panic!("{failure}")
    };
    assert_eq!(tasks.len(), 2);
    assert!(tasks[0].contains("\"main\" on core 0") && tasks[0].contains("waits for the end of"));
    assert!(tasks[1].contains("\"forgotten\" on core 1") && tasks[1].contains("sleeps on 0x"));
    assert!(failure.to_string().starts_with("seed=5 "));
}

#[test]
fn sim_panic_ends_the_run_with_the_seed() {
    let failure = try_run(Config::random(2, 77), || {
        join(spawn("bad", None, || panic!("planned {}", 1)));
    })
    .unwrap_err();
    let text = failure.to_string();
    assert!(
        text.starts_with("seed=77 ") && text.contains("planned 1"),
        "{text}"
    );
    let replay =
        "replay: cargo xtask sim --seed 77 -- machine::sim_panic_ends_the_run_with_the_seed";
    assert!(text.contains("\"bad\"") && text.ends_with(replay), "{text}");
    assert!(!is_running());
    // The thread is fit for another run.
    assert_eq!(run(Config::random(1, 0), || 3).value, 3);
}

/// Its destructor waits for what never comes.
struct Waits(Word);

impl Drop for Waits {
    fn drop(&mut self) {
        while self.0.wait(0, None) == Wake::Woken {}
    }
}

/// It aborted the process, and with it all other tests.
#[test]
fn sim_wait_of_a_task_that_unwinds_ends_the_run_with_its_panic() {
    for seed in 0..4 {
        let failure = try_run(Config::random(2, seed), move || {
            let bad = spawn("bad", Some(1), move || {
                let _waits = Waits(Word::default());
                panic!("planned {seed}");
            });
            join(bad);
        });
        let text = failure.unwrap_err().to_string();
        let planned = format!("panicked: planned {seed}");
        assert!(text.contains(&planned), "{text}");
        // The thread is fit for another run, whose tasks wait.
        let value = run(Config::random(2, seed), || {
            let word = Rc::new(Word::default());
            let setter = Rc::clone(&word);
            let task = spawn("setter", Some(1), move || setter.store(1));
            while word.load() == 0 {
                spin_hint();
            }
            join(task);
            7
        });
        assert_eq!(value.value, 7);
    }
}

#[test]
fn sim_endless_run_meets_the_step_limit() {
    let config = Config::random(2, 1).with_steps_max(1_000);
    let failure = try_run(config, || {
        while is_running() {
            spin_hint();
        }
    });
    let FailureKind::StepLimit { steps_max, tasks } = failure.unwrap_err().kind else {
        panic!("another failure")
    };
    assert_eq!((steps_max, tasks.len()), (1_000, 1));
}

#[test]
fn sim_spinning_for_another_core_makes_progress() {
    for schedule in ALL {
        run(Config::new(2, 3, schedule), || {
            let flag = Rc::new(Word::default());
            let setter = Rc::clone(&flag);
            let task = spawn("setter", Some(1), move || {
                charge(Duration::from_micros(50));
                setter.store(1);
            });
            while flag.load() == 0 {
                spin_hint();
            }
            join(task);
        });
    }
}

#[test]
fn sim_spinner_on_the_same_core_loses_it_after_its_slice() {
    let run = run(Config::min_clock(1), || {
        let flag = Rc::new(Word::default());
        let setter = Rc::clone(&flag);
        let task = spawn("setter", Some(0), move || setter.store(1));
        while flag.load() == 0 {
            spin_hint();
        }
        join(task);
    });
    assert!(run.report.virtual_ns >= 3_000_000, "a whole slice was lost");
}

#[test]
fn sim_yield_lets_the_neighbour_run() {
    run(Config::min_clock(1), || {
        let flag = Rc::new(Word::default());
        let setter = Rc::clone(&flag);
        let task = spawn("setter", Some(0), move || setter.store(1));
        yield_now();
        assert_eq!(flag.load(), 1);
        join(task);
    });
}

#[test]
fn sim_tasks_know_their_core_and_move() {
    for schedule in ALL {
        run(Config::new(3, 1, schedule), || {
            assert_eq!(current_core(), Some(0));
            assert!(move_to(2));
            assert_eq!(current_core(), Some(2));
            assert!(!move_to(3));
            join(spawn("on 1", Some(1), || {
                assert_eq!(current_core(), Some(1))
            }));
        });
    }
}

#[test]
fn sim_locals_belong_to_tasks() {
    run(Config::random(2, 1), || {
        let bump = || {
            with_local(
                1,
                || Cell::new(0),
                |value: &Cell<u32>| {
                    value.set(value.get() + 1);
                    value.get()
                },
            )
        };
        assert_eq!((bump(), bump()), (Some(1), Some(2)));
        join(spawn("other", None, move || assert_eq!(bump(), Some(1))));
    });
}

#[test]
fn sim_random_numbers_follow_the_seed() {
    let draw = |seed| run(Config::random(1, seed), random).value;
    assert_eq!(draw(4), draw(4));
    assert_ne!(draw(4), draw(5));
}

#[test]
fn sim_the_most_cores_share_a_line() {
    let cores = dure_vcpu::CORES_MAX;
    for schedule in ALL {
        let (sum, report) = count(Config::new(cores, 1, schedule), cores, 3, true);
        assert_eq!(sum, u32::try_from(3 * cores).unwrap(), "{schedule:?}");
        assert!(report.transfers > 0);
    }
}

#[test]
fn sim_private_lines_cost_no_transfer() {
    let run = run(Config::min_clock(8), || {
        let tasks: Vec<_> = (0..8)
            .map(|core| {
                spawn("private", Some(core), || {
                    let word = Box::new(Word::default());
                    (0..100).for_each(|turn| word.store(turn));
                })
            })
            .collect();
        tasks.into_iter().for_each(join);
    });
    assert_eq!(run.report.transfers, 0);
}

/// A core writes 400,000 bytes in 100 us, the modules of a socket in as long: those of one socket
/// serve two cores in turn, those of two at once, and another socket's are 60 ns farther.
#[test]
fn sim_persistent_memory_is_on_the_socket_where_it_was_placed() {
    let time = |sockets: [Option<usize>; 2]| {
        let mut config = Config::min_clock(2);
        config.model.cores_per_socket = 1;
        (config.model.transfer_ns, config.model.transfer_far_ns) = (40, 100);
        config.model.persistent = Some(PersistentCosts {
            latency_ns: 0,
            read_mb_s: 4_000,
            write_mb_s: 4_000,
            socket_read_mb_s: 4_000,
            socket_write_mb_s: 4_000,
        });
        let work = move || {
            for (number, socket) in sockets.into_iter().enumerate() {
                if let Some(socket) = socket {
                    place_persistent(number * 4096..(number + 1) * 4096, socket);
                }
            }
            let copy =
                |number: usize| move || copy_persistent(Access::Store, number * 4096, 400_000);
            let tasks = [0, 1].map(|core| spawn("copy", Some(core), copy(core)));
            tasks.into_iter().for_each(join);
        };
        run(config, work).report.virtual_ns
    };
    let own = time([None, None]);
    assert!((100_000..130_000).contains(&own), "{own}");
    assert_eq!(time([Some(0), Some(1)]), own);
    let one = time([Some(0), Some(0)]);
    assert!((200_000..230_000).contains(&one), "{one}");
    let crossed = time([Some(1), Some(0)]);
    assert_eq!(crossed, own + 60);
}

#[test]
fn calls_outside_a_machine_do_nothing() {
    assert!(!is_running());
    access(Access::Update, 64);
    charge(Duration::from_secs(1));
    assert_eq!((now_ns(), random(), current_core()), (None, None, None));
    assert!(!move_to(0));
}

//! Random sequences of calls on dure and on the model: every answer and every tree must be the
//! same.
//!
//! A failure prints its seed and the shortest sequence found. `DURE_SEED` sets the first seed,
//! `DURE_CASES` the number of cases of each test.

use dure::MountOptions;
use dure_sim::model::{
    ModelFs, Mounted, Operation, Real, Step, agree, compare, compare_mounted, shrink,
};
use dure_sync::{amount, thread};

use generator::sequence;

mod generator;

const VOLUME_BYTES: u64 = 256 << 20;
const STEPS: usize = 60;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("DURE_SEED and DURE_CASES are numbers"))
}

fn seeds(usual: u64) -> std::ops::Range<u64> {
    let first = number("DURE_SEED").unwrap_or(0);
    first..first + number("DURE_CASES").unwrap_or(amount::either(usual.div_ceil(3), usual))
}

fn small_cache() -> MountOptions {
    MountOptions {
        cache_bytes: 1 << 20,
        ..MountOptions::default()
    }
}

/// Does the steps on a new volume, closes it and checks it.
fn run(steps: &[Step], mount: MountOptions) -> Result<(), String> {
    let mut real = Real::new(VOLUME_BYTES, mount).map_err(|error| error.to_string())?;
    compare(&mut real, steps)?;
    real.close()
}

fn run_seed(seed: u64, count: usize, mount: &MountOptions) {
    let steps = sequence(seed, count);
    if let Err(what) = run(&steps, mount.clone()) {
        let least = shrink(steps, |steps| run(steps, mount.clone()).is_err());
        let last = run(&least, mount.clone()).expect_err("it fails");
        let lines: Vec<String> = least.iter().map(|step| format!("    {step:?}")).collect();
        panic!(
            "seed={seed} of {count} steps: {what}\nshortest: {last}\n{}",
            lines.join("\n")
        );
    }
}

#[test]
fn dure_does_what_the_model_does() {
    for seed in seeds(300) {
        run_seed(seed, STEPS, &MountOptions::default());
    }
}

#[test]
fn with_a_tiny_cache_too() {
    for seed in seeds(100) {
        run_seed(seed + 1_000_000, STEPS, &small_cache());
    }
}

#[test]
fn with_other_policies_too() {
    const POLICIES: &[&str] = &[
        "journal=zjournal",
        "data=journal,fsync=all",
        "journal=jbd2,data=journal",
        "flush=two,alloc=global,log-data=0",
        "data=writeback,log-data=0",
        "node_lock=mutex,range_lock=tree,range_lock_wait=queue",
        "node_lock=rwsem,range_lock=bitmap,journal=zjournal",
    ];
    for (number, policies) in (0..).zip(POLICIES) {
        let mut mount = small_cache();
        for policy in policies.split(',') {
            let (key, value) = policy.split_once('=').expect("key=value");
            assert_eq!(mount.set_policy(key, value), Ok(true), "{policy}");
        }
        for seed in seeds(25) {
            run_seed(seed + 5_000_000 + 100_000 * number, STEPS, &mount);
        }
    }
}

#[test]
fn over_long_sequences_too() {
    for seed in seeds(8) {
        run_seed(seed + 2_000_000, 400, &small_cache());
    }
}

#[test]
fn two_threads_in_different_subtrees_do_not_notice_each_other() {
    for seed in seeds(40) {
        let mut real = Real::new(VOLUME_BYTES, small_cache()).expect("the volume is made");
        let root = real.mounted().root().clone();
        let results = thread::scope(|scope| {
            let threads = [("left", 3_000_000 + seed), ("right", 4_000_000 + seed)];
            let threads = threads.map(|(name, seed)| {
                root.create_dir_with_mode(name, 0o755)
                    .expect("the volume is empty");
                let mut mounted = Mounted::new(&root.with_root(name).expect("it was made"));
                scope.spawn(move || compare_mounted(&mut mounted, &sequence(seed, STEPS)))
            });
            threads.map(|thread| thread.join().expect("no panic"))
        });
        for result in results {
            result.unwrap_or_else(|what| panic!("seed={seed}: {what}"));
        }
        drop(root);
        real.close()
            .unwrap_or_else(|what| panic!("seed={seed}: {what}"));
    }
}

/// The canary: a model that forgets one kind of call must be noticed.
#[test]
fn a_forgotten_call_is_noticed() {
    let differs = |seed| {
        let mut real = Real::new(VOLUME_BYTES, MountOptions::default()).expect("a new volume");
        let mut model = ModelFs::new();
        sequence(seed, 2 * STEPS).iter().any(|step| {
            let forgotten = matches!(step.operation, Operation::Mkdir { .. });
            let got = real.apply(step);
            !forgotten && !agree(&model.apply(step), &got)
        })
    };
    let noticed = (0..10).filter(|seed| differs(*seed)).count();
    assert!(
        noticed >= 5,
        "{noticed} of 10 sequences showed that mkdir did nothing"
    );
}

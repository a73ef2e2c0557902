//! What the calls cost on one warm core. `cargo test --release -p dure-fs -- --ignored speed --nocapture`

use super::*;

/// Best of five rounds, in ns per call.
fn best(calls: u64, mut round: impl FnMut()) -> u64 {
    (0..5)
        .map(|_| {
            let start = dure_sync::clock::monotonic_ns();
            round();
            (dure_sync::clock::monotonic_ns() - start) / calls
        })
        .min()
        .expect("five rounds")
}

#[test]
#[ignore = "a measurement: cargo test --release -p dure-fs --lib -- --ignored --nocapture speed"]
#[expect(clippy::print_stdout, reason = "the numbers are its result")]
fn speed() {
    let (_disk, fs) = fresh();
    let root = fs.root().unwrap();
    let dir = fs.mkdir(&root, b"d", &directory()).unwrap();
    let names: Vec<String> = (0..20).map(|n| format!("file-{n}")).collect();
    let open: Vec<InodeRef> = names
        .iter()
        .map(|name| fs.create(&dir, name.as_bytes(), &file()).unwrap())
        .collect();
    let calls = 20_000;
    let stat_ns = best(calls, || {
        (0..calls).for_each(|_| {
            std::hint::black_box(fs.attributes(&open[3]).unwrap());
        });
    });
    let stat_dir_ns = best(calls, || {
        (0..calls).for_each(|_| {
            std::hint::black_box(fs.attributes(&dir).unwrap());
        });
    });
    let lookup_ns = best(calls, || {
        (0..calls).for_each(|n| {
            let name = names[usize::try_from(n % 20).unwrap()].as_bytes();
            assert!(fs.lookup(&dir, name).unwrap().is_some());
        });
    });
    let make_ns = best(calls, || {
        for _ in 0..calls {
            fs.create(&dir, b"new", &file()).unwrap();
            fs.unlink(&dir, b"new").unwrap();
        }
    });
    let chmod = crate::SetAttributes {
        mode: Some(0o600),
        ..Default::default()
    };
    let chmod_ns = best(calls, || {
        for _ in 0..calls {
            fs.set_attributes(&open[0], &chmod).unwrap();
        }
    });
    println!(
        "stat {stat_ns} ns, of a directory {stat_dir_ns} ns, lookup {lookup_ns} ns, \
         create + unlink {make_ns} ns, chmod {chmod_ns} ns"
    );
}

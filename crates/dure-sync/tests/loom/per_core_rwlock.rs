//! The gate of a per-core lock.

use dure_sync::{Arc, PerCoreRwLock, Weaken, thread};

use super::{canaries, explore_with};

type Lock = PerCoreRwLock<10, (u32, u32)>;

/// Two readers who may meet, so that the gate opens, and a writer.
fn readers_and_a_writer() {
    let lock: Arc<Lock> = Arc::default();
    let reader = |lock: Arc<Lock>| {
        thread::spawn("reader", move || {
            let seen = lock.read();
            assert_eq!(seen.0, seen.1);
        })
    };
    let first = reader(Arc::clone(&lock));
    {
        let seen = lock.read();
        assert_eq!(seen.0, seen.1);
    }
    first.join().unwrap();
    let second = reader(Arc::clone(&lock));
    {
        let mut data = lock.write();
        data.0 += 1;
        data.1 += 1;
    }
    second.join().unwrap();
    assert_eq!(*lock.read(), (1, 1));
}

#[test]
fn a_writer_waits_for_readers_behind_the_gate() {
    let exploration = || explore_with(3, readers_and_a_writer);
    exploration();
    canaries(
        exploration,
        &[Weaken::Acquire, Weaken::Release, Weaken::SeqCst],
    );
}

/// Who only tries finds the lock taken, or has the data alone.
fn a_trying_writer() {
    let lock: Arc<Lock> = Arc::default();
    let other = Arc::clone(&lock);
    let reader = thread::spawn("reader", move || {
        for _ in 0..2 {
            let seen = other.read();
            assert_eq!(seen.0, seen.1);
        }
    });
    drop(lock.read());
    if let Some(mut data) = lock.try_write() {
        data.0 += 1;
        data.1 += 1;
    }
    reader.join().unwrap();
    let seen = lock.read();
    assert_eq!(seen.0, seen.1);
}

#[test]
fn a_writer_that_tries_has_the_data_alone_or_not() {
    explore_with(3, a_trying_writer);
    canaries(|| explore_with(3, a_trying_writer), &[Weaken::SeqCst]);
}

//! Programs with the library loaded: each test runs this program again, as `dure run` would, and has it
//! do a part that is named in its environment.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a test calls the C library as a program in C does"
)]

mod descriptors;
mod ends;
mod positions;
mod random;
mod run;
mod signals;

/// Both ways to a file: calls of the C library, which are the library's, and system calls, which are the
/// kernel's.
#[test]
fn part() {
    let Some(part) = std::env::var_os(run::PART) else {
        return;
    };
    let parts: [(&str, fn()); 18] = [
        ("positions", positions::part),
        ("appends", positions::appends),
        ("vectors", positions::vectors),
        ("children", positions::children),
        ("duplicates", descriptors::duplicates),
        ("closes", descriptors::closes),
        ("streams", descriptors::streams),
        ("sizes", descriptors::sizes),
        ("copies", descriptors::copies),
        ("clones", descriptors::clones),
        ("copied memory", positions::copied_memory),
        ("random", random::part),
        ("handlers", signals::part),
        ("threads", signals::threads),
        ("writes", ends::writes),
        ("execs", ends::execs),
        ("disagrees", ends::disagrees),
        ("goes on", ends::goes_on),
    ];
    let found = parts.iter().find(|(name, _)| part == *name);
    found.expect("a part has a name").1();
}

//! What manual pages and `--help` say beside the arguments: examples and exit statuses; and the
//! words of `-o`, for completions.
//!
//! **Structure.** [`PAGES`] has a page for each command. [`command`] is the command line with them,
//! which the program parses with; `cargo xtask dist` makes the manual from the same table.
//! **Invariants.** Every command has examples; a test runs those that need no other machine.
//! **Crash.** Nothing.

use clap::CommandFactory;

use crate::args::Args;

/// What a command needs besides its arguments.
#[derive(Debug)]
pub struct Page {
    /// The command, with the commands above it: `bench micro`.
    pub command: &'static str,
    /// What for, and the line.
    pub examples: &'static [(&'static str, &'static str)],
    /// Exit statuses; none: [`STATUS`].
    pub status: &'static [(&'static str, &'static str)],
}

/// The exit statuses of most commands.
pub const STATUS: &[(&str, &str)] = &[
    ("0", "done"),
    ("1", "it failed; standard error says why"),
    ("2", "wrong arguments"),
];

const CHECK: &[(&str, &str)] = &[
    ("0", "nothing is wrong"),
    ("1", "errors were found and repaired"),
    ("4", "errors are left"),
    ("8", "the check itself failed; standard error says why"),
    ("16", "wrong arguments"),
];
const RESCUE: &[(&str, &str)] = &[
    ("0", "all is there"),
    ("1", "the rescue failed; what was copied stays"),
    ("2", "wrong arguments"),
    (
        "4",
        "something is lost, each in a line that begins with 'lost:'",
    ),
];
const UNDO: &[(&str, &str)] = &[
    ("0", "the volume is as it was before the repair"),
    ("1", "refused, or it failed; standard error says why"),
    ("2", "wrong arguments"),
];
const CRASH: &[(&str, &str)] = &[
    ("0", "every state was as the contract allows"),
    ("1", "a state was not, or it failed"),
    ("2", "wrong arguments"),
];
const CONFLICTS: &[(&str, &str)] = &[
    ("0", "every call answered as the model says"),
    (
        "1",
        "one did not, or the share is below --at-least, or it failed",
    ),
    ("2", "wrong arguments"),
];

const fn page(
    command: &'static str,
    examples: &'static [(&'static str, &'static str)],
    status: &'static [(&'static str, &'static str)],
) -> Page {
    Page {
        command,
        examples,
        status,
    }
}

/// The pages, in the order of the commands.
pub const PAGES: &[Page] = &[
    page(
        "mkfs",
        &[
            (
                "An image file of 1 GiB, which takes room as it is used",
                "dure mkfs new.img --size 1G",
            ),
            (
                "The same by the name that mkfs(8) calls",
                "mkfs.dure --size 1G -L data other.img",
            ),
        ],
        STATUS,
    ),
    page(
        "mount",
        &[
            (
                "Until dure umount, or the next boot",
                "dure mount v.img dir",
            ),
            (
                "To look only, with a cache of 64 MiB",
                "dure mount -o ro,cache=64M v.img dir",
            ),
            (
                "With numbers for Prometheus",
                "dure mount --metrics unix:/run/dure.prom v.img dir",
            ),
            (
                "At each boot, a line of /etc/fstab",
                "/srv/v.img  /srv/data  dure  defaults,nofail  0 0",
            ),
        ],
        STATUS,
    ),
    page(
        "umount",
        &[("It returns when everything is durable", "dure umount dir")],
        STATUS,
    ),
    page(
        "check",
        &[
            ("Structures only", "dure check v.img"),
            ("File data, too", "dure check --data v.img"),
            (
                "Repair, and keep what is needed to take the repair back",
                "dure check --repair --undo /dev/shm/v.undo v.img",
            ),
        ],
        CHECK,
    ),
    page(
        "undo",
        &[(
            "After a repair with --undo",
            "dure undo /dev/shm/v.undo v.img",
        )],
        UNDO,
    ),
    page(
        "rescue",
        &[(
            "Copy out what is left, and keep what is lost in a list",
            "dure rescue v.img rescued 2> lost",
        )],
        RESCUE,
    ),
    page(
        "resize",
        &[
            ("An image file", "dure resize v.img 128M"),
            ("A partition that was made larger", "dure resize /dev/sdX1"),
            ("While it is mounted", "dure resize /srv/data 2G"),
        ],
        STATUS,
    ),
    page(
        "trim",
        &[("After files were removed", "dure trim v.img")],
        STATUS,
    ),
    page(
        "info",
        &[
            ("Size, room and history", "dure info v.img"),
            ("What recovery would do", "dure info --journal v.img"),
        ],
        STATUS,
    ),
    page(
        "top",
        &[
            ("Every two seconds", "dure top -d 2 v.img"),
            ("Once, for a program", "dure top --once --json v.img"),
        ],
        STATUS,
    ),
    page("ls", &[("All there is", "dure ls -lR v.img /")], STATUS),
    page(
        "cat",
        &[("A file to standard output", "dure cat v.img /note")],
        STATUS,
    ),
    page(
        "put",
        &[(
            "A file of the host into a directory",
            "dure put v.img note /",
        )],
        STATUS,
    ),
    page(
        "get",
        &[(
            "A file to the host, under another name",
            "dure get v.img /note copied",
        )],
        STATUS,
    ),
    page("rm", &[("A tree", "dure rm -r v.img /tree")], STATUS),
    page(
        "mkdir",
        &[("With its parents", "dure mkdir -p v.img /tree/deep")],
        STATUS,
    ),
    page(
        "dump",
        &[
            ("Which slots count", "dure dump v.img volume"),
            ("An inode", "dure dump v.img inode 1"),
        ],
        STATUS,
    ),
    page(
        "demo",
        &[("Without FUSE", "dure demo --no-mount --size 256M")],
        STATUS,
    ),
    page(
        "bench",
        &[(
            "Beside the file system of this directory",
            "dure bench fxmark --help",
        )],
        STATUS,
    ),
    page(
        "blk",
        &[("What limits a disk", "dure blk analyze --help")],
        STATUS,
    ),
    page(
        "sim",
        &[("A hundred workloads", "dure sim crash --count 100")],
        STATUS,
    ),
    page(
        "sim crash",
        &[(
            "A hundred workloads of two operations",
            "dure sim crash --seq 2 --count 100",
        )],
        CRASH,
    ),
    page(
        "sim conflicts",
        &[("One pair in a hundred", "dure sim conflicts --every 100")],
        CONFLICTS,
    ),
];

/// The page of a command, `NAME` or `ABOVE NAME`.
#[must_use]
pub fn of(command: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.command == command)
}

/// The words of `dure mount -o` that completions offer; `KEY=` takes any value.
pub const MOUNT_WORDS: &[&str] = &[
    "ro",
    "rw",
    "sync",
    "dirsync",
    "relatime",
    "noatime",
    "strictatime",
    "nodiratime",
    "nosuid",
    "nodev",
    "noexec",
    "nosymfollow",
    "lazytime",
    "silent",
    "suid",
    "dev",
    "exec",
    "remount",
    "allow_other",
    "writethrough",
    "writeback",
    "uid=",
    "gid=",
    "cache=",
    "commit=",
    "log=",
    "metrics=",
    "log-level=error",
    "log-level=warning",
    "log-level=info",
    "log-level=debug",
    "transport=device",
    "transport=uring",
    "ring_policy=idle",
    "ring_policy=other",
    "nvm=auto",
    "nvm=off",
    "nvm=direct",
    "nvm=emulated",
    "nvm=optane",
    "page_cache=dram",
    "page_cache=nvram",
    "page_cache=none",
    "nvram=",
    "nvram_low=",
    "nvram_absorb=all",
    "nvram_absorb=sync",
    "durability=posix",
    "durability=strict",
    "recover=whole",
    "recover=tolerate",
    "journal=per-core",
    "journal=single",
    "journal=zjournal",
    "journal=jbd2",
    "data=ordered",
    "data=writeback",
    "data=journal",
    "fsync=closure",
    "fsync=all",
    "flush=one",
    "flush=two",
    "log-data=",
    "alloc=local",
    "alloc=global",
    "numa=local",
    "numa=interleave",
    "numa=first",
    "topology=",
    "active_logs=4",
    "active_logs=2",
    "range_lock=segment",
    "range_lock=bitmap",
    "range_lock=tree",
    "range_lock=inode",
    "range_lock=rwsem",
    "range_lock_wait=try",
    "range_lock_wait=queue",
    "segment_size=",
    "node_lock=optimistic",
    "node_lock=rwsem",
    "node_lock=mutex",
    "blk.hw_queues=",
    "blk.nr_requests=",
    "blk.merge=on",
    "blk.merge=off",
    "blk.poll=sleep",
    "blk.poll=poll",
    "blk.poll=hybrid",
    "submit_lock=none",
    "submit_lock=writes",
    "submit_lock=all",
    "dirty_limit=",
    "dirty_limit=none",
    "workers=",
    "trace=",
];

/// The command line, whose long help ends with examples and exit statuses.
#[must_use]
pub fn command() -> clap::Command {
    PAGES.iter().fold(Args::command(), |command, page| {
        let mut words = page.command.split(' ');
        let name = words.next().expect("a command has a name");
        let rest: Vec<&str> = words.collect();
        command.mut_subcommand(name, |found| match rest.as_slice() {
            [below, ..] => found.mut_subcommand(*below, |found| with_help(found, page)),
            [] => with_help(found, page),
        })
    })
}

fn with_help(command: clap::Command, page: &Page) -> clap::Command {
    let mut text = String::new();
    if let Some(before) = command.get_after_long_help() {
        text.push_str(&before.to_string());
        text.push_str("\n\n");
    }
    text.push_str("Examples:\n");
    for (what, line) in page.examples {
        text.push_str(&format!("  {what}:\n      {line}\n"));
    }
    text.push_str("\nExit status:\n");
    for (status, meaning) in page.status {
        text.push_str(&format!("  {status}  {meaning}\n"));
    }
    command.after_long_help(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_every_page_a_command() {
        let all = command();
        for found in all.get_subcommands() {
            let page = of(found.get_name()).unwrap_or_else(|| panic!("{}", found.get_name()));
            assert!(!page.examples.is_empty() && page.status.len() > 1);
        }
        for page in PAGES {
            let found = page
                .command
                .split(' ')
                .try_fold(&all, |command, word| command.find_subcommand(word));
            let help = found.expect(page.command).get_after_long_help();
            let help = help.expect("examples").to_string();
            assert!(help.contains("Exit status:\n  0"), "{help}");
        }
    }
}

//! Pages of commands that use volumes, and of the proofs. A test runs their examples.

use super::{CLOSED, Page, STATUS, Statuses, page};
use crate::exit;

const CHECK: Statuses = &[
    (
        exit::OK,
        "nothing is wrong, or what is wrong costs only room (warnings)",
    ),
    (exit::CHECK_REPAIRED, "errors were found and repaired"),
    (exit::CHECK_ERRORS_LEFT, "errors are left"),
    (
        exit::CHECK_FAILED,
        "the check itself failed; standard error says why",
    ),
    (exit::CHECK_USAGE, "wrong arguments"),
    CLOSED,
];
const RESCUE: Statuses = &[
    (exit::OK, "all is there"),
    (exit::FAILED, "the rescue failed; what was copied stays"),
    (exit::USAGE, "wrong arguments"),
    (
        exit::RESCUE_LOST,
        "something is lost, each in a line that begins with 'lost:'",
    ),
    CLOSED,
];
const UNDO: Statuses = &[
    (exit::OK, "the volume is as it was before the repair"),
    (
        exit::FAILED,
        "refused, or it failed; standard error says why",
    ),
    (exit::USAGE, "wrong arguments"),
    CLOSED,
];
const RUN: Statuses = &[
    (exit::OK, "the program has ended with 0"),
    (
        exit::FAILED,
        "the program did, or was not begun; standard error says why",
    ),
    (exit::USAGE, "wrong arguments, or the program says so"),
    (
        128,
        "and the number of the signal that has ended the program; any other is the program's",
    ),
];
const CRASH: Statuses = &[
    (exit::OK, "every state was as the contract allows"),
    (exit::FAILED, "a state was not, or it failed"),
    (exit::USAGE, "wrong arguments"),
    CLOSED,
];
const VALIDATE: Statuses = &[
    (
        exit::OK,
        "every prediction is within a quarter of what was measured",
    ),
    (exit::FAILED, "one is not, or it failed"),
    (exit::USAGE, "wrong arguments"),
];
const CONFLICTS: Statuses = &[
    (exit::OK, "every call answered as the model says"),
    (
        exit::FAILED,
        "one did not, or the share is below --at-least, or it failed",
    ),
    (exit::USAGE, "wrong arguments"),
    CLOSED,
];

/// As of a check.
const SCRUB: Statuses = &[
    (
        exit::OK,
        "nothing is known to be damaged; or, without --wait, it was started",
    ),
    (exit::CHECK_REPAIRED, "what was damaged was mended"),
    (exit::CHECK_ERRORS_LEFT, "something is damaged"),
    (
        exit::CHECK_FAILED,
        "it failed, or the volume is not mounted; standard error says why",
    ),
    (exit::CHECK_USAGE, "wrong arguments"),
    CLOSED,
];

const SCRUB_PAUSE: Statuses = &[
    (exit::OK, "no scrub runs"),
    (
        exit::CHECK_FAILED,
        "it failed, or the volume is not mounted; standard error says why",
    ),
    (exit::CHECK_USAGE, "wrong arguments"),
    CLOSED,
];

/// The pages of commands that use volumes, in the order of the commands.
pub(super) const PAGES: &[Page] = &[
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
            (
                "With two copies of the tables that say where nodes are, and what is free",
                "dure mkfs two.img --size 1G --metadata-copies 2",
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
        "run",
        &[
            ("In the root of the volume", "dure run v.img -- ls -l"),
            (
                "Where you are, with the volume on a directory",
                "dure run v.img:dir -- dd if=/dev/zero of=dir/zeroes bs=4k count=1000",
            ),
        ],
        RUN,
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
        "upgrade",
        &[
            (
                "What a volume has, and could have",
                "dure upgrade --list v.img",
            ),
            ("Turn on one feature", "dure upgrade --feature clones v.img"),
            ("Turn on all", "dure upgrade v.img"),
        ],
        STATUS,
    ),
    page(
        "snapshot",
        &[
            ("Before an upgrade", "dure snapshot create /srv/data before"),
            ("What there is", "dure snapshot list /srv/data"),
            (
                "Look into one",
                "dure snapshot mount /srv/data before /mnt/before",
            ),
        ],
        STATUS,
    ),
    page(
        "snapshot create",
        &[(
            "Of a mounted volume",
            "dure snapshot create /srv/data monday",
        )],
        STATUS,
    ),
    page(
        "snapshot list",
        &[("For a program", "dure snapshot list --json v.img")],
        STATUS,
    ),
    page(
        "snapshot diff",
        &[
            (
                "What has changed since",
                "dure snapshot diff /srv/data monday",
            ),
            (
                "Between two, for a program",
                "dure snapshot diff --json /srv/data monday tuesday",
            ),
        ],
        STATUS,
    ),
    page(
        "snapshot delete",
        &[(
            "Two at once",
            "dure snapshot delete /srv/data monday tuesday",
        )],
        STATUS,
    ),
    page(
        "snapshot rename",
        &[("Another name", "dure snapshot rename /srv/data monday kept")],
        STATUS,
    ),
    page(
        "snapshot restore",
        &[(
            "All files as they were, and back",
            "dure snapshot create v.img monday && dure snapshot restore v.img monday && \
             dure snapshot restore v.img before-monday",
        )],
        STATUS,
    ),
    page(
        "snapshot mount",
        &[(
            "Copy a file back",
            "dure snapshot mount /srv/data monday m && cp m/file /srv/data && dure umount m",
        )],
        STATUS,
    ),
    page(
        "quota",
        &[
            ("Count from now on", "dure quota enable /srv/data"),
            (
                "10 GiB for a user, up to 12 GiB for a week",
                "dure quota set /srv/data --user 1000 --soft 10G --hard 12G",
            ),
            ("Usage and limits", "dure quota list /srv/data"),
        ],
        STATUS,
    ),
    page(
        "quota enable",
        &[("Of a mounted volume", "dure quota enable /srv/data")],
        STATUS,
    ),
    page(
        "quota disable",
        &[("Without any limit again", "dure quota disable /srv/data")],
        STATUS,
    ),
    page(
        "quota set",
        &[
            (
                "A group, never more than 100 GiB",
                "dure quota set /srv/data --group 100 --hard 100G",
            ),
            (
                "A user, by name",
                "dure quota set /srv/data --user $(id -u alice) --hard-inodes 100000",
            ),
            (
                "No limit of bytes any more",
                "dure quota set /srv/data --user 1000 --soft 0 --hard 0",
            ),
        ],
        STATUS,
    ),
    page(
        "quota project",
        &[
            (
                "A directory with all below it",
                "dure quota project v.img /tree 7",
            ),
            (
                "What it may have, once quotas are on",
                "dure quota set /srv/data --project 7 --hard 10G",
            ),
            (
                "Of what project a directory is",
                "dure quota project v.img /tree",
            ),
            ("None any more", "dure quota project v.img /tree 0"),
        ],
        STATUS,
    ),
    page(
        "quota list",
        &[(
            "For a program",
            "dure quota enable v.img && dure quota list --json v.img",
        )],
        STATUS,
    ),
    page(
        "send",
        &[
            (
                "A snapshot, to a file",
                "dure snapshot create v.img monday && dure send v.img monday > monday.stream",
            ),
            (
                "What differs from it, to another machine",
                "dure send /srv/data tuesday --from monday | ssh backup dure receive /dev/sdX1",
            ),
        ],
        STATUS,
    ),
    page(
        "receive",
        &[
            (
                "A copy of a snapshot",
                "dure mkfs copy.img --size 64M && dure snapshot create v.img monday && \
                 dure send v.img monday | dure receive copy.img",
            ),
            (
                "A stream in a file: whether it is whole",
                "dure send v.img monday > monday.stream && dure receive --check < monday.stream",
            ),
        ],
        STATUS,
    ),
    page(
        "scrub",
        &[
            ("In idle time", "dure scrub start /srv/data"),
            ("How far it is", "dure scrub status /srv/data"),
        ],
        SCRUB,
    ),
    page(
        "scrub start",
        &[(
            "All of it now, at 100 MiB a second",
            "dure scrub start --wait --rate 100 /srv/data",
        )],
        SCRUB,
    ),
    page(
        "scrub status",
        &[("For a program", "dure scrub status --json /srv/data")],
        SCRUB,
    ),
    page(
        "scrub pause",
        &[("Until the next start", "dure scrub pause /srv/data")],
        SCRUB_PAUSE,
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
    page(
        "clone",
        &[(
            "A tree, which takes no room",
            "dure clone v.img /tree /copy",
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
    page(
        "sim explain",
        &[(
            "Marks of Z-Journal's transactions",
            "dure sim explain zjournal",
        )],
        STATUS,
    ),
    page(
        "sim scale",
        &[
            (
                "Overwrites of private files on one core and on 80",
                "dure sim scale --workload DWOL --cores 1,80",
            ),
            (
                "One journal against one for each core",
                "dure sim scale --workload DWOL --cores 80 --policy journal=jbd2,data=journal \
                 --policy journal=per-core,data=journal",
            ),
        ],
        STATUS,
    ),
    page(
        "sim experiments",
        &[
            (
                "All figures, as a page to look at",
                "dure sim experiments --html figures.html",
            ),
            (
                "One of them, for a program",
                "dure sim experiments --figure 000-2a --json",
            ),
        ],
        STATUS,
    ),
    page(
        "sim calibrate",
        &[(
            "The file of this machine",
            "dure sim calibrate --output this.toml",
        )],
        STATUS,
    ),
    page(
        "sim validate",
        &[("The model against this machine", "dure sim validate")],
        VALIDATE,
    ),
];

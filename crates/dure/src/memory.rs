//! How large a cache may be.

use std::fs;
use std::path::Path;

/// A quarter of this machine's memory in bytes, or of what the control group of this process may
/// use: what `dure mount` takes for its cache unless it is told otherwise
/// ([`MountOptions::cache_bytes`](crate::MountOptions::cache_bytes)).
#[must_use]
pub fn quarter_of_memory() -> u64 {
    let system = rustix::system::sysinfo();
    let machine = u64::from(system.mem_unit) * system.totalram;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = group_limit(Path::new("/sys/fs/cgroup"), &groups);
    limit.map_or(machine, |limit| limit.min(machine)) / 4
}

/// The least `memory.max` of the control group in `groups` (as in /proc/PID/cgroup, version 2), and
/// of those above it, in the tree at `root`.
fn group_limit(root: &Path, groups: &str) -> Option<u64> {
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let own = root.join(own);
    let paths = own.ancestors().take_while(|path| path.starts_with(root));
    let limits = paths.filter_map(|path| {
        let text = fs::read_to_string(path.join("memory.max")).ok()?;
        text.trim().parse().ok()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::group_limit;

    #[test]
    fn a_machine_has_memory() {
        let quarter = super::quarter_of_memory();
        assert!((1 << 20..1 << 48).contains(&quarter), "{quarter} bytes");
    }

    #[test]
    fn the_least_limit_of_a_group_and_those_above_it_counts() {
        let root = tempfile::tempdir().unwrap();
        let limit = |path: &str, text: &str| {
            fs::create_dir_all(root.path().join(path)).unwrap();
            fs::write(root.path().join(path).join("memory.max"), text).unwrap();
        };
        limit("a", "1048576\n");
        limit("a/b", "max\n");
        limit("a/c", "4096\n");
        let of = |groups: &str| group_limit(root.path(), groups);
        assert_eq!(of("0::/a/b\n"), Some(1 << 20));
        assert_eq!(of("1:memory:/x\n0::/a/c\n"), Some(4096));
        assert_eq!(of("0::/\n"), None);
        assert_eq!(of("0::/gone\n"), None);
        assert_eq!(of(""), None);
    }
}

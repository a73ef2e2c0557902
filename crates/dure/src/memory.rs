//! How large a cache may be.

/// A quarter of this machine's memory in bytes: what `dure mount` takes for its cache unless it is
/// told otherwise ([`MountOptions::cache_bytes`](crate::MountOptions::cache_bytes)).
#[must_use]
pub fn quarter_of_memory() -> u64 {
    let system = rustix::system::sysinfo();
    u64::from(system.mem_unit) * system.totalram / 4
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_machine_has_memory() {
        let quarter = super::quarter_of_memory();
        assert!((1 << 24..1 << 48).contains(&quarter), "{quarter} bytes");
    }
}

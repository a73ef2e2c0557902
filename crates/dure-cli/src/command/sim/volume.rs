//! On what the volumes of the workloads lie, and how they are mounted.

use anyhow::{Result, anyhow, bail};
use dure_block::record::Cache;
use dure_fs::{DataMode, MountOptions, NodeLog, NumaPolicy, PageCaching};
use dure_sim::crash::{On, Options};

use crate::args::{Media, SimCrash};

/// `mount` with the policies of `--mount`.
pub(in crate::command) fn with_policies(
    mut mount: MountOptions,
    policies: &[String],
) -> Result<MountOptions> {
    for policy in policies.iter().filter(|policy| !policy.is_empty()) {
        let (key, value) = policy.split_once('=').unwrap_or((policy, ""));
        let set = mount.set_policy(key, value);
        if !set.map_err(|what| anyhow!("--mount {what}"))? {
            bail!("--mount {policy}: no policy has that name; `dure sim crash --help` lists them");
        }
    }
    Ok(mount)
}

/// How the volumes of all workloads are mounted.
pub(super) fn options(args: &SimCrash) -> Result<Options> {
    let is_nvm = |policy: &&String| policy.starts_with("nvm=");
    let mut options = match args.mount.iter().find(is_nvm).map(String::as_str) {
        None => Options::default(),
        Some("nvm=emulated") => Options::on_nvm(),
        Some(other) => bail!("--mount {other}: nvm=emulated is the one that can be simulated"),
    };
    let policies: Vec<String> = args
        .mount
        .iter()
        .filter(|policy| !is_nvm(policy))
        .cloned()
        .collect();
    options.media = match (args.media, options.cache) {
        (Media::Disk, _) => On::Disk,
        (_, Cache::None) => bail!("--media: nvm=emulated is one device in persistent memory"),
        (Media::Copies, _) => On::Copies,
        (Media::Hybrid, _) => On::Hybrid(NodeLog::Nvm),
        (Media::HybridLogsOnDisk, _) => On::Hybrid(NodeLog::Block),
        (Media::HybridRegions, _) => On::HybridRegions,
    };
    if options.media == On::HybridRegions {
        options.mount.numa.policy = NumaPolicy::Interleave;
    }
    options.mount = with_policies(options.mount, &policies)?;
    if options.mount.page_cache == Some(PageCaching::None) {
        match (options.media, options.cache) {
            (On::Disk, Cache::None) => options.media = On::Nvm,
            _ => bail!("--mount page_cache=none: it needs nvm=emulated, and nothing on a disk"),
        }
    }
    if options.mount.data == DataMode::Writeback {
        bail!(
            "--mount data=writeback: after a crash a page that was not synced may read as zeroes then, \
             which the comparison takes for a violation"
        );
    }
    Ok(options)
}

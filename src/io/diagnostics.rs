//! Reads facts about this machine for `edged check`, without judging them. Changes nothing.
//!
//! Each fact is the kernel's own text if that is small, so that the judgement can be tested with
//! the texts of other machines.

#[cfg(feature = "runtime")]
mod builtin;
#[cfg(feature = "cloud")]
mod cloud;
#[cfg(feature = "devices")]
mod devices;
#[cfg(feature = "metaserver")]
mod metaserver;
mod runtime;
#[cfg(feature = "services")]
mod services;

use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access};

use super::clock;
use super::rivals::{self, Rival};
use crate::config::{Config, Error, load, without_file};
use crate::limits::{MANIFEST_BYTES_MAX, MANIFEST_FILES_MAX};
use crate::model::cri::{RuntimeStatus, Version};
#[cfg(feature = "runtime")]
use crate::model::endpoint::Framing;
use crate::model::error::{self, System};
#[cfg(feature = "runtime")]
pub use builtin::BuiltinFacts;
#[cfg(feature = "cloud")]
pub use cloud::CloudFacts;
#[cfg(feature = "devices")]
pub use devices::DeviceFacts;
#[cfg(feature = "metaserver")]
pub use metaserver::MetaServerFacts;
#[cfg(feature = "services")]
pub use services::ServiceFacts;

/// All facts.
#[derive(Clone, Debug)]
pub struct Diagnostics {
    /// The settings that were used; if the file is invalid, the defaults and flags.
    pub config: Config,
    /// Why the file is invalid.
    pub config_trouble: Option<String>,
    /// Names the keys of edgecore.yaml that have no effect.
    pub config_warning: Option<String>,
    /// The file has a token, and every user may read it.
    pub config_exposed: Option<String>,
    /// Other agents that run on this machine.
    pub rivals: Vec<Rival>,
    /// `/proc/sys/kernel/osrelease`
    pub kernel: String,
    /// `/proc/mounts`
    pub mounts: String,
    /// `/proc/cgroups`: version 1.
    pub cgroups: String,
    /// `cgroup.controllers` of the root: version 2.
    pub controllers: Option<String>,
    /// `/proc/filesystems`
    pub filesystems: String,
    /// Names in `/proc/self/ns`.
    pub namespaces: Vec<String>,
    /// Whether `/proc/sys/net/bridge` exists: br_netfilter is loaded or built in.
    pub br_netfilter: bool,
    /// `/proc/sys/net/ipv4/ip_forward`
    pub ip_forward: String,
    /// `CapEff` of `/proc/self/status`.
    pub capabilities: Option<u64>,
    /// Whether the clock shows a plausible time.
    pub clock: bool,
    /// Whether `/etc/hosts` exists.
    pub hosts: bool,
    /// The file system of the pods' volumes.
    pub root: Option<Result<Room, System>>,
    /// The file system of the logs.
    pub logs: Option<Result<Room, System>>,
    /// The runtime's answers, or an error.
    pub runtime: Option<Result<(Version, RuntimeStatus), error::Error>>,
    /// Files in [`CNI_CONFIG`] and their texts.
    pub cni: Vec<(String, String)>,
    /// Names in [`CNI_PLUGINS`].
    pub cni_plugins: Vec<String>,
    /// The manifests, by path; an error for the folder as a whole.
    pub manifests: Option<Result<Vec<Manifest>, System>>,
    /// What the built-in runtime finds, if it is the one.
    #[cfg(feature = "runtime")]
    pub builtin: Option<BuiltinFacts>,
    /// The store and the connection to the cloud, if one is configured.
    #[cfg(feature = "cloud")]
    pub cloud: Option<CloudFacts>,
    /// What devices need, if they are served.
    #[cfg(feature = "devices")]
    pub devices: Option<DeviceFacts>,
    /// What Services by name need, if they are served.
    #[cfg(feature = "services")]
    pub services: Option<ServiceFacts>,
    /// Whether there is a key of releases, without which no job upgrades edged.
    #[cfg(feature = "node-jobs")]
    pub release_key: bool,
    /// What MetaServer needs, if it is on.
    #[cfg(feature = "metaserver")]
    pub metaserver: Option<MetaServerFacts>,
}

/// A manifest file's path and bytes, or why it cannot be read.
pub type Manifest = (String, Result<Vec<u8>, System>);

/// The room on a file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// The folder, or the deepest one above it that exists.
    pub path: String,
    /// Whether this process may write there.
    pub writable: bool,
    /// For users other than root.
    pub free_bytes: u64,
    /// In total.
    pub bytes: u64,
    /// Free inodes.
    pub free_inodes: u64,
    /// 0: the file system does not count them.
    pub inodes: u64,
}

/// Where runtimes look for CNI configurations by default.
pub const CNI_CONFIG: &str = "/etc/cni/net.d";
/// Where CNI plugins are, in the order of use by runtimes and distributions.
pub const CNI_PLUGINS: [&str; 2] = ["/opt/cni/bin", "/usr/lib/cni"];

/// Reads all facts. `flags` are those of `edged run`.
pub fn gather(flags: &[OsString]) -> Result<Diagnostics, Error> {
    let loaded = match load(flags, super::sys::hostname()) {
        Err(Error::File(why)) => without_file(flags).map(|config| (config, Some(why), None, None)),
        loaded => loaded.map(|loaded| {
            let path = loaded.file.unwrap_or_default();
            let unused = loaded.unused.join(", ");
            let unused = (!unused.is_empty())
                .then(|| format!("{path}: these keys have no effect in edged: {unused}"));
            (loaded.config, None, unused, loaded.is_exposed.then_some(path))
        }),
    };
    let (config, config_trouble, config_warning, config_exposed) = loaded?;
    Ok(Diagnostics {
        config_trouble,
        config_warning,
        config_exposed,
        rivals: rivals::find(config.runtime.path()),
        kernel: text("/proc/sys/kernel/osrelease"),
        mounts: text("/proc/mounts"),
        cgroups: text("/proc/cgroups"),
        controllers: fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").ok(),
        filesystems: text("/proc/filesystems"),
        namespaces: names("/proc/self/ns"),
        br_netfilter: Path::new("/proc/sys/net/bridge").exists(),
        ip_forward: text("/proc/sys/net/ipv4/ip_forward"),
        capabilities: capabilities(&text("/proc/self/status")),
        clock: clock::now().wall.is_some(),
        hosts: Path::new("/etc/hosts").exists(),
        root: Some(room(Path::new(&config.root))),
        logs: Some(room(Path::new(&config.pod_logs))),
        runtime: Some(runtime::query(&config.runtime)),
        cni: cni(),
        cni_plugins: CNI_PLUGINS.iter().flat_map(|folder| names(folder)).collect(),
        manifests: Some(manifests(Path::new(&config.manifests))),
        #[cfg(feature = "runtime")]
        builtin: (config.runtime.framing == Framing::Ttrpc).then(|| builtin::read(&config)),
        #[cfg(feature = "cloud")]
        cloud: cloud::read(&config),
        #[cfg(feature = "devices")]
        devices: devices::read(&config),
        #[cfg(feature = "services")]
        services: services::read(&config),
        #[cfg(feature = "node-jobs")]
        release_key: Path::new(super::release::KEYS).exists(),
        #[cfg(feature = "metaserver")]
        metaserver: metaserver::read(&config),
        config,
    })
}

/// Empty if the file cannot be read: the judge reports it.
fn text(path: &str) -> String {
    super::sys::kernel_text(path).unwrap_or_default()
}

fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn capabilities(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[allow(clippy::unnecessary_cast, reason = "these have 32 bits on some machines, 64 on others")]
fn room(folder: &Path) -> Result<Room, System> {
    let there = folder.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"));
    let has = statvfs(there).map_err(|error| System::at(there.display(), error))?;
    let block_bytes = has.fragment_size() as u64;
    Ok(Room {
        path: there.display().to_string(),
        writable: access(there, AccessFlags::W_OK).is_ok(),
        free_bytes: (has.blocks_available() as u64).saturating_mul(block_bytes),
        bytes: (has.blocks() as u64).saturating_mul(block_bytes),
        free_inodes: has.files_available() as u64,
        inodes: has.files() as u64,
    })
}

fn cni() -> Vec<(String, String)> {
    let is_config = |name: &String| {
        let ends = ["conf", "conflist", "json"];
        Path::new(name).extension().is_some_and(|end| ends.iter().any(|is| end == *is))
    };
    let names = names(CNI_CONFIG).into_iter().filter(is_config);
    names.map(|name| (name.clone(), text(&format!("{CNI_CONFIG}/{name}")))).collect()
}

fn manifests(folder: &Path) -> Result<Vec<Manifest>, System> {
    let entries = fs::read_dir(folder).map_err(|error| System::at(folder.display(), error))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| {
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        // An error of the metadata is reported below; a link may lead to nothing.
        let is_wanted = || match fs::metadata(path) {
            Ok(about) => about.is_file(),
            Err(error) => error.kind() != ErrorKind::NotFound,
        };
        !hidden && is_wanted()
    });
    paths.sort();
    paths.truncate(MANIFEST_FILES_MAX);
    let read = |path: PathBuf| {
        let mut bytes = Vec::new();
        let file = fs::File::open(&path);
        let limit = MANIFEST_BYTES_MAX as u64 + 1;
        let read = file.and_then(|file| file.take(limit).read_to_end(&mut bytes));
        (path.display().to_string(), read.map(|_| bytes).map_err(System::from))
    };
    Ok(paths.into_iter().map(read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel shows a mount point's bytes unchanged, for example of a stick with an old label.
    #[test]
    fn a_text_may_have_bytes_that_are_none() {
        let path = std::env::temp_dir().join(format!("edged-facts-{}", std::process::id()));
        fs::write(&path, b"/dev/sda1 /media/caf\xe9 vfat rw 0 0\ncgroup2 /sys/fs/cgroup\n")
            .expect("a file of ours");
        let text = text(path.to_str().expect("UTF-8"));
        fs::remove_file(&path).expect("a file of ours");
        assert!(text.ends_with("\ncgroup2 /sys/fs/cgroup\n"), "{text:?}");
    }
}

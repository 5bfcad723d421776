//! Other node agents that run on this machine: a kubelet, an EdgeCore.
//!
//! Each would end the other's pods if they used one runtime. A kubelet with a runtime of its own is
//! no conflict, so the endpoint is searched in its command line and in its configuration. Agents in
//! other mount namespaces are ignored: their paths mean other sockets.

use std::fs;
use std::path::{Path, PathBuf};

use crate::limits::CONFIG_BYTES_MAX;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    /// `kubelet` or `edgecore`.
    pub name: String,
    pub pid: u32,
    /// Whether it uses this runtime; `None`: unknown.
    pub same: Option<bool>,
}

impl std::fmt::Display for Rival {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, pid, same } = self;
        match same {
            Some(true) => write!(f, "{name} (pid {pid}) uses the same runtime")?,
            _ => write!(f, "{name} (pid {pid}) runs here and may use the same runtime")?,
        }
        f.write_str(": each agent would end the other's pods")
    }
}

/// The agents that use this runtime, or may use it.
pub fn find(runtime: &Path) -> Vec<Rival> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| inspect(pid, runtime)).filter(|rival| rival.same != Some(false)).collect()
}

fn inspect(pid: u32, runtime: &Path) -> Option<Rival> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim().to_owned();
    let (_, default_config) = AGENTS.iter().find(|(agent, _)| *agent == name)?;
    let mounts = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    if mounts(&pid.to_string()) != mounts("self") {
        return None;
    }
    let args = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let args = String::from_utf8_lossy(&args);
    let args: Vec<&str> = args.split('\0').collect();
    let config = || {
        let path = flag(&args, &["config"]).unwrap_or(default_config);
        let size = fs::metadata(path).ok()?.len();
        let text = (size <= CONFIG_BYTES_MAX as u64).then(|| fs::read_to_string(path).ok())??;
        key(&text).map(str::to_owned)
    };
    let endpoint = flag(&args, &ENDPOINTS).map(str::to_owned).or_else(config);
    let same = endpoint.map(|endpoint| is_same(&endpoint, runtime));
    Some(Rival { name, pid, same })
}

fn is_same(endpoint: &str, runtime: &Path) -> bool {
    let real = |path: &Path| fs::canonicalize(path).unwrap_or(PathBuf::from(path));
    real(Path::new(endpoint.trim_start_matches("unix://"))) == real(runtime)
}

/// The value of `--NAME VALUE` or `--NAME=VALUE`.
fn flag<'a>(args: &[&'a str], names: &[&str]) -> Option<&'a str> {
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let Some(arg) = arg.strip_prefix("--") else { continue };
        match arg.split_once('=') {
            Some((name, value)) if names.contains(&name) => return Some(value),
            None if names.contains(&arg) => return args.next().copied(),
            _ => {}
        }
    }
    None
}

/// The value of a key of their configuration, on its own line.
fn key(text: &str) -> Option<&str> {
    text.lines().find_map(|line| {
        let (name, value) = line.trim().split_once(':')?;
        let value = value.trim().trim_matches(['"', '\'']);
        (KEYS.contains(&name) && !value.is_empty()).then_some(value)
    })
}

/// The agents, each with its default configuration file.
const AGENTS: [(&str, &str); 2] = [
    ("kubelet", "/var/lib/kubelet/config.yaml"),
    ("edgecore", "/etc/kubeedge/config/edgecore.yaml"),
];
const ENDPOINTS: [&str; 2] = ["container-runtime-endpoint", "remote-runtime-endpoint"];
const KEYS: [&str; 2] = ["containerRuntimeEndpoint", "remoteRuntimeEndpoint"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_endpoint_is_found_in_flags_and_in_the_configuration() {
        for args in [
            &["kubelet", "--v=2", "--container-runtime-endpoint=unix:///run/c.sock"][..],
            &["kubelet", "--container-runtime-endpoint", "unix:///run/c.sock", "--x"],
        ] {
            assert_eq!(flag(args, &ENDPOINTS), Some("unix:///run/c.sock"), "{args:?}");
        }
        assert_eq!(flag(&["kubelet", "--config", "/a"], &ENDPOINTS), None);
        let text =
            "kind: K\n  remoteRuntimeEndpoint: \"\"\n  containerRuntimeEndpoint: 'unix:///c'\n";
        assert_eq!(key(text), Some("unix:///c"));
        assert!(is_same("unix:///proc/self/", Path::new("/proc/self")));
        assert!(!is_same("unix:///run/crio.sock", Path::new("/run/c.sock")));
    }
}

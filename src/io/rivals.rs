//! Other node agents that run on this machine: a kubelet, an EdgeCore.
//!
//! Each would end the other's pods if they used one runtime. A kubelet with a runtime of its own is
//! no fault, so the endpoint is looked for in its command line and in its configuration. Those of
//! other mount namespaces are left out: their paths mean other sockets.

use std::fs;
use std::path::{Path, PathBuf};

use crate::limits::CONFIG_BYTES_MAX;

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    /// `kubelet` or `edgecore`.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// Whether it uses this runtime; `None`: it does not say.
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

/// Those that use this runtime, or may.
pub fn find(runtime: &Path) -> Vec<Rival> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| look(pid, runtime)).filter(|rival| rival.same != Some(false)).collect()
}

fn look(pid: u32, runtime: &Path) -> Option<Rival> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim().to_owned();
    let (_, usual) = USUAL.iter().find(|(agent, _)| *agent == name)?;
    let mounts = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    if mounts(&pid.to_string()) != mounts("self") {
        return None;
    }
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = String::from_utf8_lossy(&words);
    let words: Vec<&str> = words.split('\0').collect();
    let config = || {
        let path = flag(&words, &["config"]).unwrap_or(usual);
        let size = fs::metadata(path).ok()?.len();
        let text = (size <= CONFIG_BYTES_MAX as u64).then(|| fs::read_to_string(path).ok())??;
        key(&text).map(str::to_owned)
    };
    let endpoint = flag(&words, &ENDPOINTS).map(str::to_owned).or_else(config);
    let same = endpoint.map(|endpoint| is_same(&endpoint, runtime));
    Some(Rival { name, pid, same })
}

fn is_same(endpoint: &str, runtime: &Path) -> bool {
    let real = |path: &Path| fs::canonicalize(path).unwrap_or(PathBuf::from(path));
    real(Path::new(endpoint.trim_start_matches("unix://"))) == real(runtime)
}

/// The value of `--NAME VALUE` or `--NAME=VALUE`.
fn flag<'a>(words: &[&'a str], names: &[&str]) -> Option<&'a str> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(word) = word.strip_prefix("--") else { continue };
        match word.split_once('=') {
            Some((name, value)) if names.contains(&name) => return Some(value),
            None if names.contains(&word) => return words.next().copied(),
            _ => {}
        }
    }
    None
}

/// The value of a key of their configuration, on a line of its own.
fn key(text: &str) -> Option<&str> {
    text.lines().find_map(|line| {
        let (name, value) = line.trim().split_once(':')?;
        let value = value.trim().trim_matches(['"', '\'']);
        (KEYS.contains(&name) && !value.is_empty()).then_some(value)
    })
}

/// Which agents, each with the configuration that it has unless told otherwise.
const USUAL: [(&str, &str); 2] = [
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
        for words in [
            &["kubelet", "--v=2", "--container-runtime-endpoint=unix:///run/c.sock"][..],
            &["kubelet", "--container-runtime-endpoint", "unix:///run/c.sock", "--x"],
        ] {
            assert_eq!(flag(words, &ENDPOINTS), Some("unix:///run/c.sock"), "{words:?}");
        }
        assert_eq!(flag(&["kubelet", "--config", "/a"], &ENDPOINTS), None);
        let text =
            "kind: K\n  remoteRuntimeEndpoint: \"\"\n  containerRuntimeEndpoint: 'unix:///c'\n";
        assert_eq!(key(text), Some("unix:///c"));
        assert!(is_same("unix:///proc/self/", Path::new("/proc/self")));
        assert!(!is_same("unix:///run/crio.sock", Path::new("/run/c.sock")));
    }
}

//! Support for the whole-tests and the benchmarks: a private containerd, the agent as a process, a
//! blocking client of the CRI, waiting with a timeout, and a clean-up of everything that was
//! started.
//!
//! Both programs use this module and neither needs all of it.
#![allow(dead_code, reason = "two programs share this and each uses a part of it")]

pub mod agent;
#[cfg(feature = "controller")]
pub mod apiserver;
#[cfg(feature = "devices")]
pub mod broker;
#[cfg(feature = "controller")]
pub mod browser;
pub mod cgroup;
#[cfg(feature = "cloud")]
pub mod cloud;
pub mod containerd;
#[cfg(feature = "controller")]
pub mod controller;
pub mod cri;
#[cfg(feature = "controller")]
pub mod dial;
#[cfg(feature = "metaserver")]
pub mod dynamic;
#[cfg(feature = "streams")]
pub mod exec;
pub mod guard;
#[cfg(feature = "cloud")]
pub mod harass;
pub mod http;
#[cfg(feature = "cloud")]
pub mod joined;
#[cfg(feature = "cloud")]
pub mod line;
pub mod log_line;
#[cfg(feature = "devices")]
pub mod mapper;
#[cfg(feature = "controller")]
pub mod node_key;
pub mod port;
pub mod process;
pub mod program;
pub mod registry;
pub mod runtime_state;
pub mod verdict;
pub mod wait;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The folder of the project.
pub fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A new folder for one run, short enough for the sockets in it; removed at the end.
pub fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("edged-{name}.{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    guard::keep(guard::Left::Folder(dir.clone()));
    dir
}

/// Gives a program another wall clock.
pub const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

/// The missing prerequisites for real pods, each with its remedy.
pub fn missing() -> Vec<String> {
    let mut missing = Vec::new();
    // The owner of a process's folder is its effective user.
    if std::fs::metadata("/proc/self").map_or(1, |folder| folder.uid()) != 0 {
        missing.push("root: runc, CNI and mounts need it".to_owned());
    }
    let on_path =
        |tool: &str| std::env::split_paths(&containerd::path()).any(|dir| dir.join(tool).is_file());
    for tool in ["containerd", "ctr", "runc", "ip", "iptables", "gcc"] {
        if !on_path(tool) {
            missing.push(format!("{tool}: run `make setup`"));
        }
    }
    for file in ["/usr/lib/cni/bridge", "/usr/lib/cni/portmap", "/bin/busybox", FAKETIME] {
        if !Path::new(file).is_file() {
            missing.push(format!("{file}: run `make setup`"));
        }
    }
    missing
}

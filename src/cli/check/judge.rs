//! Judges the facts of `edged check`: one row for each thing that pods need from a machine.

use super::{Row, fail, ok, place, remedy, warn};
use crate::agent::admit;
use crate::config::EXPOSED;
use crate::io::diagnostics::{CNI_CONFIG, CNI_PLUGINS, Diagnostics};
#[cfg(feature = "node-jobs")]
use crate::io::release;
use crate::io::rivals::Rival;
use crate::model::cri::{RuntimeStatus, Version};
use crate::model::endpoint::Framing;
use crate::wire::manifest;

/// The whole report.
pub(super) fn all(facts: &Diagnostics) -> Vec<Row> {
    let mut rows = vec![config(facts)];
    rows.extend(
        facts
            .config_exposed
            .iter()
            .map(|path| warn("config", format!("{path} {EXPOSED}"), &format!("chmod 600 {path}"))),
    );
    rows.extend(facts.rivals.iter().map(rival));
    rows.extend([kernel(&facts.kernel), cgroups(facts), namespaces(facts)]);
    rows.push(overlay(facts));
    #[cfg(feature = "runtime")]
    rows.extend(facts.builtin.iter().flat_map(super::builtin::rows));
    rows.push(oom_score_adj(facts));
    rows.extend(runtime(facts));
    let network = cni(facts);
    #[cfg(feature = "runtime")]
    let network = match &facts.builtin {
        Some(builtin) => super::builtin::network(builtin, network),
        None => network,
    };
    rows.extend(network);
    rows.push(if facts.clock {
        ok("clock", "shows a plausible time")
    } else {
        let remedy = "set it (ntpd, chrony, a clock chip): until then registries' certificates \
                      are not valid yet, and pods have no times";
        warn("clock", "shows a time before 2024", remedy)
    });
    rows.extend(facts.root.as_ref().map(|room| place("root", room, "--root-dir or rootDirectory")));
    rows.extend(facts.logs.as_ref().map(|room| place("logs", room, "--pod-logs or podLogsDir")));
    rows.push(if facts.hosts {
        ok("hosts", "/etc/hosts is there")
    } else {
        let remedy = "printf '127.0.0.1 localhost\\n' > /etc/hosts";
        warn("hosts", "there is no /etc/hosts for pods on the host's network", remedy)
    });
    rows.extend(manifests(facts));
    #[cfg(feature = "cloud")]
    rows.extend(facts.cloud.iter().flat_map(super::cloud::rows));
    #[cfg(feature = "devices")]
    {
        rows.extend(facts.devices.iter().flat_map(super::devices::rows));
        rows.extend(super::devices::contradictions(&facts.config.device_contradictions()));
    }
    #[cfg(feature = "node-jobs")]
    rows.extend(node_jobs(facts));
    #[cfg(feature = "servicebus")]
    rows.extend(service_bus(facts));
    #[cfg(feature = "services")]
    rows.extend(facts.services.iter().flat_map(super::services::rows));
    #[cfg(feature = "metaserver")]
    rows.extend(facts.metaserver.iter().flat_map(super::metaserver::rows));
    rows
}

/// Only a cloud has jobs for the node, and edged is upgraded only to what a key has signed.
#[cfg(feature = "node-jobs")]
fn node_jobs(facts: &Diagnostics) -> Option<Row> {
    let config = &facts.config;
    if !config.node_jobs {
        return None;
    }
    if !config.cloud.is_configured() {
        let detail = "modules.taskManager is on, and no cloud is configured";
        return Some(warn("jobs", detail, "switch it off, or join a cloud: edged join"));
    }
    Some(upgrades(facts.release_key, &config.upgrade_repositories))
}

#[cfg(feature = "node-jobs")]
fn upgrades(has_key: bool, repositories: &[Box<str>]) -> Row {
    if !has_key {
        let detail = format!("no job upgrades edged: there is no {}", release::KEYS);
        return warn("jobs", detail, "`install` of a signed release installs it");
    }
    let from = match repositories {
        [] => String::new(),
        all => format!(", or from {}", all.join(" ")),
    };
    ok("jobs", format!("edged is upgraded by digest{from}"))
}

/// Only a cloud has callers for ServiceBus.
#[cfg(feature = "servicebus")]
fn service_bus(facts: &Diagnostics) -> Option<Row> {
    let config = &facts.config;
    (config.service_bus.address().is_some() && !config.cloud.is_configured()).then(|| {
        let detail = "modules.serviceBus is on, and no cloud is configured";
        warn("servicebus", detail, "switch it off, or join a cloud: edged join")
    })
}

fn config(facts: &Diagnostics) -> Row {
    match (&facts.config_trouble, &facts.config_warning) {
        (Some(why), _) => {
            fail("config", why.as_str(), "correct the line; the rows below assume defaults")
        }
        (None, Some(warning)) => warn("config", warning.as_str(), ""),
        (None, None) => ok("config", format!("node name {}", facts.config.node_name)),
    }
}

fn rival(rival: &Rival) -> Row {
    let remedy = format!(
        "stop {} and keep it from starting, or give one of them another runtime",
        rival.name
    );
    match rival.same {
        Some(true) => fail("agents", rival.to_string(), &remedy),
        _ => warn("agents", rival.to_string(), &remedy),
    }
}

fn kernel(release: &str) -> Row {
    let release = release.trim();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return warn("kernel", format!("got release {release:?}, expected one such as 6.1.0"), "");
    };
    match (major, minor) {
        (..3, _) | (3, ..18) => {
            fail("kernel", format!("Linux {release}"), "3.18 is the oldest with overlayfs")
        }
        (3, _) | (4, ..14) => {
            let remedy = "4.14 and later are what container runtimes are tested on";
            warn("kernel", format!("Linux {release}"), remedy)
        }
        _ => ok("kernel", format!("Linux {release}")),
    }
}

const MEMORY_REMEDY: &str = "add `cgroup_enable=memory cgroup_memory=1` to the kernel's command \
    line (Raspberry Pi: to the one line of /boot/firmware/cmdline.txt or /boot/cmdline.txt) and \
    reboot";

fn cgroups(facts: &Diagnostics) -> Row {
    let mounted = |kind: &'static str| {
        facts.mounts.lines().filter_map(move |line| {
            let mut fields = line.split(' ').skip(1);
            let (path, is, options) = (fields.next()?, fields.next()?, fields.next()?);
            (is == kind).then_some((path, options))
        })
    };
    let unified = mounted("cgroup2").any(|(path, _)| path == "/sys/fs/cgroup");
    if unified {
        let controllers = facts.controllers.as_deref().unwrap_or_default();
        let has = |name: &str| controllers.split_ascii_whitespace().any(|has| has == name);
        return if !has("memory") {
            fail("cgroups", "version 2, without the memory controller", MEMORY_REMEDY)
        } else if !has("cpu") || !has("pids") {
            let remedy = "build the kernel with CONFIG_CGROUP_SCHED and CONFIG_CGROUP_PIDS";
            warn("cgroups", "version 2, without the controller cpu or pids", remedy)
        } else {
            ok("cgroups", "version 2 with cpu, memory and pids")
        };
    }
    let is_mounted =
        |name: &str| mounted("cgroup").any(|(_, options)| options.split(',').any(|is| is == name));
    if mounted("cgroup").next().is_none() {
        let remedy = "mount -t cgroup2 cgroup2 /sys/fs/cgroup (older kernels: cgroupfs-mount)";
        return fail("cgroups", "not mounted", remedy);
    }
    // Columns: name, hierarchy, number, enabled.
    let enabled = facts.cgroups.lines().any(|line| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        matches!(fields[..], ["memory", _, _, "1"])
    });
    let kind = if mounted("cgroup2").next().is_some() { "hybrid" } else { "version 1" };
    if !enabled {
        fail("cgroups", format!("{kind}, without the memory controller"), MEMORY_REMEDY)
    } else if !is_mounted("memory") {
        let remedy = "mount -t cgroup -o memory cgroup /sys/fs/cgroup/memory (or cgroupfs-mount)";
        fail("cgroups", format!("{kind}, the memory controller is not mounted"), remedy)
    } else {
        ok("cgroups", format!("{kind} with memory"))
    }
}

fn namespaces(facts: &Diagnostics) -> Row {
    let has = |name: &&&str| facts.namespaces.iter().any(|has| has == **name);
    let missing: Vec<_> =
        ["mnt", "uts", "ipc", "pid", "net"].iter().filter(|name| !has(name)).copied().collect();
    if missing.is_empty() {
        return ok("namespaces", "mnt, uts, ipc, pid and net");
    }
    let remedy = "build the kernel with CONFIG_NAMESPACES and CONFIG_{UTS,IPC,PID,NET}_NS";
    fail("namespaces", format!("the kernel lacks {}", missing.join(", ")), remedy)
}

fn overlay(facts: &Diagnostics) -> Row {
    let has = facts.filesystems.split_ascii_whitespace().any(|name| name == "overlay");
    if has {
        return ok("overlay", "the kernel has overlayfs");
    }
    let remedy = "modprobe overlay, and at each boot (/etc/modules); or give containerd another \
                  snapshotter; edged's own runtime copies an image for each container";
    warn("overlay", "the kernel has no overlayfs loaded", remedy)
}

/// capabilities(7): `CAP_SYS_RESOURCE`.
const SYS_RESOURCE_BIT: u64 = 1 << 24;

fn oom_score_adj(facts: &Diagnostics) -> Row {
    match facts.capabilities {
        Some(capabilities) if capabilities & SYS_RESOURCE_BIT != 0 => {
            ok("oom-score", "may be lowered")
        }
        _ if facts.config.runtime.framing != Framing::Grpc => ok(
            "oom-score",
            "may not be lowered here (no CAP_SYS_RESOURCE): containers get that of edged at least",
        ),
        _ => warn(
            "oom-score",
            "may not be lowered here (no CAP_SYS_RESOURCE): if the runtime may not either, pods \
             fail with `can't get final child's PID from pipe: EOF`",
            remedy::oom_score_adj(facts),
        ),
    }
}

fn runtime(facts: &Diagnostics) -> Vec<Row> {
    let socket = &facts.config.runtime.socket;
    match &facts.runtime {
        None => Vec::new(),
        Some(Err(why)) => {
            vec![fail("runtime", format!("{socket}: {why}"), remedy::no_answer(facts))]
        }
        Some(Ok((version, status))) => runtime_status(version, status),
    }
}

fn runtime_status(version: &Version, status: &RuntimeStatus) -> Vec<Row> {
    let name = format!("{} {}", version.runtime_name, version.runtime_version);
    let runtime = match &status.runtime {
        Ok(()) => ok("runtime", format!("{name}, ready")),
        Err(why) => fail("runtime", format!("{name}, not ready: {why}"), "see the runtime's log"),
    };
    let network = match &status.network {
        Ok(()) => ok("network", "the runtime says it is ready"),
        Err(why) => {
            let detail = format!("not ready: {why}; only pods with hostNetwork can run");
            warn("network", detail, "put a CNI configuration where the runtime looks for it")
        }
    };
    vec![runtime, network]
}

fn cni(facts: &Diagnostics) -> Vec<Row> {
    let ready = matches!(&facts.runtime, Some(Ok((_, RuntimeStatus { network: Ok(()), .. }))));
    let Some((name, text)) = facts.cni.first() else {
        let detail = format!("no configuration in {CNI_CONFIG}");
        // The runtime may be configured to look elsewhere.
        let remedy = "put one there, say of the bridge plugin (cni.dev); hostNetwork needs none";
        return if ready { Vec::new() } else { vec![warn("cni", detail, remedy)] };
    };
    let kinds = plugin_kinds(text);
    let missing: Vec<_> =
        kinds.iter().filter(|kind| !facts.cni_plugins.contains(kind)).cloned().collect();
    let mut rows = vec![if kinds.is_empty() {
        warn("cni", format!("{CNI_CONFIG}/{name} names no plugin"), "see cni.dev for its format")
    } else if missing.is_empty() {
        ok("cni", format!("{name} with {}", kinds.join(", ")))
    } else {
        let detail = format!("{name} needs {}, not found in", missing.join(", "));
        let detail = format!("{detail} {}", CNI_PLUGINS.join(" or "));
        let remedy = "install the CNI plugins (Debian: containernetworking-plugins)";
        warn("cni", detail, remedy)
    }];
    if kinds.iter().any(|kind| kind == "bridge") {
        rows.push(bridge(facts));
    }
    rows
}

/// Every `"type"` of a configuration or of the plugins in a list, including IPAM.
fn plugin_kinds(text: &str) -> Vec<String> {
    let Ok(config) = serde_json::from_str::<serde_json::Value>(text) else { return Vec::new() };
    let plugins = config["plugins"].as_array().cloned().unwrap_or_else(|| vec![config]);
    let kinds = plugins.iter().flat_map(|plugin| [&plugin["type"], &plugin["ipam"]["type"]]);
    kinds.filter_map(|kind| kind.as_str().map(str::to_owned)).collect()
}

fn bridge(facts: &Diagnostics) -> Row {
    if facts.ip_forward.trim() == "0" {
        let remedy = "sysctl -w net.ipv4.ip_forward=1, and at each boot (/etc/sysctl.conf)";
        return warn(
            "bridge",
            "the kernel forwards no packets: pods reach this machine only",
            remedy,
        );
    }
    // The kernel itself loads bridge and veth, when the plugin makes the first of them.
    if facts.br_netfilter {
        return ok("bridge", "br_netfilter is there");
    }
    let remedy = "modprobe br_netfilter, and at each boot (/etc/modules)";
    warn("bridge", "not loaded: br_netfilter", remedy)
}

fn manifests(facts: &Diagnostics) -> Vec<Row> {
    let folder = &facts.config.manifests;
    let files = match &facts.manifests {
        None => return Vec::new(),
        Some(Err(why)) => {
            let remedy = format!("mkdir -p {folder}; without it no pod is wanted");
            return vec![warn("manifests", why.to_string(), &remedy)];
        }
        Some(Ok(files)) => files,
    };
    let mut rows = Vec::new();
    let mut count = 0;
    for (path, read) in files {
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(why) => {
                let detail = format!("{path}: cannot be read: {why}");
                rows.push(fail("manifests", detail, "look at its owner and mode, and at `dmesg`"));
                continue;
            }
        };
        match manifest::parse(bytes) {
            Err(refusal) => {
                rows.push(fail("manifests", format!("{path}{refusal}"), "correct the file"));
            }
            Ok(content) => {
                count += content.pods.len();
                for pod in content.pods {
                    let review = admit::review(&pod);
                    let name = &pod.metadata.name;
                    if let Some(refused) = review.refused {
                        let detail = format!("{path}: pod {name:?}: {}", refused.message);
                        rows.push(fail("manifests", detail, "the pod will be refused as it is"));
                    }
                    if !review.unknown.is_empty() {
                        let unknown = review.unknown.join(", ");
                        let detail = format!("{path}: pod {name:?}: not known: {unknown}");
                        rows.push(warn("manifests", detail, "is it spelled right?"));
                    }
                }
            }
        }
    }
    if rows.is_empty() {
        rows.push(ok("manifests", format!("{folder}: files {}, pods {count}", files.len())));
    }
    rows
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;

//! Parses edgecore.yaml into settings: tables of all keys of KubeEdge 1.12 to 1.23.

mod cgroups;
mod images;
mod kinds;
mod modules;
mod pods;
mod reserved;

use super::table::Rule::{Idle, Map, Module, Take as Set};
use super::table::{
    Table, duration, endpoint, folder, ip, loopback, node_name, one_of, text, whole,
};
use super::{Config, builtin, cloud, devices, keys, metaserver, service_bus, services, watchdog};
use crate::limits::{BACKOFF_MAX_MS, MANIFEST_PODS_MAX};
use crate::model::endpoint::Framing;
use crate::model::error::Input;
use crate::model::error::Refusal;
use crate::wire::tree::{self, Fault, Mark, Node, Step, Value};

/// Applies the file to the settings; returns the paths of the keys that have no effect.
///
/// Errors contain the position and the path of the key. `null` leaves a setting unchanged.
pub fn overlay(config: &mut Config, bytes: &[u8]) -> Result<Vec<String>, Refusal> {
    let documents: Vec<Node> =
        tree::parse(bytes)?.into_iter().filter(|node| node.value != Value::Null).collect();
    if let Some(second) = documents.get(1) {
        let Mark { line, column } = second.at;
        let why = "got a second document, expected one".to_owned();
        return Err(Refusal { line, column, why });
    }
    let mut walk = Walk { config, path: Vec::new(), unused: Vec::new() };
    for document in &documents {
        walk.table(&ROOT, document).map_err(|fault| fault.refusal(bytes))?;
    }
    let unused = walk.unused;
    // Keys that depend on each other may come in any order.
    let at = Mark { line: 1, column: 1 };
    keys::check(config)
        .and_then(|()| config.cloud.finish())
        .and_then(|()| devices::check(config))
        .and_then(|()| metaserver::check(config))
        .map_err(|why| Refusal { line: at.line, column: at.column, why: why.to_string() })?;
    services::finish(config);
    Ok(unused)
}

const ROOT: Table = Table {
    rules: &[
        ("apiVersion", Set(|_, value| text(value).and_then(|got| one_of(got, &[API_VERSION])))),
        ("kind", Set(|_, value| text(value).and_then(|got| one_of(got, &["EdgeCore"])))),
        ("modules", Map(&MODULES)),
        ("edgecoreVersion", Set(|_, value| text(value).map(drop))),
    ],
    more: &[
        cloud::ROOT,
        #[cfg(feature = "metaserver")]
        metaserver::GATES,
    ],
    unused: if cfg!(feature = "metaserver") { "" } else { "featureGates" },
};

const API_VERSION: &str = "edgecore.config.kubeedge.io/v1alpha2";

const MODULES: Table = Table {
    rules: &[("edged", Map(&EDGED))],
    more: &[cloud::MODULES, devices::MODULES, service_bus::MODULES, modules::ALL],
    unused: "",
};

const EDGED: Table = Table {
    rules: &[
        // `remote` is KubeEdge's default, and means the endpoint's; `builtin` is edged's own.
        ("containerRuntime", Set(take_runtime)),
        (
            "enable",
            Set(|_, value| match value {
                Value::Bool(true) => Ok(()),
                other => Err(Input::new(other, "true: edged cannot be switched off")),
            }),
        ),
        (
            "hostnameOverride",
            Set(|config, value| {
                let name = text(value)?;
                if !name.is_empty() {
                    config.node_name = node_name(name)?;
                }
                Ok(())
            }),
        ),
        // Edged's own: KubeEdge has no such settings.
        ("imageFolders", Set(images::folders)),
        ("imageMirrorPort", Set(images::mirror_port)),
        (
            "nodeIP",
            Set(|config, value| {
                let given = text(value)?;
                config.node_ip = (!given.is_empty()).then(|| ip(given)).transpose()?;
                Ok(())
            }),
        ),
        ("nodeLabels", Set(pods::node_labels)),
        // Edged's own, too.
        (
            "openStreams",
            Set(|config, value| match value {
                Value::Bool(is_open) => {
                    config.open_streams = *is_open;
                    Ok(())
                }
                other => Err(Input::new(other, "true or false")),
            }),
        ),
        // Its location up to KubeEdge 1.17.
        ("remoteRuntimeEndpoint", Set(take_endpoint)),
        (
            "rootDirectory",
            Set(|config, value| {
                config.root = folder(text(value)?)?;
                Ok(())
            }),
        ),
        ("tailoredKubeletConfig", Map(&TAILORED)),
    ],
    more: &[
        keys::EDGED,
        cloud::EDGED,
        builtin::EDGED,
        service_bus::EDGED,
        services::EDGED,
        watchdog::EDGED,
    ],
    unused: "certDirectory cniCacheDir customInterfaceName \
        dockerEndpoint dockershimRootDirectory exitOnLockContention experimentalMounterPath \
        experimentalNodeAllocatableIgnoreEvictionThreshold imageCredentialProviderBinDir \
        imageCredentialProviderConfigFile imagePullProgressDeadline keepTerminatedPodVolumes \
        kubeConfig kubeletConfigFile lockFilePath masterServiceNamespace networkPluginMTU \
        networkPluginName nonMasqueradeCidr remoteImageEndpoint runtimeCgroups \
        seccompDefault seccompProfileRoot windowsPriorityClass windowsService",
};

const TAILORED: Table = Table {
    rules: &[
        (
            "address",
            Set(|config, value| {
                config.listen.set_ip(loopback(ip(text(value)?)?)?);
                Ok(())
            }),
        ),
        ("allowedUnsafeSysctls", Set(pods::allowed_sysctls)),
        ("cgroupDriver", Set(cgroups::driver)),
        ("cgroupRoot", Set(cgroups::root)),
        ("cgroupsPerQOS", Set(cgroups::per_qos)),
        ("clusterDNS", Set(pods::cluster_dns)),
        ("clusterDomain", Set(pods::cluster_domain)),
        ("containerRuntimeEndpoint", Set(take_endpoint)),
        ("cpuCFSQuota", Set(cgroups::quota)),
        ("cpuCFSQuotaPeriod", Set(cgroups::period)),
        ("crashLoopBackOff", Map(&CRASH_LOOP)),
        (
            "maxPods",
            Set(|config, value| {
                config.pods_max = whole(value, 1, MANIFEST_PODS_MAX as i64)? as usize;
                Ok(())
            }),
        ),
        ("maxParallelImagePulls", Set(images::parallel_max)),
        (
            "podLogsDir",
            Set(|config, value| {
                config.pod_logs = folder(text(value)?)?;
                Ok(())
            }),
        ),
        ("podPidsLimit", Set(cgroups::pids_max)),
        (
            "readOnlyPort",
            Set(|config, value| {
                config.listen.set_port(whole(value, 0, i64::from(u16::MAX))? as u16);
                Ok(())
            }),
        ),
        ("registryBurst", Set(images::burst)),
        ("registryPullQPS", Set(images::per_second)),
        ("resolvConf", Set(pods::resolv_conf)),
        ("seccompDefault", Set(pods::seccomp_default)),
        ("serializeImagePulls", Set(images::serialize)),
        ("singleProcessOOMKill", Set(cgroups::single_oom_kill)),
        (
            "staticPodPath",
            Set(|config, value| {
                config.manifests = folder(text(value)?)?;
                Ok(())
            }),
        ),
    ],
    more: &[keys::TAILORED, cloud::TAILORED, reserved::TAILORED],
    unused: "apiVersion \
        configMapAndSecretChangeDetectionStrategy \
        containerLogMaxWorkers contentType \
        cpuManagerPolicy cpuManagerPolicyOptions \
        cpuManagerReconcilePeriod enableContentionProfiling enableControllerAttachDetach \
        enableDebugFlagsHandler enableDebuggingHandlers enableProfilingHandler \
        enableSystemLogHandler enableSystemLogQuery enforceNodeAllocatable \
        failCgroupV1 \
        failSwapOn featureGates fileCheckFrequency hairpinMode \
        imageServiceEndpoint \
        iptablesDropBit iptablesMasqueradeBit kernelMemcgNotification kind \
        kubeReservedCgroup kubeletCgroups localStorageCapacityIsolation logging \
        makeIPTablesUtilChains maxOpenFiles memoryManagerPolicy \
        memorySwap memoryThrottlingFactor oomScoreAdj podCIDR \
        podsPerCore protectKernelDefaults qosReserved \
        reservedMemory reservedSystemCPUs \
        runtimeRequestTimeout showHiddenMetricsForVersion \
        shutdownGracePeriod shutdownGracePeriodByPodPriority shutdownGracePeriodCriticalPods \
        streamingConnectionIdleTimeout systemCgroups \
        systemReservedCgroup topologyManagerPolicy topologyManagerPolicyOptions \
        topologyManagerScope volumePluginDir volumeStatsAggPeriod",
};

const CRASH_LOOP: Table = Table {
    rules: &[(
        "maxContainerRestartPeriod",
        Set(|config, value| {
            let given = text(value)?;
            let ms = duration(value)?;
            if !(1_000..=BACKOFF_MAX_MS).contains(&ms) {
                return Err(Input::new(given, format!("1s to {}s", BACKOFF_MAX_MS / 1_000)));
            }
            config.crash_backoff_max_ms = ms;
            Ok(())
        }),
    )],
    more: &[],
    unused: "",
};

struct Walk<'a> {
    config: &'a mut Config,
    path: Vec<Step>,
    unused: Vec<String>,
}

impl Walk<'_> {
    fn table(&mut self, table: &Table, node: &Node) -> Result<(), Fault> {
        let Value::Map(map) = &node.value else {
            let why = format!("got {}, expected a map", node.value);
            return Err(Fault::new(node, self.path.clone(), why));
        };
        for (key, entry) in map {
            self.path.push(Step::Key(key.clone()));
            let rule = table.all().find(|(known, _)| *known == &**key);
            let unused = table.unused.split_whitespace().any(|known| known == &**key);
            match rule {
                None if !unused => {
                    let why = "got an unknown key".to_owned();
                    let at = Some(entry.key_at);
                    return Err(Fault { at, path: self.path.clone(), why });
                }
                _ if entry.node.value == Value::Null => {}
                None | Some((_, Idle)) => {
                    kinds::check(key, &entry.node.value).map_err(|why| {
                        Fault::new(&entry.node, self.path.clone(), why.to_string())
                    })?;
                    // An empty one requests nothing.
                    if !kinds::is_empty(&entry.node.value) {
                        self.unused.push(tree::Path(&self.path).to_string());
                    }
                }
                Some((_, Module(table, on))) => {
                    let before = self.unused.len();
                    self.table(table, &entry.node)?;
                    self.unused.truncate(before);
                    if modules::is_on(&entry.node.value, *on) {
                        self.unused.push(tree::Path(&self.path).to_string());
                    }
                }
                Some((_, Map(table))) => self.table(table, &entry.node)?,
                Some((_, Set(take))) => take(self.config, &entry.node.value)
                    .map_err(|why| Fault::new(&entry.node, self.path.clone(), why.to_string()))?,
            }
            self.path.pop();
        }
        Ok(())
    }
}

/// Where both this and `containerRuntime: builtin` stand, in whatever order, only the endpoint of
/// the built-in runtime counts.
fn take_endpoint(config: &mut Config, value: &Value) -> Result<(), Input> {
    let given = endpoint(text(value)?)?;
    if given.framing != Framing::Grpc || config.runtime.framing == Framing::Grpc {
        config.runtime = given;
    }
    config.runtime_is_named = true;
    Ok(())
}

fn take_runtime(config: &mut Config, value: &Value) -> Result<(), Input> {
    const BUILTIN: &str = "builtin";
    if text(value)? == BUILTIN {
        let given = endpoint(BUILTIN)?;
        if config.runtime.framing == Framing::Grpc {
            config.runtime = given;
        }
        config.runtime_is_named = true;
    }
    Ok(())
}

#[cfg(test)]
mod tests;

//! Upstream tests without a case, each with its class and the reason.

use crate::support::containerd::Kind;

/// Why a test is excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// It uses the API server, or needs objects that only a cluster has.
    Cluster,
    /// The object does not pass the API server's validation, so no node gets it.
    Validation,
    /// It needs hardware, a kernel, a runtime or a machine that is not available here.
    Platform,
    /// It needs a kubelet feature that edged does not have.
    Feature,
}

impl Class {
    /// The label in the table.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Class::Cluster => "cluster",
            Class::Validation => "validation",
            Class::Platform => "platform",
            Class::Feature => "feature",
        }
    }

    /// The explanation in the table.
    pub(crate) fn means(self) -> &'static str {
        match self {
            Class::Cluster => "asks the API server, or needs objects that only a cluster has",
            Class::Validation => "the API server's validation refuses the object, not the node",
            Class::Platform => {
                "needs hardware, a kernel, a runtime or a machine that the tests do not have"
            }
            Class::Feature => "asks for a part of a kubelet that edged does not have",
        }
    }
}

/// Tests of one area with a common prefix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exclusion {
    /// The area.
    pub(crate) area: &'static str,
    /// The prefix of the names; empty: the whole area.
    pub(crate) name: &'static str,
    pub(crate) class: Class,
    /// The reason.
    pub(crate) why: &'static str,
    /// The runtime that it is about; `None`: either.
    pub(crate) runtime: Option<Kind>,
}

/// Those that count with this runtime.
pub(crate) fn with(kind: Kind) -> impl Iterator<Item = &'static Exclusion> {
    EXCLUSIONS.iter().filter(move |one| one.runtime.is_none_or(|about| about == kind))
}

const fn on(runtime: Kind, exclusion: Exclusion) -> Exclusion {
    Exclusion { runtime: Some(runtime), ..exclusion }
}

const fn cluster(area: &'static str, name: &'static str, why: &'static str) -> Exclusion {
    Exclusion { area, name, class: Class::Cluster, why, runtime: None }
}

const fn validation(area: &'static str, name: &'static str) -> Exclusion {
    let why = "the API server refuses to create it";
    Exclusion { area, name, class: Class::Validation, why, runtime: None }
}

const fn platform(area: &'static str, name: &'static str, why: &'static str) -> Exclusion {
    Exclusion { area, name, class: Class::Platform, why, runtime: None }
}

const fn feature(area: &'static str, name: &'static str, why: &'static str) -> Exclusion {
    Exclusion { area, name, class: Class::Feature, why, runtime: None }
}

const API: &str = "no node has a part in it";
const GENERATION: &str = "the API server counts a pod's generations";
const SIGNED: &str = "its pod is deleted through the API server while it is kept there";
const RESIZE: &str = "resources of a running pod do not change";
const RULES: &str = "restartPolicyRules and RestartAllContainers are not honoured";
const OVERRIDE: &str = "hostnameOverride is not honoured";
const ENV_FILES: &str = "fileKeyRef is not honoured";
const IMAGE_VOLUME: &str = "volumes of images are not honoured";
const STATS: &str = "of usage only CPU and memory are served";
const CPUS: &str = "no CPU manager: containers share all cores";
const MEMORY: &str = "no memory manager: memory is not bound to NUMA nodes";
const TOPOLOGY: &str = "no topology manager";
const DEVICES: &str = "no device plugins";
const DRA: &str = "no dynamic resource allocation";
const POD_RESOURCES: &str = "the pod resources API is not served";
const PODS_API: &str = "the pods API over gRPC is not served";
const PULLED: &str = "no record of the credentials that pulled an image";
const SHUTDOWN: &str = "no inhibitor lock of systemd-logind";
const IDS_PER_POD: &str = "idsPerPod is not read: a pod with users of its own has 65,536";
const USERNS_RUNTIME: &str = "needs a runtime with user namespaces: containerd 2.0";
const QOS_V2: &str = "memory.high and memory.min of cgroup v2 are not set";
const PREEMPTION: &str = "a critical pod preempts no other";
const PORT_TLS: &str = "no port to the network, so no certificates that clients check";
const PRESSURE: &str = "would fill disk, memory or inodes of the machine that tests run on";
const LAB: &str = "measures a machine of a performance lab";
const PROXY: &str = "needs upstream's proxy that spoils answers of the runtime";
const HUGE: &str = "needs huge pages set aside by the kernel";
const SWAP: &str = "needs cgroup v2 and swap";
const V2: &str = "needs cgroup v2";
const APPARMOR: &str = "needs a kernel with AppArmor";
const RECURSIVE: &str = "needs a runtime with recursive read-only mounts: containerd 2.0";
const NOT_RECURSIVE: &str = "needs a runtime without recursive read-only mounts";
const READ_ONLY: &str = "Mount recursive read-only";
const UNPRIVILEGED: &str = "needs CAP_SYS_RESOURCE: no process may lower its oom_score_adj";
#[cfg(not(feature = "streams"))]
const STREAMS: &str = "needs feature streams, which only larger sets have";
#[cfg(not(feature = "probe-https"))]
const HTTPS: &str = "needs feature probe-https, which only the full set has";

/// All of them.
const EXCLUSIONS: &[Exclusion] = &[
    // test/e2e/common and test/e2e/node
    cluster("Pods", "should contain environment variables for services", "needs services"),
    cluster("Pods", "should delete a collection of pods", API),
    cluster("Pods", "should run through the lifecycle of Pods and PodStatus", API),
    cluster("Pods", "should patch a pod status", API),
    cluster("Pods", "should support pod readiness gates", "the API server sets the condition"),
    #[cfg(not(feature = "streams"))]
    feature("Pods", "should support remote command execution over websockets", STREAMS),
    #[cfg(not(feature = "streams"))]
    feature("Pods", "should support retrieving logs from the container over websockets", STREAMS),
    validation("ConfigMap", "should fail to create ConfigMap with empty key"),
    cluster("ConfigMap", "should update ConfigMap successfully", API),
    cluster("ConfigMap", "should run through a ConfigMap lifecycle", API),
    validation("Secrets", "should fail to create secret due to empty secret key"),
    cluster("Secrets", "should patch a secret", API),
    cluster("ConfigMap volume", "should be immutable if", API),
    cluster("Secrets volume", "should be immutable if", API),
    cluster(
        "RuntimeClass",
        "should schedule a Pod requesting a RuntimeClass and initialize its Overhead",
        "the API server's admission writes what the class says into the pod",
    ),
    cluster("RuntimeClass", "should support RuntimeClasses API operations", API),
    validation("Sysctls", "should reject invalid sysctls"),
    cluster("Lease", "", API),
    cluster("NodeLease", "", "the lease of a node is an object of the API server"),
    cluster("PodTemplates", "", API),
    cluster("Node Lifecycle", "", API),
    cluster("Pods Extended (pod generation)", "", GENERATION),
    cluster("NoExecuteTaintManager Single Pod", "", "the cluster's controller evicts"),
    cluster("NoExecuteTaintManager Multiple Pods", "", "the cluster's controller evicts"),
    validation("Override hostname of Pod", "a pod with setHostnameAsFQDN and hostnameOverride"),
    validation("Override hostname of Pod", "a pod with hostNetwork and hostnameOverride"),
    validation("Override hostname of Pod", "a pod with non-RFC1123 subdomain string"),
    feature("Override hostname of Pod", "a pod has hostnameOverride", OVERRIDE),
    feature("Override hostname of Pod", "a pod with hostname and hostnameOverride", OVERRIDE),
    feature("Override hostname of Pod", "a pod with only hostnameOverride", OVERRIDE),
    feature("Override hostname of Pod", "a pod with subdomain and hostnameOverride", OVERRIDE),
    feature("guaranteed pods with multiple containers", "", RESIZE),
    feature("burstable pods - extended", "", RESIZE),
    feature("Pod InPlace Resize Container", "", RESIZE),
    feature("ImageVolume", "", IMAGE_VOLUME),
    #[cfg(not(feature = "probe-https"))]
    feature("Container Lifecycle Hook", "should execute poststart https hook properly", HTTPS),
    #[cfg(not(feature = "probe-https"))]
    feature("Container Lifecycle Hook", "should execute prestop https hook properly", HTTPS),
    #[cfg(not(feature = "probe-https"))]
    feature(
        "Restartable Init Container Lifecycle Hook",
        "should execute poststart https hook properly",
        HTTPS,
    ),
    #[cfg(not(feature = "probe-https"))]
    feature(
        "Restartable Init Container Lifecycle Hook",
        "should execute prestop https hook properly",
        HTTPS,
    ),
    cluster(
        "Lifecycle Sleep Hook",
        "reduce GracePeriodSeconds during runtime",
        "a deletion with a grace period of its own goes through the API server",
    ),
    // test/e2e_node
    platform("AppArmor", "should reject an unloaded profile", APPARMOR),
    platform("AppArmor", "should enforce a", APPARMOR),
    feature("Cgroup Driver From CRI", "", "the runtime is not asked for its cgroup driver"),
    feature("Checkpoint Container", "", "containers are not checkpointed"),
    platform(
        "Container Manager Misc",
        "container runtime's oom-score-adj",
        "the machine's init sets that of its own runtime",
    ),
    platform("Container Manager Misc", "Kubelet's oom-score-adj", UNPRIVILEGED),
    platform("Container Manager Misc", "pod infra containers oom-score-adj", UNPRIVILEGED),
    platform("Container Manager Misc", "guaranteed container's oom-score-adj", UNPRIVILEGED),
    feature("ContainerMetrics", "", STATS),
    feature("Container Restart", "Reduced default", "the first delay is 10 s, always"),
    feature("CPU Manager Metrics", "", CPUS),
    feature("CPU Manager", "", CPUS),
    feature("CPU Manager Pod Level Resources", "", CPUS),
    platform("CriProxy", "", PROXY),
    feature("CriticalPod", "", PREEMPTION),
    feature("CriticalPodWithPodLevelResources", "", PREEMPTION),
    platform("Density", "", LAB),
    feature("Device Manager", "", DEVICES),
    feature("Device Plugin Failures Pod Status", "", DEVICES),
    feature("Device Plugin Failures:", "", DEVICES),
    feature("Device Plugin", "", DEVICES),
    feature("Resource Kubelet Plugin", "", DRA),
    feature("Two resource Kubelet Plugins", "", DRA),
    feature("ResourceSlice", "", DRA),
    feature("Resource Health", "", DRA),
    feature("Kubelet Endpoints", "", "/configz is not served"),
    platform("InodeEviction", "", PRESSURE),
    platform("ImageGCNoEviction", "", PRESSURE),
    platform("ImageGCTerminatedPodsContainersCleanup", "", PRESSURE),
    platform("MemoryAllocatableEviction", "", PRESSURE),
    platform("MemoryAllocatableEvictionPodLevelResources", "", PRESSURE),
    platform("LocalStorageEviction", "", PRESSURE),
    platform("LocalStorageSoftEviction", "", PRESSURE),
    platform("LocalStorageSoftEvictionNotOverwriteTerminationGracePeriodSeconds", "", PRESSURE),
    platform("PriorityMemoryEvictionOrdering", "", PRESSURE),
    platform("PriorityMemoryEvictionOrderingPodLevelResources", "", PRESSURE),
    platform("PriorityLocalStorageEvictionOrdering", "", PRESSURE),
    platform("PriorityPidEvictionOrdering", "", PRESSURE),
    platform("HugePages", "", HUGE),
    platform("Pod Level HugePages Resources", "", HUGE),
    feature("Ensure Credential Pulled Images", "", PULLED),
    feature("Kubelet Config", "", "no folder of further configuration files"),
    feature("ReloadKubeletClientCAFileTest", "", PORT_TLS),
    feature("KubletTLS", "", PORT_TLS),
    feature("Lock contention", "", "no --lock-file"),
    feature("Memory Manager Metrics", "", MEMORY),
    feature("Memory Manager", "", MEMORY),
    feature("Memory Manager Pod Level Resources", "", MEMORY),
    feature("MemoryQoS", "", QOS_V2),
    cluster("MirrorPod", "should be recreated when mirror pod gracefully deleted", SIGNED),
    cluster("MirrorPod", "should be recreated when mirror pod forcibly deleted", SIGNED),
    platform(
        "MirrorPod",
        "it should launch successfully even if it temporarily failed termination due to volume \
         failing to unmount",
        "needs an NFS server and a kernel that mounts it",
    ),
    cluster("MirrorPod (Pod Generation)", "", GENERATION),
    feature("MirrorPod with EnvFiles", "", ENV_FILES),
    on(
        Kind::Containerd,
        platform(READ_ONLY, "should accept recursive read-only mounts", RECURSIVE),
    ),
    on(
        Kind::Containerd,
        platform(READ_ONLY, "should reject invalid recursive read-only mounts", RECURSIVE),
    ),
    on(Kind::Builtin, validation(READ_ONLY, "should reject invalid recursive read-only mounts")),
    on(
        Kind::Builtin,
        platform(READ_ONLY, "should reject recursive read-only mounts", NOT_RECURSIVE),
    ),
    platform("Node Container Manager", "", "needs cgroups of systemd for the system's daemons"),
    platform("Node Performance Testing", "", LAB),
    platform("NodeProblemDetector", "", "it is another program"),
    feature("GracefulNodeShutdown", "", SHUTDOWN),
    platform("OOMKiller", "multi process container", V2),
    platform("OOMKiller", "The containers should not be OOMKilled", V2),
    platform("OOMKiller for pod using more memory than node allocatable", "", PRESSURE),
    cluster("OSArchLabelReconciliation", "", "labels of the node object"),
    platform(
        "Pod conditions managed by Kubelet",
        "a pod with init containers should report PodReadyToStartContainers condition set",
        PROXY,
    ),
    platform(
        "Pod conditions managed by Kubelet",
        "a pod without init containers should report PodReadyToStartContainers condition set",
        PROXY,
    ),
    feature("POD Resources API", "", POD_RESOURCES),
    feature("Kubelet Pods API", "", PODS_API),
    on(
        Kind::Containerd,
        platform("ProcMount", "will unmask proc mounts if requested", USERNS_RUNTIME),
    ),
    platform("Probe Stress", "", "fifty containers probed each second want a machine of their own"),
    validation("ProcMount", "will fail to unmask proc mounts if not in user namespace"),
    feature("ResourceMetricsAPI", "", STATS),
    platform("Resource-usage", "", LAB),
    platform(
        "Restart",
        "should recover from ip leak",
        "a hundred pods want a machine of their own",
    ),
    cluster("Restart", "should delete pods which are marked as terminal", SIGNED),
    cluster("Restart", "should force-delete non-admissible pods", SIGNED),
    feature("RestartAllContainersWithKubeletRestarts", "", RULES),
    feature("Pod Extended (RestartAllContainers)", "", RULES),
    platform("KubeletSeparateDiskGC", "", "needs a second disk for images"),
    feature("StandaloneMode", "the pod should be running and consume variables", ENV_FILES),
    feature("Summary API", "", STATS),
    platform("Swap", "", SWAP),
    platform("SystemNodeCriticalPod", "", PRESSURE),
    feature("Topology Manager Metrics", "", TOPOLOGY),
    feature("Topology Manager", "", TOPOLOGY),
    cluster("Unknown Pods", "the api pod should be terminated", SIGNED),
    feature("user namespaces kubeconfig tests", "", IDS_PER_POD),
];

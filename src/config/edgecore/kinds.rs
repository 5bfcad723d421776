//! The types of keys without effect: a wrong type is an error nevertheless, since another key or
//! value was probably intended.

use super::modules;
use crate::model::error::Input;
use crate::wire::tree::Value;

/// The required type of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Truth,
    Number,
    Text,
    List,
    Map,
}

/// Keys by type; a name has the same type everywhere.
const KINDS: &[(Kind, &str)] = &[
    (
        Kind::Truth,
        "cgroupsPerQOS cpuCFSQuota enableContentionProfiling enableControllerAttachDetach \
         enableDebugFlagsHandler enableDebuggingHandlers enableProfilingHandler \
         enableSystemLogHandler enableSystemLogQuery exitOnLockContention \
         experimentalNodeAllocatableIgnoreEvictionThreshold failCgroupV1 failSwapOn \
         keepTerminatedPodVolumes kernelMemcgNotification localStorageCapacityIsolation \
         makeIPTablesUtilChains mqttRetain protectKernelDefaults registerNode \
         registerSchedulable reportEvent seccompDefault singleProcessOOMKill windowsService",
    ),
    (
        Kind::Number,
        "containerLogMaxWorkers eventBurst eventRecordQPS handshakeTimeout iptablesDropBit \
         iptablesMasqueradeBit listenPort maxOpenFiles memoryThrottlingFactor mqttMode mqttQOS \
         mqttSessionQueueSize networkPluginMTU nodeLeaseDurationSeconds nodeStatusMaxImages \
         oomScoreAdj podPidsLimit podsPerCore port readDeadline timeout writeDeadline",
    ),
    (
        Kind::Text,
        "apiVersion certDirectory cgroupDriver cgroupRoot cniBinDir cniCacheDir cniConfDir \
         configMapAndSecretChangeDetectionStrategy containerRuntime contentType \
         contextSendGroup contextSendModule cpuCFSQuotaPeriod cpuManagerPolicy \
         cpuManagerReconcilePeriod customInterfaceName dmiSockPath dockerEndpoint \
         dockershimRootDirectory dummyServer experimentalMounterPath fileCheckFrequency \
         hairpinMode imageCredentialProviderBinDir imageCredentialProviderConfigFile \
         imageServiceEndpoint kind kubeConfig kubeReservedCgroup kubeletCgroups \
         kubeletConfigFile lbStrategy listenInterface lockFilePath masterServiceNamespace \
         memoryManagerPolicy mqttPassword mqttPubClientID mqttServerExternal \
         mqttServerInternal mqttSubClientID mqttUsername networkPluginName \
         nodeStatusReportFrequency nodeStatusUpdateFrequency nonMasqueradeCidr podCIDR \
         registerNodeNamespace remoteImageEndpoint reservedSystemCPUs runtimeCgroups \
         runtimeRequestTimeout seccompProfileRoot server showHiddenMetricsForVersion \
         shutdownGracePeriod shutdownGracePeriodCriticalPods streamingConnectionIdleTimeout \
         subNet syncFrequency systemCgroups systemReservedCgroup tlsCaFile tlsCertFile \
         tlsMqttCAFile tlsMqttCertFile tlsMqttPrivateKeyFile tlsPrivateKeyFile \
         tlsTunnelCAFile tlsTunnelCertFile tlsTunnelPrivateKeyFile topologyManagerPolicy \
         topologyManagerScope volumePluginDir volumeStatsAggPeriod windowsPriorityClass",
    ),
    (
        Kind::List,
        "apiAudiences enforceNodeAllocatable registerWithTaints reservedMemory \
         serviceAccountIssuers serviceAccountKeyFiles shutdownGracePeriodByPodPriority",
    ),
    (
        Kind::Map,
        "cpuManagerPolicyOptions database edgeHub featureGates logging memorySwap \
         metaManager nodeLabels qosReserved topologyManagerPolicyOptions",
    ),
];

/// Whether this may be a value of that key. A key in no table may have any value: durations
/// that were numbers in some versions.
pub(super) fn check(key: &str, value: &Value) -> Result<(), Input> {
    let found = KINDS.iter().find(|(_, keys)| keys.split_whitespace().any(|known| known == key));
    let Some((kind, _)) = found else { return Ok(()) };
    let (is_valid, expected) = match kind {
        Kind::Truth => (matches!(value, Value::Bool(_)), "true or false"),
        Kind::Number => {
            (matches!(value, Value::Int(_) | Value::Big(_) | Value::Float(_)), "a number")
        }
        Kind::Text => (matches!(value, Value::Text(_)), "text"),
        Kind::List => (matches!(value, Value::List(_)), "a list"),
        Kind::Map => (matches!(value, Value::Map(_)), "a map"),
    };
    if is_valid { Ok(()) } else { Err(Input::new(value, expected)) }
}

/// Whether it requests nothing: it is empty, or switched off.
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Text(text) => text.is_empty(),
        Value::List(list) => list.is_empty(),
        Value::Map(map) => map.is_empty() || !modules::is_on(value, true),
        Value::Bool(_) | Value::Int(_) | Value::Big(_) | Value::Float(_) => false,
    }
}

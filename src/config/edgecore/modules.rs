//! Parts of KubeEdge that edged lacks: their keys are known, and reported if a part is on.

use crate::config::table::{Row, Rule, Table, truth};

use crate::wire::tree::Value;
#[cfg(feature = "node-jobs")]
use Rule::Map;
use Rule::{Module, Take as Set};

/// Below `modules`, each with KubeEdge's default for `enable`.
pub(super) const ALL: &[Row] = &[
    ("dbTest", Module(&BARE, false)),
    // Removed in 1.7.
    ("edgeMesh", Module(&EDGE_MESH, false)),
    #[cfg(not(all(feature = "cloud", feature = "streams")))]
    ("edgeStream", Module(&EDGE_STREAM, false)),
    #[cfg(not(feature = "servicebus"))]
    ("serviceBus", Module(&SERVICE_BUS, false)),
    #[cfg(feature = "node-jobs")]
    ("taskManager", Map(&TASK_MANAGER)),
    #[cfg(not(feature = "node-jobs"))]
    ("taskManager", Module(&BARE, false)),
];

#[cfg(feature = "node-jobs")]
const TASK_MANAGER: Table = Table {
    rules: &[(
        "enable",
        Set(|config, value| {
            config.node_jobs = truth(value)?;
            Ok(())
        }),
    )],
    more: &[],
    unused: "",
};

const ENABLE: &[Row] = &[("enable", Set(|_, value| truth(value).map(drop)))];

const BARE: Table = Table { rules: ENABLE, more: &[], unused: "" };
const EDGE_MESH: Table =
    Table { rules: ENABLE, more: &[], unused: "lbStrategy listenInterface listenPort subNet" };
#[cfg(not(all(feature = "cloud", feature = "streams")))]
const EDGE_STREAM: Table = Table {
    rules: ENABLE,
    more: &[],
    unused: "handshakeTimeout readDeadline server tlsTunnelCAFile tlsTunnelCertFile \
        tlsTunnelPrivateKeyFile writeDeadline",
};
#[cfg(not(feature = "servicebus"))]
const SERVICE_BUS: Table =
    Table { rules: ENABLE, more: &[], unused: "port server timeout tlsCertFile tlsPrivateKeyFile" };

/// Whether the part is on.
pub(super) fn is_on(module: &Value, default: bool) -> bool {
    let Value::Map(map) = module else { return default };
    match map.get("enable").map(|entry| &entry.node.value) {
        Some(Value::Bool(on)) => *on,
        Some(_) | None => default,
    }
}

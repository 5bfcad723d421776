//! Parts of KubeEdge that edged lacks: their keys are known, and reported if a part is on.

#[cfg(feature = "node-jobs")]
use super::Config;
#[cfg(feature = "node-jobs")]
use crate::config::table::text;
use crate::config::table::{Row, Rule, Table, truth};
#[cfg(feature = "node-jobs")]
use crate::limits::UPGRADE_REPOSITORIES_MAX;
#[cfg(feature = "node-jobs")]
use crate::model::error::Input;
#[cfg(feature = "node-jobs")]
use crate::model::image::ImageName;
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
    rules: &[
        (
            "enable",
            Set(|config, value| {
                config.node_jobs = truth(value)?;
                Ok(())
            }),
        ),
        ("upgradeRepositories", Set(upgrade_repositories)),
    ],
    more: &[],
    unused: "",
};

/// Repositories, without tag and digest. A key of ours.
#[cfg(feature = "node-jobs")]
fn upgrade_repositories(config: &mut Config, value: &Value) -> Result<(), Input> {
    let Value::List(list) = value else {
        return Err(Input::new(value, "a list of repositories"));
    };
    if list.len() > UPGRADE_REPOSITORIES_MAX {
        let got = format_args!("{} repositories", list.len());
        return Err(Input::new(got, format!("{UPGRADE_REPOSITORIES_MAX} at most")));
    }
    let repository = |given: &str| {
        let name = ImageName::parse(given)
            .map_err(|why| Input::quoted(given, format!("a repository: {why}")))?;
        if name.tag.is_some() || name.digest.is_some() {
            return Err(Input::quoted(given, "a repository without tag and digest"));
        }
        Ok(name.repository().into())
    };
    let all = list.iter().map(|node| text(&node.value).and_then(repository));
    config.upgrade_repositories = all.collect::<Result<_, _>>()?;
    Ok(())
}

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

//! Discovery of the kinds of manifests, and `/version`: what kubectl asks for before anything else,
//! and an EdgeCore's MetaServer passes on (metaserver.md, section 10).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::model::api::Kind;

/// The answer to a path of no resource; `None`: there is no such path.
pub(super) fn answer(path: &str) -> Option<Value> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match parts[..] {
        ["healthz" | "livez" | "readyz", ..] => Some("ok".into()),
        ["version"] => Some(version()),
        ["api"] => Some(json!({"kind": "APIVersions", "versions": ["v1"]})),
        ["api", version] => resources(version),
        ["apis"] => {
            let groups = groups();
            Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["apis", group] => groups().into_iter().find(|it| it["name"] == group),
        ["apis", group, version] => resources(&format!("{group}/{version}")),
        _ => None,
    }
}

/// That of the API server whose objects these are.
fn version() -> Value {
    json!({
        "major": "1", "minor": "32", "gitVersion": "v1.32.10", "gitCommit": "",
        "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
    })
}

fn groups() -> Vec<Value> {
    // Each has one version here.
    let split = |kind: Kind| kind.api_version().split_once('/');
    let all: BTreeMap<&str, &str> = Kind::ALL.into_iter().filter_map(split).collect();
    let group = |(name, version): (&str, &str)| {
        let version = json!({"groupVersion": format!("{name}/{version}"), "version": version});
        json!({
            "kind": "APIGroup", "apiVersion": "v1", "name": name,
            "versions": [version], "preferredVersion": version,
        })
    };
    all.into_iter().map(group).collect()
}

/// Those of the API server: kubectl knows none by itself.
fn short_names(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Node => &["no"],
        Kind::ConfigMap => &["cm"],
        Kind::Pod => &["po"],
        Kind::ServiceAccount => &["sa"],
        Kind::PersistentVolume => &["pv"],
        Kind::PersistentVolumeClaim => &["pvc"],
        Kind::Event => &["ev"],
        Kind::Secret
        | Kind::ServiceAccountAccess
        | Kind::DeviceModel
        | Kind::Device
        | Kind::Lease
        | Kind::VolumeAttachment
        | Kind::DeviceStatus
        | Kind::ObjectSync
        | Kind::ClusterObjectSync
        | Kind::ImagePrePullJob
        | Kind::NodeUpgradeJob
        | Kind::ConfigUpdateJob
        | Kind::RuleEndpoint
        | Kind::Rule
        | Kind::Role
        | Kind::ClusterRole
        | Kind::RoleBinding
        | Kind::ClusterRoleBinding => &[],
    }
}

fn resources(group_version: &str) -> Option<Value> {
    let of_it = Kind::ALL.into_iter().filter(|kind| kind.api_version() == group_version);
    let one = |kind: Kind| {
        json!({
            "name": kind.plural(), "singularName": kind.name().to_lowercase(),
            "namespaced": kind.is_namespaced(), "kind": kind.name(),
            "verbs": ["get", "list", "watch"], "shortNames": short_names(kind),
        })
    };
    let all: Vec<Value> = of_it.map(one).collect();
    (!all.is_empty()).then(|| {
        json!({
            "kind": "APIResourceList", "apiVersion": "v1",
            "groupVersion": group_version, "resources": all,
        })
    })
}

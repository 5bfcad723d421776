//! Discovery of what is served, the version, and the paths that ask whether the server runs. All of
//! it is answered by the node alone: discovery of the cluster would name what is not served here.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::model::metaserver::{MetaServerSettings, Served};

/// A path's answer: media type and body. `None`: the path is none of these.
pub(super) fn answer(path: &str, settings: &MetaServerSettings) -> Option<(&'static str, String)> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let body = match parts[..] {
        ["healthz" | "livez" | "readyz", ..] => return Some(("text/plain", "ok".to_owned())),
        ["version"] => version(),
        ["api"] => json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [
                {"clientCIDR": "0.0.0.0/0", "serverAddress": settings.server.to_string()},
            ],
        }),
        ["api", version] => resources("", version, settings)?,
        ["apis"] => groups(settings),
        ["apis", group] => groups_of(settings).into_iter().find(|it| it["name"] == group)?,
        ["apis", group, version] => resources(group, version, settings)?,
        _ => return None,
    };
    Some(("application/json", body.to_string()))
}

/// As the node reports it, so that clients know which objects to expect.
fn version() -> Value {
    json!({
        "major": "1", "minor": "32", "gitVersion": "v1.32.10", "gitCommit": "",
        "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "",
        "platform": format!("linux/{ARCH}"),
    })
}

/// As Go calls it.
const ARCH: &str = if cfg!(target_arch = "aarch64") {
    "arm64"
} else if cfg!(target_arch = "arm") {
    "arm"
} else {
    "amd64"
};

fn resources(group: &str, version: &str, settings: &MetaServerSettings) -> Option<Value> {
    let of_it = |it: &&Arc<Served>| *it.gvr.group == *group && *it.gvr.version == *version;
    let verbs: &[&str] = if settings.has_writes() {
        &["create", "delete", "get", "list", "patch", "update", "watch"]
    } else {
        &["get", "list", "watch"]
    };
    let one = |it: &Arc<Served>| {
        json!({
            "name": it.gvr.resource, "singularName": it.kind.to_lowercase(),
            "namespaced": it.namespaced, "kind": it.kind, "verbs": verbs,
            "shortNames": short_names(it),
        })
    };
    let all: Vec<Value> = settings.served.iter().filter(of_it).map(one).collect();
    let group_version =
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    (!all.is_empty()).then(|| {
        json!({
            "kind": "APIResourceList", "apiVersion": "v1",
            "groupVersion": group_version, "resources": all,
        })
    })
}

fn short_names(served: &Served) -> &'static [&'static str] {
    match &*served.gvr.resource {
        "configmaps" => &["cm"],
        "endpoints" => &["ep"],
        "namespaces" => &["ns"],
        "nodes" => &["no"],
        "pods" => &["po"],
        "services" => &["svc"],
        _ => &[],
    }
}

fn groups(settings: &MetaServerSettings) -> Value {
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups_of(settings)})
}

fn groups_of(settings: &MetaServerSettings) -> Vec<Value> {
    let named = settings.served.iter().map(|it| &*it.gvr.group).filter(|group| !group.is_empty());
    let names: BTreeSet<&str> = named.collect();
    let group = |name: &str| {
        let of_it = settings.served.iter().filter(|it| *it.gvr.group == *name);
        let versions: BTreeSet<&str> = of_it.map(|it| &*it.gvr.version).collect();
        let version = |it: &str| json!({"groupVersion": format!("{name}/{it}"), "version": it});
        let versions: Vec<Value> = versions.into_iter().map(version).collect();
        json!({
            "kind": "APIGroup", "apiVersion": "v1", "name": name,
            "preferredVersion": versions.first(), "versions": versions,
        })
    };
    names.into_iter().map(group).collect()
}

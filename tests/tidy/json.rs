//! Messages come and go as types, which `wire` reads and writes; JSON in a core is what it carries
//! for others, or the rows of its store.

use crate::Complaints;
use crate::source::{code, line_at, words_of};
use crate::tree::{all, hold, is_rust};

/// The files of the controller with JSON, and why: there are objects of the API server in them,
/// which must keep the fields that this version does not know. The list may only shrink.
const CONTROLLER: [(&str, &str); 30] = [
    ("calls.rs", "passes objects on, and reads two fields of volumes"),
    ("devices/status.rs", "merges reports of a device with the status that the API server has"),
    ("dynamic/object.rs", "reads an object of any kind, and keeps its bytes"),
    ("event.rs", "names objects in events and actions"),
    ("identity.rs", "reads a Secret"),
    ("join.rs", "the claims of its own tokens"),
    ("kubelet_port.rs", "writes a port into a Node's status"),
    ("leader_election.rs", "writes a Lease with all that others wrote into it"),
    ("legacy.rs", "merges a node's statuses with those that the API server has"),
    ("local/any.rs", "is an API server: an object is a tree"),
    ("local/calls.rs", "is an API server: an object is a tree"),
    ("local/discovery.rs", "is an API server: it names its kinds"),
    ("local/lifecycle.rs", "is an API server: an object is a tree"),
    ("local/mod.rs", "is an API server: an object is a tree"),
    ("local/patch.rs", "is an API server: an object is a tree"),
    ("local/pods.rs", "is an API server: an object is a tree"),
    ("local/usage.rs", "is an API server: an object is a tree"),
    ("local/wanted.rs", "is an API server: an object is a tree"),
    ("location.rs", "reads what a pod refers to"),
    ("node_jobs/job.rs", "reads jobs, and writes statuses with all that others wrote into them"),
    ("object.rs", "reads an object's identity, and keeps its bytes"),
    ("policy/index.rs", "reads roles and bindings, and keeps the rules of roles"),
    ("restrict.rs", "leaves out of a Node what its node may not write"),
    ("router/rule.rs", "reads rules and their endpoints"),
    ("session.rs", "keeps an object until it is acknowledged"),
    ("syncs.rs", "reads and writes ObjectSyncs"),
    ("tunnel_port.rs", "writes a record in a ConfigMap with all that others wrote into it"),
    ("unsupported.rs", "passes a list of pods on"),
    ("upstream.rs", "passes on the objects that a node writes"),
    ("watch_resume.rs", "takes objects from watches"),
];

#[test]
fn the_agent_has_json_only_in_the_rows_of_its_store() {
    let has_types = |path: &str| {
        path.starts_with("src/agent/")
            && !path.starts_with("src/agent/cloud/rows")
            && !path.ends_with("/tests.rs")
    };
    hold(|f| is_rust(&f.path) && has_types(&f.path), |f| json(&f.text));
}

#[test]
fn the_controller_has_json_only_in_objects_of_the_api_server() {
    let own = |path: &str| path.strip_prefix("src/controller/").map(str::to_owned);
    let listed = |path: &str| CONTROLLER.iter().any(|(file, _)| *file == path);
    let is_test = |path: &str| path.contains("/tests/") || path.ends_with("tests.rs");
    hold(
        |f| is_rust(&f.path) && !is_test(&f.path) && own(&f.path).is_some_and(|it| !listed(&it)),
        |f| json(&f.text),
    );
    let files = all();
    for (listed, why) in CONTROLLER {
        let file = files.iter().find(|file| own(&file.path).as_deref() == Some(listed));
        let file = file.unwrap_or_else(|| panic!("{listed} is gone: {why}"));
        assert!(!json(&file.text).is_empty(), "{listed} has no JSON any more: {why}");
    }
}

/// Outside of tests.
fn json(text: &str) -> Complaints {
    let code = code(text.split("mod tests {").next().unwrap_or_default());
    let found = words_of(&code).filter(|(_, word)| *word == "serde_json");
    found.map(|(at, _)| (line_at(&code, at), "JSON in the core".to_owned())).collect()
}

#[test]
fn json_is_refused_in_the_core() {
    assert_eq!(json("use crate::model::upstream::Up; // not serde_json"), []);
    assert_eq!(json("#[cfg(test)]\nmod tests {\n    use serde_json::json;\n}\n"), []);
    crate::refused(&json("\nuse serde_json::Value;"), 2);
}

//! Every field of a manifest: each has an effect on the requests to the runtime and the node, or is
//! refused with a sentence that names it, or is not used by nodes and kept.
//!
//! The names are those of core/v1 as of Kubernetes 1.34, a list for each place; a name without a
//! row fails, and so does a row without a name. A field with a later effect than a container's
//! start has a separate story, which its row names.

mod schema;
mod table;
mod volumes;

use edged::agent::event::Event;
use edged::model::cgroup::{Cgroups, Hierarchy};
use edged::model::cri::{Reply, Request};
use serde_json::{Value, json};

use crate::harness::Harness;
use schema::{PLACES, Place};
use table::{Fate, Row, rows};

/// A pod with every place that fields are put into.
fn base() -> Value {
    json!({
        "metadata": {"name": "p", "uid": "u1", "namespace": "default"},
        "spec": {
            "containers": [{
                "name": "m", "image": "i:1",
                "ports": [{"containerPort": 80}],
                "env": [{"name": "A", "value": "x"}, {"name": "B", "valueFrom": {
                    "fieldRef": {"fieldPath": "metadata.name"}}}],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                "livenessProbe": {"tcpSocket": {"port": 81}},
                "lifecycle": {"preStop": {"exec": {"command": ["bye"]}}},
                "resources": {"requests": {"cpu": "10m"}},
                "securityContext": {"capabilities": {"add": []}}
            }],
            "volumes": [{"name": "v", "hostPath": {"path": "/srv"}}],
            "securityContext": {}
        }
    })
}

/// The effects of a pod.
struct Observed {
    /// All requests during its life.
    requested: String,
    /// Its status, if it does not run.
    refusal: Option<String>,
    /// The pod in the API.
    shown: String,
}

fn observe(pod: &Value) -> Observed {
    let mut harness = Harness::with(|config| {
        let huge_pages = vec![2 << 20];
        config.machine.cgroups = Cgroups { hierarchy: Hierarchy::V1, swap: false, huge_pages };
        config.machine.apparmor = true;
        config.settings.cluster_dns = vec!["10.0.0.53".to_owned()];
    });
    harness.manifests(&[&pod.to_string()]);
    let mut requested = Vec::new();
    run(&mut harness, &mut requested);
    let status = harness.status();
    let failed = status["phase"] == "Failed";
    let waiting = &status["containerStatuses"][0]["state"]["waiting"]["message"];
    let refusal = if failed { status["message"].as_str() } else { waiting.as_str() };
    let unasked = requested.is_empty().then(|| harness.events.join("; "));
    let refusal = refusal.map(str::to_owned).or(unasked);
    let pod = harness.agent.pods().next().expect("there is a pod");
    let shown = serde_json::to_string(pod).expect("plain data");
    harness.manifests(&[]);
    run(&mut harness, &mut requested);
    requested.push(format!("{:?}", harness.specs));
    let requested = requested.join("\n");
    Observed { requested, refusal, shown }
}

/// The runtime performs all requests.
fn run(harness: &mut Harness, requested: &mut Vec<String>) {
    for _ in 0..40 {
        if let Some((call, request)) = harness.open.first().cloned() {
            requested.push(format!("{request:?}"));
            // The values are not in the short form of a request.
            if let Request::CreateContainer { config, .. } = &request {
                requested.push(format!("{:?}", config.envs));
            }
            harness.open.remove(0);
            let reply = match request {
                Request::ExecSync { .. } => Reply::Exec(Box::default()),
                request => harness.perform(&request),
            };
            harness.deliver(Event::Cri(call, Ok(reply)));
        } else if !harness.queries.is_empty() {
            requested.push(format!("{:?}", harness.queries.remove(0).1));
        } else {
            harness.pass(700);
        }
    }
}

fn with(row: &Row) -> Value {
    let mut pod = base();
    for (at, value) in row.with {
        put(&mut pod, at, serde_json::from_str(value).expect(value));
    }
    let value: Value = serde_json::from_str(row.value).expect(row.value);
    put(&mut pod, &format!("{}/{}", row.place, row.field), value);
    pod
}

fn put(pod: &mut Value, at: &str, value: Value) {
    let (parent, key) = at.rsplit_once('/').expect("a pointer");
    let parent = pod.pointer_mut(parent).unwrap_or_else(|| panic!("nothing at {parent}"));
    match parent.as_array_mut() {
        Some(list) => list.push(value),
        None => parent[key] = value,
    }
}

#[test]
fn every_field_has_a_row_and_every_row_a_field() {
    for Place { at, fields } in PLACES {
        let here = || rows().filter(|row| row.place == *at);
        for field in fields.split_whitespace() {
            assert!(here().any(|row| row.field == field), "{at}/{field} has no row");
        }
        for row in here() {
            let known = fields.split_whitespace().any(|field| field == row.field);
            assert!(known, "{at}/{} is no field", row.field);
        }
    }
    let known = |row: &&Row| PLACES.iter().any(|place| place.at == row.place);
    assert!(rows().all(|row| known(&row)), "a row is of no place");
}

#[test]
fn every_field_does_what_its_row_says() {
    let plain = observe(&base());
    assert_eq!(plain.refusal, None);
    let mut wrong = Vec::new();
    for row in rows() {
        let name = format!("{}/{} {}", row.place, row.field, row.value);
        let mut check = |fine: bool, why: String| {
            if !fine {
                wrong.push(format!("{name}: {why}"));
            }
        };
        if let Fate::InStory(story) = row.outcome {
            check(has_story(story), format!("there is no story {story}"));
            continue;
        }
        let observed = observe(&with(row));
        match row.outcome {
            Fate::Shows(what) => {
                check(observed.refusal.is_none(), format!("{:?}", observed.refusal));
                check(
                    observed.requested.contains(what),
                    format!("no {what} in {}", observed.requested),
                );
                check(!plain.requested.contains(what), format!("{what} is there without it"));
            }
            Fate::Refused(what) => {
                let refusal = observed.refusal.unwrap_or_default();
                check(refusal.contains(what), format!("not refused for {what}: {refusal:?}"));
            }
            Fate::Carried => {
                check(observed.refusal.is_none(), format!("{:?}", observed.refusal));
                let key = format!("\"{}\":", row.field);
                check(observed.shown.contains(&key), format!("not in {}", observed.shown));
                let same = row.with.is_empty().then(|| observed.requested == plain.requested);
                check(same != Some(false), format!("it changes {}", observed.requested));
            }
            Fate::InStory(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
}

/// `file::function`
fn has_story(story: &str) -> bool {
    const FILES: [(&str, &str); 9] = [
        ("claims", include_str!("claims.rs")),
        ("decisions", include_str!("decisions.rs")),
        ("environment", include_str!("environment.rs")),
        ("files", include_str!("files.rs")),
        ("hooks", include_str!("hooks.rs")),
        ("images", include_str!("images.rs")),
        ("lifecycle", include_str!("lifecycle.rs")),
        ("probes", include_str!("probes.rs")),
        ("security", include_str!("security.rs")),
    ];
    let Some((file, function)) = story.split_once("::") else { return false };
    FILES
        .iter()
        .any(|(name, text)| *name == file && text.contains(&format!("#[test]\nfn {function}()")))
}

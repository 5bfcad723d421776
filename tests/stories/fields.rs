//! Every field that a manifest may have: each is seen in what is asked of the runtime and of the
//! node, or refused with a sentence that names it, or without meaning at a node and carried along.
//!
//! The names are those of core/v1 as of Kubernetes 1.34, a list for each place; a name without a
//! row fails, and so does a row without a name. What a field does later than a container's start
//! has a story of its own, which its row names.

mod schema;
mod table;
mod volumes;

use edged::agent::event::Event;
use edged::model::cgroup::{Cgroups, Hierarchy};
use edged::model::cri::{Exec, Reply, Request};
use serde_json::{Value, json};

use crate::harness::Harness;
use schema::{PLACES, Place};
use table::{Fate, Row, rows};

/// A pod that has something in every place that fields are put into.
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

/// What becomes of a pod.
struct Seen {
    /// All that is asked for from its coming to its going.
    asked: String,
    /// Its status, where it does not run.
    refusal: Option<String>,
    /// As the API shows it.
    shown: String,
}

fn observe(pod: &Value) -> Seen {
    let mut harness = Harness::with(|config| {
        let huge_pages = vec![2 << 20];
        config.machine.cgroups = Cgroups { hierarchy: Hierarchy::V1, swap: false, huge_pages };
        config.machine.apparmor = true;
        config.settings.cluster_dns = vec!["10.0.0.53".to_owned()];
    });
    harness.manifests(&[&pod.to_string()]);
    let mut asked = Vec::new();
    run(&mut harness, &mut asked);
    let status = harness.status();
    let failed = status["phase"] == "Failed";
    let waiting = &status["containerStatuses"][0]["state"]["waiting"]["message"];
    let refusal = if failed { status["message"].as_str() } else { waiting.as_str() };
    let unasked = asked.is_empty().then(|| harness.events.join("; "));
    let refusal = refusal.map(str::to_owned).or(unasked);
    let pod = harness.agent.pods().next().expect("there is a pod");
    let shown = serde_json::to_string(pod).expect("plain data");
    harness.manifests(&[]);
    run(&mut harness, &mut asked);
    asked.push(format!("{:?}", harness.specs));
    let asked = asked.join("\n");
    Seen { asked, refusal, shown }
}

/// The runtime does all that it is asked for.
fn run(harness: &mut Harness, asked: &mut Vec<String>) {
    for _ in 0..40 {
        if let Some((call, request)) = harness.open.first().cloned() {
            asked.push(format!("{request:?}"));
            // Their values are not among what is shown of a request.
            if let Request::CreateContainer { config, .. } = &request {
                asked.push(format!("{:?}", config.envs));
            }
            harness.open.remove(0);
            let reply = match request {
                Request::ExecSync { .. } => {
                    Reply::Exec(Box::new(Exec { exit_code: 0, output: "".into() }))
                }
                request => harness.perform(&request),
            };
            harness.tell(Event::Cri(call, Ok(reply)));
        } else if !harness.queries.is_empty() {
            asked.push(format!("{:?}", harness.queries.remove(0).1));
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
        if let Fate::Told(story) = row.fate {
            check(has_story(story), format!("there is no story {story}"));
            continue;
        }
        let seen = observe(&with(row));
        match row.fate {
            Fate::Shows(what) => {
                check(seen.refusal.is_none(), format!("{:?}", seen.refusal));
                check(seen.asked.contains(what), format!("no {what} in {}", seen.asked));
                check(!plain.asked.contains(what), format!("{what} is there without it"));
            }
            Fate::Refused(what) => {
                let refusal = seen.refusal.unwrap_or_default();
                check(refusal.contains(what), format!("not refused for {what}: {refusal:?}"));
            }
            Fate::Carried => {
                check(seen.refusal.is_none(), format!("{:?}", seen.refusal));
                let key = format!("\"{}\":", row.field);
                check(seen.shown.contains(&key), format!("not in {}", seen.shown));
                let same = row.with.is_empty().then(|| seen.asked == plain.asked);
                check(same != Some(false), format!("it changes {}", seen.asked));
            }
            Fate::Told(_) => {}
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

//! Images: when they are pulled, with which credentials, how many in parallel, and the reports of
//! failures.

use std::collections::BTreeMap;
use std::sync::Arc;

use edged::agent::event::Event;
use edged::agent::image::Settings;
use edged::limits;
use edged::model::cri::{CallError, Code, Lost, Request, RuntimeStatus};
use edged::model::manifest::{Content, File, Folder};
use edged::model::object::{Bytes, Object, Secret};
use edged::model::pod::Pod;

use crate::harness::{Harness, MAIN, pod};

/// A `config.json` with one user for each registry.
fn credentials(users: &[(&str, &str)]) -> String {
    let entries: Vec<String> = users
        .iter()
        .map(|(registry, user)| {
            format!(r#""{registry}": {{"username": "{user}", "password": "p"}}"#)
        })
        .collect();
    format!(r#"{{"auths": {{{}}}}}"#, entries.join(","))
}

fn secret(name: &str, config: &str) -> Arc<Object> {
    let mut secret = Secret::default();
    "default".clone_into(&mut secret.metadata.namespace);
    name.clone_into(&mut secret.metadata.name);
    "kubernetes.io/dockerconfigjson".clone_into(&mut secret.r#type);
    let bytes = Bytes(config.as_bytes().into());
    secret.data = BTreeMap::from([(".dockerconfigjson".to_owned(), bytes)]);
    Arc::new(Object::Secret(secret))
}

/// A pod whose image must be pulled, with secrets, up to its first pull.
fn pulling(harness: &mut Harness, image: &str, named: &[&str], objects: Vec<Arc<Object>>) {
    harness.images.clear();
    let named: Vec<String> = named.iter().map(|name| format!(r#"{{"name": "{name}"}}"#)).collect();
    let spec = format!(
        r#""imagePullSecrets": [{}], "containers": [{{"name": "m", "image": "{image}"}}]"#,
        named.join(",")
    );
    let pods = vec![serde_json::from_str::<Pod>(&pod(&spec)).expect("a pod")];
    let file = File { path: "/m/0".into(), changed_ns: 0, content: Ok(Content { pods, objects }) };
    harness.deliver(Event::Manifests(Folder { trouble: None, files: vec![file] }));
    let requested = format!("image_status {image}");
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1", &requested]);
}

/// Refuses the pull under way as a registry does; returns the user of the request.
#[track_caller]
fn refused(harness: &mut Harness, image: &str, why: &str) -> Option<String> {
    let requested = format!("pull_image {image}");
    let request = harness.open.iter().find_map(|(_, request)| match request {
        Request::PullImage { auth, .. } => Some(auth.clone()),
        _ => None,
    });
    harness.refuses(&requested, Code::Unknown, why);
    request.expect("a pull is under way").map(|auth| auth.username.to_string())
}

fn waiting(harness: &Harness) -> (String, String) {
    let waiting = &harness.status()["containerStatuses"][0]["state"]["waiting"];
    let text = |key: &str| waiting[key].as_str().unwrap_or_default().to_owned();
    (text("reason"), text("message"))
}

#[test]
fn a_long_pull_says_now_and_then_that_it_goes_on() {
    let mut harness = Harness::new();
    pulling(&mut harness, "r.example/i:1", &[], Vec::new());
    harness.log.clear();
    let reported_ms = limits::PULL_LOG_MS;
    harness.pass(reported_ms - 1);
    let pulls = |harness: &Harness| {
        let reported = harness.log.iter().filter(|line| line.starts_with("pulling image"));
        reported.cloned().collect::<Vec<_>>()
    };
    assert_eq!(pulls(&harness), [] as [&str; 0]);
    let line = |ms: u64| format!("pulling image \"r.example/i:1\" for {} s", ms / 1_000);
    harness.pass(1);
    assert_eq!(pulls(&harness), [line(reported_ms)]);
    harness.pass(reported_ms - 1);
    assert_eq!(pulls(&harness).len(), 1);
    harness.pass(1);
    assert_eq!(pulls(&harness), [line(reported_ms), line(2 * reported_ms)]);
    harness.pass(1_000);
    let now = harness.now;
    let pulls = harness.agent.overview(now).pulls;
    assert_eq!(pulls, [("r.example/i:1".to_owned(), 2 * reported_ms + 1_000)]);
    refused(&mut harness, "r.example/i:1", "gone");
    assert_eq!(harness.agent.overview(now).pulls, [] as [(String, u64); 0]);
}

#[test]
fn credentials_are_tried_one_after_another_until_one_is_let_in() {
    let mut harness = Harness::new();
    let secrets = vec![
        secret("a", &credentials(&[("x.io", "host"), ("other.io", "other")])),
        secret("b", &credentials(&[("x.io/team", "team"), ("*.io", "any")])),
    ];
    pulling(&mut harness, "x.io/team/app:1", &["a", "", "b"], secrets);
    assert_eq!(refused(&mut harness, "x.io/team/app:1", "401").as_deref(), Some("team"));
    assert_eq!(refused(&mut harness, "x.io/team/app:1", "401").as_deref(), Some("host"));
    harness.images.push("x.io/team/app:1");
    harness.does_all(&["pull_image x.io/team/app:1", "image_status x.io/team/app:1"]);
    harness.does_all(&["create_container m#0", "start_container c2", "container_status c2"]);
    let pulling = harness.events.iter().filter(|event| event.starts_with("Pulling "));
    assert_eq!(pulling.count(), 1, "{:?}", harness.events);
    assert!(
        !harness.events.iter().any(|event| event.starts_with("Failed")),
        "{:?}",
        harness.events
    );
}

#[test]
fn when_nobody_is_let_in_every_refusal_is_told() {
    let mut harness = Harness::new();
    let users = credentials(&[("x.io/app", "one"), ("x.io", "two")]);
    pulling(&mut harness, "x.io/app:1", &["a"], vec![secret("a", &users)]);
    assert_eq!(refused(&mut harness, "x.io/app:1", "401 one").as_deref(), Some("one"));
    assert_eq!(refused(&mut harness, "x.io/app:1", "401 two").as_deref(), Some("two"));
    let reported = "Failed Failed to pull image \"x.io/app:1\": [401 one, 401 two]";
    assert!(harness.events.iter().any(|event| event == reported), "{:?}", harness.events);
    assert!(harness.events.iter().any(|event| event == "Failed Error: ErrImagePull"));
    assert_eq!(waiting(&harness).0, "ErrImagePull");
    harness.does("image_status x.io/app:1");
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    assert_eq!(waiting(&harness).0, "ImagePullBackOff");
    harness.pass(9_900);
    assert_eq!(harness.open_calls(), [] as [&str; 0], "the back-off holds");
    harness.pass(100);
    harness.does("image_status x.io/app:1");
    assert_eq!(
        refused(&mut harness, "x.io/app:1", "401").as_deref(),
        Some("one"),
        "from the first"
    );
}

#[test]
fn a_registry_that_does_not_answer_is_told_in_the_runtimes_words() {
    let mut harness = Harness::new();
    pulling(&mut harness, "x.io/app:1", &[], Vec::new());
    let message = "dial tcp 192.0.2.9:443: i/o timeout".to_owned();
    let found = Lost::Runtime { code: Code::DeadlineExceeded, message };
    let (call, _) = harness.take("pull_image x.io/app:1");
    harness.deliver(Event::Cri(call, Err(CallError::Lost(found))));
    let why = "rpc error: code = DeadlineExceeded desc = dial tcp 192.0.2.9:443: i/o timeout";
    assert_eq!(waiting(&harness), ("ErrImagePull".to_owned(), why.to_owned()));
    let reported = format!("Failed Failed to pull image \"x.io/app:1\": {why}");
    assert!(harness.events.contains(&reported), "{:?}", harness.events);
}

#[test]
fn a_secret_that_is_missing_is_told_and_the_pull_goes_on_without() {
    let mut harness = Harness::new();
    pulling(&mut harness, "x.io/app:1", &["lost", "gone"], Vec::new());
    let event = "FailedToRetrieveImagePullSecret Unable to retrieve some image pull secrets (lost, \
                gone); attempting to pull the image may not succeed.";
    assert!(harness.events.iter().any(|it| it == event), "{:?}", harness.events);
    assert_eq!(refused(&mut harness, "x.io/app:1", "401"), None);
}

#[test]
fn a_secret_that_cannot_be_read_fails_the_pull_and_shows_nothing() {
    let mut harness = Harness::new();
    pulling(&mut harness, "x.io/app:1", &["a"], vec![secret("a", "hunter2")]);
    let (reason, message) = waiting(&harness);
    assert_eq!(reason, "ErrImagePull");
    assert_eq!(harness.trace.last().map(String::as_str), Some("image_status x.io/app:1"));
    assert_eq!(message, "secret default/a: .dockerconfigjson: got no JSON, line 1 column 1");
    assert!(!format!("{:?}", harness.events).contains("hunter2"));
}

#[test]
fn a_name_that_is_none_is_told_and_healed_by_another() {
    let mut harness = Harness::new();
    let both = |bad: &str| {
        pod(&format!(
            r#""containers":[{{"name":"m","image":"{bad}"}},{{"name":"n","image":"i:1"}}]"#
        ))
    };
    harness.manifests(&[&both("Bad Name")]);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1"]);
    harness.does_all(&["image_status i:1", "create_container n#0", "start_container c2"]);
    harness.does("container_status c2");
    let (reason, message) = waiting(&harness);
    assert_eq!(reason, "InvalidImageName");
    let begins = "Failed to apply default image tag \"Bad Name\": couldn't parse image name \"Bad \
                  Name\": invalid reference format";
    assert!(message.starts_with(begins), "{message}");
    assert!(harness.events.iter().any(|event| *event == format!("InspectFailed {message}")));
    assert!(harness.events.iter().any(|event| event == "Failed Error: InvalidImageName"));
    harness.pass(3_600_000);
    let reported = harness.events.iter().filter(|event| event.starts_with("InspectFailed")).count();
    assert_eq!(reported, 1, "once");
    harness.manifests(&[&both("i:2")]);
    harness.does_all(&["image_status i:2", "create_container m#0"]);
}

#[test]
fn pulls_beyond_the_budget_fail_as_the_kubelets_do() {
    let mut harness = Harness::with(|config| {
        config.pulls = Settings { parallel_max: 1, per_second: 1, burst: 1 }
    });
    harness.images.clear();
    let spec = r#""containers":[{"name":"m","image":"i:1"},{"name":"n","image":"j:1"}]"#;
    harness.manifests(&[&pod(spec)]);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    harness.refuses("pull_image i:1", Code::NotFound, "not found");
    harness.does("image_status i:1");
    harness.does_all(&["image_status j:1", "image_status j:1"]);
    assert_eq!(harness.open_calls(), [] as [&str; 0], "the budget is used up");
    let reported = "Failed Failed to pull image \"j:1\": pull QPS exceeded";
    assert!(harness.events.iter().any(|event| event == reported), "{:?}", harness.events);
    harness.pass(10_000);
    harness.does("image_status i:1");
    harness.refuses("pull_image i:1", Code::NotFound, "not found");
}

#[test]
fn who_is_refused_a_pull_for_the_budget_has_a_turn_at_last() {
    let mut harness = Harness::with(|config| {
        config.pulls = Settings { parallel_max: 1, per_second: 1, burst: 1 }
    });
    harness.images.clear();
    // The first requester uses up the budget, and fails each time.
    let spec = r#""containers":[{"name":"m","image":"i:1"},{"name":"n","image":"j:1"}]"#;
    harness.manifests(&[&pod(spec)]);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1"]);
    for _ in 0..3_600 {
        while let Some(requested) = harness.open_calls().first().cloned() {
            match &*requested {
                "pull_image j:1" => return,
                "pull_image i:1" => harness.refuses(&requested, Code::NotFound, "not found"),
                _ => harness.does(&requested),
            }
        }
        harness.pass(1_000);
    }
    panic!("within an hour there was none");
}

#[test]
fn as_many_pulls_go_side_by_side_as_are_allowed() {
    let most = limits::PULL_CALLS_MAX;
    let pods = most + 1;
    for (parallel_max, expected) in [(1, 1), (2, 2), (most, most)] {
        let mut harness = Harness::with(|config| {
            config.pulls = Settings { parallel_max, per_second: 0, burst: 1 }
        });
        harness.images.clear();
        let pods: Vec<String> = (0..pods)
            .map(|n| {
                pod(MAIN)
                    .replace(r#""name":"p""#, &format!(r#""name":"p{n}""#))
                    .replace(r#""uid":"u1""#, &format!(r#""uid":"u{n}""#))
            })
            .collect();
        let pods: Vec<&str> = pods.iter().map(String::as_str).collect();
        harness.manifests(&pods);
        for begins in ["run_podsandbox", "podsandbox_status", "image_status"] {
            for _ in &pods {
                let requested = harness.open_calls();
                let next = requested.iter().find(|name| name.starts_with(begins));
                harness.does(&next.expect("each pod requests it").clone());
            }
        }
        let pulls =
            harness.open_calls().iter().filter(|name| name.starts_with("pull_image")).count();
        assert_eq!(pulls, expected, "of {}, {parallel_max} allowed", pods.len());
    }
}

#[test]
fn the_policy_decides_whether_an_image_is_pulled() {
    for (policy, present, expected) in [
        ("Always", true, "pull_image i:1"),
        ("Always", false, "pull_image i:1"),
        ("IfNotPresent", true, "create_container m#0"),
        ("IfNotPresent", false, "pull_image i:1"),
        ("Never", true, "create_container m#0"),
        ("Never", false, "-"),
    ] {
        let mut harness = Harness::new();
        if !present {
            harness.images.clear();
        }
        let spec = MAIN.replace(r#""image""#, &format!(r#""imagePullPolicy":"{policy}","image""#));
        harness.manifests(&[&pod(&spec)]);
        harness.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
        let requested = harness.open_calls();
        assert_eq!(requested.first().map_or("-", String::as_str), expected, "{policy} {present}");
    }
}

#[test]
fn a_pull_that_nobody_wants_any_more_is_given_up_for_the_new_image() {
    let mut harness = Harness::new();
    pulling(&mut harness, "i:3", &[], Vec::new());
    assert_eq!(harness.open_calls(), ["pull_image i:3"]);
    harness.images.push("i:2");
    harness.manifests(&[&pod(r#""containers":[{"name":"m","image":"i:2"}]"#)]);
    assert_eq!(harness.cancelled.len(), 1);
    harness.does_all(&["image_status i:2", "create_container m#0", "start_container c2"]);
}

#[test]
fn a_pull_whose_image_went_and_came_back_while_the_runtime_was_not_ready_is_looked_at_again() {
    let with = |image: &str| pod(&format!(r#""containers":[{{"name":"m","image":"{image}"}}]"#));
    for comes in [true, false] {
        let mut harness = Harness::new();
        pulling(&mut harness, "i:3", &[], Vec::new());
        harness.runtime = RuntimeStatus::of(Err("starting".to_owned()), Ok(()));
        harness.pass(30_000);
        harness.manifests(&[&with("i:2")]);
        harness.manifests(&[&with("i:3")]);
        assert_eq!(harness.open_calls(), ["pull_image i:3"], "it is not cancelled meanwhile");
        if comes {
            harness.images.push("i:3");
            harness.does("pull_image i:3");
        } else {
            harness.refuses("pull_image i:3", Code::NotFound, "not found");
        }
        harness.runtime = RuntimeStatus::of(Ok(()), Ok(()));
        harness.pass(30_000);
        harness.does("image_status i:3");
        let next = if comes { "create_container m#0" } else { "pull_image i:3" };
        assert_eq!(harness.open_calls(), [next]);
    }
}

#[test]
fn a_new_image_does_not_wait_for_the_back_off_of_the_old() {
    let mut harness = Harness::new();
    pulling(&mut harness, "i:3", &[], Vec::new());
    for wait_ms in [10_000, 20_000, 30_000] {
        harness.refuses("pull_image i:3", Code::NotFound, "not found");
        harness.does("image_status i:3");
        harness.pass(wait_ms);
        harness.does("image_status i:3");
    }
    assert_eq!(waiting(&harness).0, "ImagePullBackOff");
    harness.images.push("i:2");
    harness.manifests(&[&pod(r#""containers":[{"name":"m","image":"i:2"}]"#)]);
    harness.does_all(&["image_status i:2", "create_container m#0", "start_container c2"]);
}

#[test]
fn an_image_that_was_looked_for_just_now_is_pulled_as_soon_as_there_is_room() {
    let mut harness = two_for_one_pull();
    harness.pass(limits::IMAGE_ABSENT_MS);
    harness.refuses("pull_image i:1", Code::NotFound, "not found");
    // The waiting one pulls, and the refused one checks the image.
    assert_eq!(harness.open_calls(), ["pull_image i:1", "image_status i:1"]);
}

/// Two pods need one image, of which one may be pulled at a time.
fn two_for_one_pull() -> Harness {
    let mut harness = Harness::new();
    harness.images.clear();
    let second = pod(MAIN).replace("\"p\"", "\"q\"").replace("u1", "u2");
    harness.manifests(&[&pod(MAIN), &second]);
    harness.does_all(&["run_podsandbox #0", "run_podsandbox #0"]);
    harness.does_all(&["podsandbox_status s1", "podsandbox_status s2"]);
    harness.does_all(&["image_status i:1", "image_status i:1"]);
    assert_eq!(harness.open_calls(), ["pull_image i:1"], "one after another");
    harness
}

#[test]
fn an_image_that_has_waited_for_room_is_looked_for_again() {
    let mut harness = two_for_one_pull();
    harness.pass(limits::IMAGE_ABSENT_MS + 1);
    harness.images.push("i:1");
    harness.does("pull_image i:1");
    // Both check the image: the one that pulled it, and the one that waited.
    assert_eq!(harness.open_calls(), ["image_status i:1", "image_status i:1"]);
    harness.does_all(&["image_status i:1", "image_status i:1"]);
    let reported = "Pulled Container image \"i:1\" already present on machine";
    assert!(harness.events.iter().any(|event| event == reported), "{:?}", harness.events);
    assert_eq!(harness.trace.iter().filter(|call| call.starts_with("pull_image")).count(), 1);
}

#[test]
fn credentials_of_the_node_come_after_those_of_the_pod() {
    use edged::model::keyring::{Form, Keyring};
    let mut harness = Harness::new();
    let mut keyring = Keyring::default();
    let config = credentials(&[("x.io", "node")]);
    keyring.add(config.as_bytes(), Form::Json).expect("a configuration");
    harness.deliver(Event::Credentials(Box::new(keyring)));
    let secrets = vec![secret("a", &credentials(&[("x.io", "pod")]))];
    pulling(&mut harness, "x.io/app:1", &["a"], secrets);
    assert_eq!(refused(&mut harness, "x.io/app:1", "401").as_deref(), Some("pod"));
    assert_eq!(refused(&mut harness, "x.io/app:1", "401").as_deref(), Some("node"));
}

#[test]
fn the_second_credentials_are_asked_with_however_long_the_first_took() {
    let users = credentials(&[("x.io/app", "one"), ("x.io", "two")]);
    let mut harness = Harness::new();
    pulling(&mut harness, "x.io/app:1", &["a"], vec![secret("a", &users)]);
    harness.pass(60_000);
    assert_eq!(refused(&mut harness, "x.io/app:1", "401").as_deref(), Some("one"));
    assert_eq!(refused(&mut harness, "x.io/app:1", "401").as_deref(), Some("two"));
}

#[test]
fn who_got_no_answer_asks_with_no_other_credentials() {
    let users = credentials(&[("x.io/app", "one"), ("x.io", "two")]);
    let mut harness = Harness::new();
    pulling(&mut harness, "x.io/app:1", &["a"], vec![secret("a", &users)]);
    let (call, _) = harness.take("pull_image x.io/app:1");
    harness.deliver(Event::Cri(call, Err(CallError::Lost(Lost::Deadline))));
    assert_eq!(waiting(&harness).0, "ErrImagePull");
    let pulls = harness.trace.iter().filter(|call| call.starts_with("pull_image")).count();
    assert_eq!(pulls, 1, "{:?}", harness.trace);
}

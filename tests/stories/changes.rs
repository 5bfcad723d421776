//! Changed manifests, and sandboxes that are not as they should be.

use std::sync::Arc;

use edged::agent::event::Event;
use edged::limits;
use edged::model::cgroup::Hierarchy;
use edged::model::cri::{
    CallError, CgroupDriver, Code, ContainerState, Lost, Network, Reply, Request, RuntimeHandler,
};
use edged::model::job::JobSpec;
use edged::model::manifest::{Content, File, Folder};
use edged::model::object::{Object, RuntimeClass};
use edged::model::pod::Pod;

use crate::harness::{Harness, MAIN, START, container, pod, sandbox};
use crate::made::sandbox_of;

const NOTHING: [&str; 0] = [];

fn on_cgroups() -> Harness {
    Harness::with(|config| config.machine.cgroups.hierarchy = Hierarchy::V2)
}

fn limited(cpu: &str) -> String {
    pod(&format!(
        r#""containers":[{{"name":"m","image":"i:1","resources":{{"limits":{{"cpu":"{cpu}"}}}}}}]"#
    ))
}

/// The CPU limits of pods' cgroups, in the order of their creation.
fn quotas(harness: &Harness) -> Vec<Option<i64>> {
    let made = harness.specs.iter().filter_map(|spec| match spec {
        JobSpec::MakePodCgroup(made) => Some(made.values.cpu_quota),
        _ => None,
    });
    made.collect()
}

#[test]
fn a_cgroup_is_made_anew_with_each_sandbox_and_as_the_spec_says_by_then() {
    let mut harness = on_cgroups();
    harness.manifests(&[&limited("500m")]);
    harness.works();
    assert_eq!(quotas(&harness), [Some(50_000)]);
    harness.manifests(&[&limited("250m")]);
    harness.pass(60_000);
    assert_eq!(quotas(&harness), [Some(50_000)], "the one that runs stays");
    harness.sandboxes[0].ready = false;
    harness.pass(1_000);
    harness.works();
    assert_eq!(quotas(&harness), [Some(50_000), Some(25_000)]);
    // Also with the same spec: the runtime may have created it by itself.
    harness.sandboxes.iter_mut().for_each(|it| it.ready = false);
    harness.pass(1_000);
    harness.works();
    assert_eq!(quotas(&harness).len(), 3);
}

#[test]
fn a_cgroup_that_cannot_be_removed_is_told_of() {
    let mut harness = on_cgroups();
    harness.manifests(&[&pod(MAIN)]);
    harness.works();
    harness.bad_cgroups = true;
    harness.manifests(&[]);
    harness.works();
    let reported = "FailedKillPod error removing the pod's cgroup: no such device".to_owned();
    assert!(harness.events.contains(&reported), "{:?}", harness.events);
}

#[test]
fn slices_that_are_the_runtimes_are_not_removed() {
    let mut harness = Harness::booted_with(CgroupDriver::Systemd, |config| {
        config.machine.cgroups.hierarchy = Hierarchy::V2;
    });
    harness.manifests(&[&pod(MAIN)]);
    harness.works();
    harness.manifests(&[]);
    harness.works();
    harness.pass(2_000);
    assert_eq!(harness.agent.pods().count(), 0);
    let removal = |spec: &JobSpec| matches!(spec, JobSpec::RemovePodCgroup(_));
    assert!(!harness.specs.iter().any(removal), "{:?}", harness.specs);
}

/// A pod of this class, with a mount that needs a handler that can.
fn of_class(harness: &mut Harness, class: &str) {
    let spec = format!(
        r#""runtimeClassName":"{class}","volumes":[{{"name":"v","hostPath":{{"path":"/srv"}}}}],
           "containers":[{{"name":"m","image":"i:1","volumeMounts":[{{"name":"v",
               "mountPath":"/v","readOnly":true,"recursiveReadOnly":"Enabled"}}]}}]"#
    );
    let pods = vec![serde_json::from_str::<Pod>(&pod(&spec)).expect("a pod")];
    let mut kata = RuntimeClass::default();
    "small".clone_into(&mut kata.metadata.name);
    "kata".clone_into(&mut kata.handler);
    let objects = vec![Arc::new(Object::RuntimeClass(kata))];
    let content = Content { pods, objects };
    let files = vec![File { path: "/m/0".into(), changed_ns: 0, content: Ok(content) }];
    harness.deliver(Event::Manifests(Folder { trouble: None, files }));
}

#[test]
fn what_a_pods_own_handler_can_do_counts_and_an_empty_class_is_none() {
    for (class, default_can, kata_can, is_made) in [
        ("", true, false, true),
        ("", false, true, false),
        ("small", true, false, false),
        ("small", false, true, true),
    ] {
        let mut harness = Harness::new();
        let handler = |name: &str, able| RuntimeHandler {
            name: name.into(),
            recursive_read_only_mounts: able,
            ..RuntimeHandler::default()
        };
        harness.runtime.handlers = vec![handler("", default_can), handler("kata", kata_can)];
        harness.deliver(Event::RuntimeUp);
        of_class(&mut harness, class);
        let handler = sandbox_of(&mut harness).runtime_handler;
        assert_eq!(&*handler, if class.is_empty() { "" } else { "kata" });
        harness.does("image_status i:1");
        let requested = harness.open_calls();
        assert_eq!(requested == ["create_container m#0"], is_made, "{class:?}: {requested:?}");
    }
}

#[test]
fn a_volume_that_the_manifest_changes_is_brought_about_anew() {
    let with = |path: &str, image: &str| {
        pod(&format!(
            r#""volumes":[{{"name":"v","hostPath":{{"path":"{path}"}}}}],
               "containers":[{{"name":"m","image":"{image}",
                   "volumeMounts":[{{"name":"v","mountPath":"/v"}}]}}]"#
        ))
    };
    let mut harness = Harness::new();
    harness.manifests(&[&with("/a", "i:1")]);
    harness.works();
    let before = harness.volume_jobs.len();
    harness.manifests(&[&with("/b", "i:2")]);
    harness.works_until("create_container m#1");
    assert_eq!(harness.volume_jobs[before..], ["set up v"]);
    let (_, request) = harness.take("create_container m#1");
    let Request::CreateContainer { config, .. } = request else { panic!("{request:?}") };
    assert_eq!(config.mounts[0].host_path, "/b");
}

/// The newest sandbox is reported with this network and these addresses.
fn reported(harness: &mut Harness, network: Network, ips: &[&str]) {
    let (call, request) = harness.take("podsandbox_status s1");
    let Reply::SandboxStatus(mut status) = harness.perform(&request) else { panic!("a status") };
    status.network = network;
    status.ips = ips.iter().map(|&ip| ip.into()).collect();
    harness.deliver(Event::Cri(call, Ok(Reply::SandboxStatus(status))));
}

#[test]
fn a_sandbox_without_the_network_that_the_pod_asks_for_is_replaced() {
    for (spec, network, ips, stays) in [
        ("", Network::Pod, &["10.0.0.5"][..], true),
        ("", Network::Pod, &[], false),
        ("", Network::Node, &["10.0.0.5"], false),
        (r#""hostNetwork":true,"#, Network::Node, &[], true),
        (r#""hostNetwork":true,"#, Network::Pod, &["10.0.0.5"], false),
    ] {
        let mut harness = Harness::new();
        harness.sandboxes.push(sandbox("s1", 0, true));
        harness.manifests(&[&pod(&format!("{spec}{MAIN}"))]);
        reported(&mut harness, network, ips);
        let next = if stays { "image_status i:1" } else { "stop_podsandbox s1" };
        assert_eq!(harness.open_calls(), [next], "{spec} {network:?} {ips:?}");
    }
}

#[test]
fn a_pod_whose_call_was_lost_does_nothing_before_it_was_looked_at() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&START[..3]);
    harness.taken.lists_wait = true;
    let (call, _) = harness.take("create_container m#0");
    harness.deliver(Event::Cri(call, Err(CallError::Lost(Lost::Deadline))));
    harness.pass(60_000);
    let acts = |call: &String| !call.starts_with("list_");
    assert!(!harness.open_calls().iter().any(acts), "{:?}", harness.open_calls());
}

#[test]
fn a_deadline_comes_in_time_though_the_pod_waits_for_something_later() {
    let mut harness = Harness::with_stream(true);
    harness.manifests(&[&pod(&format!(r#""activeDeadlineSeconds":300,{MAIN}"#))]);
    harness.works();
    harness.pass(10_000);
    let began = harness.now.boot;
    for attempt in 1..=6 {
        let newest =
            harness.containers.iter_mut().max_by_key(|it| it.attempt).expect("it was made");
        newest.state = ContainerState::Exited;
        harness.pass(limits::RELIST_EVENTED_MS);
        if attempt < 6 {
            harness.works_until(&format!("create_container m#{attempt}"));
            harness.works();
        }
        if harness.now.boot.since_ms(began) > 230_000 {
            break;
        }
    }
    harness.works();
    // Its back-off is longer than the rest of the deadline.
    while harness.status()["reason"] != "DeadlineExceeded" {
        let next = harness.agent.wake_at().expect("it waits for something");
        harness.pass(next.since_ms(harness.now.boot));
        assert!(harness.now.boot.since_ms(began) < 300_000, "it is late");
    }
}

#[test]
fn a_deadline_counts_from_the_oldest_sandbox() {
    let mut harness = Harness::new();
    let at = |harness: &Harness, ago_s: i64| {
        (harness.now.wall.expect("set").0 - ago_s * 1_000) * 1_000_000
    };
    for (id, attempt, ago_s) in [("s1", 1, 100), ("s0", 0, 3_000)] {
        let mut found = sandbox(id, attempt, attempt == 1);
        found.created_at = at(&harness, ago_s);
        harness.sandboxes.push(found);
    }
    harness.containers.push(container("x0", "m", ContainerState::Running));
    harness.pass(2_000);
    harness.manifests(&[&pod(&format!(r#""activeDeadlineSeconds":3600,{MAIN}"#))]);
    harness.works();
    harness.pass(590_000);
    assert_eq!(harness.open_calls(), NOTHING);
    harness.pass(10_000);
    assert_eq!(harness.open_calls(), ["stop_container x0 30"]);
}

#[test]
fn a_deadline_that_is_found_late_counts_what_has_passed_once() {
    // The clock is set while the pod runs already.
    let mut harness = Harness::new();
    let wall = harness.now.wall.take();
    let mut found = sandbox("s1", 0, true);
    found.created_at = (wall.expect("set").0 - 1_000_000) * 1_000_000;
    harness.sandboxes.push(found);
    harness.containers.push(container("x0", "m", ContainerState::Running));
    harness.manifests(&[&pod(&format!(r#""activeDeadlineSeconds":3600,{MAIN}"#))]);
    harness.works();
    let began = harness.now.boot;
    harness.pass(600_000);
    harness.now.wall = wall.map(|wall| edged::agent::time::Wall(wall.0 + 600_000));
    // Any change of it: its deadline is computed.
    harness.exits("m", 1);
    harness.works();
    let left_ms = 3_600_000 - 1_000_000;
    harness.pass(began.plus_ms(left_ms - 5_000).since_ms(harness.now.boot));
    assert_eq!(harness.open_calls(), NOTHING);
    harness.pass(10_000);
    assert_eq!(harness.open_calls(), ["stop_container c1 30"]);
}

#[test]
fn an_old_sandbox_that_cannot_be_stopped_is_tried_every_ten_seconds() {
    let mut harness = Harness::new();
    harness.sandboxes = vec![sandbox("s1", 1, true), sandbox("s0", 0, false)];
    harness.containers.push(container("x0", "m", ContainerState::Running));
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&["podsandbox_status s1", "container_status x0"]);
    for _ in 0..3 {
        harness.refuses("stop_podsandbox s0", Code::Unknown, "no");
        harness.pass(limits::RETRY_MS - 500);
        assert_eq!(harness.open_calls(), NOTHING);
        harness.pass(limits::RETRY_MS / 2 + 500);
    }
    harness.does_all(&["stop_podsandbox s0", "remove_podsandbox s0"]);
}

#[test]
fn what_is_known_of_an_image_holds_for_the_containers_that_keep_it() {
    let two = |image: &str| {
        pod(&format!(
            r#""containers":[{{"name":"m","image":"gone:1"}},{{"name":"n","image":"{image}"}}]"#
        ))
    };
    let mut harness = Harness::new();
    harness.manifests(&[&two("i:1")]);
    harness.works_until("pull_image gone:1");
    for _ in 0..2 {
        harness.refuses("pull_image gone:1", Code::NotFound, "not found");
        harness.works_until("pull_image gone:1");
    }
    harness.refuses("pull_image gone:1", Code::NotFound, "not found");
    harness.does("image_status gone:1");
    let pulls =
        |harness: &Harness| harness.trace.iter().filter(|it| *it == "pull_image gone:1").count();
    let (before, began) = (pulls(&harness), harness.now.boot);
    harness.manifests(&[&two("i:2")]);
    harness.works();
    let waiting = &harness.status()["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "ImagePullBackOff", "{waiting}");
    harness.pass(began.plus_ms(25_000).since_ms(harness.now.boot));
    let looks = harness.trace.iter().rev().take_while(|it| *it == "image_status gone:1").count();
    assert!(looks <= 1 && pulls(&harness) == before, "{:?}", harness.trace);
}

#[test]
fn a_new_image_takes_the_old_ones_trouble_off_the_status() {
    let mut harness = Harness::new();
    harness.images.clear();
    harness.manifests(&[&pod(MAIN)]);
    harness.works_until("pull_image i:1");
    harness.refuses("pull_image i:1", Code::NotFound, "not found");
    harness.does("image_status i:1");
    harness.manifests(&[&pod(&MAIN.replace("i:1", "i:2"))]);
    let waiting = &harness.status()["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "ContainerCreating", "{waiting}");
}

#[test]
fn an_answer_about_another_image_than_the_manifest_names_now_is_void() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&START[..2]);
    harness.manifests(&[&pod(&MAIN.replace("i:1", "i:2"))]);
    harness.does_all(&["image_status i:1", "image_status i:2", "create_container m#0"]);
}

#[test]
fn a_pull_that_came_makes_the_next_failure_the_first() {
    let mut harness = Harness::new();
    harness.images.clear();
    harness.manifests(&[&pod(MAIN)]);
    harness.works_until("pull_image i:1");
    let fails = |harness: &mut Harness, wait_ms: u64| {
        let began = harness.now.boot;
        harness.refuses("pull_image i:1", Code::NotFound, "not found");
        harness.works_until("pull_image i:1");
        let waited_ms = harness.now.boot.since_ms(began);
        assert!((wait_ms..wait_ms + 2_000).contains(&waited_ms), "{waited_ms} for {wait_ms}");
    };
    fails(&mut harness, limits::BACKOFF_MIN_MS);
    fails(&mut harness, 2 * limits::BACKOFF_MIN_MS);
    harness.images.push("i:1");
    harness.works();
    assert_eq!(harness.running(), ["m"]);
    harness.images.clear();
    harness.exits("m", 1);
    harness.works_until("pull_image i:1");
    fails(&mut harness, limits::BACKOFF_MIN_MS);
}

#[test]
fn an_image_that_cannot_be_had_keeps_what_comes_after_it_waiting() {
    for (policy, state) in [("", "gone:1"), (r#","restartPolicy":"Always""#, "gone:1")] {
        let mut harness = Harness::new();
        let init = format!(r#""initContainers":[{{"name":"i","image":"{state}"{policy}}}]"#);
        harness.manifests(&[&pod(&format!("{init},{MAIN}"))]);
        harness.works_until("pull_image gone:1");
        harness.refuses("pull_image gone:1", Code::NotFound, "not found");
        harness.does("image_status gone:1");
        assert_eq!(harness.open_calls(), NOTHING, "the main container waits");
    }
}

#[test]
fn a_pod_that_two_manifests_claim_is_told_so_at_once() {
    let mut harness = Harness::with_stream(true);
    harness.manifests(&[&pod(MAIN)]);
    harness.works();
    harness.pass(10_000);
    harness.manifests(&[&pod(MAIN), &pod(MAIN)]);
    let reported = harness.events.iter().any(|event| event.starts_with("FailedValidation"));
    assert!(reported, "{:?}", harness.events);
}

/// Main containers stop before the sidecars, and these one after another, while there is time.
#[test]
fn the_turn_of_a_sidecar_comes_with_the_end_of_the_grace_period_without_any_news() {
    let sidecar =
        |name: &str| format!(r#"{{"name":"{name}","image":"i:1","restartPolicy":"Always"}}"#);
    for main_stops in [false, true] {
        let mut harness = Harness::with_stream(true);
        let inits = [sidecar("a"), sidecar("b")].join(",");
        harness.manifests(&[&pod(&format!(r#""initContainers":[{inits}],{MAIN}"#))]);
        harness.works();
        harness.pass(3_000);
        harness.manifests(&[]);
        let began = harness.now.boot;
        if main_stops {
            harness.does("stop_container c4 30");
        }
        let first = harness.open_calls();
        assert_eq!(first.len(), 1, "{first:?}");
        harness.pass(began.plus_ms(29_999).since_ms(harness.now.boot));
        assert_eq!(harness.open_calls(), first);
        harness.pass(1);
        assert_eq!(harness.open_calls().len(), if main_stops { 2 } else { 3 });
    }
}

#[test]
fn a_container_that_shows_late_is_not_said_to_serve() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(&format!(r#""restartPolicy":"Never",{MAIN}"#))]);
    harness.works();
    harness.exits("m", 0);
    harness.works();
    harness.pass(2_000);
    assert_eq!(harness.status()["phase"], "Succeeded");
    // A call of an earlier life takes effect.
    let mut late = container("x9", "m", ContainerState::Running);
    late.attempt = 1;
    harness.containers.push(late);
    harness.pass(2_000);
    assert_eq!(harness.open_calls(), ["stop_container x9 2"]);
    let reported = harness.status()["containerStatuses"][0].clone();
    assert_eq!(
        (&reported["ready"], &reported["started"]),
        (&false.into(), &false.into()),
        "{reported}"
    );
    assert_eq!(reported["state"]["terminated"]["reason"], "ContainerStatusUnknown", "{reported}");
    assert_eq!(harness.status()["phase"], "Succeeded");
}

#[test]
fn an_object_that_comes_does_not_end_the_back_off_of_a_pull() {
    let mut harness = Harness::new();
    harness.images.clear();
    of_class(&mut harness, "");
    harness.works_until("pull_image i:1");
    harness.refuses("pull_image i:1", Code::NotFound, "not found");
    harness.does("image_status i:1");
    let before = harness.trace.len();
    let pods = harness.agent.pods().cloned().collect();
    let mut map = edged::model::object::ConfigMap::default();
    (map.metadata.namespace, map.metadata.name) = ("default".to_owned(), "cm".to_owned());
    let content = Content { pods, objects: vec![Arc::new(Object::ConfigMap(map))] };
    let files = vec![File { path: "/m/0".into(), changed_ns: 0, content: Ok(content) }];
    harness.deliver(Event::Manifests(Folder { trouble: None, files }));
    harness.pass(5_000);
    assert_eq!(harness.trace[before..], NOTHING);
}

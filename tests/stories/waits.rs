//! Back-offs: how long until something is retried or reported again, and for how many at once.

use edged::agent::time::Instant;
use edged::limits;
use edged::model::cri::Code;

use crate::harness::{Harness, MAIN, START, pod, sandbox};
use crate::volumes::{MOUNT, with};

/// Time passes up to this moment.
fn until(harness: &mut Harness, at: Instant) {
    harness.pass(at.since_ms(harness.now.boot));
}

/// A call with this prefix is made this long after `began`, and not before.
#[track_caller]
fn requested_after(harness: &mut Harness, began: Instant, ms: u64, begin: &str) -> String {
    let requested =
        |harness: &Harness| harness.open_calls().into_iter().find(|name| name.starts_with(begin));
    until(harness, began.plus_ms(ms - 1));
    assert_eq!(requested(harness), None, "{ms} ms are not over");
    harness.pass(1);
    requested(harness)
        .unwrap_or_else(|| panic!("no {begin} after {ms} ms: {:?}", harness.open_calls()))
}

#[test]
fn a_container_that_could_not_be_stopped_is_tried_again_ever_later() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    harness.manifests(&[]);
    let mut stop = "stop_container c2 30".to_owned();
    let mut wait_ms = limits::RETRY_MIN_MS;
    for _ in 0..6 {
        let began = harness.now.boot;
        harness.refuses(&stop, Code::Unknown, "no");
        stop = requested_after(&mut harness, began, wait_ms, "stop_container c2 ");
        wait_ms = limits::RETRY_MS.min(2 * wait_ms);
    }
    assert_eq!(wait_ms, limits::RETRY_MS);
}

#[test]
fn a_start_that_an_earlier_life_asked_for_is_tried_again_soon() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    harness.does("create_container m#0");
    let began = harness.now.boot;
    let why = "cannot start a container in starting state";
    harness.refuses("start_container c2", Code::Unknown, why);
    requested_after(&mut harness, began, limits::RETRY_TAKEN_MS, "start_container c2");
}

#[test]
fn a_volume_is_tried_again_ever_later_up_to_a_bound() {
    let mut harness = Harness::new();
    harness.bad_volume = Some("v");
    let mut last = harness.now.boot;
    harness.manifests(&[&with(r#"{"name":"v"}"#, MOUNT)]);
    let mut waits = Vec::new();
    while waits.len() < 12 {
        let tries = harness.volume_jobs.len();
        let next = harness.agent.wake_at().expect("it is tried again");
        until(&mut harness, next);
        if harness.volume_jobs.len() > tries {
            waits.push(harness.now.boot.since_ms(last));
            last = harness.now.boot;
        }
    }
    assert_eq!(waits[0], limits::VOLUME_RETRY_MIN_MS);
    for pair in waits.windows(2) {
        assert_eq!(pair[1], limits::VOLUME_RETRY_MAX_MS.min(2 * pair[0]), "{waits:?}");
    }
    assert_eq!(waits.last(), Some(&limits::VOLUME_RETRY_MAX_MS));
}

#[test]
fn a_pod_that_waits_for_its_volumes_tells_it_again_and_again() {
    let mut harness = Harness::new();
    harness.bad_volume = Some("v");
    let began = harness.now.boot;
    harness.manifests(&[&with(r#"{"name":"v"}"#, MOUNT)]);
    let reported = |harness: &Harness| {
        let reported = |event: &&String| event.contains("unmounted volumes=[v]");
        harness.events.iter().filter(reported).count()
    };
    for times in 1..=2 {
        until(&mut harness, began.plus_ms(times * limits::VOLUME_WAIT_MS - 1));
        assert_eq!(reported(&harness) as u64, times - 1);
        harness.pass(1);
        assert_eq!(reported(&harness) as u64, times);
    }
}

#[cfg(all(feature = "cloud", feature = "volumes"))]
#[test]
fn what_the_cloud_has_not_given_counts_as_missing_after_a_while() {
    use crate::cloud_harness::{CloudHarness, pod};
    use serde_json::json;
    let mut cloud = CloudHarness::new();
    let mut wanted = pod("p", "u", 7);
    wanted["spec"]["volumes"] = json!([{"name": "v", "configMap": {"name": "cm"}}]);
    wanted["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    cloud.keeps = false;
    cloud.push("insert", "ns/pod/p", &wanted);
    let began = cloud.harness.now.boot;
    cloud.keeps = true;
    cloud.save();
    let reported = |cloud: &CloudHarness| {
        cloud.harness.events.iter().any(|it| it.contains("configmap \"cm\""))
    };
    while !reported(&cloud) {
        let next = cloud.harness.agent.wake_at().expect("it is reported");
        cloud.pass(next.since_ms(cloud.harness.now.boot));
        cloud.settle();
    }
    assert_eq!(cloud.harness.now.boot.since_ms(began), limits::OBJECT_WAIT_MS);
}

#[test]
fn pods_that_nobody_wants_end_so_many_at_once() {
    let mut harness = Harness::new();
    for number in 0..=limits::ORPHANS_MAX {
        let mut left = sandbox(&format!("s{number}"), 0, true);
        let pod = left.pod.as_mut().expect("it has one");
        (pod.uid, pod.name) = (format!("u{number}").into(), format!("p{number}-gw").into());
        harness.sandboxes.push(left);
    }
    harness.manifests(&[]);
    harness.pass(60_000);
    let stops = |harness: &Harness| {
        let requested = harness.open_calls();
        requested.iter().filter(|name| name.starts_with("stop_podsandbox ")).count()
    };
    assert_eq!(stops(&harness), limits::ORPHANS_MAX);
    let first = harness.open_calls().remove(0);
    harness.does(&first);
    harness.pass(60_000);
    assert_eq!(stops(&harness), limits::ORPHANS_MAX - 1, "the first is not gone yet");
    harness.does(&first.replace("stop_", "remove_"));
    harness.pass(limits::RELIST_MS);
    assert_eq!(stops(&harness), limits::ORPHANS_MAX, "the last one's turn has come");
    harness.works();
    assert_eq!(harness.sandboxes, []);
}

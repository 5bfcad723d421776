//! Claims of the cloud's pods, which are requested with their volumes.

use edged::model::message::Message;
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, pod};

fn claim(version: u64, volume: Option<&str>) -> Value {
    let mut claim = json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1",
        "metadata": {"name": "data", "namespace": "ns", "uid": "c",
            "resourceVersion": version.to_string()},
        "spec": {"accessModes": ["ReadWriteOnce"]}});
    if let Some(volume) = volume {
        claim["spec"]["volumeName"] = volume.into();
    }
    claim
}

fn user() -> Value {
    let mut user = pod("p", "u", 7);
    user["spec"]["volumes"] =
        json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    user["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/d"}]);
    user
}

#[test]
fn a_claim_and_the_volume_behind_it_are_asked_for_and_the_pod_runs() {
    let mut cloud = CloudHarness::new();
    cloud.push("insert", "ns/pod/p", &user());
    let requested = cloud.take_sent("persistentvolumeclaim");
    let of = |requested: &Message| {
        (requested.route.operation.to_string(), requested.route.resource.to_string())
    };
    assert_eq!(
        requested.iter().map(of).collect::<Vec<_>>(),
        [("query".to_owned(), "ns/persistentvolumeclaim/data".to_owned())]
    );
    cloud.acked();
    let id = cloud.answer(&requested[0], &claim(3, Some("disk")));
    assert_eq!(cloud.acked(), [id]);
    let requested = cloud.take_sent("persistentvolume");
    assert_eq!(
        requested.iter().map(of).collect::<Vec<_>>(),
        [("query".to_owned(), "null/persistentvolume/disk".to_owned())]
    );
    assert!(!runs(&mut cloud));
    let volume = json!({"metadata": {"name": "disk", "uid": "d", "resourceVersion": "2"},
        "spec": {"local": {"path": "/mnt/ssd"}, "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": "ns", "name": "data"}}});
    let id = cloud.answer(&requested[0], &volume);
    assert_eq!(cloud.acked(), [id]);
    assert!(runs(&mut cloud));
    cloud.sign_of_life();
    cloud.pass(20_000);
    assert!(
        cloud.take_sent("persistentvolumeclaim").is_empty()
            && cloud.take_sent("persistentvolume").is_empty()
    );
}

#[test]
fn a_claim_without_a_volume_is_asked_for_until_it_has_one() {
    let mut cloud = CloudHarness::new();
    cloud.push("insert", "ns/pod/p", &user());
    let requested = cloud.take_sent("persistentvolumeclaim");
    cloud.answer(&requested[0], &claim(3, None));
    let of_volume = |it: &Message| {
        &*it.route.operation == "query" && it.route.resource.contains("/persistentvolume")
    };
    let others: Vec<&Message> = cloud.sent.iter().filter(|it| of_volume(it)).collect();
    assert!(others.is_empty(), "its name is unknown: {others:?}");
    let repeated = |cloud: &mut CloudHarness| {
        for _ in 0..12 {
            cloud.pass(10_000);
            cloud.sign_of_life();
        }
        cloud.take_sent("persistentvolumeclaim")
    };
    // The same once more.
    let requested = repeated(&mut cloud);
    assert_eq!(requested.len(), 1);
    cloud.answer(&requested[0], &claim(3, None));
    let requested = repeated(&mut cloud);
    assert_eq!(requested.len(), 1);
    cloud.answer(&requested[0], &claim(4, Some("disk")));
    assert_eq!(cloud.take_sent("persistentvolume").len(), 1);
    assert!(repeated(&mut cloud).is_empty());
}

/// The runtime performs the requests; returns whether the container runs.
fn runs(cloud: &mut CloudHarness) -> bool {
    cloud.work();
    !cloud.harness.running().is_empty()
}

//! While the agent waits for the disk, the link or an answer it sleeps: the harness's clock detects
//! repeated wakes without work.

use edged::model::meta::Saved;
use serde_json::json;

use crate::cloud_harness::{CloudHarness, pod};
use crate::cluster::refusal;

const MANIFEST: &str = r#"{"metadata":{"name":"p","namespace":"ns","uid":"s"},
    "spec":{"containers":[{"name":"m","image":"i:1"}]}}"#;

/// Time passes; the disk is full, and the link alive.
fn pass(cloud: &mut CloudHarness, seconds: u64) {
    for _ in 0..seconds / 5 {
        if !cloud.saves.is_empty() {
            cloud.fail_save();
        }
        cloud.pass(5_000);
        cloud.sign_of_life();
    }
}

#[test]
fn an_object_that_cannot_be_kept_is_waited_for_asleep() {
    let mut cloud = CloudHarness::new();
    let mut wanted = pod("p", "u", 7);
    wanted["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    cloud.push("insert", "ns/pod/p", &wanted);
    let requested = cloud.take_sent("persistentvolumeclaim");
    cloud.keeps = false;
    let claim = json!({"metadata": {"name": "c", "namespace": "ns", "uid": "c"}, "spec": {}});
    cloud.answer(&requested[0], &claim);
    pass(&mut cloud, 300);
    assert_eq!(cloud.take_sent("persistentvolumeclaim").len(), 0, "it is on its way to the disk");
}

#[test]
fn mirrors_that_an_old_cloud_does_not_know_are_not_waited_for() {
    let mut cloud = CloudHarness::with(Saved::default());
    cloud.connect();
    cloud.harness.manifests(&[MANIFEST]);
    cloud.work();
    let mut is_old = false;
    for _ in 0..200 {
        cloud.pass(1_000);
        cloud.sign_of_life();
        for requested in std::mem::take(&mut cloud.sent) {
            let kind = requested.route.resource.split('/').nth(1).unwrap_or_default();
            // A cloud takes the node in; then an older one has its place.
            match (&*requested.route.operation, kind) {
                ("insert", "node") if !is_old => {
                    let node = json!({"metadata": {"name": "gw", "uid": "n"}, "status": {}});
                    cloud.answer(&requested, &json!({"Object": node, "Err": null}));
                    is_old = true;
                    cloud.disconnect();
                    cloud.pass(2_000);
                    cloud.connect();
                    break;
                }
                ("insert", "pod") => drop(cloud.answer(&requested, &refusal("InternalError", 500))),
                (_, "nodestatus") => drop(cloud.answer(&requested, &json!("OK"))),
                _ => {}
            }
        }
    }
    assert!(is_old);
}

//! What waits for the disk, for the link or for an answer is waited for asleep: the harness's clock
//! tells when the agent wakes again and again for nothing.

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
        cloud.hear();
    }
}

#[test]
fn an_object_that_cannot_be_kept_is_waited_for_asleep() {
    let mut cloud = CloudHarness::new();
    let mut wanted = pod("p", "u", 7);
    wanted["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    cloud.push("insert", "ns/pod/p", &wanted);
    let asked = cloud.said("persistentvolumeclaim");
    cloud.keeps = false;
    let claim = json!({"metadata": {"name": "c", "namespace": "ns", "uid": "c"}, "spec": {}});
    cloud.answer(&asked[0], &claim);
    pass(&mut cloud, 300);
    assert_eq!(cloud.said("persistentvolumeclaim").len(), 0, "it is on its way to the disk");
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
        cloud.hear();
        for asked in std::mem::take(&mut cloud.sent) {
            let kind = asked.route.resource.split('/').nth(1).unwrap_or_default();
            // A cloud takes the node in; then an older one has its place.
            match (&*asked.route.operation, kind) {
                ("insert", "node") if !is_old => {
                    let node = json!({"metadata": {"name": "gw", "uid": "n"}, "status": {}});
                    cloud.answer(&asked, &json!({"Object": node, "Err": null}));
                    is_old = true;
                    cloud.disconnect();
                    cloud.pass(2_000);
                    cloud.connect();
                    break;
                }
                ("insert", "pod") => drop(cloud.answer(&asked, &refusal("InternalError", 500))),
                (_, "nodestatus") => drop(cloud.answer(&asked, &json!("OK"))),
                _ => {}
            }
        }
    }
    assert!(is_old);
}

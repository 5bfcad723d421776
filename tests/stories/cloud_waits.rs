//! What waits for the disk, for the link or for an answer is waited for asleep: the desk's clock
//! tells when the agent wakes again and again for nothing.

use edged::model::meta::Saved;
use serde_json::json;

use crate::cloud_harness::{Sky, pod};
use crate::cluster::refusal;

const MANIFEST: &str = r#"{"metadata":{"name":"p","namespace":"ns","uid":"s"},
    "spec":{"containers":[{"name":"m","image":"i:1"}]}}"#;

/// Time passes; the disk is full, and the link alive.
fn pass(sky: &mut Sky, seconds: u64) {
    for _ in 0..seconds / 5 {
        if !sky.saves.is_empty() {
            sky.fail_save();
        }
        sky.pass(5_000);
        sky.hear();
    }
}

#[test]
fn an_object_that_cannot_be_kept_is_waited_for_asleep() {
    let mut sky = Sky::new();
    let mut wanted = pod("p", "u", 7);
    wanted["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    sky.push("insert", "ns/pod/p", &wanted);
    let asked = sky.said("persistentvolumeclaim");
    sky.keeps = false;
    let claim = json!({"metadata": {"name": "c", "namespace": "ns", "uid": "c"}, "spec": {}});
    sky.answer(&asked[0], &claim);
    pass(&mut sky, 300);
    assert_eq!(sky.said("persistentvolumeclaim").len(), 0, "it is on its way to the disk");
}

#[test]
fn mirrors_that_an_old_cloud_does_not_know_are_not_waited_for() {
    let mut sky = Sky::with(Saved::default());
    sky.connect();
    sky.desk.manifests(&[MANIFEST]);
    sky.work();
    let mut is_old = false;
    for _ in 0..200 {
        sky.pass(1_000);
        sky.hear();
        for asked in std::mem::take(&mut sky.sent) {
            let kind = asked.route.resource.split('/').nth(1).unwrap_or_default();
            // A cloud takes the node in; then an older one has its place.
            match (&*asked.route.operation, kind) {
                ("insert", "node") if !is_old => {
                    let node = json!({"metadata": {"name": "gw", "uid": "n"}, "status": {}});
                    sky.answer(&asked, &json!({"Object": node, "Err": null}));
                    is_old = true;
                    sky.disconnect();
                    sky.pass(2_000);
                    sky.connect();
                    break;
                }
                ("insert", "pod") => drop(sky.answer(&asked, &refusal("InternalError", 500))),
                (_, "nodestatus") => drop(sky.answer(&asked, &json!("OK"))),
                _ => {}
            }
        }
    }
    assert!(is_old);
}

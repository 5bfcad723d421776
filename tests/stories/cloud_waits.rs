//! What waits for the disk, for the link or for an answer is waited for asleep: the desk's clock
//! tells when the agent wakes again and again for nothing.

use serde_json::json;

use crate::sky::{Sky, pod};

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

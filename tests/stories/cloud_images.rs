//! The images in the node's status.

use edged::limits::{NODE_IMAGE_NAMES_MAX, NODE_IMAGES_MAX};
use edged::model::housekeeping::StoredImage;
use edged::model::meta::Saved;
use edged::model::settings::CloudSettings;
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, patch};
use crate::cluster::{Cluster, refusal};

fn image(name: &str, size: u64) -> StoredImage {
    StoredImage { id: name.into(), names: vec![name.into()], size, pinned: false }
}

/// The node has joined, with two images, of which at most `max` are to be named.
fn joined(max: Option<usize>, had: Option<Value>) -> (CloudHarness, Cluster) {
    let rows = Vec::new();
    let settings = CloudSettings { status_images_max: max, ..CloudSettings::default() };
    let set = |config: &mut edged::agent::Config| config.cloud = Some(settings);
    let mut cloud = CloudHarness::beside(Saved::kept(rows), set, |harness| {
        harness.stored = vec![image("a:1", 10), image("b:1", 20)];
    });
    let mut cluster = Cluster::default();
    cloud.connect();
    cluster.serve(&mut cloud);
    if let Some(had) = had {
        cluster.change(|status| status["images"] = had);
        let node = cluster.node.clone().expect("a node");
        cloud.push("update", "null/node/gw", &node);
    }
    // The first list was made before they were there.
    cluster.pass(&mut cloud, 330_000);
    (cloud, cluster)
}

fn reported(cluster: &mut Cluster) -> Vec<Value> {
    let patches = cluster.contents("patch nodepatch").into_iter();
    patches.map(|patch| patch["status"]["images"].clone()).filter(|it| !it.is_null()).collect()
}

#[test]
fn by_default_no_image_is_named() {
    let (_, mut cluster) = joined(Some(0), None);
    assert_eq!(reported(&mut cluster), [] as [Value; 0]);
}

#[test]
fn images_that_another_agent_has_named_are_taken_away() {
    let had = json!([{"names": ["old:1"], "sizeBytes": 7}]);
    let (mut cloud, mut cluster) = joined(Some(0), Some(had));
    assert_eq!(reported(&mut cluster), [json!([])]);
    cluster.pass(&mut cloud, 600_000);
    assert_eq!(reported(&mut cluster), [] as [Value; 0]);
}

#[test]
fn the_largest_are_named_once_and_again_when_they_change() {
    let all = json!([
        {"names": ["b:1"], "sizeBytes": 20}, {"names": ["a:1"], "sizeBytes": 10},
    ]);
    for (max, expected) in [(None, all.clone()), (Some(1), json!([all[0]]))] {
        let (mut cloud, mut cluster) = joined(max, None);
        assert_eq!(reported(&mut cluster), std::slice::from_ref(&expected), "{max:?}");
        cluster.pass(&mut cloud, 900_000);
        assert_eq!(reported(&mut cluster), [] as [Value; 0], "{max:?}: nothing has changed");
        cloud.harness.stored.push(image("c:1", 30));
        cluster.pass(&mut cloud, 400_000);
        let now = reported(&mut cluster);
        assert_eq!(now.len(), 1, "{max:?}");
        assert_eq!(now[0][0], json!({"names": ["c:1"], "sizeBytes": 30}));
        // After a reconnect they are as the cloud has them.
        cloud.disconnect();
        cloud.pass(2_000);
        cloud.connect();
        cluster.pass(&mut cloud, 60_000);
        assert_eq!(reported(&mut cluster), [] as [Value; 0], "{max:?}: it has them");
    }
}

#[test]
fn so_many_images_are_named_by_so_many_names_whatever_is_asked_for() {
    let (mut cloud, mut cluster) = joined(None, None);
    reported(&mut cluster);
    cloud.harness.stored = (0..=NODE_IMAGES_MAX).map(|n| image(&format!("i{n:03}"), 10)).collect();
    let names = (0..=NODE_IMAGE_NAMES_MAX).map(|n| format!("large:{n}").into()).collect();
    cloud.harness.stored.push(StoredImage { names, ..image("large", 20) });
    cluster.pass(&mut cloud, 400_000);
    let reported = reported(&mut cluster);
    let named = reported[0].as_array().expect("a list");
    assert_eq!(named.len(), NODE_IMAGES_MAX);
    assert_eq!(named[0]["names"].as_array().map(Vec::len), Some(NODE_IMAGE_NAMES_MAX));
    assert_eq!(named[0]["names"][0], "large:0");
}

#[test]
fn images_that_were_refused_are_named_again() {
    let (mut cloud, mut cluster) = joined(None, None);
    reported(&mut cluster);
    cloud.harness.stored.push(image("c:1", 30));
    let refused = (0..400).find_map(|_| {
        cloud.pass(1_000);
        cloud.sign_of_life();
        let sent = cloud.take_sent("nodepatch");
        let names = sent.iter().find(|sent| !patch(sent)["status"]["images"].is_null());
        if names.is_none() {
            cloud.sent.extend(sent);
            cluster.serve(&mut cloud);
            return None;
        }
        names.cloned()
    });
    cloud.answer(&refused.expect("they are named"), &refusal("InternalError", 500));
    cluster.pass(&mut cloud, 60_000);
    assert_eq!(reported(&mut cluster).len(), 1);
}

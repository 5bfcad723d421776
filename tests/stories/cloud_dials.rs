//! How soon the cloud is dialled again, by the result of the last dial.

use edged::agent::event::Event;
use edged::model::link::Cause;
use edged::model::meta::Saved;
use edged::model::settings::CloudSettings;
use serde_json::json;

use crate::cloud_harness::CloudHarness;

/// Each dial fails with this cause; returns their number in this time.
fn dials(cloud: &mut CloudHarness, cause: &Cause, seconds: u64) -> usize {
    let mut count = 0;
    for _ in 0..seconds {
        while let Some(session) = cloud.dialled.pop() {
            count += 1;
            cloud.harness.deliver(Event::LinkDown(session, cause.clone()));
            cloud.settle();
        }
        cloud.pass(1_000);
    }
    count
}

#[test]
fn a_cloud_that_refuses_at_once_is_dialled_again_within_two_seconds() {
    let refused = Cause::Refused("connection refused".to_owned());
    let silent = Cause::Link("no answer".to_owned());
    let mut cloud = CloudHarness::with(Saved::default());
    cloud.connect();
    cloud.pass(61_000);
    cloud.disconnect();
    assert!(dials(&mut cloud, &silent, 120) <= 16, "it may be far away");
    // The wait before it was long. Now the cloud is there, and may listen at any moment.
    dials(&mut cloud, &refused, 16);
    let count = dials(&mut cloud, &refused, 100);
    assert!((50..=100).contains(&count), "{count} in 100 s: spread over one to two seconds");
    // Ten minutes after the loss it is no restart: each packet costs money.
    dials(&mut cloud, &refused, 360);
    let count = dials(&mut cloud, &refused, 120);
    assert!(count <= 16, "{count} in two minutes");
    // The next loss is a first one.
    cloud.pass(15_000);
    cloud.connect();
    cloud.pass(61_000);
    cloud.disconnect();
    assert!(dials(&mut cloud, &refused, 100) >= 50);
}

#[test]
fn what_was_to_be_answered_over_a_link_that_is_gone_is_not_answered_over_the_next() {
    let settings =
        CloudSettings { messages_per_second: 1, messages_burst: 1, ..CloudSettings::default() };
    let mut cloud = CloudHarness::set("gw", Saved::default(), settings);
    cloud.connect();
    for n in 0..5 {
        let content = json!({"metadata": {"name": n.to_string(), "namespace": "ns"}});
        cloud.push("insert", &format!("ns/configmap/{n}"), &content);
    }
    assert!(cloud.acked().len() < 5, "the others wait for their turn");
    cloud.disconnect();
    cloud.pass(10_000);
    cloud.connect();
    cloud.pass(10_000);
    assert_eq!(cloud.acked(), [] as [&str; 0], "the cloud sends again what it misses");
}

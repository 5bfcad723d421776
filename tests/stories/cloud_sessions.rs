//! Late events of an ended link.

use edged::agent::event::Event;
use edged::limits::{Budget, LINK_SILENCE_MS, UNSENT_MAX};
use edged::model::housekeeping::Amount;
use edged::model::link::{Cause, Session, Validity};
use edged::model::message::{Header, Message, Route};
use edged::model::meta::Saved;
use edged::model::settings::CloudSettings;
use edged::wire::kubeedge;
use serde_json::json;
use serde_json::value::to_raw_value;

use crate::cloud_harness::{CloudHarness, content, pod};

/// The link broke, and there is another; returns the session of the former.
fn reconnected() -> (CloudHarness, Session) {
    let settings = CloudSettings { messages_per_second: 0, ..CloudSettings::default() };
    let mut cloud = CloudHarness::set("gw", Saved::default(), settings);
    cloud.connect();
    let old = cloud.session;
    cloud.disconnect();
    cloud.pass(2_000);
    cloud.connect();
    assert_ne!(cloud.session, old);
    (cloud, old)
}

fn is_up(cloud: &CloudHarness) -> bool {
    cloud.harness.agent.overview(cloud.harness.now).cloud.expect("there is one").up_ms.is_some()
}

#[test]
fn an_old_link_that_is_lost_once_more_does_not_end_the_new_one() {
    let (mut cloud, old) = reconnected();
    cloud.harness.deliver(Event::LinkDown(old, Cause::Link("connection reset".to_owned())));
    cloud.settle();
    assert!(is_up(&cloud));
    cloud.pass(2_000);
    assert_eq!((cloud.dialled.len(), cloud.hung_up), (0, 0));
    // Nor does a link come up that was not dialled.
    cloud.disconnect();
    let validity = Validity { not_before_s: 1_799_000_000, not_after_s: 1_830_000_000 };
    cloud.harness.deliver(Event::LinkUp(old, validity));
    cloud.settle();
    assert!(!is_up(&cloud));
}

#[test]
fn a_sign_of_life_of_an_old_link_is_none_of_the_new_one() {
    let (mut cloud, old) = reconnected();
    for _ in 0..LINK_SILENCE_MS / 1_000 + 2 {
        cloud.harness.deliver(Event::LinkActive(old));
        cloud.pass(1_000);
    }
    assert_eq!(cloud.hung_up, 1);
}

#[test]
fn what_an_old_link_still_brings_does_not_count() {
    let (mut cloud, old) = reconnected();
    let [source, group, operation, resource] =
        ["edgecontroller", "resource", "insert", "ns/pod/p"].map(Box::from);
    let message = Message {
        header: Header { id: "late".into(), ..Header::default() },
        route: Route { source, group, operation, resource },
        content: Some(to_raw_value(&pod("p", "u", 7)).expect("JSON")),
    };
    let message = kubeedge::decode(&message, &Budget::FULL);
    cloud.harness.deliver(Event::Cloud(old, Box::new(message)));
    cloud.settle();
    cloud.pass(2_000);
    assert_eq!(cloud.harness.agent.pods().count(), 0);
    assert_eq!(cloud.answers("late").len(), 0, "the cloud sends it again over the new one");
}

#[test]
fn what_has_left_over_an_old_link_makes_no_room_on_the_new_one() {
    let (mut cloud, old) = reconnected();
    cloud.takes = false;
    cloud.flood((0..2 * UNSENT_MAX).map(|n| (format!("ns/configmap/c{n}"), format!("u{n}"))));
    let count = cloud.sent.len();
    cloud.harness.deliver(Event::Sent(old, UNSENT_MAX));
    cloud.settle();
    assert_eq!(cloud.sent.len(), count);
}

#[test]
fn after_a_sign_of_life_the_next_ping_has_its_full_time() {
    let (mut cloud, _) = reconnected();
    cloud.sign_of_life();
    cloud.pass(16_000);
    assert_eq!(cloud.pings, 1);
    cloud.sign_of_life();
    cloud.pass(14_000);
    assert_eq!(cloud.pings, 1);
    cloud.pass(2_000);
    assert_eq!(cloud.pings, 2);
}

#[test]
fn an_event_of_the_node_is_in_the_namespace_of_those() {
    let settings = CloudSettings { report_events: true, ..CloudSettings::default() };
    let mut cloud = CloudHarness::set("gw", Saved::default(), settings);
    cloud.connect();
    cloud.harness.machine.memory = Some(Amount { capacity: 1 << 30, available: 50 << 20 });
    cloud.pass(15_000);
    let reported = cloud.take_sent("event");
    let low = reported.iter().find(|it| content(it)["reason"] == "NodeHasInsufficientMemory");
    let low = low.expect("it is reported");
    assert!(low.route.resource.starts_with("default/event/gw."), "{}", low.route.resource);
    assert_eq!(content(low)["metadata"]["namespace"], json!("default"));
}

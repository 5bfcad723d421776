//! Rules of the cloud's router for MQTT clients: topics that go to the cloud, and messages from it.

use edged::agent::event::{DeviceAction, DeviceEvent, Event};
use edged::limits::RULE_TOPICS_MAX;
use edged::model::device::Upload;
use edged::model::meta::{Change, Saved};
use edged::model::rule_row::RuleRow;
use edged::model::settings::DeviceSettings;
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, content};

fn world(saved: Saved) -> CloudHarness {
    let mut cloud = CloudHarness::set_up(saved, |config| {
        config.devices = Some(DeviceSettings::default());
    });
    cloud.connect();
    cloud
}

fn router(cloud: &mut CloudHarness, operation: &str, topic: &str, of: &Value) {
    cloud.push_to(["router_eventbus", "user", operation, topic], of);
}

/// What is subscribed to and unsubscribed from since the last call: `+a`, `-a`.
fn changes(cloud: &mut CloudHarness) -> Vec<String> {
    let of = |action| match action {
        DeviceAction::Subscribe(topic) => Some(format!("+{topic}")),
        DeviceAction::Unsubscribe(topic) => Some(format!("-{topic}")),
        _ => None,
    };
    std::mem::take(&mut cloud.devices).into_iter().filter_map(of).collect()
}

/// The rows that were written or removed.
fn rows(cloud: &CloudHarness) -> Vec<(&str, bool)> {
    let of = |change| match change {
        &Change::SubTopic(RuleRow { ref text, exists }) => Some((&**text, exists)),
        _ => None,
    };
    cloud.written.iter().filter_map(of).collect()
}

#[test]
fn topics_of_rules_are_subscribed_to_until_the_rule_goes_and_in_the_next_life() {
    let mut cloud = world(Saved::kept(Vec::new()));
    router(&mut cloud, "subscribe", "default/a", &Value::Null);
    router(&mut cloud, "subscribe", "default/b", &Value::Null);
    router(&mut cloud, "subscribe", "default/a", &Value::Null);
    router(&mut cloud, "unsubscribe", "default/b", &Value::Null);
    router(&mut cloud, "unsubscribe", "default/c", &Value::Null);
    assert_eq!(changes(&mut cloud), ["+default/a", "+default/b", "-default/b"]);
    cloud.pass(20_000);
    assert_eq!(rows(&cloud).last(), Some(&("default/b", false)));
    assert!(rows(&cloud).contains(&("default/a", true)), "{:?}", rows(&cloud));
    let sub_topics = vec!["default/a".into()];
    let mut next = world(Saved { sub_topics, ..Saved::kept(Vec::new()) });
    assert_eq!(changes(&mut next), ["+default/a"]);
    // What clients publish to it goes to the cloud.
    let upload = Upload { topic: "default/a".into(), payload: "21".into() };
    next.sent.clear();
    next.harness.deliver(Event::Device(Box::new(DeviceEvent::Upload(upload))));
    next.settle();
    let message = next.sent.pop().expect("it is sent");
    let route = &message.route;
    let shown = [&route.source, &route.group, &route.operation, &route.resource].map(|it| &**it);
    assert_eq!(shown, ["bus", "user", "upload", "default/a"]);
    assert_eq!(content(&message), "21");
}

#[test]
fn topics_that_cannot_be_served_are_left_out_with_a_line() {
    let mut cloud = world(Saved::kept(Vec::new()));
    for topic in ["default/+", "default/#"] {
        router(&mut cloud, "subscribe", topic, &Value::Null);
    }
    for at in 0..=RULE_TOPICS_MAX {
        router(&mut cloud, "subscribe", &format!("default/{at}"), &Value::Null);
    }
    assert_eq!(changes(&mut cloud).len(), RULE_TOPICS_MAX);
    let lines =
        cloud.harness.log.iter().filter(|line| line.contains("eventbus: a rule is not served"));
    assert_eq!(lines.count(), 3, "{:?}", cloud.harness.log);
}

#[test]
fn what_the_router_publishes_is_published() {
    let mut cloud = world(Saved::kept(Vec::new()));
    router(&mut cloud, "publish", "plant/line1", &json!("on"));
    router(&mut cloud, "publish", "plant/line2", &json!({"a": 1}));
    let passed = std::mem::take(&mut cloud.devices).into_iter().filter_map(|action| match action {
        DeviceAction::Pass { topic, payload } => Some(format!("{topic} {payload}")),
        _ => None,
    });
    assert_eq!(passed.collect::<Vec<_>>(), ["plant/line1 on", r#"plant/line2 {"a":1}"#]);
}

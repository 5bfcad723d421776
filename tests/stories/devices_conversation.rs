//! The conversation of an MQTT client with EdgeCore, played to the agent: it answers the same, but
//! where the recording says otherwise and why.

use edged::agent::event::{DeviceAction, DeviceEvent, Event};
use edged::model::meta::Saved;
use edged::model::settings::DeviceSettings;
use edged::wire::devices;

use crate::cloud_harness::CloudHarness;

const RECORDING: &str = include_str!("../golden/devices/conversation.txt");
const MEMBERSHIP: &str = include_str!("../golden/devices/membership.json");

/// A request of the client, and what follows from it.
#[derive(Debug, Default)]
struct Step {
    name: &'static str,
    topic: &'static str,
    payload: &'static str,
    edgecore: Vec<&'static str>,
    /// Why the agent answers otherwise.
    why: Option<&'static str>,
    otherwise: Vec<&'static str>,
}

fn steps() -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in RECORDING.lines() {
        let Some((mark, rest)) = line.split_once(' ') else { continue };
        let step = steps.last_mut();
        match (mark, step) {
            ("#", _) => steps.push(Step { name: rest, ..Step::default() }),
            (">", Some(step)) => {
                (step.topic, step.payload) = rest.split_once(' ').expect("a topic and a payload");
            }
            ("<", Some(step)) => step.edgecore.push(rest),
            ("!", Some(step)) => step.why = Some(rest),
            ("=", Some(step)) => step.otherwise.push(rest),
            (_, None) => {}
            (other, Some(step)) => panic!("{}: the mark {other:?}", step.name),
        }
    }
    steps
}

/// The text with the value of each of these keys replaced.
fn replaced(text: &str, key: &str, replace: impl Fn(&str) -> Option<&'static str>) -> String {
    let (mut done, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(key) {
        let (before, value) = rest.split_at(at + key.len());
        let end = value.find([',', '}']).expect("JSON goes on");
        done.push_str(before);
        done.push_str(replace(&value[..end]).unwrap_or(&value[..end]));
        rest = &value[end..];
    }
    done + rest
}

/// Without times, and without the ids that no request has.
fn recorded(text: &str) -> String {
    let text = replaced(text, "\"timestamp\":", |_| Some("0"));
    let text = replaced(&text, "\"lastOnlineTime\":", |_| Some("\"TIME\""));
    replaced(&text, "\"event_id\":", |id| {
        let is_chosen = id.len() == 18 && id[1..17].bytes().all(|it| it.is_ascii_hexdigit());
        is_chosen.then_some("\"ID\"")
    })
}

#[test]
fn a_client_hears_what_edgecore_says_but_where_that_is_mended() {
    let mut cloud = CloudHarness::set_up(Saved::default(), |config| {
        config.devices = Some(DeviceSettings::default());
        "edge1".clone_into(&mut config.node_name);
    });
    cloud.connect();
    let file: serde_json::Value = serde_json::from_str(MEMBERSHIP).expect("a recording");
    cloud.replay(&serde_json::from_value(file["message"].clone()).expect("a message"));
    let steps = steps();
    assert!(steps.len() > 50, "{} steps", steps.len());
    for Step { name, topic, payload, edgecore, why, otherwise } in steps {
        cloud.devices.clear();
        if let Some(request) = devices::request(topic, payload.as_bytes()) {
            cloud.harness.deliver(Event::Device(Box::new(DeviceEvent::Request(request))));
            cloud.settle();
        }
        let published = cloud.devices.iter().filter_map(|action| match action {
            DeviceAction::Publish(publication) => {
                let (topic, payload) = devices::publish("edge1", publication);
                let payload = String::from_utf8(payload).expect("JSON");
                Some(format!("{topic} {}", recorded(&payload)))
            }
            _ => None,
        });
        let expected = if why.is_some() { &otherwise } else { &edgecore };
        assert_eq!(&published.collect::<Vec<_>>(), expected, "{name}");
        assert!(why.is_none() || otherwise != edgecore, "{name} is no exception");
    }
}

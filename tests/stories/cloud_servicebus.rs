//! ServiceBus: calls of the cloud, and requests of applications on the node.

use edged::agent::event::Event;
use edged::model::meta::{Change, Saved};
use edged::model::rule_row::RuleRow;
use edged::model::service_bus::{BusAction, BusEvent, EntryAnswer, EntryId, ServiceAnswer};
use edged::model::settings::ServiceBusSettings;
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, content};

const URL: &str = "http://cloud.example/a";

fn world(saved: Saved) -> CloudHarness {
    let mut cloud = CloudHarness::set_up(saved, |config| {
        config.service_bus = Some(ServiceBusSettings::default());
    });
    cloud.connect();
    cloud
}

fn router(cloud: &mut CloudHarness, operation: &str, resource: &str, of: &Value) -> String {
    cloud.push_to(["router_servicebus", "user", operation, resource], of)
}

fn event(cloud: &mut CloudHarness, event: BusEvent) {
    cloud.harness.deliver(Event::ServiceBus(Box::new(event)));
    cloud.settle();
}

#[test]
fn a_call_of_the_cloud_is_answered_as_edgecore_does() {
    let mut cloud = world(Saved::kept(Vec::new()));
    let call = json!({"header": {"Accept": ["*/*"]}, "body": null, "method": "GET", "url": ""});
    let id = router(&mut cloud, "GET", "8080:/echo/?x=1", &call);
    let Some(BusAction::Call(number, made)) = cloud.service_bus.pop() else { panic!("no call") };
    assert_eq!(format!("{made:?}"), "GET 127.0.0.1:8080/echo/?x=1");
    let headers = vec![("Content-Type".into(), "text/plain".into())];
    let answer = ServiceAnswer { status: 200, headers, body: b"ok".to_vec() };
    cloud.sent.clear();
    event(&mut cloud, BusEvent::Answered(number, Ok(answer)));
    let message = cloud.sent.pop().expect("an answer");
    let route = &message.route;
    let shown = [&route.source, &route.group, &route.operation, &route.resource].map(|it| &**it);
    assert_eq!((shown, &*message.header.parent_id), (["servicebus", "user", "upload", ""], &*id));
    let expected =
        json!({"header": {"Content-Type": ["text/plain"]}, "status_code": 200, "body": "b2s="});
    assert_eq!(content(&message), expected);
    // One that cannot be made is answered at once, with the operation that CloudCore passes on.
    cloud.sent.clear();
    router(&mut cloud, "GET", "nowhere", &call);
    let refusal = cloud.sent.pop().expect("an answer");
    assert_eq!(
        (&*refusal.route.operation, content(&refusal)["status_code"].clone()),
        ("upload", json!(400))
    );
    assert!(cloud.service_bus.is_empty());
}

#[test]
fn a_request_of_an_application_goes_by_a_rule_that_outlives_the_process() {
    let mut cloud = world(Saved::kept(Vec::new()));
    router(&mut cloud, "start", URL, &Value::Null);
    cloud.pass(1_000);
    assert!(matches!(cloud.service_bus[..], [BusAction::Listen(true)]), "{:?}", cloud.service_bus);
    let put = Change::TargetUrl(RuleRow { text: URL.into(), exists: true });
    assert_eq!(cloud.written.iter().filter(|change| **change == put).count(), 1);
    let target_urls = vec![URL.into()];
    let mut next = world(Saved { target_urls, ..Saved::kept(Vec::new()) });
    assert!(matches!(next.service_bus[..], [BusAction::Listen(true)]), "{:?}", next.service_bus);
    next.service_bus.clear();
    next.sent.clear();
    // CloudCore copies the source of the request; edgecontroller answers as its router.
    for (number, source) in [(3, "servicebus"), (4, "router_servicebus")] {
        let body = br#"{"targetURL":"http://cloud.example/a"}"#.to_vec();
        event(&mut next, BusEvent::Entry { id: EntryId(number), url: URL.into(), body });
        let request = next.sent.pop().expect("it is sent");
        assert_eq!((&*request.route.operation, &*request.route.resource), ("upload", URL));
        assert_eq!(
            content(&request),
            "eyJ0YXJnZXRVUkwiOiJodHRwOi8vY2xvdWQuZXhhbXBsZS9hIn0=",
            "a byte slice of Go"
        );
        let mut answer = request.clone();
        let id = format!("c{number}");
        (answer.header.parent_id, answer.header.id) = (request.header.id.clone(), id.into());
        answer.route.source = source.into();
        answer.route.operation = "response".into();
        answer.content = Some(serde_json::value::to_raw_value("plain, no JSON").expect("a text"));
        next.replay(&answer);
        let Some(BusAction::Answer(id, EntryAnswer { code, body, .. })) = next.service_bus.pop()
        else {
            panic!("no answer by {source}")
        };
        assert_eq!((id, code, &*body), (EntryId(number), 200, "plain, no JSON"));
    }
    // CloudCore cleans the URL as a path.
    router(&mut next, "stop", "http:/cloud.example/a", &Value::Null);
    next.pass(1_000);
    assert!(matches!(next.service_bus[..], [BusAction::Listen(false)]), "{:?}", next.service_bus);
    let gone = Change::TargetUrl(RuleRow { text: URL.into(), exists: false });
    assert!(next.written.contains(&gone));
}

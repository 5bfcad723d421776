//! What becomes of calls and requests.

use std::collections::BTreeSet;

use super::*;
use crate::limits::SERVICE_BUS_ENTRY_MS;
use crate::model::service_bus::ServiceCall;

const MESSAGE_BYTES: usize = 16 << 20;

fn now(ms: u64) -> Now {
    Now { boot: Instant(ms), wall: None }
}

/// A core with a link.
fn linked() -> ServiceBus {
    let mut settings = ServiceBusSettings::default();
    settings.own_ports.insert(10_350);
    let mut core = ServiceBus::new(settings, MESSAGE_BYTES);
    core.link_up();
    core
}

fn origin(id: &str) -> Origin {
    Origin { id: id.into(), source: "router_servicebus".into(), ..Origin::default() }
}

fn call(port: u16) -> BusDownstream {
    let (method, target) = ("POST".into(), "/a".into());
    let (headers, body) = (Vec::new(), b"body".to_vec());
    BusDownstream::Call(Ok(ServiceCall { method, port, target, headers, body }))
}

/// The call that the sockets are to make.
fn made(core: &mut ServiceBus) -> ServiceCallId {
    match core.take_actions().pop() {
        Some(BusAction::Call(id, _)) => id,
        other => panic!("{other:?}"),
    }
}

/// The next answer for the cloud: to which message, its status and its body.
fn answered(core: &mut ServiceBus) -> Option<(String, u16, String)> {
    match core.next_up()? {
        BusUp::Answer(to, answer) => {
            let body = String::from_utf8(answer.body).expect("text");
            Some((to.id.into(), answer.status, body))
        }
        other @ BusUp::Request(..) => panic!("{other:?}"),
    }
}

fn ok() -> ServiceAnswer {
    ServiceAnswer { status: 201, headers: Vec::new(), body: b"ok".to_vec() }
}

#[test]
fn a_call_is_made_once_and_answered_once() {
    let mut core = linked();
    assert_eq!(core.message(origin("m1"), call(8_080)), None);
    let id = made(&mut core);
    assert!(answered(&mut core).is_none() && !core.has_up());
    core.handle(now(1), BusEvent::Answered(id, Ok(ok())));
    assert!(core.has_up());
    assert_eq!(answered(&mut core), Some(("m1".to_owned(), 201, "ok".to_owned())));
    core.handle(now(2), BusEvent::Answered(id, Ok(ok())));
    assert!(!core.has_up() && core.take_actions().is_empty());
    let overview = core.overview();
    assert_eq!((overview.calls, overview.answered), (1, 1));
}

#[test]
fn a_call_without_an_answer_is_answered_with_the_reason() {
    for (why, status, text) in [
        (NoAnswer::Failed("connection refused".into()), 404, "error to call service: connection"),
        (NoAnswer::Late, 504, "no answer in time"),
        (NoAnswer::TooLarge, 502, "error to receive response, err: got a longer body"),
    ] {
        let mut core = linked();
        core.message(origin("m1"), call(8_080));
        let id = made(&mut core);
        core.handle(now(1), BusEvent::Answered(id, Err(why)));
        let (_, got, body) = answered(&mut core).expect("an answer");
        assert!(got == status && body.contains(text), "{got} {body}");
    }
    let mut core = linked();
    let refusal = ServiceAnswer::own(400, "the format of resource \"x\" is incorrect");
    core.message(origin("m1"), BusDownstream::Call(Err(refusal)));
    assert_eq!(answered(&mut core).expect("an answer").1, 400);
    // Within a message of a small node it has no room.
    let mut small = ServiceBus::new(ServiceBusSettings::default(), 1_024);
    small.link_up();
    small.message(origin("m1"), call(8_080));
    let id = made(&mut small);
    let large = ServiceAnswer { body: vec![0; 1_024], ..ok() };
    small.handle(now(1), BusEvent::Answered(id, Ok(large)));
    assert_eq!(answered(&mut small).expect("an answer").1, 502);
}

#[test]
fn ports_of_the_system_and_of_edged_are_refused_unless_they_are_named() {
    let refused = |core: &mut ServiceBus, port: u16| {
        core.message(origin("m"), call(port));
        let is_made = !core.take_actions().is_empty();
        let answer = answered(core);
        assert_ne!(is_made, answer.is_some(), "{port}");
        answer.map(|(_, status, body)| {
            assert_eq!(status, 403);
            body
        })
    };
    let mut core = linked();
    for port in [22, SERVICE_BUS_PORT_MIN - 1, 10_350] {
        let why = refused(&mut core, port).expect("it is refused");
        assert!(why.contains(&format!("got port {port}, expected one from 1024 on")), "{why}");
    }
    assert_eq!(refused(&mut core, SERVICE_BUS_PORT_MIN), None);
    let ports = BTreeSet::from([80]);
    let mut core = ServiceBus::new(ServiceBusSettings { ports, ..Default::default() }, 9_999);
    core.link_up();
    assert_eq!(refused(&mut core, 80), None);
    assert!(refused(&mut core, 8_080).expect("it is not named").contains("expected one of {80}"));
}

#[test]
fn calls_have_a_bound_and_a_lost_link_forgets_their_callers() {
    let mut core = linked();
    for at in 0..=SERVICE_BUS_CALLS_MAX {
        core.message(origin(&at.to_string()), call(8_080));
    }
    assert_eq!(core.take_actions().len(), SERVICE_BUS_CALLS_MAX);
    let (id, status, _) = answered(&mut core).expect("one too many");
    assert_eq!((id, status), (SERVICE_BUS_CALLS_MAX.to_string(), 503));
    for at in 0..100 {
        core.message(origin(&at.to_string()), call(22));
    }
    let mut refusals = 0;
    while answered(&mut core).is_some() {
        refusals += 1;
    }
    assert_eq!(refusals, ANSWERS_MAX, "a slow link collects no more");
    core.link_down();
    core.link_up();
    core.handle(now(1), BusEvent::Answered(ServiceCallId(1), Ok(ok())));
    assert!(!core.has_up(), "nobody waits for it");
    core.message(origin("next"), call(8_080));
    assert_eq!(core.take_actions().len(), 1, "there is room again");
}

/// What applications were answered.
fn entries(core: &mut ServiceBus) -> Vec<(u64, u16, String)> {
    let actions = core.take_actions().into_iter().filter_map(|action| match action {
        BusAction::Answer(EntryId(id), answer) => {
            Some((id, answer.code, format!("{}|{}", answer.message, answer.body)))
        }
        BusAction::Call(..) | BusAction::Listen(_) => None,
    });
    actions.collect()
}

fn entry(core: &mut ServiceBus, at: u64, id: u64, url: &str) {
    let event = BusEvent::Entry { id: EntryId(id), url: url.into(), body: b"{}".to_vec() };
    core.handle(now(at), event);
}

#[test]
fn a_request_of_an_application_gets_the_answer_of_the_cloud() {
    let mut core = linked();
    core.message(origin(""), BusDownstream::Start("http://h/x".into()));
    entry(&mut core, 1, 7, "http://h/x");
    let Some(BusUp::Request(id, url, body)) = core.next_up() else { panic!("it is sent") };
    assert_eq!((id, &*url, &body[..]), (EntryId(7), "http://h/x", &b"{}"[..]));
    core.sent(id, "m1".into());
    assert!(core.next_up().is_none(), "once");
    core.message(origin(""), BusDownstream::Answer("other".into(), "no".into()));
    assert!(entries(&mut core).is_empty());
    core.message(origin(""), BusDownstream::Answer("m1".into(), "yes".into()));
    let expected = (7, 200, "receive response from cloud successfully|yes".to_owned());
    assert_eq!(entries(&mut core), [expected]);
    core.message(origin(""), BusDownstream::Answer("m1".into(), "twice".into()));
    assert!(entries(&mut core).is_empty());
    assert_eq!((core.overview().requests, core.overview().responses), (1, 1));
}

#[test]
fn a_request_that_cannot_be_answered_is_refused_in_time() {
    let mut core = linked();
    core.message(origin(""), BusDownstream::Start("u".into()));
    entry(&mut core, 0, 1, "other");
    let (_, code, text) = entries(&mut core).pop().expect("an answer");
    let want = "url other is not allowed and please make a rule for this url in the cloud|";
    assert_eq!((code, &*text), (400, want));
    let large = vec![0; SERVICE_BUS_BODY_BYTES_MAX + 1];
    core.handle(now(0), BusEvent::Entry { id: EntryId(2), url: "u".into(), body: large });
    assert!(entries(&mut core)[0].2.starts_with("got a body of 5000001 bytes"));
    for id in 0..=SERVICE_BUS_ENTRIES_MAX as u64 {
        entry(&mut core, 10, id, "u");
    }
    assert!(entries(&mut core)[0].2.ends_with("requests wait for the cloud|"));
    let Some(BusUp::Request(first, ..)) = core.next_up() else { panic!("it is sent") };
    core.sent(first, "m1".into());
    assert_eq!(core.wake_at(), Some(Instant(10 + SERVICE_BUS_ENTRY_MS)));
    core.step(now(9 + SERVICE_BUS_ENTRY_MS));
    assert!(entries(&mut core).is_empty(), "not before");
    core.step(now(10 + SERVICE_BUS_ENTRY_MS));
    let late = entries(&mut core);
    assert_eq!(late.len(), SERVICE_BUS_ENTRIES_MAX);
    assert_eq!(late[0].2, "timeout to get response for message m1|");
    entry(&mut core, 99, 8, "u");
    core.link_down();
    assert_eq!(entries(&mut core)[0].2, "the link to the cloud was lost|");
    entry(&mut core, 99, 9, "u");
    assert_eq!(entries(&mut core)[0].2, "the cloud is out of reach|");
}

#[test]
fn while_there_is_a_rule_in_the_store_applications_are_let_in() {
    let listens = |core: &mut ServiceBus| match core.take_actions()[..] {
        [BusAction::Listen(is_on)] => Some(is_on),
        [] => None,
        ref other => panic!("{other:?}"),
    };
    let mut core = linked();
    assert!(core.message(origin(""), BusDownstream::Start("".into())).is_some(), "it is no rule");
    for url in ["a", "b"] {
        assert_eq!(core.message(origin(""), BusDownstream::Start(url.into())), None);
    }
    assert_eq!((listens(&mut core), core.urls().begin_save().len()), (None, 2));
    core.end_save(false);
    assert_eq!((listens(&mut core), core.urls().begin_save().len()), (None, 2));
    core.end_save(true);
    assert_eq!(listens(&mut core), Some(true));
    core.message(origin(""), BusDownstream::Stop("a".into()));
    assert_eq!(listens(&mut core), None);
    core.message(origin(""), BusDownstream::Stop("b".into()));
    assert_eq!(listens(&mut core), Some(false));
    let mut next = linked();
    next.load(vec!["a".into()]);
    assert_eq!((listens(&mut next), next.overview().urls), (Some(true), 1));
}

//! Rules of the router for custom messages: what the node listens to, and what comes through.

use std::collections::{BTreeMap, BTreeSet};

use edged::agent::event::{DeviceEvent, Event};
use edged::controller::event::Event as CloudEvent;
use edged::controller::time::Rng;
use edged::model::api::Kind;
use edged::model::device::Upload;
use edged::model::router::{
    Post, PostAnswer, PostId, RestId, RestRequest, RouterAction, RouterEvent,
};
use edged::model::service_bus::{BusAction, BusEvent, EntryId, ServiceAnswer};
use serde_json::{Value, json};

use crate::joint::{Joint, NODE};
use crate::stories::EACH;
use crate::worlds::{Fault, draw, each_seed, heal};

const TURNS: u64 = 40;
/// After so long without faults the node listens to what it should, milliseconds.
const HEALED_MS: u64 = 300_000;
const TARGET: &str = "http://cloud.example/in";

/// Where the messages of a rule come from: a topic or a URL, of this node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Topic(String),
    Url(String),
}

fn rule(name: &str, source: (&str, &Value), target: (&str, &Value)) -> Value {
    json!({"kind": "Rule", "apiVersion": "rules.kubeedge.io/v1",
        "metadata": {"name": name, "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"source": source.0, "sourceResource": source.1,
            "target": target.0, "targetResource": target.1}})
}

/// From the node to a server of the cloud.
fn upward(name: &str, source: &Source) -> Value {
    let target = json!({"resource": TARGET});
    match source {
        Source::Topic(topic) => {
            rule(name, ("eventbus", &json!({"topic": topic, "node_name": NODE})), ("rest", &target))
        }
        Source::Url(url) => {
            let source = json!({"target_url": url, "node_name": NODE});
            rule(name, ("servicebus", &source), ("rest", &target))
        }
    }
}

fn with_endpoints(joint: &mut Joint) {
    for kind in ["rest", "eventbus", "servicebus"] {
        let endpoint = json!({"metadata": {"name": kind, "namespace": "n"},
            "spec": {"ruleEndpointType": kind, "properties": {"service_port": "9000"}}});
        joint.apply(Kind::RuleEndpoint, endpoint);
    }
}

/// A client of the node publishes on a topic. Returns what the router passes on.
fn publish(joint: &mut Joint, topic: &str, payload: &str) -> Vec<Post> {
    joint.world.routed.clear();
    let upload = Upload { topic: topic.into(), payload: payload.into() };
    joint.node.harness.deliver(Event::Device(Box::new(DeviceEvent::Upload(upload))));
    joint.node.settle();
    joint.pass(2_000);
    posts(joint).into_iter().map(|(_, post)| post).collect()
}

fn posts(joint: &mut Joint) -> Vec<(PostId, Post)> {
    let all = std::mem::take(&mut joint.world.routed).into_iter();
    all.filter_map(|action| match action {
        RouterAction::Post(id, post) => Some((id, *post)),
        _ => None,
    })
    .collect()
}

/// A program of the node calls a server of the cloud by this URL. Returns the status and the body.
fn call_up(joint: &mut Joint, number: u64, url: &str, body: &str) -> Option<(u16, Box<str>)> {
    joint.world.routed.clear();
    joint.node.service_bus.clear();
    let entry = json!({"targetURL": url, "method": "POST", "payload": body}).to_string();
    let event = BusEvent::Entry { id: EntryId(number), url: url.into(), body: entry.into() };
    joint.node.harness.deliver(Event::ServiceBus(Box::new(event)));
    joint.node.settle();
    joint.pass(2_000);
    for (id, _) in posts(joint) {
        let answer = PostAnswer { status: 201, body: b"made".to_vec() };
        let event = RouterEvent::Posted(id, Ok(answer));
        joint.world.deliver(CloudEvent::Router(Box::new(event)));
    }
    joint.pass(2_000);
    let all = std::mem::take(&mut joint.node.service_bus).into_iter();
    let mut answers = all.filter_map(|action| match action {
        BusAction::Answer(id, answer) if id == EntryId(number) => Some((answer.code, answer.body)),
        _ => None,
    });
    answers.next()
}

#[test]
fn messages_of_the_node_reach_servers_of_the_cloud_as_long_as_there_is_a_rule() {
    for sync in EACH {
        let mut joint = Joint::new(sync, 1);
        with_endpoints(&mut joint);
        let (topic, url) = (Source::Topic("t".into()), Source::Url("http://a/b".into()));
        joint.apply(Kind::Rule, upward("topic", &topic));
        joint.apply(Kind::Rule, upward("url", &url));
        joint.pass(30_000);
        let posts = publish(&mut joint, "n/t", "21");
        assert_eq!(posts.len(), 1, "{posts:?}");
        let answer = call_up(&mut joint, 1, "http://a/b", "x");
        assert_eq!(answer, Some((200, "made".into())), "{}", joint.log());
        // Both hold over a restart without a cloud.
        joint.is_reachable = false;
        joint.restart_agent();
        joint.pass(10_000);
        assert_eq!(joint.subscribed.iter().map(|it| &**it).collect::<Vec<_>>(), ["n/t"]);
        joint.remove(Kind::Rule, "topic");
        joint.remove(Kind::Rule, "url");
        joint.is_reachable = true;
        joint.pass(60_000);
        assert!(joint.subscribed.is_empty() && joint.topics.is_empty() && joint.urls.is_empty());
    }
}

/// A request of the cloud is answered by a service of the node.
#[test]
fn requests_of_the_cloud_reach_services_of_the_node() {
    for sync in EACH {
        let mut joint = Joint::new(sync, 1);
        with_endpoints(&mut joint);
        let (path, service) = (json!({"path": "/ddd"}), json!({"path": "/echo"}));
        joint.apply(Kind::Rule, rule("down", ("rest", &path), ("servicebus", &service)));
        joint.pass(5_000);
        let request = RestRequest {
            node: NODE.into(),
            namespace: "n".into(),
            path: "ddd/a".into(),
            query: "x=1".into(),
            method: "POST".into(),
            headers: vec![("accept".into(), "*/*".into())],
            body: b"hello".to_vec(),
        };
        let event = RouterEvent::Request(RestId(7), Box::new(request));
        joint.world.deliver(CloudEvent::Router(Box::new(event)));
        joint.pass(1_000);
        let calls = std::mem::take(&mut joint.node.service_bus).into_iter();
        let calls: Vec<_> = calls
            .filter_map(|action| match action {
                BusAction::Call(number, call) => Some((number, format!("{call:?}"))),
                _ => None,
            })
            .collect();
        let [(number, call)] = &calls[..] else { panic!("{calls:?}") };
        assert_eq!(call, "POST 127.0.0.1:9000/echo/a?x=1");
        let answer = ServiceAnswer { status: 207, headers: Vec::new(), body: b"ok".to_vec() };
        let event = BusEvent::Answered(*number, Ok(answer));
        joint.node.harness.deliver(Event::ServiceBus(Box::new(event)));
        joint.node.settle();
        joint.pass(1_000);
        let answers: Vec<_> = joint
            .world
            .routed
            .iter()
            .filter_map(|action| match action {
                RouterAction::Answer(RestId(7), answer) => Some((answer.status, &answer.body[..])),
                _ => None,
            })
            .collect();
        assert_eq!(answers, [(207, &b"ok"[..])]);
    }
}

struct Drawn {
    joint: Joint,
    rng: Rng,
    rules: BTreeMap<String, Source>,
}

impl Drawn {
    fn turn(&mut self) {
        let name = format!("r{}", self.rng.below(5));
        match self.rng.below(14) {
            0..=3 => {
                let (number, is_topic) = (self.rng.below(4), self.rng.below(2) == 0);
                let source = if is_topic {
                    Source::Topic(format!("t{number}"))
                } else {
                    Source::Url(format!("http://a/{number}"))
                };
                if self.rules.values().all(|it| *it != source) {
                    self.joint.apply(Kind::Rule, upward(&name, &source));
                    self.rules.insert(name, source);
                }
            }
            4..=5 => {
                self.rules.remove(&name);
                self.joint.remove(Kind::Rule, &name);
            }
            6..=11 => Fault::draw(&mut self.rng).befall(&mut self.joint, &mut self.rng),
            _ => {}
        }
        let most = if self.rng.below(10) == 0 { 300_000 } else { 10_000 };
        let ms = 1 + self.rng.below(most);
        self.joint.pass(ms);
        self.joint.is_reachable |= self.rng.below(4) == 0;
    }

    /// The node listens to what the rules say, and each message comes through once.
    fn is_settled(&mut self) {
        let (mut topics, mut urls) = (BTreeSet::new(), BTreeSet::new());
        for source in self.rules.values() {
            match source {
                // Of the rule's namespace.
                Source::Topic(topic) => topics.insert(format!("n/{topic}").into()),
                Source::Url(url) => urls.insert(Box::from(url.as_str())),
            };
        }
        let log = self.joint.log();
        assert_eq!((&self.joint.topics, &self.joint.urls), (&topics, &urls), "rows:\n{log}");
        assert_eq!(self.joint.subscribed, topics, "subscriptions:\n{log}");
        for topic in &topics {
            let posts = publish(&mut self.joint, topic, "21");
            assert_eq!(posts.len(), 1, "{topic}: {posts:?}\n{log}");
        }
        for (url, number) in urls.iter().zip(1..) {
            let answer = call_up(&mut self.joint, number, url, "x");
            assert_eq!(answer, Some((200, "made".into())), "{url}:\n{log}");
        }
    }
}

#[test]
fn whatever_happens_the_node_listens_to_what_the_rules_say() {
    each_seed(|seed| {
        let (mut joint, rng) = draw(seed);
        with_endpoints(&mut joint);
        let mut drawn = Drawn { joint, rng, rules: BTreeMap::new() };
        for _ in 0..TURNS {
            drawn.turn();
        }
        heal(&mut drawn.joint);
        drawn.joint.pass(HEALED_MS);
        drawn.is_settled();
    });
}

//! The client against a broker that the test plays.

use super::*;
use crate::limits::MQTT_UNACKNOWLEDGED_MAX;
use crate::wire::mqtt::packet::decode;
use crate::wire::mqtt::topic::Fault;

const DELTA: &str = "$hw/events/device/default/dev1/twin/update/delta";
const RESULT: &str = "$hw/events/device/default/dev1/twin/update/result";

/// The client, the broker's side of its connection, and what it said.
struct World {
    client: Client,
    now_ms: u64,
    events: Vec<ClientEvent>,
}

impl World {
    fn new() -> Self {
        let identity = Identity { client_id: "edged-edge1".into(), ..Identity::default() };
        let mut client = Client::new(identity);
        client.subscribe("$hw/events/upload/#").expect("valid");
        client.subscribe("+/user/#").expect("valid");
        Self { client, now_ms: 1_000, events: Vec::new() }
    }

    fn up() -> Self {
        let mut world = Self::new();
        world.connect(false);
        world
    }

    fn connect(&mut self, session_present: bool) {
        self.client.open(self.now_ms + 10_000);
        assert_eq!(self.sent(), ["CONNECT"]);
        self.says(&Packet::ConnAck { session_present, code: ACCEPTED }).expect("accepted");
        assert_eq!(self.events(), [ClientEvent::Up { session_present }]);
    }

    fn says(&mut self, packet: &Packet<'_>) -> Result<(), End> {
        let mut bytes = Vec::new();
        encode(packet, &mut bytes);
        self.client.receive(&bytes, self.now_ms, &mut self.events)
    }

    fn publishes(&mut self, number: u16, delivery: fn(PacketId) -> Delivery) -> Result<(), End> {
        let payload = [number as u8];
        let (dup, retain, topic) = (false, false, "plant/user/a");
        let delivery = delivery(id(number));
        self.says(&Packet::Publish(Publish { dup, retain, delivery, topic, payload: &payload }))
    }

    /// What the client has sent, in words.
    fn sent(&mut self) -> Vec<String> {
        let (bytes, mut at, mut found) = (self.client.output().to_vec(), 0, Vec::new());
        while let Some((packet, count)) = decode(&bytes[at..], bytes.len()).expect("valid") {
            at += count;
            found.push(match packet {
                Packet::PubAck(id) | Packet::PubRec(id) | Packet::PubComp(id) => {
                    format!("{} {id}", packet.kind())
                }
                Packet::Subscribe { filters, .. } | Packet::Unsubscribe { filters, .. } => {
                    let filters: Vec<_> = filters.iter().map(|(filter, _)| filter).collect();
                    format!("{} {}", packet.kind(), filters.join(" "))
                }
                Packet::Publish(Publish { dup, topic, payload, .. }) => {
                    let payload = String::from_utf8_lossy(payload);
                    let dup = if dup { " again" } else { "" };
                    format!("PUBLISH {topic} {payload}{dup}")
                }
                _ => packet.kind().to_string(),
            });
        }
        assert_eq!(at, bytes.len(), "whole packets");
        self.client.sent(at, &mut self.events);
        found
    }

    fn events(&mut self) -> Vec<ClientEvent> {
        std::mem::take(&mut self.events)
    }

    fn publish(&mut self, topic: &str, payload: &str) -> u64 {
        let message = Message::checked(topic, payload.as_bytes()).expect("valid");
        self.client.publish(message, QoS::AtLeastOnce, false, &mut self.events)
    }

    fn lose(&mut self) {
        self.client.close(&mut self.events);
    }

    fn at(&mut self, ms: u64) -> Result<(), End> {
        self.now_ms = ms;
        self.client.tick(ms)
    }
}

fn id(id: u16) -> PacketId {
    PacketId::new(id).expect("not 0")
}

#[test]
fn it_subscribes_to_all_filters_at_once_after_each_connack() {
    let mut world = World::up();
    assert_eq!(world.sent(), ["SUBSCRIBE $hw/events/upload/# +/user/#"]);
    world.client.subscribe("plant/#").expect("valid");
    assert_eq!(world.sent(), ["SUBSCRIBE plant/#"]);
    world.client.unsubscribe("plant/#");
    assert_eq!(world.sent(), ["UNSUBSCRIBE plant/#"]);
    world.lose();
    world.client.unsubscribe("+/user/#");
    world.connect(true);
    assert_eq!(world.sent(), ["SUBSCRIBE $hw/events/upload/#", "UNSUBSCRIBE +/user/#"]);
    world.says(&Packet::SubAck { id: id(4), codes: &[SUBSCRIPTION_REFUSED] }).expect("valid");
    let refused = ClientEvent::SubscriptionRefused("$hw/events/upload/#".into());
    assert_eq!(world.events(), [refused]);
}

#[test]
fn its_filters_have_a_bound() {
    let mut client = Client::new(Identity::default());
    for at in 0..MQTT_SUBSCRIPTIONS_MAX {
        assert_eq!(client.subscribe(&format!("a/{at}")), Ok(()));
    }
    assert_eq!(client.subscribe("b"), Err(Unsubscribable::TooMany));
    assert_eq!(client.subscribe("a/0"), Ok(()), "it is there");
    let wrong = client.subscribe("a#").expect_err("invalid");
    assert_eq!(wrong, Unsubscribable::Filter(Fault::WildcardPlace));
}

#[test]
fn a_message_is_acknowledged_once_it_is_durable() {
    let mut world = World::up();
    world.sent();
    world.publishes(7, Delivery::AtLeastOnce).expect("valid");
    world.publishes(8, Delivery::ExactlyOnce).expect("valid");
    world.publishes(9, |_| Delivery::AtMostOnce).expect("valid");
    let events = world.events();
    let ids: Vec<_> = events
        .iter()
        .map(|event| match event {
            ClientEvent::Received { id, .. } => id.map(|id| id.0),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids, [Some(1), Some(2), None]);
    assert!(world.sent().is_empty());
    world.client.acknowledge(MessageId(1));
    assert_eq!(world.sent(), ["PUBACK 7"]);
    world.publishes(8, Delivery::ExactlyOnce).expect("valid");
    assert!(world.events().is_empty(), "it waits already");
    world.client.acknowledge(MessageId(2));
    assert_eq!(world.sent(), ["PUBREC 8"]);
    world.says(&Packet::PubRel(id(8))).expect("valid");
    assert_eq!(world.sent(), ["PUBCOMP 8"]);
}

#[test]
fn a_message_of_a_connection_before_is_not_acknowledged() {
    let mut world = World::up();
    world.publishes(7, Delivery::AtLeastOnce).expect("valid");
    world.lose();
    world.client.acknowledge(MessageId(1));
    world.events();
    world.connect(true);
    world.sent();
    world.client.acknowledge(MessageId(1));
    assert!(world.sent().is_empty());
}

#[test]
fn no_more_is_read_while_many_messages_wait_for_the_owner() {
    let mut world = World::up();
    world.sent();
    let max = MQTT_UNACKNOWLEDGED_MAX as u16;
    for number in 1..=max + 2 {
        world.publishes(number, Delivery::AtLeastOnce).expect("valid");
    }
    assert_eq!(world.events().len(), usize::from(max));
    assert!(!world.client.wants_input());
    world.at(31_000).expect("a ping is due");
    assert_eq!(world.sent(), ["PINGREQ"]);
    world.at(31_000 + MQTT_PING_MS).expect("its answer may be behind what is not read");
    world.client.acknowledge(MessageId(1));
    assert!(world.client.wants_input());
    world.client.receive(&[], world.now_ms, &mut world.events).expect("valid");
    assert_eq!(world.events().len(), 1, "what was held goes on");
}

#[test]
fn publications_come_again_after_a_reconnection_until_they_are_acknowledged() {
    let mut world = World::up();
    world.sent();
    let (one, two) = (world.publish("a", "1"), world.publish("a", "2"));
    assert_eq!(world.sent(), ["PUBLISH a 1", "PUBLISH a 2"]);
    world.says(&Packet::PubAck(id(2))).expect("valid");
    world.says(&Packet::PubAck(id(2))).expect("again: no harm");
    assert_eq!(world.events(), [ClientEvent::Published(one)]);
    world.lose();
    let three = world.publish("a", "3");
    world.connect(false);
    let expected = ["PUBLISH a 2 again", "SUBSCRIBE $hw/events/upload/# +/user/#", "PUBLISH a 3"];
    assert_eq!(world.sent(), expected);
    for number in [3, 5] {
        world.says(&Packet::PubAck(id(number))).expect("valid");
    }
    let expected = [ClientEvent::Published(two), ClientEvent::Published(three)];
    assert_eq!(world.events(), expected);
    assert_eq!(world.client.waiting(), 0);
}

#[test]
fn while_the_broker_is_away_only_what_is_of_use_later_waits() {
    let mut world = World::new();
    let answer = world.publish(RESULT, "1");
    let old = world.publish(DELTA, "2");
    world.publish("a", "3");
    world.publish(DELTA, "4");
    let dropped = [ClientEvent::Dropped(answer), ClientEvent::Dropped(old)];
    assert_eq!(world.events(), dropped);
    world.connect(false);
    let sent = world.sent();
    assert_eq!(sent[1..], ["PUBLISH a 3", &format!("PUBLISH {DELTA} 4")]);
}

#[test]
fn of_too_many_publications_the_oldest_are_dropped() {
    let mut world = World::new();
    for _ in 0..MQTT_QUEUE_MAX {
        world.publish("a", "");
    }
    assert!(world.events().is_empty());
    world.publish("a", "");
    assert_eq!(world.events(), [ClientEvent::Dropped(1)]);
    world.publish("a", &"x".repeat(MQTT_QUEUE_BYTES_MAX - 100));
    let dropped = world.events().len();
    assert!(dropped > 100 && dropped < MQTT_QUEUE_MAX, "{dropped}");
}

#[test]
fn it_pings_and_ends_a_connection_that_does_not_answer() {
    let mut world = World::up();
    world.sent();
    let ping_ms = 1_000 + u64::from(MQTT_KEEP_ALIVE_S) * 1_000;
    assert_eq!(world.client.wake_at_ms(), Some(ping_ms));
    world.at(ping_ms).expect("a ping is due");
    assert_eq!(world.sent(), ["PINGREQ"]);
    assert_eq!(world.client.wake_at_ms(), Some(ping_ms + MQTT_PING_MS));
    world.says(&Packet::PingResp).expect("valid");
    assert_eq!(world.client.wake_at_ms(), Some(ping_ms + 30_000));
    world.at(ping_ms + 30_000).expect("the next");
    world.at(ping_ms + 30_000 + MQTT_PING_MS - 1).expect("there is time");
    assert_eq!(world.at(ping_ms + 30_000 + MQTT_PING_MS), Err(End::NoPingResp));
}

#[test]
fn a_broker_that_loses_an_acknowledgement_gets_the_publications_again() {
    let mut world = World::up();
    for number in 0..=MQTT_UNACKNOWLEDGED_MAX {
        world.publish("a", &number.to_string());
    }
    assert_eq!(world.sent().len(), 1 + MQTT_UNACKNOWLEDGED_MAX);
    let ping = |world: &mut World| {
        let result = world.at(world.now_ms + 30_000);
        world.says(&Packet::PingResp).expect("valid");
        world.sent();
        result
    };
    ping(&mut world).expect("there is time");
    world.says(&Packet::PubAck(id(2))).expect("valid");
    ping(&mut world).expect("another one is the oldest now");
    world.says(&Packet::PubAck(id(4))).expect("valid");
    assert_eq!(ping(&mut world), Err(End::NoPubAck));
    world.lose();
    world.events();
    world.connect(true);
    let sent = world.sent();
    assert_eq!(sent[0], "PUBLISH a 1 again");
    for number in 3..=u16::try_from(MQTT_UNACKNOWLEDGED_MAX).expect("few") + 3 {
        world.says(&Packet::PubAck(id(number))).expect("valid");
    }
    assert_eq!(world.client.waiting(), 0);
    ping(&mut world).expect("nothing waits");
    ping(&mut world).expect("nothing waits");
}

#[test]
fn a_broker_that_refuses_or_is_silent_ends_the_dial() {
    for (code, expected) in [
        (1, "it does not speak MQTT 3.1.1 (CONNACK 1)"),
        (4, "user name or password are wrong (CONNACK 4)"),
    ] {
        let mut world = World::new();
        world.client.open(11_000);
        let refused = world.says(&Packet::ConnAck { session_present: false, code });
        assert_eq!(refused.map_err(|end| end.to_string()), Err(expected.to_owned()));
        assert!(world.events().is_empty());
    }
    let mut world = World::new();
    world.client.open(11_000);
    assert_eq!(world.client.wake_at_ms(), Some(11_000));
    assert_eq!(world.at(10_999), Ok(()));
    assert_eq!(world.at(11_000), Err(End::NoConnAck));
}

#[test]
fn what_a_broker_never_sends_is_a_violation() {
    let list = filter_list(["a"].into_iter(), Some(QoS::AtMostOnce));
    let filters = Filters::with_qos(&list);
    for packet in [
        Packet::ConnAck { session_present: false, code: 0 },
        Packet::PubRec(id(1)),
        Packet::PubComp(id(1)),
        Packet::Subscribe { id: id(1), filters },
        Packet::PingReq,
        Packet::Disconnect,
        Packet::OtherVersion(5),
    ] {
        let mut world = World::up();
        let done = world.says(&packet);
        let violation = Violation { packet: Some(packet.kind()), problem: Problem::Unexpected };
        assert_eq!(done, Err(End::Violation(violation)));
    }
    let mut world = World::new();
    world.client.open(9_000);
    assert!(world.says(&Packet::PingResp).is_err(), "before CONNACK");
}

#[test]
fn a_message_that_is_too_large_is_acknowledged_and_reported() {
    let mut world = World::up();
    world.sent();
    let payload = vec![0; MQTT_PACKET_BYTES_MAX];
    let (dup, retain, delivery) = (false, false, Delivery::AtLeastOnce(id(5)));
    let publish = Publish { dup, retain, delivery, topic: "a", payload: &payload };
    world.says(&Packet::Publish(publish)).expect("it is skipped");
    assert_eq!(world.events(), [ClientEvent::Skipped { bytes: payload.len() + 9 }]);
    assert_eq!(world.sent(), ["PUBACK 5"]);
    world.says(&Packet::PingResp).expect("it goes on");
}

#[test]
fn a_user_and_a_password_are_sent_if_there_is_a_user() {
    for (user, password, expected) in [
        ("u", "p", &b"\x10\x13\0\x04MQTT\x04\xc0\0\x1e\0\x01c\0\x01u\0\x01p"[..]),
        ("u", "", b"\x10\x10\0\x04MQTT\x04\x80\0\x1e\0\x01c\0\x01u"),
        ("", "p", b"\x10\x0d\0\x04MQTT\x04\0\0\x1e\0\x01c"),
    ] {
        let password = Secret::new(password);
        let identity = Identity { client_id: "c".into(), user: user.into(), password };
        let mut client = Client::new(identity);
        client.open(1);
        assert_eq!(client.output(), expected);
    }
}

#[test]
fn what_cannot_be_published_says_why() {
    let long = "x".repeat(crate::limits::MQTT_TOPIC_BYTES_MAX + 1);
    let large = vec![0; MQTT_PACKET_BYTES_MAX];
    for (topic, payload, expected) in [
        ("a/#", &b""[..], "got a wildcard in a topic name, expected none".to_owned()),
        (&long, b"", "got a longer topic, expected at most 1024 bytes and 16 levels".to_owned()),
        ("a", &large, format!("got {} bytes, expected 262144 at most", large.len() + 10)),
    ] {
        let refused = Message::checked(topic, payload).expect_err("it cannot");
        assert_eq!(refused.to_string(), expected);
    }
}

//! Clients that the test plays, by words.

use super::*;
use crate::limits::{
    MQTT_CLIENT_ID_BYTES_MAX, MQTT_CONNECTIONS_MAX, MQTT_PERSISTENT_SESSIONS_MAX,
    MQTT_SESSION_MESSAGES_MAX, MQTT_TOPIC_LEVELS_MAX, MQTT_UNACKNOWLEDGED_MAX,
};
use crate::wire::mqtt::packet::{self, Connect, decode, filter_list};

struct World {
    broker: Broker,
    now_ms: u64,
    events: Vec<BrokerEvent>,
}

const ONE: ConnectionId = ConnectionId(1);
const TWO: ConnectionId = ConnectionId(2);

fn id(id: u16) -> PacketId {
    PacketId::new(id).expect("not 0")
}

/// A CONNECT with this client id.
fn hello(client_id: &str) -> Connect<'_> {
    Connect {
        is_v31: false,
        client_id,
        clean_session: true,
        keep_alive_s: 10,
        will: None,
        user: None,
        password: None,
    }
}

fn lasting(client_id: &str) -> Connect<'_> {
    Connect { clean_session: false, ..hello(client_id) }
}

impl World {
    fn new() -> Self {
        let mut broker = Broker::new(Config::default());
        broker.subscribe("$hw/events/device/+/+/twin/+").expect("valid");
        broker.subscribe("+/user/#").expect("valid");
        Self { broker, now_ms: 1_000, events: Vec::new() }
    }

    /// Connects; returns what was answered.
    fn connect(&mut self, at: ConnectionId, connect: Connect<'_>) -> Vec<String> {
        self.broker.open(at, Trust::Password, self.now_ms);
        self.says(at, &Packet::Connect(connect));
        self.got(at)
    }

    fn joined(&mut self, at: ConnectionId, client_id: &str) {
        assert_eq!(self.connect(at, hello(client_id)), ["CONNACK 0"]);
        self.events.clear();
    }

    fn says(&mut self, at: ConnectionId, packet: &Packet<'_>) {
        let mut bytes = Vec::new();
        encode(packet, &mut bytes);
        self.broker.receive(at, &bytes, self.now_ms, &mut self.events);
    }

    fn subscribes(&mut self, at: ConnectionId, filter: &str, qos: QoS) -> Vec<String> {
        let list = filter_list([filter].into_iter(), Some(qos));
        let filters = Filters::with_qos(&list);
        self.says(at, &Packet::Subscribe { id: id(99), filters });
        self.got(at)
    }

    fn publishes(&mut self, at: ConnectionId, topic: &str, payload: &str, delivery: Delivery) {
        let (dup, retain, payload) = (false, payload.ends_with('!'), payload.as_bytes());
        self.says(at, &Packet::Publish(Publish { dup, retain, delivery, topic, payload }));
    }

    /// What a client has received since the last call, in words.
    fn got(&mut self, at: ConnectionId) -> Vec<String> {
        let (bytes, mut end, mut found) = (self.broker.output(at).to_vec(), 0, Vec::new());
        while let Some((packet, count)) = decode(&bytes[end..], bytes.len()).expect("valid") {
            end += count;
            found.push(in_words(&packet));
        }
        assert_eq!(end, bytes.len(), "whole packets");
        self.broker.sent(at, end, self.now_ms);
        found
    }

    fn received(&mut self) -> Vec<String> {
        let events = std::mem::take(&mut self.events);
        let of = |event| match event {
            BrokerEvent::Received { id, topic, payload } => {
                let payload = String::from_utf8_lossy(&payload).into_owned();
                Some(format!("{topic} {payload}{}", if id.is_some() { " ?" } else { "" }))
            }
            BrokerEvent::Connected { .. } | BrokerEvent::Disconnected { .. } => None,
        };
        events.into_iter().filter_map(of).collect()
    }

    fn tick(&mut self, ms: u64) {
        self.now_ms = ms;
        self.broker.tick(ms, &mut self.events);
    }
}

fn in_words(packet: &Packet<'_>) -> String {
    match packet {
        Packet::ConnAck { session_present, code } => {
            format!("CONNACK {code}{}", if *session_present { " present" } else { "" })
        }
        Packet::PubAck(id) | Packet::PubRec(id) | Packet::PubComp(id) => {
            format!("{} {id}", packet.kind())
        }
        Packet::SubAck { codes, .. } => format!("SUBACK {codes:?}"),
        Packet::Publish(Publish { dup, retain, topic, payload, delivery }) => {
            let qos = u8::from(*delivery != Delivery::AtMostOnce);
            let size = payload.len();
            let text =
                if size > 20 { size.to_string() } else { String::from_utf8_lossy(payload).into() };
            let more = [(*dup, " again"), (*retain, " retained")];
            let more: String = more.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
            format!("{topic} {text} {qos}{more}")
        }
        other => other.kind().to_string(),
    }
}

#[test]
fn a_message_goes_to_each_client_whose_filter_matches_once() {
    let mut world = World::new();
    world.joined(ONE, "one");
    world.joined(TWO, "two");
    assert_eq!(world.subscribes(TWO, "a/+", QoS::AtMostOnce), ["SUBACK [0]"]);
    assert_eq!(world.subscribes(TWO, "a/#", QoS::ExactlyOnce), ["SUBACK [1]"]);
    world.publishes(ONE, "a/b", "x", Delivery::AtLeastOnce(id(7)));
    assert_eq!(world.got(ONE), ["PUBACK 7"]);
    assert_eq!(world.got(TWO), ["a/b x 1"]);
    world.publishes(ONE, "a/b", "y", Delivery::AtMostOnce);
    assert_eq!(world.got(TWO), ["a/b y 0"]);
    world.publishes(TWO, "a", "z", Delivery::AtMostOnce);
    assert_eq!(world.got(TWO), ["a z 0"], "also its own");
    let list = filter_list(["a/#", "a/+"].into_iter(), None);
    world.says(TWO, &Packet::Unsubscribe { id: id(1), filters: Filters::without_qos(&list) });
    world.publishes(ONE, "a/b", "x", Delivery::AtMostOnce);
    assert_eq!(world.got(TWO), ["UNSUBACK"]);
    assert!(world.received().is_empty(), "the owner did not ask for it");
}

#[test]
fn the_owner_gets_its_topics_and_the_client_its_puback_when_they_are_durable() {
    let mut world = World::new();
    world.joined(ONE, "one");
    world.joined(TWO, "two");
    world.subscribes(TWO, "$hw/#", QoS::AtMostOnce);
    let topic = "$hw/events/device/default/dev1/twin/update";
    world.publishes(ONE, topic, "x", Delivery::AtLeastOnce(id(7)));
    world.publishes(ONE, "other", "x", Delivery::AtLeastOnce(id(8)));
    assert_eq!(world.received(), [format!("{topic} x ?")]);
    assert_eq!(world.got(TWO), [format!("{topic} x 0")], "others need not wait");
    assert!(world.got(ONE).is_empty(), "in the order of the messages");
    world.broker.acknowledge(MessageId(1));
    assert_eq!(world.got(ONE), ["PUBACK 7", "PUBACK 8"]);
    let answer = Message::new("$hw/events/device/default/dev1/twin/update/result", b"ok");
    world.broker.publish(&answer, QoS::AtMostOnce, false);
    assert_eq!(world.got(TWO), ["$hw/events/device/default/dev1/twin/update/result ok 0"]);
    assert!(world.received().is_empty(), "its own do not come back");
}

#[test]
fn what_only_the_agent_may_publish_is_dropped_and_counted() {
    let mut world = World::new();
    world.joined(ONE, "one");
    world.joined(TWO, "two");
    world.subscribes(TWO, "$hw/#", QoS::AtMostOnce);
    let topic = "$hw/events/device/default/dev1/twin/cloud_updated";
    world.publishes(ONE, topic, "x!", Delivery::AtLeastOnce(id(7)));
    let deep = "/".repeat(MQTT_TOPIC_LEVELS_MAX);
    world.publishes(ONE, &deep, "x", Delivery::AtLeastOnce(id(8)));
    assert_eq!(world.got(ONE), ["PUBACK 7", "PUBACK 8"]);
    assert!(world.got(TWO).is_empty() && world.received().is_empty());
    let counts = world.broker.counts();
    assert_eq!((counts.received, counts.refused, counts.retained), (2, 2, 0));
    let payload = b"";
    let will = packet::Will { topic, payload, qos: QoS::AtMostOnce, retain: false };
    let refused = world.connect(ConnectionId(3), Connect { will: Some(will), ..hello("three") });
    assert_eq!(refused, ["CONNACK 5"]);
}

#[test]
fn a_message_of_qos_2_is_taken_once() {
    let mut world = World::new();
    world.joined(ONE, "one");
    let twice = Delivery::ExactlyOnce(id(7));
    world.publishes(ONE, "plant/user/a", "x", twice);
    world.publishes(ONE, "plant/user/a", "x", twice);
    assert_eq!(world.received(), ["plant/user/a x ?"]);
    assert!(world.got(ONE).is_empty());
    world.broker.acknowledge(MessageId(1));
    world.publishes(ONE, "plant/user/a", "x", twice);
    assert_eq!(world.got(ONE), ["PUBREC 7", "PUBREC 7"]);
    world.says(ONE, &Packet::PubRel(id(7)));
    assert_eq!(world.got(ONE), ["PUBCOMP 7"]);
    world.publishes(ONE, "plant/user/a", "y", twice);
    assert_eq!(world.received(), ["plant/user/a y ?"]);
}

#[test]
fn retained_messages_come_with_the_subscription() {
    let mut world = World::new();
    world.joined(ONE, "one");
    world.publishes(ONE, "a/b", "old!", Delivery::AtMostOnce);
    world.publishes(ONE, "a/b", "new!", Delivery::AtLeastOnce(id(1)));
    world.publishes(ONE, "a/c", "not", Delivery::AtMostOnce);
    world.joined(TWO, "two");
    let got = world.subscribes(TWO, "a/#", QoS::AtLeastOnce);
    assert_eq!(got, ["SUBACK [1]", "a/b new! 1 retained"]);
    world.publishes(ONE, "a/b", "now!", Delivery::AtMostOnce);
    assert_eq!(world.got(TWO), ["a/b now! 0"], "it is not old to those who are there");
    let empty = Publish {
        dup: false,
        retain: true,
        delivery: Delivery::AtMostOnce,
        topic: "a/b",
        payload: b"",
    };
    world.says(ONE, &Packet::Publish(empty));
    assert_eq!(world.got(TWO), ["a/b  0"]);
    assert_eq!(world.subscribes(TWO, "a/#", QoS::AtMostOnce), ["SUBACK [0]"]);
}

#[test]
fn a_will_is_published_unless_the_client_says_goodbye() {
    for (ends, expected) in [(true, vec![]), (false, vec!["will/one gone 1"])] {
        let mut world = World::new();
        world.joined(TWO, "two");
        world.subscribes(TWO, "will/#", QoS::AtLeastOnce);
        let (topic, payload, qos) = ("will/one", &b"gone"[..], QoS::AtLeastOnce);
        let will = packet::Will { topic, payload, qos, retain: true };
        world.connect(ONE, Connect { will: Some(will), ..hello("one") });
        if ends {
            world.says(ONE, &Packet::Disconnect);
            assert_eq!(world.broker.ended(ONE), Some(End::Disconnect));
        }
        world.broker.close(ONE, &mut world.events);
        assert_eq!(world.got(TWO), expected);
        assert_eq!(world.broker.counts().retained, usize::from(!ends));
        assert_eq!(world.broker.counts().clients, 1);
    }
}

#[test]
fn a_persistent_session_keeps_what_comes_meanwhile() {
    let mut world = World::new();
    world.joined(ONE, "one");
    assert_eq!(world.connect(TWO, lasting("two")), ["CONNACK 0"]);
    world.subscribes(TWO, "a", QoS::AtLeastOnce);
    world.publishes(ONE, "a", "1", Delivery::AtLeastOnce(id(1)));
    assert_eq!(world.got(TWO), ["a 1 1"], "it is not acknowledged");
    world.broker.close(TWO, &mut world.events);
    world.publishes(ONE, "a", "2", Delivery::AtLeastOnce(id(2)));
    world.publishes(ONE, "a", "3", Delivery::AtMostOnce);
    let got = world.connect(TWO, lasting("two"));
    assert_eq!(got, ["CONNACK 0 present", "a 1 1 again", "a 2 1"]);
    world.says(TWO, &Packet::PubAck(id(1)));
    world.broker.close(TWO, &mut world.events);
    assert_eq!(world.connect(TWO, lasting("two")), ["CONNACK 0 present", "a 2 1 again"]);
    world.broker.close(TWO, &mut world.events);
    assert_eq!(world.connect(TWO, hello("two")), ["CONNACK 0"], "a clean one ends it");
    world.broker.close(TWO, &mut world.events);
    assert_eq!(world.broker.counts().sessions, 1);
}

#[test]
fn of_the_messages_that_wait_the_oldest_are_dropped() {
    let mut world = World::new();
    world.joined(ONE, "one");
    world.connect(TWO, lasting("two"));
    world.subscribes(TWO, "a", QoS::AtLeastOnce);
    world.broker.close(TWO, &mut world.events);
    for at in 0..MQTT_SESSION_MESSAGES_MAX + 5 {
        world.publishes(ONE, "a", &at.to_string(), Delivery::AtLeastOnce(id(1)));
    }
    assert_eq!(world.broker.counts().dropped, 5);
    assert_eq!(world.connect(TWO, lasting("two"))[..2], ["CONNACK 0 present", "a 5 1"]);
    world.broker.close(TWO, &mut world.events);
    let large = "x".repeat(MQTT_SESSION_BYTES_MAX);
    world.publishes(ONE, "a", &large, Delivery::AtLeastOnce(id(1)));
    let got = world.connect(TWO, lasting("two"));
    assert_eq!(got.len(), 1 + MQTT_UNACKNOWLEDGED_MAX, "those under way stay");
}

#[test]
fn a_client_id_has_one_connection_and_one_session() {
    let mut world = World::new();
    world.connect(ONE, lasting("a"));
    world.subscribes(ONE, "t", QoS::AtLeastOnce);
    assert_eq!(world.connect(TWO, lasting("a")), ["CONNACK 0 present"]);
    assert_eq!(world.broker.ended(ONE), Some(End::TakenOver));
    world.broker.close(ONE, &mut world.events);
    world.publishes(TWO, "t", "x", Delivery::AtMostOnce);
    assert_eq!(world.got(TWO), ["t x 0"]);
    let connected = |client_id: &str| BrokerEvent::Connected { client_id: client_id.into() };
    let (client_id, end) = ("a".into(), End::TakenOver);
    let ended = BrokerEvent::Disconnected { client_id, end };
    assert_eq!(world.events, [connected("a"), ended, connected("a")]);
}

#[test]
fn clients_without_an_id_get_one_for_a_clean_session() {
    let mut world = World::new();
    assert_eq!(world.connect(ONE, hello("")), ["CONNACK 0"]);
    assert_eq!(world.connect(TWO, hello("")), ["CONNACK 0"]);
    assert_eq!(world.broker.counts().clients, 2);
    assert_eq!(world.connect(ConnectionId(3), lasting("")), ["CONNACK 2"]);
    let long = "x".repeat(MQTT_CLIENT_ID_BYTES_MAX + 1);
    assert_eq!(world.connect(ConnectionId(4), hello(&long)), ["CONNACK 2"]);
    assert_eq!(world.connect(ConnectionId(5), hello(&long[1..])), ["CONNACK 0"]);
}

#[test]
fn other_versions_are_answered() {
    let mut world = World::new();
    world.broker.open(ONE, Trust::Password, 0);
    world.says(ONE, &Packet::OtherVersion(5));
    assert_eq!(world.got(ONE), ["CONNACK 1"]);
    assert_eq!(world.broker.ended(ONE), Some(End::Refused(1)));
    let old = Connect { is_v31: true, ..lasting("old") };
    assert_eq!(world.connect(TWO, old), ["CONNACK 0"]);
    world.broker.close(TWO, &mut world.events);
    assert_eq!(world.connect(TWO, old), ["CONNACK 0"], "3.1 has no flag for its session");
}

#[test]
fn a_user_and_a_password_are_checked_except_on_the_socket() {
    let password = Secret::new("secret");
    let config = Config { user: "user".into(), password, ..Config::default() };
    let mut world = World { broker: Broker::new(config), now_ms: 0, events: Vec::new() };
    for (at, user, password, expected) in [
        (1, None, None, "CONNACK 5"),
        (2, Some("user"), None, "CONNACK 5"),
        (3, Some("user"), Some("secre"), "CONNACK 4"),
        (4, Some("user"), Some("secret2"), "CONNACK 4"),
        (5, Some("usex"), Some("secret"), "CONNACK 4"),
        (6, Some("user"), Some("secret"), "CONNACK 0"),
    ] {
        let password = password.map(str::as_bytes);
        let connect = Connect { user, password, ..hello("a") };
        assert_eq!(world.connect(ConnectionId(at), connect), [expected], "{at}");
    }
    world.broker.open(ConnectionId(7), Trust::Socket, 0);
    world.says(ConnectionId(7), &Packet::Connect(hello("b")));
    assert_eq!(world.got(ConnectionId(7)), ["CONNACK 0"]);
}

#[test]
fn silent_clients_are_cut() {
    let mut world = World::new();
    world.broker.open(ONE, Trust::Password, 1_000);
    assert_eq!(world.broker.wake_at_ms(), Some(1_000 + MQTT_CONNECT_MS));
    world.tick(1_000 + MQTT_CONNECT_MS);
    assert_eq!(world.broker.ended(ONE), Some(End::NoConnect));
    let start = world.now_ms;
    world.joined(TWO, "two");
    assert_eq!(world.broker.wake_at_ms(), Some(start + 15_000), "one and a half keep-alives");
    world.tick(start + 14_000);
    world.says(TWO, &Packet::PingReq);
    assert_eq!(world.got(TWO), ["PINGRESP"]);
    world.tick(start + 28_999);
    assert_eq!(world.broker.ended(TWO), None);
    world.tick(start + 29_000);
    assert_eq!(world.broker.ended(TWO), Some(End::KeepAlive));
    let for_ever = Connect { keep_alive_s: 0, ..hello("ever") };
    world.connect(ConnectionId(3), for_ever);
    assert_eq!(world.broker.wake_at_ms(), None);
    world.broker.receive(ConnectionId(3), &[0x30, 9, 0], world.now_ms, &mut world.events);
    let begun = world.now_ms;
    assert_eq!(world.broker.wake_at_ms(), Some(begun + MQTT_PACKET_MS));
    world.now_ms += 1_000;
    world.broker.receive(ConnectionId(3), &[1], world.now_ms, &mut world.events);
    world.tick(begun + MQTT_PACKET_MS);
    assert_eq!(world.broker.ended(ConnectionId(3)), Some(End::Incomplete), "however it drips");
}

#[test]
fn a_client_that_does_not_read_is_cut_and_harms_no_other() {
    let mut world = World::new();
    for (at, name) in [(ONE, "one"), (TWO, "two"), (ConnectionId(3), "three")] {
        world.joined(at, name);
        world.subscribes(at, "a", QoS::AtMostOnce);
    }
    let half = "x".repeat(MQTT_OUTPUT_BYTES_MAX / 2 - 100);
    for _ in 0..3 {
        world.publishes(ONE, "a", &half, Delivery::AtMostOnce);
        assert_eq!(world.got(ConnectionId(3)).len(), 1);
    }
    assert!(world.broker.output(TWO).len() <= MQTT_OUTPUT_BYTES_MAX);
    assert_eq!(world.broker.counts().dropped, 2, "the third of both");
    world.broker.sent(TWO, 0, world.now_ms);
    let start = world.now_ms;
    world.tick(start + 9_000);
    world.broker.sent(TWO, 1, world.now_ms);
    world.says(TWO, &Packet::PingReq);
    world.tick(start + 9_000 + MQTT_STALL_MS - 1 - 15_000);
    for at in [start + 15_000, start + 9_000 + MQTT_STALL_MS - 1] {
        world.says(TWO, &Packet::PingReq);
        world.tick(at);
        assert_eq!(world.broker.ended(TWO), None, "it reads slowly");
        world.says(TWO, &Packet::PingReq);
    }
    world.tick(start + 9_000 + MQTT_STALL_MS);
    assert_eq!(world.broker.ended(TWO), Some(End::NotReading));
}

#[test]
fn a_client_that_asks_and_does_not_read_is_cut() {
    let mut world = World::new();
    world.joined(ONE, "one");
    let asks = [0xc0, 0].repeat(16 << 10);
    for _ in 0..ANSWERS_BYTES_MAX / asks.len() + 2 {
        world.broker.receive(ONE, &asks, world.now_ms, &mut world.events);
    }
    assert_eq!(world.broker.ended(ONE), Some(End::NotReading));
    assert!(world.broker.output(ONE).len() <= ANSWERS_BYTES_MAX + 2);
}

#[test]
fn all_outputs_together_have_a_bound() {
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
        let mut world = World::new();
        world.joined(ONE, "one");
        let count = MQTT_CONNECTIONS_MAX as u64;
        for at in 2..count {
            world.joined(ConnectionId(at), &at.to_string());
            world.subscribes(ConnectionId(at), "a", qos);
        }
        let large = "x".repeat(MQTT_PACKET_BYTES_MAX / 2);
        world.publishes(ONE, "a", &large, Delivery::AtLeastOnce(id(1)));
        let waits: usize = (1..count).map(|at| world.broker.output(ConnectionId(at)).len()).sum();
        assert!(waits <= MQTT_OUTPUT_TOTAL_BYTES_MAX + MQTT_PACKET_BYTES_MAX, "{waits}");
        let mut came = 0;
        for _ in 0..2 {
            came += (2..count).map(|at| world.got(ConnectionId(at)).len()).sum::<usize>();
        }
        let dropped = world.broker.counts().dropped as usize;
        assert_eq!(came + dropped, count as usize - 2);
        let room = MQTT_STORED_BYTES_MAX / large.len();
        assert!((room - 1..=room).contains(&came), "{came} of {room}");
    }
}

#[test]
fn what_found_no_room_in_all_outputs_goes_on_when_another_client_reads() {
    let mut world = World::new();
    world.joined(ONE, "one");
    let large = "x".repeat(MQTT_PACKET_BYTES_MAX / 2);
    let fill = MQTT_OUTPUT_TOTAL_BYTES_MAX / large.len() - 1;
    for at in 0..fill as u64 {
        world.joined(ConnectionId(10 + at), &at.to_string());
        world.subscribes(ConnectionId(10 + at), "fill", QoS::AtMostOnce);
    }
    for (at, filter) in [(TWO, "a"), (ConnectionId(3), "b")] {
        world.joined(at, filter);
        world.subscribes(at, filter, QoS::AtLeastOnce);
    }
    for topic in ["fill", "a", "b"] {
        world.publishes(ONE, topic, &large, Delivery::AtLeastOnce(id(1)));
    }
    assert!(world.broker.output(ConnectionId(3)).is_empty(), "there is no room");
    assert_eq!(world.broker.counts().dropped, 0);
    assert_eq!(world.got(ConnectionId(10)).len(), 1);
    assert_eq!(world.got(ConnectionId(3)), [format!("b {} 1", large.len())]);
}

#[test]
fn incomplete_packets_together_have_a_bound() {
    let mut world = World::new();
    let mut begun = vec![0; 200 << 10];
    begun[..4].copy_from_slice(&[0x30, 0x80, 0x80, 0x0f]);
    let room = MQTT_INPUT_TOTAL_BYTES_MAX / begun.len();
    for at in 0..=room as u64 {
        world.joined(ConnectionId(at), &at.to_string());
        world.broker.receive(ConnectionId(at), &begun, world.now_ms, &mut world.events);
        let expected = (at == room as u64).then_some(End::InputFull);
        assert_eq!(world.broker.ended(ConnectionId(at)), expected, "{at}");
    }
    world.broker.open(ConnectionId(900), Trust::Password, 0);
    let long = Connect { password: None, ..hello("x") };
    let payload = vec![0; MQTT_CONNECT_BYTES_MAX];
    let (topic, qos) = ("a", QoS::AtMostOnce);
    let will = packet::Will { topic, payload: &payload, qos, retain: false };
    world.says(ConnectionId(900), &Packet::Connect(Connect { will: Some(will), ..long }));
    assert!(matches!(world.broker.ended(ConnectionId(900)), Some(End::Violation(_))));
}

#[test]
fn a_client_that_floods_the_owner_is_not_read_until_it_is_durable() {
    let mut world = World::new();
    world.joined(ONE, "one");
    for at in 1..=MQTT_UNACKNOWLEDGED_MAX as u16 + 3 {
        world.publishes(ONE, "plant/user/a", "x", Delivery::AtLeastOnce(id(at)));
    }
    assert_eq!(world.received().len(), MQTT_UNACKNOWLEDGED_MAX);
    assert!(!world.broker.wants_input(ONE));
    assert_eq!(world.broker.wake_at_ms(), None, "neither is it cut for its silence");
    world.broker.acknowledge(MessageId(1));
    world.broker.acknowledge(MessageId(2));
    assert_eq!(world.broker.wake_at_ms(), Some(0));
    world.tick(1_001);
    assert_eq!(world.received().len(), 2);
    assert_eq!(world.got(ONE), ["PUBACK 1", "PUBACK 2"]);
}

#[test]
fn sessions_and_subscriptions_have_bounds() {
    let mut world = World::new();
    let max = MQTT_PERSISTENT_SESSIONS_MAX as u64;
    for at in 0..max {
        world.connect(ConnectionId(at), lasting(&format!("p{at}")));
    }
    assert_eq!(world.connect(ConnectionId(90), lasting("more")), ["CONNACK 3"]);
    world.broker.close(ConnectionId(5), &mut world.events);
    world.broker.close(ConnectionId(4), &mut world.events);
    assert_eq!(world.connect(ConnectionId(91), lasting("more")), ["CONNACK 0"]);
    assert_eq!(world.connect(ConnectionId(4), lasting("p4")), ["CONNACK 0 present"]);
    assert_eq!(world.connect(ConnectionId(92), lasting("p5")), ["CONNACK 3"], "it gave way");
    let names: Vec<_> = (0..=MQTT_SUBSCRIPTIONS_MAX).map(|at| format!("a/{at}")).collect();
    let list = filter_list(names.iter().map(|name| &**name), Some(QoS::AtMostOnce));
    let filters = Filters::with_qos(&list);
    world.says(ConnectionId(0), &Packet::Subscribe { id: id(1), filters });
    let mut codes = vec![0; MQTT_SUBSCRIPTIONS_MAX];
    codes.push(SUBSCRIPTION_REFUSED);
    assert_eq!(world.got(ConnectionId(0)), [format!("SUBACK {codes:?}")]);
    assert_eq!(world.subscribes(ConnectionId(0), "a/0", QoS::AtLeastOnce), ["SUBACK [1]"]);
}

#[test]
fn what_a_client_never_sends_is_a_violation() {
    for packet in [
        Packet::Connect(hello("one")),
        Packet::ConnAck { session_present: false, code: 0 },
        Packet::SubAck { id: id(1), codes: &[0] },
        Packet::PingResp,
        Packet::PubRec(id(1)),
    ] {
        let mut world = World::new();
        world.joined(ONE, "one");
        world.says(ONE, &packet);
        let violation = Violation { packet: Some(packet.kind()), problem: Problem::Unexpected };
        assert_eq!(world.broker.ended(ONE), Some(End::Violation(violation)));
    }
    let mut world = World::new();
    world.broker.open(ONE, Trust::Password, 0);
    world.says(ONE, &Packet::PingReq);
    assert!(matches!(world.broker.ended(ONE), Some(End::Violation(_))), "CONNECT comes first");
}

//! MQTT: damaged packets at both ends, and our client against our broker over connections that
//! break anywhere.

use std::collections::{BTreeMap, BTreeSet};

use edged::core::time::Rng;
use edged::limits::{MQTT_OUTPUT_BYTES_MAX, MQTT_PACKET_BYTES_MAX};
use edged::wire::mqtt::broker::{Broker, BrokerEvent, Config, ConnectionId, Trust};
use edged::wire::mqtt::client::{Client, ClientEvent, Identity};
use edged::wire::mqtt::packet::{
    Connect, Delivery, Filters, Packet, Publish, decode, encode, filter_list,
};
use edged::wire::mqtt::{Message, MessageId, PacketId, QoS};

use crate::golden::hex;
use crate::mutation::Dice;

const ROUNDS: usize = 20_000;

fn id(id: u16) -> PacketId {
    PacketId::new(id).expect("not 0")
}

fn encoded(packet: &Packet<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(packet, &mut bytes);
    bytes
}

fn publish(topic: &str, payload: &[u8], delivery: Delivery, dup: bool) -> Vec<u8> {
    encoded(&Packet::Publish(Publish { dup, retain: false, delivery, topic, payload }))
}

fn connect(client_id: &str) -> Vec<u8> {
    encoded(&Packet::Connect(Connect {
        is_v31: false,
        client_id,
        clean_session: false,
        keep_alive_s: 30,
        will: None,
        user: None,
        password: None,
    }))
}

fn client(client_id: &str) -> Client {
    Client::new(Identity { client_id: client_id.into(), ..Identity::default() })
}

#[test]
fn the_packets_that_other_codecs_stumble_over_are_refused() {
    for bytes in [
        "30 02 00 05 61 62 63 64 65",
        "82 07 00 01 00 03 61 2f 23",
        "50 00",
        "36 09 00 03 61 2f 62 00 01 68 69",
        "30 05 00 03 61 ff 62",
        "82 02 00 01",
        "60 02 00 01",
        "30 07 00 03 61 2f 23 68 69",
    ] {
        assert!(decode(&hex(bytes), MQTT_PACKET_BYTES_MAX).is_err(), "{bytes}");
    }
}

/// Every packet that a client sends, and every one that a broker sends.
fn conversations() -> (Vec<u8>, Vec<u8>) {
    let list = filter_list(["a/+", "$hw/#", "plant/user/#"].into_iter(), Some(QoS::AtLeastOnce));
    let names = filter_list(["a/+"].into_iter(), None);
    let (topic, payload) = ("plant/user/a", &b"21.5"[..]);
    let from_client = [
        connect("one"),
        encoded(&Packet::Subscribe { id: id(1), filters: Filters::with_qos(&list) }),
        publish(topic, payload, Delivery::AtMostOnce, false),
        publish(topic, payload, Delivery::AtLeastOnce(id(2)), false),
        publish(topic, payload, Delivery::ExactlyOnce(id(3)), true),
        encoded(&Packet::PubRel(id(3))),
        encoded(&Packet::PubAck(id(1))),
        encoded(&Packet::Unsubscribe { id: id(4), filters: Filters::without_qos(&names) }),
        encoded(&Packet::PingReq),
        encoded(&Packet::Disconnect),
    ];
    let from_broker = [
        encoded(&Packet::ConnAck { session_present: true, code: 0 }),
        encoded(&Packet::SubAck { id: id(1), codes: &[1, 0x80] }),
        publish(topic, payload, Delivery::AtMostOnce, false),
        publish(topic, payload, Delivery::AtLeastOnce(id(2)), false),
        publish(topic, payload, Delivery::ExactlyOnce(id(3)), true),
        encoded(&Packet::PubRel(id(3))),
        encoded(&Packet::PubAck(id(1))),
        encoded(&Packet::UnsubAck(id(4))),
        encoded(&Packet::PingResp),
    ];
    (from_client.concat(), from_broker.concat())
}

#[test]
fn damaged_packets_end_in_events_or_an_error() {
    let (from_client, from_broker) = conversations();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let (mut violations, mut messages) = (0, 0);
    for round in 0..ROUNDS {
        let mut bytes = if round % 2 == 0 { from_client.clone() } else { from_broker.clone() };
        dice.damage(&mut bytes);
        let (whole, ended) = replay(round % 2 == 0, &bytes, bytes.len().max(1));
        let (cut, cut_ended) = replay(round % 2 == 0, &bytes, 1 + round % 7);
        assert_eq!((whole, ended), (cut, cut_ended), "round {round}: {bytes:02x?}");
        violations += usize::from(ended);
        messages += whole;
    }
    assert!(violations > ROUNDS / 4 && messages > ROUNDS / 5, "{violations} {messages}");
}

/// How many messages came out of these bytes, and whether the connection ended.
fn replay(is_broker: bool, bytes: &[u8], size: usize) -> (usize, bool) {
    if is_broker {
        let (mut broker, mut events) = (Broker::new(Config::default()), Vec::new());
        broker.subscribe("plant/user/#").expect("valid");
        broker.open(ConnectionId(1), Trust::Password, 0);
        for piece in bytes.chunks(size) {
            broker.receive(ConnectionId(1), piece, 0, &mut events);
            assert!(broker.output(ConnectionId(1)).len() < MQTT_OUTPUT_BYTES_MAX);
        }
        let received = |event: &&BrokerEvent| matches!(event, BrokerEvent::Received { .. });
        let ended = broker.ended(ConnectionId(1)).is_some();
        return (events.iter().filter(received).count(), ended);
    }
    let (mut client, mut events, mut ended) = (client("one"), Vec::new(), false);
    client.subscribe("plant/user/#").expect("valid");
    client.publish(Message::new("a", b"1"), QoS::AtLeastOnce, false, &mut events);
    client.open(10_000);
    for piece in bytes.chunks(size) {
        ended |= client.receive(piece, 0, &mut events).is_err();
        if ended {
            break;
        }
    }
    let received = |event: &&ClientEvent| matches!(event, ClientEvent::Received { .. });
    (events.iter().filter(received).count(), ended)
}

// ---- our client against our broker ----

/// A connection whose bytes are under way, and lost when it is cut.
#[derive(Default)]
struct Wire {
    at: Option<ConnectionId>,
    to_broker: Vec<u8>,
    to_client: Vec<u8>,
}

/// A publisher of QoS 2, which our client is not. It uses one id for all of its messages.
#[derive(Default)]
struct Exactly {
    number: u32,
    is_released: bool,
    output: Vec<u8>,
    input: Vec<u8>,
}

impl Exactly {
    fn open(&mut self) {
        self.input.clear();
        self.output = connect("exactly");
    }

    fn say(&mut self, dup: bool) {
        let bytes = if self.is_released {
            encoded(&Packet::PubRel(id(7)))
        } else {
            let payload = self.number.to_string();
            publish(EXACTLY, payload.as_bytes(), Delivery::ExactlyOnce(id(7)), dup)
        };
        self.output.extend(bytes);
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.input.extend(bytes);
        let input = std::mem::take(&mut self.input);
        let mut at = 0;
        while let Some((packet, count)) =
            decode(&input[at..], MQTT_PACKET_BYTES_MAX).expect("valid")
        {
            at += count;
            match packet {
                Packet::ConnAck { .. } => self.say(true),
                Packet::PubRec(_) => {
                    self.is_released = true;
                    self.say(false);
                }
                Packet::PubComp(_) => {
                    (self.number, self.is_released) = (self.number + 1, false);
                    self.say(false);
                }
                other => panic!("{other:?}"),
            }
        }
        self.input = input[at..].to_vec();
    }
}

const EXACTLY: &str = "exactly/user/a";
const LEAST: &str = "least/user/a";

/// Who is at the wires, in this order: the subscriber, the publisher, and [`Exactly`].
struct World {
    rng: Rng,
    broker: Broker,
    wires: [Wire; 3],
    subscriber: Client,
    publisher: Client,
    exactly: Exactly,
    now_ms: u64,
    connections: u64,
    /// What each publication of the publisher says.
    published: BTreeMap<u64, u32>,
    /// What the broker has acknowledged to the publisher.
    confirmed: BTreeSet<u32>,
    next: u32,
    /// What came to the owner, and what it has acknowledged.
    owner_waits: Vec<(MessageId, String)>,
    owner_has: BTreeSet<String>,
    exactly_came: Vec<u32>,
    subscriber_waits: Vec<(MessageId, u32)>,
    subscriber_has: BTreeSet<u32>,
    cuts: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut broker = Broker::new(Config::default());
        broker.subscribe("+/user/#").expect("valid");
        let mut subscriber = client("subscriber");
        subscriber.subscribe("least/#").expect("valid");
        Self {
            rng: Rng::new(seed),
            broker,
            wires: Default::default(),
            subscriber,
            publisher: client("publisher"),
            exactly: Exactly::default(),
            now_ms: 0,
            connections: 0,
            published: BTreeMap::new(),
            confirmed: BTreeSet::new(),
            next: 0,
            owner_waits: Vec::new(),
            owner_has: BTreeSet::new(),
            exactly_came: Vec::new(),
            subscriber_waits: Vec::new(),
            subscriber_has: BTreeSet::new(),
            cuts: 0,
        }
    }

    fn step(&mut self, with_faults: bool) {
        self.now_ms += 1;
        let at = self.rng.below(3) as usize;
        if self.wires[at].at.is_none() {
            self.open(at);
        } else if with_faults && self.rng.below(60) == 0 {
            self.cut(at);
        } else {
            self.carry(at);
        }
        if self.rng.below(4) == 0 {
            self.acknowledge();
        }
        // Fewer than a session keeps, even if each comes several times.
        let has_room = self.next as usize - self.subscriber_has.len() < 15;
        if with_faults && has_room && self.rng.below(6) == 0 {
            let message = Message::new(LEAST, self.next.to_string().as_bytes());
            let mut events = Vec::new();
            let number = self.publisher.publish(message, QoS::AtLeastOnce, false, &mut events);
            self.published.insert(number, self.next);
            self.next += 1;
            self.heard(1, events);
        }
    }

    fn open(&mut self, at: usize) {
        self.connections += 1;
        let connection = ConnectionId(self.connections);
        self.wires[at] = Wire { at: Some(connection), ..Wire::default() };
        self.broker.open(connection, Trust::Password, self.now_ms);
        let deadline_ms = self.now_ms + 10_000;
        match at {
            0 => self.subscriber.open(deadline_ms),
            1 => self.publisher.open(deadline_ms),
            _ => self.exactly.open(),
        }
    }

    fn cut(&mut self, at: usize) {
        self.cuts += 1;
        let connection = self.wires[at].at.take().expect("it is up");
        self.wires[at] = Wire::default();
        let (mut found, mut events) = (Vec::new(), Vec::new());
        self.broker.close(connection, &mut found);
        self.owner_hears(found);
        match at {
            0 => self.subscriber.close(&mut events),
            1 => self.publisher.close(&mut events),
            _ => {}
        }
        self.heard(at, events);
    }

    /// Carries some bytes of both directions.
    fn carry(&mut self, at: usize) {
        let connection = self.wires[at].at.expect("it is up");
        let (mut found, mut events) = (Vec::new(), Vec::new());
        let output = match at {
            0 => self.subscriber.output().to_vec(),
            1 => self.publisher.output().to_vec(),
            _ => std::mem::take(&mut self.exactly.output),
        };
        match at {
            0 => self.subscriber.sent(output.len(), &mut events),
            1 => self.publisher.sent(output.len(), &mut events),
            _ => {}
        }
        let wire = &mut self.wires[at];
        wire.to_broker.extend(output);
        let count = self.rng.below(wire.to_broker.len() as u64 + 1) as usize;
        let bytes: Vec<u8> = wire.to_broker.drain(..count).collect();
        if self.broker.wants_input(connection) {
            self.broker.receive(connection, &bytes, self.now_ms, &mut found);
        } else {
            wire.to_broker.splice(..0, bytes);
        }
        self.broker.tick(self.now_ms, &mut found);
        let ended = self.broker.ended(connection);
        assert!(ended.is_none(), "{ended:?}");
        let output = self.broker.output(connection).to_vec();
        self.broker.sent(connection, output.len(), self.now_ms);
        wire.to_client.extend(output);
        let count = self.rng.below(wire.to_client.len() as u64 + 1) as usize;
        let bytes: Vec<u8> = wire.to_client.drain(..count).collect();
        match at {
            0 => self.subscriber.receive(&bytes, self.now_ms, &mut events).expect("valid"),
            1 => self.publisher.receive(&bytes, self.now_ms, &mut events).expect("valid"),
            _ => self.exactly.receive(&bytes),
        }
        self.owner_hears(found);
        self.heard(at, events);
    }

    fn owner_hears(&mut self, events: Vec<BrokerEvent>) {
        for event in events {
            let BrokerEvent::Received { id, topic, payload } = event else { continue };
            let payload = String::from_utf8(payload.into()).expect("a number");
            if &*topic == EXACTLY {
                self.exactly_came.push(payload.parse().expect("a number"));
            }
            self.owner_waits.push((id.expect("QoS 1 and 2"), format!("{topic} {payload}")));
        }
    }

    fn heard(&mut self, at: usize, events: Vec<ClientEvent>) {
        for event in events {
            match event {
                ClientEvent::Received { id, payload, .. } => {
                    assert_eq!(at, 0);
                    let number = String::from_utf8(payload.into()).expect("a number");
                    let number = number.parse().expect("a number");
                    self.subscriber_waits.push((id.expect("QoS 1"), number));
                }
                ClientEvent::Published(number) => {
                    let said = self.published.remove(&number).expect("once, and not unasked");
                    let owned = self.owner_has.contains(&format!("{LEAST} {said}"));
                    assert!(owned, "{said} is confirmed, and the owner has not acknowledged it");
                    self.confirmed.insert(said);
                }
                ClientEvent::Up { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn acknowledge(&mut self) {
        if !self.owner_waits.is_empty() {
            let at = self.rng.below(self.owner_waits.len() as u64) as usize;
            let (id, said) = self.owner_waits.swap_remove(at);
            self.owner_has.insert(said);
            self.broker.acknowledge(id);
        }
        if !self.subscriber_waits.is_empty() {
            let at = self.rng.below(self.subscriber_waits.len() as u64) as usize;
            let (id, number) = self.subscriber_waits.swap_remove(at);
            self.subscriber_has.insert(number);
            self.subscriber.acknowledge(id);
        }
    }
}

#[test]
fn over_connections_that_break_nothing_is_lost_and_qos_2_comes_once() {
    let (mut cuts, mut exactly) = (0, 0);
    for seed in 0..30 {
        let mut world = World::new(seed);
        // The session is there before the first message.
        for _ in 0..300 {
            world.step(false);
        }
        while !world.wires[0].to_broker.is_empty() {
            world.step(false);
        }
        assert_eq!(world.broker.counts().clients, 3, "seed {seed}");
        for _ in 0..3_000 {
            world.step(true);
        }
        for _ in 0..6_000 {
            world.step(false);
        }
        assert_eq!(world.broker.counts().dropped, 0, "seed {seed}: too few were allowed");
        let all: BTreeSet<u32> = (0..world.next).collect();
        assert!(world.next > 50, "seed {seed}: only {} messages", world.next);
        let open: Vec<_> = all.difference(&world.confirmed).collect();
        assert!(open.is_empty(), "seed {seed}: {open:?} of {} are not confirmed", all.len());
        let lost: Vec<_> = all.difference(&world.subscriber_has).collect();
        assert!(lost.is_empty(), "seed {seed}: {lost:?} of {} have not come", all.len());
        let once: Vec<u32> = (0..world.exactly_came.len() as u32).collect();
        assert_eq!(world.exactly_came, once, "seed {seed}: each once, in order");
        (cuts, exactly) = (cuts + world.cuts, exactly + once.len());
    }
    assert!(cuts > 500 && exactly > 500, "{cuts} {exactly}");
}

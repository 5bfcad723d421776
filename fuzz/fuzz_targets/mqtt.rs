//! `wire::mqtt`: any bytes, whole and in pieces, bring the same at our broker and at our client;
//! what is decoded is encoded to the same bytes.
#![no_main]

use edged::limits::MQTT_PACKET_BYTES_MAX;
use edged::wire::mqtt::broker::{Broker, BrokerEvent, Config, ConnectionId, End, Trust};
use edged::wire::mqtt::client::{Client, ClientEvent, Identity};
use edged::wire::mqtt::packet::{decode, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    round_trip(bytes);
    let whole = (at_broker(bytes, bytes.len().max(1)), at_client(bytes, bytes.len().max(1)));
    assert_eq!(whole, (at_broker(bytes, 1), at_client(bytes, 1)));
    assert_eq!(whole, (at_broker(bytes, 7), at_client(bytes, 7)));
});

fn round_trip(bytes: &[u8]) {
    let Ok(Some((packet, count))) = decode(bytes, MQTT_PACKET_BYTES_MAX) else { return };
    let mut again = Vec::new();
    encode(&packet, &mut again);
    // A length may be written with more digits than it needs, and of a CONNECT of another version
    // only the level is known.
    let back = decode(&again, count.max(12)).expect("ours is valid");
    assert_eq!(back, Some((packet, again.len())));
}

fn at_broker(bytes: &[u8], size: usize) -> (Vec<BrokerEvent>, Vec<u8>, Option<End>) {
    let (mut broker, mut events) = (Broker::new(Config::default()), Vec::new());
    broker.subscribe("#").expect("valid");
    broker.open(ConnectionId(1), Trust::Password, 0);
    for piece in bytes.chunks(size) {
        broker.receive(ConnectionId(1), piece, 0, &mut events);
    }
    let output = broker.output(ConnectionId(1)).to_vec();
    (events, output, broker.ended(ConnectionId(1)))
}

fn at_client(bytes: &[u8], size: usize) -> (Vec<ClientEvent>, Vec<u8>, bool) {
    let (mut client, mut events) = (Client::new(Identity::default()), Vec::new());
    client.subscribe("#").expect("valid");
    client.open(10_000);
    let mut pieces = bytes.chunks(size);
    let ended = pieces.any(|piece| client.receive(piece, 0, &mut events).is_err());
    (events, client.output().to_vec(), ended)
}

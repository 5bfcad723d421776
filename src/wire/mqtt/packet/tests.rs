//! Each packet there and back, and what is refused.

use super::*;
use crate::limits::MQTT_PACKET_BYTES_MAX;

fn id(id: u16) -> PacketId {
    PacketId::new(id).expect("not 0")
}

fn encoded(packet: &Packet<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(packet, &mut bytes);
    bytes
}

fn problem(bytes: &[u8]) -> Problem {
    match decode(bytes, MQTT_PACKET_BYTES_MAX) {
        Err(violation) => violation.problem,
        Ok(other) => panic!("{other:?}"),
    }
}

/// Comes back the same, whole and with more behind it, and never from a part of it.
fn there_and_back(packet: &Packet<'_>) {
    let mut bytes = encoded(packet);
    let count = bytes.len();
    for end in 0..count {
        assert_eq!(decode(&bytes[..end], count), Ok(None), "{end} of {packet:?}");
    }
    assert_eq!(decode(&bytes, count), Ok(Some((*packet, count))));
    bytes.extend_from_slice(&[0xff; 3]);
    assert_eq!(decode(&bytes, count), Ok(Some((*packet, count))));
    if count > 2 {
        let violation = decode(&bytes, count - 1).expect_err("it is too large by one");
        let expected = Problem::TooLarge { got_bytes: count, max_bytes: count - 1 };
        assert_eq!((violation.packet, violation.problem), (Some(packet.kind()), expected));
    }
}

#[test]
fn each_packet_comes_back_the_same() {
    let will = Will { topic: "w", payload: b"\0\xff", qos: QoS::AtLeastOnce, retain: true };
    let connect = Connect {
        is_v31: false,
        client_id: "edged-edge1",
        clean_session: false,
        keep_alive_s: 30,
        will: None,
        user: None,
        password: None,
    };
    let all = Connect { will: Some(will), user: Some("u"), password: Some(b"p\xff"), ..connect };
    let old = Connect { is_v31: true, clean_session: true, ..all };
    let publish = Publish {
        dup: true,
        retain: true,
        delivery: Delivery::ExactlyOnce(id(0xffff)),
        topic: "a/ü",
        payload: b"{}",
    };
    let plain = Publish { dup: false, retain: false, delivery: Delivery::AtMostOnce, ..publish };
    let large = vec![7; 20_000];
    let list = filter_list(["a/#", "+"].into_iter(), Some(QoS::AtLeastOnce));
    let names = filter_list(["a/#"].into_iter(), None);
    for packet in [
        Packet::Connect(connect),
        Packet::Connect(all),
        Packet::Connect(old),
        Packet::OtherVersion(5),
        Packet::ConnAck { session_present: true, code: ACCEPTED },
        Packet::ConnAck { session_present: false, code: NOT_AUTHORIZED },
        Packet::Publish(publish),
        Packet::Publish(plain),
        Packet::Publish(Publish { delivery: Delivery::AtLeastOnce(id(1)), payload: b"", ..plain }),
        Packet::Publish(Publish { payload: &large, ..plain }),
        Packet::PubAck(id(1)),
        Packet::PubRec(id(2)),
        Packet::PubRel(id(3)),
        Packet::PubComp(id(4)),
        Packet::Subscribe { id: id(5), filters: Filters::with_qos(&list) },
        Packet::SubAck { id: id(5), codes: &[0, 1, 2, SUBSCRIPTION_REFUSED] },
        Packet::Unsubscribe { id: id(6), filters: Filters::without_qos(&names) },
        Packet::UnsubAck(id(6)),
        Packet::PingReq,
        Packet::PingResp,
        Packet::Disconnect,
    ] {
        there_and_back(&packet);
    }
    let filters: Vec<_> = Filters::with_qos(&list).iter().collect();
    assert_eq!(filters, [("a/#", QoS::AtLeastOnce), ("+", QoS::AtLeastOnce)]);
}

#[test]
fn the_bytes_are_those_of_the_standard() {
    let connect = Connect {
        is_v31: false,
        client_id: "c",
        clean_session: true,
        keep_alive_s: 60,
        will: None,
        user: Some("u"),
        password: Some(b"p"),
    };
    let expected = b"\x10\x13\0\x04MQTT\x04\xc2\0\x3c\0\x01c\0\x01u\0\x01p";
    assert_eq!(encoded(&Packet::Connect(connect)), expected);
    let list = filter_list(["a/b", "c/d"].into_iter(), Some(QoS::AtLeastOnce));
    let subscribe = Packet::Subscribe { id: id(10), filters: Filters::with_qos(&list) };
    assert_eq!(encoded(&subscribe), b"\x82\x0e\0\x0a\0\x03a/b\x01\0\x03c/d\x01");
    assert_eq!(encoded(&Packet::PubRel(id(258))), [0x62, 2, 1, 2]);
    let large = Publish {
        dup: false,
        retain: false,
        delivery: Delivery::AtMostOnce,
        topic: "t",
        payload: &[0; 125],
    };
    assert_eq!(encoded(&Packet::Publish(large))[..5], [0x30, 0x80, 0x01, 0, 1]);
}

#[test]
fn what_the_standard_calls_malformed_is_refused() {
    let too_long = [&[0x30, 2, 0, 5][..], b"abcde"].concat();
    for (bytes, expected) in [
        (&too_long[..], Problem::Short),
        (b"\x82\x07\0\x01\0\x03a/#", Problem::Short),
        (b"\x50\0", Problem::Short),
        (b"\x36\x09\0\x03a/b\0\x01hi", Problem::QoS(3)),
        (b"\x30\x05\0\x03a\xffb", Problem::Utf8),
        (b"\x82\x02\0\x01", Problem::NoFilter),
        (b"\xa2\x02\0\x01", Problem::NoFilter),
        (b"\x60\x02\0\x01", Problem::Flags { got: 0, expected: 2 }),
        (b"\xc1\0", Problem::Flags { got: 1, expected: 0 }),
        (b"\x30\x07\0\x03a/#hi", Problem::Topic(topic::Fault::Wildcard)),
        (b"\x30\x02\0\0", Problem::Topic(topic::Fault::Empty)),
        (b"\x30\x03\0\x01\0", Problem::Nul),
        (b"\x38\x03\0\x01a", Problem::Dup),
        (b"\x32\x05\0\x01a\0\0", Problem::PacketId),
        (b"\x82\x08\0\x01\0\x03a#b\0", Problem::Topic(topic::Fault::WildcardPlace)),
        (b"\x82\x06\0\x01\0\x01a\x03", Problem::QoS(3)),
        (b"\x82\x06\0\x01\0\x01a\x11", Problem::Reserved(0x11)),
        (b"\x40\x03\0\x01\0", Problem::Trailing { got_bytes: 1 }),
        (b"\xc0\x01\0", Problem::Trailing { got_bytes: 1 }),
        (b"\x20\x02\x02\0", Problem::Reserved(2)),
        (b"\x20\x02\0\x06", Problem::Code(6)),
        (b"\x90\x03\0\x01\x03", Problem::Code(3)),
        (b"\x00\0", Problem::Kind(0)),
        (b"\xf0\0", Problem::Kind(15)),
        (b"\x30\xff\xff\xff\xff", Problem::Length),
        (b"\x10\x0c\0\x04MQTX\x04\x02\0\0\0\0", Problem::Protocol),
        (b"\x10\x0c\0\x04MQTT\x04\x03\0\0\0\0", Problem::ConnectFlags(3)),
        (b"\x10\x0c\0\x04MQTT\x04\x42\0\0\0\0", Problem::ConnectFlags(0x42)),
        (b"\x10\x0c\0\x04MQTT\x04\x0a\0\0\0\0", Problem::ConnectFlags(0x0a)),
        (b"\x10\x11\0\x04MQTT\x04\x1e\0\0\0\0\0\x01w\0\0", Problem::QoS(3)),
    ] {
        assert_eq!(problem(bytes), expected, "{bytes:x?}");
    }
}

#[test]
fn a_length_is_refused_before_the_packet_comes() {
    let got_bytes = 5 + 0x0fff_ffff;
    let expected = Problem::TooLarge { got_bytes, max_bytes: MQTT_PACKET_BYTES_MAX };
    assert_eq!(problem(&[0x30, 0xff, 0xff, 0xff, 0x7f]), expected);
    assert_eq!(problem(&[0x11]), Problem::Flags { got: 1, expected: 0 });
}

#[test]
fn errors_say_what_was_got_and_expected() {
    for (bytes, expected) in [
        (&b"\x60\x02\0\x01"[..], "PUBREL: got the flags 0, expected 2"),
        (b"G", "PUBACK: got the flags 7, expected 0"),
        (b"\0", "got the packet type 0, expected 1 to 14: is it MQTT?"),
        (b"\x30\x02\0\0", "PUBLISH: got an empty topic, expected at least one character"),
    ] {
        let violation = decode(bytes, 100).expect_err("it is malformed");
        assert_eq!(violation.to_string(), expected);
    }
    assert_eq!(refusal(BAD_VERSION), "it does not speak MQTT 3.1.1");
}

//! Packets → bytes.

use super::decode::{CLEAN_SESSION, HAS_PASSWORD, HAS_USER, HAS_WILL, WILL_RETAIN};
use super::{Connect, Delivery, Kind, Packet, PacketId, Publish, QoS};

/// Appends a packet. Its texts have at most 65,535 bytes each, all of it at most 256 MiB.
pub fn encode(packet: &Packet<'_>, to: &mut Vec<u8>) {
    let kind = packet.kind();
    match packet {
        Packet::Connect(connect) => put_connect(connect, to),
        Packet::OtherVersion(level) => {
            put_head(kind, 0, 10, to);
            put_bytes(b"MQTT", to);
            to.extend_from_slice(&[*level, CLEAN_SESSION, 0, 0]);
        }
        Packet::ConnAck { session_present, code } => {
            put_head(kind, 0, 2, to);
            to.extend_from_slice(&[u8::from(*session_present), *code]);
        }
        Packet::Publish(publish) => put_publish(publish, to),
        Packet::PubAck(id) | Packet::PubRec(id) | Packet::PubComp(id) | Packet::UnsubAck(id) => {
            put_list(kind, 0, *id, &[], to);
        }
        Packet::PubRel(id) => put_list(kind, 2, *id, &[], to),
        Packet::Subscribe { id, filters } | Packet::Unsubscribe { id, filters } => {
            put_list(kind, 2, *id, filters.bytes, to);
        }
        Packet::SubAck { id, codes } => put_list(kind, 0, *id, codes, to),
        Packet::PingReq | Packet::PingResp | Packet::Disconnect => put_head(kind, 0, 0, to),
    }
}

/// The filters of a SUBSCRIBE, or, without QoS, of an UNSUBSCRIBE.
pub fn filter_list<'f>(filters: impl Iterator<Item = &'f str>, qos: Option<QoS>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for filter in filters {
        put_bytes(filter.as_bytes(), &mut bytes);
        bytes.extend(qos.map(QoS::bits));
    }
    bytes
}

fn put_connect(connect: &Connect<'_>, to: &mut Vec<u8>) {
    let Connect { is_v31, client_id, clean_session, keep_alive_s, will, user, password } = connect;
    let (name, level): (&[u8], u8) = if *is_v31 { (b"MQIsdp", 3) } else { (b"MQTT", 4) };
    let mut body = Vec::with_capacity(64);
    put_bytes(name, &mut body);
    let mut flags = if *clean_session { CLEAN_SESSION } else { 0 };
    if let Some(will) = will {
        flags |= HAS_WILL | will.qos.bits() << 3 | if will.retain { WILL_RETAIN } else { 0 };
    }
    flags |= if user.is_some() { HAS_USER } else { 0 };
    flags |= if password.is_some() { HAS_PASSWORD } else { 0 };
    body.extend_from_slice(&[level, flags]);
    body.extend_from_slice(&keep_alive_s.to_be_bytes());
    put_bytes(client_id.as_bytes(), &mut body);
    if let Some(will) = will {
        put_bytes(will.topic.as_bytes(), &mut body);
        put_bytes(will.payload, &mut body);
    }
    for field in [user.map(str::as_bytes), *password].into_iter().flatten() {
        put_bytes(field, &mut body);
    }
    put_head(Kind::Connect, 0, body.len(), to);
    to.extend_from_slice(&body);
}

fn put_publish(publish: &Publish<'_>, to: &mut Vec<u8>) {
    let (qos, id) = match publish.delivery {
        Delivery::AtMostOnce => (QoS::AtMostOnce, None),
        Delivery::AtLeastOnce(id) => (QoS::AtLeastOnce, Some(id)),
        Delivery::ExactlyOnce(id) => (QoS::ExactlyOnce, Some(id)),
    };
    let flags = u8::from(publish.dup) << 3 | qos.bits() << 1 | u8::from(publish.retain);
    let id_bytes = if id.is_some() { 2 } else { 0 };
    let body_bytes = 2 + publish.topic.len() + id_bytes + publish.payload.len();
    put_head(Kind::Publish, flags, body_bytes, to);
    put_bytes(publish.topic.as_bytes(), to);
    if let Some(id) = id {
        to.extend_from_slice(&id.get().to_be_bytes());
    }
    to.extend_from_slice(publish.payload);
}

fn put_list(kind: Kind, flags: u8, id: PacketId, list: &[u8], to: &mut Vec<u8>) {
    put_head(kind, flags, 2 + list.len(), to);
    to.extend_from_slice(&id.get().to_be_bytes());
    to.extend_from_slice(list);
}

fn put_head(kind: Kind, flags: u8, body_bytes: usize, to: &mut Vec<u8>) {
    assert!(body_bytes < 1 << 28, "section 2.2.3: a length has four bytes at most");
    to.push(kind.bits() << 4 | flags);
    let mut rest = body_bytes;
    loop {
        let digit = (rest & 0x7f) as u8;
        rest >>= 7;
        if rest == 0 {
            return to.push(digit);
        }
        to.push(digit | 0x80);
    }
}

fn put_bytes(bytes: &[u8], to: &mut Vec<u8>) {
    let count = u16::try_from(bytes.len()).expect("section 1.5.3: 65,535 bytes at most");
    to.extend_from_slice(&count.to_be_bytes());
    to.extend_from_slice(bytes);
}

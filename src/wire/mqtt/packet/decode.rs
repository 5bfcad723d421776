//! Bytes → packets.

use super::{
    Connect, Delivery, Kind, Packet, PacketId, Problem, Publish, QoS, SUBSCRIPTION_REFUSED,
    Violation, Will,
};
use crate::wire::mqtt::topic;

/// A fixed header (section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub kind: Kind,
    pub flags: u8,
    /// Of itself.
    pub head_bytes: usize,
    /// Of what follows it.
    pub body_bytes: usize,
}

impl Head {
    pub fn packet_bytes(&self) -> usize {
        self.head_bytes + self.body_bytes
    }

    pub fn violation(&self, problem: Problem) -> Violation {
        Violation { packet: Some(self.kind), problem }
    }
}

/// The head of the packet at the beginning of these bytes. `None`: it is not complete.
pub fn head(bytes: &[u8]) -> Result<Option<Head>, Violation> {
    let Some((first, rest)) = bytes.split_first() else { return Ok(None) };
    let (number, flags) = (first >> 4, first & 0x0f);
    let Some(kind) = Kind::from_bits(number) else {
        return Err(Violation { packet: None, problem: Problem::Kind(number) });
    };
    let refuse = |problem| Err(Violation { packet: Some(kind), problem });
    let expected = match kind {
        Kind::Publish => flags,
        Kind::PubRel | Kind::Subscribe | Kind::Unsubscribe => 2,
        _ => 0,
    };
    if flags != expected {
        return refuse(Problem::Flags { got: flags, expected });
    }
    let mut body_bytes = 0;
    for (at, byte) in rest.iter().take(LENGTH_BYTES_MAX).enumerate() {
        body_bytes |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Ok(Some(Head { kind, flags, head_bytes: at + 2, body_bytes }));
        }
    }
    if rest.len() < LENGTH_BYTES_MAX { Ok(None) } else { refuse(Problem::Length) }
}

const LENGTH_BYTES_MAX: usize = 4;

/// The packet at the beginning of these bytes, and how many it has. `None`: it is not complete.
/// Call it again with the rest.
pub fn decode(
    bytes: &[u8],
    packet_bytes_max: usize,
) -> Result<Option<(Packet<'_>, usize)>, Violation> {
    let Some(head) = head(bytes)? else { return Ok(None) };
    let got_bytes = head.packet_bytes();
    if got_bytes > packet_bytes_max {
        return Err(head.violation(Problem::TooLarge { got_bytes, max_bytes: packet_bytes_max }));
    }
    let Some(body) = bytes.get(head.head_bytes..got_bytes) else { return Ok(None) };
    match body_of(&head, body) {
        Ok(packet) => Ok(Some((packet, got_bytes))),
        Err(problem) => Err(head.violation(problem)),
    }
}

fn body_of<'a>(head: &Head, body: &'a [u8]) -> Result<Packet<'a>, Problem> {
    let mut fields = Fields(body);
    let packet = match head.kind {
        Kind::Connect => return connect(fields),
        Kind::ConnAck => conn_ack(&mut fields)?,
        Kind::Publish => return publish(head.flags, fields),
        Kind::PubAck => Packet::PubAck(fields.id()?),
        Kind::PubRec => Packet::PubRec(fields.id()?),
        Kind::PubRel => Packet::PubRel(fields.id()?),
        Kind::PubComp => Packet::PubComp(fields.id()?),
        Kind::Subscribe => {
            let (id, filters) = (fields.id()?, super::Filters::with_qos(fields.0));
            check_filters(filters)?;
            return Ok(Packet::Subscribe { id, filters });
        }
        Kind::SubAck => {
            let (id, codes) = (fields.id()?, fields.0);
            let unknown = codes.iter().find(|code| **code > 2 && **code != SUBSCRIPTION_REFUSED);
            if let Some(code) = unknown {
                return Err(Problem::Code(*code));
            }
            return Ok(Packet::SubAck { id, codes });
        }
        Kind::Unsubscribe => {
            let (id, filters) = (fields.id()?, super::Filters::without_qos(fields.0));
            check_filters(filters)?;
            return Ok(Packet::Unsubscribe { id, filters });
        }
        Kind::UnsubAck => Packet::UnsubAck(fields.id()?),
        Kind::PingReq => Packet::PingReq,
        Kind::PingResp => Packet::PingResp,
        Kind::Disconnect => Packet::Disconnect,
    };
    fields.end()?;
    Ok(packet)
}

fn connect(mut fields: Fields<'_>) -> Result<Packet<'_>, Problem> {
    let is_v31 = match fields.bytes()? {
        b"MQTT" => false,
        b"MQIsdp" => true,
        _ => return Err(Problem::Protocol),
    };
    let level = fields.byte()?;
    if level != if is_v31 { 3 } else { 4 } {
        return Ok(Packet::OtherVersion(level));
    }
    let flags = fields.byte()?;
    let has = |bit: u8| flags & bit != 0;
    let is_wrong = has(RESERVED)
        || (!has(HAS_WILL) && flags & (WILL_RETAIN | WILL_QOS) != 0)
        || (has(HAS_PASSWORD) && !has(HAS_USER));
    if is_wrong {
        return Err(Problem::ConnectFlags(flags));
    }
    let keep_alive_s = fields.number()?;
    let client_id = fields.text()?;
    let will = if has(HAS_WILL) {
        let topic = fields.topic()?;
        let payload = fields.bytes()?;
        let qos = QoS::from_bits((flags & WILL_QOS) >> 3)?;
        Some(Will { topic, payload, qos, retain: has(WILL_RETAIN) })
    } else {
        None
    };
    let user = if has(HAS_USER) { Some(fields.text()?) } else { None };
    let password = if has(HAS_PASSWORD) { Some(fields.bytes()?) } else { None };
    fields.end()?;
    let clean_session = has(CLEAN_SESSION);
    Ok(Packet::Connect(Connect {
        is_v31,
        client_id,
        clean_session,
        keep_alive_s,
        will,
        user,
        password,
    }))
}

/// The flags of CONNECT (section 3.1.2.3).
const RESERVED: u8 = 0x01;
pub(super) const CLEAN_SESSION: u8 = 0x02;
pub(super) const HAS_WILL: u8 = 0x04;
const WILL_QOS: u8 = 0x18;
pub(super) const WILL_RETAIN: u8 = 0x20;
pub(super) const HAS_PASSWORD: u8 = 0x40;
pub(super) const HAS_USER: u8 = 0x80;

fn conn_ack<'a>(fields: &mut Fields<'_>) -> Result<Packet<'a>, Problem> {
    let (flags, code) = (fields.byte()?, fields.byte()?);
    if flags > 1 {
        return Err(Problem::Reserved(flags));
    }
    if code > super::NOT_AUTHORIZED {
        return Err(Problem::Code(code));
    }
    Ok(Packet::ConnAck { session_present: flags == 1, code })
}

fn publish(flags: u8, mut fields: Fields<'_>) -> Result<Packet<'_>, Problem> {
    let (dup, retain) = (flags & 8 != 0, flags & 1 != 0);
    let qos = QoS::from_bits(flags >> 1 & 3)?;
    if dup && qos == QoS::AtMostOnce {
        return Err(Problem::Dup);
    }
    let topic = fields.topic()?;
    let delivery = match qos {
        QoS::AtMostOnce => Delivery::AtMostOnce,
        QoS::AtLeastOnce => Delivery::AtLeastOnce(fields.id()?),
        QoS::ExactlyOnce => Delivery::ExactlyOnce(fields.id()?),
    };
    Ok(Packet::Publish(Publish { dup, retain, delivery, topic, payload: fields.0 }))
}

fn check_filters(filters: super::Filters<'_>) -> Result<(), Problem> {
    let mut rest = Fields(filters.bytes);
    if rest.0.is_empty() {
        return Err(Problem::NoFilter);
    }
    while !rest.0.is_empty() {
        topic::check_filter(rest.text()?)?;
        if filters.has_qos {
            let bits = rest.byte()?;
            if bits & 0xfc != 0 {
                return Err(Problem::Reserved(bits));
            }
            QoS::from_bits(bits)?;
        }
    }
    Ok(())
}

/// The filters of a list that was checked.
pub(super) struct Filters<'a> {
    rest: Fields<'a>,
    has_qos: bool,
}

impl<'a> Filters<'a> {
    pub(super) fn new(filters: super::Filters<'a>) -> Self {
        Self { rest: Fields(filters.bytes), has_qos: filters.has_qos }
    }
}

impl<'a> Iterator for Filters<'a> {
    type Item = (&'a str, QoS);

    fn next(&mut self) -> Option<Self::Item> {
        let filter = self.rest.text().ok()?;
        let bits = if self.has_qos { self.rest.byte().ok()? } else { 0 };
        Some((filter, QoS::from_bits(bits).ok()?))
    }
}

/// The fields of a packet that are not read yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn byte(&mut self) -> Result<u8, Problem> {
        let (byte, rest) = self.0.split_first().ok_or(Problem::Short)?;
        self.0 = rest;
        Ok(*byte)
    }

    fn number(&mut self) -> Result<u16, Problem> {
        Ok(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }

    fn id(&mut self) -> Result<PacketId, Problem> {
        PacketId::new(self.number()?).ok_or(Problem::PacketId)
    }

    /// Bytes after their length.
    fn bytes(&mut self) -> Result<&'a [u8], Problem> {
        let count = self.number()?.into();
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Problem::Short)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn text(&mut self) -> Result<&'a str, Problem> {
        let text = str::from_utf8(self.bytes()?).map_err(|_| Problem::Utf8)?;
        if text.contains('\0') { Err(Problem::Nul) } else { Ok(text) }
    }

    fn topic(&mut self) -> Result<&'a str, Problem> {
        let name = self.text()?;
        topic::check_name(name)?;
        Ok(name)
    }

    fn end(&self) -> Result<(), Problem> {
        match self.0.len() {
            0 => Ok(()),
            got_bytes => Err(Problem::Trailing { got_bytes }),
        }
    }
}

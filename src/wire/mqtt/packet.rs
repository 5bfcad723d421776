//! The control packets of MQTT 3.1.1 ↔ bytes (OASIS MQTT 3.1.1, sections 2 and 3), of both ends.
//!
//! [`decode`] borrows from the bytes and allocates nothing. It refuses whatever the standard calls
//! malformed: flags, lengths, texts that are not UTF-8, U+0000, packet ids of zero, wildcards in
//! topic names, subscriptions without a filter. MQTT 3.1 (`MQIsdp`) differs in the CONNECT alone.

mod decode;
mod encode;

use std::fmt;
use std::num::NonZeroU16;

use super::topic;
pub use decode::{Head, decode, head};
pub use encode::{encode, filter_list};

/// Identifies an unacknowledged packet in one direction of a session (section 2.3.1).
pub type PacketId = NonZeroU16;

/// The quality of service of a message (section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QoS {
    AtMostOnce,
    AtLeastOnce,
    ExactlyOnce,
}

impl QoS {
    fn from_bits(bits: u8) -> Result<Self, Problem> {
        match bits {
            0 => Ok(Self::AtMostOnce),
            1 => Ok(Self::AtLeastOnce),
            2 => Ok(Self::ExactlyOnce),
            _ => Err(Problem::QoS(bits)),
        }
    }

    fn bits(self) -> u8 {
        match self {
            Self::AtMostOnce => 0,
            Self::AtLeastOnce => 1,
            Self::ExactlyOnce => 2,
        }
    }
}

/// A control packet. Texts and payloads are borrowed from the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    Connect(Connect<'a>),
    /// A CONNECT of another version, of which only this level is known.
    OtherVersion(u8),
    ConnAck {
        session_present: bool,
        /// 0: accepted; see [`refusal`].
        code: u8,
    },
    Publish(Publish<'a>),
    PubAck(PacketId),
    PubRec(PacketId),
    PubRel(PacketId),
    PubComp(PacketId),
    Subscribe {
        id: PacketId,
        filters: Filters<'a>,
    },
    SubAck {
        id: PacketId,
        /// For each filter the granted QoS, or [`SUBSCRIPTION_REFUSED`].
        codes: &'a [u8],
    },
    Unsubscribe {
        id: PacketId,
        filters: Filters<'a>,
    },
    UnsubAck(PacketId),
    PingReq,
    PingResp,
    Disconnect,
}

/// Section 3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect<'a> {
    /// MQTT 3.1, level 3 with the name `MQIsdp`.
    pub is_v31: bool,
    pub client_id: &'a str,
    pub clean_session: bool,
    /// 0: none.
    pub keep_alive_s: u16,
    pub will: Option<Will<'a>>,
    pub user: Option<&'a str>,
    pub password: Option<&'a [u8]>,
}

/// The message that a broker publishes when the client is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Will<'a> {
    pub topic: &'a str,
    pub payload: &'a [u8],
    pub qos: QoS,
    pub retain: bool,
}

/// Section 3.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publish<'a> {
    pub dup: bool,
    pub retain: bool,
    pub delivery: Delivery,
    pub topic: &'a str,
    pub payload: &'a [u8],
}

/// The QoS of a PUBLISH, with the id that the higher two have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    AtMostOnce,
    AtLeastOnce(PacketId),
    ExactlyOnce(PacketId),
}

/// The filters of a SUBSCRIBE or an UNSUBSCRIBE; they were checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filters<'a> {
    bytes: &'a [u8],
    has_qos: bool,
}

impl<'a> Filters<'a> {
    /// Of a SUBSCRIBE: see [`filter_list`].
    pub fn with_qos(bytes: &'a [u8]) -> Self {
        Self { bytes, has_qos: true }
    }

    /// Of an UNSUBSCRIBE.
    pub fn without_qos(bytes: &'a [u8]) -> Self {
        Self { bytes, has_qos: false }
    }

    /// Each filter with the requested QoS; [`QoS::AtMostOnce`] in an UNSUBSCRIBE.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, QoS)> {
        decode::Filters::new(self)
    }
}

/// The code of CONNACK (section 3.2.2.3) in words.
pub fn refusal(code: u8) -> &'static str {
    match code {
        ACCEPTED => "accepted",
        BAD_VERSION => "it does not speak MQTT 3.1.1",
        BAD_CLIENT_ID => "it does not accept the client id",
        UNAVAILABLE => "it is not available",
        BAD_PASSWORD => "user name or password are wrong",
        NOT_AUTHORIZED => "the client is not authorized",
        _ => "it refuses the connection with an unknown code",
    }
}

pub const ACCEPTED: u8 = 0;
pub const BAD_VERSION: u8 = 1;
pub const BAD_CLIENT_ID: u8 = 2;
pub const UNAVAILABLE: u8 = 3;
pub const BAD_PASSWORD: u8 = 4;
pub const NOT_AUTHORIZED: u8 = 5;
/// In a SUBACK.
pub const SUBSCRIPTION_REFUSED: u8 = 0x80;

/// The type of a packet (section 2.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Connect,
    ConnAck,
    Publish,
    PubAck,
    PubRec,
    PubRel,
    PubComp,
    Subscribe,
    SubAck,
    Unsubscribe,
    UnsubAck,
    PingReq,
    PingResp,
    Disconnect,
}

/// In the order of their numbers, from 1.
const KINDS: [(Kind, &str); 14] = [
    (Kind::Connect, "CONNECT"),
    (Kind::ConnAck, "CONNACK"),
    (Kind::Publish, "PUBLISH"),
    (Kind::PubAck, "PUBACK"),
    (Kind::PubRec, "PUBREC"),
    (Kind::PubRel, "PUBREL"),
    (Kind::PubComp, "PUBCOMP"),
    (Kind::Subscribe, "SUBSCRIBE"),
    (Kind::SubAck, "SUBACK"),
    (Kind::Unsubscribe, "UNSUBSCRIBE"),
    (Kind::UnsubAck, "UNSUBACK"),
    (Kind::PingReq, "PINGREQ"),
    (Kind::PingResp, "PINGRESP"),
    (Kind::Disconnect, "DISCONNECT"),
];

impl Kind {
    fn from_bits(bits: u8) -> Option<Self> {
        Some(KINDS.get(usize::from(bits).checked_sub(1)?)?.0)
    }

    fn bits(self) -> u8 {
        self as u8 + 1
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(KINDS[*self as usize].1)
    }
}

impl Packet<'_> {
    pub fn kind(&self) -> Kind {
        match self {
            Self::Connect(_) | Self::OtherVersion(_) => Kind::Connect,
            Self::ConnAck { .. } => Kind::ConnAck,
            Self::Publish(_) => Kind::Publish,
            Self::PubAck(_) => Kind::PubAck,
            Self::PubRec(_) => Kind::PubRec,
            Self::PubRel(_) => Kind::PubRel,
            Self::PubComp(_) => Kind::PubComp,
            Self::Subscribe { .. } => Kind::Subscribe,
            Self::SubAck { .. } => Kind::SubAck,
            Self::Unsubscribe { .. } => Kind::Unsubscribe,
            Self::UnsubAck(_) => Kind::UnsubAck,
            Self::PingReq => Kind::PingReq,
            Self::PingResp => Kind::PingResp,
            Self::Disconnect => Kind::Disconnect,
        }
    }
}

/// The other end broke the protocol: the connection is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// `None`: the first byte names no packet.
    pub packet: Option<Kind>,
    pub problem: Problem,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.packet {
            Some(kind) => write!(f, "{kind}: {}", self.problem),
            None => self.problem.fmt(f),
        }
    }
}

impl std::error::Error for Violation {}

/// What is wrong with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The first byte's upper half is 0 or 15.
    Kind(u8),
    /// The first byte's lower half.
    Flags {
        got: u8,
        expected: u8,
    },
    /// The length has more than four bytes.
    Length,
    TooLarge {
        got_bytes: usize,
        max_bytes: usize,
    },
    /// A field ends after the packet.
    Short,
    /// Bytes after the last field.
    Trailing {
        got_bytes: usize,
    },
    Utf8,
    Nul,
    PacketId,
    QoS(u8),
    /// DUP in a PUBLISH of QoS 0.
    Dup,
    Topic(topic::Fault),
    NoFilter,
    /// A reserved bit of a SUBSCRIBE's QoS, or of a CONNACK's flags.
    Reserved(u8),
    /// The protocol's name in CONNECT.
    Protocol,
    ConnectFlags(u8),
    /// A code that the standard does not know in CONNACK or SUBACK.
    Code(u8),
    /// Not in this state, or not from this end.
    Unexpected,
    /// More messages at once than the other end was told, or than the limit.
    TooMany {
        max: usize,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(got) => {
                write!(f, "got the packet type {got}, expected 1 to 14: is it MQTT?")
            }
            Self::Flags { got, expected } => write!(f, "got the flags {got}, expected {expected}"),
            Self::Length => f.write_str("got a length of more than four bytes"),
            Self::TooLarge { got_bytes, max_bytes } => {
                write!(f, "got {got_bytes} bytes, expected {max_bytes} at most")
            }
            Self::Short => f.write_str("a field ends after the packet"),
            Self::Trailing { got_bytes } => {
                write!(f, "got {got_bytes} bytes after the last field, expected none")
            }
            Self::Utf8 => f.write_str("got a text that is not UTF-8"),
            Self::Nul => f.write_str("got U+0000 in a text, expected none"),
            Self::PacketId => f.write_str("got the packet id 0, expected another"),
            Self::QoS(got) => write!(f, "got QoS {got}, expected 0, 1 or 2"),
            Self::Dup => f.write_str("got DUP with QoS 0, expected QoS 1 or 2"),
            Self::Topic(fault) => fault.fmt(f),
            Self::NoFilter => f.write_str("got no filter, expected at least one"),
            Self::Reserved(got) => write!(f, "got the reserved bits {got:#04x}, expected none"),
            Self::Protocol => f.write_str("got another protocol's name, expected MQTT"),
            Self::ConnectFlags(got) => write!(f, "got the flags {got:#04x}, which contradict"),
            Self::Code(got) => write!(f, "got the code {got:#04x}, which is not known"),
            Self::Unexpected => f.write_str("it is not expected now"),
            Self::TooMany { max } => write!(f, "got more at once than expected: {max} at most"),
        }
    }
}

impl From<topic::Fault> for Problem {
    fn from(fault: topic::Fault) -> Self {
        Self::Topic(fault)
    }
}

#[cfg(test)]
mod tests;
